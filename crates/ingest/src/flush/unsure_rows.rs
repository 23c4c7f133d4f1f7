//! Rows of a write that failed, where each row is a statement of its own: some are stored, and which is not known.
//!
//! A row that is all that is left of earlier points is the only place that says which late points it counts. Were it made again from
//! what is stored, it could get them twice, or lack them. So the same rows are written again, before others of their metric are made. Only
//! of metrics whose policy has changed: other rows follow from the slots under them, however often they are made.

use std::collections::HashMap;

use metric::MetricId;
use parking_lot::Mutex;
use store::Run;

/// The rows, by metric. No more than a step of each group that is being written (`attempt.rs`), and no longer than its jobs are in memory.
#[derive(Default)]
pub(super) struct UnsureRows {
    rows: Mutex<HashMap<MetricId, Vec<Run>>>,
}

impl UnsureRows {
    /// Keeps rows that are about to be written.
    pub(super) fn keep(&self, rows: impl Iterator<Item = Run>) {
        let mut all = self.rows.lock();
        rows.for_each(|row| all.entry(row.metric).or_default().push(row));
    }

    /// The kept rows of these metrics.
    pub(super) fn of(&self, metrics: impl Iterator<Item = MetricId>) -> Vec<Run> {
        let all = self.rows.lock();
        if all.is_empty() {
            return Vec::new();
        }
        metrics.filter_map(|metric| all.get(&metric)).flatten().cloned().collect()
    }

    /// Lets go of the rows of these metrics: they are stored, or their points were set aside.
    pub(super) fn forget(&self, metrics: impl Iterator<Item = MetricId>) {
        let mut all = self.rows.lock();
        if !all.is_empty() {
            metrics.for_each(|metric| _ = all.remove(&metric));
        }
    }
}
