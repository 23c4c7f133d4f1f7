//! A node over Cassandra, put together: first what ingestion needs, then what needs ingestion.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::FutureExt;
use ingest::Ingest;
use metadata::Finder;
use metric::Retention;
use store::Store;
use store_cassandra::{Calendar, schema::Schema};
use tokio::runtime::Handle;

use crate::{
    cassandra_finder::CassandraFinder,
    change_log::ChangeLog,
    connection::Connection,
    connector::Connector,
    index_readiness::{IndexFinder, IndexReadiness},
    peers::Peers,
    sharing::{Shared, Sharing, Task},
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
    sharing: Sharing,
    connection: Arc<Connection>,
    connector: Connector,
    options: Options,
}

impl Cluster {
    /// Tries once to connect. A cluster that is away is not an error: a task of [`Attached`] retries. `local` is the embedded
    /// store of the data folder.
    ///
    /// # Errors
    /// Retrying cannot help: tables of another layout, a writer id that a live node has, an unusable data folder.
    pub async fn open(options: Options, local: Store) -> Result<Cluster, OpenError> {
        let host = options.cassandra.host.clone();
        let writer = WriterFile::open(host.disk.clone(), &options.data, options.host_name.clone())?;
        let calendar = Arc::new(Calendar::new(host.clock.clone()));
        let log = Arc::new(ChangeLog::new(host.clock.clone(), calendar.clone()));
        let write_clock = WriteClock::open(host.disk.clone(), &options.data);
        let connection = Arc::new(Connection::new(write_clock, log.clone(), calendar));
        let reports = (options.touch_every, options.read_sample);
        let sharing = Sharing::new(connection.clone(), log, local, host, reports);
        let connector = Connector::new(
            connection.clone(),
            options.cassandra.clone(),
            Schema::new(&options.cassandra, &options.retentions),
            options.globs == Globs::Cassandra,
            writer,
        );
        connector.begin().await?;
        Ok(Cluster { sharing, connection, connector, options })
    }

    /// What ingestion writes to.
    pub fn store(&self) -> Store {
        self.sharing.store()
    }

    /// Adds what needs ingestion. Globs that Cassandra answers run on `runtime`.
    pub fn attach(self, ingest: Arc<Ingest>, runtime: Handle) -> Attached {
        let Cluster { sharing, connection, connector, options } = self;
        let local = sharing.local().names.clone();
        let shared = sharing.attach(&ingest, options.data, options.version, options.cassandra.replica);
        let readiness = shared.names.readiness.clone();
        let finder: Arc<dyn Finder> = match options.globs {
            Globs::Local => Arc::new(IndexFinder { readiness, registry: ingest.registry().clone() }),
            Globs::Cassandra => Arc::new(CassandraFinder {
                connection: connection.clone(),
                local,
                ingest: ingest.clone(),
                readiness,
                max_rows: options.cassandra.glob_rows,
                runtime,
            }),
        };
        Attached {
            shared,
            connection,
            finder,
            connector,
            ingest,
            reconcile_every: options.reconcile_every,
            globs: options.globs,
        }
    }
}

/// A whole node over Cassandra.
pub struct Attached {
    shared: Shared,
    connection: Arc<Connection>,
    finder: Arc<dyn Finder>,
    connector: Connector,
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
        self.shared.peers()
    }

    /// Whether the path index has the names, where it answers globs.
    pub fn index_readiness(&self) -> Option<Arc<IndexReadiness>> {
        (self.globs == Globs::Local).then(|| self.shared.names.readiness.clone())
    }

    /// Reads all names if that was never done. To await before the node reports that it is ready.
    pub fn first_names(&self) -> impl Future<Output = ()> + Send + 'static {
        self.shared.first_names()
    }

    /// The tasks that run along with ingestion: reports, names, the state of the connection, and its first success.
    pub fn tasks(self) -> Vec<Task> {
        let Attached { shared, connection, connector, ingest, reconcile_every, .. } = self;
        let connector = Arc::new(connector);
        let mut tasks = shared.tasks(reconcile_every);
        tasks.push(Task::new("connection watch", move || {
            let (connection, ingest) = (connection.clone(), ingest.clone());
            async move { connection.watch(&ingest).await }.boxed()
        }));
        tasks.push(Task::new("connector", move || connector.clone().retry().boxed()));
        tasks
    }
}
