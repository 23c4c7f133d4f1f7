//! Metrics without points for longer than their retention are deleted, and no others.

mod support;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use carbon::Sink as _;
use host::{Host, JudgingTime, ManualClock};
use ingest::{IdleMetrics, Ingest, Pass, Protocol};
use metadata::FindLimits;
use metric::{MetricId, Timestamp};
use store::{Damage, DamageLog, ScriptedDriver};
use support::{options, registry_of, rules};

const TODAY: Timestamp = 1_795_000_000 / 3600 * 3600;
const DAY: Timestamp = 86_400;

struct Node {
    clock: Arc<ManualClock>,
    ingest: Arc<Ingest>,
    damage: DamageLog,
}

async fn open(dir: &Path, driver: &Arc<ScriptedDriver>, at: Timestamp) -> Node {
    let clock = Arc::new(ManualClock::at(at));
    let mut options = options(dir, Duration::from_millis(20));
    options.host = Host { clock: clock.clone(), ..Host::system() };
    options.time = Some(Arc::new(JudgingTime::of(clock.clone())));
    let registry = registry_of(&**driver).await;
    let ingest = Ingest::open(options, driver.clone(), registry, rules("60s:1d,1h:10d")).await.unwrap();
    Node { clock, ingest, damage: DamageLog::new() }
}

impl Node {
    async fn send(&self, name: &str, time: Timestamp) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        batch.point(name.as_bytes(), time, 1.0);
        self.ingest.accept(&mut batch).await;
    }

    async fn pass(&self, shortest: Option<Duration>) -> Pass {
        let time = self.ingest.time().clone();
        IdleMetrics::new(self.ingest.clone(), shortest, self.damage.clone()).pass(|| time.expiry(None)).await.unwrap()
    }

    fn names(&self) -> Vec<String> {
        let found = self.ingest.registry().leaves("*", &FindLimits::default()).unwrap();
        let mut names: Vec<String> = found.leaves().map(|(_, name)| name.to_owned()).collect();
        names.sort();
        names
    }

    fn advance(&self, seconds: Timestamp) {
        self.clock.advance(Duration::from_secs(seconds as u64));
    }
}

#[tokio::test]
async fn metrics_go_when_their_last_point_is_out_of_their_retention_and_stay_away() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    for name in ["old", "late", "ahead", "live"] {
        node.send(name, TODAY).await;
    }
    node.send("ahead", TODAY + 9 * DAY).await;
    node.ingest.flush().await.unwrap();
    node.advance(5 * DAY);
    node.send("late", TODAY + 4 * DAY).await;
    node.ingest.flush().await.unwrap();
    node.advance(4 * DAY);
    assert_eq!(node.pass(None).await, Pass::default(), "all were created within ten days");
    node.advance(DAY + 7200);
    node.send("live", TODAY + 10 * DAY).await;
    assert_eq!(node.pass(None).await, Pass { read: 3, deleted: 1, damaged: 0 });
    assert_eq!(node.names(), ["ahead", "late", "live"]);
    assert_eq!(node.ingest.counters().expired, 1);
    node.ingest.close().await.unwrap();
    drop(node);
    let node = open(dir.path(), &driver, TODAY + 11 * DAY).await;
    assert_eq!(node.names(), ["ahead", "late", "live"]);
    assert_eq!(node.pass(Some(Duration::from_secs(86_400 * 3))).await, Pass { read: 3, deleted: 1, damaged: 0 });
    assert_eq!(node.names(), ["ahead", "live"]);
    // The name begins again.
    node.send("old", TODAY + 11 * DAY).await;
    assert_eq!(node.pass(None).await.deleted, 0);
    assert_eq!(node.names(), ["ahead", "live", "old"]);
}

#[tokio::test]
async fn a_jump_of_the_clock_a_failed_read_and_damage_delete_nothing() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    node.send("a", TODAY).await;
    node.ingest.flush().await.unwrap();
    node.clock.set(TODAY + 365 * DAY);
    assert_eq!(node.pass(None).await, Pass::default(), "in doubt");
    assert!(node.ingest.time().trust(host::Candidate::Clock));
    // An honest clock, and no point that agrees with it.
    let time = node.ingest.time().clone();
    let mut idle = IdleMetrics::new(node.ingest.clone(), None, node.damage.clone());
    assert_eq!(idle.pass(|| time.expiry(Some(TODAY + 60))).await.unwrap(), Pass::default());
    driver.is_down.store(true, SeqCst);
    assert!(idle.pass(|| time.expiry(None)).await.is_err());
    driver.is_down.store(false, SeqCst);
    driver.is_damaged.store(true, SeqCst);
    assert_eq!(node.pass(None).await, Pass { read: 1, deleted: 0, damaged: 1 });
    driver.is_damaged.store(false, SeqCst);
    assert_eq!(node.names(), ["a"]);
    assert_eq!(node.pass(None).await.deleted, 1);
}

#[tokio::test]
async fn a_metric_is_idle_when_the_coarse_slot_of_its_last_point_is_and_not_before() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    // In the slot of an hour that ends at TODAY + 3600.
    node.send("a", TODAY + 60).await;
    node.ingest.flush().await.unwrap();
    let shortest = Some(Duration::from_secs(600));
    node.advance(3600 + 599);
    assert_eq!(node.pass(shortest).await, Pass { read: 1, deleted: 0, damaged: 0 });
    node.advance(1);
    assert_eq!(node.pass(shortest).await, Pass { read: 1, deleted: 1, damaged: 0 });
}

#[tokio::test]
async fn damage_keeps_the_metrics_that_it_touches_for_as_long_as_what_it_cost_would() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    for name in ["a", "b", "c"] {
        node.send(name, TODAY).await;
    }
    node.ingest.flush().await.unwrap();
    // A point of the second metric four days later may be lost.
    let (metrics, span) = (Some((MetricId(1), MetricId(1))), Some((TODAY, TODAY + 4 * DAY)));
    node.damage.report(Damage { found_at: TODAY + 5 * DAY, metrics, span, ..Damage::default() });
    node.advance(11 * DAY);
    assert_eq!(node.pass(None).await, Pass { read: 2, deleted: 2, damaged: 0 });
    assert_eq!(node.names(), ["b"]);
    node.advance(3 * DAY);
    assert_eq!(node.pass(None).await, Pass::default());
    node.advance(1);
    assert_eq!(node.pass(None).await, Pass { read: 1, deleted: 1, damaged: 0 });
    // Nothing is known of what was lost: all metrics are kept.
    node.send("d", TODAY + 14 * DAY).await;
    node.ingest.flush().await.unwrap();
    node.advance(9 * DAY);
    node.damage.report(Damage { file: "other".to_owned(), found_at: TODAY + 23 * DAY, ..Damage::default() });
    node.advance(4 * DAY);
    assert_eq!(node.pass(None).await, Pass::default());
    node.advance(7 * DAY);
    assert_eq!(node.pass(None).await.deleted, 1);
}

#[tokio::test]
async fn what_was_seen_is_not_read_again() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    node.send("a", TODAY).await;
    node.ingest.flush().await.unwrap();
    node.advance(9 * DAY);
    node.send("a", TODAY + 9 * DAY).await;
    node.ingest.flush().await.unwrap();
    node.advance(2 * DAY);
    let time = node.ingest.time().clone();
    let mut idle = IdleMetrics::new(node.ingest.clone(), None, node.damage.clone());
    assert_eq!(idle.pass(|| time.expiry(None)).await.unwrap().read, 1);
    assert_eq!(idle.pass(|| time.expiry(None)).await.unwrap().read, 0);
    node.advance(9 * DAY);
    assert_eq!(idle.pass(|| time.expiry(None)).await.unwrap().deleted, 1);
}
