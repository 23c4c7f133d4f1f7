//! The connection to Cassandra: absent until the first success, then watched for as long as the node runs.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use ingest::Ingest;
use parking_lot::Mutex;
use store::{OtherWriters, StoreError};
use store_cassandra::{Calendar, CassandraDriver, Claim, NodeId, NodeRow, SharedTables};

use crate::{change_log::ChangeLog, nodes_table::NodesTable, tables::Tables, write_clock::WriteClock};

/// Poll interval of the connection. A poll costs nothing while any node is connected.
const POLL: Duration = Duration::from_secs(1);

/// How long a stop waits for the release of the writer id.
const RELEASE: Duration = Duration::from_secs(2);

/// The driver of Cassandra, once it is connected, and why it cannot be used.
pub struct Connection {
    driver: OnceLock<Arc<CassandraDriver>>,
    claim: Mutex<Option<Claim>>,
    write_clock: Arc<WriteClock>,
    /// What a stop still tells other nodes.
    log: Arc<ChangeLog>,
    // Why there is no connection yet, or why no node can be reached now.
    problem: Mutex<Option<String>>,
    /// Nodes that were seen since the start: any other, and others of another replica.
    has_seen_others: AtomicBool,
    has_seen_replicas: AtomicBool,
    /// The time by which this node writes.
    calendar: Arc<Calendar>,
}

impl Connection {
    /// Not connected yet.
    pub(crate) fn new(write_clock: WriteClock, log: Arc<ChangeLog>, calendar: Arc<Calendar>) -> Connection {
        calendar.was(write_clock.kept());
        Connection {
            driver: OnceLock::new(),
            claim: Mutex::default(),
            write_clock: Arc::new(write_clock),
            log,
            problem: Mutex::new(Some("Cassandra is not connected yet".to_owned())),
            has_seen_others: AtomicBool::new(false),
            has_seen_replicas: AtomicBool::new(false),
            calendar,
        }
    }

    /// The driver, or `Unavailable` with the reason while no node can be reached: calls then fail without a timeout.
    pub fn driver(&self) -> Result<&Arc<CassandraDriver>, StoreError> {
        if let Some(problem) = &*self.problem.lock() {
            return Err(StoreError::Unavailable(problem.clone()));
        }
        Ok(self.driver.get().expect("no problem means connected"))
    }

    /// Whether any node can be reached now.
    pub fn is_up(&self) -> bool {
        self.driver().is_ok()
    }

    /// This node's id, from its first connection to its stop.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.claim.lock().as_ref().map(|claim| claim.identity().into())
    }

    /// Notes that another node writes the same tables, perhaps as another replica.
    pub(crate) fn saw_other(&self, is_other_replica: bool) {
        self.has_seen_others.store(true, Relaxed);
        self.has_seen_replicas.fetch_or(is_other_replica, Relaxed);
    }

    /// The nodes that were seen since the start. Their rows stay when they are gone.
    fn seen_writers(&self) -> OtherWriters {
        OtherWriters {
            are_there: self.has_seen_others.load(Relaxed),
            have_same_points: self.has_seen_replicas.load(Relaxed),
        }
    }

    /// Why Cassandra cannot be used now.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// The driver for writing: an error also while this node may have lost its writer id.
    pub(crate) fn writer(&self) -> Result<&Arc<CassandraDriver>, StoreError> {
        let driver = self.driver()?;
        let claim = self.claim.lock();
        let Some(claim) = &*claim else { return Ok(driver) };
        if claim.is_lost() {
            return Err(StoreError::Rejected(
                "another node took this node's writer id during an absence; stop this node, and give one of the two a data \
                 folder of its own"
                    .to_owned(),
            ));
        }
        if claim.is_doubtful() {
            return Err(StoreError::Unavailable(
                "this process was suspended for minutes; checking whether another node took its writer id".to_owned(),
            ));
        }
        Ok(driver)
    }

    /// Whether a connection was ever made. From then on the driver reconnects by itself.
    pub(crate) fn was_connected(&self) -> bool {
        self.driver.get().is_some()
    }

    /// Takes over a driver that was just connected, and its writer id.
    pub(crate) fn connected(&self, driver: CassandraDriver, claim: Claim) {
        driver.continue_after(self.write_clock.kept());
        driver.go_by(self.calendar.clone());
        *self.claim.lock() = Some(claim);
        assert!(self.driver.set(Arc::new(driver)).is_ok(), "the connector stops at its first success");
        *self.problem.lock() = None;
    }

    /// Notes why there is no connection yet.
    pub(crate) fn failed(&self, why: String) {
        *self.problem.lock() = Some(why);
    }

    /// Reports to ingestion when no node can be reached, when one can be again, and that points are being taken. Runs until
    /// dropped.
    pub async fn watch(&self, ingest: &Ingest) {
        let mut acknowledged = 0;
        loop {
            match self.driver.get() {
                Some(driver) => {
                    self.keep_clock(driver).await;
                    let problem = driver.unreachable_reason().await;
                    (*self.problem.lock()).clone_from(&problem);
                    let before = std::mem::replace(&mut acknowledged, driver.acknowledged());
                    if before < acknowledged {
                        ingest.store_health().wrote();
                    }
                    match problem {
                        Some(why) => ingest.store_health().unreachable(&why),
                        None => ingest.store_health().reachable(),
                    }
                }
                // The connector logs the reason of each failed attempt.
                None => ingest.store_health().unreachable_and_logged(&self.problem().unwrap_or_default()),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Keeps the highest write timestamp, on a thread that may wait for the disk.
    async fn keep_clock(&self, driver: &CassandraDriver) {
        let (clock, timestamp) = (self.write_clock.clone(), driver.last_timestamp());
        let _ = host::spawn_blocking(move || clock.keep(timestamp)).await;
    }

    /// Tells other nodes of the last names, and that this one stops. What fails they find by themselves.
    async fn leave(&self, driver: &CassandraDriver, node: NodeId) {
        while !self.log.is_empty() && self.log.write(driver, node).await.is_ok() {}
        if let Err(error) = driver.withdraw(node).await {
            tracing::debug!(%error, "cannot delete the row of this node; it expires within a minute");
        }
    }

    /// Releases the writer id at a clean stop, so that the data folder may move to another host at once.
    pub async fn release(&self) {
        if let Some(driver) = self.driver.get() {
            self.keep_clock(driver).await;
        }
        let claim = self.claim.lock().take();
        let Some(claim) = claim.filter(|_| self.is_up()) else { return };
        if let Ok(driver) = self.driver() {
            let _ = tokio::time::timeout(RELEASE, self.leave(driver, claim.identity().into())).await;
        }
        let error = match tokio::time::timeout(RELEASE, claim.release()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("Cassandra did not answer within {} s", RELEASE.as_secs()),
        };
        tracing::warn!(error, "cannot release the writer id; it expires in two minutes");
    }
}

impl Tables for Connection {
    fn tables(&self) -> Result<&dyn SharedTables, StoreError> {
        Ok(&**self.driver()?)
    }

    fn to_write(&self) -> Result<&dyn SharedTables, StoreError> {
        Ok(&**self.writer()?)
    }

    fn problem(&self) -> Option<String> {
        Connection::problem(self)
    }

    fn other_writers(&self) -> OtherWriters {
        self.seen_writers()
    }
}

impl NodesTable for Connection {
    fn own(&self) -> Option<NodeId> {
        self.node()
    }

    fn is_up(&self) -> bool {
        self.driver().is_ok()
    }

    fn announce<'a>(&'a self, row: &'a NodeRow) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { self.driver()?.announce(row).await }.boxed()
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let driver = self.driver()?;
            match self.node() {
                Some(node) => driver.withdraw(node).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn saw_other(&self, is_of_other_replica: bool) {
        Connection::saw_other(self, is_of_other_replica);
    }

    fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeRow>, StoreError>> {
        async move { self.driver()?.nodes().await }.boxed()
    }
}
