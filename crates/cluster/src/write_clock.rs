//! The highest write timestamp in this node's rows, kept in its data folder.
//!
//! Of two writes of one row Cassandra keeps the one with the higher timestamp. Within a process timestamps never go back.
//! After a restart with a clock that was set back, corrections would lose against the rows that they correct.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use host::{Disk, Open};

/// `data/write-clock`: microseconds since 1970, as text.
#[derive(Debug)]
pub(crate) struct WriteClock {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    kept: AtomicI64,
}

impl WriteClock {
    /// The timestamp that a data folder keeps; 0 when the file is missing or invalid.
    pub(crate) fn open(disk: Arc<dyn Disk>, data: &Path) -> WriteClock {
        let path = data.join("write-clock");
        let kept = match disk.read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or_else(|_| {
                tracing::warn!(file = %path.display(),
                    "cannot parse write-clock; starting from 0. Corrections are lost if the system clock was set back");
                0
            }),
            Err(_) => 0,
        };
        WriteClock { disk, path, kept: AtomicI64::new(kept) }
    }

    /// The highest timestamp known to be used; 0 when none is.
    pub(crate) fn kept(&self) -> i64 {
        self.kept.load(Relaxed)
    }

    /// Keeps a timestamp if it is higher. Not fsynced: a loss matters only when the machine crashes and its clock is set
    /// back by more than the seconds since.
    pub(crate) fn keep(&self, timestamp: i64) {
        if timestamp <= self.kept() {
            return;
        }
        match self.write(timestamp) {
            Ok(()) => self.kept.store(timestamp, Relaxed),
            Err(error) => {
                tracing::warn!(%error, file = %self.path.display(), "cannot write write-clock; retrying in a second");
            }
        }
    }

    fn write(&self, timestamp: i64) -> io::Result<()> {
        let draft = self.path.with_extension("draft");
        self.disk.open(&draft, Open::Create)?.write_all(format!("{timestamp}\n").as_bytes())?;
        self.disk.rename(&draft, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use host::{Host, SystemDisk};

    use super::*;

    #[test]
    fn the_highest_timestamp_survives_and_an_invalid_file_reads_as_zero() {
        let data = tempfile::tempdir().unwrap();
        let clock = WriteClock::open(Host::system().disk, data.path());
        assert_eq!(clock.kept(), 0);
        clock.keep(7_000_000);
        clock.keep(6_000_000);
        assert_eq!(WriteClock::open(Arc::new(SystemDisk), data.path()).kept(), 7_000_000);
        std::fs::write(data.path().join("write-clock"), "soon").unwrap();
        assert_eq!(WriteClock::open(Arc::new(SystemDisk), data.path()).kept(), 0);
    }
}
