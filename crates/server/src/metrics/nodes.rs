//! Families of the nodes over the same tables, and of the log of names by which they follow each other.

use cluster::{Heads, Peers};
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
    families.extend(peers.heads().iter().flat_map(head_families));
    if let Some(age) = counts.age {
        let help = "Seconds since the log of changes was last read whole.";
        families.push(gauge("plumbago_changes_read_age_seconds", help, age.as_secs_f64()));
    }
    families
}

/// Of points in the memory of other nodes, and of this one's that they got.
fn head_families(heads: &Heads) -> Vec<MetricFamily> {
    let (asked, given) = (heads.asker.asked(), heads.giver.given());
    let requests = vec![
        ("answered", asked.answered as f64),
        ("silent", asked.silent as f64),
        ("slow", asked.slow as f64),
        ("refused", asked.refused as f64),
        ("unsupported", asked.unsupported as f64),
        ("invalid", asked.invalid as f64),
        ("no_memory", asked.no_memory as f64),
    ];
    let answers =
        vec![("given", given.answers as f64), ("refused", given.refused as f64), ("invalid", given.invalid as f64)];
    vec![
        labelled(
            "plumbago_peer_requests_total",
            "Requests to other nodes for their points in memory.",
            MetricType::COUNTER,
            "result",
            requests,
        ),
        counter(
            "plumbago_peer_skipped_total",
            "How often a read left out a node that had failed before, or does not report that it is alive.",
            asked.skipped as f64,
        ),
        counter("plumbago_peer_points_total", "Points that other nodes had in memory.", asked.points as f64),
        counter("plumbago_peer_wait_seconds_total", "Seconds that reads waited for other nodes.", asked.seconds),
        gauge(
            "plumbago_peers_missing",
            "Other nodes whose points in memory answers lack now.",
            heads.asker.missing().len() as f64,
        ),
        labelled(
            "plumbago_peer_answers_total",
            "Requests of other nodes for this one's points in memory.",
            MetricType::COUNTER,
            "result",
            answers,
        ),
        counter("plumbago_peer_given_points_total", "Points in memory that other nodes got.", given.points as f64),
    ]
}
