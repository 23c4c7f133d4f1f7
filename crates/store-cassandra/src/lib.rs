//! The tables in Apache Cassandra (or ScyllaDB), as BigGraphite laid them out. The only CQL there is.
//!
//! [`CassandraDriver`] keeps points ([`store::Driver`]) and names ([`store::Catalogue`]). Numbers of metrics
//! are a node's own affair: these tables have none.

mod driver;
mod options;
pub mod schema;
mod session;

pub use driver::CassandraDriver;
pub use options::{ClusterOptions, Consistencies, Credentials, Indexes, Options, TlsOptions};
pub use scylla::statement::Consistency;
