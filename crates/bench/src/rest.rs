//! When a server and its stores have come to rest, and how much processor time they had used by then.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{Error, process::Process};

/// A process is idle when it used less than this share of one processor …
const IDLE_SHARE: f64 = 0.03;
/// … for so long.
const IDLE_WINDOW: Duration = Duration::from_millis(2_500);
/// How often processes are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// How processes that are reported together, such as the nodes of a store, came out of a wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rest {
    /// From the beginning of the wait until the last of them had stopped working; `None` if one still was at work
    /// when the wait ended.
    pub(crate) after: Option<Duration>,
    /// Processor time of all of them, from their start until they were found idle, or until the wait ended.
    pub(crate) cpu: Duration,
    /// The share of one processor that the busiest of them used last.
    pub(crate) share: f64,
}

/// Processor time so far of all processes of a group; `None` when there are none.
pub(crate) fn cpu(group: &[Process]) -> Result<Option<Duration>, Error> {
    let mut sum = None;
    for process in group {
        sum = Some(sum.unwrap_or_default() + process.cpu()?);
    }
    Ok(sum)
}

/// Waits until all processes of all groups are idle at once, because the one gives the other work, and for no longer
/// than `timeout`. A group that rests counts from then on no processor time, even while another is waited for: what a
/// JVM does by itself in half a minute would be much on a point of a small load. A group without processes has no rest.
pub(crate) fn wait<const GROUPS: usize>(
    groups: [&[Process]; GROUPS],
    timeout: Duration,
) -> Result<[Option<Rest>; GROUPS], Error> {
    let mut watched = groups.map(|group| Watched { seen: vec![Vec::new(); group.len()], rest: None });
    let started = Instant::now();
    loop {
        let now = started.elapsed();
        for (group, watched) in groups.iter().zip(&mut watched) {
            for (process, seen) in group.iter().zip(&mut watched.seen) {
                seen.push((now, process.cpu()?));
            }
            watched.look();
        }
        if timeout < now || watched.iter().all(|group| group.seen.is_empty() || group.rest.is_some()) {
            return Ok(watched.map(|group| group.came_out()));
        }
        sleep(PAUSE);
    }
}

/// A group while it is waited for.
struct Watched {
    /// Of each process (time, processor time used until then).
    seen: Vec<Vec<(Duration, Duration)>>,
    /// When they had stopped working, and what they had used when that was found. Forgotten when one works again.
    rest: Option<(Duration, Duration)>,
}

impl Watched {
    /// Follows from what was seen last.
    fn look(&mut self) {
        let idle = self
            .seen
            .iter()
            .map(|seen| idle_since(seen))
            .try_fold(Duration::ZERO, |last, since| since.map(|since| last.max(since)));
        self.rest = idle.map(|since| self.rest.unwrap_or((since, self.used())));
    }

    fn used(&self) -> Duration {
        self.seen.iter().filter_map(|seen| seen.last()).map(|(_, cpu)| *cpu).sum()
    }

    fn came_out(&self) -> Option<Rest> {
        if self.seen.is_empty() {
            return None;
        }
        let share = self.seen.iter().map(|seen| share(seen)).fold(0.0, f64::max);
        Some(match self.rest {
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

    /// A process that ends with the test.
    pub(crate) struct Running(Child);

    impl Running {
        /// One that uses a processor all the time.
        pub(crate) fn busy() -> Running {
            Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("there is a shell"))
        }

        /// One that does nothing.
        pub(crate) fn idle() -> Running {
            Running(Command::new("sleep").arg("600").spawn().expect("there is a sleep"))
        }

        pub(crate) fn id(&self) -> u32 {
            self.0.id()
        }

        fn process(&self) -> Process {
            Process::new(self.id()).expect("it runs")
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            // It may have ended by itself.
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn idle_begins_where_the_work_ended() {
        let mut seen: Vec<_> = (0..10).map(|i| (at(100 * i), at(80 * i))).collect();
        assert_eq!(idle_since(&seen), None);
        seen.extend((10..34).map(|i| (at(100 * i), at(720))));
        assert_eq!(idle_since(&seen), None, "2.4 s since the last work");
        seen.push((at(3_400), at(720)));
        assert_eq!(idle_since(&seen), Some(at(900)));
    }

    /// A group whose processes had used so many milliseconds at each tenth of a second.
    fn watched<const PROCESSES: usize>(used: [fn(u64) -> u64; PROCESSES], tenths: u64) -> Watched {
        let mut watched = Watched { seen: vec![Vec::new(); PROCESSES], rest: None };
        for tenth in 0..=tenths {
            for (used, seen) in used.iter().zip(&mut watched.seen) {
                seen.push((at(100 * tenth), at(used(tenth))));
            }
            watched.look();
        }
        watched
    }

    #[test]
    fn a_group_rests_when_its_last_process_does_and_uses_no_more_from_then_on() {
        // The second works for five seconds; afterwards each uses two milliseconds in a hundred.
        let nodes: [fn(u64) -> u64; 2] = [|tenth| 2 * tenth, |tenth| 60 * tenth.min(50) + 2 * tenth];
        assert_eq!(watched(nodes, 60).came_out().map(|rest| rest.after), Some(None));
        let rest = watched(nodes, 600).came_out().expect("there are processes");
        assert_eq!(rest.after, Some(at(5_000)));
        assert_eq!(rest.cpu, at(3_000 + 75 * 4), "found two and a half seconds later");
        assert!((rest.share - 0.02).abs() < 1e-9);
    }

    #[test]
    fn a_group_that_works_again_is_not_at_rest() {
        // Nothing for four seconds, then work for two.
        let store: [fn(u64) -> u64; 1] = [|tenth| 50 * tenth.clamp(40, 60)];
        assert!(watched(store, 35).rest.is_some());
        let busy = watched(store, 60).came_out().expect("there is a process");
        assert_eq!((busy.after, busy.cpu), (None, at(3_000)));
        let rested = watched(store, 100).came_out().expect("there is a process");
        assert_eq!(rested.after, Some(at(5_900)), "its last tenth of a second is less than 3 % of the window");
    }

    #[test]
    fn a_wait_for_what_never_rests_is_bounded_and_says_who_it_was() {
        let (busy, idle) = (Running::busy(), Running::idle());
        let started = Instant::now();
        let [server, stores, nobody] =
            wait([&[busy.process()], &[idle.process()], &[]], at(4_000)).expect("both can be measured");
        assert!(started.elapsed() < at(20_000), "{:?}", started.elapsed());
        let (server, stores) = (server.expect("it is a group"), stores.expect("it is a group"));
        assert!(server.after.is_none() && IDLE_SHARE < server.share && Duration::ZERO < server.cpu, "{server:?}");
        assert!(stores.after.is_some() && stores.share < IDLE_SHARE, "{stores:?}");
        assert_eq!(nobody, None);
    }

    #[test]
    fn processor_time_of_a_group_is_that_of_all_its_processes() {
        let myself = Process::new(std::process::id()).expect("we are here");
        assert_eq!(cpu(&[]).expect("nothing to read"), None);
        let once = cpu(&[myself]).expect("we can be read").expect("there is a process");
        let twice = cpu(&[myself, myself]).expect("we can be read").expect("there are processes");
        assert!(2 * once <= twice, "{once:?} {twice:?}");
    }
}
