//! The tables in Apache Cassandra (or ScyllaDB), as BigGraphite laid them out. The only CQL there is.
//!
//! [`CassandraDriver`] keeps points ([`store::PointStore`], [`store::SharedPoints`]) and names
//! ([`store::SharedNames`]). The tables have no ids of metrics: those are each node's own.

mod absent;
mod ask;
mod calendar;
mod catalogue;
mod claim;
mod connect_error;
mod damaged_runs;
mod deletion;
mod driver;
mod explain;
mod failure;
mod fill;
mod in_memory;
mod in_memory_names;
mod in_memory_tables;
mod meeting;
mod memory_names;
mod merge;
mod names;
mod options;
mod pack;
mod packed_batches;
mod packed_tables;
mod packed_wire;
mod peers;
mod points;
mod read;
mod retry;
mod rows;
mod run_key;
pub mod schema;
mod session;
mod shared_tables;
mod tables;
mod timestamps;
mod tls;
mod undecodable;
mod unpack;
mod wire;
mod write;
mod write_packed;
mod writer_partials;

pub use calendar::{Calendar, FURTHEST, HIDES_AHEAD, NEAREST};
pub use claim::{Claim, Identity, InvalidIdentity, Location};
pub use connect_error::ConnectError;
pub use driver::CassandraDriver;
pub use in_memory::{Fate, InMemoryTables, InMemoryWriter, Link};
pub use names::{RejectedNames, ScanReport};
pub use options::{ClusterOptions, Consistencies, Credentials, Indexes, Layout, Options, TlsOptions};
pub use peers::{
    CHANGES_KEPT, Change, ChangeKey, Changed, ListedChange, MAX_BYTES_OF_A_CHANGE, MAX_NAMES_OF_A_CHANGE, NODE_KEPT,
    NodeId, NodeRow,
};
pub use scylla::statement::Consistency;
pub use shared_tables::SharedTables;
