//! Whether this node is ready, and in words for an operator.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::{Connection, IndexReadiness};
use ingest::Ingest;
use store_embedded::EmbeddedDriver;

use crate::{clock, drain::Drain, health::Health};

/// Time for a check.
const CHECK_PATIENCE: Duration = Duration::from_secs(2);

/// How long senders may wait for room before this node is not ready.
const WAIT_PATIENCE: Duration = Duration::from_secs(3);

/// How long the store may take nothing. The journal keeps what comes meanwhile.
const STORE_PATIENCE: Duration = Duration::from_secs(30);

/// How long an fsync of the journal may be overdue.
const SYNC_PATIENCE: Duration = Duration::from_secs(10);

/// What `/ready` asks.
pub struct Readiness {
    /// The start has ended, and the stop has not begun.
    is_started: AtomicBool,
    ingest: Arc<Ingest>,
    embedded: Arc<EmbeddedDriver>,
    connection: Option<Arc<Connection>>,
    index: Option<Arc<IndexReadiness>>,
    health: Arc<Health>,
    drain: Arc<Drain>,
}

impl Readiness {
    /// Not started yet.
    pub fn new(
        ingest: Arc<Ingest>,
        embedded: Arc<EmbeddedDriver>,
        connection: Option<Arc<Connection>>,
        index: Option<Arc<IndexReadiness>>,
        health: Arc<Health>,
        drain: Arc<Drain>,
    ) -> Readiness {
        Readiness { is_started: AtomicBool::new(false), ingest, embedded, connection, index, health, drain }
    }

    /// The health that this asks.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Set at the end of the start, unset at the beginning of a stop.
    pub fn set_started(&self, is_started: bool) {
        self.is_started.store(is_started, Relaxed);
    }

    /// As [`Readiness::check`], on a thread that may wait for locks.
    pub async fn checked(self: Arc<Readiness>) -> Result<String, String> {
        let checking = tokio::task::spawn_blocking(move || self.check());
        match tokio::time::timeout(CHECK_PATIENCE, checking).await {
            Ok(Ok(checked)) => checked,
            _ => {
                Err(format!("this process did not find out within {} s whether it is ready", CHECK_PATIENCE.as_secs()))
            }
        }
    }

    /// `Ok` with a line that says what works, or `Err` with one that says why this node is not ready.
    pub fn check(&self) -> Result<String, String> {
        if !self.is_started.load(Relaxed) {
            return Err("starting or stopping".to_owned());
        }
        if let Some(why) = self.drain.not_ready() {
            return Err(why);
        }
        let cassandra_problem = self.connection.as_ref().and_then(|connection| connection.problem());
        if self.index.as_ref().is_some_and(|index| !index.is_ready()) {
            let why = cassandra_problem.map(|why| format!(": {why}")).unwrap_or_default();
            return Err(format!("points are accepted, but the names in Cassandra have not been read yet{why}"));
        }
        if let Some(why) = self.embedded.lost_folder() {
            return Err(why);
        }
        let counts = self.ingest.counters();
        if counts.journal_failing {
            return Err("cannot write the journal, so no points are accepted; the log says why: the disk is full, the data folder is gone or \
                        cannot be written, or the disk fails".to_owned());
        }
        let overdue = self.health.sync_overdue();
        if SYNC_PATIENCE < overdue {
            return Err(format!(
                "accepted points have not reached the disk for {} s: an fsync of the journal hangs or fails",
                overdue.as_secs()
            ));
        }
        if let Some((call, age)) = self.health.slow_call() {
            return Err(format!(
                "the disk of the store does not answer: a call '{call}' has not ended for {} s; points stay in the journal",
                age.as_secs()
            ));
        }
        // It does not pass by itself, and the next flush fails. Behind the others: a disk that hangs would hang this, too.
        if let Err(error) = self.embedded.check_names_place() {
            return Err(format!("the store takes no names and no points: {error}; points stay in the journal"));
        }
        if let Some((_, why)) = self.health.waits().filter(|(waited, _)| WAIT_PATIENCE < *waited) {
            let store = self.ingest.store_outage().map(|(_, why)| format!("; the store rejects points: {why}"));
            return Err(format!("senders wait: {why}{}", store.unwrap_or_default()));
        }
        if let Some((away, why)) = self.ingest.store_outage() {
            let receivers = match counts.stalled {
                true => "senders wait, because memory or the journal is full",
                false => "points are accepted",
            };
            let state = format!("the store rejects points: {why}; {receivers}, and queries read memory");
            return if STORE_PATIENCE < away { Err(state) } else { Ok(format!("ready, but {state}")) };
        }
        // Neither is a reason to send points elsewhere: all are accepted.
        if let Some(doubt) = self.ingest.time().doubt() {
            let waiting = clock::explain_waiting(self.ingest.policies_waiting()).unwrap_or_default();
            return Ok(format!("ready, but {}{waiting}", clock::explain(&doubt)));
        }
        if let Err(error) = self.embedded.check_events() {
            return Ok(format!("ready, but no events are taken: {error}"));
        }
        Ok(match cassandra_problem {
            Some(why) => format!("ready, but {why}; points are accepted, and queries read memory"),
            None => "ready".to_owned(),
        })
    }
}
