//! A clock that jumps: no point is rejected because of it, a replay places points as they were placed, and coarse slots
//! are made of what is stored.

mod support;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Clock as _, Host, JudgingTime, ManualClock};
use ingest::{Ingest, Protocol};
use metric::{Timestamp, Window};
use store::{PointStore as _, ScriptedDriver, SeriesRequest};
use support::{options, registry_of, rules, runtime};

/// A whole hour of a day in 2026.
const TODAY: Timestamp = 1_795_000_000 / 3600 * 3600;
const IN_2036: Timestamp = 2_082_800_000;

const RETENTIONS: &str = "1s:1h,60s:2d";

struct Node {
    clock: Arc<ManualClock>,
    ingest: Arc<Ingest>,
}

async fn open(dir: &Path, driver: &Arc<ScriptedDriver>, clock: &Arc<ManualClock>) -> Node {
    let mut options = options(dir, Duration::from_millis(20));
    options.host = Host { clock: clock.clone(), ..Host::system() };
    let registry = registry_of(&**driver).await;
    let ingest = Ingest::open(options, driver.clone(), registry, rules(RETENTIONS)).await.unwrap();
    Node { clock: clock.clone(), ingest }
}

impl Node {
    /// Sends a point; returns how many are rejected by now.
    async fn send(&self, time: Timestamp, value: f64) -> u64 {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        batch.point(b"a", time, value);
        self.ingest.accept(&mut batch).await;
        self.ingest.counters().rejects.iter().map(|(_, count)| count).sum()
    }

    /// Sends points until one is rejected, or none is any more.
    async fn until_rejected(&self, is_rejected: bool) {
        let mut before = self.send(TODAY - 40, 1.0).await;
        for _ in 0..500 {
            let rejects = self.send(TODAY - 40, 1.0).await;
            if (before < rejects) == is_rejected {
                return;
            }
            before = rejects;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("points are {}", if is_rejected { "accepted" } else { "rejected" });
    }

    /// Waits until so many metrics keep a policy of before.
    async fn until_waiting(&self, metrics: u64) {
        for _ in 0..500 {
            if self.ingest.policies_waiting() == metrics {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} metrics wait, not {metrics}", self.ingest.policies_waiting());
    }

    /// The values of the finest stage between two times, absent ones left out; `None` where the store had to answer and is
    /// away.
    async fn values(&self, from: Timestamp, until: Timestamp, now: Timestamp) -> Option<Vec<f64>> {
        let registry = self.ingest.registry();
        let metric = registry.read().find(registry.hash(b"a"), b"a").expect("the metric is known");
        let request =
            SeriesRequest { metric, window: Window::between(from, until), now, max_points: 1 << 20, rollup: None };
        let series = self.ingest.series().fetch(vec![request]).await.ok()?.remove(0).expect("a stage keeps it");
        Some(series.values.into_iter().filter(|value| !value.is_nan()).collect())
    }

    /// The value at `time` and its step, as asked at `now`.
    async fn read(&self, time: Timestamp, now: Timestamp, age: i64) -> (u32, f64) {
        let registry = self.ingest.registry();
        let metric = registry.read().find(registry.hash(b"a"), b"a").expect("the metric is known");
        let request =
            SeriesRequest { metric, window: Window::between(now - age, now), now, max_points: 1 << 20, rollup: None };
        let series = self.ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
        (series.step, series.values[((time - series.start) / i64::from(series.step)) as usize])
    }
}

#[test]
fn a_window_between_absolute_times_is_answered_while_the_clock_is_wrong() {
    for wrong in [IN_2036, TODAY + 86_400, TODAY - 86_400, 0] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let clock = Arc::new(ManualClock::at(TODAY));
        runtime(1).block_on(async {
            let node = open(dir.path(), &driver, &clock).await;
            let series = node.ingest.series();
            assert_eq!(series.now_for(TODAY, TODAY - 86_400), TODAY, "the clock is right");
            node.send(TODAY - 10, 1.0).await;
            node.ingest.flush().await.unwrap();
            node.clock.set(wrong);
            let now = series.now_for(wrong, TODAY);
            assert_eq!((now, node.read(TODAY - 10, now, 600).await), (TODAY, (1, 1.0)), "{wrong}");
            assert_eq!(series.now_for(wrong, wrong), wrong, "what the clock calls now");
        });
    }
}

/// While the store is away, points in memory are the answer only where the store cannot have others, whatever is stored ahead.
#[test]
fn answers_from_memory_are_whole_with_points_of_the_future() {
    const AHEAD: i64 = 3000;
    for is_future_first in [true, false] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let clock = Arc::new(ManualClock::at(TODAY));
        runtime(2).block_on(async {
            let node = open(dir.path(), &driver, &clock).await;
            let (stored, in_memory) = if is_future_first { (AHEAD, -10) } else { (-10, AHEAD) };
            assert_eq!(node.send(TODAY + stored, 1.0).await, 0);
            node.ingest.flush().await.unwrap();
            assert_eq!(node.send(TODAY + in_memory, 2.0).await, 0);
            let around = |offset: i64| (TODAY + offset - 60, TODAY + offset + 60);
            for is_down in [false, true] {
                driver.is_down.store(is_down, SeqCst);
                for (offset, value) in [(stored, 1.0), (in_memory, 2.0)] {
                    let (from, until) = around(offset);
                    let values = node.values(from, until, TODAY + AHEAD + 100).await;
                    assert!(
                        values == Some(vec![value]) || is_down && values.is_none(),
                        "{offset}, {is_down}: {values:?}"
                    );
                }
                let all = node.values(TODAY - 100, TODAY + AHEAD + 60, TODAY + AHEAD + 100).await;
                let whole = if is_future_first { vec![2.0, 1.0] } else { vec![1.0, 2.0] };
                assert!(if is_down { all.is_none() } else { all == Some(whole) }, "{is_down}: {all:?}");
            }
            // What is behind all that is stored is answered from memory alone.
            let (from, until) = around(in_memory);
            let alone = node.values(from, until, TODAY + AHEAD + 100).await;
            assert_eq!(alone, (!is_future_first).then(|| vec![2.0]));
            driver.is_down.store(false, SeqCst);
            node.ingest.close().await.unwrap();
        });
    }
}

/// A relay sends what it queued for hours while agents send what they measure now.
#[test]
fn the_queue_of_a_relay_is_taken_and_the_clock_stays_trusted() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        for i in 0..600 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(node.send(TODAY - 6 * 3600 + 30 * i, 1.0).await, 0);
            assert_eq!(node.send(clock.now(), 2.0).await, 0);
            assert!(!node.ingest.time().is_doubtful());
        }
        assert_eq!(node.ingest.time().jumps(), 0);
        assert_eq!(node.read(TODAY - 6 * 3600, clock.now(), 86_400).await, (60, 1.0), "an average of two points");
        node.ingest.close().await.unwrap();
    });
}

#[test]
fn no_point_is_rejected_after_a_jump_and_a_crash_changes_nothing() {
    for wrong in [IN_2036, TODAY + 86_400, TODAY - 86_400, 0] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let clock = Arc::new(ManualClock::at(TODAY));
        let life = runtime(2);
        life.block_on(async {
            let node = open(dir.path(), &driver, &clock).await;
            node.send(TODAY - 10, 1.0).await;
            node.clock.set(wrong);
            // Of the time before the jump, which may be right, and of the clock, which may be.
            assert_eq!(node.send(TODAY - 5, 2.0).await, 0, "{wrong}");
            assert_eq!(node.send((wrong - 5).max(1), 3.0).await, 0, "{wrong}");
            assert_eq!(node.read(TODAY - 5, TODAY, 600).await, (1, 2.0));
        });
        // A crash: nothing is written out.
        life.shutdown_timeout(Duration::from_secs(1));
        clock.set(TODAY + 10);
        runtime(2).block_on(async {
            let node = open(dir.path(), &driver, &clock).await;
            assert_eq!(node.read(TODAY - 10, TODAY, 600).await, (1, 1.0));
            assert_eq!(node.read(TODAY - 5, TODAY, 600).await, (1, 2.0), "{wrong}");
            node.ingest.close().await.unwrap();
        });
    }
}

#[test]
fn coarse_slots_are_whole_whatever_the_clock_said_meanwhile() {
    for wrong in [IN_2036, TODAY + 86_400, TODAY - 86_400, 0] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let clock = Arc::new(ManualClock::at(TODAY));
        runtime(2).block_on(async {
            let node = open(dir.path(), &driver, &clock).await;
            node.send(TODAY - 50, 1.0).await;
            node.ingest.flush().await.unwrap();
            clock.set(wrong);
            // Late points of one coarse slot: it is derived from what is stored, before and after the jump.
            node.send(TODAY - 55, 2.0).await;
            node.ingest.flush().await.unwrap();
            node.send(TODAY - 52, 4.0).await;
            assert_eq!(node.read(TODAY - 60, TODAY, 86_400).await, (60, 7.0), "{wrong}, from memory");
            node.ingest.flush().await.unwrap();
            assert_eq!(node.read(TODAY - 60, TODAY, 86_400).await, (60, 7.0), "{wrong}");
            node.ingest.close().await.unwrap();
        });
    }
}

#[test]
fn existing_metrics_keep_their_policies_while_the_clock_is_in_doubt() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.send(TODAY - 50, 1.0).await;
        clock.set(0);
        node.send(TODAY - 49, 1.0).await;
        node.ingest.set_rules(rules("10s:2d")).await;
        node.ingest.flush().await.unwrap();
        assert_eq!(node.read(TODAY - 50, TODAY, 600).await, (1, 1.0));
        node.until_waiting(1).await;
        // Back to the retention that it has, and away from it again.
        node.ingest.set_rules(rules(RETENTIONS)).await;
        node.until_waiting(0).await;
        node.ingest.set_rules(rules("10s:2d")).await;
        node.until_waiting(1).await;
        clock.set(TODAY);
        let stage = || {
            let registry = node.ingest.registry();
            let names = registry.read();
            let metric = names.find(registry.hash(b"a"), b"a").unwrap();
            registry.policy(names.policy_id(metric)).retention.finest().resolution()
        };
        assert_eq!(stage(), 1);
        for _ in 0..1000 {
            if stage() == 10 {
                node.until_waiting(0).await;
                return node.ingest.close().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the metric does not get its policy");
    });
}

/// A list needs no time: what it rejects does not depend on the clock.
#[test]
fn a_blacklist_holds_for_existing_metrics_while_the_clock_is_in_doubt() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.send(TODAY - 50, 1.0).await;
        clock.set(0);
        node.send(TODAY - 49, 1.0).await;
        for _ in 0..2 {
            node.ingest.set_rules(listing_a()).await;
            node.until_rejected(true).await;
            assert_eq!(node.read(TODAY - 50, TODAY, 600).await, (1, 1.0), "its policy waits");
            node.ingest.set_rules(rules(RETENTIONS)).await;
            node.until_rejected(false).await;
            assert!(node.ingest.time().is_doubtful());
        }
        node.ingest.close().await.unwrap();
    });
}

#[test]
fn a_blacklist_holds_for_existing_metrics_after_a_start_in_doubt() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.send(TODAY - 50, 1.0).await;
        node.ingest.close().await.unwrap();
        let mut options = options(dir.path(), Duration::from_millis(20));
        options.host = Host { clock: clock.clone(), ..Host::system() };
        options.time = Some(Arc::new(JudgingTime::of(clock.clone())));
        clock.set(TODAY + 1800);
        let registry = registry_of(&*driver).await;
        let ingest = Ingest::open(options, driver.clone(), registry, listing_a()).await.unwrap();
        let node = Node { clock, ingest };
        assert!(node.ingest.time().is_doubtful());
        node.until_rejected(true).await;
        assert!(node.ingest.time().is_doubtful());
    });
}

/// Rules of another retention whose blacklist has `a`.
fn listing_a() -> Rules {
    let schemas = "[all]\npattern = .*\nretentions = 10s:2d\n";
    let files = RuleFiles { schemas: Some(schemas), blacklist: Some("^a$"), ..RuleFiles::default() };
    Rules::parse(files).unwrap().0
}

/// The history of policies is in the order of its changes, also where their times are not.
#[test]
fn points_between_changes_of_rules_keep_their_policy_while_the_clock_goes_back() {
    const FINE: &str = "1s:1h,60s:2d";
    const COARSE: &str = "60s:2d";
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    let before = runtime(2);
    before.block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.ingest.set_rules(rules("60s:4d")).await;
        node.send(TODAY - 600, 1.0).await;
        node.ingest.set_rules(rules(COARSE)).await;
        clock.set(TODAY - 50);
        for retentions in ["1s:2h,60s:2d", "10s:1h,60s:2d", FINE] {
            node.ingest.set_rules(rules(retentions)).await;
        }
        node.ingest.flush().await.unwrap();
        // Nothing of what follows is stored but the change.
        driver.writes.close();
        for age in 100..110 {
            node.send(TODAY - age, age as f64).await;
        }
        let registry = node.ingest.registry();
        let metric = registry.read().find(registry.hash(b"a"), b"a").expect("the metric is known");
        let changing = node.ingest.clone();
        tokio::spawn(async move { changing.set_rules(rules(COARSE)).await });
        while registry.policies(metric).unwrap().len() < 6 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let is_registered = || async {
            let stored = registry_of(&*driver).await;
            stored.policies(metric).is_some_and(|history| history.len() == 6)
        };
        while !is_registered().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    drop(before);
    driver.writes.open();
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.ingest.flush().await.unwrap();
        node.ingest.set_rules(rules(FINE)).await;
        let values = node.values(TODAY - 110, TODAY - 100, TODAY).await;
        let sent: Vec<f64> = (100..110).rev().map(f64::from).collect();
        assert_eq!(values, Some(sent));
    });
}

/// Five points of a slot are known as the slot of an older step alone. A late point goes on counting with them.
#[test]
fn a_late_point_counts_in_slots_of_an_older_step_whose_points_have_expired_in_part() {
    const TENS: &str = "1s:1h,10s:6h,60s:2d";
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(TODAY));
    runtime(2).block_on(async {
        let node = open(dir.path(), &driver, &clock).await;
        node.ingest.set_rules(rules(TENS)).await;
        for second in 0..30 {
            node.send(TODAY - 60 + second, 1.0).await;
        }
        node.ingest.flush().await.unwrap();
        node.ingest.set_rules(rules(RETENTIONS)).await;
        // Five of the first ten seconds expire.
        clock.advance(Duration::from_secs(3545));
        let now = TODAY - 60 + 3605;
        driver.expire(now).await.unwrap();
        node.send(TODAY - 60 + 8, 3.0).await;
        node.send(TODAY - 60 + 28, 3.0).await;
        node.ingest.flush().await.unwrap();
        node.ingest.set_rules(rules(TENS)).await;
        let read = |slot: i64| node.read(TODAY - 60 + slot, now, 5 * 3600);
        assert_eq!(
            read(0).await,
            (10, 12.0),
            "the five that have expired, and the five with the late one in place of its second"
        );
        assert_eq!((read(10).await, read(20).await), ((10, 10.0), (10, 12.0)));
    });
}

#[test]
fn the_last_second_that_has_a_slot_is_kept_and_the_one_after_it_refused() {
    const END: Timestamp = u32::MAX as Timestamp;
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let clock = Arc::new(ManualClock::at(END - 100));
    let driver = &driver;
    runtime(2).block_on(async {
        let node = open(dir.path(), driver, &clock).await;
        assert_eq!(node.send(END - 1, 1.0).await, 0);
        assert_eq!(node.send(END, 2.0).await, 1);
        for _ in 0..2 {
            let now = END - 1;
            let minute = END / 60 * 60;
            assert_eq!(node.read(END - 1, now, 600).await, (1, 1.0));
            assert_eq!(node.read(minute, now, 20 * 3600).await, (60, 1.0));
            assert_eq!(node.send(END - 3, 1.0).await, 1);
            assert_eq!(node.read(minute, now, 20 * 3600).await, (60, 2.0));
            node.ingest.flush().await.unwrap();
            assert_eq!(node.send(END - 3, 0.0).await, 1);
        }
    });
}
