//! A node over Cassandra: points and names in shared tables, metric ids in the embedded store of its data folder.
//!
//! [`Cluster::open`] connects and returns the driver that ingestion writes to. The driver works before Cassandra answers:
//! until then, and while no node can be reached, each call fails at once as one to retry, and points wait in the journal.
//! [`Cluster::attach`] adds what needs ingestion: the finder, and the tasks that keep names and tables in step.
//!
//! This crate knows neither settings files nor HTTP.

mod adopt;
mod cassandra_finder;
mod change_log;
mod change_reads;
mod connection;
mod connector;
mod driver;
mod follower;
mod head_asker;
mod head_giver;
pub mod head_wire;
mod index_readiness;
mod last_seen;
mod members;
mod name_sync;
mod node;
mod nodes_table;
#[cfg(test)]
mod one_node;
mod peers;
mod rescan;
mod schedule;
mod sharing;
mod tables;
mod write_clock;
mod writer_file;

pub use adopt::adopt;
pub use connection::Connection;
pub use head_asker::{AnswerBytes, AskError, Asked, HeadAsker, HeadTransport};
pub use head_giver::{GiveError, Given, HeadGiver, Turn};
pub use head_wire::{MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, WireError};
pub use index_readiness::IndexReadiness;
pub use members::Member;
pub use node::{Attached, Cluster, Globs, Options};
pub use nodes_table::NodesTable;
pub use peers::{ChangeCounts, Heads, Peers};
pub use sharing::{Shared, Sharing, Task};
pub use tables::Tables;
pub use writer_file::OpenError;
