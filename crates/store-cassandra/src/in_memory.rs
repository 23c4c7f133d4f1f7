//! The tables in memory, for rehearsals of several nodes: rows as the driver writes them, the newest write of a row wins, and the rows
//! of all writers are merged as the driver merges them. Only BigGraphite's tables. No row expires.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use host::Clock;
use metric::{Table, Timestamp};
use store::{Cells, DriverFuture, Fetch, OtherWriters, OwnRows, PointStore, Run, SharedPoints, StoreError, Usage};
use uuid::Uuid;

use crate::{
    merge::Row,
    read::{allocate, index, partial},
    rows::{self, Part, shard},
    timestamps::Timestamps,
    write::{Batches, RowBatch},
    writer_partials::{Correction, fetch_of, has_others, subtract},
};

/// What becomes of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done.
    Done,
    /// It is not done, and fails.
    Refused,
    /// A write is done, and its answer is lost: it fails. A read fails.
    Lost,
}

/// The way from a node to the tables. It may wait before it decides.
pub trait Link: Send + Sync + 'static {
    /// Whether the node has seen others.
    fn has_others(&self) -> bool;

    /// Before each statement.
    fn statement(&self, is_write: bool) -> BoxFuture<'_, Fate>;
}

/// A cell and when it was written, microseconds.
type Written<T> = (i64, T);

/// Value and count by offset and shard; `None` where a row was deleted.
type Partials = BTreeMap<(i16, i16), Written<Option<(f64, i64)>>>;

#[derive(Debug, Default)]
struct State {
    points: BTreeMap<(Uuid, Table, i64), BTreeMap<i16, Written<f64>>>,
    partials: BTreeMap<(Uuid, Table, i64), Partials>,
}

/// The tables. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct InMemoryTables(Arc<Mutex<State>>);

/// Replaces what was written earlier, or at the same moment and is less, as Cassandra does.
fn put<K: Ord, T: PartialOrd>(cells: &mut BTreeMap<K, Written<T>>, key: K, new: Written<T>) {
    match cells.get(&key) {
        Some(old) if (new.0, &new.1) < (old.0, &old.1) => {}
        _ => drop(cells.insert(key, new)),
    }
}

impl State {
    fn write(&mut self, batch: &RowBatch) {
        for row in &batch.rows {
            let place = (row.metric, batch.table, row.time_start_ms);
            match row.partial {
                None => put(self.points.entry(place).or_default(), row.offset, (batch.timestamp, row.value)),
                Some((shard, count)) => {
                    let cell = (batch.timestamp, Some((row.value, i64::from(count))));
                    put(self.partials.entry(place).or_default(), (row.offset, shard), cell);
                }
            }
        }
    }

    fn points(&self, fetch: &Fetch, part: Part, cells: &mut Cells) {
        let place = (rows::metric_id(&fetch.name), fetch.table, part.time_start_ms);
        let Some(points) = self.points.get(&place) else { return };
        for (&offset, &(_, value)) in points.range(part.from..part.until) {
            if let Some(at) = index(fetch, part, offset) {
                allocate(fetch, cells);
                cells.values[at] = value;
            }
        }
    }

    /// Passes on the rows of each slot, in the order of their shards.
    fn partials(&self, fetch: &Fetch, part: Part, mut each: impl FnMut(i16, &[Row])) {
        let place = (rows::metric_id(&fetch.name), fetch.table, part.time_start_ms);
        let Some(partials) = self.partials.get(&place) else { return };
        let mut slot: (i16, Vec<Row>) = (0, Vec::new());
        for (&(offset, shard), &(_, content)) in partials.range((part.from, i16::MIN)..(part.until, i16::MIN)) {
            let Some((value, count)) = content else { continue };
            if slot.0 != offset && !slot.1.is_empty() {
                each(slot.0, &slot.1);
                slot.1.clear();
            }
            slot.0 = offset;
            slot.1.push(Row { shard, value, count });
        }
        if !slot.1.is_empty() {
            each(slot.0, &slot.1);
        }
    }
}

impl InMemoryTables {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables as the writer with this id reaches them, whose write times come after `after`.
    pub fn writer(&self, writer: u16, clock: Arc<dyn Clock>, link: Arc<dyn Link>, after: i64) -> InMemoryWriter {
        let timestamps = Timestamps::new(clock.clone());
        timestamps.continue_after(after);
        InMemoryWriter { tables: self.clone(), shard: shard(0, writer), clock, timestamps, link }
    }

    /// The rows of a slot: shard, value, count. For messages.
    pub fn rows(&self, name: &str, table: Table, slot: metric::Slot) -> String {
        let (time_start_ms, offset) = rows::place(table.stage, slot);
        let state = self.state();
        let partials = state.partials.get(&(rows::metric_id(name), table, time_start_ms));
        let of_slot = partials.into_iter().flat_map(|partials| partials.range((offset, i16::MIN)..=(offset, i16::MAX)));
        of_slot.map(|((_, shard), (time, row))| format!("{shard}@{time}: {row:?} ")).collect()
    }
}

/// The driver of one node.
pub struct InMemoryWriter {
    tables: InMemoryTables,
    shard: i16,
    clock: Arc<dyn Clock>,
    timestamps: Timestamps,
    link: Arc<dyn Link>,
}

fn failed(doing: &str) -> StoreError {
    StoreError::Unavailable(format!("{doing} the tables: no answer"))
}

impl InMemoryWriter {
    /// The highest write time so far, microseconds since 1970.
    pub fn last_timestamp(&self) -> i64 {
        self.timestamps.last()
    }

    async fn written(&self, change: impl FnOnce(&mut State)) -> Result<(), StoreError> {
        let fate = self.link.statement(true).await;
        if fate != Fate::Refused {
            change(&mut self.tables.state());
        }
        if fate == Fate::Done { Ok(()) } else { Err(failed("writing to")) }
    }

    async fn readable(&self) -> Result<(), StoreError> {
        match self.link.statement(false).await {
            Fate::Done => Ok(()),
            Fate::Refused | Fate::Lost => Err(failed("reading from")),
        }
    }

    async fn correct(&self, fetch: &Fetch, slot: metric::Slot, correction: Correction) -> Result<(), StoreError> {
        let (time_start_ms, offset) = rows::place(fetch.table.stage, slot);
        let place = (rows::metric_id(&fetch.name), fetch.table, time_start_ms);
        let to = correction.to.map(|(value, count)| (value, count.min(i64::from(i16::MAX))));
        let cell = (self.timestamps.take(1), to);
        self.written(|state| put(state.partials.entry(place).or_default(), (offset, correction.shard), cell)).await
    }
}

impl PointStore for InMemoryWriter {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let timestamp = self.timestamps.take(runs.len());
        Box::pin(async move {
            let now = self.clock.now();
            for batch in Batches::new(&runs, self.shard, now, timestamp) {
                self.written(|state| state.write(&batch)).await?;
            }
            Ok(())
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let mut cells = vec![Cells::default(); fetches.len()];
            for (fetch, cells) in fetches.iter().zip(&mut cells) {
                self.readable().await?;
                let state = self.tables.state();
                for part in rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot) {
                    match fetch.table.aggregated {
                        false => state.points(fetch, part, cells),
                        true => {
                            state.partials(fetch, part, |offset, rows| partial(fetch, part, offset, rows, cells));
                        }
                    }
                }
            }
            Ok(cells)
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn expire(&self, _now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl SharedPoints for InMemoryWriter {
    fn writer_partials(&self, mut totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(async move {
            let mut corrections = Vec::new();
            for run in &mut totals {
                let fetch = fetch_of(run);
                self.readable().await?;
                let state = self.tables.state();
                for part in rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot) {
                    state.partials(&fetch, part, |offset, rows| {
                        let Some(at) = index(&fetch, part, offset) else { return };
                        for correction in subtract(run, at, rows, self.shard) {
                            corrections.push((fetch.clone(), fetch.first_slot + at as u32, correction));
                        }
                    });
                }
            }
            let mut corrected = Vec::new();
            for (fetch, slot, correction) in corrections {
                self.correct(&fetch, slot, correction).await?;
                if correction.shard != self.shard {
                    corrected.push(fetch.metric);
                }
            }
            Ok(OwnRows { runs: totals, corrected })
        })
    }

    fn other_writers(&self) -> OtherWriters {
        OtherWriters { are_there: self.link.has_others(), have_same_points: false }
    }

    fn have_others(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<bool>> {
        Box::pin(async move {
            let mut have_others = vec![false; fetches.len()];
            for (fetch, have_others) in fetches.iter().zip(&mut have_others) {
                self.readable().await?;
                let state = self.tables.state();
                for part in rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot) {
                    state.partials(fetch, part, |_, rows| *have_others |= has_others(rows, &[], self.shard));
                }
            }
            Ok(have_others)
        })
    }
}
