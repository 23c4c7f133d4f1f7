//! The tables in Apache Cassandra (or ScyllaDB), as BigGraphite laid them out. The only CQL there is.
//!
//! [`CassandraDriver`] keeps points ([`store::Driver`]) and names ([`store::Catalogue`]). Numbers of metrics
//! are a node's own affair: these tables have none.

mod driver;
mod failure;
mod merge;
mod options;
mod own;
mod points;
mod read;
mod rows;
pub mod schema;
mod session;
mod tls;
mod tables;
mod wire;
mod write;

pub use driver::CassandraDriver;
pub use options::{ClusterOptions, Consistencies, Credentials, Indexes, Options, TlsOptions};
pub use session::ConnectError;
pub use scylla::statement::Consistency;
