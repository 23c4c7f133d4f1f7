//! Directories that are known to be in the tables, so that a new metric does not write its ancestors again.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Directories remembered, at most: sixteen megabytes. When there are more, all are forgotten; writing one again does no
/// harm.
const KEPT: usize = 1 << 20;

/// How long they are remembered: another program may have deleted one, and a new metric beneath it brings it back.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Hashes of paths. Of two paths with one hash the second would not be written: once in 2^24 times when a
/// million are kept, and until they are forgotten; readers of the tables then miss a directory, no one a point.
#[derive(Debug, Default)]
pub(super) struct KnownDirectories {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    hashes: HashSet<u64>,
    since: Instant,
}

impl Default for Known {
    fn default() -> Known {
        Known { hashes: HashSet::new(), since: Instant::now() }
    }
}

impl KnownDirectories {
    /// Whether a path was written not long ago.
    pub(super) fn has(&self, path: &str) -> bool {
        let hash = self.hasher.hash_one(path);
        let mut known = self.known.lock();
        if known.since.elapsed() > KEPT_FOR {
            *known = Known::default();
        }
        known.hashes.contains(&hash)
    }

    /// Forgets all of them: names were deleted, and perhaps the directories above them.
    pub(super) fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    /// Remembers paths that were written.
    pub(super) fn add<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        let mut known = self.known.lock();
        for path in paths {
            if known.hashes.len() == KEPT {
                *known = Known::default();
            }
            known.hashes.insert(self.hasher.hash_one(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_once_it_was_written() {
        let known = KnownDirectories::default();
        assert!(!known.has("a.b"));
        known.add(["a", "a.b"]);
        assert!(known.has("a.b") && known.has("a") && !known.has("a.c"));
        known.forget();
        assert!(!known.has("a.b"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = KnownDirectories::default();
        let paths: Vec<String> = (0..=KEPT).map(|number| number.to_string()).collect();
        known.add(paths.iter().map(String::as_str));
        assert_eq!(known.known.lock().hashes.len(), 1);
        assert!(known.has(&KEPT.to_string()));
    }
}
