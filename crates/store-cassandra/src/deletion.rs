//! Deleting the points of metrics: their partitions in every table of their policies, and those that other tables have. An id is
//! made of the name, so that points left there would come back with the name.
//!
//! A node knows the policies that it has by its rules or by the tables of names. Under another one, which was over before this node
//! knew the metric, other nodes may have stored points: the tables of the keyspace that are of no policy are searched for them.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};
use metric::{Stage, Table, Timestamp};
use scylla::{
    serialize::row::SerializeRow,
    statement::{Consistency, prepared::PreparedStatement},
};
use store::{MetricRecord, StoreError};
use uuid::Uuid;

use crate::{
    ask::{self, Asker},
    failure::unavailable,
    points::Points,
    rows,
    schema::{self, quoted},
};

/// Partitions that one statement asks for.
const ASKED_AT_ONCE: usize = 100;

impl Points {
    /// Deletes the points that were written so far. Those that expired are left to expire.
    pub(crate) async fn delete(&self, records: &[MetricRecord]) -> Result<(), StoreError> {
        if records.is_empty() {
            // As a deletion asks first, to see whether the tables can be written.
            return Ok(());
        }
        // Before the time of the deletion is taken: others write by later times once that is 20 seconds ago.
        let found = self.find_in_other_tables(records).await?;
        let timestamp = self.timestamps.of_deletion(&rows::metric_ids(records));
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
            let partitions = partitions(table.stage, self.clock.now(), longest);
            if self.tables.existing(table).await?.is_some() {
                self.delete_partitions(&table.to_string(), &partitions, ids(), timestamp).await?;
            }
            if let Some(packed) = self.packed.existing(table.stage).await? {
                self.delete_partitions(&packed.name, &partitions, ids(), timestamp).await?;
            }
        }
        for (table, partitions) in found {
            self.delete_each(&table, &partitions, timestamp).await?;
        }
        Ok(())
    }

    /// The partitions that tables have which are of no policy of a metric.
    async fn find_in_other_tables(
        &self,
        records: &[MetricRecord],
    ) -> Result<Vec<(String, Vec<(Uuid, i64)>)>, StoreError> {
        let mut all = Vec::new();
        let ids: Vec<Uuid> = records.iter().map(|record| rows::metric_id(&record.name)).collect();
        let of_policies: Vec<HashSet<String>> = records
            .iter()
            .map(|record| {
                tables_of(record).flat_map(|(table, _)| [table.to_string(), schema::packed_name(table.stage)]).collect()
            })
            .collect();
        let longest = records.iter().flat_map(tables_of).map(|(_, longest)| longest).max().unwrap_or(0);
        for (table, stage) in self.tables_of_points().await? {
            let others = ids.iter().zip(&of_policies).filter(|(_, known)| !known.contains(&table));
            let others: Vec<Uuid> = others.map(|(id, _)| *id).collect();
            if others.is_empty() {
                continue;
            }
            let partitions = partitions(stage, self.clock.now(), longest.max(stage.duration()));
            let found = self.found_partitions(&table, &others, &partitions).await?;
            all.push((table, found));
        }
        Ok(all)
    }

    /// Name and stage of each table of points that the keyspace has, of rows and packed ones.
    async fn tables_of_points(&self) -> Result<Vec<(String, Stage)>, StoreError> {
        let (session, keyspace, retry) = (&*self.session, self.keyspace.as_str(), self.retry.clone());
        // The schema is local to the node that answers.
        let asker = Asker { session, keyspace, consistency: Consistency::LocalOne, retry };
        let cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let found: Vec<(String,)> = asker.rows("reading the names of tables", cql, (keyspace,)).await?;
        let stages = found.into_iter().map(|(name,)| (schema::stage_of(&name), name));
        Ok(stages.filter_map(|(stage, name)| Some((name, stage?))).collect())
    }

    /// The partitions of these metrics that a table has.
    async fn found_partitions(
        &self,
        table: &str,
        ids: &[Uuid],
        partitions: &[i64],
    ) -> Result<Vec<(Uuid, i64)>, StoreError> {
        let cql = format!(
            "SELECT DISTINCT metric, time_start_ms FROM {}.{table} WHERE metric = ? AND time_start_ms IN ?",
            quoted(&self.keyspace)
        );
        let statement = self.prepared(table, &cql, self.tables.read_consistency()).await?;
        let what = format!("looking for points of {table}");
        let chunks: Vec<&[i64]> = partitions.chunks(ASKED_AT_ONCE).collect();
        let (statement, what, chunks) = (&statement, &what, &chunks);
        let asked = (0..ids.len() * chunks.len()).map(|at| async move {
            let values = (ids[at / chunks.len()], chunks[at % chunks.len()]);
            let _permit = self.reads.acquire().await.expect("it is never closed");
            let answer = self.retry.run(|| self.session.execute_unpaged(statement, &values)).await;
            ask::read(what, answer.map_err(|error| unavailable(what, &self.keyspace, &error))?)
        });
        stream::iter(asked).buffer_unordered(self.in_flight).try_concat().await
    }

    async fn delete_partitions(
        &self,
        table: &str,
        partitions: &[i64],
        ids: Vec<Uuid>,
        timestamp: i64,
    ) -> Result<(), StoreError> {
        let each = ids.iter().flat_map(|id| partitions.iter().map(move |partition| (*id, *partition)));
        self.delete_each(table, &each.collect::<Vec<_>>(), timestamp).await
    }

    async fn delete_each(&self, table: &str, partitions: &[(Uuid, i64)], timestamp: i64) -> Result<(), StoreError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let cql = format!(
            "DELETE FROM {}.{table} USING TIMESTAMP ? WHERE metric = ? AND time_start_ms = ?",
            quoted(&self.keyspace)
        );
        let statement = self.prepared(table, &cql, self.tables.write_consistency()).await?;
        let values = partitions.iter().map(|(id, start)| (timestamp, *id, *start)).collect();
        self.delete_all(table, &statement, values).await
    }

    /// Runs a statement that deletes for each of these values.
    async fn delete_all<V: SerializeRow>(
        &self,
        table: &str,
        statement: &PreparedStatement,
        values: Vec<V>,
    ) -> Result<(), StoreError> {
        let failed = |error: &_| unavailable(&format!("deleting points of {table}"), &self.keyspace, error);
        let failed = &failed;
        let deletes = values.into_iter().map(|values| async move {
            let _permit = self.writes.acquire().await.expect("it is never closed");
            let deleted = self.retry.run(|| self.session.execute_unpaged(statement, &values)).await;
            deleted.map(drop).map_err(|error| failed(&error))
        });
        stream::iter(deletes).buffer_unordered(self.in_flight).try_collect::<()>().await
    }

    async fn prepared(
        &self,
        table: &str,
        cql: &str,
        consistency: Consistency,
    ) -> Result<PreparedStatement, StoreError> {
        let prepared = self.retry.run(|| self.session.prepare(cql)).await;
        let mut statement = prepared
            .map_err(|error| unavailable(&format!("preparing statements of {table}"), &self.keyspace, &error))?;
        statement.set_is_idempotent(true);
        statement.set_consistency(consistency);
        Ok(statement)
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
