//! The tables in Apache Cassandra (or ScyllaDB), as BigGraphite laid them out. The only CQL there is.
//!
//! [`CassandraDriver`] keeps points ([`store::Driver`]) and names ([`store::Catalogue`]). Numbers of metrics
//! are a node's own affair: these tables have none.

mod driver;
mod options;
mod session;
mod tls;
mod failure;
mod ask;
pub mod schema;
mod rows;
mod wire;
mod tables;
mod points;
mod write;
mod read;
mod merge;
mod own;
mod names;
mod catalogue;
mod claim;

pub use claim::{Claim, Identity, NoIdentity, Place};
pub use driver::CassandraDriver;
pub use names::{Refused, ScanReport};
pub use options::{ClusterOptions, Consistencies, Credentials, Indexes, Options, TlsOptions};
pub use session::ConnectError;
pub use scylla::statement::Consistency;
