//! A search with times finds every metric with points in them, and none that clearly has none, whatever is in memory, stored,
//! late or deleted, and after restarts. Every run prints its seed; `SEED=…` repeats one.

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use carbon::Sink as _;
use host::{Host, JudgingTime, ManualClock, Random, SeededRandom};
use ingest::{Ingest, Protocol};
use metadata::{FindLimits, SeenSpan};
use metric::{MetricId, Timestamp, Window};
use store::{ScriptedDriver, SeriesRequest};
use support::{options, registry_of, rules, seeds};

const TODAY: Timestamp = 1_795_000_000;
const DAY: Timestamp = 86_400;
const HOUR: Timestamp = 3600;

struct Node {
    clock: Arc<ManualClock>,
    ingest: Arc<Ingest>,
}

async fn open(dir: &Path, driver: &Arc<ScriptedDriver>, at: Timestamp) -> Node {
    open_with(dir, driver, at, "60s:2d,1h:300d").await
}

async fn open_with(dir: &Path, driver: &Arc<ScriptedDriver>, at: Timestamp, retention: &str) -> Node {
    let clock = Arc::new(ManualClock::at(at));
    let mut options = options(&dir.join("journal"), Duration::from_millis(20));
    options.host = Host { clock: clock.clone(), ..Host::system() };
    options.time = Some(Arc::new(JudgingTime::of(clock.clone())));
    options.data_dir = Some(dir.to_owned());
    let registry = registry_of(&**driver).await;
    let ingest = Ingest::open(options, driver.clone(), registry, rules(retention)).await.unwrap();
    Node { clock, ingest }
}

impl Node {
    fn now(&self) -> Timestamp {
        host::Clock::now(&*self.clock)
    }

    async fn send(&self, name: &str, time: Timestamp) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        batch.point(name.as_bytes(), time, 1.0);
        self.ingest.accept(&mut batch).await;
    }

    fn found(&self, from: Timestamp, until: Timestamp) -> Vec<String> {
        let times = SeenSpan { from: Some(from), until: Some(until) };
        let limits = FindLimits { times, ..FindLimits::default() };
        let found = self.ingest.registry().leaves("**", &limits).unwrap();
        found.leaves().map(|(_, name)| name.to_owned()).collect()
    }
}

/// A bucket is a week at most.
fn check(node: &Node, model: &BTreeMap<String, Vec<Timestamp>>, from: Timestamp, until: Timestamp) {
    let found = node.found(from, until);
    for (name, times) in model {
        let has_points = times.iter().any(|&time| from <= time && time <= until);
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        let is_near = first - 8 * DAY <= until && from <= last + 8 * DAY;
        assert!(!has_points || found.contains(name), "{name} has points from {from} to {until}");
        assert!(is_near || !found.contains(name), "{name} has no points from {from} to {until}: {first} to {last}");
    }
    assert!(found.iter().all(|name| model.contains_key(name)), "{found:?}");
}

async fn run(seed: u64) {
    let random = SeededRandom::new(seed);
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let mut node = open(dir.path(), &driver, TODAY).await;
    let mut model: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for _ in 0..150 {
        let now = node.now();
        match random.below(12) {
            0 => node.ingest.flush().await.unwrap(),
            1 => {
                node.ingest.close().await.unwrap();
                node = open(dir.path(), &driver, now).await;
            }
            2 => node.clock.advance(Duration::from_secs(random.below(40 * 3600))),
            3 => {
                let names: Vec<String> = model.keys().cloned().collect();
                if let Some(name) = names.get(random.below(8) as usize) {
                    let registry = node.ingest.registry();
                    let id: MetricId = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).unwrap();
                    node.ingest.delete(&[id]).await.unwrap();
                    model.remove(name);
                }
            }
            4..8 => {
                let name = format!("d{}.m{}", random.below(3), random.below(8));
                let age = [60, 5 * HOUR, 3 * DAY, 290 * DAY][random.below(4) as usize];
                let time = now - random.below(age as u64) as i64;
                node.send(&name, time).await;
                model.entry(name).or_default().push(time);
            }
            _ => {
                let length = [60, 12 * HOUR, 30 * DAY][random.below(3) as usize];
                let until = now + DAY - random.below(320 * DAY as u64) as i64;
                check(&node, &model, until - length, until);
                check(&node, &model, now - length, now);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_with_times_is_right_as_a_naive_model_says() {
    for seed in seeds(6) {
        run(seed).await;
    }
}

#[tokio::test]
async fn hours_near_the_present_differ_and_survive_a_restart() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    node.send("old", TODAY - 5 * HOUR).await;
    node.send("new", TODAY).await;
    let expected = |node: &Node| {
        assert_eq!(node.found(TODAY - HOUR, TODAY), ["new"]);
        assert_eq!(node.found(TODAY - 6 * HOUR, TODAY - 3 * HOUR), ["old"]);
        assert_eq!(node.found(TODAY - 6 * HOUR, TODAY), ["new", "old"]);
    };
    expected(&node);
    node.ingest.flush().await.unwrap();
    expected(&node);
    node.ingest.close().await.unwrap();
    drop(node);
    let node = open(dir.path(), &driver, TODAY + 60).await;
    expected(&node);
    node.ingest.close().await.unwrap();
    drop(node);
    std::fs::remove_file(dir.path().join("seen")).unwrap();
    let node = open(dir.path(), &driver, TODAY + 60).await;
    assert_eq!(node.found(TODAY - HOUR, TODAY), ["new", "old"], "not known any more");
    assert_eq!(node.found(TODAY - 100 * DAY, TODAY - 90 * DAY), ["new", "old"]);
}

#[tokio::test]
async fn a_read_of_times_before_the_first_point_or_after_the_last_reads_no_row() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let node = open(dir.path(), &driver, TODAY).await;
    node.send("m", TODAY - 40 * DAY).await;
    node.ingest.flush().await.unwrap();
    let read = async |from: Timestamp, until: Timestamp| {
        let (window, now) = (Window::between(from, until), TODAY);
        let request = SeriesRequest { metric: MetricId(0), window, now, max_points: 100_000, rollup: None };
        let series = node.ingest.series().fetch(vec![request]).await.map_err(|error| error.to_string())?;
        let values = series[0].clone().expect("it is kept so long").values;
        Ok::<_, String>((values.len(), values.iter().filter(|value| !value.is_nan()).count()))
    };
    assert_eq!(read(TODAY - 41 * DAY, TODAY - 39 * DAY).await, Ok((48, 1)));
    driver.is_down.store(true, SeqCst);
    assert_eq!(read(TODAY - 100 * DAY, TODAY - 60 * DAY).await, Ok((960, 0)));
    assert_eq!(read(TODAY - HOUR, TODAY).await, Ok((60, 0)));
    read(TODAY - 41 * DAY, TODAY - 39 * DAY).await.unwrap_err();
    // While it is away, points are in memory.
    node.send("m", TODAY).await;
    assert_eq!(read(TODAY - HOUR, TODAY).await, Ok((60, 1)));
    driver.is_down.store(false, SeqCst);
}

#[tokio::test]
async fn a_metric_of_days_is_found_by_the_time_of_its_last_point_and_not_by_the_begin_of_its_day() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let now = TODAY - TODAY % DAY + 19 * HOUR;
    let node = open_with(dir.path(), &driver, now, "86400s:300d").await;
    node.send("bill", now - 5).await;
    for _ in 0..2 {
        assert_eq!(node.found(now - 12 * HOUR, now), ["bill"]);
        assert_eq!(node.found(now - 60, now), ["bill"]);
        node.ingest.flush().await.unwrap();
    }
    // Not until the end of its day where it gets no more points.
    assert!(node.found(now + 2 * HOUR, now + 3 * HOUR).is_empty());
}

#[tokio::test]
async fn a_metric_is_found_in_the_slots_of_its_new_policy_at_once_after_flushes_and_after_restarts() {
    const NEW: &str = "60s:1d,86400s:300d";
    for is_killed in [false, true] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let day = TODAY - TODAY % DAY - DAY;
        let now = day + DAY + 12 * HOUR;
        let node = open_with(dir.path(), &driver, now, "60s:30d").await;
        node.send("m", day + 15 * HOUR).await;
        node.ingest.flush().await.unwrap();
        node.send("n", day + 16 * HOUR).await;
        let begin = |node: &Node| node.found(day - 2 * HOUR, day + 2 * HOUR);
        assert!(begin(&node).is_empty());
        node.ingest.set_rules(rules(NEW)).await;
        let is_found = |node: &Node, state: &str| {
            // The point is drawn at the beginning of its day.
            assert_eq!(begin(node), ["m", "n"], "{state}, {is_killed}");
            assert_eq!(node.found(day + 20 * HOUR, day + 21 * HOUR), ["m", "n"], "{state}");
            assert!(node.found(day - 3 * HOUR, day - HOUR).is_empty(), "{state}");
            assert!(node.found(day + DAY + HOUR, day + DAY + 2 * HOUR).is_empty(), "{state}");
        };
        is_found(&node, "after the change");
        if !is_killed {
            node.ingest.flush().await.unwrap();
            is_found(&node, "after a flush");
            node.ingest.close().await.unwrap();
        }
        drop(node);
        let node = open_with(dir.path(), &driver, now + 60, NEW).await;
        is_found(&node, "after a restart");
        node.ingest.flush().await.unwrap();
        is_found(&node, "after a flush of the next process");
    }
}
