//! The table by which nodes find each other, as [`crate::Peers`] needs it: over a connection, or simulated.

use std::time::Duration;

use futures::future::BoxFuture;
use store::StoreError;
use store_cassandra::{NodeId, NodeRow};

/// The table `nodes`, as one node reaches it.
pub trait NodesTable: Send + Sync + 'static {
    /// The node's id, once it has one.
    fn own(&self) -> Option<NodeId>;

    /// Whether the table may be reached. Otherwise it is not asked.
    fn is_up(&self) -> bool;

    /// Writes the node's row.
    fn announce<'a>(&'a self, row: &'a NodeRow) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Deletes the node's row.
    fn withdraw(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Notes that there is another node, and whether it is of another replica.
    fn saw_other(&self, is_of_other_replica: bool);

    /// The calendar of another node is so far ahead of this one's, and none that counts is further: write times follow it, and the times of
    /// deletions.
    fn follow_calendar(&self, ahead: Duration);

    /// How far ahead of this node's calendar that is.
    fn ahead(&self) -> Duration;

    /// Reads the rows of all nodes.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>>;
}
