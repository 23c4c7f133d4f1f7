//! Damage: what was found that cannot be read, and what it costs, for operators.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use metric::{MetricId, Timestamp};

/// Findings that are kept as examples; all are counted.
const EXAMPLES: usize = 256;

/// Bytes that could not be read as what they should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// When it was found, Unix seconds.
    pub found_at: Timestamp,
    /// The kind of thing: "block of rows", "journal record", "names record", "file of rows", …
    pub what: &'static str,
    /// The file, relative to the data folder where that is known.
    pub file: String,
    /// What was found instead of what was expected.
    pub how: String,
    /// Bytes that cannot be read.
    pub bytes: u64,
    /// Where the bytes were moved, if they were.
    pub moved_to: Option<String>,
    /// First and last of the metrics that may be touched, by id, where that is known.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be touched, Unix seconds, where that is known.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// The damage found since the start, shared by everything that reads files. A clone shares it.
#[derive(Debug, Clone, Default)]
pub struct DamageLog {
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    bytes: u64,
    examples: VecDeque<Damage>,
}

impl DamageLog {
    /// Nothing found yet.
    pub fn new() -> DamageLog {
        DamageLog::default()
    }

    /// Keeps a finding, unless the same bytes were reported before. Returns whether it is new: only then does the
    /// caller log it.
    pub fn report(&self, damage: Damage) -> bool {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |known: &Damage| (known.what, &known.file, &known.how) == (damage.what, &damage.file, &damage.how);
        if found.examples.iter().any(is_same) {
            return false;
        }
        found.count += 1;
        found.bytes += damage.bytes;
        if found.examples.len() == EXAMPLES {
            found.examples.pop_front();
        }
        found.examples.push_back(damage);
        true
    }

    /// Findings and their bytes since the start.
    pub fn totals(&self) -> (u64, u64) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        (found.count, found.bytes)
    }

    /// The last findings, oldest first.
    pub fn examples(&self) -> Vec<Damage> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.examples.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_damage_is_counted_once_and_examples_are_bounded() {
        let log = DamageLog::new();
        let damage = |n: usize| Damage { what: "block of rows", file: n.to_string(), bytes: 2, ..Damage::default() };
        assert!(log.report(damage(0)));
        assert!(!log.clone().report(damage(0)));
        assert_eq!(log.totals(), (1, 2));
        for n in 1..=EXAMPLES {
            log.report(damage(n));
        }
        assert_eq!((log.totals().0, log.examples().len()), (EXAMPLES as u64 + 1, EXAMPLES));
    }
}
