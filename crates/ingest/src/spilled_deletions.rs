//! Metrics that others deleted while points are spilled. Points of them in slots that begin after the deletion are of metrics that are made
//! again when the points are read back.
//!
//! A process that ends before that has the deletion in its journal behind these points, and its next start drops them.

use std::collections::HashMap;

use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

/// Metrics that are remembered. Points of further ones are dropped.
const REMEMBERED: usize = 200_000;

/// A metric that was deleted.
struct Ended {
    name: String,
    /// When it was deleted, Unix seconds.
    at: Timestamp,
    /// Seconds of a slot of its first stage.
    step: i64,
}

/// These metrics, by the ids that they had.
#[derive(Default)]
pub(crate) struct SpilledDeletions(Mutex<HashMap<MetricId, Ended>>);

impl SpilledDeletions {
    /// Notes a metric that another process deleted at this time, Unix seconds. A slot of its first stage has `step` seconds.
    pub(crate) fn note(&self, metric: MetricId, name: &str, at: Timestamp, step: i64) {
        let mut ended = self.0.lock();
        if ended.len() < REMEMBERED {
            ended.insert(metric, Ended { name: name.to_owned(), at, step });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The name of the metric that a point at this time is of, and when the one was deleted that it came for. `None` where its slot began before that.
    pub(crate) fn later(&self, metric: MetricId, time: Timestamp) -> Option<(String, Timestamp)> {
        let ended = self.0.lock();
        let Ended { name, at, step } = ended.get(&metric)?;
        (*at < time - time.rem_euclid(*step)).then(|| (name.clone(), *at))
    }

    /// Nothing is spilled any more.
    pub(crate) fn forget(&self) {
        *self.0.lock() = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_slots_that_begin_after_a_deletion_are_of_a_later_metric() {
        let deletions = SpilledDeletions::default();
        deletions.note(MetricId(3), "a.b", 1_000, 10);
        assert_eq!(deletions.later(MetricId(3), 1_009), None, "its slot began with the deletion");
        assert_eq!(deletions.later(MetricId(3), 1_010), Some(("a.b".to_owned(), 1_000)));
        assert_eq!(deletions.later(MetricId(4), 1_010), None);
        deletions.forget();
        assert!(deletions.is_empty());
    }
}
