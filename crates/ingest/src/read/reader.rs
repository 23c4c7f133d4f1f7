//! Where queries read from.
//!
//! 1. Choose the stage and the slots, as whisper chooses an archive (`Retention::choose`).
//! 2. Under the memtable's lock, copy the points in memory (`reading.rs`).
//!    Rows are not read where the metric has none at such a time (`metadata/src/seen/`).
//! 3. Add those in the memory of other nodes over the same tables (`heads.rs`). Before any row is read: a point that is stored
//!    meanwhile is in both, and counts once.
//! 4. Derive what points under an older policy, on their way to the store, will have stored (`older_jobs.rs`).
//! 5. Read everything that is needed of the store, for all series at once.
//! 6. Lay one over the other. Slots from before a change of policy come from the older policy's stages
//!    (`older_policies.rs`).
//!
//! Where a flush stored some of these points meanwhile, all of it is done again: a point that counts as not stored would be added to a
//! row that has it, and one of an older policy laid over what came after it.

use std::{
    ops::Range,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use downsample::ReadPlan;
use host::{Clock, JudgingTime};
use metadata::Registry;
use metric::{Policy, Slot, Table, Timestamp};
use store::{Cells, Fetch, FetchError, FetchedSeries, PointStore, SeriesRequest, SeriesSource, StoreError};

use super::{
    older_jobs::OlderJobs,
    older_policies::{OlderPart, coarser_parts, fill_from_coarser},
    reading::{Answer, Reading},
};
use crate::{
    coming_rows::ComingRows,
    counters::Durations,
    heads::{Head, HeadRequest, HeadSource, STORE, TooManyPoints, head_of},
    memtable::Memtable,
    older_cells::{OlderPolicies, fetch_filled},
    policy_table::PolicyTable,
    store_health::StoreHealth,
};

/// Series whose points are copied under one lock.
const GROUP: usize = 64;

/// Reads of a request, where flushes overtake them.
const ATTEMPTS: u32 = 4;

/// Counters of the reader.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    pub(crate) series: AtomicU64,
    /// How long the series of a request took.
    pub(crate) requests: Durations,
}

/// Reads series from memory and the store.
pub(crate) struct Reader {
    store: Arc<dyn PointStore>,
    registry: Arc<Registry>,
    memtable: Arc<Memtable>,
    health: Arc<StoreHealth>,
    clock: Arc<dyn Clock>,
    time: Arc<JudgingTime>,
    /// Other nodes over the same tables, once they are known.
    peers: OnceLock<Arc<dyn HeadSource>>,
    counters: ReadCounters,
}

/// A read, and whether a flush overtook it.
struct ReadSeries {
    series: Vec<Option<FetchedSeries>>,
    is_overtaken: bool,
}

/// What a read is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The store and memory.
    Store,
    /// Memory alone, which has all points that came here: the store is away.
    Memory,
}

/// The reads of the store for a request.
struct Fetches<'a> {
    /// In this order: for each reading its own slots and what its plan needs; then the older parts.
    fetches: Vec<Fetch>,
    plans: Vec<Option<ReadPlan<'a>>>,
    /// For each of the first fetches, the older policies that fill its absent slots.
    filled: Vec<Option<Arc<OlderPolicies>>>,
    older: Vec<OlderPart>,
}

impl SeriesSource for Reader {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        self.fetch_further(requests, Vec::new())
    }

    fn fetch_further(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
        mut missing: Vec<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        Box::pin(async move {
            let began = self.clock.instant();
            let mut read = self.read_once(&requests, true, &mut missing).await?;
            for attempt in 1..ATTEMPTS {
                if !read.is_overtaken {
                    break;
                }
                read = self.read_once(&requests, attempt + 1 < ATTEMPTS, &mut missing).await?;
            }
            self.counters.series.fetch_add(requests.len() as u64, Relaxed);
            self.counters.requests.observe(self.clock.instant().saturating_duration_since(began));
            Ok(read.series)
        })
    }

    /// While the clock is in doubt, the end of the window, where that may be now: nothing expires meanwhile, and a point
    /// that either time keeps is shown.
    fn now_for(&self, now: Timestamp, until: Timestamp) -> Timestamp {
        let judged = self.time.now();
        if judged.is_certain() { now } else { until.clamp(judged.low(), judged.high()) }
    }
}

impl Reader {
    pub(crate) fn new(
        store: Arc<dyn PointStore>,
        registry: Arc<Registry>,
        memtable: Arc<Memtable>,
        health: Arc<StoreHealth>,
        clock: Arc<dyn Clock>,
        time: Arc<JudgingTime>,
    ) -> Reader {
        let (peers, counters) = (OnceLock::new(), ReadCounters::default());
        Reader { store, registry, memtable, health, clock, time, peers, counters }
    }

    pub(crate) fn store(&self) -> &Arc<dyn PointStore> {
        &self.store
    }

    pub(crate) fn counters(&self) -> &ReadCounters {
        &self.counters
    }

    /// Asks these nodes from now on.
    pub(crate) fn set_peers(&self, peers: Arc<dyn HeadSource>) {
        // A node has one set of peers, from its start on.
        let _ = self.peers.set(peers);
    }

    /// The points in memory of these metrics, `most` at most, a head for each request. Metrics that this node does not know have
    /// none.
    pub(crate) fn heads(&self, requests: &[HeadRequest], most: usize) -> Result<Vec<Head>, TooManyPoints> {
        let mut heads = Vec::with_capacity(requests.len());
        let mut points = 0;
        for group in requests.chunks(GROUP) {
            let find = |request: &HeadRequest| {
                let name = request.name.as_bytes();
                self.registry.read().find(self.registry.hash(name), name)
            };
            let found: Vec<_> = group.iter().map(find).collect();
            let memtable = self.memtable.lock();
            for (request, metric) in group.iter().zip(found) {
                let head = metric.map_or_else(Head::new, |metric| head_of(&memtable, metric, &request.span));
                points += head.iter().map(|run| run.values.len()).sum::<usize>();
                if most < points {
                    return Err(TooManyPoints { most });
                }
                heads.push(head);
            }
        }
        Ok(heads)
    }

    /// Step 3.
    async fn add_heads(&self, readings: &mut [Option<Reading>], table: &PolicyTable, given_up: &mut Vec<String>) {
        let Some(peers) = self.peers.get().filter(|peers| peers.has_peers()) else { return };
        let requests: Vec<HeadRequest> = {
            let names = self.registry.read();
            let request = |reading: &Reading| {
                let name = names.name(reading.metric).to_owned();
                HeadRequest { name, span: reading.head_span() }
            };
            readings.iter().flatten().map(request).collect()
        };
        if requests.is_empty() {
            return;
        }
        let answer = peers.heads(requests, given_up.clone()).await;
        given_up.clone_from(&answer.missing);
        let missing: Option<Arc<[String]>> = (!answer.missing.is_empty()).then(|| answer.missing.into());
        for (place, reading) in readings.iter_mut().flatten().enumerate() {
            reading.add_heads(answer.of_peers.iter().filter_map(|heads| heads.get(place)), table);
            reading.name_missing(missing.clone());
        }
    }

    /// Copies what memory has, and reads the rest. `may_add` says that points in memory may be added to stored rows that have none of
    /// them; without it they are in slots whose finer slots are all there. Nodes that are given up are not asked.
    async fn read_once(
        &self,
        requests: &[SeriesRequest],
        may_add: bool,
        given_up: &mut Vec<String>,
    ) -> Result<ReadSeries, FetchError> {
        let table = self.memtable.policies();
        let reached = self.time.reached();
        let reading = |request| Reading::of(request, reached, &self.registry, &table);
        let mut readings: Vec<Option<Reading>> = requests.iter().map(reading).collect();
        for group in readings.chunks_mut(GROUP) {
            let memtable = self.memtable.lock();
            group.iter_mut().flatten().for_each(|reading| reading.copy_from(&memtable));
        }
        if !may_add {
            readings.iter_mut().flatten().for_each(Reading::add_to_no_row);
        }
        self.add_heads(&mut readings, &table, given_up).await;
        let seen = self.registry.seen();
        readings.iter_mut().flatten().for_each(|reading| reading.leave_out_unseen(seen));
        let series = match self.read_with_store(&readings, &table, reached).await? {
            Some(series) => series,
            None => {
                readings.iter_mut().flatten().for_each(|reading| reading.lay_peer_jobs(&table));
                self.read(&readings, &table, reached, Source::Memory).await?
            }
        };
        Ok(ReadSeries { series, is_overtaken: self.is_overtaken(&readings) })
    }

    /// `None` while the store is away, where all that came here is in memory: the points of other writers are not known, and those that
    /// came here are the answer.
    async fn read_with_store(
        &self,
        readings: &[Option<Reading>],
        table: &PolicyTable,
        reached: Timestamp,
    ) -> Result<Option<Vec<Option<FetchedSeries>>>, FetchError> {
        let is_in_memory = readings.iter().flatten().all(|reading| reading.is_in_memory);
        if is_in_memory && self.health.is_away() {
            return Ok(None);
        }
        match self.read(readings, table, reached, Source::Store).await {
            Err(FetchError::Store(StoreError::Unavailable(_) | StoreError::Io { .. })) if is_in_memory => Ok(None),
            series => series.map(Some),
        }
    }

    /// Whether a flush stored points meanwhile that count as not stored.
    fn is_overtaken(&self, readings: &[Option<Reading>]) -> bool {
        let may_be: Vec<&Reading> = readings.iter().flatten().filter(|reading| reading.may_be_overtaken()).collect();
        may_be.chunks(GROUP).any(|group| {
            let memtable = self.memtable.lock();
            group.iter().any(|reading| reading.is_overtaken(&memtable))
        })
    }

    async fn read(
        &self,
        readings: &[Option<Reading>],
        table: &PolicyTable,
        reached: Timestamp,
        source: Source,
    ) -> Result<Vec<Option<FetchedSeries>>, FetchError> {
        let older_jobs = OlderJobs { store: &*self.store, registry: &self.registry, table, reached };
        let coming = older_jobs.rows(readings).await?;
        let Fetches { fetches, plans, filled, older } = self.fetches(readings, table, reached);
        let is_left_out = source == Source::Memory && !fetches.is_empty();
        let cells = match source {
            Source::Store => self.fetch_cells(fetches, &filled, &coming).await?,
            Source::Memory => vec![Cells::default(); fetches.len()],
        };
        let mut cells = cells.into_iter();
        let mut answers: Vec<Option<Answer>> = Vec::with_capacity(readings.len());
        for (reading, plan) in readings.iter().zip(plans) {
            answers.push(reading.as_ref().map(|reading| reading.answer(plan, &mut cells)));
        }
        for (part, cells) in older.into_iter().zip(cells) {
            if let (Some(reading), Some(answer)) = (&readings[part.reading], &mut answers[part.reading]) {
                let until = part.until(answer.unread, reached);
                answer.unread.add(&cells);
                fill_from_coarser(reading, &part, until, cells, answer);
            }
        }
        let mut answers: Vec<Option<FetchedSeries>> = answers.into_iter().map(|answer| Some(answer?.series)).collect();
        // Also where no other node was met yet: a node that starts while the store is away cannot read which there are.
        if is_left_out && self.peers.get().is_some() {
            for series in answers.iter_mut().flatten() {
                let named = series.missing_peers.iter().flat_map(|peers| peers.iter().cloned());
                series.missing_peers = Some(named.chain([STORE.to_owned()]).collect());
            }
        }
        Ok(answers)
    }

    fn fetches<'a>(&self, readings: &'a [Option<Reading>], table: &PolicyTable, reached: Timestamp) -> Fetches<'a> {
        let (mut fetches, mut plans, mut older) = (Vec::new(), Vec::with_capacity(readings.len()), Vec::new());
        let mut filled = Vec::new();
        let names = self.registry.read();
        let fetch = |reading: &Reading, policy: &Policy, table: Table, slots: &Range<Slot>| Fetch {
            metric: reading.metric,
            name: names.name(reading.metric).to_owned(),
            table,
            first_slot: slots.start,
            end_slot: slots.end,
            aggregation: policy.aggregation,
        };
        for reading in readings {
            let Some(reading) = reading else {
                plans.push(None);
                continue;
            };
            if !reading.stored.is_empty() {
                fetches.push(fetch(reading, &reading.policy, reading.table(), &reading.stored));
            }
            let plan = reading.plan();
            for need in plan.iter().flat_map(|plan| plan.needs()) {
                let from = reading.policy.table(need.stage);
                fetches.push(fetch(reading, &reading.policy, from, &need.slots));
            }
            if reading.history.len() > 1 {
                let older =
                    OlderPolicies::of(&reading.history, reading.history.current(), reading.rollup, table, reached);
                filled.resize(fetches.len(), older.map(Arc::new));
            }
            filled.resize(fetches.len(), None);
            plans.push(plan);
        }
        for (place, reading) in readings.iter().enumerate() {
            let Some(reading) = reading.as_ref().filter(|reading| reading.history.len() > 1) else { continue };
            for part in coarser_parts(place, reading, table.of_rollup(reading.rollup.method)) {
                fetches.push(fetch(reading, &part.policy, part.policy.table(part.stage), &part.slots));
                older.push(part);
            }
        }
        Fetches { fetches, plans, filled, older }
    }

    async fn fetch_cells(
        &self,
        fetches: Vec<Fetch>,
        filled: &[Option<Arc<OlderPolicies>>],
        coming: &ComingRows,
    ) -> Result<Vec<Cells>, FetchError> {
        if fetches.is_empty() {
            return Ok(Vec::new());
        }
        let filled: Vec<Option<&OlderPolicies>> = filled.iter().map(Option::as_deref).collect();
        Ok(fetch_filled(&*self.store, fetches, &filled, &[coming]).await?)
    }
}
