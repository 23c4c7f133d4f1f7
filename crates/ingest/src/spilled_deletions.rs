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
    /// Seconds of a slot of its first stage.
    step: i64,
}

#[derive(Default)]
struct Deleted {
    /// By the ids that they had.
    metrics: HashMap<MetricId, Ended>,
    /// When the latest metric of each name was deleted, Unix seconds.
    latest: HashMap<String, Timestamp>,
}

/// These metrics.
#[derive(Default)]
pub(crate) struct SpilledDeletions(Mutex<Deleted>);

impl SpilledDeletions {
    /// Notes a metric that another process deleted at this time, Unix seconds. A slot of its first stage has `step` seconds.
    pub(crate) fn note(&self, metric: MetricId, name: &str, at: Timestamp, step: i64) {
        let Deleted { metrics, latest } = &mut *self.0.lock();
        if let Some(known) = latest.get_mut(name) {
            *known = at.max(*known);
        }
        if metrics.len() < REMEMBERED {
            metrics.insert(metric, Ended { name: name.to_owned(), step });
            latest.entry(name.to_owned()).or_insert(at);
        }
    }

    /// Notes that a metric was deleted at this time, Unix seconds, by this process or another one: what is spilled of earlier ones of its name is of before that, too.
    pub(crate) fn note_later(&self, name: &str, at: Timestamp) {
        if let Some(known) = self.0.lock().latest.get_mut(name) {
            *known = at.max(*known);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().metrics.is_empty()
    }

    /// The name of the metric that a point at this time is of, and when the latest one of this name was deleted. `None` where its slot began before that.
    pub(crate) fn later(&self, metric: MetricId, time: Timestamp) -> Option<(String, Timestamp)> {
        let Deleted { metrics, latest } = &*self.0.lock();
        let Ended { name, step } = metrics.get(&metric)?;
        let at = latest.get(name)?;
        (*at < time - time.rem_euclid(*step)).then(|| (name.clone(), *at))
    }

    /// Nothing is spilled any more.
    pub(crate) fn forget(&self) {
        *self.0.lock() = Deleted::default();
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
        // The one that was made again is deleted, too: elsewhere, and here.
        deletions.note(MetricId(5), "a.b", 1_020, 10);
        assert_eq!(deletions.later(MetricId(3), 1_020), None);
        assert_eq!(deletions.later(MetricId(3), 1_030), Some(("a.b".to_owned(), 1_020)));
        deletions.note_later("a.b", 1_040);
        deletions.note_later("other", 1_040);
        assert_eq!((deletions.later(MetricId(3), 1_040), deletions.later(MetricId(5), 1_040)), (None, None));
        for other in 0..REMEMBERED as u32 {
            deletions.note(MetricId(10 + other), "many", 1_000, 10);
        }
        deletions.note(MetricId(6), "a.b", 1_060, 10);
        assert_eq!(deletions.later(MetricId(3), 1_060), None, "its id has no more room, and its name is there");
        deletions.forget();
        assert!(deletions.is_empty());
    }
}
