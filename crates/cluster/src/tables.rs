//! The tables that nodes share, as one node reaches them: over a connection, or simulated.

use store::{OtherWriters, StoreError};
use store_cassandra::SharedTables;

use crate::nodes_table::NodesTable;

/// The way to points, names and the log of changes. The table `nodes` has a trait of its own.
pub trait Tables: NodesTable {
    /// The tables, or `Unavailable` with the reason while they cannot be reached.
    fn tables(&self) -> Result<&dyn SharedTables, StoreError>;

    /// The tables for writing points, or why this node may not.
    fn to_write(&self) -> Result<&dyn SharedTables, StoreError>;

    /// Why the tables cannot be used now.
    fn problem(&self) -> Option<String>;

    /// The nodes that were seen since the start.
    fn other_writers(&self) -> OtherWriters;
}
