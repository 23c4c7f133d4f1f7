//! A method of a list shows what it shows alone, or the lineage names another one: while points expire, come late, and the rules
//! change there and back.
//!
//! One metric has the lists. For each method another metric has the same points and the method alone, all the time. An answer
//! for the list whose lineage has one method is the answer of that metric; any answer has a value in the same slots. Time is
//! moved by the test. Every run prints its seed; `SEED=…` repeats one, and prints the fewest steps that fail.

mod support;

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use carbon::{Decision, RuleFiles, Rules, Sink as _};
use host::{Clock as _, Host, ManualClock, Random, SeededRandom};
use ingest::{Ingest, Protocol};
use metric::{Aggregation, Methods, Timestamp, Window};
use store::{FetchedSeries, MemoryDriver, SeriesRequest};
use support::{options, registry_of, runtime};

/// A whole hour of a day in 2026.
const BEGIN: Timestamp = 1_795_000_000 / 3600 * 3600;

const METHODS: [Aggregation; 6] = [
    Aggregation::Average,
    Aggregation::Max,
    Aggregation::Min,
    Aggregation::Last,
    Aggregation::Sum,
    Aggregation::AvgZero,
];

/// Short stages of the same steps, so that points expire, come for coarser stages, and are of two stages in one slot. A slot of a step
/// that only an older policy has may lack late points (decision 5), by which the metrics would differ.
const RETENTIONS: [&str; 4] =
    ["1s:40s,5s:5m,30s:2h", "1s:1m,5s:10m,30s:4h", "1s:2m,5s:4m,30s:2h", "1s:1m,5s:10m,30s:2h"];

/// Ages up to which answers are compared: each is of another stage.
const AGES: [i64; 6] = [30, 150, 280, 550, 3600, 7100];

#[derive(Debug, Clone)]
enum Step {
    Points(Vec<(Timestamp, f64)>),
    Rules(String, &'static str),
    Flush,
    Stop,
    Kill,
    Wait(u64),
}

fn alone(method: Aggregation) -> String {
    format!("alone-{method}")
}

fn rules(list: &str, retentions: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let rule = |name: &str, methods: &str| {
        format!("[{name}]\npattern = ^{name}$\nxFilesFactor = 0\naggregationMethod = {methods}\n")
    };
    let mut aggregation = rule("list", list);
    METHODS.into_iter().for_each(|method| aggregation += &rule(&alone(method), method.name()));
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

struct Life {
    run: tokio::runtime::Runtime,
    ingest: Arc<Ingest>,
    clock: Arc<ManualClock>,
}

impl Life {
    fn begin(dir: &Path, driver: &Arc<MemoryDriver>, clock: &Arc<ManualClock>, rules: Rules) -> Life {
        let run = runtime(1);
        let ingest = run.block_on(async {
            let mut options = options(dir, Duration::from_millis(20));
            options.host = Host { clock: clock.clone(), ..Host::system() };
            Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules).await.unwrap()
        });
        Life { run, ingest, clock: clock.clone() }
    }

    fn send(&self, points: &[(Timestamp, f64)]) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        for name in std::iter::once("list".to_owned()).chain(METHODS.into_iter().map(alone)) {
            points.iter().for_each(|&(time, value)| batch.point(name.as_bytes(), time, value));
        }
        self.run.block_on(self.ingest.accept(&mut batch));
    }

    fn read(&self, name: &str, rollup: Option<Aggregation>, age: i64) -> Option<FetchedSeries> {
        let registry = self.ingest.registry();
        let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())?;
        let now = self.clock.now();
        let window = Window::between(now - age, now);
        let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup };
        self.run.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0)
    }

    /// Compares each method of the list with the metric that has it alone.
    fn check(&self, list: &str, waiting: &mut Waiting) -> Result<(), String> {
        let methods: Methods = list.parse().unwrap();
        for (method, age) in methods.iter().flat_map(|method| AGES.map(|age| (method, age))) {
            let (of_list, of_one) = (self.read("list", Some(method), age), self.read(&alone(method), None, age));
            let (Some(of_list), Some(of_one)) = (of_list, of_one) else { continue };
            if difference(&of_list, &of_one, waiting).is_none() {
                continue;
            }
            // A point that is only in memory may be missing in a slot whose finer ones have expired, until it is stored.
            self.run.block_on(self.ingest.flush()).unwrap();
            waiting.are_stored();
            let of_one = self.read(&alone(method), None, age).ok_or("none once it is stored")?;
            if let Some(difference) = difference(&of_list, &of_one, waiting) {
                return Err(format!("{method}, age {age}: {difference}, named: {:?}", of_list.other_methods()));
            }
        }
        Ok(())
    }
}

/// Points that are only in memory.
#[derive(Default)]
struct Waiting {
    /// Times, and from when on the first stage in which each is does not keep it.
    points: Vec<(Timestamp, Timestamp)>,
    /// Times of points that the first stage did not keep until they were stored: coarse slots have them or lack them (decision 5).
    overdue: Vec<Timestamp>,
}

impl Waiting {
    /// Those that are too old for the first stage are in a coarser one.
    fn came(&mut self, points: &[(Timestamp, f64)], now: Timestamp, rules: &Rules) {
        let Decision::Keep(policy) = rules.decide("list") else { panic!("the rules are for all names") };
        let kept = rules.policy(policy).retention.finest().duration();
        let until = points.iter().map(|(time, _)| (*time, time + kept));
        self.points.extend(until.filter(|(_, until)| now <= *until));
    }

    fn are_at(&mut self, now: Timestamp) {
        let overdue = self.points.extract_if(.., |(_, until)| *until < now);
        self.overdue.extend(overdue.map(|(time, _)| time));
    }

    fn are_stored(&mut self) {
        self.points.clear();
    }

    fn had(&self, slot: Range<Timestamp>) -> bool {
        self.overdue.iter().any(|time| slot.contains(time))
    }
}

/// The first slot in which a list shows something else than the method alone, though the lineage names no other.
fn difference(of_list: &FetchedSeries, of_one: &FetchedSeries, waiting: &Waiting) -> Option<String> {
    assert_eq!((of_list.start, of_list.step), (of_one.start, of_one.step));
    let is_named = !of_list.other_methods().is_empty();
    of_list.values.iter().zip(&of_one.values).enumerate().find_map(|(i, (&value, &wanted))| {
        let is_same = (value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0);
        let step = i64::from(of_list.step);
        let time = of_list.start + i as i64 * step;
        let is_other = value.is_nan() != wanted.is_nan() || !(is_named || value.is_nan() || is_same);
        let is_other = is_other && !waiting.had(time..time + step);
        is_other.then(|| format!("{} ({step} s): {value}, alone {wanted}", time - BEGIN))
    })
}

/// Takes the steps, and compares after each.
fn take(steps: &[Step]) -> Result<(), String> {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let clock = Arc::new(ManualClock::at(BEGIN));
    let mut in_force = ("avg".to_owned(), RETENTIONS[0]);
    let mut waiting = Waiting::default();
    let mut life = Life::begin(dir.path(), &driver, &clock, rules(&in_force.0, in_force.1));
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Points(points) => {
                waiting.came(points, clock.now(), &rules(&in_force.0, in_force.1));
                life.send(points);
            }
            Step::Rules(list, retentions) => {
                in_force = (list.clone(), retentions);
                life.run.block_on(life.ingest.set_rules(rules(list, retentions)));
            }
            Step::Flush => {
                life.run.block_on(life.ingest.flush()).unwrap();
                waiting.are_stored();
            }
            Step::Stop | Step::Kill => {
                if matches!(step, Step::Stop) {
                    life.run.block_on(life.ingest.close_patiently(Duration::from_secs(60))).unwrap();
                    waiting.are_stored();
                }
                drop(life);
                life = Life::begin(dir.path(), &driver, &clock, rules(&in_force.0, in_force.1));
            }
            Step::Wait(seconds) => {
                clock.advance(Duration::from_secs(*seconds));
                waiting.are_at(clock.now());
            }
        }
        life.check(&in_force.0, &mut waiting).map_err(|error| format!("after step {i}: {error}"))?;
    }
    Ok(())
}

/// Random steps.
fn steps(seed: u64, count: usize) -> Vec<Step> {
    let random = SeededRandom::new(seed);
    let any = |count: usize| random.below(count as u64) as usize;
    let any_list = || {
        let mut methods = Methods::NONE;
        let count = [1, 1, 2, 2, 3, 4][any(6)];
        // Between single methods of sums and means the numbers stay, and nothing is named (decision 5).
        let of = if count == 1 { &METHODS[..4] } else { &METHODS };
        while methods.len() < count {
            methods.add(of[any(of.len())]);
        }
        methods.to_string()
    };
    let any_value = || (any(2001) as f64 - 1000.0) / 8.0;
    let (mut list, mut retentions) = (any_list(), RETENTIONS[any(RETENTIONS.len())]);
    let (mut lists, mut now) = (vec![list.clone()], BEGIN);
    let mut steps = vec![Step::Rules(list.clone(), retentions)];
    for _ in 0..count {
        // Changes of rules have seconds of their own.
        now += 1;
        steps.push(Step::Wait(1));
        let step = match any(16) {
            0..5 => {
                let (start, skip) = (now - 3 - any(198) as i64, [1, 1, 2, 7][any(4)]);
                let times = (0..1 + any(120) as i64).map(|i| start + i * skip);
                Step::Points(times.take_while(|time| *time < now).map(|time| (time, any_value())).collect())
            }
            5..8 => {
                let (start, skip) = (now - [100, 400, 2000, 6000][any(4)] - any(60) as i64, [1, 6, 30][any(3)]);
                let times = (0..1 + any(60) as i64).map(|i| start + i * skip);
                Step::Points(times.take_while(|time| *time < now).map(|time| (time, any_value())).collect())
            }
            8..10 => Step::Flush,
            10 => Step::Stop,
            11 => Step::Kill,
            12 => Step::Wait([3, 10, 20, 100][any(4)]),
            change => {
                if change < 15 {
                    list = if any(3) == 0 { lists[any(lists.len())].clone() } else { any_list() };
                    lists.push(list.clone());
                } else {
                    retentions = RETENTIONS[any(RETENTIONS.len())];
                }
                Step::Rules(list.clone(), retentions)
            }
        };
        if let Step::Wait(seconds) = &step {
            now += *seconds as i64;
        }
        steps.push(step);
    }
    steps
}

/// The fewest of the steps, and of their points, that fail.
fn fewest(mut steps: Vec<Step>) -> Vec<Step> {
    loop {
        let mut is_fewer = false;
        let mut place = steps.len();
        while 0 < place {
            place -= 1;
            let mut fewer = steps.clone();
            fewer.remove(place);
            if take(&fewer).is_err() {
                (steps, is_fewer) = (fewer, true);
                continue;
            }
            let Step::Points(points) = &steps[place] else { continue };
            let mut part = points.len() / 2;
            while 0 < part {
                let Step::Points(points) = steps[place].clone() else { break };
                for from in (0..points.len()).step_by(part) {
                    let mut left = points.clone();
                    left.drain(from..(from + part).min(points.len()));
                    let mut fewer = steps.clone();
                    fewer[place] = Step::Points(left);
                    if take(&fewer).is_err() {
                        (steps, is_fewer) = (fewer, true);
                        break;
                    }
                }
                let Step::Points(left) = &steps[place] else { break };
                part = if left.len() < points.len() { part.min(left.len() / 2) } else { part / 2 };
            }
        }
        if !is_fewer {
            return steps;
        }
    }
}

#[test]
fn a_method_of_a_list_shows_what_it_shows_alone_or_names_another_while_points_expire() {
    let seeds = support::seeds(4);
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        let steps = steps(seed, 30);
        if let Err(error) = take(&steps) {
            failed.push(format!("SEED={seed}: {error}"));
            if seeds.clone().count() == 1 {
                let fewest = fewest(steps);
                let error = take(&fewest).err().unwrap_or(error);
                let of_begin = |step: &Step| match step {
                    Step::Points(points) => {
                        format!(
                            "Points({:?})",
                            points.iter().map(|(time, value)| (time - BEGIN, value)).collect::<Vec<_>>()
                        )
                    }
                    step => format!("{step:?}"),
                };
                println!("{error}\n{:#?}", fewest.iter().map(of_begin).collect::<Vec<_>>());
            }
        }
    }
    assert!(failed.is_empty(), "{}: {failed:#?}", failed.len());
}

/// Points, with times counted from the begin.
fn points(points: &[(Timestamp, f64)]) -> Step {
    Step::Points(points.iter().map(|(time, value)| (BEGIN + time, *value)).collect())
}

/// Takes the steps, and then a flush, a kill, or a stop.
fn holds(steps: &[Step]) {
    for last in [Step::Flush, Step::Kill, Step::Stop] {
        assert_eq!(take(&[steps, std::slice::from_ref(&last)].concat()), Ok(()), "{last:?}");
    }
}

fn rule(list: &str, retentions: &'static str) -> Step {
    Step::Rules(list.to_owned(), retentions)
}

#[test]
fn a_point_that_was_too_old_for_the_first_stage_stays_where_policies_without_the_method_come_between() {
    // The first stage, which the policies share, has a point of the minute as well.
    let steps = [
        rule("min,avg", "1s:2m,60s:2h"),
        Step::Wait(6),
        points(&[(-115, -90.0), (-65, -30.0)]),
        rule("max,avg", "1s:2m,60s:2h"),
        rule("avg,min", "1s:1m,10s:10m,60s:4h"),
    ];
    holds(&steps);
}

#[test]
fn a_slot_that_an_older_policy_has_as_a_whole_is_not_made_of_a_part_of_it() {
    let steps = [
        rule("avg", "1s:2m,60s:2h"),
        points(&[(-386, 15.25)]),
        rule("avg", "1s:1m,10s:10m,60s:4h"),
        points(&[(-366, 49.25)]),
        rule("avg_zero,avg", "1s:1m,10s:10m,60s:4h"),
    ];
    holds(&steps);
}

#[test]
fn a_point_for_a_whole_slot_is_shown_by_a_method_that_comes_back_though_the_first_stage_still_has_the_slot() {
    let minute: Vec<(Timestamp, f64)> = (-60..0).map(|time| (time, time as f64)).collect();
    let steps = [
        rule("avg,min", "1s:2m,60s:2h"),
        points(&minute),
        Step::Wait(110),
        rule("last,max", "1s:2m,60s:2h"),
        points(&[(-12, 88.125)]),
        rule("avg,min", "1s:2m,60s:2h"),
    ];
    holds(&steps);
}

#[test]
fn what_came_while_a_method_was_away_is_named_once_it_is_back() {
    let (begin, away) = ("1s:40s,5s:5m,30s:2h", points(&[(-131, 118.375), (-126, 116.125)]));
    for lists in [["max", "min", "max"], ["avg", "max", "avg"], ["min", "sum,max", "min"]] {
        // One stage after the other: alone, with earlier slots, and with a list before.
        for before in ["max", "min,avg", lists[0]] {
            let mut steps = vec![rule(before, begin), points(&[(-5791, -72.125)])];
            for list in lists {
                steps.extend([rule(list, begin), Step::Wait(1)]);
                steps.extend((list == lists[1]).then(|| away.clone()));
            }
            holds(&steps);
        }
    }
}

/// Seed 1040: the points of the slot, which the first stage of a policy without a row of the slot has as well, count as many.
#[test]
fn a_point_for_a_whole_slot_stays_where_a_policy_with_the_same_first_stage_comes_between() {
    let (shared, after) = ("1s:40s,5s:5m,30s:2h", "1s:1m,5s:10m,30s:2h");
    for (begin, between) in [("min,last", "avg,min"), ("min", "avg,min")] {
        let steps = [
            rule(begin, "1s:2m,5s:4m,30s:2h"),
            Step::Wait(3),
            points(&[(-30, -111.125), (-29, -53.625), (-28, -22.0), (-27, 24.375)]),
            Step::Wait(6),
            rule("min", shared),
            Step::Wait(1),
            points(&[(-26, -120.25)]),
            Step::Wait(2),
            points(&[(-29, -92.125)]),
            rule(between, shared),
            Step::Wait(1),
            rule(between, after),
        ];
        holds(&steps);
    }
}
