//! Packed rows on their way to Cassandra: some in one statement, sent to a replica of their partitions, retried until the timeout.

use std::sync::{Arc, atomic::Ordering};

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Stage, Table};
use store::{Run, StoreError};

use crate::{
    failure::{Classify, Failure},
    pack::{Packed, PackedRows},
    packed_batches::{PackedBatch, PackedBatches},
    packed_tables::PackedStatements,
    packed_wire::PackedRow,
    points::Points,
    timestamps::Times,
};

impl Points {
    /// Writes runs; on `Ok` as many replicas as the consistency asks have every row. `times` are those of the
    /// runs.
    pub(crate) async fn write_packed(&self, runs: &[Run], times: Times) -> Result<(), StoreError> {
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
        let made = |stage| tables.iter().find(|known| known.stage == stage).expect("all were looked up");
        let cluster = self.session.get_cluster_state();
        let place = |packed: &Packed| {
            let statements = made(packed.table.stage);
            let token = statements.insert.calculate_token(&packed.row).ok()??;
            let replicas = cluster.get_token_endpoints(&self.keyspace, &statements.name, token);
            replicas.first().map(|(node, shard)| (node.host_id, *shard))
        };
        let rows = PackedRows::new(runs, self.shard(), self.clock.now(), times);
        let send = |batch: PackedBatch| async move {
            let _permit = self.writes.acquire().await.expect("it is never closed");
            self.send_packed(made(batch.stage), &batch.rows).await
        };
        let batches = PackedBatches::new(rows, place);
        stream::iter(batches).map(send).buffer_unordered(self.in_flight).try_collect().await
    }

    /// Writes one row into the table of a stage.
    pub(crate) async fn write_run(&self, table: Table, row: PackedRow) -> Result<(), StoreError> {
        let statements = self.packed.made(table.stage).await?;
        self.until_seen(&statements).await;
        let _permit = self.writes.acquire().await.expect("it is never closed");
        self.send_packed(&statements, &[row]).await
    }

    /// Waits until every reader knows of a table that this process created.
    async fn until_seen(&self, statements: &PackedStatements) {
        let left = statements.writable_from.saturating_duration_since(self.clock.instant());
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    async fn send_packed(&self, statements: &PackedStatements, rows: &[PackedRow]) -> Result<(), StoreError> {
        let Err(error) = self.try_to_send_packed(statements, rows).await else { return Ok(()) };
        let stage: Stage = statements.stage;
        if error.failure() == Failure::NoTable {
            // Dropped meanwhile. The rows of this call are not lost.
            self.packed.forget(stage);
            let statements = self.packed.made(stage).await?;
            self.until_seen(&statements).await;
            let again = self.try_to_send_packed(&statements, rows).await;
            return again.map_err(|error| self.failed("writing to", &statements.name, &error));
        }
        Err(self.failed("writing to", &statements.name, &error))
    }

    async fn try_to_send_packed(
        &self,
        statements: &PackedStatements,
        rows: &[PackedRow],
    ) -> Result<(), scylla::errors::ExecutionError> {
        match rows {
            [row] => {
                self.retry.run(|| self.session.execute_unpaged(&statements.insert, row)).await?;
            }
            rows => {
                self.retry.run(|| self.session.batch(statements.batch(rows.len()), rows)).await?;
            }
        }
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
