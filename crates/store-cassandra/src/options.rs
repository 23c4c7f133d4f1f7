//! Options of the driver: clusters, keyspaces, consistency, bounds.

use std::{path::PathBuf, time::Duration};

use host::Host;
use store::DamageLog;

use crate::retry::Retry;

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// `HOST` or `HOST:PORT`; the port is 9042 where none is given. One that answers is enough.
    pub contact_points: Vec<String>,
    /// User and password, for PasswordAuthenticator. Never logged.
    pub credentials: Option<Credentials>,
    /// TLS, where the cluster wants it.
    pub tls: Option<TlsOptions>,
    /// The data centre whose replicas are asked first; without it, all are alike.
    pub datacenter: Option<String>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a statement may take, retries included.
    pub request_timeout: Duration,
}

/// A user and a password.
#[derive(Clone)]
pub struct Credentials {
    /// The role's name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials {{ user: {:?}, password: … }}", self.user)
    }
}

/// How connections are secured.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// PEM file of the authorities that may have signed the nodes' certificates.
    pub ca: PathBuf,
    /// PEM files of this client's certificate and its key, where the cluster asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether a node's certificate must contain the address of the connection.
    pub verify_host: bool,
}

/// Which secondary indexes the metadata tables carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Indexes {
    /// SASI, as BigGraphite has them and needs them.
    #[default]
    Sasi,
    /// Storage-attached indexes, Cassandra 5.
    Sai,
    /// None: ScyllaDB, or cheap creation of metrics.
    None,
}

/// How points are kept in the tables that a node writes. Every node reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// A row for each point, as in BigGraphite.
    #[default]
    Rows,
    /// A row for a run of points, in tables of their own.
    Packed,
}

/// How many replicas must answer, by kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consistencies {
    /// Points written.
    pub data_write: scylla::statement::Consistency,
    /// Points read.
    pub data_read: scylla::statement::Consistency,
    /// Names written.
    pub meta_write: scylla::statement::Consistency,
    /// Names read.
    pub meta_read: scylla::statement::Consistency,
}

/// Options of the driver.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster of the points.
    pub data: ClusterOptions,
    /// The cluster of the names, where it is another.
    pub metadata: Option<ClusterOptions>,
    /// Keyspace of the points; that of the names is this with `_metadata` behind it.
    pub keyspace: String,
    /// CQL of the replication of keyspaces that are created, as in
    /// `{'class': 'NetworkTopologyStrategy', 'dc1': 3}`; `None` takes one that fits a cluster of its size.
    pub replication: Option<String>,
    /// How points are written.
    pub layout: Layout,
    /// Consistency levels.
    pub consistency: Consistencies,
    /// Which indexes are created with the tables.
    pub indexes: Indexes,
    /// This writer's id, 0 to 16383, until one is claimed; see [`crate::CassandraDriver::claim`].
    pub writer: u16,
    /// Which of the four replicas of aggregates this writer writes, 0 to 3.
    pub replica: u8,
    /// Concurrent statements, writes and reads each.
    pub in_flight: usize,
    /// The largest number of rows that a glob may read where the tables answer globs.
    pub glob_rows: usize,
    /// The largest number of statements that a glob may become.
    pub glob_queries: usize,
    /// The machine.
    pub host: Host,
    /// Where packed rows that cannot be read are reported.
    pub damage: DamageLog,
}

impl Options {
    /// How long statements on the points' cluster are retried.
    pub(crate) fn retry(&self) -> Retry {
        Retry { clock: self.host.clock.clone(), limit: self.data.request_timeout }
    }

    /// How long statements on the names' cluster are retried.
    pub(crate) fn names_retry(&self) -> Retry {
        let cluster = self.metadata.as_ref().unwrap_or(&self.data);
        Retry { limit: cluster.request_timeout, ..self.retry() }
    }
}
