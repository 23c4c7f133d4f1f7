//! A driver of tables in memory, for rehearsals of several nodes: rows and runs are cut, read and merged by the code that writes
//! and reads Cassandra. A link decides what becomes of each statement.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use codec::Codec;
use futures::future::{BoxFuture, try_join};
use host::Clock;
use metric::{Slot, Table, Timestamp};
use store::{
    Cells, DriverFuture, Fetch, MetricRecord, OtherWriters, OwnRows, PointStore, Run, SharedPoints, StoreError, Usage,
};
use uuid::Uuid;

use crate::{
    Layout,
    calendar::Calendar,
    fill::{each_slot, fill},
    in_memory_tables::{Found, MemoryTables},
    pack::PackedRows,
    rows::{self, Part, metric_ids, shard},
    timestamps::{Times, Timestamps},
    undecodable::Undecodable,
    write::Batches,
    writer_partials::{Correction, fetch_of, has_others, subtract_stored},
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

/// The tables. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct InMemoryTables(Arc<Mutex<MemoryTables>>);

impl InMemoryTables {
    fn lock(&self) -> MutexGuard<'_, MemoryTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables as the writer with this id reaches them, whose write times come after `after`.
    pub fn writer(
        &self,
        (writer, layout): (u16, Layout),
        clock: Arc<dyn Clock>,
        link: Arc<dyn Link>,
        after: i64,
    ) -> InMemoryWriter {
        let timestamps = Timestamps::new(Arc::new(Calendar::new(clock.clone())));
        timestamps.continue_after(after);
        InMemoryWriter { tables: self.clone(), shard: shard(0, writer), layout, clock, timestamps, link }
    }

    /// The time by which rows expire, Unix seconds. Before the first call none does.
    pub fn set_now(&self, now: Timestamp) {
        self.lock().now = now;
    }

    /// What is stored of a slot: rows, and runs that may have it. For messages.
    pub fn stored(&self, name: &str, table: Table, slot: Slot) -> String {
        let mut found = Found::new(rows::metric_id(name));
        let tables = self.lock();
        for part in rows::parts(table.stage, slot, slot + 1) {
            tables.read_rows(table, part, &mut found);
            tables.read_runs(table, part, &mut found);
        }
        format!("{found:?}")
    }
}

/// The driver of one node.
pub struct InMemoryWriter {
    tables: InMemoryTables,
    shard: i16,
    /// Which tables are written; both are read.
    layout: Layout,
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

    /// As [`crate::CassandraDriver::last_deletion`].
    pub(crate) fn last_deletion(&self) -> i64 {
        self.timestamps.last_deletion()
    }

    /// As [`crate::CassandraDriver::continue_after`].
    pub fn continue_after(&self, timestamp: i64) {
        self.timestamps.continue_after(timestamp);
    }

    /// As [`crate::CassandraDriver::go_by`].
    pub fn go_by(&self, calendar: Arc<Calendar>) {
        self.timestamps.go_by(calendar);
    }

    /// Its time, Unix seconds.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether a partition of a table, or of its packed one, has anything.
    pub(crate) fn has_partition(&self, metric: Uuid, table: Table, time_start_ms: i64) -> bool {
        self.tables.lock().has_partition(metric, table, time_start_ms)
    }

    /// The partitions that a metric has, of rows and packed ones.
    pub(crate) fn partitions_of(&self, metric: Uuid) -> BTreeSet<(Table, i64)> {
        self.tables.lock().partitions_of(metric)
    }

    /// A statement that changes the tables.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut MemoryTables)) -> Result<(), StoreError> {
        let fate = self.link.statement(true).await;
        if fate != Fate::Refused {
            change(&mut self.tables.lock());
        }
        if fate == Fate::Done { Ok(()) } else { Err(failed("writing to")) }
    }

    /// A statement that reads.
    pub(crate) async fn select<T>(&self, select: impl FnOnce(&MemoryTables) -> T) -> Result<T, StoreError> {
        match self.link.statement(false).await {
            Fate::Done => Ok(select(&self.tables.lock())),
            Fate::Refused | Fate::Lost => Err(failed("reading from")),
        }
    }

    /// The rows of a batch are one statement.
    async fn write_rows(&self, runs: &[Run], times: Times) -> Result<(), StoreError> {
        for batch in Batches::new(runs, self.shard, self.clock.now(), times) {
            let rows = batch.rows.iter();
            self.change(|tables| rows.for_each(|row| tables.write_row(batch.table, row, batch.timestamp))).await?;
        }
        Ok(())
    }

    /// Each run is a statement of its own: of a batch with several partitions any part may be done.
    async fn write_packed(&self, runs: &[Run], times: Times) -> Result<(), StoreError> {
        for run in runs {
            self.create_packed(run.table).await?;
        }
        for packed in PackedRows::new(runs, self.shard, self.clock.now(), times) {
            self.change(|tables| tables.write_run(packed.table.stage, packed.row)).await?;
        }
        Ok(())
    }

    /// Creates the packed table of a stage where it is missing.
    async fn create_packed(&self, table: Table) -> Result<(), StoreError> {
        if self.tables.lock().has_packed(table.stage) {
            return Ok(());
        }
        self.change(|tables| tables.create_packed(table.stage)).await
    }

    /// Reads the partitions of a fetch, rows and runs at once, and passes on what is stored of each.
    async fn read(
        &self,
        fetch: &Fetch,
        mut each: impl FnMut(Part, &Found) -> Result<(), Undecodable>,
    ) -> Result<(), StoreError> {
        let parts: Vec<Part> = rows::parts(fetch.table.stage, fetch.first_slot, fetch.end_slot).collect();
        let has_packed = self.tables.lock().has_packed(fetch.table.stage);
        let none = || parts.iter().map(|_| Found::new(rows::metric_id(&fetch.name))).collect::<Vec<_>>();
        let rows = self.select(|tables| {
            let mut found = none();
            parts.iter().zip(&mut found).for_each(|(part, found)| tables.read_rows(fetch.table, *part, found));
            found
        });
        let runs = async {
            if !has_packed {
                return Ok(none());
            }
            let read = |tables: &MemoryTables| {
                let mut found = none();
                parts.iter().zip(&mut found).for_each(|(part, found)| tables.read_runs(fetch.table, *part, found));
                found
            };
            self.select(read).await
        };
        let (rows, runs) = try_join(rows, runs).await?;
        for ((part, rows), runs) in parts.iter().zip(rows).zip(runs) {
            each(*part, &rows.with_runs(runs)).map_err(|error| StoreError::Damaged {
                what: format!("a row of {}", fetch.table),
                how: error.to_string(),
            })?;
        }
        Ok(())
    }

    async fn correct(&self, fetch: &Fetch, slot: Slot, correction: Correction) -> Result<(), StoreError> {
        let table = fetch.table;
        let Some(ttl) = rows::ttl(table.stage, slot, self.clock.now()) else { return Ok(()) };
        let has_packed = self.tables.lock().has_packed(table.stage);
        if correction.is_packed(self.layout, has_packed) {
            let row = correction.packed(fetch, slot, ttl, self.timestamps.take(rows::metric_id(&fetch.name)));
            self.create_packed(table).await?;
            return self.change(|tables| tables.write_run(table.stage, row)).await;
        }
        let time = self.timestamps.take(rows::metric_id(&fetch.name));
        self.change(|tables| match correction.row(fetch, slot, ttl) {
            Some(row) => tables.write_row(table, &row, time),
            None => tables.delete_row(fetch, slot, correction.shard, time),
        })
        .await
    }
}

impl PointStore for InMemoryWriter {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let times = self.timestamps.take_for(&runs);
        Box::pin(async move {
            match self.layout {
                Layout::Rows => self.write_rows(&runs, times).await,
                Layout::Packed => self.write_packed(&runs, times).await,
            }
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let (mut cells, mut codec) = (vec![Cells::default(); fetches.len()], Codec::new());
            for (fetch, cells) in fetches.iter().zip(&mut cells) {
                self.read(fetch, |part, found| {
                    let damage = fill(fetch, part, found, &mut codec, cells)?;
                    debug_assert!(damage.is_empty(), "nothing damages a run in memory: {damage:?}");
                    Ok(())
                })
                .await?;
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
        Usage { tables: self.tables.lock().len(), ..Usage::default() }
    }
}

impl SharedPoints for InMemoryWriter {
    fn writer_partials(&self, mut totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(async move {
            let mut corrections = Vec::new();
            for run in &mut totals {
                let fetch = &fetch_of(run);
                self.read(fetch, |part, found| {
                    let correct = |slot, correction| corrections.push((fetch.clone(), slot, correction));
                    subtract_stored(run, (fetch, part), found, self.shard, correct)
                })
                .await?;
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
                let mut note = |_, rows: &[_], damaged: &[_]| *have_others |= has_others(rows, damaged, self.shard);
                self.read(fetch, |part, found| each_slot(fetch.table, part, found, &mut note)).await?;
            }
            Ok(have_others)
        })
    }

    fn delete_metrics(&self, metrics: Vec<MetricRecord>, _at: Timestamp) -> DriverFuture<'_, ()> {
        let timestamp = self.timestamps.of_deletion(&metric_ids(&metrics));
        Box::pin(self.delete(metrics, timestamp))
    }

    fn deleted_elsewhere(&self, names: &[String], logged: i64) {
        self.timestamps.continue_behind_deletion(names.iter().map(|name| rows::metric_id(name)), logged);
    }
}
