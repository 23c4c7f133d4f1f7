//! The program's own metrics, stored in itself under carbon's names, so that dashboards made for carbon work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use carbon::{RejectReason, Sink};
use ingest::{CountersSnapshot, Ingest, Protocol};

use crate::{metrics::Metrics, process::Process, serve::now};

/// Stores `PREFIX.agents.HOST-a.*` every `every`, until dropped.
pub async fn store(ingest: Arc<Ingest>, metrics: Arc<Metrics>, prefix: String, host: String, every: Duration) {
    let mut batch = ingest.batch(Protocol::Own);
    let mut before = Seen::now(&ingest, &metrics);
    let mut ticks = tokio::time::interval(every.max(Duration::from_secs(1)));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let after = Seen::now(&ingest, &metrics);
        let time = now();
        for (name, value) in values(&before, &after) {
            batch.point(format!("{prefix}.agents.{host}-a.{name}").as_bytes(), time, value);
        }
        ingest.accept(&mut batch).await;
        before = after;
    }
}

/// What the program had done by a moment.
struct Seen {
    at: Instant,
    counts: CountersSnapshot,
    process: Process,
    queries: u64,
    connections: u64,
}

impl Seen {
    fn now(ingest: &Ingest, metrics: &Metrics) -> Seen {
        Seen {
            at: Instant::now(),
            counts: ingest.counters(),
            process: Process::now(),
            queries: metrics.queries(),
            connections: metrics.open_connections(),
        }
    }
}

/// What happened between two moments, under carbon's names.
fn values(before: &Seen, after: &Seen) -> [(&'static str, f64); 16] {
    let (was, is) = (&before.counts, &after.counts);
    let received = |counts: &CountersSnapshot| counts.points.iter().map(|(_, points)| points).sum::<u64>();
    let rejected = |reason: RejectReason| (is.rejects[reason as usize].1 - was.rejects[reason as usize].1) as f64;
    let updates = (is.flushed_metrics - was.flushed_metrics) as f64;
    let points = (is.flushed_points - was.flushed_points) as f64;
    let each = |total: f64| if updates > 0.0 { total / updates } else { 0.0 };
    let lists = [RejectReason::Blacklisted, RejectReason::NotWhitelisted];
    let errors = RejectReason::ALL.into_iter().filter(|reason| !lists.contains(reason)).map(rejected).sum();
    let seconds = (after.at - before.at).as_secs_f64().max(0.001);
    [
        ("metricsReceived", (received(is) - received(was)) as f64),
        ("committedPoints", points),
        ("creates", (is.created - was.created) as f64),
        ("errors", errors),
        ("updateOperations", updates),
        ("pointsPerUpdate", each(points)),
        ("avgUpdateTime", each(is.flush.seconds - was.flush.seconds)),
        ("cache.size", is.held_slots as f64),
        ("cache.queues", is.flushing_metrics as f64),
        ("cache.overflow", f64::from(u8::from(is.stalled))),
        ("cache.queries", (after.queries - before.queries) as f64),
        ("cpuUsage", 100.0 * (after.process.cpu_seconds - before.process.cpu_seconds) / seconds),
        ("memUsage", after.process.resident_bytes as f64),
        ("activeConnections", after.connections as f64),
        ("blacklistMatches", rejected(RejectReason::Blacklisted)),
        ("whitelistRejects", rejected(RejectReason::NotWhitelisted)),
    ]
}

#[cfg(test)]
mod tests {
    use ingest::IngestOptions;
    use store::MemoryDriver;

    use super::*;

    #[tokio::test]
    async fn what_happens_between_two_moments_is_told_under_carbons_names() {
        let journal = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: journal.path().to_owned(), ..IngestOptions::default() };
        let files = carbon::RuleFiles { blacklist: Some("^bad"), ..carbon::RuleFiles::default() };
        let rules = carbon::Rules::parse(files).unwrap().0;
        let registry = Arc::new(metadata::Registry::new());
        let ingest = Ingest::open(options, Arc::new(MemoryDriver::new()), registry, rules).await.unwrap();
        let metrics = Metrics::new().unwrap();

        let before = Seen::now(&ingest, &metrics);
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(b"a.b", now() - 60, 1.0);
        batch.point(b"a.b", now(), 1.0);
        batch.point(b"bad.c", now(), 1.0);
        batch.reject(RejectReason::BadLine, b"nonsense");
        ingest.accept(&mut batch).await;
        let held = Seen::now(&ingest, &metrics);
        ingest.flush().await.unwrap();
        let flushed = Seen::now(&ingest, &metrics);

        let told = |name: &str, from: &Seen, to: &Seen| {
            let told = values(from, to).into_iter().find(|(known, _)| *known == name);
            told.unwrap_or_else(|| panic!("{name} is not told")).1
        };
        for (name, value) in [("metricsReceived", 2.0), ("creates", 1.0), ("errors", 1.0), ("blacklistMatches", 1.0)] {
            assert_eq!(told(name, &before, &held), value, "{name}");
        }
        assert_eq!(told("cache.size", &before, &held), 2.0);
        for (name, value) in [("committedPoints", 2.0), ("updateOperations", 1.0), ("pointsPerUpdate", 2.0)] {
            assert_eq!(told(name, &held, &flushed), value, "{name}");
        }
        assert_eq!(told("metricsReceived", &held, &flushed), 0.0);
        assert_eq!(told("cache.size", &held, &flushed), 0.0);
    }
}
