//! Points on their way to Cassandra: runs cut into batches of one partition each, sent to a replica
//! of it, retried until the timeout.

use std::{
    fmt::Display,
    sync::{Arc, atomic::Ordering},
};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Table, Timestamp};
use store::{Run, StoreError};
use uuid::Uuid;

use crate::{
    absent::SEEN_AFTER,
    failure::{Classify, Failure, unavailable},
    points::Points,
    rows,
    tables::Statements,
    timestamps::Times,
    wire::WrittenRow,
};

/// Rows of a batch, at most: about thirteen kilobytes.
///
/// From 60 rows on Cassandra's cost of a row hardly falls any more (docs/benchmarks.md), and what a replica is given at once
/// grows; `examples/points.rs` measures it.
const BATCH_ROWS: usize = 120;

/// Rows of one partition, no two of one slot, to be written at once.
#[derive(Debug, PartialEq)]
pub(crate) struct RowBatch {
    pub(crate) table: Table,
    /// Microseconds.
    pub(crate) timestamp: i64,
    pub(crate) rows: Vec<WrittenRow>,
}

/// The batches of some runs. Runs of a metric that follow each other go together where they are of one partition
/// and the later one has the later slots.
pub(crate) struct Batches<'a> {
    runs: &'a [Run],
    shard: i16,
    now: Timestamp,
    // Each run has its own, so that of two that write one slot the later wins. Rows that go along
    // with those of a later run have that one's: it is after all that came before, and before all that follow.
    times: Times,
    run: usize,
    at: usize,
    // The id of the metric of the run of this index.
    id: Option<(usize, Uuid)>,
}

impl<'a> Batches<'a> {
    /// `now` is Unix seconds; `times` are those of the runs.
    pub(crate) fn new(runs: &'a [Run], shard: i16, now: Timestamp, times: Times) -> Batches<'a> {
        Batches { runs, shard, now, times, run: 0, at: 0, id: None }
    }

    fn id(&mut self) -> Uuid {
        let name = &self.runs[self.run].name;
        let id = match self.id {
            Some((run, id)) if self.runs[run].name == *name => id,
            _ => rows::metric_id(name),
        };
        self.id = Some((self.run, id));
        id
    }

    /// The row of a value of a run, or `None` where there is nothing to write.
    fn row(&self, run: &Run, at: usize, metric: Uuid) -> Option<WrittenRow> {
        let value = run.values[at];
        let slot = run.first_slot.checked_add(u32::try_from(at).ok()?)?;
        let ttl = rows::ttl(run.table.stage, slot, self.now).filter(|_| !value.is_nan())?;
        let (value, partial) = match run.table.aggregated {
            false => (value, None),
            true => {
                // BigGraphite adds the value of a row that counts nothing to the slot that follows.
                let count = run.counts.get(at).copied().filter(|&count| count > 0)?;
                let (value, count) = rows::saturated(run.aggregation, value, count);
                (value, Some((self.shard, count)))
            }
        };
        let (time_start_ms, offset) = rows::place(run.table.stage, slot);
        Some(WrittenRow { metric, time_start_ms, offset, partial, value, ttl })
    }
}

impl Iterator for Batches<'_> {
    type Item = RowBatch;

    fn next(&mut self) -> Option<RowBatch> {
        let mut batch: Option<RowBatch> = None;
        while let Some(run) = self.runs.get(self.run) {
            let id = self.id();
            while self.at < run.values.len() {
                if let Some(row) = self.row(run, self.at, id) {
                    let timestamp = self.times.of(self.run);
                    let begin = || RowBatch { table: run.table, timestamp, rows: Vec::new() };
                    let batch = batch.get_or_insert_with(begin);
                    if let Some(last) = batch.rows.last() {
                        let place = |row: &WrittenRow| (row.metric, row.time_start_ms);
                        let follows = place(last) == place(&row) && last.offset < row.offset;
                        if batch.table != run.table || !follows || batch.rows.len() == BATCH_ROWS {
                            return Some(std::mem::replace(batch, begin()));
                        }
                    } else {
                        batch.rows.reserve_exact((run.values.len() - self.at).min(BATCH_ROWS));
                    }
                    batch.timestamp = timestamp;
                    batch.rows.push(row);
                }
                self.at += 1;
            }
            self.run += 1;
            self.at = 0;
        }
        batch
    }
}

impl Points {
    /// Writes runs as rows of BigGraphite's tables; on `Ok` as many replicas as the consistency asks have every row. `times`
    /// are those of the runs.
    pub(crate) async fn write_rows(&self, runs: &[Run], times: Times) -> Result<(), StoreError> {
        let mut tables: Vec<Arc<Statements>> = Vec::new();
        for run in runs {
            if !tables.iter().any(|known| known.table == run.table) {
                tables.push(self.made_rows(run.table).await?);
            }
        }
        let tables = &tables;
        let batches = Batches::new(runs, self.shard(), self.clock.now(), times);
        let send = |batch: RowBatch| async move {
            let statements = tables.iter().find(|known| known.table == batch.table).expect("all were looked up");
            let _permit = self.writes.acquire().await.expect("it is never closed");
            self.send(statements, batch).await
        };
        stream::iter(batches).map(send).buffer_unordered(self.in_flight).try_collect().await
    }

    async fn send(&self, statements: &Arc<Statements>, batch: RowBatch) -> Result<(), StoreError> {
        let table = batch.table;
        let error = match self.try_to_send(statements, &batch).await {
            Ok(()) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(error) => error,
        };
        if error.failure() == Failure::NoTable {
            // Dropped meanwhile. The rows of this call are not lost.
            self.tables.forget(table);
            let statements = self.tables.made(table).await?;
            return self
                .try_to_send(&statements, &batch)
                .await
                .map_err(|error| self.failed("writing to", table, &error));
        }
        Err(self.failed("writing to", table, &error))
    }

    async fn try_to_send(
        &self,
        statements: &Statements,
        batch: &RowBatch,
    ) -> Result<(), scylla::errors::ExecutionError> {
        match &batch.rows[..] {
            [row] => {
                let insert = statements.insert(batch.timestamp);
                self.retry.run(|| self.session.execute_unpaged(&insert, row)).await.map(drop)
            }
            rows => {
                let statement = statements.batch(rows.len(), batch.timestamp);
                let sent = self.retry.run(|| self.session.batch(&statement, rows)).await.map(drop);
                statements.keep(statement);
                sent
            }
        }
    }

    /// The statements of a table, which is created if it is missing. Where the stage has a packed table, other nodes may look for
    /// this one once a second only: they see it before the first write.
    pub(crate) async fn made_rows(&self, table: Table) -> Result<Arc<Statements>, StoreError> {
        if let Some(statements) = self.tables.existing(table).await? {
            return Ok(statements);
        }
        let statements = self.tables.made(table).await?;
        if self.packed.existing(table.stage).await?.is_some() {
            tokio::time::sleep(SEEN_AFTER).await;
        }
        Ok(statements)
    }

    /// The error of a statement to a table.
    pub(crate) fn failed(&self, doing: &str, table: impl Display, error: &impl Classify) -> StoreError {
        unavailable(&format!("{doing} {table}"), &self.keyspace, error)
    }
}

#[cfg(test)]
mod tests {
    use metric::{Aggregation, MetricId, Stage};

    use super::*;

    const NOW: Timestamp = 1_800_000_000;

    fn run(name: &str, aggregated: bool, first_slot: u32, values: &[f64]) -> Run {
        let table = Table { stage: Stage::new(60, 10080).unwrap(), aggregated, rollup: None };
        let counts = if aggregated { vec![60; values.len()] } else { vec![] };
        let aggregation = Aggregation::Average;
        Run { metric: MetricId(0), name: name.into(), table, first_slot, values: values.to_vec(), counts, aggregation }
    }

    /// Partition in slots, timestamp, and `offset=value` of each row.
    fn write(batch: RowBatch) -> String {
        let rows = batch.rows.iter().map(|row| format!("{}={}", row.offset, row.value));
        let place = batch.rows[0].time_start_ms / 60_000;
        assert!(batch.rows.iter().all(|row| row.time_start_ms == place * 60_000), "one partition");
        format!("{place}@{}: {}", batch.timestamp, rows.collect::<Vec<_>>().join(" "))
    }

    fn batches(runs: &[Run]) -> Vec<String> {
        Batches::new(runs, rows::shard(0, 7), NOW, 100.into()).map(write).collect()
    }

    #[test]
    fn a_batch_has_rows_of_one_partition_only() {
        let a = 30_000_000 - 2;
        let nan = f64::NAN;
        let runs = [
            run("a", false, a, &[1.0, nan, 3.0, 4.0]),
            run("a", false, a + 3, &[5.0]),
            run("b", false, a + 3, &[6.0]),
            run("b", true, a + 3, &[7.0]),
            run("b", true, a + 4, &[8.0, nan]),
            run("b", true, a + 7, &[9.0]),
            run("b", true, a + 6, &[10.0]),
        ];
        assert_eq!(
            batches(&runs),
            [
                "29998000@100: 1998=1",
                "30000000@100: 0=3 1=4",
                "30000000@101: 1=5",
                "30000000@102: 1=6",
                "30000000@105: 1=7 2=8 5=9",
                "30000000@106: 4=10",
            ]
        );
    }

    #[test]
    fn a_run_is_cut_into_bounded_batches_without_loss() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let runs = [run("a", false, 29_990_123, &values), run("c", true, 29_990_123, &values)];
        let mut seen = Vec::new();
        for batch in Batches::new(&runs, 7, NOW, 1.into()) {
            assert!((1..=BATCH_ROWS).contains(&batch.rows.len()));
            seen.extend(batch.rows.iter().map(|row| row.value));
        }
        assert_eq!(seen, [values.clone(), values].concat());
    }

    #[test]
    fn expired_and_absent_values_are_not_written() {
        let stage = Stage::new(60, 10080).unwrap();
        let oldest = stage.slot(NOW).unwrap() - 10080 - 15;
        let mut none = run("a", true, 29_990_000, &[1.0]);
        none.counts = vec![0];
        assert_eq!(batches(&[run("a", false, oldest, &[1.0]), none, run("a", false, 29_990_000, &[])]), [""; 0]);
        assert_eq!(batches(&[run("a", false, oldest, &[1.0, 2.0])]).len(), 1);
        assert_eq!(batches(&[]), [""; 0]);
    }

    #[test]
    fn a_partial_has_a_shard_and_a_count_that_fits() {
        let mut aggregated = run("a", true, 29_990_000, &[86_400.0 * 3.0]);
        aggregated.counts = vec![86_400];
        let batch = Batches::new(&[aggregated], rows::shard(2, 1), NOW, 1.into()).next().unwrap();
        assert_eq!((batch.rows[0].partial, batch.rows[0].value), (Some((-32767, 32767)), 32767.0 * 3.0));
    }
}
