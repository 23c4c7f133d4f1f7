//! The nodes that are alive: this one writes its row every few seconds, and reads those of all.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Clock, MinuteLog};
use parking_lot::Mutex;
use store::StoreError;
use store_cassandra::{CassandraDriver, NODE_KEPT, NodeId, NodeRow};

use crate::connection::Connection;

/// Interval between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A node whose heartbeat is older than this counts as silent.
const SILENT_AFTER: Duration = Duration::from_secs(15);

/// A node over the same tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id, as in `data/writer`.
    pub node: NodeId,
    /// Where its peers reach it over HTTP; empty where they cannot.
    pub address: String,
    /// Of its program.
    pub version: String,
    /// When it was started by its clock, Unix seconds.
    pub started: i64,
    /// Time since its heartbeat.
    pub heartbeat_age: Duration,
    /// Whether it is this node.
    pub is_self: bool,
}

impl Member {
    /// Whether its heartbeat is recent.
    pub fn is_alive(&self) -> bool {
        self.heartbeat_age < SILENT_AFTER
    }
}

struct Seen {
    row: NodeRow,
    /// When this heartbeat was first seen: by a stopwatch, since clocks of nodes differ.
    since: Instant,
}

/// The nodes as they were last read.
pub(crate) struct Members {
    clock: Arc<dyn Clock>,
    connection: Arc<Connection>,
    version: String,
    started_ms: i64,
    /// Where peers reach this node.
    address: Mutex<String>,
    seen: Mutex<HashMap<NodeId, Seen>>,
    failures: MinuteLog,
}

impl Members {
    pub(crate) fn new(clock: Arc<dyn Clock>, connection: Arc<Connection>, version: String) -> Members {
        let started_ms = clock.since_epoch().as_millis() as i64;
        Members {
            clock,
            connection,
            version,
            started_ms,
            address: Mutex::default(),
            seen: Mutex::default(),
            failures: MinuteLog::new(),
        }
    }

    /// Sets where peers reach this node: the listeners are bound after the data folder is opened.
    pub(crate) fn set_address(&self, address: String) {
        *self.address.lock() = address;
    }

    /// All nodes that were seen and have not expired, by id.
    pub(crate) fn all(&self) -> Vec<Member> {
        let now = self.clock.instant();
        let own = self.connection.node();
        let seen = self.seen.lock();
        let member = |Seen { row, since }: &Seen| Member {
            node: row.node,
            address: row.address.clone(),
            version: row.version.clone(),
            started: row.started_ms / 1000,
            heartbeat_age: now.saturating_duration_since(*since),
            is_self: Some(row.node) == own,
        };
        // Rows that expired are not read any more; while Cassandra is away none is.
        let mut members: Vec<Member> =
            seen.values().map(member).filter(|member| member.heartbeat_age < NODE_KEPT).collect();
        members.sort_by_key(|member| member.node);
        members
    }

    /// This node's id, once it has one.
    pub(crate) fn own(&self) -> Option<NodeId> {
        self.connection.node()
    }

    /// Whether others than this node were seen.
    pub(crate) fn has_others(&self) -> bool {
        let own = self.connection.node();
        self.seen.lock().keys().any(|node| Some(*node) != own)
    }

    /// Writes and reads until dropped.
    pub(crate) async fn meet(self: Arc<Members>) {
        loop {
            if let (Ok(driver), Some(node)) = (self.connection.driver(), self.connection.node())
                && let Err(error) = self.meet_once(driver, node).await
                && self.failures.is_due(self.clock.instant()).is_some()
            {
                tracing::warn!(%error, "cannot report to other nodes that this one is alive; retrying");
            }
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    async fn meet_once(&self, driver: &CassandraDriver, node: NodeId) -> Result<(), StoreError> {
        let row = NodeRow {
            node,
            address: self.address.lock().clone(),
            version: self.version.clone(),
            started_ms: self.started_ms,
            heartbeat_ms: self.clock.since_epoch().as_millis() as i64,
        };
        driver.announce(&row).await?;
        self.saw(driver.nodes().await?);
        Ok(())
    }

    pub(crate) fn saw(&self, rows: Vec<NodeRow>) {
        let now = self.clock.instant();
        let now_ms = self.clock.since_epoch().as_millis() as i64;
        let mut seen = self.seen.lock();
        let mut before = std::mem::take(&mut *seen);
        for row in rows {
            let since = match before.remove(&row.node) {
                Some(known) if known.row.heartbeat_ms == row.heartbeat_ms => known.since,
                Some(_) => now,
                // Only at first: the clocks tell how old it is.
                None => {
                    let age = u64::try_from(now_ms - row.heartbeat_ms).unwrap_or(0);
                    now.checked_sub(Duration::from_millis(age).min(NODE_KEPT)).unwrap_or(now)
                }
            };
            seen.insert(row.node, Seen { row, since });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use host::{Host, ManualClock};

    use super::*;
    use crate::{change_log::ChangeLog, write_clock::WriteClock};

    /// The row of a node that is reached at `hostN:8080`.
    pub(crate) fn row(number: u128, heartbeat_ms: i64) -> NodeRow {
        let (address, version) = (format!("host{number}:8080"), "1".to_owned());
        NodeRow { node: NodeId::of_number(number), address, version, started_ms: 0, heartbeat_ms }
    }

    #[test]
    fn a_node_is_as_old_as_its_latest_heartbeat_whatever_its_clock_says() {
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_000));
        let write_clock = WriteClock::open(Host::system().disk, data.path());
        let log = Arc::new(ChangeLog::new(clock.clone()));
        let connection = Arc::new(Connection::new(write_clock, log));
        let members = Members::new(clock.clone(), connection, "1".to_owned());
        let ages = |members: &Members| -> Vec<(u64, bool)> {
            members.all().iter().map(|member| (member.heartbeat_age.as_secs(), member.is_alive())).collect()
        };
        // The clock of the second is an hour ahead; the third was silent for 20 s when this node started.
        members.saw(vec![row(1, 1_000_000), row(2, 4_600_000), row(3, 980_000)]);
        assert_eq!(ages(&members), [(0, true), (0, true), (20, false)]);
        clock.advance(Duration::from_secs(16));
        members.saw(vec![row(1, 1_016_000), row(2, 4_600_000)]);
        assert_eq!(ages(&members), [(0, true), (16, false)]);
        clock.advance(Duration::from_secs(50));
        assert_eq!(ages(&members), [(50, false)], "without Cassandra a node is forgotten as its row is");
    }
}
