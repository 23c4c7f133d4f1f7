//! The table `nodes`: a row of each node that is alive, which expires unless the node writes it again.

use scylla::value::CqlTimestamp;
use store::StoreError;
use uuid::Uuid;

use super::tables::{NodeId, NodeStatements, Peers};
use crate::{ask::read, schema::quoted};

/// The one partition of the table.
const PART: i32 = 0;

/// A node that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Which.
    pub node: NodeId,
    /// Where its peers reach it over HTTP: host and port. Empty where they cannot.
    pub address: String,
    /// Of the program.
    pub version: String,
    /// When it was started by its own clock, milliseconds since 1970.
    pub started_ms: i64,
    /// When it wrote this by its own clock, milliseconds since 1970.
    pub heartbeat_ms: i64,
}

impl Peers {
    async fn of_nodes(&self) -> Result<&NodeStatements, StoreError> {
        let table = format!("{}.nodes", quoted(&self.keyspace));
        let prepared = self.nodes.get_or_try_init(|| async {
            Ok(NodeStatements {
                // The TTL is the table's.
                write: self
                    .prepare(&format!(
                        "INSERT INTO {table} (part, node, address, version, started, heartbeat) VALUES (?, ?, ?, ?, ?, ?)"
                    ))
                    .await?,
                delete: self.prepare(&format!("DELETE FROM {table} WHERE part = ? AND node = ?")).await?,
                read: self
                    .prepare(&format!("SELECT node, address, version, started, heartbeat FROM {table} WHERE part = ?"))
                    .await?,
            })
        });
        prepared.await
    }
}

impl Peers {
    /// See [`crate::CassandraDriver::announce`].
    pub(crate) async fn announce(&self, row: &NodeRow) -> Result<(), StoreError> {
        let statements = self.of_nodes().await?;
        let NodeRow { node, address, version, started_ms, heartbeat_ms } = row;
        let values = (PART, node.0, address, version, CqlTimestamp(*started_ms), CqlTimestamp(*heartbeat_ms));
        self.run("reporting that this node is alive", &statements.write, values).await.map(drop)
    }

    /// See [`crate::CassandraDriver::withdraw`].
    pub(crate) async fn withdraw(&self, node: NodeId) -> Result<(), StoreError> {
        let statements = self.of_nodes().await?;
        self.run("reporting that this node stops", &statements.delete, (PART, node.0)).await.map(drop)
    }

    /// See [`crate::CassandraDriver::nodes`].
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        const WHAT: &str = "reading table nodes";
        type Row = (Uuid, Option<String>, Option<String>, Option<CqlTimestamp>, Option<CqlTimestamp>);
        let statements = self.of_nodes().await?;
        let rows = read::<Row>(WHAT, self.run(WHAT, &statements.read, (PART,)).await?)?;
        let row = |(node, address, version, started, heartbeat): Row| NodeRow {
            node: NodeId(node),
            address: address.unwrap_or_default(),
            version: version.unwrap_or_default(),
            started_ms: started.map_or(0, |time| time.0),
            heartbeat_ms: heartbeat.map_or(0, |time| time.0),
        };
        Ok(rows.into_iter().map(row).collect())
    }
}
