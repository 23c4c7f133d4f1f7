//! A node over tables in memory, for tests: it reaches them always.

use futures::{FutureExt, future::BoxFuture};
use store::{OtherWriters, StoreError};
use store_cassandra::{Calendar, Fate, InMemoryWriter, Link, NodeId, NodeRow, SharedTables};

use crate::{nodes_table::NodesTable, tables::Tables};

/// Reaches everything.
pub(crate) struct Reached;

impl Link for Reached {
    fn has_others(&self) -> bool {
        true
    }

    fn statement(&self, _is_write: bool) -> BoxFuture<'_, Fate> {
        std::future::ready(Fate::Done).boxed()
    }
}

/// Its tables, and its calendar.
pub(crate) struct OneNode(pub(crate) InMemoryWriter, pub(crate) Calendar);

impl Tables for OneNode {
    fn tables(&self) -> Result<&dyn SharedTables, StoreError> {
        Ok(&self.0)
    }

    fn to_write(&self) -> Result<&dyn SharedTables, StoreError> {
        Ok(&self.0)
    }

    fn problem(&self) -> Option<String> {
        None
    }

    fn other_writers(&self) -> OtherWriters {
        OtherWriters { are_there: true, have_same_points: false }
    }
}

impl NodesTable for OneNode {
    fn own(&self) -> Option<NodeId> {
        Some(NodeId::of_number(1))
    }

    fn is_up(&self) -> bool {
        true
    }

    fn announce<'a>(&'a self, _row: &'a NodeRow) -> BoxFuture<'a, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn saw_other(&self, _is_of_other_replica: bool) {}

    fn calendar(&self) -> &Calendar {
        &self.1
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}
