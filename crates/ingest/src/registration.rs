//! Registration: new metrics on their way to the metrics table, within about a second and never in the way of points.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use metadata::Registry;
use metric::MetricId;
use parking_lot::Mutex;
use store::{MetricRecord, NameStore, StoreError};

use crate::{backoff::StoreBackoff, no_panic::NoPanic, store_health::StoreHealth, wal::Journal};

/// Metrics of one call of the store: enough that its parallel requests do not run dry at the end of each call.
const GROUP: usize = 4096;

/// Time between two looks for new metrics.
const INTERVAL: Duration = Duration::from_millis(500);

/// Looks for a metric that is gone from the metrics table, one in each interval: by then what others have deleted is deleted here, and is
/// written no more. One that is still here was lost from the table, and is written again.
const LOOKS: u8 = 20;

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
    /// How many looks found it gone from the table, if it was there before and has another policy now. `None` for a metric that points
    /// made here.
    looks: Option<u8>,
}

impl Queued {
    /// Whether it is written wherever it is.
    fn is_new(&self) -> bool {
        self.looks.is_none_or(|looks| LOOKS <= looks)
    }
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
        self.unregistered.lock().extend(metrics.into_iter().map(|metric| Queued { metric, looks: None }));
    }

    /// Queues metrics that got other policies. One that is not in the metrics table yet is queued before that.
    pub(crate) fn add_changed(&self, metrics: impl IntoIterator<Item = MetricId>) {
        self.unregistered.lock().extend(metrics.into_iter().map(|metric| Queued { metric, looks: Some(0) }));
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

    /// Writes the records of a group. Returns those that are gone from the table, for another look.
    async fn put(&self, group: &[Queued], records: Vec<MetricRecord>) -> Result<Vec<Queued>, StoreError> {
        let new: HashSet<MetricId> =
            group.iter().filter(|queued| queued.is_new()).map(|queued| queued.metric).collect();
        let (new, changed): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| new.contains(&record.id));
        if !new.is_empty() {
            self.names.put_metrics(new).await?;
        }
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let left_out: HashSet<MetricId> = self.names.put_changed_metrics(changed).await?.into_iter().collect();
        let again = group.iter().filter(|queued| left_out.contains(&queued.metric));
        Ok(again.map(|&Queued { metric, looks }| Queued { metric, looks: looks.map(|looks| looks + 1) }).collect())
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
            let group: Vec<Queued> = self.unregistered.lock().iter().take(left.min(GROUP)).copied().collect();
            if group.is_empty() {
                return Ok(());
            }
            let records = self.registry.records(&group.iter().map(|queued| queued.metric).collect::<Vec<_>>());
            let writing = async {
                if records.iter().any(|record| 1 < record.policies.len()) {
                    // A replay that finds a change in the store, and not in the journal, takes all points of the journal for later ones.
                    self.journal.changes_synced().await?;
                }
                self.put(&group, records).await
            };
            let again = match NoPanic::new(writing).await {
                Ok(again) => again,
                Err(error) => {
                    self.errors.fetch_add(1, Relaxed);
                    self.health.registration.failed(&error, FAILED);
                    return Err(StoreError::from(error));
                }
            };
            self.health.registration.worked(WORKED);
            // Only now: a caller may be cancelled while it waits for the store.
            {
                let mut unregistered = self.unregistered.lock();
                unregistered.drain(..group.len());
                unregistered.extend(again);
            }
            left -= group.len();
            drop(turn);
            // A store that never waits would keep this thread while millions are written.
            tokio::task::yield_now().await;
        }
    }
}
