//! Tables in memory, as Cassandra keeps them: BigGraphite's and the packed ones. The newest write of a row stays, until it expires.

use std::collections::{BTreeMap, BTreeSet};

use metric::{Stage, Table, Timestamp};
use store::Fetch;
use uuid::Uuid;

use crate::{
    fill::Stored,
    memory_names::MemoryNames,
    merge::Row,
    packed_wire::{PackedCell, PackedRow},
    rows::{self, Part},
    run_key,
    undecodable::Undecodable,
    wire::{PartialRow, PointRow, WrittenRow},
};

/// A cell: when it was written, microseconds, what it has, and when that expires, Unix seconds.
type Written<T> = (i64, T, Timestamp);

/// Value by offset.
type Points = BTreeMap<i16, Written<f64>>;

/// Value and count by offset and shard; `None` where a row was deleted.
type Partials = BTreeMap<(i16, i16), Written<Option<(f64, i64)>>>;

/// Runs by offset, shard, count and holes.
type Runs = BTreeMap<(i16, i16, i16, Vec<u8>), Written<Vec<u8>>>;

/// When a row expires that lives so long from a moment on.
fn expiry(now: Timestamp, ttl: i32) -> Timestamp {
    now + Timestamp::from(ttl)
}

/// All tables of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct MemoryTables {
    points: BTreeMap<(Uuid, Table, i64), Points>,
    partials: BTreeMap<(Uuid, Table, i64), Partials>,
    /// Those that were created. Reads and writes see one from then on.
    packed: BTreeMap<Stage, BTreeMap<(Uuid, i64), Runs>>,
    /// When partitions of tables, and of packed ones, were deleted.
    deleted: BTreeMap<(Uuid, Table, i64), i64>,
    deleted_runs: BTreeMap<(Uuid, Stage, i64), i64>,
    pub(crate) names: MemoryNames,
    /// The time by which rows expire, Unix seconds.
    pub(crate) now: Timestamp,
}

/// What is stored of a partition.
#[derive(Debug)]
pub(crate) struct Found {
    metric: Uuid,
    points: Vec<PointRow>,
    partials: Vec<PartialRow>,
    runs: Vec<FoundRun>,
}

#[derive(Debug)]
struct FoundRun {
    offset: i16,
    shard: i16,
    count: i16,
    holes: Vec<u8>,
    points: Vec<u8>,
    time: i64,
}

/// Replaces what was written earlier, or at the same moment and is less, as Cassandra does.
fn put<K: Ord, T: PartialOrd>(cells: &mut BTreeMap<K, Written<T>>, key: K, new: Written<T>) {
    match cells.get(&key) {
        Some(old) if (new.0, &new.1) < (old.0, &old.1) => {}
        _ => drop(cells.insert(key, new)),
    }
}

impl MemoryTables {
    /// Writes a row of one of BigGraphite's tables, at this time.
    pub(crate) fn write_row(&mut self, table: Table, row: &WrittenRow, time: i64) {
        let place = (row.metric, table, row.time_start_ms);
        if self.is_deleted(place, time) {
            return;
        }
        let expires = expiry(self.now, row.ttl);
        match row.partial {
            None => put(self.points.entry(place).or_default(), row.offset, (time, row.value, expires)),
            Some((shard, count)) => {
                let cell = (time, Some((row.value, i64::from(count))), expires);
                put(self.partials.entry(place).or_default(), (row.offset, shard), cell);
            }
        }
    }

    /// Deletes the row of an aggregated table.
    pub(crate) fn delete_row(&mut self, fetch: &Fetch, slot: metric::Slot, shard: i16, time: i64) {
        let (time_start_ms, offset) = rows::place(fetch.table.stage, slot);
        let place = (rows::metric_id(&fetch.name), fetch.table, time_start_ms);
        put(self.partials.entry(place).or_default(), (offset, shard), (time, None, Timestamp::MAX));
    }

    /// Deletes what was written to a partition up to this time.
    pub(crate) fn delete_partition(&mut self, metric: Uuid, table: Table, time_start_ms: i64, time: i64) {
        let place = (metric, table, time_start_ms);
        let of_rows = self.deleted.entry(place).or_insert(time);
        *of_rows = time.max(*of_rows);
        let of_runs = self.deleted_runs.entry((metric, table.stage, time_start_ms)).or_insert(time);
        *of_runs = time.max(*of_runs);
        if let Some(points) = self.points.get_mut(&place) {
            points.retain(|_, (written, ..)| time < *written);
        }
        if let Some(partials) = self.partials.get_mut(&place) {
            partials.retain(|_, (written, ..)| time < *written);
        }
        let runs = self.packed.get_mut(&table.stage).and_then(|table| table.get_mut(&(metric, time_start_ms)));
        if let Some(runs) = runs {
            runs.retain(|_, (written, ..)| time < *written);
        }
    }

    fn is_deleted(&self, place: (Uuid, Table, i64), time: i64) -> bool {
        self.deleted.get(&place).is_some_and(|deleted| time <= *deleted)
    }

    /// Whether a partition of a table, or of its packed one, has anything.
    pub(crate) fn has_partition(&self, metric: Uuid, table: Table, time_start_ms: i64) -> bool {
        let place = (metric, table, time_start_ms);
        let packed = self.packed.get(&table.stage).and_then(|table| table.get(&(metric, time_start_ms)));
        self.points.contains_key(&place) || self.partials.contains_key(&place) || packed.is_some()
    }

    /// The partitions that a metric has, whatever its policies were. That of a packed table counts as one of its stage.
    pub(crate) fn partitions_of(&self, metric: Uuid) -> BTreeSet<(Table, i64)> {
        fn of<T>(all: &BTreeMap<(Uuid, Table, i64), T>, metric: Uuid) -> impl Iterator<Item = (Table, i64)> {
            let stage = Stage::new(1, 1).expect("the least stage");
            let first = (metric, Table { stage, aggregated: false, rollup: None }, i64::MIN);
            all.range(first..)
                .take_while(move |((id, ..), _)| *id == metric)
                .map(|(&(_, table, start), _)| (table, start))
        }
        let packed = self.packed.iter().flat_map(|(&stage, runs)| {
            let table = Table { stage, aggregated: true, rollup: None };
            runs.range((metric, i64::MIN)..=(metric, i64::MAX)).map(move |(&(_, start), _)| (table, start))
        });
        of(&self.points, metric).chain(of(&self.partials, metric)).chain(packed).collect()
    }

    /// How many tables there are.
    pub(crate) fn len(&self) -> u64 {
        let rows: BTreeSet<Table> =
            self.points.keys().chain(self.partials.keys()).map(|&(_, table, _)| table).collect();
        (rows.len() + self.packed.len()) as u64
    }

    pub(crate) fn create_packed(&mut self, stage: Stage) {
        self.packed.entry(stage).or_default();
    }

    pub(crate) fn has_packed(&self, stage: Stage) -> bool {
        self.packed.contains_key(&stage)
    }

    /// Writes a run into the packed table of a stage.
    pub(crate) fn write_run(&mut self, stage: Stage, row: PackedRow) {
        let deleted = self.deleted_runs.get(&(row.metric, stage, row.time_start_ms));
        if deleted.is_some_and(|deleted| row.timestamp <= *deleted) {
            return;
        }
        let expires = expiry(self.now, row.ttl);
        let runs = self.packed.entry(stage).or_default().entry((row.metric, row.time_start_ms)).or_default();
        put(runs, (row.offset, row.shard, row.count, row.holes), (row.timestamp, row.points, expires));
    }

    /// Reads the rows of a part into `found`, in the order of their keys.
    pub(crate) fn read_rows(&self, table: Table, part: Part, found: &mut Found) {
        let place = (found.metric, table, part.time_start_ms);
        if let Some(points) = self.points.get(&place) {
            let points = points.range(part.from..part.until).filter(|(_, (.., expires))| self.now < *expires);
            found.points.extend(points.map(|(&offset, &(time, value, _))| PointRow { offset, value, time }));
        }
        if let Some(partials) = self.partials.get(&place) {
            let partials = partials.range((part.from, i16::MIN)..(part.until, i16::MIN));
            for (&(offset, shard), &(time, content, expires)) in partials {
                let Some((value, count)) = content.filter(|_| self.now < expires) else { continue };
                found.partials.push(PartialRow { offset, row: Row { shard, value, count }, time });
            }
        }
    }

    /// Reads the runs that may have slots of a part into `found`, in the order of their keys.
    pub(crate) fn read_runs(&self, table: Table, part: Part, found: &mut Found) {
        let runs = self.packed.get(&table.stage).and_then(|table| table.get(&(found.metric, part.time_start_ms)));
        let (from, until) = run_key::key_offsets(table.aggregated, part);
        let key = |offset: i16| (offset, i16::MIN, i16::MIN, Vec::new());
        let runs = runs.into_iter().flat_map(|runs| runs.range(key(from)..key(until)));
        let runs = runs.filter(|(_, (.., expires))| self.now < *expires);
        found.runs.extend(runs.map(|((offset, shard, count, holes), (time, points, _))| FoundRun {
            offset: *offset,
            shard: *shard,
            count: *count,
            holes: holes.clone(),
            points: points.clone(),
            time: *time,
        }));
    }
}

impl Found {
    /// Nothing yet.
    pub(crate) fn new(metric: Uuid) -> Found {
        Found { metric, points: Vec::new(), partials: Vec::new(), runs: Vec::new() }
    }

    /// These rows, and the runs of another read.
    pub(crate) fn with_runs(self, read: Found) -> Found {
        Found { runs: read.runs, ..self }
    }
}

impl FoundRun {
    fn cell(&self) -> PackedCell<'_> {
        let FoundRun { offset, shard, count, holes, points, time } = self;
        PackedCell { offset: *offset, shard: *shard, count: *count, holes, points, time: *time }
    }
}

impl Stored for Found {
    fn metric(&self) -> Uuid {
        self.metric
    }

    fn has_rows(&self) -> bool {
        !self.points.is_empty() || !self.partials.is_empty()
    }

    fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    fn points(&self) -> impl Iterator<Item = Result<PointRow, Undecodable>> {
        self.points.iter().copied().map(Ok)
    }

    fn partials(&self) -> impl Iterator<Item = Result<PartialRow, Undecodable>> {
        self.partials.iter().copied().map(Ok)
    }

    fn runs(&self) -> impl Iterator<Item = Result<PackedCell<'_>, Undecodable>> {
        self.runs.iter().map(|run| Ok(run.cell()))
    }
}
