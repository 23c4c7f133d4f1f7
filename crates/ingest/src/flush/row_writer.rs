//! Jobs to rows in the store, however often the store fails first.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use downsample::{Coverage, Stored, WriterPartials};
use host::{Clock, JudgingTime};
use metadata::Registry;
use metric::Timestamp;
use store::{Store, StoreError};

use super::plan::{FlushPlan, GroupRows, JobPoints};
use crate::{
    back_pressure::BackPressure,
    backoff::store_backoff,
    counters::Durations,
    memtable::{FlushJob, Memtable},
    no_panic::NoPanic,
    spill::Spill,
    store_health::StoreHealth,
    wal::{Journal, NamesOnDisk},
};

/// A store that does not answer for this long does not take points: they spill rather than keep senders waiting.
const SLOW: Duration = Duration::from_secs(5);

const FAILED: &str = "cannot write points to the store; they are safe in the journal; retrying";
const WORKED: &str = "the store accepts points again";

/// Counters of the writer.
#[derive(Debug, Default)]
pub(crate) struct FlushCounters {
    /// Failed calls of the driver.
    pub(crate) store_errors: AtomicU64,
    pub(crate) metrics: AtomicU64,
    /// Stage-0 points.
    pub(crate) points: AtomicU64,
    /// How long a group of metrics took.
    pub(crate) groups: Durations,
}

/// The owners that a writer works with.
pub(crate) struct RowWriterParts {
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<JudgingTime>,
}

/// Writes jobs to the store.
pub(crate) struct RowWriter {
    with: RowWriterParts,
    counters: FlushCounters,
}

impl RowWriter {
    pub(crate) fn new(with: RowWriterParts) -> Arc<RowWriter> {
        Arc::new(RowWriter { with, counters: FlushCounters::default() })
    }

    pub(crate) fn counters(&self) -> &FlushCounters {
        &self.counters
    }

    /// Stores the jobs, retrying until the driver accepts them, and releases them. In a task of its own, which ends
    /// also when the caller is cancelled.
    pub(crate) async fn write(self: &Arc<RowWriter>, jobs: Vec<Arc<FlushJob>>, names: NamesOnDisk) {
        let writer = self.clone();
        run_to_its_end(async move { writer.write_until_stored(jobs, names).await }).await;
    }

    /// As [`RowWriter::write`], after an fsync of the names that were given by now.
    pub(crate) async fn write_after_names(self: &Arc<RowWriter>, jobs: Vec<Arc<FlushJob>>, journal: &Arc<Journal>) {
        let (writer, journal) = (self.clone(), journal.clone());
        run_to_its_end(async move {
            if !jobs.is_empty() {
                let names = journal.synced().await;
                writer.write_until_stored(jobs, names).await;
            }
        })
        .await;
    }

    /// Waits until all rows are on the store's disk.
    pub(crate) async fn sync_store(&self) -> Result<(), StoreError> {
        let synced = NoPanic::new(self.with.store.sync()).await;
        if synced.is_err() {
            self.counters.store_errors.fetch_add(1, Relaxed);
        }
        synced
    }

    async fn write_until_stored(&self, jobs: Vec<Arc<FlushJob>>, _: NamesOnDisk) {
        if jobs.is_empty() {
            return;
        }
        let RowWriterParts { memtable, back_pressure, clock, health, .. } = &self.with;
        let (policies, began) = (memtable.policies(), clock.instant());
        let sorted: Vec<JobPoints<'_>> =
            jobs.iter().map(|job| JobPoints::of(job, &policies.all[usize::from(job.policy)])).collect();
        let mut backoff = store_backoff();
        let partials = loop {
            match self.write_or_spill(&sorted).await {
                Ok(partials) => break partials,
                Err(error) => {
                    self.counters.store_errors.fetch_add(1, Relaxed);
                    self.note_failure(&error);
                    health.writes.wait(&mut backoff).await;
                }
            }
        };
        health.writes.worked(WORKED);
        let points = sorted.iter().map(|job| job.points.of_stage(0).len() as u64).sum();
        drop(sorted);
        self.counters.groups.observe(clock.instant().saturating_duration_since(began));
        self.counters.metrics.fetch_add(jobs.len() as u64, Relaxed);
        self.counters.points.fetch_add(points, Relaxed);
        {
            let mut memtable = memtable.lock();
            for (job, partials) in jobs.iter().zip(&partials) {
                memtable.stored(job, partials.as_ref());
            }
        }
        back_pressure.stored(jobs.iter().map(|job| job.points.slots() as u64).sum());
    }

    /// Writes once. Points begin to spill, if memory is full, while the store does not answer.
    async fn write_or_spill(&self, jobs: &[JobPoints<'_>]) -> Result<Vec<Option<WriterPartials>>, StoreError> {
        let mut attempt = pin!(NoPanic::new(self.write_once(jobs)));
        match tokio::time::timeout(SLOW, &mut attempt).await {
            Ok(answer) => answer,
            Err(_) => {
                self.note_failure(&format!("no answer for {} s", SLOW.as_secs()));
                attempt.await
            }
        }
    }

    fn note_failure(&self, error: &dyn std::fmt::Display) {
        self.with.health.writes.failed(error, FAILED);
        self.with.spill.begin_if_full();
    }

    /// Writes rows of every stage. Returns what this writer has stored of each metric then, where that is known.
    async fn write_once(&self, jobs: &[JobPoints<'_>]) -> Result<Vec<Option<WriterPartials>>, StoreError> {
        let store = &self.with.store;
        let now = self.with.time.reached();
        let plans: Vec<FlushPlan<'_>> = jobs.iter().map(|job| FlushPlan::of(job, self.coverage(job, now))).collect();
        let (mut fetches, mut fetched) = (Vec::new(), Vec::with_capacity(jobs.len()));
        {
            let names = self.with.registry.read();
            for (job, plan) in jobs.iter().zip(&plans) {
                let before = fetches.len();
                fetches.extend(plan.fetches(job, names.name(job.job.metric)));
                fetched.push(before..fetches.len());
            }
        }
        let cells = if fetches.is_empty() { Vec::new() } else { store.points.fetch(fetches).await? };
        let mut group = GroupRows::default();
        {
            let names = self.with.registry.read();
            for ((job, plan), range) in jobs.iter().zip(plans).zip(fetched) {
                group.add(job, names.name(job.job.metric), plan, cells.get(range).unwrap_or_default());
            }
        }
        let (mut rows, totals) = (std::mem::take(&mut group.rows), std::mem::take(&mut group.totals));
        let own = match &store.shared {
            Some(shared) if !totals.is_empty() => shared.writer_partials(totals).await?,
            _ => totals,
        };
        let partials = group.partials(jobs, &own);
        rows.extend(own);
        store.points.write(rows).await?;
        Ok(partials)
    }

    /// How far the rows in the store reach.
    fn coverage(&self, job: &JobPoints<'_>, now: Timestamp) -> Coverage {
        let history = self.with.registry.policies(job.job.metric);
        let current = history.as_ref().and_then(|history| history.last());
        let policy_since =
            current.filter(|last| last.policy == job.job.policy).map_or(Timestamp::MAX, |last| last.since);
        // Only the store knows what another writer has stored.
        let all_writers = if self.with.store.shared.is_none() { job.job.stored_before() } else { Stored::Unknown };
        Coverage { all_writers, this_writer: Stored::Unknown, now, policy_since }
    }
}

/// Runs in a task of its own, so that a cancelled caller does not stop it; a panic goes on in the caller.
async fn run_to_its_end(work: impl Future<Output = ()> + Send + 'static) {
    if let Err(error) = tokio::spawn(work).await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
