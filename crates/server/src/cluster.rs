//! A node over Cassandra: points and names in its tables, numbers of metrics in the data folder.
//!
//! 1. [`options`] turns settings into what the driver must be told.
//! 2. [`ClusterDriver`] is the [`Driver`] that ingestion writes to. It works before Cassandra answers: every
//!    call that needs it then fails as one that may be tried again, and points wait in the journal.
//! 3. [`Link`] is the connection, made as soon as Cassandra can be reached. While no node can be, calls fail at once with
//!    what is wrong, and points wait as before there was a connection.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::Context;
use ingest::Ingest;
use metric::{MetricId, Policy, Retention, Timestamp};
use parking_lot::Mutex;
use store::{Catalogue, Cells, Driver, DriverFuture, Fetch, MetricRecord, Run, StoreError, Usage};
use store_cassandra::{
    CassandraDriver, Claim, ClusterOptions, Consistencies, Credentials, Options, TlsOptions,
    schema::{self, Schema},
};

use crate::{
    serve::now,
    settings::{Globs, Hosts, Secret, Settings},
    touches::Touches,
    write_clock::WriteClock,
    writer::WriterFile,
};

/// What the driver is told, or `None` where points stay in the embedded store.
pub fn options(settings: &Settings) -> anyhow::Result<Option<Options>> {
    let cassandra = &settings.cassandra;
    let Some(hosts) = &cassandra.contact_points else { return Ok(None) };
    let data = Named {
        section: "cassandra",
        hosts,
        user: cassandra.user.as_deref(),
        password: &cassandra.password,
        password_file: cassandra.password_file.as_deref(),
        datacenter: cassandra.datacenter.as_deref(),
        tls_ca: cassandra.tls_ca.as_deref(),
        tls_certificate: cassandra.tls_certificate.as_deref(),
        tls_key: cassandra.tls_key.as_deref(),
        tls_verify_host: cassandra.tls_verify_host,
    };
    let names = &settings.cassandra_metadata;
    let metadata = names.contact_points.as_ref().map(|hosts| Named {
        section: "cassandra_metadata",
        hosts,
        user: names.user.as_deref(),
        password: &names.password,
        password_file: names.password_file.as_deref(),
        datacenter: names.datacenter.as_deref(),
        tls_ca: names.tls_ca.as_deref(),
        tls_certificate: names.tls_certificate.as_deref(),
        tls_key: names.tls_key.as_deref(),
        tls_verify_host: names.tls_verify_host,
    });
    let times = (cassandra.connect_timeout.0, cassandra.request_timeout.0);
    Ok(Some(Options {
        data: data.options(times)?,
        metadata: metadata.map(|cluster| cluster.options(times)).transpose()?,
        keyspace: cassandra.keyspace.clone(),
        replication: cassandra.replication.clone(),
        consistency: Consistencies {
            data_write: cassandra.data_write_consistency,
            data_read: cassandra.data_read_consistency.0,
            meta_write: cassandra.meta_write_consistency,
            meta_read: cassandra.meta_read_consistency.0,
        },
        indexes: cassandra.indexes,
        writer: 0,
        replica: cassandra.replica.0,
        in_flight: cassandra.in_flight.0,
        glob_rows: cassandra.glob_rows,
        glob_queries: cassandra.glob_queries,
        clock: now,
    }))
}

/// What storage-schemas.conf asks for, each once.
pub fn retentions(policies: &[Policy]) -> Vec<Retention> {
    let mut retentions: Vec<Retention> = Vec::new();
    for policy in policies {
        if !retentions.contains(&policy.retention) {
            retentions.push(policy.retention.clone());
        }
    }
    retentions
}

/// The settings of one cluster.
struct Named<'a> {
    section: &'static str,
    hosts: &'a Hosts,
    user: Option<&'a str>,
    password: &'a Secret,
    password_file: Option<&'a Path>,
    datacenter: Option<&'a str>,
    tls_ca: Option<&'a Path>,
    tls_certificate: Option<&'a Path>,
    tls_key: Option<&'a Path>,
    tls_verify_host: bool,
}

impl Named<'_> {
    fn options(&self, (connect_timeout, request_timeout): (Duration, Duration)) -> anyhow::Result<ClusterOptions> {
        Ok(ClusterOptions {
            contact_points: self.hosts.all().to_vec(),
            credentials: self.credentials()?,
            tls: self.tls()?,
            datacenter: self.datacenter.map(str::to_owned),
            connect_timeout,
            request_timeout,
        })
    }

    fn credentials(&self) -> anyhow::Result<Option<Credentials>> {
        let section = self.section;
        let password = match (self.password.reveal(), self.password_file) {
            (Some(_), Some(_)) => {
                anyhow::bail!("{section}.password and {section}.password_file are both given; leave one out")
            }
            (Some(password), None) => Some(password.to_owned()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read {section}.password_file, {}", path.display()))?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            (None, None) => None,
        };
        match (self.user, password) {
            (Some(user), Some(password)) => Ok(Some(Credentials { user: user.to_owned(), password })),
            (None, None) => Ok(None),
            (Some(user), None) => anyhow::bail!(
                "{section}.user is '{user}', but there is no password; give {section}.password_file, or set \
                 PLUMBAGO_{}_PASSWORD",
                section.to_uppercase()
            ),
            (None, Some(_)) => anyhow::bail!("there is a password for {section}, but no {section}.user"),
        }
    }

    fn tls(&self) -> anyhow::Result<Option<TlsOptions>> {
        let section = self.section;
        let identity = match (self.tls_certificate, self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.to_owned(), key.to_owned())),
            (None, None) => None,
            _ => anyhow::bail!("{section}.tls_certificate and {section}.tls_key go together; one is missing"),
        };
        match (self.tls_ca, identity) {
            (Some(ca), identity) => {
                Ok(Some(TlsOptions { ca: ca.to_owned(), identity, verify_host: self.tls_verify_host }))
            }
            (None, Some(_)) => anyhow::bail!(
                "{section}.tls_certificate is given, but {section}.tls_ca is not: name the file of the authorities that \
                 sign the cluster's certificates"
            ),
            (None, None) => Ok(None),
        }
    }
}

/// The connection to the cluster, once there is one.
#[derive(Default)]
pub struct Link {
    driver: OnceLock<Arc<CassandraDriver>>,
    claim: Mutex<Option<Claim>>,
    write_clock: OnceLock<WriteClock>,
    // Why there is none yet, or no node can be reached now.
    problem: Mutex<Option<String>>,
}

impl Link {
    /// The driver, or the error that says why there is none, or why it would be asked in vain.
    pub fn driver(&self) -> Result<&Arc<CassandraDriver>, StoreError> {
        if let Some(problem) = &*self.problem.lock() {
            return Err(StoreError::Unavailable(problem.clone()));
        }
        self.driver.get().ok_or_else(|| StoreError::Unavailable("Cassandra was not asked yet".to_owned()))
    }

    /// Whether Cassandra was reached, and can be.
    pub fn is_up(&self) -> bool {
        self.driver().is_ok()
    }

    /// Whether Cassandra was reached once; a driver that was made finds its nodes again by itself.
    fn is_made(&self) -> bool {
        self.driver.get().is_some()
    }

    /// Notices when no node can be reached any more, when one can be again, and that points are taken, for as long as it is
    /// polled.
    pub async fn watch(&self, ingest: &Ingest) {
        let mut acknowledged = 0;
        loop {
            match self.driver.get() {
                Some(driver) => {
                    self.keep_clock();
                    let problem = driver.away().await;
                    (*self.problem.lock()).clone_from(&problem);
                    let before = std::mem::replace(&mut acknowledged, driver.acknowledged());
                    if before < acknowledged {
                        ingest.store_takes_points();
                    }
                    match problem {
                        Some(why) => ingest.store_is_away(&why),
                        None => ingest.store_is_back(),
                    }
                }
                // Whoever tries to make one has said why.
                None => {
                    let problem = self.problem.lock().clone();
                    ingest.store_was_told_to_be_away(&problem.unwrap_or_default());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn keep_clock(&self) {
        if let (Some(driver), Some(clock)) = (self.driver.get(), self.write_clock.get()) {
            clock.keep(driver.last_timestamp());
        }
    }

    /// Lets go of the writer id at a clean stop, so that the data folder may be moved at once.
    pub async fn release(&self) {
        self.keep_clock();
        let claim = self.claim.lock().take();
        let Some(claim) = claim.filter(|_| self.is_up()) else { return };
        let released = tokio::time::timeout(RELEASE, claim.release()).await;
        let error = match released {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("Cassandra did not answer within {} s", RELEASE.as_secs()),
        };
        tracing::warn!(error, "the writer id could not be let go of; it is free in two minutes");
    }

    /// The driver for writing: not when another node has taken this one's id.
    fn writer(&self) -> Result<&Arc<CassandraDriver>, StoreError> {
        let driver = self.driver()?;
        let claim = self.claim.lock();
        let Some(claim) = &*claim else { return Ok(driver) };
        if claim.is_lost() {
            return Err(StoreError::Refused(
                "another node has taken this one's writer id while it was away; stop this node, and give one of the two a data \
                 folder of its own"
                    .to_owned(),
            ));
        }
        if claim.is_doubtful() {
            return Err(StoreError::Unavailable(
                "this process stood still for minutes; it looks whether its writer id is still its own".to_owned(),
            ));
        }
        Ok(driver)
    }

    fn connected(&self, driver: CassandraDriver, claim: Claim) {
        *self.claim.lock() = Some(claim);
        // A second one is never made.
        let _ = self.driver.set(Arc::new(driver));
        *self.problem.lock() = None;
    }
}

/// How often it is looked whether any node can be reached. A look costs nothing while one can.
const LOOK: Duration = Duration::from_secs(1);

/// How long a stop waits for the writer id to be let go of.
const RELEASE: Duration = Duration::from_secs(2);

/// How many reasons why there is no connection are each said once; more are not said.
const REASONS: usize = 100;

/// How often somebody who reads the log is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Pauses between two tries to connect.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A cluster that is connected, or will be.
pub struct Cluster {
    /// What ingestion writes to.
    pub driver: Arc<ClusterDriver>,
    /// The connection.
    pub link: Arc<Link>,
    options: Options,
    retentions: Vec<Retention>,
    // Whether globs are asked of the tables.
    needs_indexes: bool,
    writer: WriterFile,
    // Why there is no connection, as far as it was said.
    said: Mutex<HashSet<String>>,
}

impl Cluster {
    /// Connects once. A cluster that cannot be used now is no error: [`Cluster::go_on`] tries again.
    ///
    /// # Errors
    /// The tables are kept in a way that this program would damage, another node that lives writes under this one's id, or
    /// the data folder does not say which id that is.
    pub async fn begin(
        options: Options,
        settings: &Settings,
        data: &Path,
        policies: &[Policy],
        local: Arc<dyn Driver>,
    ) -> anyhow::Result<Cluster> {
        let retentions = retentions(policies);
        let needs_indexes = settings.cassandra.globs == Globs::Cassandra;
        let link = Arc::new(Link::default());
        let _ = link.write_clock.set(WriteClock::of(data));
        let driver = Arc::new(ClusterDriver::new(link.clone(), local, settings));
        let cluster = Cluster {
            driver,
            link,
            options,
            retentions,
            needs_indexes,
            writer: WriterFile::of(data)?,
            said: Mutex::default(),
        };
        match cluster.connect().await {
            Ok(()) => {}
            Err(error) => match error.downcast_ref::<StoreError>() {
                Some(StoreError::Unavailable(_)) => cluster.failed(&error),
                // What no waiting mends: tables of another kind, a data folder that cannot be used.
                _ => return Err(error),
            },
        }
        Ok(cluster)
    }

    /// Goes on trying until it is connected.
    pub async fn go_on(self) {
        let mut pause = FIRST_PAUSE;
        while !self.link.is_made() {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            if let Err(error) = self.connect().await {
                self.failed(&error);
            }
        }
    }

    /// Says why there is no connection, each reason once.
    fn failed(&self, error: &anyhow::Error) {
        let why = format!("{error:#}");
        let mut said = self.said.lock();
        if said.len() < REASONS && said.insert(why.clone()) {
            tracing::error!(
                error = why,
                "Cassandra cannot be used yet; points are accepted into the journal, and it is tried again"
            );
        }
        *self.link.problem.lock() = Some(why);
    }

    /// Makes what is missing, and says how far it is.
    async fn make(&self, schema: &Schema) -> Result<(), StoreError> {
        let (mut made, mut told) = (0, Instant::now());
        let mut tell = |done: &str| {
            made += 1;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                tracing::info!(made, done, "making the tables");
            }
        };
        schema::apply(&self.options, schema, &mut tell).await
    }

    async fn connect(&self) -> anyhow::Result<()> {
        let kept = self.writer.read()?;
        let schema = Schema::new(&self.options, &self.retentions);
        let report = schema::check(&self.options, &schema).await?;
        if report.is_unmade() {
            tracing::info!(
                keyspace = self.options.keyspace,
                "there are no tables yet; they are made, which takes up to a minute"
            );
            match self.make(&schema).await {
                Err(StoreError::Refused(why)) if !self.needs_indexes => {
                    tracing::warn!(
                        why,
                        "the tables of names carry no indexes: globs are answered by this node, and BigGraphite finds nothing"
                    );
                }
                made => made?,
            }
        } else if report.has_no_indexes() {
            tracing::warn!(
                keyspace = self.options.keyspace,
                "the tables of names carry no indexes: BigGraphite finds nothing there; 'plumbago schema apply' makes them, \
                 and cassandra.indexes = \"none\" says that it is meant"
            );
        } else if report.is_unfinished() {
            tracing::info!(keyspace = self.options.keyspace, "some indexes over the names are missing; they are made");
            if let Err(error) = self.make(&schema).await {
                tracing::warn!(%error, "some indexes over the names are missing; make them with 'plumbago schema apply'");
            }
        }
        let mut driver = CassandraDriver::connect(self.options.clone()).await?;
        let claim = driver.claim(kept, &self.writer.place()).await?;
        driver.go_on_after(self.link.write_clock.get().map_or(0, WriteClock::kept));
        self.writer.keep(&claim.identity())?;
        tracing::info!(keyspace = self.options.keyspace, writer = claim.identity().writer, "Cassandra is connected");
        self.link.connected(driver, claim);
        Ok(())
    }
}

/// Metrics in one statement that says points came for them.
const TOUCHED_AT_ONCE: usize = 500;

/// Names that wait to be said; more are said later, when their metric is due again.
const TOUCHES_WAITING: usize = 100_000;

/// Points and names in Cassandra, numbers in the embedded store.
pub struct ClusterDriver {
    link: Arc<Link>,
    local: Arc<dyn Driver>,
    written: Mutex<Touches>,
    read: Mutex<Touches>,
    read_sample: f64,
    // What is due, for the task that says it: names of metrics that got points, and of those that were read.
    due: Mutex<(Vec<String>, Vec<String>)>,
}

impl ClusterDriver {
    /// Over a link that may be up later, and the embedded store of the data folder.
    pub fn new(link: Arc<Link>, local: Arc<dyn Driver>, settings: &Settings) -> ClusterDriver {
        let every = u32::try_from(settings.cassandra.touch_every.as_secs()).unwrap_or(u32::MAX);
        let touches = || Mutex::new(Touches::new(every, now()));
        ClusterDriver {
            link,
            local,
            written: touches(),
            read: touches(),
            read_sample: settings.cassandra.read_sample.0,
            due: Mutex::default(),
        }
    }

    /// Says in the tables what is due, now and then, for as long as it is polled.
    pub async fn say_touches(self: Arc<ClusterDriver>) {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            // While Cassandra is away they stay due.
            let Ok(driver) = self.link.driver() else { continue };
            let (written, read) = std::mem::take(&mut *self.due.lock());
            for (nth, some) in written.chunks(TOUCHED_AT_ONCE).enumerate() {
                if let Err(error) = driver.touch(some.to_vec()).await {
                    let unsaid = &written[nth * TOUCHED_AT_ONCE..];
                    tracing::warn!(%error, metrics = unsaid.len(), "updated_on could not be written; it is tried again");
                    self.note_written(unsaid.to_vec());
                    break;
                }
            }
            for some in read.chunks(TOUCHED_AT_ONCE) {
                if let Err(error) = driver.touch_read(some.to_vec()).await {
                    tracing::warn!(%error, metrics = some.len(), "read_on could not be written; it is when they are due again");
                    break;
                }
            }
        }
    }

    fn note_written(&self, names: Vec<String>) {
        let mut due = self.due.lock();
        let room = TOUCHES_WAITING.saturating_sub(due.0.len());
        due.0.extend(names.into_iter().take(room));
    }

    /// Metrics of these runs that are due. Before the write, which takes the runs.
    fn due_of(&self, runs: &[Run]) -> Vec<String> {
        let now = now();
        let mut written = self.written.lock();
        let points = runs.iter().filter(|run| !run.table.aggregated);
        points.filter(|run| written.is_due(run.metric, now)).map(|run| run.name.clone()).collect()
    }

    fn note_read(&self, fetches: &[Fetch]) {
        if self.read_sample <= 0.0 {
            return;
        }
        let now = now();
        let mut read = self.read.lock();
        let mut due = self.due.lock();
        for fetch in fetches {
            if due.1.len() < TOUCHES_WAITING && sampled(self.read_sample) && read.is_due(fetch.metric, now) {
                due.1.push(fetch.name.clone());
            }
        }
    }
}

/// True for this share of the calls.
fn sampled(share: f64) -> bool {
    // Weyl's sequence of the golden ratio: spread evenly, and needs no generator.
    static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    (call as f64 * 0.618_033_988_749_894_9).fract() < share
}

impl Driver for ClusterDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let driver = self.link.writer()?;
            let due = self.due_of(&runs);
            let written = driver.write(runs).await;
            // Also when it failed: it is tried again until it does not, and the metric is not due by then.
            self.note_written(due);
            written
        })
    }

    fn own_part(&self, wholes: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        Box::pin(async move { self.link.writer()?.own_part(wholes).await })
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let driver = self.link.driver()?;
            self.note_read(&fetches);
            driver.fetch(fetches).await
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.link.driver()?.sync().await?;
            self.local.sync().await
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // What was kept here before there was a cluster goes on expiring.
            self.local.expire(now).await?;
            match self.link.driver() {
                Ok(driver) => driver.expire(now).await,
                Err(_) => Ok(()),
            }
        })
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Numbers first: they are this node's own, and must not wait for a cluster that is away.
            self.local.put_metrics(records.clone()).await?;
            let numbers: Vec<MetricId> = records.iter().map(|record| record.id).collect();
            self.link.driver()?.put_metrics(records).await?;
            let (now, mut written) = (now(), self.written.lock());
            numbers.into_iter().for_each(|number| written.said(number, now));
            Ok(())
        })
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.local.scan_metrics(each)
    }

    fn usage(&self) -> Usage {
        match self.link.driver() {
            Ok(driver) => Usage { disk_bytes: self.local.usage().disk_bytes, ..driver.usage() },
            Err(_) => self.local.usage(),
        }
    }
}
