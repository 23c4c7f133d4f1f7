//! The datapoints tables that this process knows, and the prepared statements of each. A missing table
//! is created at its first write.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use metric::Table;
use parking_lot::{Mutex, RwLock};
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
    Consistencies, Consistency,
    failure::{Classify, Failure, unavailable},
    retry::Retry,
    schema, wire,
};

/// Rows of a page. A partition of a stage-0 table has at most 2,000 rows, so that it is one page.
const PAGE_ROWS: i32 = 4000;

/// Prepared batches kept per table, at most: the default number of concurrent statements. They take 8 KiB each
/// at 60 rows.
const KEPT_BATCHES: usize = 256;

/// The prepared statements of one table.
pub(crate) struct Statements {
    pub(crate) table: Table,
    pub(crate) select: PreparedStatement,
    /// As `select`, with the time of each write; prepared where a stage has a packed table too.
    timed_select: tokio::sync::OnceCell<PreparedStatement>,
    /// Deletes a row of an aggregated table.
    pub(crate) delete: Option<PreparedStatement>,
    consistencies: Consistencies,
    insert: PreparedStatement,
    // Unused ones; the most recently used is last.
    batches: Mutex<VecDeque<Batch>>,
}

impl Statements {
    /// Inserts a row with this timestamp, in microseconds.
    ///
    /// The statement carries the timestamp, here and in [`Statements::batch`], and not the row: a value bound to each row
    /// costs Cassandra a twelfth of its work per row.
    pub(crate) fn insert(&self, timestamp: i64) -> PreparedStatement {
        let mut insert = self.insert.clone();
        insert.set_timestamp(Some(timestamp));
        insert
    }

    /// An unlogged batch of that many inserts, all with this timestamp. Making one clones the statement as many times,
    /// so the sender [keeps](Statements::keep) it.
    pub(crate) fn batch(&self, rows: usize, timestamp: i64) -> Batch {
        let mut batch = self.kept(rows).unwrap_or_else(|| {
            let statements = (0..rows).map(|_| self.insert.clone().into()).collect();
            let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
            batch.set_consistency(self.consistencies.data_write);
            batch.set_is_idempotent(true);
            batch
        });
        batch.set_timestamp(Some(timestamp));
        batch
    }

    fn kept(&self, rows: usize) -> Option<Batch> {
        let mut batches = self.batches.lock();
        let at = batches.iter().rposition(|batch| batch.statements.len() == rows)?;
        batches.remove(at)
    }

    /// Keeps it for the next batch of as many rows.
    pub(crate) fn keep(&self, batch: Batch) {
        let mut batches = self.batches.lock();
        if batches.len() == KEPT_BATCHES {
            batches.pop_front();
        }
        batches.push_back(batch);
    }
}

/// The tables of one keyspace.
pub(crate) struct Tables {
    session: Arc<Session>,
    keyspace: String,
    consistencies: Consistencies,
    retry: Retry,
    known: RwLock<HashMap<Table, Arc<Statements>>>,
    /// Locked while a table is created, so that it is created once.
    making: tokio::sync::Mutex<()>,
}

impl Tables {
    pub(crate) fn new(session: Arc<Session>, keyspace: String, consistencies: Consistencies, retry: Retry) -> Tables {
        let (known, making) = (RwLock::default(), tokio::sync::Mutex::new(()));
        Tables { session, keyspace, consistencies, retry, known, making }
    }

    /// How many replicas must answer a read.
    pub(crate) fn read_consistency(&self) -> Consistency {
        self.consistencies.data_read
    }

    /// How many replicas must take what is written.
    pub(crate) fn write_consistency(&self) -> Consistency {
        self.consistencies.data_write
    }

    /// How many tables were used so far.
    pub(crate) fn len(&self) -> usize {
        self.known.read().len()
    }

    /// The statements of a table, or `None` when it does not exist.
    pub(crate) async fn existing(&self, table: Table) -> Result<Option<Arc<Statements>>, StoreError> {
        if let Some(statements) = self.known.read().get(&table) {
            return Ok(Some(statements.clone()));
        }
        self.prepare(table).await
    }

    /// The statements of a table, which is created if it is missing.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be created: the text has the CQL that creates it.
    pub(crate) async fn made(&self, table: Table) -> Result<Arc<Statements>, StoreError> {
        if let Some(statements) = self.existing(table).await? {
            return Ok(statements);
        }
        let _making = self.making.lock().await;
        if let Some(statements) = self.existing(table).await? {
            return Ok(statements);
        }
        self.make(table).await?;
        match self.prepare(table).await? {
            Some(statements) => Ok(statements),
            None => Err(StoreError::Unavailable(format!("Cassandra does not show table {table} after its creation"))),
        }
    }

    /// Forgets a table that is gone; the next use searches for it again.
    pub(crate) fn forget(&self, table: Table) {
        if self.known.write().remove(&table).is_some() {
            tracing::warn!(%table, keyspace = self.keyspace, "a datapoints table is missing from Cassandra; the next write creates it again");
        }
    }

    async fn make(&self, table: Table) -> Result<(), StoreError> {
        let cql = schema::datapoints_table(&self.keyspace, table);
        let mut statement = Statement::new(cql.as_str());
        statement.set_is_idempotent(true);
        // The session waits until every node that is up has the table.
        let made = self.retry.run(|| self.session.query_unpaged(statement.clone(), ())).await;
        match made {
            Ok(_) => {
                tracing::info!(%table, keyspace = self.keyspace, "created a datapoints table");
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

    async fn prepare(&self, table: Table) -> Result<Option<Arc<Statements>>, StoreError> {
        let name = format!("{}.{table}", schema::quoted(&self.keyspace));
        let (columns, marks) = match table.aggregated {
            true => ("metric, time_start_ms, offset, shard, value, count", "?, ?, ?, ?, ?, ?"),
            false => ("metric, time_start_ms, offset, value", "?, ?, ?, ?"),
        };
        let selected = selected(table);
        let insert = format!("INSERT INTO {name} ({columns}) VALUES ({marks}) USING TTL ?");
        let types = if table.aggregated { wire::PARTIAL } else { wire::POINT };
        let Some(mut insert) = self.statement(&insert, table, types).await? else { return Ok(None) };
        insert.set_consistency(self.consistencies.data_write);

        let Some(select) = self.select(table, selected).await? else { return Ok(None) };

        let mut delete = None;
        if table.aggregated {
            let cql = format!(
                "DELETE FROM {name} USING TIMESTAMP ? WHERE metric = ? AND time_start_ms = ? AND offset = ? AND shard = ?"
            );
            let Some(mut statement) = self.statement(&cql, table, wire::DELETED).await? else { return Ok(None) };
            statement.set_consistency(self.consistencies.data_write);
            delete = Some(statement);
        }
        let (batches, timed_select) = (Mutex::default(), tokio::sync::OnceCell::new());
        let consistencies = self.consistencies;
        let statements = Statements { table, select, timed_select, delete, consistencies, insert, batches };
        let statements = Arc::new(statements);
        self.known.write().insert(table, statements.clone());
        Ok(Some(statements))
    }

    /// The statement that reads rows with the times of their writes; `None` when the table is gone.
    pub(crate) async fn timed_select<'a>(
        &self,
        statements: &'a Statements,
    ) -> Result<Option<&'a PreparedStatement>, StoreError> {
        if let Some(select) = statements.timed_select.get() {
            return Ok(Some(select));
        }
        let table = statements.table;
        let selected = format!("{}, WRITETIME(value)", selected(table));
        let Some(select) = self.select(table, &selected).await? else { return Ok(None) };
        Ok(Some(statements.timed_select.get_or_init(|| async { select }).await))
    }

    async fn select(&self, table: Table, selected: &str) -> Result<Option<PreparedStatement>, StoreError> {
        // In the stored order: any other makes Cassandra sort them.
        let select = format!(
            "SELECT {selected} FROM {}.{table} WHERE metric = ? AND time_start_ms = ? AND offset >= ? AND offset < ?",
            schema::quoted(&self.keyspace)
        );
        let Some(mut select) = self.statement(&select, table, wire::SELECTED).await? else { return Ok(None) };
        select.set_consistency(self.consistencies.data_read);
        select.set_page_size(PAGE_ROWS);
        select.set_use_cached_result_metadata(true);
        Ok(Some(select))
    }

    /// Prepares one; `None` when it does not exist.
    async fn statement(
        &self,
        cql: &str,
        table: Table,
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
                expected: format!("{types:?} there, as BigGraphite has them"),
            });
        }
        statement.set_is_idempotent(true);
        Ok(Some(statement))
    }
}

/// The columns that are read.
fn selected(table: Table) -> &'static str {
    if table.aggregated { "offset, shard, value, count" } else { "offset, value" }
}
