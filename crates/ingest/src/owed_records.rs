//! Records that this process knows better than the embedded store: what others changed, which no journal has. They are owed until the store has
//! them on its disk, whatever ends the task that writes them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use metric::MetricId;
use parking_lot::Mutex;
use store::{NameStore, StoreError};

use crate::policy_changes::PolicyChanges;

/// Records of one call of the store: a deletion of another node, and new metrics, wait for as long.
const GROUP: usize = 4096;

/// Metrics whose records are owed.
#[derive(Debug, Default)]
pub(crate) struct OwedRecords {
    /// By which change: one that comes while a record is written is not in it.
    metrics: Mutex<BTreeMap<MetricId, u64>>,
    changes: AtomicU64,
}

impl OwedRecords {
    pub(crate) fn add(&self, metrics: impl IntoIterator<Item = MetricId>) {
        let change = self.changes.fetch_add(1, Relaxed);
        self.metrics.lock().extend(metrics.into_iter().map(|id| (id, change)));
    }

    /// The store has them as they are.
    pub(crate) fn remove(&self, metrics: impl IntoIterator<Item = MetricId>) {
        let mut owed = self.metrics.lock();
        for id in metrics {
            owed.remove(&id);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.lock().is_empty()
    }

    fn group(&self) -> BTreeMap<MetricId, u64> {
        self.metrics.lock().iter().take(GROUP).map(|(&id, &change)| (id, change)).collect()
    }

    fn are_written(&self, group: &BTreeMap<MetricId, u64>) {
        self.metrics.lock().retain(|id, change| group.get(id) != Some(change));
    }
}

impl PolicyChanges {
    /// See [`Ingest::write_owed_records`](crate::Ingest::write_owed_records).
    pub(crate) async fn write_owed_records(&self, local: &dyn NameStore) -> Result<(), StoreError> {
        while !self.owed.is_empty() {
            // Their own changes are written after that.
            let _turn = self.registration.turn().await;
            let group = self.owed.group();
            // A replay that finds a change in the store, and not in the journal, takes all points of the journal for later ones.
            let _ = self.journal.append_names().await;
            let _ = self.journal.synced().await;
            local.put_metrics(self.registry.records(&group.keys().copied().collect::<Vec<_>>())).await?;
            local.sync_metrics().await?;
            self.owed.are_written(&group);
        }
        Ok(())
    }
}
