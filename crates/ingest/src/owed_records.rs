//! Records that this process knows better than the embedded store: what others changed, which no journal has. They are owed until the store has
//! them on its disk, whatever ends the task that writes them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use metric::MetricId;
use parking_lot::Mutex;

/// Records of one call of the store: a deletion of another node, and new metrics, wait for as long.
pub(crate) const GROUP: usize = 4096;

/// Metrics whose records are owed.
#[derive(Debug, Default)]
pub(crate) struct OwedRecords {
    /// By which change: one that comes while a record is written is not in it.
    metrics: Mutex<BTreeMap<MetricId, u64>>,
    changes: AtomicU64,
}

impl OwedRecords {
    /// Returns the number of this change.
    pub(crate) fn add(&self, metrics: impl IntoIterator<Item = MetricId>) -> u64 {
        let change = self.changes.fetch_add(1, Relaxed);
        self.metrics.lock().extend(metrics.into_iter().map(|id| (id, change)));
        change
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.lock().is_empty()
    }

    /// Some of them, and by which change.
    pub(crate) fn group(&self) -> BTreeMap<MetricId, u64> {
        self.metrics.lock().iter().take(GROUP).map(|(&id, &change)| (id, change)).collect()
    }

    /// The store has what these were at their changes.
    pub(crate) fn are_written(&self, group: &BTreeMap<MetricId, u64>) {
        let mut owed = self.metrics.lock();
        for (id, change) in group {
            if owed.get(id) == Some(change) {
                owed.remove(id);
            }
        }
    }
}
