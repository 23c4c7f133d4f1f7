//! The program's own metrics, stored in itself under carbon's names, so that dashboards made for carbon work.

use std::{sync::Arc, time::Duration};

use carbon::{Reject, Sink};
use ingest::{CountersSnapshot, Ingest, Protocol};

use crate::{metrics::Metrics, process::Process, serve::now};

/// Stores `PREFIX.agents.HOST-a.*` every `every`, until dropped.
pub async fn store(ingest: Arc<Ingest>, metrics: Arc<Metrics>, prefix: String, host: String, every: Duration) {
    let mut batch = ingest.batch(Protocol::Own);
    let mut before = (ingest.counters(), Process::now(), metrics.queries());
    let mut ticks = tokio::time::interval(every.max(Duration::from_secs(1)));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let after = (ingest.counters(), Process::now(), metrics.queries());
        let time = now();
        let values = values(&before.0, &after.0).into_iter().chain([
            ("cpuUsage", 100.0 * (after.1.cpu_seconds - before.1.cpu_seconds) / every.as_secs_f64()),
            ("memUsage", after.1.resident_bytes as f64),
            ("cache.queries", (after.2 - before.2) as f64),
            ("activeConnections", metrics.open_connections() as f64),
        ]);
        for (name, value) in values {
            batch.point(format!("{prefix}.agents.{host}-a.{name}").as_bytes(), time, value);
        }
        ingest.accept(&mut batch).await;
        before = after;
    }
}

/// What happened between two snapshots, under carbon's names.
fn values(before: &CountersSnapshot, after: &CountersSnapshot) -> Vec<(&'static str, f64)> {
    let sum = |counts: &CountersSnapshot| counts.points.iter().map(|(_, points)| points).sum::<u64>();
    let rejected = |reason: Reject| (after.rejects[reason as usize].1 - before.rejects[reason as usize].1) as f64;
    let updates = (after.flushed_metrics - before.flushed_metrics) as f64;
    let points = (after.flushed_points - before.flushed_points) as f64;
    let seconds = after.flush.seconds - before.flush.seconds;
    let each = |total: f64| if updates > 0.0 { total / updates } else { 0.0 };
    let lists = [Reject::Blacklisted, Reject::NotWhitelisted];
    let errors = Reject::ALL.into_iter().filter(|reason| !lists.contains(reason)).map(rejected).sum();
    vec![
        ("metricsReceived", (sum(after) - sum(before)) as f64),
        ("committedPoints", points),
        ("creates", (after.created - before.created) as f64),
        ("errors", errors),
        ("updateOperations", updates),
        ("pointsPerUpdate", each(points)),
        ("avgUpdateTime", each(seconds)),
        ("cache.size", after.held_slots as f64),
        ("cache.queues", after.flushing_metrics as f64),
        ("cache.overflow", f64::from(u8::from(after.stalled))),
        ("blacklistMatches", rejected(Reject::Blacklisted)),
        ("whitelistRejects", rejected(Reject::NotWhitelisted)),
    ]
}
