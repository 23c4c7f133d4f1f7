//! The driver's calls on the tables by which nodes meet, passed to the module `peers`.

use store::StoreError;

use crate::{
    CassandraDriver,
    claim::Identity,
    peers::{Change, ListedChange, NodeId, NodeRow},
};

impl From<Identity> for NodeId {
    fn from(identity: Identity) -> NodeId {
        NodeId(identity.node)
    }
}

impl CassandraDriver {
    /// Reports that a node is alive.
    ///
    /// # Errors
    /// The cluster cannot take it; the row before expires.
    pub async fn announce(&self, row: &NodeRow) -> Result<(), StoreError> {
        self.peers.announce(row).await
    }

    /// Deletes the row of a node that stops.
    ///
    /// # Errors
    /// The cluster cannot do it; the row expires.
    pub async fn withdraw(&self, node: NodeId) -> Result<(), StoreError> {
        self.peers.withdraw(node).await
    }

    /// The nodes that are alive, this one too.
    ///
    /// # Errors
    /// The cluster cannot answer.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.peers.nodes().await
    }

    /// Writes rows of one bucket, all or none, in one statement.
    ///
    /// # Errors
    /// The cluster cannot take them, or did not say so in time; they may be written again under other keys.
    pub async fn append_changes(&self, bucket: i64, rows: &[Change]) -> Result<(), StoreError> {
        self.peers.append_changes(bucket, rows).await
    }

    /// The rows of a bucket that were written at this moment or later, microseconds since 1970, without their names; in their order.
    ///
    /// # Errors
    /// The cluster cannot answer.
    pub async fn list_changes(&self, bucket: i64, since: i64) -> Result<Vec<ListedChange>, StoreError> {
        self.peers.list_changes(bucket, since).await
    }

    /// The rows of a bucket that were written between these moments, both included, in their order. Rows of an unknown kind or
    /// with a policy that cannot be read are empty, and logged.
    ///
    /// # Errors
    /// The cluster cannot answer.
    pub async fn changes(&self, bucket: i64, first: i64, last: i64) -> Result<Vec<Change>, StoreError> {
        self.peers.changes(bucket, first, last).await
    }
}
