//! Whether this node is ready, and in words for an operator.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use cluster::{Connection, IndexReadiness};
use ingest::Ingest;

use crate::clock;

/// What `/ready` asks.
pub struct Readiness {
    /// The start has ended, and the stop has not begun.
    is_started: AtomicBool,
    ingest: Arc<Ingest>,
    connection: Option<Arc<Connection>>,
    index: Option<Arc<IndexReadiness>>,
}

impl Readiness {
    /// Not started yet.
    pub fn new(
        ingest: Arc<Ingest>,
        connection: Option<Arc<Connection>>,
        index: Option<Arc<IndexReadiness>>,
    ) -> Readiness {
        Readiness { is_started: AtomicBool::new(false), ingest, connection, index }
    }

    /// Set at the end of the start, unset at the beginning of a stop.
    pub fn set_started(&self, is_started: bool) {
        self.is_started.store(is_started, Relaxed);
    }

    /// `Ok` with a line that says what works, or `Err` with one that says why this node is not ready.
    pub fn check(&self) -> Result<String, String> {
        if !self.is_started.load(Relaxed) {
            return Err("starting or stopping".to_owned());
        }
        let cassandra_problem = self.connection.as_ref().and_then(|connection| connection.problem());
        if self.index.as_ref().is_some_and(|index| !index.is_ready()) {
            let why = cassandra_problem.map(|why| format!(": {why}")).unwrap_or_default();
            return Err(format!("points are accepted, but the names in Cassandra have not been read yet{why}"));
        }
        let counts = self.ingest.counters();
        if counts.journal_failing {
            return Err("cannot write the journal, so no points are accepted; is the disk full?".to_owned());
        }
        // Ready also while the store fails: this node does what it can, and another instance or a restart can do no more.
        if let Some(why) = self.ingest.store_problem().filter(|_| counts.store_failing) {
            let receivers = match counts.stalled {
                true => "senders wait, because memory or the journal is full",
                false => "points are accepted",
            };
            return Ok(format!("ready, but the store rejects points: {why}; {receivers}, and queries read memory"));
        }
        // Neither is a reason to send points elsewhere: all are accepted.
        if let Some(doubt) = self.ingest.time().doubt() {
            return Ok(format!("ready, but {}", clock::explain(&doubt)));
        }
        Ok(match cassandra_problem {
            Some(why) => format!("ready, but {why}; points are accepted, and queries read memory"),
            None => "ready".to_owned(),
        })
    }
}
