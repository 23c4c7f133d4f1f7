//! The table by which nodes find each other, as [`crate::Peers`] needs it: over a connection, or simulated.

use futures::future::BoxFuture;
use store::StoreError;
use store_cassandra::{Calendar, NodeId, NodeRow};

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

    /// The time by which the node writes rows and deletions.
    fn calendar(&self) -> &Calendar;

    /// Whether nodes go on one after the other, as in a rehearsal: then their calendars differ for that alone, and none is followed.
    fn has_turns(&self) -> bool {
        false
    }

    /// Reads the rows of all nodes.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>>;
}
