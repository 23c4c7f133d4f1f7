//! The statements of both tables, prepared at their first use.

use std::{sync::Arc, time::Duration};

use host::{Clock, MinuteLog};
use scylla::{
    client::session::Session,
    serialize::row::SerializeRow,
    statement::{Consistency, prepared::PreparedStatement},
};
use store::StoreError;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{Options, failure::unavailable, retry::Retry, schema};

/// How long a row of `changes` is kept.
pub const CHANGES_KEPT: Duration = Duration::from_secs(schema::CHANGES_SECONDS as u64);

/// How long a row of `nodes` outlives its last heartbeat.
pub const NODE_KEPT: Duration = Duration::from_secs(schema::NODE_SECONDS as u64);

/// How long a statement is retried. The next poll comes soon.
const PATIENCE: Duration = Duration::from_secs(2);

/// A node: the number that it keeps in its data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) Uuid);

impl NodeId {
    /// For tests.
    pub fn of_number(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Of the table `nodes`.
pub(super) struct NodeStatements {
    pub(super) write: PreparedStatement,
    pub(super) delete: PreparedStatement,
    pub(super) read: PreparedStatement,
}

/// Of the table `changes`.
pub(super) struct ChangeStatements {
    pub(super) insert: PreparedStatement,
    pub(super) list: PreparedStatement,
    pub(super) rows: PreparedStatement,
}

/// Both tables.
pub(crate) struct Peers {
    pub(super) session: Arc<Session>,
    pub(super) keyspace: String,
    pub(super) retry: Retry,
    pub(super) nodes: OnceCell<NodeStatements>,
    pub(super) changes: OnceCell<ChangeStatements>,
    pub(super) clock: Arc<dyn Clock>,
    skipped: MinuteLog,
    /// Rows of table `changes` that tell what this program does not know.
    pub(super) unknown: MinuteLog,
}

impl Peers {
    pub(crate) fn new(session: Arc<Session>, options: &Options) -> Peers {
        let retry = options.names_retry();
        Peers {
            session,
            keyspace: schema::metadata_keyspace(&options.keyspace),
            retry: Retry { limit: PATIENCE.min(retry.limit), ..retry },
            nodes: OnceCell::new(),
            changes: OnceCell::new(),
            clock: options.host.clock.clone(),
            skipped: MinuteLog::new(),
            unknown: MinuteLog::new(),
        }
    }

    /// Prepares a statement. A majority must take or know each row: nodes that read less would miss names for an hour.
    pub(super) async fn prepare(&self, cql: &str) -> Result<PreparedStatement, StoreError> {
        let prepared = self.retry.run(|| self.session.prepare(cql)).await;
        let mut statement =
            prepared.map_err(|error| unavailable("preparing statements of nodes", &self.keyspace, &error))?;
        statement.set_is_idempotent(true);
        statement.set_consistency(Consistency::LocalQuorum);
        Ok(statement)
    }

    /// Says once a minute that rows are left out which cannot be read. The others count.
    pub(super) fn report_skipped(&self, table: &str, why: Option<String>) {
        let Some(why) = why else { return };
        if let Some(suppressed) = self.skipped.is_due(self.clock.instant()) {
            tracing::warn!(
                table,
                why,
                suppressed,
                "leaving out a row of the table that no Plumbago wrote: delete it, and see who else may write there. Logging this once a minute"
            );
        }
    }

    /// Runs a statement that is idempotent.
    pub(super) async fn run(
        &self,
        what: &str,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<scylla::response::query_result::QueryResult, StoreError> {
        let ran = self.retry.run(|| self.session.execute_unpaged(statement, &values)).await;
        ran.map_err(|error| unavailable(what, &self.keyspace, &error))
    }
}
