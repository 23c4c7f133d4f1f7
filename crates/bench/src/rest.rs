//! Waiting until a server and its stores are idle, and the processor time used by then.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{Error, process::Process};

/// A process is idle when it used less than this share of one processor …
const IDLE_SHARE: f64 = 0.03;
/// … for this long.
const IDLE_WINDOW: Duration = Duration::from_millis(2_500);
/// Poll interval.
const PAUSE: Duration = Duration::from_millis(100);

/// The end of a wait for a group of processes, such as the nodes of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rest {
    /// From the start of the wait until the last of them stopped working; `None` if one still worked at its end.
    pub(crate) after: Option<Duration>,
    /// Processor time of all of them, from their start until they were idle, or until the wait ended.
    pub(crate) cpu: Duration,
    /// The last share of one processor used by the busiest of them.
    pub(crate) share: f64,
}

/// Processor time so far of all processes of a group; `None` for an empty group.
pub(crate) fn cpu(group: &[Process]) -> Result<Option<Duration>, Error> {
    let mut sum = None;
    for process in group {
        sum = Some(sum.unwrap_or_default() + process.cpu()?);
    }
    Ok(sum)
}

/// Waits until all processes of all groups are idle together, because one gives the other work; at most for `timeout`.
/// The processor time of an idle group stops counting, even while another still works: half a minute of a JVM's background
/// work would be much per point of a small load. An empty group has no [`Rest`].
pub(crate) fn wait<const GROUPS: usize>(
    groups: [&[Process]; GROUPS],
    timeout: Duration,
) -> Result<[Option<Rest>; GROUPS], Error> {
    let mut activities = groups.map(|group| Activity { seen: vec![Vec::new(); group.len()], idle: None });
    let started = Instant::now();
    loop {
        let now = started.elapsed();
        for (group, activity) in groups.iter().zip(&mut activities) {
            for (process, seen) in group.iter().zip(&mut activity.seen) {
                seen.push((now, process.cpu()?));
            }
            activity.update();
        }
        if timeout < now || activities.iter().all(|group| group.seen.is_empty() || group.idle.is_some()) {
            return Ok(activities.map(|group| group.rest()));
        }
        sleep(PAUSE);
    }
}

/// The processor times of a group during the wait.
struct Activity {
    /// For each process: the time, and the processor time used until then.
    seen: Vec<Vec<(Duration, Duration)>>,
    /// When they stopped working, and the processor time used by then. Forgotten when one works again.
    idle: Option<(Duration, Duration)>,
}

impl Activity {
    /// Takes the last samples into account.
    fn update(&mut self) {
        let since = self
            .seen
            .iter()
            .map(|seen| idle_since(seen))
            .try_fold(Duration::ZERO, |last, since| since.map(|since| last.max(since)));
        self.idle = since.map(|since| self.idle.unwrap_or((since, self.used())));
    }

    fn used(&self) -> Duration {
        self.seen.iter().filter_map(|seen| seen.last()).map(|(_, cpu)| *cpu).sum()
    }

    fn rest(&self) -> Option<Rest> {
        if self.seen.is_empty() {
            return None;
        }
        let share = self.seen.iter().map(|seen| share(seen)).fold(0.0, f64::max);
        Some(match self.idle {
            Some((since, cpu)) => Rest { after: Some(since), cpu, share },
            None => Rest { after: None, cpu: self.used(), share },
        })
    }
}

/// The beginning of the idle window that ends with the last sample, if there is one.
fn idle_since(seen: &[(Duration, Duration)]) -> Option<Duration> {
    let &(now, _) = seen.last()?;
    let &(then, _) = seen.iter().rev().find(|(then, _)| *then + IDLE_WINDOW <= now)?;
    (share(seen) < IDLE_SHARE).then_some(then)
}

/// The share of one processor used in the window that ends with the last sample, or since the first one.
fn share(seen: &[(Duration, Duration)]) -> f64 {
    let Some(&(now, cpu)) = seen.last() else { return 0.0 };
    let begin = seen.iter().rev().find(|(then, _)| *then + IDLE_WINDOW <= now).or(seen.first());
    match begin {
        // Processor time cannot go backwards, but a process number can be given to another process.
        Some(&(then, used)) if then < now => cpu.saturating_sub(used).as_secs_f64() / (now - then).as_secs_f64(),
        _ => 0.0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that stops with the test.
    pub(crate) struct Running(Child);

    impl Running {
        /// A process that uses a processor all the time.
        pub(crate) fn busy() -> Running {
            Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("there is a shell"))
        }

        /// A process that does nothing.
        pub(crate) fn idle() -> Running {
            Running(Command::new("sleep").arg("600").spawn().expect("there is a sleep"))
        }

        pub(crate) fn id(&self) -> u32 {
            self.0.id()
        }

        fn process(&self) -> Process {
            Process::new(self.id()).expect("the process runs")
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            // The process may have ended before.
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn idle_starts_where_work_ends() {
        let mut seen: Vec<_> = (0..10).map(|i| (at(100 * i), at(80 * i))).collect();
        assert_eq!(idle_since(&seen), None);
        seen.extend((10..34).map(|i| (at(100 * i), at(720))));
        assert_eq!(idle_since(&seen), None, "2.4 s since the last work");
        seen.push((at(3_400), at(720)));
        assert_eq!(idle_since(&seen), Some(at(900)));
    }

    /// A group with the milliseconds used by each process at each tenth of a second.
    fn watched<const PROCESSES: usize>(used: [fn(u64) -> u64; PROCESSES], tenths: u64) -> Activity {
        let mut activity = Activity { seen: vec![Vec::new(); PROCESSES], idle: None };
        for tenth in 0..=tenths {
            for (used, seen) in used.iter().zip(&mut activity.seen) {
                seen.push((at(100 * tenth), at(used(tenth))));
            }
            activity.update();
        }
        activity
    }

    #[test]
    fn a_group_is_idle_with_its_last_process_and_counts_no_more_from_then_on() {
        // The second works for five seconds; afterwards each uses two milliseconds in a hundred.
        let nodes: [fn(u64) -> u64; 2] = [|tenth| 2 * tenth, |tenth| 60 * tenth.min(50) + 2 * tenth];
        assert_eq!(watched(nodes, 60).rest().map(|rest| rest.after), Some(None));
        let rest = watched(nodes, 600).rest().expect("a group with processes");
        assert_eq!(rest.after, Some(at(5_000)));
        assert_eq!(rest.cpu, at(3_000 + 75 * 4), "found two and a half seconds later");
        assert!((rest.share - 0.02).abs() < 1e-9);
    }

    #[test]
    fn a_group_that_works_again_is_not_idle() {
        // Nothing for four seconds, then work for two.
        let store: [fn(u64) -> u64; 1] = [|tenth| 50 * tenth.clamp(40, 60)];
        assert!(watched(store, 35).idle.is_some());
        let busy = watched(store, 60).rest().expect("a group with a process");
        assert_eq!((busy.after, busy.cpu), (None, at(3_000)));
        let rested = watched(store, 100).rest().expect("a group with a process");
        assert_eq!(rested.after, Some(at(5_900)), "its last tenth of a second is less than 3 % of the window");
    }

    #[test]
    fn a_wait_for_a_busy_process_times_out_and_shows_which_it_was() {
        let (busy, idle) = (Running::busy(), Running::idle());
        let started = Instant::now();
        let [server, stores, none] =
            wait([&[busy.process()], &[idle.process()], &[]], at(4_000)).expect("both can be measured");
        assert!(started.elapsed() < at(20_000), "{:?}", started.elapsed());
        let (server, stores) = (server.expect("a group with a process"), stores.expect("a group with a process"));
        assert!(server.after.is_none() && IDLE_SHARE < server.share && Duration::ZERO < server.cpu, "{server:?}");
        assert!(stores.after.is_some() && stores.share < IDLE_SHARE, "{stores:?}");
        assert_eq!(none, None);
    }

    #[test]
    fn processor_time_of_a_group_is_that_of_all_its_processes() {
        let myself = Process::new(std::process::id()).expect("we are here");
        assert_eq!(cpu(&[]).expect("nothing to read"), None);
        let once = cpu(&[myself]).expect("we can be read").expect("a group with a process");
        let twice = cpu(&[myself, myself]).expect("we can be read").expect("a group with processes");
        assert!(2 * once <= twice, "{once:?} {twice:?}");
    }
}
