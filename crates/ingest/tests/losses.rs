//! What must not be lost or wrong when a driver waits or fails, a caller goes away, or rules change meanwhile.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use metadata::Registry;
use metric::{MetricId, Policy, Timestamp, Window};
use store::{MetricRecord, NameStore, PolicyChange, ScriptedDriver, SeriesRequest};
use support::{now, options, rules, runtime};

/// Opens the pipeline; names come from the metrics table, and from `saved` as from a file of names.
async fn open(dir: &Path, driver: &Arc<ScriptedDriver>, retentions: &str, saved: Vec<MetricRecord>) -> Arc<Ingest> {
    let registry = Arc::new(Registry::new());
    registry.restore(saved);
    driver.scan_metrics(&mut |records| _ = registry.restore(records)).await.unwrap();
    let options = options(dir, Duration::from_millis(20));
    Ingest::open(options, driver.clone(), registry, rules(retentions)).await.unwrap()
}

async fn send(ingest: &Ingest, points: &[(&str, Timestamp, f64)]) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    for &(name, time, value) in points {
        batch.point(name.as_bytes(), time, value);
    }
    ingest.accept(&mut batch).await;
    assert!(batch.is_empty());
}

/// The value at `time`, read with a window that reaches `age` seconds back.
async fn read(ingest: &Arc<Ingest>, name: &str, time: Timestamp, age: i64) -> (u32, f64) {
    let registry = ingest.registry();
    let number = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).expect("the metric is known");
    let now = now();
    let request = SeriesRequest {
        metric: number,
        window: Window::between(now - age, now),
        now,
        max_points: 1 << 20,
        rollup: None,
    };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    (series.step, series.values[((time - series.start) / i64::from(series.step)) as usize])
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..5000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("this did not happen in time");
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("it ends")
}

#[test]
fn points_that_came_while_an_earlier_part_was_being_stored_outlive_a_crash() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let time = now() - 30;
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", time, 1.0)]).await;
        driver.writes.close();
        let changing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.set_rules(rules("1s:2h")).await }
        });
        until(|| driver.writes.arrived() == 1).await;
        send(&ingest, &[("a", time + 1, 2.0)]).await;
        let flushing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        driver.writes.open();
        in_time(flushing).await.unwrap().unwrap();
        in_time(changing).await.unwrap();
    });
    // A crash: nothing is written out.
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:2h", vec![]).await;
        assert_eq!(read(&ingest, "a", time + 1, 600).await, (1, 2.0));
        assert_eq!(read(&ingest, "a", time, 600).await, (1, 1.0));
    });
}

#[test]
fn a_cancelled_flush_does_not_keep_the_next_one_waiting() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", now() - 30, 1.0)]).await;
        driver.writes.close();
        assert!(tokio::time::timeout(Duration::from_millis(50), ingest.flush()).await.is_err());
        driver.writes.open();
        in_time(ingest.flush()).await.unwrap();
        assert_eq!(ingest.counters().held_slots, 0);
        in_time(ingest.close()).await.unwrap();
    });
}

#[test]
fn a_stop_in_the_middle_of_a_flush_writes_each_point_once() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", now() - 30, 1.0)]).await;
        driver.writes.close();
        let flushing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        until(|| driver.writes.arrived() == 1).await;
        let closing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.close().await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        driver.writes.open();
        in_time(flushing).await.unwrap().unwrap();
        in_time(closing).await.unwrap().unwrap();
        assert_eq!(ingest.counters().held_slots, 0);
        assert_eq!(driver.writes.arrived(), 1);
    });
}

#[test]
fn metrics_that_a_dropped_flush_was_registering_are_registered_by_the_next() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", now() - 30, 1.0)]).await;
        driver.syncs.close();
        assert!(tokio::time::timeout(Duration::from_millis(100), ingest.flush()).await.is_err());
        driver.syncs.open();
        in_time(ingest.flush()).await.unwrap();
        let mut names = Vec::new();
        let mut each = |records: Vec<MetricRecord>| names.extend(records.into_iter().map(|record| record.name));
        driver.scan_metrics(&mut each).await.unwrap();
        assert_eq!(names, ["a"]);
    });
}

fn record(number: u32, name: &str, retention: &str) -> MetricRecord {
    let policy = Policy {
        retention: retention.parse().unwrap(),
        aggregation: metric::Aggregation::Sum,
        x_files_factor: 0.0,
        ..Policy::default()
    };
    MetricRecord {
        id: MetricId(number),
        name: name.into(),
        created_on: 0,
        policies: vec![PolicyChange { since: 0, policy }],
    }
}

#[test]
fn a_metric_that_only_the_saved_names_and_the_journal_know_gets_into_the_metrics_table() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", now() - 30, 1.0)]).await;
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![record(0, "a", "3600*1s")]).await;
        in_time(ingest.flush()).await.unwrap();
        let mut names = Vec::new();
        let mut each = |records: Vec<MetricRecord>| names.extend(records.into_iter().map(|record| record.name));
        driver.scan_metrics(&mut each).await.unwrap();
        assert_eq!(names, ["a"]);
    });
}

#[test]
fn a_metric_that_a_crash_left_out_of_the_middle_of_the_table_is_kept_by_its_own_policy() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let time = now() - 30;
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        send(&ingest, &[("a", time, 1.0), ("a", time + 1, 2.0)]).await;
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        // Of two new metrics, the later one got there; its policy is another.
        let ingest = open(dir.path(), &driver, "1s:1h", vec![record(1, "b", "60*60s")]).await;
        in_time(ingest.flush()).await.unwrap();
        assert_eq!(read(&ingest, "a", time, 600).await, (1, 1.0));
        assert_eq!(read(&ingest, "a", time + 1, 600).await, (1, 2.0));
    });
}

#[test]
fn points_accepted_under_a_new_retention_are_replayed_under_it() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let time = (now() - 600) / 60 * 60;
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "60s:1h", vec![]).await;
        send(&ingest, &[("a", time - 60, 5.0)]).await;
        in_time(ingest.flush()).await.unwrap();
        send(&ingest, &[("a", time, 7.0)]).await;
        ingest.set_rules(rules("1s:1h")).await;
        send(&ingest, &[("a", time + 61, 1.0), ("a", time + 62, 2.0)]).await;
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        in_time(ingest.flush()).await.unwrap();
        assert_eq!(read(&ingest, "a", time + 61, 1200).await, (1, 1.0));
        assert_eq!(read(&ingest, "a", time + 62, 1200).await, (1, 2.0));
        assert_eq!(read(&ingest, "a", time, 1200).await, (1, 7.0));
        assert_eq!(read(&ingest, "a", time - 60, 1200).await, (1, 5.0));
        assert_eq!(ingest.counters().held_slots, 0);
    });
}

#[test]
fn new_metrics_and_new_rules_at_once_lose_nothing() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap().block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        let done = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = (0..3)
            .map(|sender| {
                let (ingest, done) = (ingest.clone(), done.clone());
                tokio::spawn(async move {
                    let mut i = 0;
                    // Each sends something, however busy the machine is.
                    while i == 0 || !done.load(SeqCst) {
                        let name = format!("s{sender}.m{i}");
                        send(&ingest, &[(&name, now(), 1.0), ("shared", now(), 1.0)]).await;
                        i += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    i
                })
            })
            .collect();
        for i in 0..60 {
            ingest.set_rules(rules(&format!("1s:{}m", 60 + i))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        done.store(true, SeqCst);
        for sender in senders {
            assert!(in_time(sender).await.expect("no sender was harmed") > 0);
        }
        in_time(ingest.flush()).await.unwrap();
        assert_eq!(ingest.counters().held_slots, 0);
    });
}

#[test]
fn a_batch_of_any_size_is_replayed() {
    const POINTS: u32 = 4_300_000;
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        let mut batch = ingest.batch(Protocol::Http);
        let time = now();
        (0..POINTS).for_each(|i| batch.point(b"a", time, f64::from(i)));
        ingest.accept(&mut batch).await;
        assert_eq!(ingest.counters().points.iter().map(|(_, n)| n).sum::<u64>(), u64::from(POINTS));
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        assert_eq!((ingest.restored().points, ingest.restored().damaged_bytes), (u64::from(POINTS), 0));
    });
}

#[test]
fn points_accepted_under_an_old_retention_are_replayed_under_that() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let time = (now() - 600) / 60 * 60;
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, "1s:1h", vec![]).await;
        let points: Vec<_> = (0..60).map(|i| ("a", time + i, 1.0)).collect();
        send(&ingest, &points).await;
        ingest.set_rules(rules("60s:2h")).await;
        send(&ingest, &[("a", time + 60, 7.0)]).await;
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, "60s:2h", vec![]).await;
        for _ in 0..2 {
            assert_eq!(read(&ingest, "a", time, 1200).await, (60, 60.0));
            assert_eq!(read(&ingest, "a", time + 60, 1200).await, (60, 7.0));
            in_time(ingest.flush()).await.unwrap();
        }
    });
}
