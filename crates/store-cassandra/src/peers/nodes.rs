//! The table `nodes`: a row of each node that is alive, which expires unless the node writes it again.
//!
//! What a node says of itself besides its version are words behind that, `0.1.0 ahead 39 replica 1 draining`: versions before this take
//! them for a longer version.

use scylla::value::CqlTimestamp;
use store::StoreError;
use uuid::Uuid;

use super::tables::{NodeId, NodeStatements, Peers};
use crate::{ask::read_valid, calendar::FURTHEST, schema::quoted};

/// The one partition of the table.
const PART: i32 = 0;

/// Behind the version of a node that drains.
const DRAINING: &str = " draining";

/// Before the replica of a node, unless that is the first one.
const REPLICA: &str = " replica ";

/// Before the seconds by which write times of a node are ahead of its heartbeat, where they are.
const AHEAD: &str = " ahead ";

/// A node that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Which.
    pub node: NodeId,
    /// Where its peers reach it over HTTP: host and port. Empty where they cannot.
    pub address: String,
    /// Of the program.
    pub version: String,
    /// The replica of aggregates that it writes, 0 to 3.
    pub replica: u8,
    /// Whether it takes no more points and writes out those that it has.
    pub is_draining: bool,
    /// When it was started by its own clock, milliseconds since 1970.
    pub started_ms: i64,
    /// When it wrote this by its own clock, milliseconds since 1970.
    pub heartbeat_ms: i64,
    /// How far its write times are ahead of its heartbeat, seconds: it has followed a calendar that is ahead, or was. Not more than
    /// [`FURTHEST`].
    pub ahead: u16,
}

/// The column `version` of a node.
fn said(NodeRow { version, replica, is_draining, ahead, .. }: &NodeRow) -> String {
    let ahead = if *ahead == 0 { String::new() } else { format!("{AHEAD}{ahead}") };
    let replica = if *replica == 0 { String::new() } else { format!("{REPLICA}{replica}") };
    let draining = if *is_draining { DRAINING } else { "" };
    format!("{version}{ahead}{replica}{draining}")
}

/// The version in that column, the replica, whether the node drains, and the seconds by which its write times are ahead. Words of later versions
/// stay with the version.
fn heard(column: &str) -> (&str, u8, bool, u16) {
    let active = column.strip_suffix(DRAINING);
    let rest = active.unwrap_or(column);
    let replica = rest.rsplit_once(REPLICA).and_then(|(version, number)| Some((version, number.parse().ok()?)));
    let (version, replica) = replica.filter(|(_, replica)| *replica < 4).unwrap_or((rest, 0));
    let ahead = version.rsplit_once(AHEAD).and_then(|(version, seconds)| Some((version, seconds.parse().ok()?)));
    let (version, ahead) =
        ahead.filter(|(_, seconds)| u64::from(*seconds) <= FURTHEST.as_secs()).unwrap_or((version, 0));
    (version, replica, active.is_some(), ahead)
}

impl Peers {
    async fn of_nodes(&self) -> Result<&NodeStatements, StoreError> {
        let table = format!("{}.nodes", quoted(&self.keyspace));
        let prepared = self.nodes.get_or_try_init(|| async {
            Ok(NodeStatements {
                // The TTL is the table's.
                write: self
                    .prepare(&format!(
                        "INSERT INTO {table} (part, node, address, version, started, heartbeat) VALUES (?, ?, ?, ?, ?, ?)"
                    ))
                    .await?,
                delete: self.prepare(&format!("DELETE FROM {table} WHERE part = ? AND node = ?")).await?,
                read: self
                    .prepare(&format!("SELECT node, address, version, started, heartbeat FROM {table} WHERE part = ?"))
                    .await?,
            })
        });
        prepared.await
    }
}

impl Peers {
    /// See [`crate::CassandraDriver::announce`].
    pub(crate) async fn announce(&self, row: &NodeRow) -> Result<(), StoreError> {
        let statements = self.of_nodes().await?;
        let NodeRow { node, address, started_ms, heartbeat_ms, .. } = row;
        let version = said(row);
        let values = (PART, node.0, address, version, CqlTimestamp(*started_ms), CqlTimestamp(*heartbeat_ms));
        self.run("reporting that this node is alive", &statements.write, values).await.map(drop)
    }

    /// See [`crate::CassandraDriver::withdraw`].
    pub(crate) async fn withdraw(&self, node: NodeId) -> Result<(), StoreError> {
        let statements = self.of_nodes().await?;
        self.run("reporting that this node stops", &statements.delete, (PART, node.0)).await.map(drop)
    }

    /// See [`crate::CassandraDriver::nodes`].
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        const WHAT: &str = "reading table nodes";
        type Row = (Uuid, Option<String>, Option<String>, Option<CqlTimestamp>, Option<CqlTimestamp>);
        let statements = self.of_nodes().await?;
        let (rows, skipped) = read_valid::<Row>(WHAT, self.run(WHAT, &statements.read, (PART,)).await?)?;
        self.report_skipped("nodes", skipped);
        let row = |(node, address, version, started, heartbeat): Row| {
            let version = version.unwrap_or_default();
            let (version, replica, is_draining, ahead) = heard(&version);
            NodeRow {
                node: NodeId(node),
                address: address.unwrap_or_default(),
                version: version.to_owned(),
                replica,
                is_draining,
                started_ms: started.map_or(0, |time| time.0),
                heartbeat_ms: heartbeat.map_or(0, |time| time.0),
                ahead,
            }
        };
        Ok(rows.into_iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_its_replica_that_it_drains_and_its_write_times_behind_its_version() {
        let row = |version: &str, replica, is_draining, ahead| NodeRow {
            node: NodeId::of_number(1),
            address: String::new(),
            version: version.to_owned(),
            replica,
            is_draining,
            started_ms: 0,
            heartbeat_ms: 0,
            ahead,
        };
        assert_eq!(said(&row("0.1.0", 0, false, 0)), "0.1.0");
        assert_eq!(said(&row("0.1.0", 2, true, 39)), "0.1.0 ahead 39 replica 2 draining");
        for version in ["0.1.0", ""] {
            for (replica, is_draining) in [(0, false), (0, true), (1, false), (3, true)] {
                for ahead in [0, 1, 900] {
                    let column = said(&row(version, replica, is_draining, ahead));
                    assert_eq!(heard(&column), (version, replica, is_draining, ahead));
                }
            }
        }
        // Of a later version, or of another program.
        for version in [
            "0.2.0 sleeping",
            "0.2.0 replica x",
            "0.2.0 replica 4",
            "0.2.0 replica 300",
            "0.2.0 ahead",
            "0.2.0 ahead 901",
        ] {
            assert_eq!(heard(version), (version, 0, false, 0));
        }
    }
}
