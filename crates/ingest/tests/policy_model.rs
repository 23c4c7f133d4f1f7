//! Random changes of policy between random writes, flushes and kills, against a naive model.
//!
//! Every run prints its seed; `SEED=…` repeats one.

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
use metric::{Aggregation, Methods, Partial, Retention, Timestamp, Window};
use store::{MemoryDriver, SeriesRequest};
use support::{now, options, registry_of, runtime, seeds};

/// Retentions of one finest step that share some tables, and miss stages that others have.
const OF_SECONDS: [&str; 8] = [
    "1s:2h",
    "1s:3h",
    "1s:2h,60s:1d",
    "1s:3h,60s:1d",
    "1s:2h,10s:6h,60s:1d",
    "1s:3h,10s:6h,60s:2d",
    "1s:2h,30s:6h,300s:1d",
    "1s:2h,10s:8h,60s:2d,300s:3d",
];

/// Retentions of several finest steps, whose coarse tables are their own.
const OF_STEPS: [&str; 10] = [
    "1s:2h",
    "1s:2h,60s:1d",
    "1s:2h,10s:6h,60s:1d",
    "1s:3h,30s:6h,300s:1d",
    "10s:3h",
    "10s:6h,60s:2d",
    "10s:3h,60s:2d,300s:3d",
    "10s:2h,30s:1d",
    "60s:1d",
    "60s:2d,300s:4d",
];

/// Retentions of two finest steps that share a coarse table.
const SHARING: [[&str; 2]; 4] = [
    ["1s:2h,60s:1d", "10s:3h,60s:1d"],
    ["1s:2h,10s:6h,60s:2d", "10s:6h,60s:2d"],
    ["1s:2h,300s:1d", "60s:6h,300s:1d"],
    ["10s:3h,300s:1d", "1s:2h,300s:1d"],
];

/// Retentions of three finest steps that share coarse tables, the finer ones too.
const OF_THREE_STEPS: [&[&str]; 4] = [
    &["1s:2h,60s:1d,300s:2d", "10s:3h,60s:1d,300s:2d", "60s:6h,300s:2d"],
    &["1s:2h,30s:6h,300s:1d", "10s:3h,30s:6h,300s:1d", "60s:6h,300s:1d", "30s:4h,300s:1d"],
    &["1s:2h,60s:1d,300s:2d", "10s:3h,60s:1d,300s:2d", "30s:4h,60s:1d,300s:2d"],
    &[
        "1s:2h,10s:6h,60s:1d,300s:2d",
        "10s:6h,60s:1d,300s:2d",
        "60s:6h,300s:2d",
        "10s:3h,60s:1d",
        "1s:2h,60s:1d,300s:2d",
    ],
];

/// Retentions of one finest step whose coarse steps do not divide each other: their slots begin together each ten minutes, or more.
const UNDIVIDED: [&[&str]; 5] = [
    &["10s:3h,300s:7d", "10s:4h,120s:2d"],
    &["10s:3h,300s:7d", "10s:4h,120s:2d", "10s:3h,60s:1d,180s:3d", "10s:4h"],
    &["1s:2h,30s:1d", "1s:3h,20s:6h,100s:2d", "1s:2h,45s:1d"],
    &["1s:2h,60s:6h,300s:2d", "1s:3h,90s:1d", "1s:2h,60s:1d,120s:2d"],
    &["10s:3h,20s:6h,300s:2d", "10s:4h,50s:6h,150s:1d", "10s:3h,40s:2d"],
];

/// The methods of one metric, which come, go and change their order. One method is there alone, too: from one that is alone to
/// another, slots go on showing what the earlier one made (decision 5).
const LISTS: [&str; 8] =
    ["avg", "avg,max", "max,avg", "sum,min", "min,last,avg", "last,avg_zero,absmax", "absmin,avg,min,max", "avg,last"];

/// The metric that has them.
const OF_LIST: &str = "list";

/// The seconds that have points.
const SPAN: i64 = 900;

fn rules(retentions: &str, list: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let method = |method: &Aggregation| {
        format!("[{method}]\npattern = ^{method}$\nxFilesFactor = 0\naggregationMethod = {method}\n")
    };
    let mut aggregation: String = Aggregation::ALL.iter().map(method).collect();
    aggregation += &format!("[list]\npattern = ^{OF_LIST}$\nxFilesFactor = 0\naggregationMethod = {list}\n");
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

/// `1s:2h` and so on as a retention.
fn retention(text: &str) -> Retention {
    let seconds = |text: &str| {
        let (number, unit) = text.split_at(text.len() - 1);
        let unit = match unit {
            "s" => 1,
            "h" => 3600,
            "d" => 86_400,
            _ => panic!("{text}"),
        };
        number.parse::<u32>().unwrap() * unit
    };
    let stage = |stage: &str| {
        let (step, kept) = stage.split_once(':').unwrap();
        format!("{}*{}s", seconds(kept) / seconds(step), seconds(step))
    };
    let stages: Vec<String> = text.split(',').map(stage).collect();
    stages.join(":").parse().unwrap()
}

/// A point as it came: under a policy of this finest step.
#[derive(Debug, Clone, Copy)]
struct Write {
    order: usize,
    step: i64,
    value: f64,
}

/// The last point of each finest step and slot.
#[derive(Debug, Default, Clone)]
struct Model {
    /// By time of the slot and step.
    writes: BTreeMap<(Timestamp, i64), Write>,
    /// Points so far.
    orders: usize,
    /// What coarse slots showed since the last point of them, by step and time: no change of policy alters it.
    shown: BTreeMap<(i64, Timestamp), f64>,
}

impl Model {
    fn write(&mut self, time: Timestamp, step: i64, value: f64) {
        self.orders += 1;
        self.shown.retain(|&(step, slot), _| !(slot..slot + step).contains(&time));
        let slot = time - time % step;
        self.writes.insert((slot, step), Write { order: self.orders, step, value });
    }

    /// The last write that begins in this span.
    fn last(&self, from: Timestamp, until: Timestamp) -> Option<Write> {
        self.writes.range((from, 0)..(until, 0)).map(|(_, write)| *write).max_by_key(|write| write.order)
    }

    /// What a slot of a first stage of this step shows.
    fn finest(&self, slot: Timestamp, step: i64, method: Aggregation) -> Option<f64> {
        let last = self.last(slot, slot + step)?;
        if step <= last.step {
            return Some(last.value);
        }
        self.coarse(slot, step, last.step, method)
    }

    /// What a coarse slot shows by a policy with this finest step.
    fn coarse(&self, slot: Timestamp, step: i64, finest: i64, method: Aggregation) -> Option<f64> {
        let finer = (slot..slot + step).step_by(finest as usize);
        let all = finer.filter_map(|finer| self.finest(finer, finest, method)).map(Partial::point);
        let all = all.fold(Partial::NONE, |all, point| method.merge(all, point));
        (all.count > 0).then(|| method.finish(all, (step / finest) as u32, 0.0))
    }
}

struct Life {
    run: tokio::runtime::Runtime,
    ingest: Arc<Ingest>,
}

impl Life {
    fn begin(dir: &Path, driver: &Arc<MemoryDriver>, retentions: &str, list: &str) -> Life {
        let run = runtime(2);
        let ingest = run.block_on(async {
            let options = options(dir, Duration::from_millis(20));
            Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules(retentions, list)).await.unwrap()
        });
        Life { run, ingest }
    }

    fn send(&self, name: &str, points: &[(Timestamp, f64)]) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        points.iter().for_each(|&(time, value)| batch.point(name.as_bytes(), time, value));
        self.run.block_on(self.ingest.accept(&mut batch));
    }

    /// The values of a stage, by a method: the first time, and the values.
    fn read(
        &self,
        name: &str,
        rollup: Option<Aggregation>,
        retention: &Retention,
        stage: usize,
    ) -> (Timestamp, Vec<f64>) {
        let registry = self.ingest.registry();
        let name = name.as_bytes();
        let metric = registry.read().find(registry.hash(name), name).expect("the metric is known");
        let now = now();
        let age = if stage == 0 { 3000 } else { retention.stages()[stage - 1].duration() + 100 };
        let request =
            SeriesRequest { metric, window: Window::between(now - age, now), now, max_points: 1 << 20, rollup };
        let series = self.run.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
        assert_eq!(series.step, retention.stages()[stage].resolution());
        (series.start, series.values)
    }

    /// Compares every slot of every stage, by every method of the list.
    fn check(
        &self,
        models: &mut BTreeMap<(&str, Aggregation), Model>,
        base: Timestamp,
        history: &[&str],
        list: Methods,
        what: &str,
    ) -> Result<(), String> {
        let text = history.last().unwrap();
        let retention = retention(text);
        let of_list = list.iter().map(|method| (OF_LIST, method, Some(method)));
        let first = list.first().map(|method| (OF_LIST, method, None));
        for (name, method, rollup) in
            Aggregation::ALL.map(|method| (method.name(), method, None)).into_iter().chain(of_list).chain(first)
        {
            let Some(model) = models.get_mut(&(name, method)) else { continue };
            let mut finer = Shown::default();
            for (stage, of) in retention.stages().iter().enumerate() {
                let step = i64::from(of.resolution());
                let (start, values) = self.read(name, rollup, &retention, stage);
                for (i, &value) in values.iter().enumerate() {
                    let slot = start + i as i64 * step;
                    if value.is_nan() && (slot + step <= base || base + SPAN <= slot) {
                        continue;
                    }
                    let wanted = Wanted::of(model, slot, step, stage, history, method);
                    // What its finer slots show was compared before: each may have the points of another policy.
                    let is_fold = finer
                        .fold(slot, step, method)
                        .is_some_and(|fold| Wanted::AnyOf(vec![Some(fold)]).is_met_by(value));
                    let is_as_before = model
                        .shown
                        .get(&(step, slot))
                        .is_some_and(|&before| Wanted::AnyOf(vec![Some(before)]).is_met_by(value));
                    if !wanted.is_met_by(value) && !is_fold && !is_as_before {
                        return Err(format!(
                            "{name} ({method}) at {} + {} ({step} s), {what}: {value}, expected {wanted:?}; {history:?}",
                            slot - slot % 300,
                            slot % 300
                        ));
                    }
                    if 0 < stage && !value.is_nan() {
                        model.shown.insert((step, slot), value);
                    }
                }
                finer = Shown { start, step, values };
            }
        }
        Ok(())
    }
}

/// What a stage shows.
#[derive(Debug, Default)]
struct Shown {
    start: Timestamp,
    step: i64,
    values: Vec<f64>,
}

impl Shown {
    /// The aggregate of the slots under a coarser one, where all are read. Not of a mean, which has weights.
    fn fold(&self, slot: Timestamp, step: i64, method: Aggregation) -> Option<f64> {
        if self.step == 0 || slot < self.start || matches!(method, Aggregation::Average | Aggregation::AvgZero) {
            return None;
        }
        let first = ((slot - self.start) / self.step) as usize;
        let finer = self.values.get(first..first + (step / self.step) as usize)?;
        let points = finer.iter().filter(|value| !value.is_nan()).map(|&value| Partial::point(value));
        let all = points.fold(Partial::NONE, |all, point| method.merge(all, point));
        (0 < all.count).then(|| method.finish(all, all.count, 0.0))
    }
}

/// The right answers for a slot.
#[derive(Debug)]
enum Wanted {
    /// One of these.
    AnyOf(Vec<Option<f64>>),
    /// A mean over slots of different steps, each weighed as the policy that wrote it does.
    Between(f64, f64),
}

impl Wanted {
    fn of(model: &Model, slot: Timestamp, step: i64, stage: usize, history: &[&str], method: Aggregation) -> Wanted {
        let steps_of =
            |text: &&str| retention(text).stages().iter().map(|of| i64::from(of.resolution())).collect::<Vec<_>>();
        let finest: BTreeSet<i64> = history.iter().flat_map(steps_of).collect();
        let last = model.last(slot, slot + step);
        // A point of a step as coarse, or coarser, is what the slot shows until a finer one comes.
        let is_point = last.is_some_and(|last| step <= last.step);
        let values: Vec<Write> = model.writes.range((slot, 0)..(slot + step, 0)).map(|(_, write)| *write).collect();
        let steps: BTreeSet<i64> = values.iter().map(|write| write.step).collect();
        let is_mean = matches!(method, Aggregation::Average | Aggregation::AvgZero);
        let is_of_many = 1 < history.iter().map(|text| retention(text).finest()).collect::<BTreeSet<_>>().len();
        if is_mean && is_of_many && !values.is_empty() {
            let bound = values.iter().map(|write| write.value.abs()).fold(0.0, f64::max);
            return Wanted::Between(-bound, bound);
        }
        if stage == 0 && is_point && steps.len() == 1 {
            return Wanted::AnyOf(vec![model.finest(slot, step, method)]);
        }
        let finest = finest.into_iter().filter(|finest| step % finest == 0);
        let mut all: Vec<Option<f64>> = finest.map(|finest| model.coarse(slot, step, finest, method)).collect();
        all.extend(last.filter(|_| is_point).map(|last| Some(last.value)));
        Wanted::AnyOf(all)
    }

    fn is_met_by(&self, value: f64) -> bool {
        let is_same = |want: &Option<f64>| match want {
            None => value.is_nan(),
            Some(want) => (value - want).abs() <= 1e-9 * want.abs().max(1.0),
        };
        match self {
            Wanted::AnyOf(all) => all.iter().any(is_same),
            Wanted::Between(low, high) => (low - 1e-9..=high + 1e-9).contains(&value),
        }
    }
}

/// A random run.
fn run(seed: u64, steps: usize, retentions: &[&'static str]) -> Result<(), String> {
    let random = SeededRandom::new(seed);
    let any = |count: usize| random.below(count as u64) as usize;
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let mut history = vec![retentions[any(retentions.len())]];
    let mut models: BTreeMap<(&str, Aggregation), Model> = BTreeMap::new();
    // Of several first steps a metric with a list is not compared here: points that finer ones replace have one value.
    let has_list = retentions.iter().map(|text| retention(text).finest()).all(|first| first.resolution() == 1);
    let mut list = LISTS[any(LISTS.len())];
    let mut life = Life::begin(dir.path(), &driver, history[0], list);
    let base = (now() - 2400) / 300 * 300;
    let mut log = Vec::new();
    for round in 0..steps {
        match any(10) {
            0..4 => {
                let names = Aggregation::ALL.map(|method| (method.name(), vec![method])).into_iter();
                for (name, methods) in names.chain(has_list.then(|| (OF_LIST, Aggregation::ALL.to_vec()))) {
                    let mut points = Vec::new();
                    for _ in 0..1 + any(2) {
                        let (start, skip) = (base + any(SPAN as usize) as i64, 1 + any(3) as i64);
                        let times =
                            (0..1 + any(60) as i64).map(|i| start + i * skip).filter(|time| *time < base + SPAN);
                        points.extend(times.map(|time| (time, (any(2001) as f64 - 1000.0) / 8.0)));
                    }
                    let finest = i64::from(retention(history.last().unwrap()).finest().resolution());
                    for method in methods {
                        let model = models.entry((name, method)).or_default();
                        points.iter().for_each(|&(time, value)| model.write(time, finest, value));
                    }
                    log.push(format!(
                        "send {name} {:?}",
                        points.iter().map(|(t, v)| (t - base, *v)).collect::<Vec<_>>()
                    ));
                    life.send(name, &points);
                }
            }
            4..7 => {
                let next = retentions[any(retentions.len())];
                list = LISTS[any(LISTS.len())];
                log.push(format!("change to {next} {list}"));
                life.run.block_on(life.ingest.set_rules(rules(next, list)));
                if models.is_empty() {
                    history.clear();
                }
                history.push(next);
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
                life = Life::begin(dir.path(), &driver, history.last().unwrap(), list);
            }
        }
        let checked = life.check(
            &mut models,
            base,
            &history,
            list.parse().expect("a list of methods"),
            &format!("after round {round}: {}", log.last().unwrap().split_at(4).0),
        );
        if let Err(error) = checked {
            if std::env::var("LOG").is_ok() {
                let name = error.split(' ').next().unwrap().to_owned();
                log.iter()
                    .filter(|line| !line.starts_with("send") || line.starts_with(&format!("send {name} ")))
                    .for_each(|line| println!("{line}"));
                println!("base {base}");
            }
            return Err(format!("SEED={seed}: {error}"));
        }
    }
    Ok(())
}

fn runs(count: u64, pools: &[&[&'static str]]) {
    let failed: Vec<String> =
        seeds(count).filter_map(|seed| run(seed, 14, pools[seed as usize % pools.len()]).err()).collect();
    assert!(failed.is_empty(), "{}: {failed:#?}", failed.len());
}

#[test]
fn retentions_of_one_finest_step_agree_with_a_naive_model() {
    runs(3, &[&OF_SECONDS]);
}

#[test]
fn retentions_of_several_finest_steps_agree_with_a_naive_model() {
    runs(4, &[&OF_STEPS]);
}

#[test]
fn retentions_that_share_a_coarse_table_agree_with_a_naive_model() {
    runs(3, &SHARING.each_ref().map(|pair| &pair[..]));
}

#[test]
fn retentions_of_three_finest_steps_that_share_coarse_tables_agree_with_a_naive_model() {
    runs(4, &OF_THREE_STEPS);
}

#[test]
fn retentions_of_coarse_steps_that_do_not_divide_agree_with_a_naive_model() {
    runs(5, &UNDIVIDED);
}
