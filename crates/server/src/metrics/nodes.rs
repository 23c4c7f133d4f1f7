//! Families of the nodes over the same tables, and of the log of names by which they follow each other.

use cluster::Peers;
use prometheus::proto::{MetricFamily, MetricType};

use super::families::{counter, gauge, labelled};

/// Of a node over Cassandra.
pub(super) fn node_families(peers: &Peers) -> Vec<MetricFamily> {
    let alive = peers.members().iter().filter(|node| node.is_alive()).count();
    let counts = peers.changes();
    let names = vec![
        ("written", counts.written as f64),
        ("followed", counts.followed as f64),
        ("dropped", counts.dropped as f64),
    ];
    let mut families = vec![
        gauge(
            "plumbago_nodes_alive",
            "Nodes over the same tables with a heartbeat within 15 s, this one too.",
            alive as f64,
        ),
        labelled(
            "plumbago_changes_total",
            "Names in the log of changes: written by this node, followed from others, or dropped because too many waited.",
            MetricType::COUNTER,
            "names",
            names,
        ),
        counter(
            "plumbago_changes_read_failures_total",
            "Reads of the log of changes that failed.",
            counts.failures as f64,
        ),
        counter(
            "plumbago_changes_missed_total",
            "How often all names were read because changes may have expired before this node read them.",
            counts.scans as f64,
        ),
        gauge(
            "plumbago_changes_delay_seconds",
            "Seconds from the writing of the latest followed row until it was applied, by both nodes' clocks.",
            counts.delay_seconds,
        ),
    ];
    if let Some(age) = counts.age {
        let help = "Seconds since the log of changes was last read whole.";
        families.push(gauge("plumbago_changes_read_age_seconds", help, age.as_secs_f64()));
    }
    families
}
