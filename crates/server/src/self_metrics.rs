//! The program's own metrics, stored in itself under carbon's names, so that dashboards made for carbon work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use carbon::{RejectReason, Sink};
use host::Clock;
use ingest::{CountersSnapshot, Ingest, Protocol};

use crate::{intake::Intake, metrics::Metrics, process::Process};

/// Stores `PREFIX.agents.HOST-a.*`.
pub struct SelfMetrics {
    ingest: Arc<Ingest>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    agent: String,
    intake: Arc<Intake>,
}

impl SelfMetrics {
    /// `agent` is the first part of each name.
    pub fn new(
        ingest: Arc<Ingest>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
        agent: String,
        intake: Arc<Intake>,
    ) -> SelfMetrics {
        SelfMetrics { ingest, metrics, clock, agent, intake }
    }

    /// Stores them at each interval while points come in, until dropped.
    pub async fn store(self: Arc<SelfMetrics>, every: Duration) {
        let mut batch = self.ingest.batch(Protocol::Own);
        let mut before = self.snapshot().await;
        let mut ticks = tokio::time::interval(every.max(Duration::from_secs(1)));
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let after = self.snapshot().await;
            let Some(_share) = self.intake.enter().await else { continue };
            let time = self.clock.now();
            for (name, value) in values(&before, &after) {
                batch.point(format!("{}.{name}", self.agent).as_bytes(), time, value);
            }
            self.ingest.accept(&mut batch).await;
            before = after;
        }
    }

    async fn snapshot(&self) -> Snapshot {
        Snapshot {
            at: self.clock.instant(),
            counts: self.ingest.counters(),
            process: self.metrics.process().await,
            queries: self.metrics.requests(),
            connections: self.metrics.open_connections(),
        }
    }
}

/// Counters at one moment.
struct Snapshot {
    at: Instant,
    counts: CountersSnapshot,
    process: Process,
    queries: u64,
    connections: u64,
}

/// The changes between two moments, under carbon's names.
fn values(before: &Snapshot, after: &Snapshot) -> [(&'static str, f64); 16] {
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
    use host::Host;
    use ingest::IngestOptions;
    use store::MemoryDriver;

    use super::*;

    #[tokio::test]
    async fn changes_between_two_moments_have_carbons_names() {
        let journal = tempfile::tempdir().unwrap();
        let options = IngestOptions { journal_dir: journal.path().to_owned(), ..IngestOptions::default() };
        let files = carbon::RuleFiles { blacklist: Some("^bad"), ..carbon::RuleFiles::default() };
        let rules = carbon::Rules::parse(files).unwrap().0;
        let registry = Arc::new(metadata::Registry::new());
        let ingest = Ingest::open(options, Arc::new(MemoryDriver::new()), registry, rules).await.unwrap();
        let host = Host::system();
        let metrics = Arc::new(Metrics::new(host.disk).unwrap());
        let agent = "carbon.agents.h-a".to_owned();
        let own = SelfMetrics::new(ingest.clone(), metrics, host.clock.clone(), agent, Intake::new());
        let now = host.clock.now();

        let before = own.snapshot().await;
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(b"a.b", now - 60, 1.0);
        batch.point(b"a.b", now, 1.0);
        batch.point(b"bad.c", now, 1.0);
        batch.reject(RejectReason::BadLine, b"nonsense");
        ingest.accept(&mut batch).await;
        let accepted = own.snapshot().await;
        ingest.flush().await.unwrap();
        let flushed = own.snapshot().await;

        let value = |name: &str, from: &Snapshot, to: &Snapshot| {
            let found = values(from, to).into_iter().find(|(known, _)| *known == name);
            found.unwrap_or_else(|| panic!("{name} is missing")).1
        };
        for (name, expected) in [("metricsReceived", 2.0), ("creates", 1.0), ("errors", 1.0), ("blacklistMatches", 1.0)]
        {
            assert_eq!(value(name, &before, &accepted), expected, "{name}");
        }
        assert_eq!(value("cache.size", &before, &accepted), 2.0);
        for (name, expected) in [("committedPoints", 2.0), ("updateOperations", 1.0), ("pointsPerUpdate", 2.0)] {
            assert_eq!(value(name, &accepted, &flushed), expected, "{name}");
        }
        assert_eq!(value("metricsReceived", &accepted, &flushed), 0.0);
        assert_eq!(value("cache.size", &accepted, &flushed), 0.0);
    }
}
