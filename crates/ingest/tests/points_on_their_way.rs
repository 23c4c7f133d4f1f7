//! Points that came under an older policy and are still being written: a query answers as if they were stored.

mod support;

use std::{path::Path, sync::Arc, time::Duration};

use carbon::{RuleFiles, Rules, Sink as _};
use ingest::{Ingest, Protocol};
use metric::{Aggregation, Timestamp, Window};
use store::{ScriptedDriver, SeriesRequest};
use support::{now, options, registry_of, runtime};

fn rules(retentions: &str, method: Aggregation) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let aggregation = format!("[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = {method}\n");
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

async fn open(dir: &Path, driver: &Arc<ScriptedDriver>, rules: Rules) -> Arc<Ingest> {
    let options = options(dir, Duration::from_millis(20));
    Ingest::open(options, driver.store(), registry_of(&**driver).await, rules).await.unwrap()
}

async fn send(ingest: &Ingest, points: &[(Timestamp, f64)]) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.iter().for_each(|&(time, value)| batch.point(b"m", time, value));
    ingest.accept(&mut batch).await;
}

/// Windows that each stage answers, seconds.
const WINDOWS: [Timestamp; 3] = [3000, 5 * 3600, 20 * 3600];

/// The points of each stage, by time.
async fn read(ingest: &Ingest, now: Timestamp) -> Vec<Vec<(Timestamp, f64)>> {
    let mut stages = Vec::new();
    for window in WINDOWS {
        stages.push(read_window(ingest, now, window).await);
    }
    stages
}

/// The points of so many seconds before `now`, by time.
async fn read_window(ingest: &Ingest, now: Timestamp, window: Timestamp) -> Vec<(Timestamp, f64)> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let window = Window::between(now - window, now);
    let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    let time = |i: usize| series.start + i as i64 * i64::from(series.step);
    let values = series.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    values.map(|(i, &value)| (time(i), value)).collect()
}

/// The answers are equal but for the order of sums.
fn assert_same(is: &[Vec<(Timestamp, f64)>], want: &[Vec<(Timestamp, f64)>], what: &str) {
    let is_same =
        |(&one, &other): (&(Timestamp, f64), &(Timestamp, f64))| one.0 == other.0 && (one.1 - other.1).abs() < 1e-9;
    for (stage, (is, want)) in is.iter().zip(want).enumerate() {
        let is_other = is.len() != want.len() || !is.iter().zip(want).all(is_same);
        let missing: Vec<_> = want.iter().filter(|point| !is.contains(point)).collect();
        let more: Vec<_> = is.iter().filter(|point| !want.contains(point)).collect();
        assert!(!is_other, "window {stage}: {missing:?} became {more:?}: {what}");
    }
}

/// Changes the policy while the store takes nothing, and returns once that is done.
async fn change(ingest: &Arc<Ingest>, rules: Rules) -> tokio::task::JoinHandle<()> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let policies = || registry.policies(metric).unwrap().len();
    let (before, changing) = (policies(), ingest.clone());
    let task = tokio::spawn(async move { changing.set_rules(rules).await });
    while policies() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task
}

const CHANGES: [(&str, &str); 6] = [
    ("1s:1h,10s:6h,60s:2d", "1s:2h,10s:6h,60s:2d"),
    ("1s:1h,10s:6h,60s:2d", "1s:1h,30s:6h,60s:3d"),
    ("1s:1h,10s:6h,60s:2d", "10s:6h,60s:2d"),
    ("10s:6h,60s:2d", "1s:1h,10s:6h,60s:2d"),
    ("60s:2d", "10s:6h,60s:2d"),
    ("1s:2h", "10s:3h,60s:1d"),
];

fn points(base: Timestamp, range: std::ops::Range<i64>, step: usize) -> Vec<(Timestamp, f64)> {
    range.step_by(step).map(|i| (base + i, ((i * 37) % 19 - 9) as f64 / 4.0)).collect()
}

#[test]
fn points_under_an_older_policy_are_read_while_they_are_written() {
    let now = now();
    let base = (now - 1800) / 60 * 60;
    for (before, after) in CHANGES {
        let alone = [Aggregation::Average, Aggregation::Last, Aggregation::AbsMin].map(|method| (method, false));
        for (method, has_other_writers) in alone.into_iter().chain([(Aggregation::Sum, true)]) {
            let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
            driver.has_other_writers.store(has_other_writers, std::sync::atomic::Ordering::SeqCst);
            let what = format!("{before} to {after}, {method}, other writers: {has_other_writers}");
            runtime(2).block_on(async {
                let ingest = open(dir.path(), &driver, rules(before, method)).await;
                send(&ingest, &points(base, 0..45, 1)).await;
                ingest.flush().await.unwrap();
                send(&ingest, &points(base, 40..100, 1)).await;
                driver.writes.close();
                let changing = change(&ingest, rules(after, method)).await;
                let first = read(&ingest, now).await;
                assert!(first.iter().all(|stage| !stage.is_empty()), "{what}: {first:?}");
                assert!(first[0].iter().any(|&(time, _)| base + 60 <= time), "{what}: {first:?}");
                send(&ingest, &points(base, 95..150, 2)).await;
                let on_their_way = read(&ingest, now).await;
                driver.writes.open();
                changing.await.unwrap();
                assert_same(&read(&ingest, now).await, &on_their_way, &format!("stored: {what}"));
                ingest.flush().await.unwrap();
                assert_same(&read(&ingest, now).await, &on_their_way, &format!("all stored: {what}"));
            });
        }
    }
}

#[test]
fn points_that_a_restart_finds_under_older_policies_are_read_before_they_are_written() {
    let now = now();
    let base = (now - 1800) / 60 * 60;
    let methods = [Aggregation::Sum, Aggregation::AbsMin, Aggregation::Last].into_iter().cycle();
    for ((before, after), method) in CHANGES.into_iter().zip(methods) {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let what = format!("{before} to {after} {method}");
        let run = runtime(2);
        run.block_on(async {
            let ingest = open(dir.path(), &driver, rules(before, method)).await;
            send(&ingest, &points(base, 0..45, 1)).await;
            ingest.flush().await.unwrap();
            // Nothing of what follows is stored: the journal alone has it.
            driver.writes.close();
            send(&ingest, &[(base + 40, 100.0), (base + 70, 200.0)]).await;
            let _first = change(&ingest, rules(after, method)).await;
            send(&ingest, &[(base + 70, 300.0), (base + 80, 400.0)]).await;
        });
        drop(run);
        let run = runtime(2);
        run.block_on(async {
            let ingest = open(dir.path(), &driver, rules(after, method)).await;
            let on_their_way = read(&ingest, now).await;
            assert!(on_their_way[0].iter().any(|&(time, _)| time == base + 70), "{what}: {on_their_way:?}");
            // The task that writes them panics and begins again.
            let supervisor = ingest.supervisor();
            supervisor.inject_panic("recovered points");
            let panics = || supervisor.health().iter().any(|task| task.name == "recovered points" && task.panics == 1);
            while !panics() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            driver.writes.open();
            ingest.flush().await.unwrap();
            assert_same(&read(&ingest, now).await, &on_their_way, &format!("stored: {what}"));
        });
    }
}

/// Seed 20125: sums had the points of a flush twice that stored them between the copy of memory and the read of the rows.
#[test]
fn points_that_are_stored_while_a_query_reads_count_once() {
    let now = now();
    let base = (now - 1800) / 60 * 60;
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, rules("1s:1h,10s:6h,60s:2d", Aggregation::Sum)).await;
        for (from, window) in [(0, WINDOWS[1]), (600, WINDOWS[2])] {
            send(&ingest, &points(base, from..from + 45, 1)).await;
            ingest.flush().await.unwrap();
            send(&ingest, &points(base, from + 45..from + 100, 1)).await;
            let before = read_window(&ingest, now, window).await;
            let (reads, writes) = (driver.reads.arrived(), driver.writes.arrived());
            driver.reads.close();
            let reading = {
                let ingest = ingest.clone();
                tokio::spawn(async move { read_window(&ingest, now, window).await })
            };
            while driver.reads.arrived() == reads {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // It reads nothing, since these points come after all others.
            ingest.flush().await.unwrap();
            assert!(writes < driver.writes.arrived());
            driver.reads.open();
            assert_eq!(reading.await.unwrap(), before, "window {window}");
            assert_eq!(read_window(&ingest, now, window).await, before, "window {window}, stored");
        }
    });
}
