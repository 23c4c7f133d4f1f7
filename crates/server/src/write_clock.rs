//! The highest write timestamp that this node's rows bear, kept beside its data.
//!
//! Of two writes of one row Cassandra keeps the one with the higher timestamp. Within a process they never go back; after a
//! restart with a clock that was set back, corrections would lose against the rows that they correct.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

/// `data/write-clock`: microseconds since 1970, as text.
pub struct WriteClock {
    path: PathBuf,
    kept: AtomicI64,
}

impl WriteClock {
    /// In a data folder, as it was kept there. One that cannot be read is told, and begins anew.
    pub fn of(data: &Path) -> WriteClock {
        let path = data.join("write-clock");
        let kept = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or_else(|_| {
                tracing::warn!(file = %path.display(), "it is no number: which timestamps were used is not known");
                0
            }),
            Err(_) => 0,
        };
        WriteClock { path, kept: AtomicI64::new(kept) }
    }

    /// The highest timestamp known to be used; 0 when none is.
    pub fn kept(&self) -> i64 {
        self.kept.load(Relaxed)
    }

    /// Keeps a timestamp, where it is a higher one. Not made durable: only a clock that is set back within seconds of a
    /// crash of the machine could tell.
    pub fn keep(&self, timestamp: i64) {
        if timestamp <= self.kept() {
            return;
        }
        let draft = self.path.with_extension("draft");
        let written =
            std::fs::write(&draft, format!("{timestamp}\n")).and_then(|()| std::fs::rename(&draft, &self.path));
        match written {
            Ok(()) => self.kept.store(timestamp, Relaxed),
            Err(error) => {
                tracing::warn!(%error, file = %self.path.display(), "which timestamps were used could not be kept")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_timestamp_survives_and_nonsense_is_none() {
        let data = tempfile::tempdir().unwrap();
        let clock = WriteClock::of(data.path());
        assert_eq!(clock.kept(), 0);
        clock.keep(7_000_000);
        clock.keep(6_000_000);
        assert_eq!(WriteClock::of(data.path()).kept(), 7_000_000);
        std::fs::write(data.path().join("write-clock"), "soon").unwrap();
        assert_eq!(WriteClock::of(data.path()).kept(), 0);
    }
}
