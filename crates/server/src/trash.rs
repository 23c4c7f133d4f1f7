//! Emptying the trash of the data folder: by running time, oldest first, and earlier while the disk is short.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Host, JudgingTime, Trash};

/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// With fewer free bytes on the disk, the oldest of the trash goes before its time.
const SHORT_OF_DISK: u64 = 1 << 30;

/// What emptying the trash needs.
#[derive(Clone)]
pub struct Emptying {
    pub trash: Arc<Trash>,
    pub time: Arc<JudgingTime>,
    pub host: Host,
    pub data: PathBuf,
    /// How long the program must have run since something came.
    pub keep: Duration,
}

impl Emptying {
    /// Empties the trash now and then. Nothing goes while the clock is in doubt: it may be what made things expire.
    pub async fn run(self) {
        let mut before = self.host.clock.instant();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || this.look(before)).await;
            match looked {
                Ok(Ok(now)) => before = now,
                Ok(Err(error)) => tracing::warn!(%error, "cannot empty the trash of the data folder; retrying"),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
    }

    /// Counts the time since `before`, and deletes what is old enough. Returns up to when time is counted.
    fn look(&self, before: Instant) -> io::Result<Instant> {
        let now = self.host.clock.instant();
        self.trash.add_running(now.saturating_duration_since(before))?;
        if self.time.doubt().is_none() {
            self.empty()?;
        }
        Ok(now)
    }

    fn empty(&self) -> io::Result<()> {
        for entry in self.trash.entries()? {
            let is_short = self.host.disk.free_bytes(&self.data)? < SHORT_OF_DISK;
            if entry.age < self.keep && !is_short {
                // The others are younger.
                return Ok(());
            }
            self.trash.delete(&entry.name)?;
            tracing::info!(
                entry = entry.what,
                bytes = entry.bytes,
                is_short_of_disk = is_short,
                "deleted from the trash"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn the_age_of_trash_is_running_time_and_a_doubt_keeps_all() {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_795_000_000));
        let host = Host { clock: clock.clone(), ..Host::system() };
        let trash = Arc::new(Trash::open(&host, data.path()).unwrap());
        let time = Arc::new(JudgingTime::of(clock.clone()));
        let keep = Duration::from_secs(3 * 86_400);
        let emptying = Emptying { trash, time, host, data: data.path().to_owned(), keep };
        std::fs::write(data.path().join("old"), "x").unwrap();
        emptying.trash.move_in(&data.path().join("old")).unwrap();
        let entries = || emptying.trash.entries().unwrap().len();

        // A year by the calendar alone.
        let begin = emptying.host.clock.instant();
        clock.set(1_795_000_000 + 365 * 86_400);
        emptying.look(begin).unwrap();
        assert_eq!(entries(), 1);
        clock.advance(keep);
        let counted = emptying.look(begin).unwrap();
        assert_eq!(entries(), 1, "in doubt");
        assert!(emptying.time.trust(host::Candidate::Clock));
        emptying.look(counted).unwrap();
        assert_eq!(entries(), 0);
    }
}
