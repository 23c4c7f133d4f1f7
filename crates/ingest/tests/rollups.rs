//! A method of a list shows what it shows alone: random lists and retentions between random writes, flushes and kills.
//!
//! One metric has the lists. For each method another metric has the same points and the method alone, all the time. Both are the
//! same, also for the time before the method was in the list: the first stage has all points. Where first steps differ, only where
//! all points of a slot came while the list had the method. Every run prints its seed; `SEED=…` repeats one.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Random, SeededRandom};
use ingest::{Ingest, Protocol};
use metric::{Aggregation, Methods, Timestamp, Window};
use store::{FetchedSeries, MemoryDriver, SeriesRequest};
use support::{now, options, registry_of, runtime, seeds};

/// Lists, and single methods.
const LISTS: [&str; 8] =
    ["avg,max", "max,avg", "avg", "max", "min,last,max", "sum,min", "last,avg_zero,absmax,absmin", "avg,min,max,sum"];

/// Retentions of one finest step that share some tables, and miss stages that others have.
const RETENTIONS: [&str; 6] = [
    "1s:2h,60s:1d",
    "1s:3h,60s:1d",
    "1s:2h,10s:6h,60s:1d",
    "1s:2h,30s:6h,300s:1d",
    "1s:2h,10s:8h,60s:2d,300s:3d",
    "1s:2h",
];

/// Retentions of two finest steps that share a coarse table.
const OF_TWO_STEPS: [[&str; 2]; 3] =
    [["1s:2h,60s:1d", "10s:3h,60s:1d"], ["1s:2h,10s:6h,60s:2d", "10s:6h,60s:2d"], ["1s:2h,300s:1d", "60s:6h,300s:1d"]];

/// The seconds that have points.
const SPAN: i64 = 900;

fn methods(list: &str) -> Methods {
    list.parse().expect("a list of methods")
}

/// The step of the first stage.
fn finest(retentions: &str) -> u32 {
    let (step, _) = retentions.split_once("s:").expect("a stage of seconds");
    step.parse().expect("a number of seconds")
}

fn alone(method: Aggregation) -> String {
    format!("alone-{method}")
}

fn rules(retentions: &str, list: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let rule = |name: &str, methods: &str| {
        format!("[{name}]\npattern = ^{name}$\nxFilesFactor = 0\naggregationMethod = {methods}\n")
    };
    let mut aggregation = rule("list", list);
    for method in Aggregation::ALL {
        aggregation += &rule(&alone(method), method.name());
    }
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

/// The times of points with the first step in force, and how many there were when the list got each of its methods.
#[derive(Default)]
struct Sent {
    times: Vec<(Timestamp, u32)>,
    since: BTreeMap<&'static str, usize>,
    /// Whether several first steps come.
    is_of_steps: bool,
    /// The methods that were in force alone: from one to another, slots go on showing what the earlier one made (decision 5).
    singles: BTreeSet<String>,
}

impl Sent {
    fn begin(&mut self, list: &str) {
        let methods = methods(list);
        if methods.len() == 1 {
            self.singles.insert(list.to_owned());
        }
        self.since.retain(|name, _| methods.contains(name.parse().unwrap()));
        methods.iter().for_each(|method| _ = self.since.entry(method.name()).or_insert(self.times.len()));
    }

    /// Whether a slot must be what its method makes of all its points. Where first steps differ, only one whose points are of
    /// one first step, and all came while the list had the method: points of a coarser one that finer points replace have
    /// one value, which the first method makes, and counts do not tell whether all points are stored (decision 19).
    fn is_exact(&self, method: Aggregation, slot: Timestamp, step: i64) -> bool {
        if 1 < self.singles.len() {
            return false;
        }
        let begin = slot - slot % 60;
        let around = begin..(slot + step).max(begin + 60);
        let is_around = |(time, _): &&(Timestamp, u32)| around.contains(time);
        let steps: BTreeSet<u32> = self.times.iter().filter(is_around).map(|(_, step)| *step).collect();
        !self.is_of_steps
            || steps.len() < 2 && !self.times[..self.since[method.name()]].iter().any(|point| is_around(&point))
    }
}

struct Life {
    run: tokio::runtime::Runtime,
    ingest: Arc<Ingest>,
}

impl Life {
    fn begin(dir: &Path, driver: &Arc<MemoryDriver>, rules: Rules) -> Life {
        let run = runtime(2);
        let ingest = run.block_on(async {
            let options = options(dir, Duration::from_millis(20));
            Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules).await.unwrap()
        });
        Life { run, ingest }
    }

    fn send(&self, points: &[(Timestamp, f64)]) {
        let names = std::iter::once("list".to_owned()).chain(Aggregation::ALL.into_iter().map(alone));
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        for name in names {
            points.iter().for_each(|&(time, value)| batch.point(name.as_bytes(), time, value));
        }
        self.run.block_on(self.ingest.accept(&mut batch));
    }

    /// The step, first time and values of a metric.
    fn read(&self, name: &str, rollup: Option<Aggregation>, age: i64) -> Option<(u32, Timestamp, Vec<f64>)> {
        let series = self.fetch(name, rollup, age, 0)?;
        Some((series.step, series.start, series.values))
    }

    /// The series of a metric between two ages.
    fn fetch(&self, name: &str, rollup: Option<Aggregation>, from: i64, until: i64) -> Option<FetchedSeries> {
        let registry = self.ingest.registry();
        let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())?;
        let now = now();
        let window = Window::between(now - from, now - until);
        let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup };
        self.run.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0)
    }

    /// Compares every slot of every coarse stage of every method, and the first stage as the first method shows it: the points
    /// are one.
    fn check(&self, finest: u32, list: &str, sent: &Sent, what: &str) -> Result<(), String> {
        let methods = methods(list);
        let ages = [3000, 2 * 3600 + 100, 3 * 3600 + 100, 6 * 3600 + 100, 8 * 3600 + 100, 2 * 86_400 + 100];
        let asked = methods.iter().map(|method| (Some(method), method));
        for (rollup, method) in asked.chain([(None, methods.first().unwrap())]) {
            for age in ages {
                let (of_list, of_one) = (self.read("list", rollup, age), self.read(&alone(method), None, age));
                let (Some(of_list), Some(of_one)) = (of_list, of_one) else { continue };
                if of_list.0 != of_one.0 {
                    return Err(format!("steps {} and {}", of_list.0, of_one.0));
                }
                if of_list.0 == finest && Some(method) != methods.first() {
                    continue;
                }
                // A second may pass between both reads.
                for (i, &value) in of_list.2.iter().enumerate() {
                    let place = (of_list.1 - of_one.1) / i64::from(of_list.0) + i as i64;
                    let Some(&wanted) = of_one.2.get(place as usize) else { continue };
                    let is_same =
                        value.is_nan() && wanted.is_nan() || (value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0);
                    let (time, step) = (of_list.1 + i as i64 * i64::from(of_list.0), i64::from(of_list.0));
                    if !is_same && sent.is_exact(method, time, step) {
                        let slot = time - time % 300;
                        return Err(format!(
                            "{rollup:?} ({method}) at {slot} + {} ({step} s), {what}: {value}, alone {wanted}",
                            time % 300
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A random run.
fn run(seed: u64, steps: usize, retentions: &[&'static str]) -> Result<(), String> {
    let random = SeededRandom::new(seed);
    let any = |count: usize| random.below(count as u64) as usize;
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let mut now_in_force = (retentions[any(retentions.len())], LISTS[any(LISTS.len())]);
    let mut life = Life::begin(dir.path(), &driver, rules(now_in_force.0, now_in_force.1));
    let base = (now() - 2400) / 300 * 300;
    let mut log = vec![format!("base {base}, {now_in_force:?}")];
    let first_steps: BTreeSet<u32> = retentions.iter().map(|text| finest(text)).collect();
    let mut sent = Sent { is_of_steps: 1 < first_steps.len(), ..Sent::default() };
    sent.begin(now_in_force.1);
    for round in 0..steps {
        match any(10) {
            0..4 => {
                let mut points = Vec::new();
                for _ in 0..1 + any(2) {
                    let (start, skip) = (base + any(SPAN as usize) as i64, 1 + any(3) as i64);
                    let times = (0..1 + any(60) as i64).map(|i| start + i * skip).filter(|time| *time < base + SPAN);
                    points.extend(times.map(|time| (time, (any(2001) as f64 - 1000.0) / 8.0)));
                }
                log.push(format!("send {:?}", points.iter().map(|(t, v)| (t - base, *v)).collect::<Vec<_>>()));
                sent.times.extend(points.iter().map(|(time, _)| (*time, finest(now_in_force.0))));
                life.send(&points);
            }
            4..7 => {
                now_in_force = match any(3) {
                    0 => (retentions[any(retentions.len())], now_in_force.1),
                    1 => (now_in_force.0, LISTS[any(LISTS.len())]),
                    _ => (retentions[any(retentions.len())], LISTS[any(LISTS.len())]),
                };
                log.push(format!("change to {now_in_force:?}"));
                sent.begin(now_in_force.1);
                life.run.block_on(life.ingest.set_rules(rules(now_in_force.0, now_in_force.1)));
            }
            7..9 => {
                log.push("flush".to_owned());
                life.run.block_on(life.ingest.flush()).unwrap();
            }
            _ => {
                let is_clean = any(2) == 0;
                log.push(if is_clean { "stop" } else { "kill" }.to_owned());
                if is_clean {
                    life.run.block_on(life.ingest.close_patiently(Duration::from_secs(60))).unwrap();
                }
                drop(life);
                life = Life::begin(dir.path(), &driver, rules(now_in_force.0, now_in_force.1));
            }
        }
        if let Err(error) = life.check(finest(now_in_force.0), now_in_force.1, &sent, &format!("after round {round}")) {
            if std::env::var("LOG").is_ok() {
                log.iter().for_each(|line| println!("{line}"));
            }
            let changes: Vec<&String> = log.iter().filter(|line| !line.starts_with("send")).collect();
            return Err(format!("SEED={seed}: {error}; {changes:?}"));
        }
    }
    Ok(())
}

fn runs(count: u64, pools: &[&[&'static str]]) {
    let failed: Vec<String> =
        seeds(count).filter_map(|seed| run(seed, 16, pools[seed as usize % pools.len()]).err()).collect();
    assert!(failed.is_empty(), "{}: {failed:#?}", failed.len());
}

#[test]
fn a_method_of_a_list_shows_what_it_shows_alone() {
    runs(4, &[&["1s:2h,10s:6h,60s:1d"]]);
}

#[test]
fn a_method_of_a_list_shows_what_it_shows_alone_also_where_the_retention_changes() {
    runs(4, &[&RETENTIONS]);
}

#[test]
fn a_method_of_a_list_shows_what_it_shows_alone_also_where_the_first_step_changes() {
    runs(4, &OF_TWO_STEPS.each_ref().map(|pair| &pair[..]));
}

/// The slot of a minute, by the asked method, and the further methods that the answer names.
fn minute(life: &Life, time: Timestamp, rollup: Aggregation) -> (f64, Vec<Aggregation>) {
    let window = Window::between(time - 30, time + 20);
    let registry = life.ingest.registry();
    let metric = registry.read().find(registry.hash(b"list"), b"list").expect("the metric is known");
    // So few points that the coarsest stage answers.
    let request = SeriesRequest { metric, window, now: now(), max_points: 3, rollup: Some(rollup) };
    let series = life.run.block_on(life.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
    assert_eq!((series.step, series.start, series.values.len()), (60, time, 1));
    (series.values[0], series.other_methods().iter().collect())
}

#[test]
fn what_came_before_a_method_is_made_of_points_or_named_also_after_a_kill() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let retentions = "1s:1h,10s:3h,60s:1d";
    let begin = |list: &str| Life::begin(dir.path(), &driver, rules(retentions, list));
    let change = |life: &Life, list: &str| life.run.block_on(life.ingest.set_rules(rules(retentions, list)));
    let flush = |life: &Life| life.run.block_on(life.ingest.flush()).unwrap();
    // Points of the first stage, and points that only slots of ten seconds keep: six in a minute.
    let (young, old) = (now() / 60 * 60 - 1800, now() / 60 * 60 - 2 * 3600);
    let points = |of: Timestamp| (0..60).step_by(10).map(|i| (of + i, (i * 2) as f64)).collect::<Vec<_>>();
    let send = |life: &Life, after: Timestamp| life.send(&[points(young + after), points(old + after)].concat());
    let (mean, largest, smallest) = (50.0, 100.0, 0.0);
    let (average, max, min) = (Aggregation::Average, Aggregation::Max, Aggregation::Min);

    let mut life = begin("avg");
    send(&life, 0);
    flush(&life);
    let both_come_in = |life: &Life, what: &str| {
        // Exact where all points are stored; otherwise the method that was there, and the answer says so.
        assert_eq!(minute(life, young, max), (largest, vec![]), "{what}");
        assert_eq!(minute(life, old, max), (mean, vec![average]), "{what}");
        assert_eq!(minute(life, young, average), (mean, vec![]), "{what}");
        assert_eq!(minute(life, old, average), (mean, vec![]), "{what}");
    };
    change(&life, "avg,max");
    both_come_in(&life, "after the change");
    drop(life);
    life = begin("avg,max");
    both_come_in(&life, "after a kill");
    flush(&life);
    both_come_in(&life, "after a flush");

    // A point makes the slot again; of the old minute nothing but means is known, so that its slot has them in it.
    life.send(&[(young + 5, 120.0), (old + 15, 130.0)]);
    for what in ["in memory", "stored", "after a kill"] {
        assert_eq!(minute(&life, young, max), (120.0, vec![]), "{what}");
        assert_eq!(minute(&life, old, max).1, [average], "{what}");
        if what == "in memory" {
            flush(&life);
        } else {
            drop(life);
            life = begin("avg,max");
        }
    }

    // A method that is out of the list while points come: exact again once it is back, as long as the points are stored.
    send(&life, 60);
    assert_eq!(minute(&life, old + 60, max), (largest, vec![]), "all came while the list had it");
    change(&life, "avg");
    send(&life, 120);
    life.send(&[(young + 61, 140.0)]);
    flush(&life);
    change(&life, "avg,max,min");
    for what in ["once it is back", "after a kill"] {
        assert_eq!(minute(&life, young + 60, max), (140.0, vec![]), "{what}");
        assert_eq!(minute(&life, young + 120, max), (largest, vec![]), "{what}");
        assert_eq!(minute(&life, old + 60, max), (largest, vec![]), "{what}");
        assert_eq!(minute(&life, old + 120, max), (mean, vec![average]), "{what}");
        assert_eq!(minute(&life, young + 120, min), (smallest, vec![]), "{what}");
        assert_eq!(minute(&life, old + 60, min), (mean, vec![average]), "{what}");
        drop(life);
        life = begin("avg,max,min");
    }

    // Means and sums have the same numbers in a row, but not of points that stand for a whole slot.
    change(&life, "avg,sum");
    assert_eq!(minute(&life, young + 120, Aggregation::Sum), (300.0, vec![]));
    assert_eq!(minute(&life, old + 120, Aggregation::Sum).1, [average]);
}
