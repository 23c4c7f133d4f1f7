//! The statements of the tables of names, and what their writers and readers share.
//!
//! The tables are opened on first use, so that a node can start before Cassandra answers.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, RwLock};
use scylla::{
    client::session::Session,
    statement::{
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};
use store::StoreError;
use tokio::sync::{OnceCell, Semaphore};

use super::{
    config::CARBON_AGGREGATOR,
    directories::WrittenDirectories,
    report::{RejectedNames, ScanReport},
};
use crate::{
    Consistencies, Options,
    failure::unavailable,
    retry::Retry,
    schema::{self, Opened, quoted},
};

/// The tables of names: their sessions, statements and limits.
pub(crate) struct Names {
    data: Arc<Session>,
    pub(crate) session: Arc<Session>,
    pub(super) options: Options,
    /// The keyspace of the names.
    pub(crate) keyspace: String,
    pub(crate) consistency: Consistencies,
    pub(crate) retry: Retry,
    /// Concurrent statements.
    pub(super) in_flight: usize,
    pub(super) permits: Semaphore,
    pub(crate) opened: OnceCell<Tables>,
    /// Statements of globs, by their words.
    pub(super) globs: RwLock<HashMap<String, PreparedStatement>>,
    pub(super) directories: WrittenDirectories,
    pub(super) rejected: Mutex<RejectedNames>,
    pub(super) last_scan: Mutex<Option<ScanReport>>,
}

/// The tables as they were found, with their statements.
pub(crate) struct Tables {
    pub(crate) opened: Opened,
    /// By the number of components.
    directories: RwLock<HashMap<usize, PreparedStatement>>,
    /// Of a row of `metrics` and one of `metrics_metadata`, by the number of components.
    metrics: RwLock<HashMap<usize, Arc<Batch>>>,
    /// Reads metrics by their names.
    pub(super) known: PreparedStatement,
    pub(super) updated: PreparedStatement,
    pub(super) read: PreparedStatement,
}

impl Names {
    pub(crate) fn new(data: Arc<Session>, session: Arc<Session>, options: &Options) -> Names {
        let in_flight = options.in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Names {
            data,
            session,
            options: options.clone(),
            keyspace: schema::metadata_keyspace(&options.keyspace),
            consistency: options.consistency,
            retry: options.names_retry(),
            in_flight,
            permits: Semaphore::new(in_flight),
            opened: OnceCell::new(),
            globs: RwLock::default(),
            directories: WrittenDirectories::new(options.host.clock.clone()),
            rejected: Mutex::default(),
            last_scan: Mutex::default(),
        }
    }

    /// The tables, checked at their first use.
    ///
    /// # Errors
    /// `Spec` where they have another layout; `Unavailable` where they are missing or cannot be reached.
    pub(crate) async fn tables(&self) -> Result<&Tables, StoreError> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Tables, StoreError> {
        let opened = schema::open(&self.data, &self.session, &self.options).await?;
        let metadata = format!("{}.metrics_metadata", quoted(&self.keyspace));
        let known = format!("SELECT name, id, config, created_on, updated_on FROM {metadata} WHERE name IN ?");
        let mut known = self.prepare(&known).await?;
        known.set_consistency(self.consistency.meta_read);
        let mut touches = Vec::new();
        for column in ["updated_on", "read_on"] {
            touches.push(self.prepare(&format!("UPDATE {metadata} SET {column} = now() WHERE name = ?")).await?);
        }
        let [updated, read] = touches.try_into().expect("two columns were prepared");
        Ok(Tables { opened, directories: RwLock::default(), metrics: RwLock::default(), known, updated, read })
    }

    /// Prepares a statement that writes.
    pub(super) async fn prepare(&self, cql: &str) -> Result<PreparedStatement, StoreError> {
        let prepared = self.retry.run(|| self.session.prepare(cql)).await;
        let mut statement =
            prepared.map_err(|error| unavailable("preparing statements of names", &self.keyspace, &error))?;
        // A retry gets another now(), which is harmless.
        statement.set_is_idempotent(true);
        statement.set_consistency(self.consistency.meta_write);
        Ok(statement)
    }

    /// Inserts a row of `metrics` or `directories` with so many components, the mark of the end not counted. A metric that is
    /// in no tree has none, and neither parent.
    async fn insert_name(&self, table: &str, components: usize) -> Result<PreparedStatement, StoreError> {
        let mut columns = String::from("name");
        let mut marks = String::from("?");
        if components > 0 {
            columns.push_str(", parent");
            marks.push_str(", ?");
            for component in 0..=components {
                columns.push_str(&format!(", component_{component}"));
                marks.push_str(", ?");
            }
        }
        self.prepare(&format!("INSERT INTO {}.{table} ({columns}) VALUES ({marks})", quoted(&self.keyspace))).await
    }

    pub(super) async fn directory_statement(
        &self,
        tables: &Tables,
        components: usize,
    ) -> Result<PreparedStatement, StoreError> {
        if let Some(statement) = tables.directories.read().get(&components) {
            return Ok(statement.clone());
        }
        let statement = self.insert_name("directories", components).await?;
        tables.directories.write().insert(components, statement.clone());
        Ok(statement)
    }

    /// Both rows of a metric lie in partitions of one key: as a batch they are one mutation, and neither is ever there without the
    /// other.
    pub(super) async fn metric_batch(&self, tables: &Tables, components: usize) -> Result<Arc<Batch>, StoreError> {
        if let Some(batch) = tables.metrics.read().get(&components) {
            return Ok(batch.clone());
        }
        let name = self.insert_name("metrics", components).await?;
        let metadata = format!(
            "UPDATE {}.metrics_metadata SET created_on = ?, updated_on = now(), id = ?, config = config + ?, \
             config['{CARBON_AGGREGATOR}'] = ? WHERE name = ?",
            quoted(&self.keyspace)
        );
        let metadata = self.prepare(&metadata).await?;
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, vec![name.into(), metadata.into()]);
        batch.set_consistency(self.consistency.meta_write);
        batch.set_is_idempotent(true);
        let batch = Arc::new(batch);
        tables.metrics.write().insert(components, batch.clone());
        Ok(batch)
    }

    /// Metrics that the tables cannot hold, since the start.
    pub(crate) fn rejected(&self) -> RejectedNames {
        self.rejected.lock().clone()
    }

    /// The report of the latest complete scan.
    pub(crate) fn last_scan(&self) -> Option<ScanReport> {
        self.last_scan.lock().clone()
    }
}
