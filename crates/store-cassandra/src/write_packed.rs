//! Packed rows on their way to Cassandra: one statement each, sent to a replica of its partition, retried until the timeout.

use std::sync::{Arc, atomic::Ordering};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Stage, Table};
use store::{Run, StoreError};

use crate::{
    failure::{Classify, Failure},
    pack::{Packed, PackedRows},
    packed_tables::PackedStatements,
    packed_wire::PackedRow,
    points::Points,
};

impl Points {
    /// Writes runs; on `Ok` as many replicas as the consistency asks have every row. `timestamp` is the first of as
    /// many as there are runs.
    pub(crate) async fn write_packed(&self, runs: &[Run], timestamp: i64) -> Result<(), StoreError> {
        let mut tables: Vec<Arc<PackedStatements>> = Vec::new();
        for run in runs {
            if !tables.iter().any(|known| known.stage == run.table.stage) {
                tables.push(self.packed.made(run.table.stage).await?);
            }
        }
        for table in &tables {
            self.until_seen(table).await;
        }
        let tables = &tables;
        let rows = PackedRows::new(runs, self.shard(), self.clock.now(), timestamp);
        let send = |packed: Packed| async move {
            let is_of = |known: &&Arc<PackedStatements>| known.stage == packed.table.stage;
            let statements = tables.iter().find(is_of).expect("all were looked up");
            let _permit = self.writes.acquire().await.expect("it is never closed");
            self.send_packed(statements, packed.timestamp, &packed.row).await
        };
        stream::iter(rows).map(send).buffer_unordered(self.in_flight).try_collect().await
    }

    /// Writes one row into the table of a stage.
    pub(crate) async fn write_run(&self, table: Table, timestamp: i64, row: &PackedRow) -> Result<(), StoreError> {
        let statements = self.packed.made(table.stage).await?;
        self.until_seen(&statements).await;
        let _permit = self.writes.acquire().await.expect("it is never closed");
        self.send_packed(&statements, timestamp, row).await
    }

    /// Waits until every reader knows of a table that this process created.
    async fn until_seen(&self, statements: &PackedStatements) {
        let left = statements.writable_from.saturating_duration_since(self.clock.instant());
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    async fn send_packed(
        &self,
        statements: &PackedStatements,
        timestamp: i64,
        row: &PackedRow,
    ) -> Result<(), StoreError> {
        let Err(error) = self.try_to_send_packed(statements, timestamp, row).await else { return Ok(()) };
        let stage: Stage = statements.stage;
        if error.failure() == Failure::NoTable {
            // Dropped meanwhile. The rows of this call are not lost.
            self.packed.forget(stage);
            let statements = self.packed.made(stage).await?;
            self.until_seen(&statements).await;
            let again = self.try_to_send_packed(&statements, timestamp, row).await;
            return again.map_err(|error| self.failed("writing to", &statements.name, &error));
        }
        Err(self.failed("writing to", &statements.name, &error))
    }

    async fn try_to_send_packed(
        &self,
        statements: &PackedStatements,
        timestamp: i64,
        row: &PackedRow,
    ) -> Result<(), scylla::errors::ExecutionError> {
        let insert = statements.insert(timestamp);
        self.retry.run(|| self.session.execute_unpaged(&insert, row)).await?;
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
