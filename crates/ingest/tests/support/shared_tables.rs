//! The tables that several writers share: stage-0 slots that all of them write, and of each coarse slot a row for each writer.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    pin::Pin,
    sync::{Arc, Mutex},
};

use metric::{Aggregation, MetricId, Partial, Slot, Table, Timestamp};
use store::{
    Cells, DriverFuture, Fetch, Identity, MemoryDriver, MetricRecord, NameStore, OtherWriters, OwnRows, PointStore,
    Run, SharedPoints, StoreError, Usage,
};

pub const WRITERS: usize = 2;

pub fn adds(method: Aggregation) -> bool {
    matches!(method, Aggregation::Sum | Aggregation::Average | Aggregation::AvgZero)
}

/// The tables.
#[derive(Default)]
pub struct Tables {
    pub points: BTreeMap<(String, Table, Slot), f64>,
    pub rows: BTreeMap<(String, Table, Slot), [Option<Partial>; WRITERS]>,
    /// Slots that cannot be read.
    pub damaged: BTreeSet<(String, Table, Slot)>,
    /// Slots that were read, and slots whose part was asked for.
    pub fetched: usize,
    pub asked: usize,
}

fn combined(method: Aggregation, rows: impl Iterator<Item = Partial>) -> Partial {
    let add = |a: Partial, b: Partial| match adds(method) {
        // A row may correct the sum of the others without counting anything.
        true => Partial { value: a.value + b.value, count: a.count + b.count },
        false => method.merge(a, b),
    };
    rows.reduce(add).unwrap_or(Partial::NONE)
}

/// The tables as one writer has them.
pub struct Writer {
    pub tables: Arc<Mutex<Tables>>,
    pub place: usize,
    pub names: MemoryDriver,
    /// What happens once, before this writer's next rows are known, and between its next points and their rows.
    pub before_rows: Meanwhile,
    pub after_points: Meanwhile,
}

/// What happens in the middle of a write, once.
pub type Meanwhile = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;

impl Writer {
    pub fn new(tables: &Arc<Mutex<Tables>>, place: usize) -> Arc<Writer> {
        let (before_rows, after_points) = (Meanwhile::default(), Meanwhile::default());
        Arc::new(Writer { tables: tables.clone(), place, names: MemoryDriver::new(), before_rows, after_points })
    }

    fn put(&self, runs: &[Run]) {
        let mut tables = self.tables.lock().unwrap();
        for run in runs {
            for (i, key) in slots(run).filter(|(i, _)| !run.values[*i].is_nan()) {
                if run.table.aggregated {
                    let row = Partial { value: run.values[i], count: run.counts[i] };
                    tables.rows.entry(key).or_default()[self.place] = Some(row);
                } else {
                    tables.points.insert(key, run.values[i]);
                }
            }
        }
    }

    /// Returns the metrics whose rows of others were corrected.
    fn subtract(&self, totals: &mut [Run]) -> Vec<MetricId> {
        let mut corrected = Vec::new();
        let mut tables = self.tables.lock().unwrap();
        for run in totals {
            let keys: Vec<_> = slots(run).filter(|(i, _)| !run.values[*i].is_nan()).collect();
            for (i, key) in keys {
                tables.asked += 1;
                let (place, method) = (self.place, run.aggregation);
                let rows = tables.rows.entry(key).or_default();
                let others = || (0..WRITERS).filter(|&other| other != place);
                let theirs = combined(method, others().filter_map(|other| rows[other]));
                let left = run.counts[i].saturating_sub(theirs.count);
                let whole = run.values[i];
                if theirs.count > run.counts[i] {
                    others().for_each(|other| rows[other] = None);
                    corrected.push(run.metric);
                } else if adds(method) {
                    let theirs = if theirs.value.is_nan() { 0.0 } else { theirs.value };
                    (run.values[i], run.counts[i]) = (whole - theirs, left);
                } else {
                    for other in others() {
                        if let Some(row) = &mut rows[other]
                            && method.merge(Partial::point(whole), Partial::point(row.value)).value != whole
                        {
                            row.value = whole;
                            corrected.push(run.metric);
                        }
                    }
                    (run.values[i], run.counts[i]) = (if left > 0 { whole } else { f64::NAN }, left);
                }
            }
        }
        corrected
    }
}

async fn happen(meanwhile: &Meanwhile) {
    let happens = meanwhile.lock().unwrap().take();
    if let Some(happens) = happens {
        happens.await;
    }
}

fn slots(run: &Run) -> impl Iterator<Item = (usize, (String, Table, Slot))> + '_ {
    (0..run.values.len()).map(|i| (i, (run.name.clone(), run.table, run.first_slot + i as u32)))
}

impl PointStore for Writer {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let (rows, points): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.table.aggregated);
        Box::pin(async move {
            self.put(&points);
            happen(&self.after_points).await;
            self.put(&rows);
            Ok(())
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        let mut tables = self.tables.lock().unwrap();
        tables.fetched += fetches.iter().map(|fetch| (fetch.end_slot - fetch.first_slot) as usize).sum::<usize>();
        let cells = fetches.into_iter().map(|fetch| {
            let mut cells = Cells::default();
            for slot in fetch.first_slot..fetch.end_slot {
                let key = (fetch.name.clone(), fetch.table, slot);
                if tables.damaged.contains(&key) {
                    let place = slot - fetch.first_slot;
                    cells.note_damage_at(place..place + 1);
                    cells.values.push(f64::NAN);
                    cells.counts.extend(fetch.table.aggregated.then_some(0));
                } else if fetch.table.aggregated {
                    let rows = tables.rows.get(&key).into_iter().flatten().flatten().copied();
                    let partial = combined(fetch.aggregation, rows);
                    cells.values.push(partial.value);
                    cells.counts.push(partial.count);
                } else {
                    cells.values.push(tables.points.get(&key).copied().unwrap_or(f64::NAN));
                }
            }
            if cells.values.iter().all(|value| value.is_nan()) {
                (cells.values, cells.counts) = (Vec::new(), Vec::new());
            }
            cells
        });
        let cells = cells.collect();
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

impl NameStore for Writer {
    fn identity(&self) -> Identity {
        self.names.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.names.begin(first_id)
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.names.put_opening()
    }

    fn next_id(&self) -> MetricId {
        self.names.next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.names.delete_metrics(ids)
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.names.put_metrics(records)
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.names.scan_metrics(each)
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

impl SharedPoints for Writer {
    fn other_writers(&self) -> OtherWriters {
        OtherWriters { are_there: true, have_same_points: false }
    }

    fn writer_partials(&self, mut totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(async move {
            happen(&self.before_rows).await;
            let corrected = self.subtract(&mut totals);
            Ok(OwnRows { runs: totals, corrected })
        })
    }
}
