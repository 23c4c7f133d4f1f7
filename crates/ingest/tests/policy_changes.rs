//! A change of policy in the middle of coarse slots: a slot has the aggregate of the points of both, in memory, when they
//! are stored, and after a crash.

mod support;

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Call, Clock as _, FailingDisk, Host, ManualClock, SystemDisk};
use ingest::{Ingest, IngestOptions, Protocol};
use metric::{Aggregation, Partial, Timestamp, Window};
use store::{FetchedSeries, MemoryDriver, NameStore as _, PointStore as _, SeriesRequest};
use support::{now, options, registry_of, runtime};

fn rules(retentions: &str, method: Aggregation) -> Rules {
    rules_of(retentions, method.name(), 0.0)
}

/// Every metric has these retentions, methods and xFilesFactor.
fn rules_of(retentions: &str, methods: &str, x_files_factor: f64) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let aggregation = format!("[all]\npattern = .*\nxFilesFactor = {x_files_factor}\naggregationMethod = {methods}\n");
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

async fn open(dir: &Path, driver: &Arc<MemoryDriver>, rules: Rules) -> Arc<Ingest> {
    let options = options(dir, Duration::from_millis(20));
    Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules).await.unwrap()
}

async fn send(ingest: &Ingest, points: &[(Timestamp, f64)]) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.iter().for_each(|&(time, value)| batch.point(b"m", time, value));
    ingest.accept(&mut batch).await;
}

/// The value of the slot of `step` seconds around `time`.
async fn read(ingest: &Ingest, age: i64, step: u32, time: Timestamp) -> f64 {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let now = now();
    let request =
        SeriesRequest { metric, window: Window::between(now - age, now), now, max_points: 1 << 20, rollup: None };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    assert_eq!(series.step, step);
    series.values[((time - series.start) / i64::from(step)) as usize]
}

/// Points of a minute by `before`, then by `after`, and the minute that they make.
struct Change {
    before: &'static str,
    after: &'static str,
    /// An age that the minutes of `after` answer.
    age: i64,
    points: [Vec<(Timestamp, f64)>; 2],
}

/// The aggregate of the values, in the order of time; `expected` is how many fit.
fn aggregate(values: &[f64], method: Aggregation, expected: u32) -> f64 {
    let all = values.iter().fold(metric::Partial::NONE, |all, &value| method.merge(all, metric::Partial::point(value)));
    method.finish(all, expected, 0.0)
}

#[test]
fn a_coarse_slot_over_a_change_has_the_points_of_both_policies() {
    let value = |i: i64| ((i * 37) % 19 - 9) as f64 / 4.0;
    let seconds = |range: std::ops::Range<i64>| range.map(|i| (i, value(i))).collect::<Vec<_>>();
    let changes = [
        // The finest stage is kept longer.
        Change {
            before: "1s:2h,60s:1d",
            after: "1s:3h,60s:1d",
            age: 20 * 3600,
            points: [seconds(0..25), seconds(25..60)],
        },
        // Another coarse stage.
        Change {
            before: "1s:2h,30s:1d",
            after: "1s:2h,60s:2d",
            age: 20 * 3600,
            points: [seconds(0..25), seconds(25..60)],
        },
        Change { before: "1s:2h", after: "1s:3h,60s:2d", age: 20 * 3600, points: [seconds(0..25), seconds(25..60)] },
        // A finer step: the point of a minute is one point of ten seconds.
        Change {
            before: "60s:1d",
            after: "10s:2h,60s:1d",
            age: 20 * 3600,
            points: [vec![(0, 1.5)], vec![(20, 2.0), (30, -3.0), (50, 0.25)]],
        },
    ];
    let base = (now() - 1800) / 60 * 60;
    for change in &changes {
        for method in Aggregation::ALL {
            for (flush_before, crash) in [(false, false), (true, false), (false, true), (true, true)] {
                let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
                let what = format!("{} to {}, {method}, {flush_before}, {crash}", change.before, change.after);
                let at = |points: &[(i64, f64)]| points.iter().map(|&(i, value)| (base + i, value)).collect::<Vec<_>>();
                let all: Vec<f64> = change.points.iter().flatten().map(|&(_, value)| value).collect();
                let step = if change.after.starts_with("10s") { 10 } else { 1 };
                let want = aggregate(&all, method, 60 / step);
                let is_same = |is: f64| (is - want).abs() < 1e-9;
                let run = runtime(1);
                let ingest = run.block_on(async {
                    let ingest = open(dir.path(), &driver, rules(change.before, method)).await;
                    send(&ingest, &at(&change.points[0])).await;
                    if flush_before {
                        ingest.flush().await.unwrap();
                    }
                    ingest.set_rules(rules(change.after, method)).await;
                    send(&ingest, &at(&change.points[1])).await;
                    let is = read(&ingest, change.age, 60, base).await;
                    assert!(is_same(is), "in memory: {is}, expected {want}: {what}");
                    if !crash {
                        ingest.flush().await.unwrap();
                        let is = read(&ingest, change.age, 60, base).await;
                        assert!(is_same(is), "stored: {is}, expected {want}: {what}");
                    }
                    ingest
                });
                drop((ingest, run));
                runtime(1).block_on(async {
                    let ingest = open(dir.path(), &driver, rules(change.after, method)).await;
                    let is = read(&ingest, change.age, 60, base).await;
                    assert!(is_same(is), "after a restart: {is}, expected {want}: {what}");
                    ingest.flush().await.unwrap();
                    let is = read(&ingest, change.age, 60, base).await;
                    assert!(is_same(is), "stored after a restart: {is}, expected {want}: {what}");
                });
            }
        }
    }
}

#[test]
fn a_point_that_another_policy_wrote_again_stays_when_the_policy_changes_back() {
    let base = (now() - 500) / 60 * 60;
    let first = "1s:10m,10s:1h,60s:6h";
    for (second, third) in [("1s:15m,10s:1h,60s:6h", "1s:10m,10s:2h,60s:12h"), ("1s:15m,10s:2h,60s:12h", first)] {
        for method in [Aggregation::Sum, Aggregation::AbsMin, Aggregation::Last] {
            let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
            runtime(1).block_on(async {
                let ingest = open(dir.path(), &driver, rules(first, method)).await;
                send(&ingest, &[(base, -119.25), (base + 1, 200.0)]).await;
                ingest.set_rules(rules(second, method)).await;
                send(&ingest, &[(base, -19.75)]).await;
                ingest.set_rules(rules(third, method)).await;
                let want = aggregate(&[-19.75, 200.0], method, 60);
                for what in ["as it came", "stored"] {
                    let is = [read(&ingest, 590, 1, base).await, read(&ingest, 3500, 10, base).await];
                    assert_eq!(is, [-19.75, want], "{second}, {third}, {method}, {what}");
                    assert_eq!(read(&ingest, 5 * 3600, 60, base).await, want, "{second}, {third}, {method}, {what}");
                    ingest.flush().await.unwrap();
                }
            });
        }
    }
}

#[test]
fn a_late_point_reaches_coarse_slots_whose_minutes_several_first_steps_made() {
    let base = (now() - 2400) / 300 * 300;
    let last = "10s:3h,60s:2d,300s:3d";
    // The minute that 60 s made is one point, and has two once 10 s is back: five minutes count them, the minute does not.
    for first in [last, "10s:3h,60s:2d"] {
        for method in [Aggregation::Max, Aggregation::AbsMax, Aggregation::Last] {
            let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
            runtime(1).block_on(async {
                let ingest = open(dir.path(), &driver, rules(first, method)).await;
                send(&ingest, &[(base + 57, 3.0)]).await;
                for (change, point) in [("60s:2d,300s:4d", (58, 2.0)), ("10s:3h", (78, 1.0)), (last, (79, 5.0))] {
                    ingest.set_rules(rules(change, method)).await;
                    send(&ingest, &[(base + point.0, point.1)]).await;
                }
                for what in ["as it came", "stored"] {
                    let is = [read(&ingest, 5 * 3600, 60, base + 60).await, read(&ingest, 50 * 3600, 300, base).await];
                    assert_eq!(is, [5.0, 5.0], "{first}, {method}, {what}");
                    ingest.flush().await.unwrap();
                }
            });
        }
    }
}

/// Whether the coarse slots of both methods are the same numbers.
fn are_sums(one: Aggregation, other: Aggregation) -> bool {
    let is_sum = |method| matches!(method, Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero);
    is_sum(one) && is_sum(other)
}

#[test]
fn a_change_of_the_method_alone_keeps_what_minutes_show_until_a_point_comes() {
    let retentions = "1s:2h,60s:1d,300s:3d";
    let base = (now() - 1800) / 300 * 300;
    let first = [(0, 2.5), (7, -8.0), (31, 4.25)];
    let second = [(60, -3.5), (95, 6.0)];
    let late = (100, 1.25);
    let values = |points: &[(i64, f64)]| points.iter().map(|&(_, value)| value).collect::<Vec<_>>();
    let at = |points: &[(i64, f64)]| points.iter().map(|&(i, value)| (base + i, value)).collect::<Vec<_>>();
    for before in Aggregation::ALL {
        for after in Aggregation::ALL.into_iter().filter(|&after| after != before) {
            let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
            let shown_by = if are_sums(before, after) { after } else { before };
            let untouched = aggregate(&values(&first), shown_by, 60);
            let touched = aggregate(&values(&[second[0], second[1], late]), after, 60);
            let both = aggregate_of_minutes([(untouched, 3), (touched, 3)], after);
            let is_same = |is: f64, want: f64| (is - want).abs() < 1e-9;
            runtime(1).block_on(async {
                let ingest = open(dir.path(), &driver, rules(retentions, before)).await;
                send(&ingest, &at(&first)).await;
                send(&ingest, &at(&second)).await;
                ingest.flush().await.unwrap();
                ingest.set_rules(rules(retentions, after)).await;
                assert!(is_same(read(&ingest, 20 * 3600, 60, base).await, untouched), "{before} to {after}");
                send(&ingest, &at(&[late])).await;
                for what in ["in memory", "stored"] {
                    let is = read(&ingest, 20 * 3600, 60, base + 60).await;
                    assert!(is_same(is, touched), "{before} to {after}, {what}: {is}, expected {touched}");
                    assert!(
                        is_same(read(&ingest, 20 * 3600, 60, base).await, untouched),
                        "{before} to {after}, {what}"
                    );
                    let is = read(&ingest, 2 * 86_400, 300, base).await;
                    assert!(is_same(is, both), "{before} to {after}, {what}: {is}, expected {both}");
                    ingest.flush().await.unwrap();
                }
            });
        }
    }
}

/// Five minutes of a method, from what minutes show for so many points each.
fn aggregate_of_minutes(minutes: [(f64, u32); 2], method: Aggregation) -> f64 {
    let partial = |&(shown, count): &(f64, u32)| {
        let value = match method {
            Aggregation::Average => shown * f64::from(count),
            Aggregation::AvgZero => shown * 60.0,
            _ => shown,
        };
        metric::Partial { value, count }
    };
    let all = minutes.iter().map(partial).fold(metric::Partial::NONE, |all, minute| method.merge(all, minute));
    method.finish(all, 300, 0.0)
}

/// The policies that the metric has had.
fn changes(ingest: &Ingest) -> usize {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    registry.policies(metric).unwrap().len()
}

#[test]
fn points_that_are_read_back_after_a_restart_add_no_change_of_policy_that_the_store_has() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::default()));
    let [one, other] = ["1s:1h,10s:6h", "1s:2h,10s:6h"].map(|retentions| move || rules(retentions, Aggregation::Sum));
    let base = now() - 1000;
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver, one()).await;
        send(&ingest, &[(base, 1.0)]).await;
        for (time, rules) in [(1, other()), (2, one()), (3, other())] {
            // A change has a second of its own.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            ingest.set_rules(rules).await;
            send(&ingest, &[(base + time, 1.0)]).await;
        }
        let known = || async { registry_of(&*driver).await.policies(metric::MetricId(0)).map_or(0, |all| all.len()) };
        while changes(&ingest) < 4 || known().await < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    life.shutdown_timeout(Duration::from_secs(5));
    for _ in 0..3 {
        let life = runtime(2);
        life.block_on(async {
            let options =
                ingest::IngestOptions { memory_limit_bytes: 1, ..options(dir.path(), Duration::from_millis(20)) };
            let registry = registry_of(&*driver).await;
            let ingest = Ingest::open(options, driver.clone(), registry, other()).await.unwrap();
            while 0 < ingest.flush_progress().parked_points {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(changes(&ingest), 4);
            assert_eq!(read(&ingest, 3600, 1, base + 3).await, 1.0);
        });
        life.shutdown_timeout(Duration::from_secs(5));
    }
}

/// Seed 10008: a power cut took a change from the journal that the store had. All points of the journal, which came before it, were
/// placed by the later policy.
#[test]
fn the_store_gets_no_change_that_a_power_cut_may_take_from_the_journal() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let is_failing = Arc::new(AtomicBool::new(false));
    let fails = is_failing.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let is_sync = call == Call::Sync && path.extension().is_some_and(|extension| extension == "journal");
        (is_sync && fails.load(SeqCst)).then(|| io::Error::from_raw_os_error(5))
    });
    let policies = async || {
        let mut policies = 0;
        driver.scan_metrics(&mut |records| policies += records[0].policies.len()).await.unwrap();
        policies
    };
    runtime(1).block_on(async {
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let options = IngestOptions { host, ..options(dir.path(), Duration::from_millis(20)) };
        let before = rules("1s:2h,60s:1d", Aggregation::Sum);
        let ingest = Ingest::open(options, driver.clone(), registry_of(&*driver).await, before).await.unwrap();
        send(&ingest, &[(now(), 1.0)]).await;
        ingest.flush().await.unwrap();
        is_failing.store(true, SeqCst);
        ingest.set_rules(rules("1s:3h,60s:1d", Aggregation::Sum)).await;
        // New names and changes are on their way to the store for half a second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(policies().await, 1, "the journal may lose the change");
        is_failing.store(false, SeqCst);
        while policies().await < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ingest.close().await.unwrap();
    });
}

/// A node over tables in memory, whose time the test sets.
struct Hours {
    dir: tempfile::TempDir,
    driver: Arc<MemoryDriver>,
    clock: Arc<ManualClock>,
}

impl Hours {
    fn begin(now: Timestamp) -> Hours {
        let clock = Arc::new(ManualClock::at(now));
        Hours { dir: tempfile::tempdir().unwrap(), driver: Arc::new(MemoryDriver::new()), clock }
    }

    async fn open(&self, rules: Rules) -> Arc<Ingest> {
        let host = Host { clock: self.clock.clone(), ..Host::system() };
        let options = IngestOptions { host, ..options(self.dir.path(), Duration::from_millis(20)) };
        Ingest::open(options, self.driver.clone(), registry_of(&*self.driver).await, rules).await.unwrap()
    }

    /// The values of the stage that answers for this age, each with the seconds from [`HOUR`] to its slot.
    async fn shown(&self, ingest: &Ingest, age: i64) -> Vec<(Timestamp, f64)> {
        let series = self.fetch(ingest, age).await;
        let times = (series.start..).step_by(series.step as usize).map(|time| time - HOUR);
        times.zip(series.values).filter(|(_, value)| !value.is_nan()).collect()
    }

    async fn fetch(&self, ingest: &Ingest, age: i64) -> FetchedSeries {
        let registry = ingest.registry();
        let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
        let now = self.clock.now();
        let window = Window::between(now - age, now);
        let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None };
        ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap()
    }
}

/// A whole hour of a day in 2026.
const HOUR: Timestamp = 1_795_000_000 / 3600 * 3600;

#[test]
fn slots_that_have_too_few_points_by_the_factor_in_force_are_not_filled_from_coarser_ones() {
    // A point in each minute: a sixth of a minute's, and of ten minutes'.
    let points: Vec<(Timestamp, f64)> = (0..40).map(|i| (HOUR + i * 60, i as f64)).collect();
    let retentions = "10s:1h,60s:6h,600s:10d";
    for (before, after) in
        [("last", "last"), ("last", "last,avg"), ("last", "avg,max,sum,last"), ("sum,last", "last"), ("sum", "max")]
    {
        for is_stored in [false, true] {
            let what = format!("{before} to {after}, stored: {is_stored}");
            runtime(1).block_on(async {
                let hours = Hours::begin(HOUR + 2400);
                let ingest = hours.open(rules_of(retentions, before, 0.0)).await;
                send(&ingest, &points).await;
                if is_stored {
                    ingest.flush().await.unwrap();
                }
                assert_eq!(hours.shown(&ingest, 3 * 3600).await.len(), 40, "{what}");
                ingest.set_rules(rules_of(retentions, after, 0.3)).await;
                for then in ["changed", "stored"] {
                    assert_eq!(hours.shown(&ingest, 3 * 3600).await, [], "{what}, {then}");
                    assert_eq!(hours.shown(&ingest, 86_400).await, [], "{what}, {then}");
                    ingest.flush().await.unwrap();
                }
                ingest.set_rules(rules_of(retentions, after, 0.1)).await;
                assert_eq!(hours.shown(&ingest, 3 * 3600).await.len(), 40, "{what}");
            });
        }
    }
}

#[test]
fn a_coarser_slot_of_an_earlier_policy_is_shown_by_the_factor_in_force_where_nothing_finer_is_stored() {
    for (factor, shown) in [(0.5, vec![(0, 9.0)]), (0.0, vec![(0, 9.0), (60, 4.0)]), (0.7, vec![])] {
        runtime(1).block_on(async {
            let hours = Hours::begin(HOUR + 100);
            let ingest = hours.open(rules_of("1s:3m,60s:6h", "max", 0.2)).await;
            // Forty points of the first minute, and five of the second.
            let of = |range: std::ops::Range<i64>| range.map(|i| (HOUR + i, (i % 10) as f64)).collect::<Vec<_>>();
            send(&ingest, &[of(0..40), of(60..65)].concat()).await;
            ingest.flush().await.unwrap();
            ingest.set_rules(rules_of("1s:3m,10s:2h,300s:1d", "max", factor)).await;
            hours.driver.expire(HOUR + 1000).await.unwrap();
            hours.clock.advance(Duration::from_secs(900));
            assert_eq!(hours.shown(&ingest, 3600).await, shown, "{factor}");
            // A stage of the policy that made the slots, not of the one in force.
            let coarser = hours.fetch(&ingest, 3600).await.coarser;
            let coarser: Vec<_> = coarser.iter().map(|of| (of.retention.to_string(), of.stage, of.method)).collect();
            let made = ("180*1s:360*60s".to_owned(), 1, Aggregation::Max);
            assert_eq!(coarser, if shown.is_empty() { vec![] } else { vec![made] }, "{factor}");
        });
    }
}

#[test]
fn a_point_for_a_whole_coarse_slot_is_not_shown_over_finer_ones_that_are_too_few() {
    let (before, after) = ("1s:1m,30s:10m,300s:1d", "1s:1m,30s:2h,300s:1d");
    for methods in ["max", "max,min"] {
        runtime(1).block_on(async {
            let hours = Hours::begin(HOUR + 40);
            let ingest = hours.open(rules_of(before, "max", 0.0)).await;
            send(&ingest, &[(HOUR + 31, 5.0)]).await;
            ingest.flush().await.unwrap();
            hours.clock.advance(Duration::from_secs(700));
            send(&ingest, &[(HOUR + 100, 7.0)]).await;
            ingest.flush().await.unwrap();
            ingest.set_rules(rules_of(after, methods, 0.2)).await;
            // The thirty seconds have a point of thirty, the five minutes one for all of them.
            assert_eq!(hours.shown(&ingest, 3600).await, [], "{methods}");
            assert_eq!(hours.shown(&ingest, 3 * 3600).await, [(0, 7.0)], "{methods}");
        });
    }
}

#[test]
fn coarse_slots_from_before_a_finer_first_step_have_all_of_their_points() {
    let minutes = 20;
    for (before, after, step) in [
        ("60s:1d", "10s:1h,60s:2d", 60),
        ("60s:1d,300s:3d", "10s:1h,60s:2d,300s:4d", 60),
        ("10s:2h,60s:1d,300s:3d", "1s:1h,60s:1d,300s:3d", 10),
        ("10s:2h,60s:2d,300s:4d", "1s:1h,60s:1d,300s:3d", 10),
    ] {
        for methods in [["avg", "avg"], ["avg_zero", "avg_zero"], ["max", "max,avg"], ["avg,sum", "sum,avg,last"]] {
            let what = format!("{before} to {after}, {methods:?}");
            runtime(1).block_on(async {
                let hours = Hours::begin(HOUR + minutes * 60);
                let ingest = hours.open(rules_of(before, methods[0], 0.5)).await;
                let all = (0..minutes * 60).step_by(step).map(|time| (HOUR + time, (time % 7) as f64));
                // Of the fifth minute a third, where there are several points.
                let is_left_out = |time: Timestamp| step < 60 && 260 <= time - HOUR && time - HOUR < 300;
                let all: Vec<(Timestamp, f64)> = all.filter(|(time, _)| !is_left_out(*time)).collect();
                send(&ingest, &all).await;
                let shown = async |ingest: &Ingest, age| {
                    let shown = hours.shown(ingest, age).await;
                    shown.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
                };
                let wanted: Vec<Timestamp> = (0..minutes).filter(|i| step == 60 || *i != 4).map(|i| i * 60).collect();
                ingest.flush().await.unwrap();
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules_of(after, methods[1], 0.5)).await;
                for then in ["changed", "with a later point", "stored"] {
                    assert_eq!(shown(&ingest, 3 * 3600 / 2).await, wanted, "{what}, {then}");
                    if then == "changed" {
                        // Slots of a time after the change need the points of the finer step.
                        hours.clock.advance(Duration::from_secs(120));
                        send(&ingest, &[(HOUR + minutes * 60 + 65, 1.0)]).await;
                    } else {
                        ingest.flush().await.unwrap();
                    }
                }
                drop(ingest);
                let ingest = hours.open(rules_of(after, methods[1], 0.5)).await;
                assert_eq!(shown(&ingest, 3 * 3600 / 2).await, wanted, "{what}, after a restart");
            });
        }
    }
}

/// The aggregate of these slots and a point after them, in the order of time; `expected` is how many points fit.
fn aggregate_with(slots: &[Partial], point: f64, method: Aggregation, expected: u32) -> f64 {
    let all = slots.iter().chain([&Partial::point(point)]).fold(Partial::NONE, |all, &slot| method.merge(all, slot));
    method.finish(all, expected, 0.0)
}

#[test]
fn a_late_point_counts_with_those_that_an_earlier_policy_has_in_coarser_slots_alone() {
    let (before, after, day) = ("10s:6h,60s:7d", "10s:1d,120s:30d", 86_400);
    let points: Vec<(Timestamp, f64)> =
        [(0, 153.0), (20, 7.5), (90, 200.0), (100, -3.0)].map(|(i, v)| (HOUR + i, v)).into();
    for method in Aggregation::ALL {
        // Points for whole minutes, and minutes whose points have expired.
        for is_late in [true, false] {
            let what = format!("{method}, late: {is_late}");
            let minute = |values: [f64; 2]| match is_late {
                true => method.whole(values[1], 6),
                false => method.merge(Partial::point(values[0]), Partial::point(values[1])),
            };
            let of_minutes = [minute([153.0, 7.5]), minute([200.0, -3.0])];
            runtime(1).block_on(async {
                let hours = Hours::begin(HOUR + if is_late { 7 * 3600 } else { 120 });
                let ingest = hours.open(rules(before, method)).await;
                send(&ingest, &points).await;
                ingest.flush().await.unwrap();
                if !is_late {
                    hours.clock.advance(Duration::from_secs(7 * 3600));
                    hours.driver.expire(hours.clock.now()).await.unwrap();
                }
                let minutes = hours.shown(&ingest, day / 2).await;
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(after, method)).await;
                assert_eq!((minutes.len(), hours.shown(&ingest, 2 * day).await.len()), (2, 1), "{what}");
                // At another time, in a minute that counts more.
                send(&ingest, &[(HOUR + 70, -20.0)]).await;
                let wanted = [(0, aggregate_with(&of_minutes, -20.0, method, 12))];
                assert_eq!(hours.shown(&ingest, 2 * day).await, wanted, "{what}, in memory");
                ingest.flush().await.unwrap();
                assert_eq!(hours.shown(&ingest, 2 * day).await, wanted, "{what}, stored");
                assert_eq!(hours.shown(&ingest, day / 2).await, [minutes[0], (70, -20.0)], "{what}, the point");
                drop(ingest);
                // Points of the journal come again.
                let ingest = hours.open(rules(after, method)).await;
                assert_eq!(hours.shown(&ingest, 2 * day).await, wanted, "{what}, after a restart");
                ingest.flush().await.unwrap();
                assert_eq!(hours.shown(&ingest, 2 * day).await, wanted, "{what}, stored after a restart");
                // All of the minute: no other point can be in it.
                let minute: Vec<(Timestamp, f64)> = (6..12).map(|i| (HOUR + i * 10, i as f64)).collect();
                send(&ingest, &minute).await;
                ingest.flush().await.unwrap();
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(before, method)).await;
                let made = aggregate(&[6.0, 7.0, 8.0, 9.0, 10.0, 11.0], method, 6);
                assert_eq!(hours.shown(&ingest, day / 2).await, [minutes[0], (60, made)], "{what}, back");
            });
        }
    }
}

#[test]
fn a_late_point_counts_with_one_that_has_expired_whichever_first_step_came_in_force() {
    let (before, day) = ("10s:6h,60s:7d", 86_400);
    // Of equal counts the late one took the place of the other.
    for (after, step) in
        [("10s:1d,120s:30d", 10), ("10s:1d,60s:7d", 10), ("5s:1d,120s:30d", 5), ("20s:1d,120s:30d", 20)]
    {
        for (method, wanted) in [
            (Aggregation::Sum, 180.0),
            (Aggregation::Max, 200.0),
            (Aggregation::Min, -20.0),
            (Aggregation::Last, -20.0),
            (Aggregation::AbsMax, 200.0),
            (Aggregation::AbsMin, -20.0),
        ] {
            runtime(1).block_on(async {
                let what = format!("{after}, {method}");
                let hours = Hours::begin(HOUR + 120);
                let ingest = hours.open(rules(before, method)).await;
                send(&ingest, &[(HOUR + 60, 200.0)]).await;
                ingest.flush().await.unwrap();
                hours.clock.advance(Duration::from_secs(7 * 3600));
                hours.driver.expire(hours.clock.now()).await.unwrap();
                ingest.set_rules(rules(after, method)).await;
                send(&ingest, &[(HOUR + 80, -20.0)]).await;
                let minute = if after.contains("60s") { 60 } else { 0 };
                for then in ["in memory", "stored"] {
                    assert_eq!(hours.shown(&ingest, 2 * day).await, [(minute, wanted)], "{what}, {then}");
                    ingest.flush().await.unwrap();
                }
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(before, method)).await;
                assert_eq!(hours.shown(&ingest, day / 2).await, [(60, wanted)], "{what}, back; steps of {step} s");
            });
        }
    }
}

/// A policy in between kept the seconds in slots of ten seconds too: a slot of thirty was made of those, without the minute's point.
#[test]
fn a_point_of_a_coarser_step_counts_in_all_coarse_slots_that_are_made_of_finer_ones() {
    let first = "1s:2h,10s:6h,60s:1d";
    for method in [Aggregation::Sum, Aggregation::Max, Aggregation::Min, Aggregation::Last] {
        for is_flushed in [false, true] {
            runtime(1).block_on(async {
                let what = format!("{method}, {is_flushed}");
                let hours = Hours::begin(HOUR + 1800);
                let ingest = hours.open(rules(first, method)).await;
                send(&ingest, &[(HOUR + 26, 47.5), (HOUR + 28, 33.5)]).await;
                ingest.flush().await.unwrap();
                for retentions in ["60s:1d", "1s:3h,30s:6h,300s:1d"] {
                    hours.clock.advance(Duration::from_secs(5));
                    ingest.set_rules(rules(retentions, method)).await;
                    if retentions == "60s:1d" {
                        send(&ingest, &[(HOUR + 17, 90.5)]).await;
                    }
                    if is_flushed {
                        ingest.flush().await.unwrap();
                    }
                }
                let all = [90.5, 47.5, 33.5];
                let wanted = [(0, aggregate(&all, method, 30))];
                assert_eq!(hours.shown(&ingest, 4 * 3600).await, wanted, "{what}, of thirty seconds");
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(first, method)).await;
                let wanted = [(0, 90.5), (20, aggregate(&all[1..], method, 10))];
                assert_eq!(hours.shown(&ingest, 3 * 3600).await, wanted, "{what}, of ten seconds");
            });
        }
    }
}

/// Steps of 120 s and 300 s begin together each ten minutes only. A slot of one reaches into two or three of the other.
const UNDIVIDED: [&str; 2] = ["10s:4h,120s:2d", "10s:3h,300s:7d"];

/// The aggregates of points by slots of a step.
fn slots_of(points: &[(Timestamp, f64)], method: Aggregation, step: i64) -> Vec<(Timestamp, f64)> {
    let mut points = points.to_vec();
    points.sort_by_key(|(time, _)| *time);
    let of_slot = |slot: &[(Timestamp, f64)]| {
        let values: Vec<f64> = slot.iter().map(|(_, value)| *value).collect();
        (slot[0].0 - slot[0].0 % step, aggregate(&values, method, (step / 10) as u32))
    };
    points.chunk_by(|(one, _), (next, _)| one / step == next / step).map(of_slot).collect()
}

/// In the order of time, of points counted from [`HOUR`].
fn from_hour(points: &[(Timestamp, f64)]) -> Vec<(Timestamp, f64)> {
    points.iter().map(|&(time, value)| (HOUR + time, value)).collect()
}

#[test]
fn each_point_is_in_one_slot_over_a_change_between_steps_that_do_not_divide() {
    let points = [(250, 7.0), (330, 10.0), (570, 565.0), (1190, -3.5), (1210, 2.25)];
    let late = [(400, 100.0), (1270, 1.0)];
    for method in Aggregation::ALL {
        for (before, after) in [(0, 1), (1, 0)] {
            runtime(1).block_on(async {
                let what = format!("{method}, {} to {}", UNDIVIDED[before], UNDIVIDED[after]);
                let steps = [120, 300];
                let hours = Hours::begin(HOUR + 3600);
                let ingest = hours.open(rules(UNDIVIDED[before], method)).await;
                send(&ingest, &from_hour(&points)).await;
                ingest.flush().await.unwrap();
                let shown = async |ingest: &Ingest| hours.shown(ingest, 40 * 3600).await;
                assert_eq!(shown(&ingest).await, slots_of(&points, method, steps[before]), "{what}, before");
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(UNDIVIDED[after], method)).await;
                assert_eq!(shown(&ingest).await, slots_of(&points, method, steps[after]), "{what}, after");
                send(&ingest, &from_hour(&late)).await;
                let all = [&points[..], &late[..]].concat();
                assert_eq!(shown(&ingest).await, slots_of(&all, method, steps[after]), "{what}, late, in memory");
                ingest.flush().await.unwrap();
                assert_eq!(shown(&ingest).await, slots_of(&all, method, steps[after]), "{what}, late, stored");
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(UNDIVIDED[before], method)).await;
                assert_eq!(shown(&ingest).await, slots_of(&all, method, steps[before]), "{what}, back");
            });
        }
    }
}

/// The sum of all that is shown.
fn sum_of(shown: &[(Timestamp, f64)]) -> f64 {
    shown.iter().map(|(_, value)| value).sum()
}

#[test]
fn each_point_is_in_one_slot_once_the_first_stage_has_none_of_them() {
    let points = [(250, 7.0), (330, 10.0), (570, 565.0), (1190, -3.5), (1210, 2.25)];
    for late in [vec![], vec![(400, 100.0)], vec![(250, 8.0), (1270, 1.0)]] {
        for (before, after) in [(0, 1), (1, 0)] {
            runtime(1).block_on(async {
                let what = format!("{late:?}, {} to {}", UNDIVIDED[before], UNDIVIDED[after]);
                let hours = Hours::begin(HOUR + 3600);
                let ingest = hours.open(rules(UNDIVIDED[before], Aggregation::Sum)).await;
                send(&ingest, &from_hour(&points)).await;
                ingest.flush().await.unwrap();
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(UNDIVIDED[after], Aggregation::Sum)).await;
                send(&ingest, &from_hour(&late)).await;
                ingest.flush().await.unwrap();
                let all: f64 = sum_of(&points) + sum_of(&late) - if late.len() == 2 { 7.0 } else { 0.0 };
                assert_eq!(sum_of(&hours.shown(&ingest, 40 * 3600).await), all, "{what}, stored");
                hours.clock.advance(Duration::from_secs(5 * 3600));
                hours.driver.expire(hours.clock.now()).await.unwrap();
                assert_eq!(sum_of(&hours.shown(&ingest, 40 * 3600).await), all, "{what}, expired");
            });
        }
    }
}

#[test]
fn a_point_that_is_sent_again_under_a_first_step_that_does_not_divide_is_in_one_slot() {
    for is_flushed in [false, true] {
        runtime(1).block_on(async {
            let hours = Hours::begin(HOUR + 1800);
            let ingest = hours.open(rules("10s:4h", Aggregation::Sum)).await;
            for retentions in ["10s:4h", "15s:4h", "20s:4h"] {
                hours.clock.advance(Duration::from_secs(5));
                ingest.set_rules(rules(retentions, Aggregation::Sum)).await;
                if retentions != "20s:4h" {
                    send(&ingest, &from_hour(&[(40, 7.0), (90, 3.0)])).await;
                }
                if is_flushed {
                    ingest.flush().await.unwrap();
                }
            }
            // The point of 15 s, which came last, begins at 30.
            assert_eq!(hours.shown(&ingest, 3600).await, [(20, 7.0), (80, 3.0)], "{is_flushed}");
        });
    }
}
