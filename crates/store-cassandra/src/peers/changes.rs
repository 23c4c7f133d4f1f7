//! The table `changes`: names that nodes created and deleted, many to a row, by the minute in which a row was written.

use std::collections::{BTreeMap, HashMap};

use metric::{Policy, Timestamp};
use scylla::statement::{
    Consistency,
    batch::{Batch, BatchType},
};
use store::StoreError;
use uuid::Uuid;

use super::tables::{ChangeStatements, NodeId, Peers};
use crate::{ask::read_valid, failure::unavailable, names::config, schema::quoted};

/// Names of one row.
pub const MAX_NAMES_OF_A_CHANGE: usize = 1000;

/// Bytes of the names of one row, unless a single name has more.
pub const MAX_BYTES_OF_A_CHANGE: usize = 64 << 10;

/// Where a row is among all, in the order in which nodes apply them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeKey {
    /// When it was written by the writer's clock, microseconds since 1970.
    pub written: i64,
    /// Its writer.
    pub node: NodeId,
    /// Which of the rows that the writer wrote at once.
    pub part: i32,
}

/// A row without its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedChange {
    /// Where it is.
    pub key: ChangeKey,
    /// Whether its names were deleted.
    pub is_deletion: bool,
}

/// What happened to the names of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// They were created, or got this policy.
    Created(Policy),
    /// They were deleted.
    Deleted,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Where it is.
    pub key: ChangeKey,
    /// What happened.
    pub changed: Changed,
    /// To which names, and when: Unix seconds.
    pub names: Vec<(String, Timestamp)>,
}

const CREATED: &str = "created";
const DELETED: &str = "deleted";

impl Peers {
    async fn of_changes(&self) -> Result<&ChangeStatements, StoreError> {
        let table = format!("{}.changes", quoted(&self.keyspace));
        let prepared = self.changes.get_or_try_init(|| async {
            Ok(ChangeStatements {
                // The TTL is the table's.
                insert: self
                    .prepare(&format!(
                        "INSERT INTO {table} (bucket, written, node, part, kind, policy, names) VALUES (?, ?, ?, ?, ?, ?, ?)"
                    ))
                    .await?,
                list: self
                    .prepare(&format!("SELECT written, node, part, kind FROM {table} WHERE bucket = ? AND written >= ?"))
                    .await?,
                rows: self
                    .prepare(&format!(
                        "SELECT written, node, part, kind, policy, names FROM {table} WHERE bucket = ? AND written >= ? AND \
                         written <= ?"
                    ))
                    .await?,
            })
        });
        prepared.await
    }
}

impl Peers {
    /// See [`crate::CassandraDriver::append_changes`].
    pub(crate) async fn append_changes(&self, bucket: i64, rows: &[Change]) -> Result<(), StoreError> {
        let statements = self.of_changes().await?;
        let inserts = rows.iter().map(|_| statements.insert.clone().into()).collect();
        // Of one partition, and so one mutation.
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, inserts);
        batch.set_consistency(Consistency::LocalQuorum);
        batch.set_is_idempotent(true);
        let values = |row: &Change| {
            let (kind, policy) = match &row.changed {
                Changed::Created(policy) => (CREATED, config::config(policy)),
                Changed::Deleted => (DELETED, BTreeMap::new()),
            };
            let names: BTreeMap<String, i64> = row.names.iter().cloned().collect();
            let ChangeKey { written, node, part } = row.key;
            (bucket, written, node.0, part, kind, policy, names)
        };
        let values: Vec<_> = rows.iter().map(values).collect();
        let written = self.retry.run(|| self.session.batch(&batch, &values)).await;
        written.map(drop).map_err(|error| unavailable("telling other nodes of names", &self.keyspace, &error))
    }

    /// See [`crate::CassandraDriver::list_changes`].
    pub(crate) async fn list_changes(&self, bucket: i64, since: i64) -> Result<Vec<ListedChange>, StoreError> {
        const WHAT: &str = "reading the keys of table changes";
        type Row = (i64, Uuid, i32, Option<String>);
        let statements = self.of_changes().await?;
        let (rows, skipped) = read_valid::<Row>(WHAT, self.run(WHAT, &statements.list, (bucket, since)).await?)?;
        self.report_skipped("changes", skipped);
        let listed = |(written, node, part, kind): Row| ListedChange {
            key: ChangeKey { written, node: NodeId(node), part },
            is_deletion: kind.as_deref() == Some(DELETED),
        };
        Ok(rows.into_iter().map(listed).collect())
    }

    /// See [`crate::CassandraDriver::changes`].
    pub(crate) async fn changes(&self, bucket: i64, first: i64, last: i64) -> Result<Vec<Change>, StoreError> {
        const WHAT: &str = "reading table changes";
        type Row = (i64, Uuid, i32, Option<String>, Option<HashMap<String, String>>, Option<HashMap<String, i64>>);
        let statements = self.of_changes().await?;
        let (rows, skipped) = read_valid::<Row>(WHAT, self.run(WHAT, &statements.rows, (bucket, first, last)).await?)?;
        self.report_skipped("changes", skipped);
        let change = |(written, node, part, kind, policy, names): Row| {
            let key = ChangeKey { written, node: NodeId(node), part };
            let policy = policy.unwrap_or_default();
            let policy = || config::policy(policy.iter().map(|(key, value)| (key.as_str(), value.as_str())));
            let changed = match kind.as_deref() {
                Some(CREATED) => policy().map(Changed::Created).map_err(|error| error.to_string()),
                Some(DELETED) => Ok(Changed::Deleted),
                kind => Err(format!("its kind is {}", kind.unwrap_or("missing"))),
            };
            match changed {
                Ok(changed) => Change { key, changed, names: names.unwrap_or_default().into_iter().collect() },
                Err(why) => {
                    if let Some(suppressed) = self.unknown.is_due(self.clock.instant()) {
                        tracing::warn!(
                            why,
                            writer = %key.node,
                            suppressed,
                            "skipping a row of table changes; the next read of all names finds its names. Logging this once a minute"
                        );
                    }
                    Change { key, changed: Changed::Deleted, names: Vec::new() }
                }
            }
        };
        // Its names are on their way: the replicas that answered have a part of it.
        let is_whole =
            |(.., kind, _, names): &Row| names.is_some() || !matches!(kind.as_deref(), Some(CREATED | DELETED));
        Ok(rows.into_iter().filter(is_whole).map(change).collect())
    }
}
