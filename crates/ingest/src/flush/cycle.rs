//! The flush cycle: points in memory become rows, and the journal is trimmed behind them.
//!
//! 1. The journal begins a new segment. The points of the older ones are in memory, stored or spilled.
//! 2. All metrics are gone through. The points of each are taken out, its coarser stages derived, and all of it
//!    written. They stay readable from memory until they are readable from the store.
//! 3. New metrics are registered, the driver is synced, and the older segments are deleted, up to the first that has
//!    spilled points.
//!
//! A cycle without a waiting caller is spread over half the time between two, so that the store sees a steady trickle. It
//! hurries when memory or the journal are half full.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use host::Clock;
use metric::{MetricId, Timestamp};
use store::{JournalMark, StoreError};
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
};

use super::{
    outcome::{FlushError, FlushProgress},
    row_writer::RowWriter,
};
use crate::{
    back_pressure::BackPressure,
    backoff::StoreBackoff,
    memtable::{FlushJob, MayTake, Memtable},
    policy_changes::PolicyChanges,
    registration::Registration,
    seen_times::SeenTimes,
    spill::Spill,
    store_health::StoreHealth,
    wal::{Journal, StagedJournal},
};

/// Metrics written together: few enough that the lock is short, enough to keep the driver's threads busy.
const GROUP: usize = 512;

/// Groups that are written at once where several processes share the store: while a group waits for the last of its answers, the store
/// has the next one to do.
const GROUPS_AT_ONCE: usize = 2;

/// After so many groups written at once all are waited for, and coarse slots derived again that are due (`rechecks.rs`).
const RECHECK_GROUPS: usize = 16;

/// Metrics searched for points under one lock.
const SEARCH: u32 = 16 * 1024;

/// Poll interval for jobs that others write.
const POLL_JOBS: Duration = Duration::from_millis(5);

/// Poll interval for spilled points to be read back, before a flush.
const POLL_SPILLED: Duration = Duration::from_millis(20);

/// Interval between two rechecks of coarse slots (`rechecks.rs`), where no cycle runs.
const RECHECK_EVERY: Duration = Duration::from_secs(5);

/// Longest sleep of a spread cycle between two looks for a reason to hurry.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// After a cycle of a caller has failed, until the next one.
const AFTER_A_CALLER: Duration = Duration::from_secs(1);

/// How a cycle is paced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Spread over this time.
    Over(Duration),
    /// As fast as the driver accepts rows.
    AtOnce,
}

/// The owners that a cycle goes through.
pub(crate) struct CycleParts {
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) policy_changes: Arc<PolicyChanges>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) health: Arc<StoreHealth>,
    pub(crate) clock: Arc<dyn Clock>,
    /// When metrics have points, where it is known.
    pub(crate) seen: Option<Arc<SeenTimes>>,
}

/// Runs flush cycles, one at a time.
pub(crate) struct FlushCycle {
    with: CycleParts,
    turn: tokio::sync::Mutex<()>,
    /// Held while the journal is trimmed, and by what must find all of it.
    trimming: Arc<tokio::sync::Mutex<()>>,
    /// Metrics of the current cycle, and how many of them are written out.
    metrics: AtomicU64,
    metrics_done: AtomicU64,
    /// Callers of `flush`. While there is one, cycles are not spread.
    waiting: AtomicU32,
    /// Notified when a cycle of a caller failed, so that the next one does not wait for its time.
    failed: Notify,
    /// Notified when a cycle has ended, well or not.
    ended: Notify,
    /// Cycles ended.
    cycles: AtomicU64,
    /// Of the points written since the start, those that are on the store's disk.
    durable: AtomicU64,
}

impl FlushCycle {
    pub(crate) fn new(with: CycleParts) -> FlushCycle {
        FlushCycle {
            with,
            turn: tokio::sync::Mutex::default(),
            trimming: Arc::default(),
            metrics: AtomicU64::new(0),
            metrics_done: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            failed: Notify::new(),
            ended: Notify::new(),
            cycles: AtomicU64::new(0),
            durable: AtomicU64::new(0),
        }
    }

    /// Runs cycles until the task is aborted: each `flush_after` / 2, or when memory or the journal is half full.
    pub(crate) async fn run(self: Arc<FlushCycle>, flush_after: Duration) {
        let half = flush_after / 2;
        let (mut backoff, mut is_failing) = (StoreBackoff::new(), false);
        loop {
            // After a failure only the backoff is waited for: what was written is not durable yet.
            if !is_failing {
                tokio::select! {
                    () = self.recheck_for(half) => {}
                    () = self.with.back_pressure.flush_asked_for() => {}
                    () = self.failed.notified() => {
                        is_failing = true;
                        tokio::time::sleep(AFTER_A_CALLER).await;
                    }
                }
            }
            let hurries = is_failing || self.with.back_pressure.is_half_full();
            let pace = if hurries { Pace::AtOnce } else { Pace::Over(half) };
            match self.cycle(pace).await {
                Ok(()) => {
                    backoff.reset();
                    is_failing = false;
                }
                Err(error) => {
                    // An outage of the store is logged by the call that meets it first.
                    if !is_failing && self.with.health.away_since().is_none() {
                        tracing::error!(%error, "a flush cycle failed; its points stay in the journal; retrying");
                    }
                    is_failing = true;
                    tokio::time::sleep(backoff.next_wait(&error)).await;
                }
            }
        }
    }

    /// Derives coarse slots again that are due (`rechecks.rs`), for so long.
    async fn recheck_for(&self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < until {
            let next = tokio::time::Instant::now() + RECHECK_EVERY;
            tokio::time::sleep_until(next.min(until)).await;
            let _turn = self.turn.lock().await;
            self.with.writer.recheck_due().await;
        }
    }

    /// Derives coarse slots again that wait for what other nodes were writing (`rechecks.rs`), once: this node stops. For so long at most.
    pub(crate) async fn recheck_at_end(&self, limit: Duration) {
        let work = async {
            let _turn = self.turn.lock().await;
            self.with.writer.recheck_soon().await;
            self.save_rechecks().await;
        };
        let _ = tokio::time::timeout(limit, work).await;
    }

    /// Metrics whose coarse slots wait for what other nodes were writing.
    pub(crate) fn rechecks_soon(&self) -> usize {
        self.with.writer.rechecks_soon()
    }

    /// Writes out everything that was accepted before this call, at once, spilled points too. On `Ok` it is durable in
    /// the store; while the store takes nothing this waits.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        self.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.waiting);
        // All accepted points are in segments before this one.
        let segment = self.with.journal.begin_segment().await?;
        while self.with.spill.position() < segment {
            self.with.back_pressure.ask_for_flush();
            tokio::time::sleep(POLL_SPILLED).await;
        }
        self.run_once().await
    }

    /// As [`FlushCycle::flush`], until the store has taken nothing for `patience`. Retries a store that is away at once.
    pub(crate) async fn flush_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.with.health.retry_now();
        self.unless_given_up(self.flush(), patience).await
    }

    /// Writes out the points in memory, until the store has taken nothing for `patience`. Retries a store that is away at
    /// once.
    pub(crate) async fn run_once_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.with.health.retry_now();
        self.unless_given_up(self.run_once(), patience).await
    }

    async fn unless_given_up(
        &self,
        work: impl Future<Output = io::Result<()>>,
        patience: Duration,
    ) -> Result<(), FlushError> {
        tokio::select! {
            done = work => done.map_err(|error| self.flush_error(error)),
            why = self.with.health.given_up(patience) => Err(self.store_error(why)),
            () = self.with.journal.given_up(patience) => Err(FlushError::JournalStuck { patience }),
        }
    }

    fn flush_error(&self, error: io::Error) -> FlushError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
            Some(store) => self.store_error(store.to_string()),
            None => FlushError::Journal(error),
        }
    }

    fn store_error(&self, why: String) -> FlushError {
        let CycleParts { back_pressure, spill, .. } = &self.with;
        FlushError::Store {
            why,
            held_points: back_pressure.slots(),
            parked_points: spill.points(),
            unsynced_points: self.unsynced_points(),
        }
    }

    /// See [`crate::Ingest::snapshot`].
    pub(crate) async fn snapshot<T: Send + 'static>(
        &self,
        into: PathBuf,
        store: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<(Timestamp, T, StagedJournal)> {
        let trimming = self.trimming.clone().lock_owned().await;
        let (journal, clock) = (self.with.journal.clone(), self.with.clock.clone());
        let link = move || {
            let _trimming = trimming;
            let stored = store()?;
            // Most of it is on the disk before appends wait.
            journal.sync()?;
            let (moment, segment) = {
                let mut exclusive = journal.exclusive();
                // The manifest may name the current one, which is linked therefore even if it has no record.
                (clock.now(), exclusive.close_segment()?)
            };
            journal.sync()?;
            let staged = journal.link_before(segment, &into)?;
            Ok((moment, stored, staged))
        };
        // Also in a rehearsal of one thread: it waits for the store's writers, which are tasks.
        tokio::task::spawn_blocking(link).await.map_err(io::Error::other)?
    }

    /// How far a flush is.
    pub(crate) fn progress(&self) -> FlushProgress {
        FlushProgress {
            metrics: self.metrics.load(SeqCst),
            metrics_done: self.metrics_done.load(SeqCst),
            held_slots: self.with.back_pressure.slots(),
            parked_points: self.with.spill.points(),
            unsynced_points: self.unsynced_points(),
            store_failing: self.with.health.is_failing(),
            waiting: self.waiting.load(SeqCst),
        }
    }

    /// Cycles ended.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.load(SeqCst)
    }

    /// Points that the store has taken and that may not be on its disk.
    pub(crate) fn unsynced_points(&self) -> u64 {
        self.with.writer.points().saturating_sub(self.durable.load(SeqCst))
    }

    /// Runs one cycle, as fast as the driver accepts rows.
    pub(crate) async fn run_once(&self) -> io::Result<()> {
        let ended = self.cycle(Pace::AtOnce).await;
        if ended.is_err() {
            // Points are written and not durable, and `/ready` says so until a cycle ends well.
            self.failed.notify_one();
        }
        ended
    }

    async fn cycle(&self, pace: Pace) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        let ended = self.cycle_alone(pace).await;
        self.metrics.store(0, SeqCst);
        self.ended.notify_one();
        ended
    }

    /// Waits until a cycle has ended since the last call.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// A cycle; the caller has the turn.
    async fn cycle_alone(&self, pace: Pace) -> io::Result<()> {
        let CycleParts { journal, memtable, spill, .. } = &self.with;
        let may_take = memtable.may_take().await;
        let segment = journal.begin_segment().await?;
        let trim_to = spill.trim_limit(segment);
        let count = memtable.lock().end().0;
        self.metrics_done.store(0, SeqCst);
        self.metrics.store(u64::from(count), SeqCst);
        let late = self.write_all(count, pace, may_take).await;
        self.write_late(late, may_take).await.map_err(io::Error::other)?;
        self.with.policy_changes.judge_newcomers(may_take).await;
        let mark = journal.mark(trim_to, segment);
        match self.make_durable(mark).await {
            Ok(()) => self.with.health.synced(),
            Err(error) => {
                self.with.health.not_synced(&error);
                return Err(io::Error::other(error));
            }
        }
        {
            let _trimming = self.trimming.lock().await;
            journal.trim(trim_to).await?;
        }
        self.with.back_pressure.trimmed();
        self.cycles.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Gets everything that was written to the store's disk, and how much of the journal that is.
    async fn make_durable(&self, mark: JournalMark) -> Result<(), StoreError> {
        let CycleParts { registration, writer, .. } = &self.with;
        registration.register().await?;
        let written = writer.points();
        writer.sync_store().await?;
        self.save_seen(mark.stored_below).await;
        self.save_rechecks().await;
        writer.note_stored(mark).await?;
        self.durable.store(written, SeqCst);
        Ok(())
    }

    /// Saves when metrics have points.
    async fn save_seen(&self, stored_below: u64) {
        if let Some(seen) = self.with.seen.clone() {
            // A panic there has been reported.
            let _ = host::spawn_blocking(move || seen.save(stored_below)).await;
        }
    }

    /// Saves which coarse slots are to be derived again, before the journal lets go of their points.
    async fn save_rechecks(&self) {
        let writer = self.with.writer.clone();
        // A panic there has been reported.
        let _ = host::spawn_blocking(move || writer.save_rechecks()).await;
    }

    /// Writes the points of all metrics below `count`. Returns the metrics whose points wait for an earlier job.
    ///
    /// The journal is synced after each group is taken. A power failure may leave a part of the rows, and a replay makes them
    /// again only from points that are on the journal's disk.
    async fn write_all(&self, count: u32, pace: Pace, may_take: MayTake) -> Vec<MetricId> {
        let CycleParts { writer, journal, .. } = &self.with;
        let began = self.with.clock.instant();
        writer.cycle_begins();
        let (mut next, mut late) = (0, Vec::new());
        let mut groups = JoinSet::new();
        for nth in 1.. {
            if next == count {
                break;
            }
            let (jobs, after) = self.take_group(next, count, &mut late, may_take);
            let metrics = u64::from(after - next);
            next = after;
            // Rows that are derived again must not be written meanwhile.
            let is_last = pace != Pace::AtOnce || !writer.is_shared() || next == count || nth % RECHECK_GROUPS == 0;
            if is_last && groups.is_empty() {
                writer.write_after_names(jobs, journal).await;
                self.metrics_done.fetch_add(metrics, SeqCst);
            } else {
                let (writer, journal) = (writer.clone(), journal.clone());
                groups.spawn(async move {
                    writer.write_after_names(jobs, &journal).await;
                    metrics
                });
                self.until_written(&mut groups, if is_last { 1 } else { GROUPS_AT_ONCE }).await;
            }
            if is_last {
                writer.recheck_due().await;
            }
            if let Pace::Over(time) = pace {
                self.pause(began, time.mul_f64(f64::from(next) / f64::from(count))).await;
            }
        }
        late
    }

    /// Waits until fewer groups than `limit` are being written.
    async fn until_written(&self, groups: &mut JoinSet<u64>, limit: usize) {
        while limit <= groups.len() {
            let Some(written) = groups.join_next().await else { return };
            match written.map_err(JoinError::try_into_panic) {
                Ok(metrics) => _ = self.metrics_done.fetch_add(metrics, SeqCst),
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // It was cancelled with the runtime.
                Err(Err(_)) => return,
            }
        }
    }

    /// Waits for the jobs that other callers took: until they are stored, the journal has to cover them. Writes the
    /// points of `late` behind them.
    async fn write_late(&self, mut late: Vec<MetricId>, may_take: MayTake) -> Result<(), StoreError> {
        let CycleParts { writer, journal, .. } = &self.with;
        loop {
            while writer.kept_back() < self.with.memtable.lock().jobs() {
                // A panic of their writer costs nothing: they are written again.
                let abandoned = self.with.memtable.lock().abandoned();
                match abandoned.is_empty() {
                    true => tokio::time::sleep(POLL_JOBS).await,
                    false => writer.write_in_turn(abandoned, journal).await,
                }
            }
            writer.write_doubtful(journal.synced().await).await?;
            writer.write_unread(journal.synced().await).await?;
            if late.is_empty() {
                return Ok(());
            }
            let jobs = self.take_late(&mut late, may_take);
            writer.write_after_names(jobs, journal).await;
        }
    }

    /// Waits until this much of a spread cycle's time has passed, or until there is a reason to hurry.
    async fn pause(&self, began: Instant, due: Duration) {
        let elapsed = || self.with.clock.instant().saturating_duration_since(began);
        // A sleep of no time need not let any pass: under simulated time this would never end.
        while let Some(left) = due.checked_sub(elapsed()).filter(|left| !left.is_zero()) {
            if self.with.back_pressure.is_half_full() || 0 < self.waiting.load(SeqCst) {
                return;
            }
            self.with.writer.recheck_due().await;
            tokio::time::sleep(left.min(LONGEST_PAUSE)).await;
        }
    }

    /// Takes the points of up to a group of metrics, from `next` on; returns also where to go on. Adds to `late` the
    /// metrics whose points wait for an earlier job.
    fn take_group(
        &self,
        next: u32,
        count: u32,
        late: &mut Vec<MetricId>,
        may_take: MayTake,
    ) -> (Vec<Arc<FlushJob>>, u32) {
        let mut memtable = self.with.memtable.lock();
        let mut jobs = Vec::with_capacity(GROUP);
        let end = count.min(next + SEARCH);
        for metric in (next..end).map(MetricId) {
            if let Some(job) = memtable.take(metric, may_take) {
                jobs.push(job);
                if jobs.len() == GROUP {
                    return (jobs, metric.0 + 1);
                }
            } else if memtable.is_pending(metric) {
                late.push(metric);
            }
        }
        (jobs, end)
    }

    /// Takes the points of up to a group of the late metrics; those that are still late stay noted.
    fn take_late(&self, late: &mut Vec<MetricId>, may_take: MayTake) -> Vec<Arc<FlushJob>> {
        let mut memtable = self.with.memtable.lock();
        let group: Vec<MetricId> = late.drain(late.len().saturating_sub(GROUP)..).collect();
        let jobs = group.iter().filter_map(|&metric| memtable.take(metric, may_take)).collect();
        late.extend(group.into_iter().filter(|&metric| memtable.is_pending(metric)));
        jobs
    }
}

/// A caller that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use carbon::{RuleFiles, Rules, Sink as _};
    use metadata::Registry;
    use store::{MemoryDriver, ScriptedDriver};

    use super::*;
    use crate::{Ingest, IngestOptions, Protocol};

    /// Longer than the test takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn points_that_a_writer_dropped_in_a_panic_are_stored_by_the_next_cycle() {
        let dir = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: dir.path().to_owned(), ..IngestOptions::default() };
        let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
        let rules = Rules::parse(RuleFiles { schemas: Some(schemas), ..RuleFiles::default() }).unwrap().0;
        let (driver, registry) = (Arc::new(MemoryDriver::new()), Arc::new(Registry::new()));
        let ingest = Ingest::open(options, driver, registry, rules).await.unwrap();
        let send = async |name: &[u8]| {
            let mut batch = ingest.batch(Protocol::LineTcp);
            batch.point(name, ingest.acceptor().now(), 1.0);
            ingest.accept(&mut batch).await;
        };
        send(b"a.dropped").await;
        send(b"a.other").await;
        let memtable = ingest.stats.memtable.clone();
        let may_take = memtable.may_take().await;
        let job = memtable.lock().take(MetricId(0), may_take);
        assert!(job.is_some() && memtable.lock().abandoned().is_empty());
        drop(job);
        // Later points of the same metric wait for it.
        send(b"a.dropped").await;
        tokio::time::timeout(PATIENCE, ingest.flush()).await.expect("a flush ends").unwrap();
        assert_eq!((ingest.counters().flushed_metrics, memtable.lock().jobs()), (3, 0));
        assert_eq!(ingest.counters().held_slots, 0);
        ingest.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_shared_store_has_the_next_group_while_one_waits_for_its_answers() {
        let dir = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: dir.path().to_owned(), ..IngestOptions::default() };
        let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
        let rules = Rules::parse(RuleFiles { schemas: Some(schemas), ..RuleFiles::default() }).unwrap().0;
        let driver = Arc::new(ScriptedDriver::default());
        driver.has_other_writers.store(true, SeqCst);
        let ingest = Ingest::open(options, driver.store(), Arc::new(Registry::new()), rules).await.unwrap();
        let metrics = 4 * GROUP as u64;
        let mut batch = ingest.batch(Protocol::LineTcp);
        for metric in 0..metrics {
            batch.point(format!("a.m{metric}").as_bytes(), ingest.acceptor().now(), 1.0);
        }
        ingest.accept(&mut batch).await;
        driver.writes.close();
        let look = async {
            while driver.writes.arrived() < GROUPS_AT_ONCE as u32 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(driver.writes.arrived(), GROUPS_AT_ONCE as u32, "no more than that at once");
            driver.writes.open();
        };
        let both = async { tokio::join!(ingest.flush(), look).0 };
        tokio::time::timeout(PATIENCE, both).await.expect("two groups are written at once").unwrap();
        assert_eq!((ingest.counters().flushed_metrics, ingest.counters().held_slots), (metrics, 0));
        ingest.close().await.unwrap();
    }
}
