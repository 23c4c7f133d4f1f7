//! Tables that several nodes write, as Cassandra keeps them: a row of a coarse slot for each writer. They outlive every node;
//! a test says which calls fail.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use host::Host;
use metric::{Aggregation, Partial, Slot, Table, Timestamp};
use store::{Cells, DriverFuture, Fetch, OwnRows, PointStore, Run, SharedPoints, Store, StoreError, Usage};

/// Tables that outlive a node.
pub(crate) trait OpenTables: Debug + Send + Sync {
    /// The store of a process on this host, whose data folder has this one.
    fn open(self: Arc<Self>, host: &Host, local: Store) -> Store;
}

/// Nodes that write the same tables.
pub(crate) const WRITERS: usize = 2;

type Key = (String, Table, Slot);

/// The rows of all writers.
#[derive(Debug, Default)]
struct Rows {
    points: BTreeMap<Key, f64>,
    aggregates: BTreeMap<Key, [Option<Partial>; WRITERS]>,
    /// Calls that fail from now on.
    failing: u64,
    /// Whether a write that fails is done nevertheless, as when only its answer is lost.
    is_done: bool,
}

/// The tables. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedTables(Arc<Mutex<Rows>>);

impl SharedTables {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls fail; of writes perhaps only the answer.
    pub(crate) fn fail(&self, calls: u64, is_done: bool) {
        let mut rows = self.lock();
        (rows.failing, rows.is_done) = (calls, is_done);
    }

    /// The tables as one writer has them.
    pub(crate) fn writer(&self, place: usize) -> Arc<Writer> {
        Arc::new(Writer { tables: self.clone(), place })
    }
}

/// The driver of one writer.
#[derive(Debug)]
pub(crate) struct Writer {
    tables: SharedTables,
    place: usize,
}

impl OpenTables for Writer {
    fn open(self: Arc<Self>, _host: &Host, local: Store) -> Store {
        Store { points: self.clone(), shared: Some(self), ..local }
    }
}

/// Whether rows of several writers add up.
pub(crate) fn adds(method: Aggregation) -> bool {
    matches!(method, Aggregation::Sum | Aggregation::Average | Aggregation::AvgZero)
}

fn combined(method: Aggregation, rows: impl Iterator<Item = Partial>) -> Partial {
    let add = |a: Partial, b: Partial| match adds(method) {
        // A row may correct the sum of the others without counting anything.
        true => Partial { value: a.value + b.value, count: a.count + b.count },
        false => method.merge(a, b),
    };
    rows.reduce(add).unwrap_or(Partial::NONE)
}

/// The slots of a run that have a value, and their places in it.
fn slots(run: &Run) -> impl Iterator<Item = (usize, Key)> + '_ {
    let filled = (0..run.values.len()).filter(|&i| !run.values[i].is_nan());
    filled.map(|i| (i, (run.name.clone(), run.table, run.first_slot + i as u32)))
}

impl Rows {
    /// Whether this call fails.
    fn fails(&mut self) -> bool {
        let fails = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        fails
    }

    fn write(&mut self, run: &Run, place: usize) {
        for (i, key) in slots(run) {
            if run.table.aggregated {
                let row = Partial { value: run.values[i], count: run.counts[i] };
                self.aggregates.entry(key).or_default()[place] = Some(row);
            } else {
                self.points.insert(key, run.values[i]);
            }
        }
    }

    fn fetch(&self, fetch: &Fetch) -> Cells {
        let mut cells = Cells::default();
        for slot in fetch.first_slot..fetch.end_slot {
            let key = (fetch.name.clone(), fetch.table, slot);
            if fetch.table.aggregated {
                let rows = self.aggregates.get(&key).into_iter().flatten().flatten().copied();
                let partial = combined(fetch.aggregation, rows);
                cells.values.push(partial.value);
                cells.counts.push(partial.count);
            } else {
                cells.values.push(self.points.get(&key).copied().unwrap_or(f64::NAN));
            }
        }
        if cells.values.iter().all(|value| value.is_nan()) { Cells::default() } else { cells }
    }

    /// Makes totals of all writers those of one, and corrects rows of others that contradict the total.
    /// Returns whether there were any.
    fn subtract_others(&mut self, run: &mut Run, place: usize) -> bool {
        let (method, mut is_any) = (run.aggregation, false);
        for (i, key) in slots(run).collect::<Vec<_>>() {
            let rows = self.aggregates.entry(key).or_default();
            let others = || (0..WRITERS).filter(|&other| other != place);
            let theirs = combined(method, others().filter_map(|other| rows[other]));
            let left = run.counts[i].saturating_sub(theirs.count);
            let whole = run.values[i];
            if theirs.count > run.counts[i] {
                others().for_each(|other| rows[other] = None);
                is_any = true;
            } else if adds(method) {
                let theirs = if theirs.value.is_nan() { 0.0 } else { theirs.value };
                (run.values[i], run.counts[i]) = (whole - theirs, left);
            } else {
                for row in others().collect::<Vec<_>>() {
                    if let Some(row) = &mut rows[row]
                        && method.merge(Partial::point(whole), Partial::point(row.value)).value != whole
                    {
                        row.value = whole;
                        is_any = true;
                    }
                }
                (run.values[i], run.counts[i]) = (if left > 0 { whole } else { f64::NAN }, left);
            }
        }
        is_any
    }
}

/// The answer of a store that is away.
fn away<T: Send + 'static>() -> DriverFuture<'static, T> {
    Box::pin(ready(Err(StoreError::Unavailable("the tables are away".to_owned()))))
}

impl PointStore for Writer {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let mut rows = self.tables.lock();
        let fails = rows.fails();
        if !fails || rows.is_done {
            runs.iter().for_each(|run| rows.write(run, self.place));
        }
        if fails { away() } else { Box::pin(ready(Ok(()))) }
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        let mut rows = self.tables.lock();
        if rows.fails() {
            return away();
        }
        let cells = fetches.iter().map(|fetch| rows.fetch(fetch)).collect();
        Box::pin(ready(Ok(cells)))
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn expire(&self, _now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl SharedPoints for Writer {
    fn writer_partials(&self, mut totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        let mut rows = self.tables.lock();
        if rows.fails() {
            return away();
        }
        let corrected = totals.iter_mut().filter_map(|run| rows.subtract_others(run, self.place).then_some(run.metric));
        let corrected = corrected.collect();
        Box::pin(ready(Ok(OwnRows { runs: totals, corrected })))
    }
}
