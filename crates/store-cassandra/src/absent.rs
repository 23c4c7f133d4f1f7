//! Tables that a keyspace does not have, remembered for a second: readers of both layouts do not ask with every read for the
//! table of the other one.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

/// How long a table counts as absent.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Who creates a table waits so long before the first write: every reader has looked for it again by then, and derives nothing
/// without it.
pub(crate) const SEEN_AFTER: Duration = Duration::from_secs(2);

/// When tables were not found.
#[derive(Debug)]
pub(crate) struct Absent<K> {
    clock: Arc<dyn Clock>,
    found_absent: Mutex<HashMap<K, Instant>>,
}

impl<K: Eq + Hash> Absent<K> {
    /// None yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Absent<K> {
        Absent { clock, found_absent: Mutex::default() }
    }

    /// Whether it was absent a moment ago.
    pub(crate) fn is_known(&self, table: &K) -> bool {
        let now = self.clock.instant();
        self.found_absent.lock().get(table).is_some_and(|since| now.saturating_duration_since(*since) < KNOWN_FOR)
    }

    /// It is absent. `asked` is when that was asked.
    pub(crate) fn note(&self, table: K, asked: Instant) {
        self.found_absent.lock().insert(table, asked);
    }

    /// It is there, or may be.
    pub(crate) fn forget(&self, table: &K) {
        self.found_absent.lock().remove(table);
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn a_table_is_absent_for_a_second() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let absent = Absent::new(clock.clone());
        assert!(!absent.is_known(&1));
        absent.note(1, clock.instant());
        assert!(absent.is_known(&1) && !absent.is_known(&2));
        absent.forget(&1);
        assert!(!absent.is_known(&1));
        absent.note(1, clock.instant());
        clock.advance(KNOWN_FOR);
        assert!(!absent.is_known(&1));
        assert!(KNOWN_FOR < SEEN_AFTER);
    }
}
