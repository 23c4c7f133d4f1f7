//! Registration: new metrics on their way to the metrics table, within about a second and never in the way of points.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use metadata::Registry;
use metric::MetricId;
use parking_lot::Mutex;
use store::{NameStore, StoreError};

use crate::{backoff::StoreBackoff, no_panic::NoPanic, store_health::StoreHealth, wal::Journal};

/// Metrics of one call of the store: enough that its parallel requests do not run dry at the end of each call.
const GROUP: usize = 4096;

/// Time between two looks for new metrics.
const INTERVAL: Duration = Duration::from_millis(500);

const FAILED: &str = "cannot write new metrics to the store; they are safe in the journal; retrying";
const NOT_DELETED: &str = "cannot delete metrics from the store; the journal has the deletions; retrying";
const WORKED: &str = "the store accepts new metrics again";

/// Metrics that are in the journal and not in the metrics table yet.
pub(crate) struct Registration {
    names: Arc<dyn NameStore>,
    registry: Arc<Registry>,
    health: Arc<StoreHealth>,
    journal: Arc<Journal>,
    unregistered: Mutex<VecDeque<Queued>>,
    /// Metrics that are deleted here and whose rows are still in the metrics table.
    deleted: Mutex<VecDeque<MetricId>>,
    /// Serialises writes to the metrics table: what one has written, another must not take off the queue.
    registration_lock: Arc<tokio::sync::Mutex<()>>,
    errors: AtomicU64,
}

/// A metric on its way to the metrics table.
#[derive(Debug, Clone, Copy)]
struct Queued {
    metric: MetricId,
    /// Whether it was there before, and has another policy now. Otherwise points made it here.
    is_changed: bool,
}

/// While it lasts, no name is written to the metrics table by others than its owner.
pub struct Turn(#[expect(dead_code, reason = "its drop ends the turn")] tokio::sync::OwnedMutexGuard<()>);

impl Registration {
    pub(crate) fn new(
        names: Arc<dyn NameStore>,
        registry: Arc<Registry>,
        health: Arc<StoreHealth>,
        journal: Arc<Journal>,
    ) -> Registration {
        Registration {
            names,
            registry,
            health,
            journal,
            unregistered: Mutex::default(),
            deleted: Mutex::default(),
            registration_lock: Arc::default(),
            errors: AtomicU64::new(0),
        }
    }

    /// Queues metrics whose records changed.
    pub(crate) fn add(&self, metrics: impl IntoIterator<Item = MetricId>) {
        self.unregistered.lock().extend(metrics.into_iter().map(|metric| Queued { metric, is_changed: false }));
    }

    /// Queues metrics that got other policies. One that is not in the metrics table yet is queued before that.
    pub(crate) fn add_changed(&self, metrics: impl IntoIterator<Item = MetricId>) {
        self.unregistered.lock().extend(metrics.into_iter().map(|metric| Queued { metric, is_changed: true }));
    }

    /// Waits for a write of the metrics table, and makes others wait until the answer is dropped.
    pub(crate) async fn turn(&self) -> Turn {
        Turn(self.registration_lock.clone().lock_owned().await)
    }

    /// Queues metrics whose rows are to be deleted.
    pub(crate) fn add_deleted(&self, metrics: impl IntoIterator<Item = MetricId>) {
        self.deleted.lock().extend(metrics);
    }

    /// Deletes the rows of all metrics that are queued for it, durably. Counts and logs an error; the rest stays queued.
    pub(crate) async fn delete_queued(&self, _turn: &Turn) -> Result<(), StoreError> {
        loop {
            let group: Vec<MetricId> = self.deleted.lock().iter().take(GROUP).copied().collect();
            if group.is_empty() {
                return Ok(());
            }
            let deleting = async {
                self.names.delete_metrics(group.clone()).await?;
                self.names.sync_metrics().await
            };
            let deleted = NoPanic::new(deleting).await;
            if let Err(error) = &deleted {
                self.errors.fetch_add(1, Relaxed);
                self.health.registration.failed(error, NOT_DELETED);
                return deleted.map_err(StoreError::from);
            }
            self.health.registration.worked(WORKED);
            self.deleted.lock().drain(..group.len());
        }
    }

    /// The metrics that are not in the metrics table yet.
    pub(crate) fn unregistered(&self) -> Vec<MetricId> {
        self.unregistered.lock().iter().map(|queued| queued.metric).collect()
    }

    /// Failed calls of the store.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Registers new metrics until the task is aborted.
    pub(crate) async fn run(self: Arc<Registration>) {
        let mut backoff = StoreBackoff::new();
        loop {
            tokio::time::sleep(INTERVAL).await;
            match self.register().await {
                Ok(()) => backoff.reset(),
                Err(error) => self.health.registration.wait(backoff.next_wait(&error)).await,
            }
        }
    }

    /// The next metrics of the queue that are all new, or all changed.
    fn group(&self, most: usize) -> Vec<Queued> {
        let unregistered = self.unregistered.lock();
        let Some(first) = unregistered.front() else { return Vec::new() };
        let is_same = |queued: &&Queued| queued.is_changed == first.is_changed;
        unregistered.iter().take(most).take_while(is_same).copied().collect()
    }

    /// Writes every metric that is queued at this moment to the metrics table. Counts and logs an error; the metrics
    /// stay queued.
    pub(crate) async fn register(&self) -> Result<(), StoreError> {
        // Without the turn, which a deletion needs. It has no errors of its own.
        let _ = self.names.names_are_current().await;
        let mut left = self.unregistered.lock().len();
        loop {
            // One for each group: a deletion of another node must not wait for millions of names.
            let turn = self.turn().await;
            self.delete_queued(&turn).await?;
            let group = self.group(left.min(GROUP));
            if group.is_empty() {
                return Ok(());
            }
            let records = self.registry.records(&group.iter().map(|queued| queued.metric).collect::<Vec<_>>());
            let writing = async {
                if records.iter().any(|record| 1 < record.policies.len()) {
                    // A replay that finds a change in the store, and not in the journal, takes all points of the journal for later ones.
                    self.journal.changes_synced().await?;
                }
                match group[0].is_changed {
                    true => self.names.put_changed_metrics(records).await,
                    false => self.names.put_metrics(records).await,
                }
            };
            let written = NoPanic::new(writing).await;
            if let Err(error) = &written {
                self.errors.fetch_add(1, Relaxed);
                self.health.registration.failed(error, FAILED);
                return written.map_err(StoreError::from);
            }
            self.health.registration.worked(WORKED);
            // Only now: a caller may be cancelled while it waits for the store.
            self.unregistered.lock().drain(..group.len());
            left -= group.len();
            drop(turn);
            // A store that never waits would keep this thread while millions are written.
            tokio::task::yield_now().await;
        }
    }
}
