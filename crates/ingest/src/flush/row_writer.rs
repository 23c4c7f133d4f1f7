//! Jobs to rows in the store, however often the store fails first.
//!
//! A failure that may pass is retried until it does. One that cannot (damage, rejected rows, a panic) is retried on ever
//! smaller parts of the group, until only the jobs that cannot be stored are left. Once the store has taken others, so
//! that it is not the store as a whole that fails, the points of these jobs are set aside (`set_aside.rs`).

use std::{
    collections::HashSet,
    ops::Range,
    pin::pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use host::{Clock, JudgingTime};
use metadata::Registry;
use metric::MetricId;
use parking_lot::Mutex;
use store::{JournalMark, Store, StoreError};

use super::{
    attempt::{Attempt, Written},
    corrected::{first_look, next_look},
    late_files::LateFiles,
    plan::JobPoints,
    recheck_file::RecheckFile,
    rechecks::{ABSENCE, Recheck, Rechecks, SOON},
    set_aside::Aside,
    unread::Unread,
    unsure_rows::UnsureRows,
};
use crate::{
    back_pressure::{BackPressure, Held},
    backoff::{JOURNAL_RETRY, StoreBackoff},
    counters::Durations,
    memtable::{FlushJob, Memtable},
    no_panic::{CallError, NoPanic},
    spill::Spill,
    store_health::StoreHealth,
    wal::{Journal, NamesOnDisk},
};

/// A store that does not answer for this long does not take points: they spill rather than keep senders waiting.
const SLOW: Duration = Duration::from_secs(5);

/// Slots of points that are sorted and written together: few enough to be small compared with the points in memory.
const GROUP_SLOTS: u64 = 256 << 10;

/// Jobs that cannot be stored, while no other can: more than these, and it seems that the store as a whole fails. Each further attempt asks
/// for twice as many, until each job was asked for alone: it may be that only those fail which come first.
const FEW: usize = 8;

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
    /// Coarse slots that stayed as they were stored, because slots under them are damaged.
    pub(crate) doubtful: AtomicU64,
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
    pub(crate) aside: Aside,
    pub(crate) late_files: LateFiles,
    pub(crate) recheck_file: RecheckFile,
    /// How long other writers keep points in memory at most.
    pub(crate) flush_after: Duration,
    pub(crate) opened: Instant,
    /// How long after that other writers may be storing points that this process missed before its start.
    pub(crate) behind_for: Duration,
}

/// Writes jobs to the store.
pub(crate) struct RowWriter {
    with: RowWriterParts,
    counters: FlushCounters,
    /// Jobs that alone fail for good, while it is not known whether the store takes others.
    doubtful: Mutex<Vec<DoubtfulJob>>,
    /// Jobs that wait for stored slots.
    unread: Unread,
    /// Slots to derive again, where others write the store too.
    rechecks: Rechecks,
    /// Rows that may be stored or not, where others write the store too.
    unsure: UnsureRows,
    /// Metrics whose rows of other writers were corrected by attempts so far, and not noted in `rechecks`.
    corrected: Mutex<HashSet<MetricId>>,
    /// When the present cycle began, and how long after the one before it.
    cycle: Mutex<(Instant, Duration)>,
}

struct DoubtfulJob {
    job: Arc<FlushJob>,
    /// Metrics stored when it failed first.
    stored_before: u64,
}

/// Metrics whose slots are derived again together.
const RECHECKED: usize = 64;

/// A job that cannot be stored, at its place in the group, and why.
type Refused = (usize, Arc<CallError>);

/// The jobs of a group that were not stored.
#[derive(Default)]
struct NotStored {
    refused: Vec<Refused>,
    /// Places of the jobs whose stored slots cannot be read now.
    unread: Vec<usize>,
}

impl RowWriter {
    pub(crate) fn new(with: RowWriterParts) -> Arc<RowWriter> {
        let rechecks = Rechecks::new(first_look(with.flush_after));
        if with.store.shared.is_some() {
            let now = with.clock.instant();
            for saved in with.recheck_file.read() {
                let history = with.registry.policies(saved.metric);
                if let Some(last) = history.as_ref().and_then(|history| history.last()) {
                    rechecks.restore(saved, last.policy, now);
                }
            }
        }
        let (counters, doubtful, unread) = (FlushCounters::default(), Mutex::default(), Unread::default());
        let (unsure, corrected) = (UnsureRows::default(), Mutex::default());
        let cycle = Mutex::new((with.opened, Duration::ZERO));
        Arc::new(RowWriter { with, counters, doubtful, unread, rechecks, unsure, corrected, cycle })
    }

    pub(crate) fn counters(&self) -> &FlushCounters {
        &self.counters
    }

    /// Metrics whose points the store has taken since the start, with each time. It counts before they leave memory.
    pub(crate) fn stored_metrics(&self) -> u64 {
        self.counters.metrics.load(SeqCst)
    }

    /// Points that the store has taken since the start.
    pub(crate) fn points(&self) -> u64 {
        self.counters.points.load(Relaxed)
    }

    /// Points that were set aside since the start.
    pub(crate) fn points_aside(&self) -> u64 {
        self.with.aside.points()
    }

    /// Jobs that alone fail for good while the store takes no others, and jobs that wait for stored slots.
    pub(crate) fn kept_back(&self) -> usize {
        self.doubtful.lock().len() + self.unread.len()
    }

    /// Stores the jobs, after an fsync of their points and of the names that were given by now, retrying until the driver
    /// accepts them, and releases them. In a task of its own, which ends also when the caller is cancelled.
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

    /// As [`RowWriter::write_after_names`], where a metric may have several jobs: each is stored behind the one before it,
    /// and is kept back behind one that is.
    pub(crate) async fn write_in_turn(self: &Arc<RowWriter>, jobs: Vec<Arc<FlushJob>>, journal: &Arc<Journal>) {
        let (writer, journal) = (self.clone(), journal.clone());
        run_to_its_end(async move {
            let names = journal.synced().await;
            writer.write_one_by_one(jobs, names).await;
        })
        .await;
    }

    async fn write_one_by_one(&self, mut jobs: Vec<Arc<FlushJob>>, names: NamesOnDisk) {
        while !jobs.is_empty() {
            let mut is_taken: HashSet<MetricId> = self.unread.metrics().into_iter().collect();
            is_taken.extend(self.doubtful.lock().iter().map(|doubtful| doubtful.job.metric));
            let (behind, free): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_taken.contains(&job.metric));
            behind.into_iter().for_each(|job| self.unread.add_behind(job));
            is_taken.clear();
            let (group, later) = free.into_iter().partition(|job| is_taken.insert(job.metric));
            self.write_until_stored(group, names).await;
            jobs = later;
        }
    }

    /// Writes the jobs again that failed for good while no others were stored. Where others are stored by now, those
    /// that still fail are set aside.
    ///
    /// # Errors
    /// What the store says, where nothing else is stored either: the journal must keep the points.
    pub(crate) async fn write_doubtful(self: &Arc<RowWriter>, names: NamesOnDisk) -> Result<(), StoreError> {
        let doubtful = std::mem::take(&mut *self.doubtful.lock());
        if doubtful.is_empty() {
            return Ok(());
        }
        let (count, stored) = (doubtful.len(), self.counters.metrics.load(Relaxed));
        let are_others_stored = doubtful.iter().any(|job| job.stored_before < stored);
        let jobs: Vec<Arc<FlushJob>> = doubtful.iter().map(|doubtful| doubtful.job.clone()).collect();
        let writer = self.clone();
        run_to_its_end(async move { writer.write_groups(jobs, are_others_stored, names).await }).await;
        match self.doubtful.lock().len() {
            0 => Ok(()),
            left => Err(StoreError::Unavailable(format!(
                "the store rejects the points of {left} of {count} metrics and no other points came; they stay in the journal"
            ))),
        }
    }

    /// Writes the jobs again that wait for stored slots.
    ///
    /// # Errors
    /// Some still wait: the journal must keep their points.
    pub(crate) async fn write_unread(self: &Arc<RowWriter>, names: NamesOnDisk) -> Result<(), StoreError> {
        let jobs = self.unread.take();
        if jobs.is_empty() {
            return Ok(());
        }
        let writer = self.clone();
        run_to_its_end(async move { writer.write_one_by_one(jobs, names).await }).await;
        self.unread.ended();
        match self.unread.len() {
            0 => Ok(()),
            left => Err(StoreError::Unavailable(format!(
                "stored rows of {left} metrics cannot be read; late points of these metrics stay in memory and in the journal"
            ))),
        }
    }

    /// Whether other processes may write the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.with.store.shared.is_some()
    }

    /// Derives coarse slots again that are due: see `rechecks.rs`. The caller sees to it that no rows of these metrics are written
    /// meanwhile. What cannot be read comes again later.
    pub(crate) async fn recheck_due(self: &Arc<RowWriter>) {
        loop {
            let now = self.with.clock.instant();
            let rechecks = self.rechecks.take_due(now, RECHECKED);
            if rechecks.is_empty() {
                return;
            }
            let writer = self.clone();
            run_to_its_end(async move { writer.recheck(rechecks, now).await }).await;
        }
    }

    /// Derives slots again that wait for what other nodes were writing, due or not, once each: this node stops. The next start looks once more.
    pub(crate) async fn recheck_soon(self: &Arc<RowWriter>) {
        let now = self.with.clock.instant();
        let mut left = self.rechecks.all_soon();
        while !left.is_empty() {
            let rechecks = left.split_off(left.len().saturating_sub(RECHECKED));
            let writer = self.clone();
            run_to_its_end(async move { writer.recheck(rechecks, now).await }).await;
        }
    }

    /// Saves what is to be derived again, where others write the store too. Waits for the disk.
    pub(crate) fn save_rechecks(&self) {
        if self.with.store.shared.is_some() {
            self.with.recheck_file.save(self.rechecks.changes(), || self.rechecks.saved());
        }
    }

    /// Metrics whose slots are to be derived again soon.
    pub(crate) fn rechecks_soon(&self) -> usize {
        self.rechecks.soon()
    }

    async fn recheck(&self, rechecks: Vec<Recheck>, now: Instant) {
        let RowWriterParts { store, registry, time, memtable, .. } = &self.with;
        // A job that is kept back is derived, and adds its spans then.
        let (rechecks, busy): (Vec<Recheck>, Vec<Recheck>) = {
            let memtable = memtable.lock();
            rechecks.into_iter().partition(|recheck| !memtable.has_job(recheck.metric))
        };
        busy.into_iter().for_each(|recheck| self.rechecks.again(recheck, now));
        let policies = memtable.policies();
        let (unsure, corrected) = (&self.unsure, Mutex::default());
        let noted = &corrected;
        let once =
            Attempt { store, registry, policies: &policies, time, waits_for_reads: false, unsure, corrected: noted };
        let wrong = match NoPanic::new(once.recheck(&rechecks)).await {
            Ok(wrong) => wrong,
            Err(error) => {
                tracing::debug!(%error, "cannot derive coarse slots of several writers again; retrying later");
                rechecks.iter().map(|recheck| recheck.metric).collect()
            }
        };
        let (mut memtable, corrected) = (memtable.lock(), corrected.into_inner());
        for recheck in rechecks {
            let is_wrong = wrong.contains(&recheck.metric);
            if is_wrong {
                // Its rows are others than those that memory continues.
                memtable.forget_partials(recheck.metric);
            }
            match recheck.corrected_for(now) {
                Some(ago) => self.watch_on(recheck, (now, ago), is_wrong),
                None => {
                    if corrected.contains(&recheck.metric) {
                        let Recheck { metric, policy, spans, .. } = recheck.clone();
                        self.rechecks.add_corrected(metric, policy, spans, now);
                    }
                    if is_wrong {
                        self.rechecks.again(recheck, now);
                    }
                }
            }
        }
    }

    /// Goes on with looks at rows of others that were corrected so long ago, for as long as these may be written over.
    fn watch_on(&self, recheck: Recheck, (now, ago): (Instant, Duration), is_wrong: bool) {
        let (policies, today) = (self.with.memtable.policies(), self.with.time.reached());
        let Some(policy) = policies.all.get(usize::from(recheck.policy)) else { return };
        let stages = policy.retention.stages();
        match next_look(stages, &recheck.spans, (today, ago), self.with.flush_after) {
            Some(next) => self.rechecks.watch_on(recheck, now, next),
            // Until it is right.
            None if is_wrong => self.rechecks.again(recheck, now),
            None => {}
        }
    }

    /// A cycle begins: it stores the points of each metric once.
    pub(crate) fn cycle_begins(&self) {
        let (mut cycle, now) = (self.cycle.lock(), self.with.clock.instant());
        *cycle = (now, now.saturating_duration_since(cycle.0));
    }

    /// How long points that are stored now were in memory, at most: longer than `flush_after` where the store is slow, or was away.
    fn kept_for(&self) -> Duration {
        let (began, after) = *self.cycle.lock();
        self.with.flush_after.max(after).max(self.with.clock.instant().saturating_duration_since(began))
    }

    /// Keeps the spans whose coarse slots may come out wrong where another node writes the same metrics: those that were derived,
    /// those of a write that took long, since other nodes may have seen a part of it, and those of a metric that may have moved.
    fn keep_spans(&self, jobs: &[JobPoints<'_>], took_long: bool) {
        let Some(shared) = &self.with.store.shared else { return };
        let (now, has_others) = (self.with.clock.instant(), shared.other_writers().are_there);
        let (today, kept) = (self.with.clock.now(), self.kept_for());
        for job in jobs.iter().filter(|job| job.policy.retention.stages().len() > 1) {
            if self.corrected.lock().remove(&job.job.metric) {
                self.rechecks.add_corrected(job.job.metric, job.job.policy, job.spans(), now);
            }
            let spans = match job.extends() {
                true if !has_others => continue,
                true if took_long => job.spans(),
                true => match self.with.registry.read().creation(job.job.metric) {
                    Some(created_on) => job.spans_of_others(ABSENCE, (today, kept), created_on),
                    // It was deleted while its points were written.
                    None => continue,
                },
                false => job.spans(),
            };
            if spans.is_empty() {
                continue;
            }
            self.rechecks.add(job.job.metric, job.job.policy, spans, now, has_others);
        }
    }

    /// Waits until all rows are on the store's disk.
    pub(crate) async fn sync_store(&self) -> Result<(), StoreError> {
        let synced = NoPanic::new(self.with.store.sync()).await;
        if synced.is_err() {
            self.counters.store_errors.fetch_add(1, Relaxed);
        }
        synced.map_err(StoreError::from)
    }

    /// Records in the store how much of the journal it has.
    pub(crate) async fn note_stored(&self, mark: JournalMark) -> Result<(), StoreError> {
        let noted = NoPanic::new(self.with.store.names.set_journal_mark(mark)).await;
        if noted.is_err() {
            self.counters.store_errors.fetch_add(1, Relaxed);
        }
        noted.map_err(StoreError::from)
    }

    async fn write_until_stored(&self, jobs: Vec<Arc<FlushJob>>, names: NamesOnDisk) {
        self.write_groups(jobs, false, names).await;
    }

    async fn write_groups(&self, jobs: Vec<Arc<FlushJob>>, are_others_stored: bool, names: NamesOnDisk) {
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let (mut group, mut slots) = (Vec::new(), 0);
            while let Some(job) = jobs.next_if(|_| slots < GROUP_SLOTS) {
                slots += Held::from(&job.points).slots;
                group.push(job);
            }
            self.write_group(group, are_others_stored, names).await;
        }
    }

    /// Writes a group until each of its jobs is stored, set aside or doubtful. `are_others_stored` says that the store
    /// takes other points.
    async fn write_group(&self, group: Vec<Arc<FlushJob>>, are_others_stored: bool, _: NamesOnDisk) {
        let RowWriterParts { store, registry, memtable, clock, health, opened, behind_for, .. } = &self.with;
        let (policies, began) = (memtable.policies(), clock.instant());
        let stored_before = self.counters.metrics.load(Relaxed);
        let mut left = group;
        let mut backoff = StoreBackoff::new();
        let (mut is_again, mut few) = (are_others_stored, FEW);
        while !left.is_empty() {
            // A job that fails while others were stored before is to blame itself.
            let is_store_good = are_others_stored || stored_before < self.counters.metrics.load(Relaxed);
            let others = store.shared.as_ref().map(|shared| shared.other_writers()).unwrap_or_default();
            let is_behind = clock.instant().saturating_duration_since(*opened) < *behind_for;
            let sorted = left.iter().map(|job| JobPoints::of(job, &policies.all[usize::from(job.policy)]));
            let has_earlier =
                |metric| store.shared.is_some() && registry.policies(metric).is_some_and(|history| 1 < history.len());
            let sorted: Vec<JobPoints<'_>> =
                sorted.map(|points| points.among_writers(others, is_behind, has_earlier)).collect();
            let most_refused = if is_store_good { left.len() } else { few };
            let NotStored { refused, unread } = self.write_parts(&sorted, &left, is_again, most_refused).await;
            is_again = true;
            let is_any_stored = refused.len() + unread.len() < left.len();
            if is_any_stored {
                health.writes.worked(WORKED);
            }
            self.unread.add(unread.into_iter().map(|place| left[place].clone()), clock.instant());
            if refused.is_empty() {
                break;
            }
            if is_store_good {
                for (place, error) in &refused {
                    self.set_aside(&sorted[*place], &left[*place], error).await;
                }
                break;
            }
            if !is_any_stored && refused.len() <= few {
                let doubtful =
                    refused.iter().map(|&(place, _)| DoubtfulJob { job: left[place].clone(), stored_before });
                self.doubtful.lock().extend(doubtful);
                break;
            }
            if let Some((_, error)) = refused.first().filter(|_| !is_any_stored) {
                self.note_failure(error);
                health.writes.wait(backoff.next_wait(&**error)).await;
                few *= 2;
            }
            left = refused.iter().map(|&(place, _)| left[place].clone()).collect();
        }
        self.counters.groups.observe(clock.instant().saturating_duration_since(began));
    }

    async fn set_aside(&self, points: &JobPoints<'_>, job: &Arc<FlushJob>, error: &CallError) {
        while let Err(problem) = self.with.aside.put(points, &self.with.registry, error) {
            self.note_failure(&problem);
            tokio::time::sleep(JOURNAL_RETRY).await;
        }
        self.release(std::slice::from_ref(job), &[None]);
    }

    /// Writes all jobs once, and those that fail for good in ever smaller parts. Returns the jobs that fail alone,
    /// and those that wait. `is_again` says that an earlier attempt may have stored a part of them. While none is stored and more
    /// than `most_refused` were refused, the store is not asked for the others, and they count as refused.
    async fn write_parts(
        &self,
        sorted: &[JobPoints<'_>],
        jobs: &[Arc<FlushJob>],
        mut is_again: bool,
        most_refused: usize,
    ) -> NotStored {
        let mut parts: Vec<Range<usize>> = std::iter::once(0..sorted.len()).collect();
        let (mut not_stored, mut backoff) = (NotStored::default(), StoreBackoff::new());
        let mut is_any_stored = false;
        while let Some(part) = parts.pop() {
            let began = self.with.clock.instant();
            let answer = self.write_or_spill(&sorted[part.clone()]).await;
            let took = self.with.clock.instant().saturating_duration_since(began);
            let took_long = is_again || SOON / 2 < took;
            is_again |= answer.is_err();
            match answer {
                Ok(written) => {
                    let before = not_stored.unread.len();
                    let waits = |place: &usize| written.waiting.contains(&jobs[*place].metric);
                    not_stored.unread.extend(part.clone().filter(waits));
                    is_any_stored |= not_stored.unread.len() < before + part.len();
                    self.counters.doubtful.fetch_add(written.doubtful as u64, Relaxed);
                    self.keep_late(&sorted[part.clone()], &written.unread).await;
                    self.keep_spans(&sorted[part.clone()], took_long);
                    self.stored(&sorted[part.clone()], &jobs[part], &written);
                }
                Err(error) if error.is_lasting() => {
                    self.counters.store_errors.fetch_add(1, Relaxed);
                    if part.len() == 1 || !is_any_stored && most_refused < not_stored.refused.len() {
                        let error = Arc::new(error);
                        not_stored.refused.extend(part.map(|place| (place, error.clone())));
                    } else {
                        let middle = part.start + part.len() / 2;
                        parts.extend([middle..part.end, part.start..middle]);
                    }
                }
                Err(error) => {
                    self.counters.store_errors.fetch_add(1, Relaxed);
                    self.note_failure(&error);
                    self.with.health.writes.wait(backoff.next_wait(&error)).await;
                    parts.push(part);
                }
            }
        }
        not_stored
    }

    /// Keeps points whose coarse slots could not be derived, however often that fails first: the journal has them until then.
    async fn keep_late(&self, sorted: &[JobPoints<'_>], unread: &HashSet<MetricId>) {
        if unread.is_empty() {
            return;
        }
        let is_late = |job: &&JobPoints<'_>| unread.contains(&job.job.metric);
        while let Err(problem) = self.with.late_files.put(sorted.iter().filter(is_late), &self.with.registry) {
            self.note_failure(&problem);
            tokio::time::sleep(JOURNAL_RETRY).await;
        }
    }

    fn stored(&self, sorted: &[JobPoints<'_>], jobs: &[Arc<FlushJob>], written: &Written) {
        let is_stored = |job: &&JobPoints<'_>| !written.waiting.contains(&job.job.metric);
        let points = sorted.iter().filter(is_stored).map(|job| job.points.of_stage(0).len() as u64).sum();
        self.counters.points.fetch_add(points, Relaxed);
        self.counters.metrics.fetch_add((jobs.len() - written.waiting.len()) as u64, SeqCst);
        if written.waiting.is_empty() {
            return self.release(jobs, &written.partials);
        }
        for (job, partials) in
            jobs.iter().zip(&written.partials).filter(|(job, _)| !written.waiting.contains(&job.metric))
        {
            self.release(std::slice::from_ref(job), std::slice::from_ref(partials));
        }
    }

    /// Lets go of jobs, after which this writer's partials are these.
    fn release(&self, jobs: &[Arc<FlushJob>], partials: &[Option<downsample::WriterPartials>]) {
        self.unsure.forget(jobs.iter().map(|job| job.metric));
        {
            let mut memtable = self.with.memtable.lock();
            for (job, partials) in jobs.iter().zip(partials) {
                memtable.stored(job, partials.as_ref());
            }
        }
        self.with.back_pressure.stored(jobs.iter().map(|job| Held::from(&job.points)).sum());
    }

    /// Writes once. Points begin to spill, if memory is full, while the store does not answer.
    async fn write_or_spill(&self, jobs: &[JobPoints<'_>]) -> Result<Written, CallError> {
        let RowWriterParts { store, registry, time, .. } = &self.with;
        if let Some(shared) = &store.shared {
            // It has no errors of its own.
            let _ = shared.deletions_are_followed().await;
        }
        let policies = self.with.memtable.policies();
        let may_hold = self.with.back_pressure.may_hold_late();
        let waits_for_reads = self.unread.may_wait(self.with.clock.instant(), may_hold);
        let (unsure, corrected) = (&self.unsure, &self.corrected);
        let once = Attempt { store, registry, policies: &policies, time, waits_for_reads, unsure, corrected };
        let mut attempt = pin!(NoPanic::new(once.write(jobs)));
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
        let spill = self.with.spill.clone();
        tokio::spawn(async move { spill.begin_if_full().await });
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
