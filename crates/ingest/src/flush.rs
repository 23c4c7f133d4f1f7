//! The flush cycle: what is held becomes rows, and the journal is trimmed behind them.
//!
//! 1. The journal begins a new segment. Everything in the older ones is now held, or stored.
//! 2. All metrics are gone through. Each one that holds points has them taken out, its coarser stages
//!    made, and all of it written. It stays readable from memory until it is readable from the store.
//! 3. New metrics are written to the metrics table, the driver is synced, the older segments are deleted, up to
//!    the first that holds parked points.
//!
//! Points that come after everything stored of their metric extend the coarse slots by what this writer remembers
//! of them ([`WriterPartials`]), and nothing is read. Of all others the slots they touch are made anew from what
//! is stored ([`WritePlan`]), and the driver says which part of them is this writer's.
//!
//! A cycle that nobody waits for is spread over half the time between two, so that the store sees a steady
//! trickle. It hurries when memory or the journal are half full.

use std::{
    collections::HashSet,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::{Duration, Instant},
};

use downsample::{Coverage, DerivedRow, NextPartials, SortedPoints, Stored, WritePlan, WriterPartials};
use metric::{MetricId, Partial, Policy, Slot, Timestamp};
use store::{Cells, Fetch, Run, StoreError};
use tokio::task::JoinHandle;

use crate::{
    Ingest,
    accept::now,
    health::{Backoff, NoPanic},
    held::Taken,
};

/// Metrics written together: few enough that the lock is short, enough to keep the driver's threads busy.
const GROUP: usize = 512;

/// States looked at under one lock while searching for a group.
const LOOK: u32 = 16 * 1024;

/// A store that does not answer for so long does not take points: they are parked rather than kept out.
const SLOW: Duration = Duration::from_secs(5);

const REFUSED: &str = "the store does not take points; they are safe in the journal, and it is asked again";
const TAKEN: &str = "the store takes points again";

/// How a cycle is paced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Spread over this time.
    Over(Duration),
    /// As fast as the driver takes it.
    AtOnce,
}

/// The points of one metric that are being written.
struct Work<'a> {
    taken: &'a Taken,
    policy: &'a Policy,
    pending: SortedPoints,
}

/// How a metric's rows are made.
enum Way<'a> {
    /// From what this writer remembers.
    Extended(Vec<DerivedRow>, WriterPartials),
    /// From what is stored.
    Derived(WritePlan<'a>),
}

/// How far everything is written out, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlushProgress {
    /// Metrics that the cycle under way goes through; zero between two.
    pub metrics: u64,
    /// How many of those it has gone through.
    pub metrics_done: u64,
    /// Slots of points held in memory, those on their way to the store included.
    pub held_slots: u64,
    /// Points that are in the journal alone and have to be read back first.
    pub parked_points: u64,
    /// Whether the store does not take points at present.
    pub store_failing: bool,
    /// How many callers of [`Ingest::flush`] wait.
    pub waiting: u32,
}

/// Why not everything was written out. Nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The store takes nothing.
    #[error(
        "{why}; {held_points} points are held in memory and {parked_points} are in the journal alone; all of them are safe \
         in the journal, and they are written when the store takes them"
    )]
    Store {
        /// What the store, or the way to it, says.
        why: String,
        /// Slots of points held in memory.
        held_points: u64,
        /// Points that cannot be read before the store has taken others.
        parked_points: u64,
    },
    /// The journal cannot begin a segment, or delete one.
    #[error("the journal: {0}")]
    Journal(io::Error),
}

/// A caller who waits: while there is one, cycles are not spread.
struct Hurry<'a>(&'a Ingest);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, SeqCst);
    }
}

impl Ingest {
    pub(crate) fn spawn_cycles(self: Arc<Ingest>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let half = self.options.flush_after / 2;
            let (mut wait, mut is_failing) = (Backoff::default(), false);
            loop {
                tokio::select! {
                    () = tokio::time::sleep(half) => {}
                    () = self.pressure.flush.notified() => {}
                }
                let pace = if self.pressure.is_half() { Pace::AtOnce } else { Pace::Over(half) };
                match self.cycle(pace).await {
                    Ok(()) => (wait, is_failing) = (Backoff::default(), false),
                    Err(error) => {
                        // A store that is away is told of by whoever meets it first.
                        if !is_failing && self.outage.since().is_none() {
                            tracing::error!(%error, "a flush cycle did not end; its points stay in the journal, and the next one takes them again");
                        }
                        is_failing = true;
                        tokio::time::sleep(wait.next()).await;
                    }
                }
            }
        })
    }

    /// Writes out everything that was accepted before this call, at once, also what is parked. On `Ok` it is durable
    /// in the store; while the store takes nothing this waits. See [`Ingest::flush_progress`] and
    /// [`Ingest::flush_patiently`].
    pub async fn flush(&self) -> io::Result<()> {
        self.hurried.fetch_add(1, SeqCst);
        let _hurry = Hurry(self);
        // Whatever was accepted is in a segment before this one.
        let segment = self.journal.rotate()?;
        while self.parked.position() < segment {
            self.pressure.flush.notify_one();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.cycle(Pace::AtOnce).await
    }

    /// As [`Ingest::flush`], for as long as the store takes points: when it has taken none for `patience`, this ends.
    /// A store that is away is tried at once, not when its turn comes.
    ///
    /// # Errors
    /// [`FlushError::Store`] says what the store said and what waits for it.
    pub async fn flush_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.try_again();
        tokio::select! {
            flushed = self.flush() => flushed.map_err(|error| self.unflushed(error)),
            why = self.given_up(patience) => Err(self.away(why)),
        }
    }

    fn unflushed(&self, error: io::Error) -> FlushError {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
            Some(said) => self.away(said.to_string()),
            None => FlushError::Journal(error),
        }
    }

    fn away(&self, why: String) -> FlushError {
        FlushError::Store { why, held_points: self.pressure.held_slots(), parked_points: self.parked.points() }
    }

    /// How far a flush is, for people who wait for it.
    pub fn flush_progress(&self) -> FlushProgress {
        FlushProgress {
            metrics: self.cycle_metrics.load(SeqCst),
            metrics_done: self.cycle_done.load(SeqCst),
            held_slots: self.pressure.held_slots(),
            parked_points: self.parked.points(),
            store_failing: self.health.is_failing(),
            waiting: self.hurried.load(SeqCst),
        }
    }

    /// For a stop, before the receivers are waited for: none of them waits for room any more. What they hold and what
    /// their sockets hold is taken into the journal, beyond its limit.
    pub fn release_receivers(&self) {
        self.pressure.release();
    }

    /// Ends ingestion: what is held is written out, and the background tasks end. What is parked stays in the
    /// journal, and so do points accepted later.
    pub async fn close(&self) -> io::Result<()> {
        self.end_tasks().await;
        // What a cycle was writing when it was cut off is still being written; this one waits for it.
        self.cycle(Pace::AtOnce).await?;
        self.timed_sync()
    }

    /// As [`Ingest::close`], for as long as the store takes points: when it has taken none for `patience`, what is held
    /// stays in the journal, which is on the disk when this returns, and is replayed by the next start.
    ///
    /// # Errors
    /// [`FlushError::Store`] says what the store said and what stays.
    pub async fn close_patiently(&self, patience: Duration) -> Result<(), FlushError> {
        self.end_tasks().await;
        self.try_again();
        let written = tokio::select! {
            written = self.cycle(Pace::AtOnce) => written.map_err(|error| self.unflushed(error)),
            why = self.given_up(patience) => Err(self.away(why)),
        };
        self.timed_sync().map_err(FlushError::Journal)?;
        written
    }

    async fn end_tasks(&self) {
        let tasks: Vec<JoinHandle<()>> = self.tasks.lock().drain(..).collect();
        for task in &tasks {
            task.abort();
        }
        // An aborted task runs on until it next waits.
        for task in tasks {
            let _ = task.await;
        }
    }

    async fn cycle(&self, pace: Pace) -> io::Result<()> {
        let _one = self.cycle.lock().await;
        let ended = self.cycle_alone(pace).await;
        self.cycle_metrics.store(0, SeqCst);
        ended
    }

    /// A cycle; the caller sees to it that there is one at a time.
    async fn cycle_alone(&self, pace: Pace) -> io::Result<()> {
        self.after_replay().await;
        let segment = self.journal.rotate()?;
        // In this order: were points parked in between, their segment is not before this one.
        let behind = segment.min(self.parked.position());
        let began = Instant::now();
        let count = self.held.lock().states.len() as u32;
        self.cycle_done.store(0, SeqCst);
        self.cycle_metrics.store(u64::from(count), SeqCst);
        // Every metric below `count` is named in the journal; now that is on the disk. Were its rows there first,
        // a machine that fails would forget the name and later give its number, and its rows, to another.
        self.synced().await;
        let mut next = 0;
        let mut busy = Vec::new();
        while next < count {
            let (taken, after) = self.take_group(next, count, &mut busy);
            next = after;
            self.write_taken(taken).await;
            self.cycle_done.store(u64::from(next), SeqCst);
            if let Pace::Over(time) = pace {
                self.pause(began, time.mul_f64(f64::from(next) / f64::from(count))).await;
            }
        }
        // Whatever another caller took is on its way, not stored: the journal still covers it. So it does what
        // came for such a metric meanwhile, which had to wait and is taken now.
        loop {
            while !self.held.lock().flushing.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if busy.is_empty() {
                break;
            }
            let taken = self.take_busy(&mut busy);
            self.write_taken(taken).await;
        }
        self.judge_newcomers().await;
        self.list().await.map_err(io::Error::other)?;
        let synced = NoPanic::new(self.store.sync()).await;
        if let Err(error) = synced {
            self.counters.store_errors.fetch_add(1, Relaxed);
            return Err(io::Error::other(error));
        }
        self.journal.trim(behind)?;
        self.pressure.shrank(0, self.journal.bytes());
        self.counters.cycles.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Waits until so much of a spread cycle's time has passed, or until there is a reason to hurry.
    async fn pause(&self, began: Instant, due: Duration) {
        while let Some(left) = due.checked_sub(began.elapsed()) {
            if self.pressure.is_half() || self.hurried.load(SeqCst) > 0 {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_millis(200))).await;
        }
    }

    /// Takes the points of up to a group of metrics, from number `next` on; also where to go on. Metrics of
    /// which an earlier part is still on its way are noted in `busy`.
    fn take_group(&self, next: u32, count: u32, busy: &mut Vec<MetricId>) -> (Vec<Arc<Taken>>, u32) {
        let mut held = self.held.lock();
        // Under the lock: no state has a policy that this table lacks.
        let table = self.policies.table();
        let mut taken = Vec::with_capacity(GROUP);
        let end = count.min(next + LOOK);
        for number in (next..end).map(MetricId) {
            if let Some(one) = held.take(number, &table.all) {
                taken.push(one);
                if taken.len() == GROUP {
                    return (taken, number.0 + 1);
                }
            } else if held.is_busy(number) {
                busy.push(number);
            }
        }
        (taken, end)
    }

    /// Takes the points of up to a group of the metrics that were busy; those that still are stay noted.
    fn take_busy(&self, busy: &mut Vec<MetricId>) -> Vec<Arc<Taken>> {
        let mut held = self.held.lock();
        let table = self.policies.table();
        let some: Vec<MetricId> = busy.drain(busy.len().saturating_sub(GROUP)..).collect();
        let taken = some.iter().filter_map(|&number| held.take(number, &table.all)).collect();
        busy.extend(some.into_iter().filter(|&number| held.is_busy(number)));
        taken
    }

    /// Stores what was taken, trying until the driver does, and lets go of it. In a task of its own, so that
    /// it comes to its end when nobody waits for it any more.
    pub(crate) async fn write_taken(&self, taken: Vec<Arc<Taken>>) {
        self.to_its_end(taken, |me, taken| async move { me.write_until_taken(taken).await }).await;
    }

    /// The same, once the disk has the names that rows must not precede.
    pub(crate) async fn write_taken_after_names(&self, taken: Vec<Arc<Taken>>) {
        let write = |me: Arc<Ingest>, taken| async move {
            me.synced().await;
            me.write_until_taken(taken).await;
        };
        self.to_its_end(taken, write).await;
    }

    async fn to_its_end<F>(&self, taken: Vec<Arc<Taken>>, write: impl FnOnce(Arc<Ingest>, Vec<Arc<Taken>>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if taken.is_empty() {
            return;
        }
        let me = self.me.upgrade().expect("somebody calls this");
        let written = tokio::spawn(write(me, taken)).await;
        if let Err(error) = written
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }

    /// Stores what a replay took out of metrics whose policy changed, in its order: parts of one metric one
    /// after the other.
    pub(crate) async fn write_replayed(&self, taken: Vec<Arc<Taken>>) {
        let mut group: Vec<Arc<Taken>> = Vec::new();
        let mut metrics = HashSet::new();
        for one in taken {
            if group.len() == GROUP || metrics.contains(&one.metric) {
                self.write_taken(std::mem::take(&mut group)).await;
                metrics.clear();
            }
            metrics.insert(one.metric);
            group.push(one);
        }
        self.write_taken(group).await;
        self.replayed.send_replace(true);
    }

    /// Waits until everything is stored that a replay took aside.
    pub(crate) async fn after_replay(&self) {
        // An error would say that nobody can say so any more, and this holds who could.
        let _ = self.replayed.subscribe().wait_for(|is_stored| *is_stored).await;
    }

    async fn write_until_taken(&self, taken: Vec<Arc<Taken>>) {
        let table = self.policies.table();
        let work: Vec<Work<'_>> = taken
            .iter()
            .map(|taken| {
                let policy = &table.all[usize::from(taken.policy)];
                Work { taken, policy, pending: SortedPoints::of(&[&taken.open]) }
            })
            .collect();
        let began = Instant::now();
        let mut wait = Backoff::default();
        let owns = loop {
            let mut attempt = pin!(NoPanic::new(self.try_write(&work)));
            let answer = match tokio::time::timeout(SLOW, &mut attempt).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.health.failed(&format!("no answer for {} s", SLOW.as_secs()), REFUSED);
                    self.park_if_full();
                    attempt.await
                }
            };
            match answer {
                Ok(owns) => break owns,
                Err(error) => {
                    self.counters.store_errors.fetch_add(1, Relaxed);
                    self.health.failed(&error, REFUSED);
                    self.park_if_full();
                    self.health.wait(&mut wait).await;
                }
            }
        };
        self.health.worked(TAKEN);
        self.counters.flush.observe(began.elapsed());
        self.counters.flushed_metrics.fetch_add(taken.len() as u64, Relaxed);
        let points = work.iter().map(|work| work.pending.of_stage(0).len() as u64).sum();
        self.counters.flushed_points.fetch_add(points, Relaxed);
        let slots: usize = taken.iter().map(|taken| taken.open.slots()).sum();
        drop(work);
        {
            let mut held = self.held.lock();
            for (taken, own) in taken.iter().zip(&owns) {
                held.stored(taken, own.as_ref(), &table.all);
            }
        }
        self.pressure.shrank(slots as u64, self.journal.bytes());
    }

    /// Writes rows of every stage. Returns what this writer has stored of each metric then, where that is known.
    async fn try_write(&self, work: &[Work<'_>]) -> Result<Vec<Option<WriterPartials>>, StoreError> {
        let now = now();
        let ways: Vec<Way<'_>> = work.iter().map(|work| self.way(work, now)).collect();
        let fetches = self.fetches(work, &ways);
        let cells = if fetches.is_empty() { Vec::new() } else { self.store.points.fetch(fetches).await? };
        let (mut runs, wholes, mut known) = self.runs(work, ways, &cells);
        if !wholes.is_empty() {
            let own = match &self.store.shared {
                Some(shared) => shared.writer_partials(wholes).await?,
                None => wholes,
            };
            remember(work, &own, &mut known);
            runs.extend(own);
        }
        self.store.points.write(runs).await?;
        Ok(known.into_iter().map(Known::own).collect())
    }

    fn way<'a>(&self, work: &'a Work<'_>, now: Timestamp) -> Way<'a> {
        let own = work.taken.own.as_ref();
        if let Some(own) = own.filter(|own| own.precedes(&work.pending)) {
            let mut own = own.clone();
            let rows = own.extend(work.policy, &work.pending);
            return Way::Extended(rows, own);
        }
        let history = self.registry.policies(work.taken.metric);
        let current = history.as_ref().and_then(|history| history.last());
        let since = current.filter(|last| last.policy == work.taken.policy).map_or(Timestamp::MAX, |last| last.since);
        // What another writer has stored is known to the store alone.
        let all_writers = if self.store.shared.is_none() { work.taken.stored_before() } else { Stored::Unknown };
        let coverage = Coverage { all_writers, this_writer: Stored::Unknown, now, policy_since: since };
        Way::Derived(WritePlan::new(work.policy, &work.pending, coverage, own))
    }

    /// What the plans need of the store, in their order.
    fn fetches(&self, work: &[Work<'_>], ways: &[Way<'_>]) -> Vec<Fetch> {
        let names = self.registry.read();
        let mut fetches = Vec::new();
        for (work, way) in work.iter().zip(ways) {
            let Way::Derived(plan) = way else { continue };
            for need in plan.needs() {
                fetches.push(Fetch {
                    metric: work.taken.metric,
                    name: names.name(work.taken.metric).to_owned(),
                    table: work.policy.retention.table(need.stage),
                    first_slot: need.slots.start,
                    end_slot: need.slots.end,
                    aggregation: work.policy.aggregation,
                });
            }
        }
        fetches
    }

    /// The rows that are this writer's, those of which the driver must tell its part, and what is stored after.
    fn runs(&self, work: &[Work<'_>], ways: Vec<Way<'_>>, cells: &[Cells]) -> (Vec<Run>, Vec<Run>, Vec<Known>) {
        let names = self.registry.read();
        let mut cells = cells.iter();
        let (mut runs, mut wholes) = (Vec::with_capacity(2 * work.len()), Vec::new());
        let mut known = Vec::with_capacity(work.len());
        for (work, way) in work.iter().zip(ways) {
            let run = |derived: DerivedRow| Run {
                metric: work.taken.metric,
                name: names.name(work.taken.metric).to_owned(),
                table: work.policy.retention.table(derived.stage),
                first_slot: derived.first_slot,
                values: derived.values,
                counts: derived.counts,
                aggregation: work.policy.aggregation,
            };
            match way {
                Way::Extended(rows, own) => {
                    runs.extend(rows.into_iter().map(run));
                    known.push(Known::Told(Some(own)));
                }
                Way::Derived(plan) => {
                    let stored = cells.by_ref().take(plan.needs().count());
                    let stored: Vec<(&[f64], &[u32])> =
                        stored.map(|cells| (&cells.values[..], &cells.counts[..])).collect();
                    let made = plan.derive(&stored);
                    let first = wholes.len();
                    for derived in made.rows {
                        let list = if derived.stage == 0 { &mut runs } else { &mut wholes };
                        list.push(run(derived));
                    }
                    known.push(match made.next {
                        Some(next) if first < wholes.len() => Known::Asked(next, first..wholes.len()),
                        next => Known::Told(next.map(|next| next.as_derived().clone())),
                    });
                }
            }
        }
        (runs, wholes, known)
    }
}

/// What is stored of a metric after a write.
enum Known {
    /// This, if anything is known.
    Told(Option<WriterPartials>),
    /// What the driver makes of it; its rows are those of this range.
    Asked(NextPartials, std::ops::Range<usize>),
}

impl Known {
    fn own(self) -> Option<WriterPartials> {
        match self {
            Known::Told(own) => own,
            Known::Asked(..) => None,
        }
    }
}

/// Remembers of each open slot what the driver said is this writer's.
fn remember(work: &[Work<'_>], own: &[Run], known: &mut [Known]) {
    for (work, known) in work.iter().zip(known) {
        let Known::Asked(next, range) = std::mem::replace(known, Known::Told(None)) else { continue };
        let Some(runs) = own.get(range) else { continue };
        let retention = &work.policy.retention;
        let row = |(stage, slot): (usize, Slot)| {
            let of_stage = runs.iter().filter(|run| run.table == retention.table(stage));
            let mut rows = of_stage.filter_map(|run| {
                let place = slot.checked_sub(run.first_slot)? as usize;
                Some(Partial { value: *run.values.get(place)?, count: *run.counts.get(place)? })
            });
            rows.next().unwrap_or(Partial::NONE)
        };
        let rows: Vec<Partial> = next.open_slots(retention).map(row).collect();
        *known = Known::Told(next.with_rows(rows.into_iter()));
    }
}
