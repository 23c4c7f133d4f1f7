//! A node over Cassandra, put together: first what ingestion needs, then what needs ingestion.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use host::Host;
use ingest::Ingest;
use metadata::Finder;
use metric::Retention;
use store::Store;
use store_cassandra::schema::Schema;
use tokio::runtime::Handle;

use crate::{
    cassandra_finder::CassandraFinder,
    change_log::{ChangeLog, WRITE_EVERY},
    connection::Connection,
    connector::Connector,
    driver::ClusterDriver,
    follower::Follower,
    index_readiness::{IndexFinder, IndexReadiness},
    last_seen::LastSeen,
    members::Members,
    name_sync::NameSync,
    peers::Peers,
    rescan::Rescan,
    write_clock::WriteClock,
    writer_file::{OpenError, WriterFile},
};

/// Which index answers globs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Globs {
    /// The path index in this process.
    Local,
    /// The tables and their indexes.
    Cassandra,
}

/// A node over Cassandra.
#[derive(Debug, Clone)]
pub struct Options {
    /// The tables and how to reach them, and the machine.
    pub cassandra: store_cassandra::Options,
    /// The retentions of storage-schemas.conf, each once: a table per stage is created.
    pub retentions: Vec<Retention>,
    /// Which index answers globs.
    pub globs: Globs,
    /// Interval between two reads of all names.
    pub reconcile_every: Duration,
    /// Interval between two reports that a metric lives.
    pub touch_every: Duration,
    /// The share of reads that are reported, 0 to 1.
    pub read_sample: f64,
    /// The data folder. Must exist.
    pub data: PathBuf,
    /// The machine's name, shown to other nodes that claim the same writer id.
    pub host_name: String,
    /// The program's, shown to other nodes.
    pub version: String,
}

/// The parts of a node over Cassandra that ingestion needs.
pub struct Cluster {
    driver: Arc<ClusterDriver>,
    connection: Arc<Connection>,
    connector: Connector,
    last_seen: Arc<LastSeen>,
    log: Arc<ChangeLog>,
    local: Store,
    options: Options,
}

impl Cluster {
    /// Tries once to connect. A cluster that is away is not an error: a task of [`Attached`] retries. `local` is the embedded
    /// store of the data folder.
    ///
    /// # Errors
    /// Retrying cannot help: tables of another layout, a writer id that a live node has, an unusable data folder.
    pub async fn open(options: Options, local: Store) -> Result<Cluster, OpenError> {
        let Host { clock, disk, .. } = options.cassandra.host.clone();
        let writer = WriterFile::open(disk.clone(), &options.data, options.host_name.clone())?;
        let log = Arc::new(ChangeLog::new(clock.clone()));
        let connection = Arc::new(Connection::new(WriteClock::open(disk, &options.data), log.clone()));
        let last_seen = Arc::new(LastSeen::new(clock.clone(), options.touch_every, options.read_sample));
        let driver =
            Arc::new(ClusterDriver::new(connection.clone(), local.clone(), last_seen.clone(), log.clone(), clock));
        let connector = Connector::new(
            connection.clone(),
            options.cassandra.clone(),
            Schema::new(&options.cassandra, &options.retentions),
            options.globs == Globs::Cassandra,
            writer,
        );
        connector.begin().await?;
        Ok(Cluster { driver, connection, connector, last_seen, log, local, options })
    }

    /// What ingestion writes to.
    pub fn store(&self) -> Store {
        Store { shared: Some(self.driver.clone()), ..Store::of(self.driver.clone()) }
    }

    /// Adds what needs ingestion. Globs that Cassandra answers run on `runtime`.
    pub fn attach(self, ingest: Arc<Ingest>, runtime: Handle) -> Attached {
        let Cluster { connection, connector, last_seen, log, local, options, .. } = self;
        let Host { clock, disk, .. } = options.cassandra.host.clone();
        let readiness = Arc::new(IndexReadiness::open(disk, &options.data, connection.clone()));
        let finder: Arc<dyn Finder> = match options.globs {
            Globs::Local => Arc::new(IndexFinder { readiness: readiness.clone(), registry: ingest.registry().clone() }),
            Globs::Cassandra => Arc::new(CassandraFinder {
                connection: connection.clone(),
                local: local.names.clone(),
                ingest: ingest.clone(),
                readiness: readiness.clone(),
                max_rows: options.cassandra.glob_rows,
                runtime,
            }),
        };
        let rescan = Arc::new(Rescan::default());
        let follower = Arc::new(Follower::new(
            clock.clone(),
            connection.clone(),
            local.names.clone(),
            ingest.clone(),
            log.clone(),
            rescan.clone(),
        ));
        let members = Arc::new(Members::new(
            clock.clone(),
            connection.clone(),
            options.version.clone(),
            options.cassandra.replica,
        ));
        let (followed, heads) = (follower.followed.clone(), OnceLock::new());
        let is_introduced = AtomicBool::new(false);
        let peers = Arc::new(Peers {
            clock: clock.clone(),
            members,
            connection: Some(connection.clone()),
            log,
            followed,
            heads,
            is_introduced,
        });
        let names = NameSync {
            clock,
            connection: connection.clone(),
            local: local.names,
            ingest: ingest.clone(),
            readiness,
            rescan,
        };
        Attached {
            connection,
            finder,
            connector,
            last_seen,
            names: Arc::new(names),
            follower,
            peers,
            ingest,
            reconcile_every: options.reconcile_every,
            globs: options.globs,
        }
    }
}

/// A task of the node, made again if it panics.
pub struct Task {
    /// What it does.
    pub name: &'static str,
    /// Makes it.
    pub make: Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>,
    /// Whether a stop needs it until its points are written.
    pub lasts_until_stored: bool,
}

impl Task {
    fn new(name: &'static str, make: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static) -> Task {
        Task { name, make: Box::new(make), lasts_until_stored: false }
    }

    fn until_stored(self) -> Task {
        Task { lasts_until_stored: true, ..self }
    }
}

/// A whole node over Cassandra.
pub struct Attached {
    connection: Arc<Connection>,
    finder: Arc<dyn Finder>,
    connector: Connector,
    last_seen: Arc<LastSeen>,
    names: Arc<NameSync>,
    follower: Arc<Follower>,
    peers: Arc<Peers>,
    ingest: Arc<Ingest>,
    reconcile_every: Duration,
    globs: Globs,
}

impl Attached {
    /// The connection, for readiness, metrics and a stop.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// What answers globs.
    pub fn finder(&self) -> &Arc<dyn Finder> {
        &self.finder
    }

    /// The nodes over the same tables, and what they tell each other.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Whether the path index has the names, where it answers globs.
    pub fn index_readiness(&self) -> Option<Arc<IndexReadiness>> {
        (self.globs == Globs::Local).then(|| self.names.readiness.clone())
    }

    /// Reads all names if that was never done. To await before the node reports that it is ready.
    pub fn first_names(&self) -> impl Future<Output = ()> + Send + 'static {
        let names = self.names.clone();
        async move { names.first().await }
    }

    /// The tasks that run along with ingestion: reports, names, the state of the connection, and its first success.
    pub fn tasks(self) -> Vec<Task> {
        let Attached { connection, connector, last_seen, names, follower, peers, ingest, reconcile_every, .. } = self;
        let (log, writes_over) = (peers.log.clone(), connection.clone());
        let (seen_over, connector) = (connection.clone(), Arc::new(connector));
        vec![
            Task::new("last seen", move || last_seen.clone().report(seen_over.clone()).boxed()),
            Task::new("name sync", move || names.clone().follow(reconcile_every).boxed()),
            // New names wait until this node has followed what others deleted before.
            Task::new("names of other nodes", move || follower.clone().follow().boxed()).until_stored(),
            Task::new("names for other nodes", move || tell(log.clone(), writes_over.clone()).boxed()),
            // Answers name a node that stops for as long as it has points that are not stored.
            Task::new("heartbeat", move || peers.clone().meet().boxed()).until_stored(),
            Task::new("connection watch", move || {
                let (connection, ingest) = (connection.clone(), ingest.clone());
                async move { connection.watch(&ingest).await }.boxed()
            }),
            Task::new("connector", move || connector.clone().retry().boxed()),
        ]
    }
}

/// Tells other nodes of names, until dropped. Errors are logged there.
async fn tell(log: Arc<ChangeLog>, connection: Arc<Connection>) {
    loop {
        tokio::time::sleep(WRITE_EVERY).await;
        if let (Ok(driver), Some(node)) = (connection.driver(), connection.node()) {
            let _ = log.write(driver, node).await;
        }
    }
}
