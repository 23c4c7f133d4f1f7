//! Late points after a change to longer retentions: the first stage has them, and coarse slots have them and all that was accepted
//! before, though its points have expired from the earlier first stage or were too old for it.
//!
//! Random points, flushes, restarts and expiry against a naive model, for all eight methods, with policies of one and of several
//! first steps. Time is moved by the test. Every run prints its seed; `SEED=…` repeats one, `SEEDS=…` takes that many.

mod support;

use std::{collections::BTreeMap, ops::RangeInclusive, path::Path, sync::Arc, time::Duration};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Clock as _, Host, ManualClock, Random, SeededRandom};
use ingest::{Ingest, IngestOptions, Protocol};
use metric::{Aggregation, Partial, Timestamp, Window};
use store::{MemoryDriver, PointStore as _, SeriesRequest};
use support::{options, registry_of, runtime};

/// A whole hour of a day in 2026.
const BEGIN: Timestamp = 1_795_000_000 / 3600 * 3600;
/// The seconds that have points.
const SPAN: i64 = 1200;
const HOUR: i64 = 3600;

/// A policy: its rule, and the step and age of each stage.
#[derive(Debug, Clone, Copy)]
struct Stages {
    rule: &'static str,
    /// Step, and seconds that the stage keeps.
    stages: &'static [(i64, i64)],
}

const fn stages(rule: &'static str, stages: &'static [(i64, i64)]) -> Stages {
    Stages { rule, stages }
}

const DAY: i64 = 24 * HOUR;

/// A policy, and the one after it. The first stage of the later one keeps points longer.
const CHANGES: [[Stages; 2]; 8] = [
    [
        stages("10s:6h,60s:7d", &[(10, 6 * HOUR), (60, 7 * DAY)]),
        stages("10s:1d,120s:30d", &[(10, DAY), (120, 30 * DAY)]),
    ],
    [
        stages("10s:6h,60s:7d", &[(10, 6 * HOUR), (60, 7 * DAY)]),
        stages("10s:1d,60s:30d,600s:60d", &[(10, DAY), (60, 30 * DAY), (600, 60 * DAY)]),
    ],
    // Their minutes are in one table.
    [stages("10s:6h,60s:7d", &[(10, 6 * HOUR), (60, 7 * DAY)]), stages("10s:1d,60s:7d", &[(10, DAY), (60, 7 * DAY)])],
    [
        stages("10s:6h,60s:7d,600s:60d", &[(10, 6 * HOUR), (60, 7 * DAY), (600, 60 * DAY)]),
        stages("10s:1d,120s:30d,600s:60d", &[(10, DAY), (120, 30 * DAY), (600, 60 * DAY)]),
    ],
    [stages("1s:2h,60s:7d", &[(1, 2 * HOUR), (60, 7 * DAY)]), stages("1s:1d,300s:30d", &[(1, DAY), (300, 30 * DAY)])],
    // Of several first steps.
    [stages("10s:6h,60s:7d", &[(10, 6 * HOUR), (60, 7 * DAY)]), stages("5s:1d,120s:30d", &[(5, DAY), (120, 30 * DAY)])],
    [stages("1s:2h,60s:7d", &[(1, 2 * HOUR), (60, 7 * DAY)]), stages("10s:1d,300s:30d", &[(10, DAY), (300, 30 * DAY)])],
    [
        stages("60s:6h,300s:7d", &[(60, 6 * HOUR), (300, 7 * DAY)]),
        stages("10s:1d,600s:30d", &[(10, DAY), (600, 30 * DAY)]),
    ],
];

fn rules(retentions: &str) -> Rules {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let method = |method: &Aggregation| {
        format!("[{method}]\npattern = ^{method}$\nxFilesFactor = 0\naggregationMethod = {method}\n")
    };
    let aggregation: String = Aggregation::ALL.iter().map(method).collect();
    let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
    Rules::parse(files).expect("good rules").0
}

#[derive(Debug, Clone)]
enum Step {
    Points(Vec<(Timestamp, f64)>),
    Change,
    Back,
    Flush,
    Stop,
    Kill,
    /// Flushes, and then lets the earlier first stage expire.
    Expire,
}

/// Points that are left as a coarse row alone.
#[derive(Debug, Clone, Copy)]
struct Row {
    begin: Timestamp,
    step: i64,
    /// In the terms of the earlier policy.
    partial: Partial,
}

/// What was accepted, of one method.
#[derive(Debug, Clone)]
struct Model {
    method: Aggregation,
    /// Points of the earlier policy, by slot of its first stage.
    earlier: BTreeMap<Timestamp, f64>,
    rows: Vec<Row>,
    /// Points of the later policy: the values that a slot of its first stage had.
    later: BTreeMap<Timestamp, Vec<f64>>,
}

impl Model {
    /// A flush: a point of a coarser first stage that finer points of its slot came after is kept among these, at its own time.
    fn keep_coarser_points(&mut self, first: i64) {
        let Model { earlier, later, .. } = self;
        earlier.retain(|&time, value| {
            let is_kept_alone = later.range(time..time + first).next().is_none();
            if !is_kept_alone {
                later.insert(time, vec![*value]);
            }
            is_kept_alone
        });
    }

    /// What a slot shows by a policy: a value of one of these ranges.
    fn wanted(&self, (slot, step): (Timestamp, i64), all: &[Stages; 2], by: usize) -> Vec<RangeInclusive<f64>> {
        let inner = |of: usize| all[of].stages.iter().map(|of| of.0).filter(|of| *of <= step).nth(1);
        // A row above those of both policies is made of those of one of them.
        let is_above = inner(by) != Some(step);
        let by_each = [by, 1 - by].into_iter().take(if is_above { 2 } else { 1 });
        by_each.flat_map(|of| self.wanted_of((slot, step), all, (by, inner(of).map(|inner| (inner, of))))).collect()
    }

    /// The same, where the slots of a policy above its first stage have all that they have in this one once it is full.
    fn wanted_of(
        &self,
        (slot, step): (Timestamp, i64),
        all: &[Stages; 2],
        (by, inner): (usize, Option<(i64, usize)>),
    ) -> Vec<RangeInclusive<f64>> {
        let finest = |of: usize| all[of].stages[0].0;
        let (end, method) = (slot + step, self.method);
        let is_full = |time: Timestamp, (inner, of): (i64, usize)| {
            let begin = time - time % inner;
            let mut slots = (begin..begin + inner).step_by(finest(of) as usize);
            slots.all(|time| self.later.range(time..time + finest(of)).next().is_some())
        };
        let rows: Vec<&Row> = self.rows.iter().filter(|row| slot <= row.begin && row.begin < end).collect();
        let (gone, left): (Vec<&Row>, Vec<&Row>) =
            rows.into_iter().partition(|row| inner.is_some_and(|inner| is_full(row.begin, inner)));
        let points = self.earlier.range(slot..end).map(|(time, value)| (*time, Partial::point(*value)));
        let later = self.later.range(slot..end);
        let later_points = later.clone().map(|(time, values)| (*time, Partial::point(*values.last().unwrap())));
        let of_rows = left.iter().map(|row| (row.begin, row.partial));
        let mut units: Vec<(Timestamp, bool, Partial)> =
            points.chain(of_rows).map(|(time, of)| (time, false, of)).collect();
        units.extend(later_points.map(|(time, of)| (time, true, of)));
        units.sort_by_key(|(time, is_later, _)| (*time, *is_later));
        let fold = |units: &mut dyn Iterator<Item = Partial>| units.fold(Partial::NONE, |a, b| method.merge(a, b));
        let made = fold(&mut units.iter().map(|(.., of)| *of));
        if made.count == 0 {
            return Vec::new();
        }
        let shown = |of: Partial| method.finish(of, (step / finest(by)) as u32, 0.0);
        let same = |value: f64| value - 1e-6..=value + 1e-6;
        let is_mean = matches!(method, Aggregation::Average | Aggregation::AvgZero);
        if is_mean && finest(0) != finest(1) {
            // Each slot weighs as the policy that stored it has it.
            let bound = self.rows.iter().map(|row| row.partial.value.abs());
            let bound = bound.chain(units.iter().map(|(.., of)| of.value.abs())).fold(0.0, f64::max);
            return vec![-bound..=bound];
        }
        let value = shown(made);
        let is_extreme =
            matches!(method, Aggregation::Max | Aggregation::Min | Aggregation::AbsMax | Aggregation::AbsMin);
        if is_extreme && !(left.is_empty() && gone.is_empty()) {
            // An extreme that was replaced may stay.
            let replaced = later.flat_map(|(_, values)| values.iter().map(|value| Partial::point(*value)));
            let gone = gone.iter().map(|row| row.partial);
            let most = shown(method.merge(made, fold(&mut replaced.chain(gone))));
            return vec![value.min(most) - 1e-6..=value.max(most) + 1e-6];
        }
        // Whether the last point of a row is before or after those that came late in its slot is known as long as it is there.
        let last_row = left.iter().max_by_key(|row| row.begin).filter(|row| {
            method == Aggregation::Last && units.last().is_some_and(|(time, ..)| *time < row.begin + row.step)
        });
        std::iter::once(same(value)).chain(last_row.map(|row| same(row.partial.value))).collect()
    }
}

struct Life {
    run: tokio::runtime::Runtime,
    ingest: Arc<Ingest>,
}

impl Life {
    fn begin(dir: &Path, driver: &Arc<MemoryDriver>, clock: &Arc<ManualClock>, rules: Rules) -> Life {
        let run = runtime(1);
        let ingest = run.block_on(async {
            let host = Host { clock: clock.clone(), ..Host::system() };
            let options = IngestOptions { host, ..options(dir, Duration::from_millis(20)) };
            Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules).await.unwrap()
        });
        Life { run, ingest }
    }

    fn send(&self, points: &[(Timestamp, f64)]) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        for method in Aggregation::ALL {
            points.iter().for_each(|&(time, value)| batch.point(method.name().as_bytes(), time, value));
        }
        self.run.block_on(self.ingest.accept(&mut batch));
    }

    fn check(
        &self,
        now: Timestamp,
        models: &[Model],
        all: &[Stages; 2],
        by: usize,
        later: &BTreeMap<Timestamp, f64>,
    ) -> Result<(), String> {
        for model in models {
            let name = model.method.name();
            let registry = self.ingest.registry();
            let Some(metric) = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()) else { continue };
            for (stage, &(step, kept)) in all[by].stages.iter().enumerate() {
                let age = if stage == 0 { kept.min(now - BEGIN) } else { all[by].stages[stage - 1].1 + HOUR };
                if now - age > BEGIN {
                    continue;
                }
                let window = Window::between(now - age, now);
                let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: None };
                let series = self.run.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
                if i64::from(series.step) != step {
                    continue;
                }
                for slot in (BEGIN..BEGIN + SPAN).step_by(step as usize) {
                    let place = (slot - series.start) / step;
                    let Some(&value) = usize::try_from(place).ok().and_then(|place| series.values.get(place)) else {
                        continue;
                    };
                    let wanted = match stage {
                        0 => later.get(&slot).filter(|_| by == 1).map(|value| *value..=*value).into_iter().collect(),
                        _ => model.wanted((slot, step), all, by),
                    };
                    let is_none = wanted.is_empty() && (stage == 0 || value.is_nan());
                    let is_right = is_none || wanted.iter().any(|of| of.contains(&value));
                    if !is_right {
                        return Err(format!("{name}, {step} s at {}: {value}, expected {wanted:?}", slot - BEGIN));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Takes the steps, and compares after each.
fn take(all: &[Stages; 2], steps: &[Step]) -> Result<(), String> {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let clock = Arc::new(ManualClock::at(BEGIN + SPAN + 60));
    let mut life = Life::begin(dir.path(), &driver, &clock, rules(all[0].rule));
    let new = |method| Model { method, earlier: BTreeMap::new(), rows: Vec::new(), later: BTreeMap::new() };
    let (mut models, mut by) = (Aggregation::ALL.map(new), 0);
    let (mut later, mut is_expired) = (BTreeMap::new(), false);
    let (first, coarse) = (all[0].stages[0].0, all[0].stages[1].0);
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Points(points) => {
                life.send(points);
                for model in &mut models {
                    for &(time, value) in points {
                        if by == 1 {
                            let step = all[1].stages[0].0;
                            let slot = time - time % step;
                            later.insert(slot, value);
                            model.later.entry(slot).or_default().push(value);
                            let replaced: Vec<_> =
                                model.earlier.range(slot..slot + step).map(|(slot, _)| *slot).collect();
                            replaced.iter().for_each(|slot| _ = model.earlier.remove(slot));
                        } else if is_expired {
                            let begin = time - time % coarse;
                            let partial = model.method.whole(value, (coarse / first) as u32);
                            model.rows.retain(|row| row.begin != begin);
                            model.rows.push(Row { begin, step: coarse, partial });
                        } else {
                            model.earlier.insert(time - time % first, value);
                        }
                    }
                }
            }
            Step::Change | Step::Back => {
                by = usize::from(matches!(step, Step::Change));
                life.run.block_on(life.ingest.set_rules(rules(all[by].rule)));
            }
            Step::Flush => life.run.block_on(life.ingest.flush()).unwrap(),
            Step::Stop | Step::Kill => {
                if matches!(step, Step::Stop) {
                    life.run.block_on(life.ingest.close_patiently(Duration::from_secs(60))).unwrap();
                }
                drop(life);
                life = Life::begin(dir.path(), &driver, &clock, rules(all[by].rule));
            }
            Step::Expire => {
                life.run.block_on(life.ingest.flush()).unwrap();
                clock.advance(Duration::from_secs(if is_expired { HOUR } else { all[0].stages[0].1 + HOUR } as u64));
                is_expired = true;
                life.run.block_on(driver.expire(clock.now())).unwrap();
                for model in &mut models {
                    model.keep_coarser_points(first);
                    for (time, value) in std::mem::take(&mut model.earlier) {
                        let (begin, point) = (time - time % coarse, Partial::point(value));
                        match model.rows.iter_mut().find(|row| row.begin == begin) {
                            Some(row) => row.partial = model.method.merge(row.partial, point),
                            None => model.rows.push(Row { begin, step: coarse, partial: point }),
                        }
                    }
                }
            }
        }
        life.check(clock.now(), &models, all, by, &later).map_err(|error| format!("after step {i}: {error}"))?;
        // A change of rules has a second of its own.
        clock.advance(Duration::from_secs(1));
    }
    Ok(())
}

/// Random steps.
fn steps(seed: u64) -> (&'static [Stages; 2], Vec<Step>) {
    let random = SeededRandom::new(seed);
    let any = |count: usize| random.below(count as u64) as usize;
    let all = &CHANGES[any(CHANGES.len())];
    let points = |of: usize| {
        let step = all[of].stages[0].0;
        let count = 1 + any([2, 4, 30][any(3)]);
        let (start, skip) = (any((SPAN / step) as usize) as i64, [1, 1, 3][any(3)]);
        let slots = (0..count as i64).map(|i| start + i * skip).filter(|slot| *slot < SPAN / step);
        let value = || (any(2001) as f64 - 1000.0) / 8.0;
        Step::Points(slots.map(|slot| (BEGIN + slot * step, value())).collect())
    };
    let calm = || [Step::Flush, Step::Stop, Step::Kill][any(3)].clone();
    let mut steps = Vec::new();
    for _ in 0..any(4) {
        steps.push(points(0));
        steps.extend((any(2) == 0).then(calm));
    }
    // The earlier first stage expires before the change, after it, or between late points.
    let mut is_expired = any(2) == 0;
    if is_expired {
        steps.push(Step::Expire);
        for _ in 0..any(3) {
            // For whole slots of its coarse stage.
            steps.push(points(0));
            steps.extend((any(2) == 0).then(calm));
        }
    }
    steps.push(Step::Change);
    for _ in 0..2 + any(8) {
        match any(6) {
            0..3 => steps.push(points(1)),
            3 if !is_expired => {
                is_expired = true;
                steps.push(Step::Expire);
            }
            3 => steps.push(Step::Expire),
            _ => steps.push(calm()),
        }
    }
    if any(2) == 0 {
        steps.push(Step::Back);
        steps.push(calm());
    }
    (all, steps)
}

/// The fewest of the steps, and of their points, that fail.
fn fewest(all: &[Stages; 2], mut steps: Vec<Step>) -> Vec<Step> {
    loop {
        let mut is_fewer = false;
        for place in (0..steps.len()).rev() {
            let mut fewer = steps.clone();
            let needed = matches!(fewer.remove(place), Step::Change);
            if !needed && take(all, &fewer).is_err() {
                (steps, is_fewer) = (fewer, true);
                continue;
            }
            let Step::Points(points) = steps[place].clone() else { continue };
            for point in (0..points.len()).rev() {
                let Step::Points(left) = &steps[place] else { break };
                if left.len() < 2 || left.len() <= point {
                    continue;
                }
                let mut left = left.clone();
                left.remove(point);
                let mut fewer = steps.clone();
                fewer[place] = Step::Points(left);
                if take(all, &fewer).is_err() {
                    (steps, is_fewer) = (fewer, true);
                }
            }
        }
        if !is_fewer {
            return steps;
        }
    }
}

#[test]
fn late_points_after_longer_retentions_count_in_coarse_slots_with_all_that_came_before() {
    let seeds = support::seeds(24);
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        let (all, steps) = steps(seed);
        if let Err(error) = take(all, &steps) {
            failed.push(format!("SEED={seed}: {} to {}: {error}", all[0].rule, all[1].rule));
            if seeds.clone().count() == 1 {
                let fewest = fewest(all, steps);
                let error = take(all, &fewest).err().unwrap_or(error);
                let from_begin = |step: &Step| match step {
                    Step::Points(points) => {
                        let points: Vec<_> = points.iter().map(|(time, value)| (time - BEGIN, value)).collect();
                        format!("Points({points:?})")
                    }
                    step => format!("{step:?}"),
                };
                println!("{error}\n{:#?}", fewest.iter().map(from_begin).collect::<Vec<_>>());
            }
        }
    }
    assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), seeds.count());
}

/// A point of a minute among which one of ten seconds came is kept at its own time: a later one of that time overwrites it, also
/// once the minutes have expired. Seeds 1795477873260 and 1795477873576: the comparison took it for one that only the row knows.
#[test]
fn a_coarser_point_that_is_kept_among_finer_ones_is_overwritten_at_its_own_time() {
    let all = &CHANGES[7];
    assert_eq!(all.map(|of| of.stages[0].0), [60, 10]);
    for (minute, later, value) in [(180, 230, -66.25), (1140, 1150, -78.0)] {
        let points = |seconds: i64, value: f64| Step::Points(vec![(BEGIN + seconds, value)]);
        let steps = [
            points(minute, value),
            Step::Change,
            points(later, 111.125),
            Step::Expire,
            points(minute, -39.0),
            Step::Flush,
            Step::Kill,
            Step::Back,
        ];
        take(all, &steps).unwrap();
    }
}
