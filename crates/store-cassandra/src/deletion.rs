//! Deleting the points of metrics: their partitions in every table of their policies. An id is made of the name, so that points
//! left there would come back with the name.

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Stage, Table, Timestamp};
use store::{MetricRecord, StoreError};

use crate::{failure::unavailable, points::Points, rows, schema::quoted};

impl Points {
    /// Deletes the points that were written before `timestamp`, microseconds. Those that expired are left to expire.
    pub(crate) async fn delete(&self, records: &[MetricRecord], timestamp: i64) -> Result<(), StoreError> {
        let mut tables: Vec<(Table, Timestamp)> = Vec::new();
        for record in records {
            for (table, longest) in tables_of(record) {
                match tables.iter_mut().find(|(known, _)| *known == table) {
                    Some((_, known)) => *known = longest.max(*known),
                    None => tables.push((table, longest)),
                }
            }
        }
        for (table, longest) in tables {
            let of_table = |record: &&MetricRecord| tables_of(record).any(|(known, _)| known == table);
            let ids = || records.iter().filter(of_table).map(|record| rows::metric_id(&record.name)).collect();
            if self.tables.existing(table).await?.is_some() {
                self.delete_partitions(&table.to_string(), table.stage, longest, ids(), timestamp).await?;
            }
            if let Some(packed) = self.packed.existing(table.stage).await? {
                self.delete_partitions(&packed.name, table.stage, longest, ids(), timestamp).await?;
            }
        }
        Ok(())
    }

    async fn delete_partitions(
        &self,
        table: &str,
        stage: Stage,
        longest: Timestamp,
        ids: Vec<uuid::Uuid>,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        let cql = format!(
            "DELETE FROM {}.{table} USING TIMESTAMP ? WHERE metric = ? AND time_start_ms = ?",
            quoted(&self.keyspace)
        );
        let failed = |error: &_| unavailable(&format!("deleting points of {table}"), &self.keyspace, error);
        let prepared = self.retry.run(|| self.session.prepare(cql.as_str())).await;
        let mut statement = prepared
            .map_err(|error| unavailable(&format!("preparing statements of {table}"), &self.keyspace, &error))?;
        statement.set_is_idempotent(true);
        statement.set_consistency(self.tables.write_consistency());
        let partitions = partitions(stage, self.clock.now(), longest);
        let (statement, partitions, ids, failed) = (&statement, &partitions, &ids, &failed);
        let deletes = (0..ids.len() * partitions.len()).map(|at| async move {
            let values = (timestamp, ids[at / partitions.len()], partitions[at % partitions.len()]);
            let _permit = self.writes.acquire().await.expect("it is never closed");
            let deleted = self.retry.run(|| self.session.execute_unpaged(statement, &values)).await;
            deleted.map(drop).map_err(|error| failed(&error))
        });
        stream::iter(deletes).buffer_unordered(self.in_flight).try_collect::<()>().await
    }
}

/// Every table that may have points of a metric, and how far ahead: as far as its policy keeps points.
pub(crate) fn tables_of(record: &MetricRecord) -> impl Iterator<Item = (Table, Timestamp)> {
    record.policies.iter().flat_map(|change| {
        let (policy, longest) = (&change.policy, change.policy.retention.longest().duration());
        (0..policy.retention.stages().len()).map(move |stage| (policy.table(stage), longest))
    })
}

/// The partitions that may have points that have not expired.
pub(crate) fn partitions(stage: Stage, now: Timestamp, longest: Timestamp) -> Vec<i64> {
    let slot = |time: Timestamp| stage.slot(time.clamp(0, Timestamp::from(u32::MAX))).unwrap_or(u32::MAX - 1);
    let (first, end) = (slot(now - stage.duration()), slot(now + longest) + 1);
    rows::parts(stage, first, end).map(|part| part.time_start_ms).collect()
}
