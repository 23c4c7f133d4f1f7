//! The packed tables that this process knows, one for each stage, and the prepared statements of each. A missing table is
//! created at its first write.

use std::{collections::HashMap, sync::Arc, time::Instant};

use host::Clock;
use metric::Stage;
use parking_lot::RwLock;
use scylla::{
    client::session::Session,
    cluster::metadata::NativeType,
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
        unprepared::Statement,
    },
};
use store::StoreError;

use crate::{
    Consistencies,
    absent::{Absent, SEEN_AFTER},
    failure::{Classify, Failure, unavailable},
    packed_batches::BATCH_RUNS,
    packed_wire,
    retry::Retry,
    schema, wire,
};

/// Rows of a page.
const PAGE_ROWS: i32 = 4000;

/// The prepared statements of one table.
pub(crate) struct PackedStatements {
    pub(crate) stage: Stage,
    pub(crate) name: String,
    pub(crate) select: PreparedStatement,
    /// Inserts a row.
    pub(crate) insert: PreparedStatement,
    /// As many of these in one statement as the index says.
    batches: Vec<Batch>,
    /// Until then no row may be written: readers may not know of the table yet.
    pub(crate) writable_from: Instant,
}

impl PackedStatements {
    /// Inserts that many rows, [`BATCH_RUNS`] at most.
    pub(crate) fn batch(&self, rows: usize) -> &Batch {
        &self.batches[rows]
    }
}

/// The packed tables of one keyspace.
pub(crate) struct PackedTables {
    session: Arc<Session>,
    keyspace: String,
    consistencies: Consistencies,
    retry: Retry,
    clock: Arc<dyn Clock>,
    known: RwLock<HashMap<Stage, Arc<PackedStatements>>>,
    absent: Absent<Stage>,
    /// Locked while a table is created, so that it is created once.
    making: tokio::sync::Mutex<()>,
}

impl PackedTables {
    pub(crate) fn new(
        session: Arc<Session>,
        keyspace: String,
        consistencies: Consistencies,
        retry: Retry,
    ) -> PackedTables {
        let (known, making, clock) = (RwLock::default(), tokio::sync::Mutex::new(()), retry.clock.clone());
        let absent = Absent::new(clock.clone());
        PackedTables { session, keyspace, consistencies, retry, clock, known, absent, making }
    }

    /// How many tables were used so far.
    pub(crate) fn len(&self) -> usize {
        self.known.read().len()
    }

    /// The statements of a stage's table, or `None` when it does not exist, or did not a second ago.
    pub(crate) async fn existing(&self, stage: Stage) -> Result<Option<Arc<PackedStatements>>, StoreError> {
        if let Some(statements) = self.known.read().get(&stage) {
            return Ok(Some(statements.clone()));
        }
        if self.absent.is_known(&stage) {
            return Ok(None);
        }
        self.prepare(stage, self.clock.instant()).await
    }

    /// The statements of a stage's table, which is created if it is missing.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be created: the text has the CQL that creates it.
    pub(crate) async fn made(&self, stage: Stage) -> Result<Arc<PackedStatements>, StoreError> {
        let known = self.known.read().get(&stage).cloned();
        if let Some(statements) = known {
            return Ok(statements);
        }
        let _making = self.making.lock().await;
        self.absent.forget(&stage);
        if let Some(statements) = self.existing(stage).await? {
            return Ok(statements);
        }
        self.make(stage).await?;
        match self.prepare(stage, self.clock.instant() + SEEN_AFTER).await? {
            Some(statements) => Ok(statements),
            None => {
                let name = schema::packed_name(stage);
                Err(StoreError::Unavailable(format!("Cassandra does not show table {name} after its creation")))
            }
        }
    }

    /// Forgets a table that is gone; the next use searches for it again.
    pub(crate) fn forget(&self, stage: Stage) {
        if let Some(gone) = self.known.write().remove(&stage) {
            tracing::warn!(
                table = gone.name,
                keyspace = self.keyspace,
                "a datapoints table is missing from Cassandra; the next write creates it again"
            );
        }
    }

    async fn make(&self, stage: Stage) -> Result<(), StoreError> {
        let (cql, table) = (schema::packed_table(&self.keyspace, stage), schema::packed_name(stage));
        let mut statement = Statement::new(cql.as_str());
        statement.set_is_idempotent(true);
        // The session waits until every node that is up has the table.
        let made = self.retry.run(|| self.session.query_unpaged(statement.clone(), ())).await;
        match made {
            Ok(_) => {
                tracing::info!(table, keyspace = self.keyspace, "created a datapoints table");
                Ok(())
            }
            Err(error) if error.failure() == Failure::Unauthorized => Err(StoreError::Unavailable(format!(
                "there is no table {table} in keyspace '{}', and this role may not create it ({error}); run this with a role \
                 that may:\n{cql}",
                self.keyspace
            ))),
            Err(error) => Err(unavailable(&format!("creating {table}"), &self.keyspace, &error)),
        }
    }

    async fn prepare(&self, stage: Stage, writable_from: Instant) -> Result<Option<Arc<PackedStatements>>, StoreError> {
        let asked = self.clock.instant();
        let name = schema::packed_name(stage);
        let table = format!("{}.{name}", schema::quoted(&self.keyspace));
        let insert = format!(
            "INSERT INTO {table} (metric, time_start_ms, offset, shard, count, holes, points) VALUES (?, ?, ?, ?, ?, ?, ?) \
             USING TTL ? AND TIMESTAMP ?"
        );
        let Some(mut insert) = self.statement(&insert, &name, packed_wire::RUN).await? else {
            self.absent.note(stage, asked);
            return Ok(None);
        };
        insert.set_consistency(self.consistencies.data_write);
        let select = format!(
            "SELECT offset, shard, count, holes, points, WRITETIME(points) FROM {table} WHERE metric = ? AND time_start_ms = ? AND \
             offset >= ? AND offset < ?"
        );
        let Some(mut select) = self.statement(&select, &name, wire::SELECTED).await? else {
            self.absent.note(stage, asked);
            return Ok(None);
        };
        select.set_consistency(self.consistencies.data_read);
        select.set_page_size(PAGE_ROWS);
        select.set_use_cached_result_metadata(true);
        let batch = |rows| {
            let statements = (0..rows).map(|_| insert.clone().into()).collect();
            let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
            batch.set_consistency(self.consistencies.data_write);
            batch.set_is_idempotent(true);
            batch
        };
        let batches = (0..=BATCH_RUNS).map(batch).collect();
        let statements = Arc::new(PackedStatements { stage, name, select, insert, batches, writable_from });
        self.known.write().insert(stage, statements.clone());
        Ok(Some(statements))
    }

    /// Prepares one; `None` when it does not exist.
    async fn statement(
        &self,
        cql: &str,
        table: &str,
        types: &[NativeType],
    ) -> Result<Option<PreparedStatement>, StoreError> {
        let mut statement = match self.retry.run(|| self.session.prepare(cql)).await {
            Ok(statement) => statement,
            Err(error) if error.failure() == Failure::NoTable => return Ok(None),
            Err(error) => return Err(unavailable(&format!("preparing statements of {table}"), &self.keyspace, &error)),
        };
        let columns = statement.get_variable_col_specs();
        if wire::check(columns.as_slice(), types).is_err() {
            let found = columns.iter().map(|column| format!("{} {:?}", column.name(), column.typ()));
            return Err(StoreError::Spec {
                found: format!("that {table} has {}", found.collect::<Vec<_>>().join(", ")),
                expected: format!("{types:?} there"),
            });
        }
        statement.set_is_idempotent(true);
        Ok(Some(statement))
    }
}
