//! Connecting: once at the start, then until it succeeds.
//!
//! 1. The tables are checked, and created where they are missing.
//! 2. A session is opened, and the writer id of the data folder claimed.
//! 3. The [`Connection`] takes both over.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Backoff, Clock};
use parking_lot::Mutex;
use store::StoreError;
use store_cassandra::{
    CassandraDriver,
    schema::{self, Schema},
};

use crate::{
    connection::Connection,
    writer_file::{OpenError, WriterFile},
};

/// Distinct reasons that are logged. Further ones only show in `/ready`.
const LOGGED_REASONS: usize = 100;

/// Interval between two log lines about the progress of creating tables.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// The pause before the second attempt, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Connects a [`Connection`].
pub(crate) struct Connector {
    connection: Arc<Connection>,
    clock: Arc<dyn Clock>,
    options: store_cassandra::Options,
    schema: Schema,
    /// Whether globs are answered by the tables' indexes.
    needs_indexes: bool,
    writer: Arc<WriterFile>,
    logged: Mutex<HashSet<String>>,
}

impl Connector {
    pub(crate) fn new(
        connection: Arc<Connection>,
        options: store_cassandra::Options,
        schema: Schema,
        needs_indexes: bool,
        writer: WriterFile,
    ) -> Connector {
        let clock = options.host.clock.clone();
        let writer = Arc::new(writer);
        Connector { connection, clock, options, schema, needs_indexes, writer, logged: Mutex::default() }
    }

    /// Tries once. A cluster that is unavailable now is not an error: [`Connector::retry`] goes on.
    ///
    /// # Errors
    /// Retrying cannot help: tables of another layout, a writer id that a live node has, an unusable data folder.
    pub(crate) async fn begin(&self) -> Result<(), OpenError> {
        match self.connect().await {
            Err(OpenError::Store(error @ StoreError::Unavailable(_))) => {
                self.failed(&error.into());
                Ok(())
            }
            done => done,
        }
    }

    /// Retries until connected.
    pub(crate) async fn retry(self: Arc<Connector>) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while !self.connection.was_connected() {
            tokio::time::sleep(backoff.next_wait()).await;
            if let Err(error) = self.connect().await {
                self.failed(&error);
            }
        }
    }

    /// Logs each reason once, and keeps the latest for callers.
    fn failed(&self, error: &OpenError) {
        let why = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let mut logged = self.logged.lock();
        if logged.len() < LOGGED_REASONS && logged.insert(why.clone()) {
            tracing::error!(error = why, "cannot use Cassandra; points are accepted into the journal; retrying");
        }
        self.connection.failed(why);
    }

    async fn connect(&self) -> Result<(), OpenError> {
        let kept = self.with_file(|writer| writer.read()).await?;
        self.create_missing_tables().await?;
        let mut driver = CassandraDriver::connect(self.options.clone()).await.map_err(StoreError::from)?;
        let claim = driver.claim(kept, self.writer.location()).await?;
        let identity = claim.identity();
        self.with_file(move |writer| Ok(writer.keep(&identity)?)).await?;
        tracing::info!(keyspace = self.options.keyspace, writer = claim.identity().writer, "connected to Cassandra");
        self.connection.connected(driver, claim);
        Ok(())
    }

    /// Uses the writer file on a thread that may wait for the disk.
    async fn with_file<T: Send + 'static>(
        &self,
        call: impl FnOnce(&WriterFile) -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        let writer = self.writer.clone();
        host::spawn_blocking(move || call(&writer)).await.expect("the writer file does not panic")
    }

    async fn create_missing_tables(&self) -> Result<(), StoreError> {
        let keyspace = &self.options.keyspace;
        let report = schema::check(&self.options, &self.schema).await?;
        if report.is_unmade() {
            tracing::info!(keyspace, "the keyspace has no tables; creating them, which takes up to a minute");
            match self.create().await {
                Err(StoreError::Rejected(why)) if !self.needs_indexes => tracing::warn!(
                    why,
                    "the tables of names have no indexes: this node answers globs, and BigGraphite finds nothing"
                ),
                created => created?,
            }
        } else if report.has_no_indexes() {
            tracing::warn!(
                keyspace,
                "the tables of names have no indexes: BigGraphite finds nothing there; create them with \
                 'plumbago schema apply', or set cassandra.indexes = \"none\" to silence this warning"
            );
        } else if report.is_unfinished() {
            tracing::info!(keyspace, "some indexes of the names are missing; creating them");
            if let Err(error) = self.create().await {
                tracing::warn!(%error, "cannot create the missing indexes; create them with 'plumbago schema apply'");
            }
        }
        Ok(())
    }

    /// Creates what is missing, and logs the progress.
    async fn create(&self) -> Result<(), StoreError> {
        let mut progress = Progress { created: 0, logged: self.clock.instant() };
        let mut log = |latest: &str| progress.log(self.clock.instant(), latest);
        schema::apply(&self.options, &self.schema, &mut log).await
    }
}

struct Progress {
    created: usize,
    logged: Instant,
}

impl Progress {
    fn log(&mut self, now: Instant, latest: &str) {
        self.created += 1;
        if now - self.logged >= PROGRESS_EVERY {
            self.logged = now;
            tracing::info!(created = self.created, latest, "creating tables");
        }
    }
}
