//! What `/admin/status` answers: the state of this node in numbers and names, for operators and scripts.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use cluster::Peers;
use ingest::{Ingest, receivers::ReceiveBudget};
use metadata::Registry;
use serde_json::{Map, Value, json};
use store::{Damage, DamageLog, PointStore};
use store_embedded::{EmbeddedDriver, StoreStatus};

use crate::{
    backups::{BackupCounters, ScrubCounters},
    clock,
    health::Health,
    metric_names::metric_names,
    peers, quotas,
};

/// The parts that the status is read from.
pub struct StatusOf {
    pub ingest: Arc<Ingest>,
    pub damage: DamageLog,
    pub health: Arc<Health>,
    pub points: Arc<dyn PointStore>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    pub scrub: Arc<ScrubCounters>,
    pub backups: Arc<BackupCounters>,
    pub budget: ReceiveBudget,
    /// Other nodes over the same tables.
    pub peers: Option<Arc<Peers>>,
}

impl StatusOf {
    /// The object of `/admin/status`. Waits for locks: not for a thread that serves sockets.
    pub fn status(&self) -> Value {
        let mut status = counted(&self.ingest);
        status["damage"] = damage_status(&self.damage, self.ingest.registry());
        status["health"] = health_status(&self.ingest, &self.health);
        status["store"] = store_status(&*self.points, &self.embedded.status());
        let events = self.embedded.event_usage();
        status["events"] = json!({
            "events": events.events,
            "bytes": events.bytes,
            "refused": events.refused,
            "failed": events.failed,
            "problem": self.embedded.check_events().err().map(|error| error.to_string()),
        });
        status["scrub"] = scrub_status(&self.scrub);
        status["backups"] = backup_status(&self.backups);
        status["quotas"] = quotas::table(self.ingest.quotas());
        if let Some(peers) = &self.peers {
            (status["nodes"], status["changes"]) = peers::status(peers);
            status["peers"] = peers::heads_status(peers);
        }
        let receive = self.budget.usage();
        status["receive"] = json!({
            "bytes": receive.used,
            "limit_bytes": receive.limit,
            "waits": receive.waits,
            "closed": receive.closed,
        });
        status
    }
}

/// What a supervisor or an operator asks first.
fn health_status(ingest: &Ingest, health: &Health) -> Value {
    let panics = ingest.supervisor().health().into_iter().filter(|task| 0 < task.panics);
    let panics: Vec<Value> =
        panics.map(|task| json!({"task": task.name, "panics": task.panics, "last_panic": task.last_panic})).collect();
    let disk = health.disk();
    json!({
        "hangs": health.liveness().err(),
        "senders_wait_for": ingest.waits_for(),
        "store_outage_seconds": ingest.store_outage().map(|(away, _)| away.as_secs()),
        "cycle_age_seconds": health.cycle_age().as_secs(),
        "sync_overdue_seconds": health.sync_overdue().as_secs(),
        "disk_free_bytes": disk.map(|disk| disk.free),
        "disk_reserve_bytes": disk.map(|disk| disk.reserve),
        "disk_short": disk.is_some_and(|disk| disk.is_short),
        "task_panics": panics,
    })
}

fn store_status(points: &dyn PointStore, files: &StoreStatus) -> Value {
    let usage = points.usage();
    json!({
        "disk_bytes": usage.disk_bytes,
        "memory_bytes": usage.memory_bytes,
        "tables": usage.tables,
        "files": files.files,
        "missing_files": files.missing_files,
        "most_files_of_a_window": files.most_files,
        "merge_debt_bytes": files.merge_debt_bytes,
        "merges": files.merges,
        "merges_meanwhile": files.merges_meanwhile,
        "merges_failed": files.merges_failed,
        "merges_wait_for_disk": files.is_short_of_disk,
        "quarantined_bytes": files.quarantined_bytes,
        "unsynced_bytes": files.unsynced_bytes,
        "oldest_unsynced_seconds": files.oldest_unsynced.map(|age| age.as_secs()),
        "manifest_behind": files.is_manifest_behind,
    })
}

fn scrub_status(scrub: &ScrubCounters) -> Value {
    json!({
        "bytes": scrub.bytes.load(Relaxed),
        "damage": scrub.faults.load(Relaxed),
        "rounds": scrub.rounds.load(Relaxed),
    })
}

fn backup_status(backups: &BackupCounters) -> Value {
    let last = backups.last.load(Relaxed);
    json!({
        "made": backups.made.load(Relaxed),
        "failed": backups.failed.load(Relaxed),
        "last_moment": (0 < last).then_some(last),
    })
}

fn counted(ingest: &Ingest) -> Value {
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
        "journal_damaged_bytes": counts.damaged_bytes,
        "nameless_points": ingest.restored().nameless_points,
        "created": counts.created,
        "deleted": counts.deleted,
        "journal_failing": counts.journal_failing,
        "stalled": counts.stalled,
        "stalled_seconds": counts.stalled_seconds,
        "flush_cycles": counts.cycles,
        "parked_points": counts.parked_points,
        "unsynced_points": counts.unsynced_points,
        "store_failing": counts.store_failing,
        "store_problem": ingest.store_problem(),
        "flush": {
            "waiting": flush.waiting,
            "metrics": flush.metrics,
            "metrics_done": flush.metrics_done,
        },
        "clock_in_doubt": clock::status(ingest.time()),
        "policies_waiting": ingest.policies_waiting(),
    })
}

/// Totals since the start and the last findings, newest first.
fn damage_status(damage: &DamageLog, registry: &Registry) -> Value {
    let (findings, bytes) = damage.totals();
    let last: Vec<Value> = damage.examples().iter().rev().map(|finding| finding_status(finding, registry)).collect();
    json!({"findings": findings - damage.mended(), "mended": damage.mended(), "bytes": bytes, "last": last})
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
