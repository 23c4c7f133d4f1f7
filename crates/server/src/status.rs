//! What `/admin/status` answers: the state of this node in numbers and names, for operators and scripts.

use ingest::Ingest;
use metadata::Registry;
use metric::MetricId;
use serde_json::{Map, Value, json};
use store::{Damage, DamageLog};

use crate::clock;

/// Names of metrics that one finding of damage lists; a longer range is given by its first ones and its count.
const DAMAGED_NAMES: u32 = 10;

/// The object of `/admin/status`.
pub fn status(ingest: &Ingest, damage: &DamageLog) -> Value {
    let counts = ingest.counters();
    let flush = ingest.flush_progress();
    let points: Map<String, Value> =
        counts.points.iter().map(|(protocol, points)| (protocol.name().to_owned(), (*points).into())).collect();
    let rejected: Map<String, Value> = counts
        .rejects
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| (reason.name().to_owned(), (*count).into()))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "metrics": ingest.registry().len(),
        "points": points,
        "rejected": rejected,
        "held_slots": counts.held_slots,
        "journal_bytes": counts.journal_bytes,
        "journal_failing": counts.journal_failing,
        "stalled": counts.stalled,
        "stalled_seconds": counts.stalled_seconds,
        "flush_cycles": counts.cycles,
        "parked_points": counts.parked_points,
        "store_failing": counts.store_failing,
        "store_problem": ingest.store_problem(),
        "flush": {
            "waiting": flush.waiting,
            "metrics": flush.metrics,
            "metrics_done": flush.metrics_done,
        },
        "clock_in_doubt": clock::status(ingest.time()),
        "damage": damage_status(damage, ingest.registry()),
    })
}

/// Totals since the start and the last findings, newest first.
fn damage_status(damage: &DamageLog, registry: &Registry) -> Value {
    let (findings, bytes) = damage.totals();
    let last: Vec<Value> = damage.examples().iter().rev().map(|finding| finding_status(finding, registry)).collect();
    json!({"findings": findings, "bytes": bytes, "last": last})
}

fn finding_status(finding: &Damage, registry: &Registry) -> Value {
    json!({
        "time": finding.found_at,
        "what": finding.what,
        "file": finding.file,
        "why": finding.how,
        "bytes": finding.bytes,
        "moved_to": finding.moved_to,
        "metrics": finding.metrics.map(|(first, last)| metric_names(registry, first, last)),
        "metric_ids": finding.metrics.map(|(first, last)| [first.0, last.0]),
        "span": finding.span.map(|(from, until)| [from, until]),
    })
}

/// The first names of a range of metrics.
fn metric_names(registry: &Registry, first: MetricId, last: MetricId) -> Vec<String> {
    let names = registry.read();
    let range = first.0..=last.0.min(first.0.saturating_add(DAMAGED_NAMES - 1));
    range.map(MetricId).filter(|&metric| names.is_shown(metric)).map(|metric| names.name(metric).to_owned()).collect()
}
