//! Directories that were written to the tables, so that a new metric does not write its ancestors again.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

/// Directories remembered, at most: sixteen megabytes. At the limit all are forgotten, and written again, which is
/// harmless.
const MAX: usize = 1 << 20;

/// How long a directory is remembered. When another program deletes one, a new metric below restores it after this time.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Hashes of written paths. Of two paths with one hash the second would not be written: once in 2^24 times at a million
/// paths, and until they are forgotten. Readers of the tables then miss a directory, not a point.
#[derive(Debug)]
pub(super) struct WrittenDirectories {
    hasher: RandomState,
    clock: Arc<dyn Clock>,
    remembered: Mutex<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    hashes: HashSet<u64>,
    since: Instant,
}

impl Remembered {
    fn clear(&mut self, now: Instant) {
        // Not `clear()`: that would keep the memory.
        *self = Remembered { hashes: HashSet::new(), since: now };
    }
}

impl WrittenDirectories {
    /// None yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> WrittenDirectories {
        let remembered = Mutex::new(Remembered { hashes: HashSet::new(), since: clock.instant() });
        WrittenDirectories { hasher: RandomState::new(), clock, remembered }
    }

    /// Whether a path was written within the last hour.
    pub(super) fn has(&self, path: &str) -> bool {
        let hash = self.hasher.hash_one(path);
        let now = self.clock.instant();
        let mut remembered = self.remembered.lock();
        if now - remembered.since > KEPT_FOR {
            remembered.clear(now);
        }
        remembered.hashes.contains(&hash)
    }

    /// Forgets all: names were deleted, and perhaps the directories above them.
    pub(super) fn forget(&self) {
        self.remembered.lock().clear(self.clock.instant());
    }

    /// Remembers paths that were written.
    pub(super) fn add<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        let mut remembered = self.remembered.lock();
        for path in paths {
            if remembered.hashes.len() == MAX {
                remembered.clear(self.clock.instant());
            }
            remembered.hashes.insert(self.hasher.hash_one(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn a_written_directory_is_remembered_for_an_hour() {
        let clock = Arc::new(ManualClock::at(0));
        let directories = WrittenDirectories::new(clock.clone());
        assert!(!directories.has("a.b"));
        directories.add(["a", "a.b"]);
        assert!(directories.has("a.b") && directories.has("a") && !directories.has("a.c"));
        clock.advance(KEPT_FOR + Duration::from_secs(1));
        assert!(!directories.has("a.b"));
        directories.add(["a.b"]);
        directories.forget();
        assert!(!directories.has("a.b"));
    }

    #[test]
    fn the_number_of_remembered_directories_is_bounded() {
        let directories = WrittenDirectories::new(Arc::new(ManualClock::at(0)));
        let paths: Vec<String> = (0..=MAX).map(|number| number.to_string()).collect();
        directories.add(paths.iter().map(String::as_str));
        assert_eq!(directories.remembered.lock().hashes.len(), 1);
        assert!(directories.has(&MAX.to_string()));
    }
}
