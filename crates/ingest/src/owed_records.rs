//! Records that this process knows better than the embedded store: what others changed, which no journal has. They are owed until the store has
//! them on its disk, whatever ends the task that writes them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use metadata::Registry;
use metric::MetricId;
use parking_lot::Mutex;
use store::{NameStore, StoreError};

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

    pub(crate) fn is_empty(&self) -> bool {
        self.metrics.lock().is_empty()
    }

    /// Writes them, and returns when they are on the disk. No other may write names meanwhile: their own changes come after these.
    ///
    /// # Errors
    /// The store's own; all of them stay owed.
    pub(crate) async fn write(&self, registry: &Registry, local: &dyn NameStore) -> Result<(), StoreError> {
        let written = self.metrics.lock().clone();
        if written.is_empty() {
            return Ok(());
        }
        local.put_metrics(registry.records(&written.keys().copied().collect::<Vec<_>>())).await?;
        local.sync_metrics().await?;
        self.metrics.lock().retain(|id, change| written.get(id) != Some(change));
        Ok(())
    }
}
