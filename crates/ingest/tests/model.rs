//! Random writes, flushes, crashes, errors and outages of the store, and new rules, against a naive model: a map of
//! points, aggregated when asked.
//!
//! Every run prints its seed; `SEED=…` repeats one.

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Random, SeededRandom};
use ingest::{Ingest, IngestOptions, Protocol};
use metadata::Registry;
use metric::{Aggregation, MetricId, Timestamp, Window};
use store::{
    DriverFuture, Fetch, FetchedSeries, Identity, MemoryDriver, MetricRecord, NameStore, OwnRows, PointStore, Run,
    SeriesRequest, SharedPoints, Store, StoreError, Usage,
};
use support::{now, options, rules_by_method, seeds};

const METHODS: [(&str, Aggregation); 8] = [
    ("average", Aggregation::Average),
    ("sum", Aggregation::Sum),
    ("last", Aggregation::Last),
    ("max", Aggregation::Max),
    ("min", Aggregation::Min),
    ("avg_zero", Aggregation::AvgZero),
    ("absmax", Aggregation::AbsMax),
    ("absmin", Aggregation::AbsMin),
];
const X_FILES_FACTOR: f64 = 0.2;

/// Slots that memory holds, where it is small.
const FEW_SLOTS: u64 = 3000;

/// Stages as `(resolution, age that chooses it)`.
const STAGES: [(u32, i64); 3] = [(1, 3500), (10, 5 * 3600), (60, 40 * 3600)];

/// A driver that remembers what was synced, so that a crash can forget some of the rest; that fails now and then, in
/// the middle of what it does; and that can be down.
#[derive(Default)]
struct Forgetful {
    inner: Mutex<Arc<MemoryDriver>>,
    log: Mutex<(Vec<Logged>, usize)>,
    /// Outlives crashes: an opening is durable at once.
    openings: MemoryDriver,
    is_alone: bool,
    is_down: AtomicBool,
    /// One call in so many fails; zero for none.
    fails: AtomicU64,
    calls: AtomicU64,
}

#[derive(Clone)]
enum Logged {
    Runs(Vec<Run>),
    Metrics(Vec<MetricRecord>),
    Deleted(Vec<MetricId>),
}

impl Forgetful {
    fn inner(&self) -> Arc<MemoryDriver> {
        self.inner.lock().unwrap().clone()
    }

    fn fails(&self) -> bool {
        let call = SeededRandom::new(self.calls.fetch_add(1, SeqCst)).bits();
        let fails = self.fails.load(SeqCst);
        self.is_down.load(SeqCst) || fails > 0 && call.is_multiple_of(fails)
    }

    fn answer(&self) -> Result<(), StoreError> {
        if self.fails() { Err(StoreError::Unavailable("a test says so".into())) } else { Ok(()) }
    }

    /// Everything synced is kept; of the rest, a random part.
    fn crash(&self, random: &SeededRandom) {
        let mut log = self.log.lock().unwrap();
        let synced = log.1;
        let kept: Vec<Logged> = log
            .0
            .iter()
            .enumerate()
            .filter(|(i, _)| *i < synced || random.below(2) == 0)
            .map(|(_, l)| l.clone())
            .collect();
        let fresh = Arc::new(MemoryDriver::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for logged in &kept {
            match logged.clone() {
                Logged::Runs(runs) => runtime.block_on(fresh.write(runs)).unwrap(),
                Logged::Metrics(records) => runtime.block_on(fresh.put_metrics(records)).unwrap(),
                Logged::Deleted(ids) => runtime.block_on(fresh.delete_metrics(ids)).unwrap(),
            }
        }
        *log = (kept.clone(), kept.len());
        *self.inner.lock().unwrap() = fresh;
    }
}

impl PointStore for Forgetful {
    fn write(&self, mut runs: Vec<Run>) -> DriverFuture<'_, ()> {
        let answer = self.answer();
        if answer.is_err() {
            runs.truncate(if self.is_down.load(SeqCst) { 0 } else { runs.len() / 2 });
        }
        self.log.lock().unwrap().0.push(Logged::Runs(runs.clone()));
        let inner = self.inner();
        Box::pin(async move { inner.write(runs).await.and(answer) })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<store::Cells>> {
        let (inner, answer) = (self.inner(), self.answer());
        Box::pin(async move {
            answer?;
            inner.fetch(fetches).await
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        let answer = self.answer();
        let mut log = self.log.lock().unwrap();
        log.1 = if answer.is_ok() { log.0.len() } else { log.1 };
        Box::pin(async { answer })
    }

    fn expire(&self, _now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl NameStore for Forgetful {
    fn identity(&self) -> Identity {
        self.openings.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.openings.begin(first_id.max(self.next_id()))
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.openings.put_opening()
    }

    fn next_id(&self) -> MetricId {
        self.inner().next_id().max(self.openings.next_id())
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        if let Err(error) = self.answer() {
            return Box::pin(async { Err(error) });
        }
        self.log.lock().unwrap().0.push(Logged::Deleted(ids.clone()));
        let inner = self.inner();
        Box::pin(async move { inner.delete_metrics(ids).await })
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        if let Err(error) = self.answer() {
            return Box::pin(async { Err(error) });
        }
        self.log.lock().unwrap().0.push(Logged::Metrics(records.clone()));
        let inner = self.inner();
        Box::pin(async move { inner.put_metrics(records).await })
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        let inner = self.inner();
        Box::pin(async move { inner.scan_metrics(each).await })
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl SharedPoints for Forgetful {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(std::future::ready(Ok(totals.into())))
    }
}

/// What should be there: for each metric, its stage-0 slots.
type Model = BTreeMap<String, BTreeMap<Timestamp, f64>>;

/// For each metric, the points that came too old for stage 0, by their slot of ten seconds: each stands for all of its
/// slot.
type Old = BTreeMap<String, BTreeMap<Timestamp, f64>>;

fn expected(
    points: &BTreeMap<Timestamp, f64>,
    method: Aggregation,
    x_files_factor: f64,
    step: u32,
    slot: Timestamp,
) -> f64 {
    let slots: Vec<f64> = points.range(slot..slot + i64::from(step)).map(|(_, &value)| value).collect();
    if slots.is_empty() || slots.len() as f64 / f64::from(step) < x_files_factor && step > 1 {
        return f64::NAN;
    }
    if step == 1 {
        return slots[0];
    }
    aggregated(&slots, method, step)
}

fn expected_old(
    points: &BTreeMap<Timestamp, f64>,
    method: Aggregation,
    x_files_factor: f64,
    step: u32,
    slot: Timestamp,
) -> f64 {
    let slots: Vec<f64> = points.range(slot..slot + i64::from(step)).map(|(_, &value)| value).collect();
    // Ten of stage 0 for each; in stage 0 there are none.
    if slots.is_empty() || step == 1 || slots.len() as f64 / f64::from(step / 10) < x_files_factor {
        return f64::NAN;
    }
    // A slot that was written as a whole is what was written, whatever the method.
    if step == 10 { slots[0] } else { aggregated(&slots, method, step / 10) }
}

fn aggregated(slots: &[f64], method: Aggregation, step: u32) -> f64 {
    let sum: f64 = slots.iter().sum();
    let by =
        |better: fn(f64, f64) -> bool| slots.iter().copied().reduce(|a, b| if better(b, a) { b } else { a }).unwrap();
    match method {
        Aggregation::Average => sum / slots.len() as f64,
        Aggregation::Sum => sum,
        Aggregation::Last => *slots.last().unwrap(),
        Aggregation::Max => by(|b, a| b > a),
        Aggregation::Min => by(|b, a| b < a),
        Aggregation::AvgZero => sum / f64::from(step),
        Aggregation::AbsMax => by(|b, a| b.abs() > a.abs()),
        Aggregation::AbsMin => by(|b, a| b.abs() < a.abs()),
    }
}

struct Life {
    runtime: tokio::runtime::Runtime,
    ingest: Arc<Ingest>,
    registry: Arc<Registry>,
}

impl Life {
    fn begin(dir: &Path, driver: Arc<Forgetful>) -> Life {
        Life::begin_with(dir, driver, X_FILES_FACTOR, 1 << 30)
    }

    fn begin_with(dir: &Path, driver: Arc<Forgetful>, x_files_factor: f64, memory_limit_bytes: u64) -> Life {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let registry = Arc::new(Registry::new());
        let ingest = runtime.block_on(async {
            driver.scan_metrics(&mut |records| _ = registry.restore(records)).await.unwrap();
            let options = IngestOptions { memory_limit_bytes, ..options(dir, Duration::from_millis(20)) };
            let shared = (!driver.is_alone).then(|| driver.clone() as Arc<dyn SharedPoints>);
            let store = Store { shared, ..Store::of(driver) };
            Ingest::open(options, store, registry.clone(), rules_by_method(&METHODS, x_files_factor)).await.unwrap()
        });
        Life { runtime, ingest, registry }
    }

    fn send(&self, points: &[(String, Timestamp, f64)]) {
        let mut batch = self.ingest.batch(Protocol::LineTcp);
        for (name, time, value) in points {
            batch.point(name.as_bytes(), *time, *value);
        }
        self.runtime.block_on(self.ingest.accept(&mut batch));
        assert!(batch.is_empty());
    }

    /// Sends each metric's points in their order, those of different metrics at once.
    fn send_at_once(&self, points: &[(String, Timestamp, f64)]) {
        let mut senders: BTreeMap<&str, Vec<(String, Timestamp, f64)>> = BTreeMap::new();
        points.iter().for_each(|point| senders.entry(&point.0).or_default().push(point.clone()));
        self.runtime.block_on(async {
            let tasks: Vec<_> = senders
                .into_values()
                .map(|points| {
                    let ingest = self.ingest.clone();
                    tokio::spawn(async move {
                        for some in points.chunks(50) {
                            let mut batch = ingest.batch(Protocol::LineTcp);
                            some.iter().for_each(|(name, time, value)| batch.point(name.as_bytes(), *time, *value));
                            ingest.accept(&mut batch).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    fn flush(&self) {
        // An error of the listing or the sync ends a flush; those of writes it sits out.
        while self.runtime.block_on(self.ingest.flush()).is_err() {}
    }

    /// A series, and the part of its slots that must be known: of the policy that it was read by, which may change
    /// meanwhile.
    fn read(&self, metric: MetricId, age: i64, now: Timestamp) -> (f64, FetchedSeries) {
        let current = || self.registry.policies(metric).unwrap().current();
        loop {
            let policy = current();
            let request = SeriesRequest {
                metric,
                window: Window::between(now - age, now),
                now,
                max_points: 1 << 20,
                rollup: None,
            };
            let series = self.runtime.block_on(self.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
            if policy == current() {
                // Where others write the store too, the rules say how it is read.
                let ruled = self.registry.ruled_x_files_factor(metric);
                return (ruled.unwrap_or_else(|| self.registry.policy(policy).x_files_factor), series);
            }
        }
    }

    fn check(&self, model: &Model, old: &Old, what: &str) {
        let now = now();
        for (name, points) in model {
            let hash = self.registry.hash(name.as_bytes());
            let number =
                self.registry.read().find(hash, name.as_bytes()).unwrap_or_else(|| panic!("{name} is lost {what}"));
            let method = METHODS.iter().find(|(method, _)| name.starts_with(&format!("{method}."))).unwrap().1;
            let none = BTreeMap::new();
            let old = old.get(name).unwrap_or(&none);
            for (step, age) in STAGES {
                let (x_files_factor, series) = self.read(number, age, now);
                assert_eq!(series.step, step);
                for (i, &value) in series.values.iter().enumerate() {
                    let slot = series.start + i as i64 * i64::from(step);
                    let want = match expected(points, method, x_files_factor, step, slot) {
                        want if want.is_nan() => expected_old(old, method, x_files_factor, step, slot),
                        want => want,
                    };
                    let same = value.to_bits() == want.to_bits()
                        || (value.is_nan() && want.is_nan())
                        || (value - want).abs() <= 1e-9 * want.abs().max(1.0);
                    assert!(same, "{name} at {slot} ({step} s), {what}: {value}, expected {want}");
                }
            }
        }
    }
}

/// A random run. Returns how many points spilled in it.
fn run(seed: u64, steps: usize) -> u64 {
    println!("SEED={seed}");
    let random = SeededRandom::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let driver = Arc::new(Forgetful { is_alone: random.below(2) == 0, ..Forgetful::default() });
    let fails = if random.below(2) == 0 { 12 } else { 0 };
    let memory = if random.below(3) > 0 { 8 * FEW_SLOTS } else { 1 << 30 };
    let (mut model, mut old, mut spilled) = (Model::new(), Old::new(), 0);
    let mut x_files_factor = X_FILES_FACTOR;
    let mut life = Life::begin_with(dir.path(), driver.clone(), x_files_factor, memory);
    // Far enough from the edge of stage 0 that the test's own duration does not matter.
    let base = now() - 3000;
    let old_base = (now() - 5 * 3600 + 600) / 60 * 60;
    let mut points = |random: &SeededRandom, runs: u64| {
        let mut points = Vec::new();
        for _ in 0..1 + random.below(runs) {
            let method = METHODS[random.below(8) as usize].0;
            let name = format!("{method}.m{}", random.below(3));
            let start = base + random.below(2500) as i64;
            let backwards = random.below(4) == 0;
            for i in 0..1 + random.below(120) as i64 {
                let time = if backwards { start - i } else { start + i * (1 + random.below(2) as i64) };
                let value = (random.below(2001) as f64 - 1000.0) / 8.0;
                points.push((name.clone(), time.max(base), value));
            }
        }
        for (name, time, value) in &points {
            model.entry(name.clone()).or_default().insert(*time, *value);
        }
        (points, model.clone())
    };
    let mut model = Model::new();
    for step in 0..steps {
        driver.fails.store(fails, SeqCst);
        match random.below(14) {
            0..6 => {
                let (points, all) = points(&random, 4);
                if random.below(2) == 0 {
                    life.send(&points)
                } else {
                    life.send_at_once(&points)
                }
                model = all;
            }
            6 => {
                let (points, all) = points(&random, 1);
                let name = points[0].0.clone();
                let times = (0..1 + random.below(20)).map(|_| old_base + random.below(1200) as i64);
                let mut old_points: Vec<_> = times.map(|time| (name.clone(), time, (time % 97) as f64 / 8.0)).collect();
                for (name, time, value) in &old_points {
                    old.entry(name.clone()).or_default().insert(time - time % 10, *value);
                }
                old_points.extend(points);
                life.send(&old_points);
                model = all;
            }
            7..9 => life.flush(),
            9..11 => {
                let clean = random.below(2) == 0;
                if clean {
                    while life.runtime.block_on(life.ingest.close()).is_err() {}
                }
                drop(life);
                if !clean {
                    driver.crash(&random);
                }
                life = Life::begin_with(dir.path(), driver.clone(), x_files_factor, memory);
                if life.ingest.restored().parked_points > 0 {
                    life.flush();
                }
                driver.fails.store(0, SeqCst);
                life.check(&model, &old, &format!("after restart, step {step}, clean: {clean}"));
            }
            11 => {
                x_files_factor = if x_files_factor == X_FILES_FACTOR { 0.4 } else { X_FILES_FACTOR };
                life.runtime.block_on(life.ingest.set_rules(rules_by_method(&METHODS, x_files_factor)));
            }
            12 => {
                // An outage, with a crash in the middle of some.
                driver.is_down.store(true, SeqCst);
                let crashes = random.below(3) == 0;
                for round in 0..6 {
                    let (points, all) = points(&random, 24);
                    life.send_at_once(&points);
                    model = all;
                    if crashes && round == 3 {
                        spilled += life.ingest.counters().parked_points_total;
                        drop(life);
                        driver.crash(&random);
                        life = Life::begin_with(dir.path(), driver.clone(), x_files_factor, memory);
                    }
                }
                spilled += life.ingest.counters().parked_points_total;
                driver.is_down.store(false, SeqCst);
                if random.below(2) == 0 {
                    let (points, all) = points(&random, 8);
                    life.send(&points);
                    model = all;
                }
                life.flush();
                driver.fails.store(0, SeqCst);
                life.check(&model, &old, &format!("after an outage, step {step}"));
            }
            _ => {
                driver.fails.store(0, SeqCst);
                life.check(&model, &old, &format!("at step {step}"));
            }
        }
    }
    driver.fails.store(0, SeqCst);
    life.check(&model, &old, "at the end");
    life.flush();
    life.check(&model, &old, "when all is stored");
    spilled
}

#[test]
fn every_stage_agrees_with_a_naive_model_through_flushes_and_crashes() {
    let spilled: u64 = seeds(4).map(|seed| run(seed, 40)).sum();
    println!("{spilled} points were spilled");
}

#[test]
fn a_point_older_than_stage_0_goes_to_the_stage_that_holds_it_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let driver = Arc::new(Forgetful::default());
    let life = Life::begin(dir.path(), driver.clone());
    let time = (now() - 2 * 3600) / 60 * 60;
    life.send(&[("sum.old".into(), time, 5.0), ("sum.old".into(), time + 1, 7.0), ("sum.old".into(), time + 10, 1.0)]);
    let read = |life: &Life, age: i64, what: &str| {
        let number = life.registry.read().find(life.registry.hash(b"sum.old"), b"sum.old").expect(what);
        let now = now();
        let request = SeriesRequest {
            metric: number,
            window: Window::between(now - age, now),
            now,
            max_points: 1 << 20,
            rollup: None,
        };
        let series = life.runtime.block_on(life.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
        series.values[((time - series.start) / i64::from(series.step)) as usize]
    };
    // As in whisper, the last write of the coarser slot wins; the one after it is made of two such.
    assert_eq!(read(&life, 3 * 3600, "held"), 7.0);
    assert_eq!(read(&life, 10 * 3600, "held"), 8.0);
    life.runtime.block_on(life.ingest.flush()).unwrap();
    assert_eq!(read(&life, 3 * 3600, "stored"), 7.0);
    assert_eq!(read(&life, 10 * 3600, "stored"), 8.0);
    drop(life);
    let life = Life::begin(dir.path(), driver);
    assert_eq!(read(&life, 3 * 3600, "restored"), 7.0);
    let counters = life.ingest.counters();
    // A segment with its header.
    assert!(counters.journal_bytes <= 600, "nothing is left of the journal");
}

#[test]
fn rejected_names_and_times_are_counted_by_reason_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let life = Life::begin(dir.path(), Arc::new(Forgetful::default()));
    let now = now();
    life.send(&[
        ("sum.good".into(), now, 1.0),
        ("...".into(), now, 1.0),
        ("sum.b\u{1}ad".into(), now, 1.0),
        ("sum.good".into(), now - 3 * 86400, 1.0),
        ("sum.good".into(), now + 3 * 86400, 1.0),
        ("sum..good".into(), now - 1, 2.0),
    ]);
    let counters = life.ingest.counters();
    let reasons: Vec<_> =
        counters.rejects.iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), *n)).collect();
    assert_eq!(reasons, [("name_empty", 1), ("name_control_character", 1), ("too_old", 1), ("too_far_ahead", 1)]);
    assert_eq!(counters.points[0].1, 2);
    assert_eq!(counters.created, 1);
    assert_eq!(life.ingest.rejects().len(), 4);
}

#[test]
fn a_new_retention_holds_from_then_on_and_old_points_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let driver = Arc::new(Forgetful::default());
    let life = Life::begin(dir.path(), driver.clone());
    let base = (now() - 600) / 60 * 60;
    let minute = |first: Timestamp| (0..60).map(|i| ("sum.m".to_owned(), first + i, 1.0)).collect::<Vec<_>>();
    life.send(&minute(base));
    let schemas = "[all]\npattern = .*\nretentions = 30s:1h,60s:2d\n";
    let aggregation = "[sum]\npattern = ^sum\naggregationMethod = sum\n";
    let files = RuleFiles { schemas: Some(schemas), aggregation: Some(aggregation), ..RuleFiles::default() };
    let rules = Rules::parse(files).expect("good rules").0;
    life.runtime.block_on(life.ingest.set_rules(rules));
    life.send(&[("sum.m".into(), base + 60, 7.0), ("sum.m".into(), base + 90, 8.0)]);
    let read = |life: &Life, age: i64| {
        let number = life.registry.read().find(life.registry.hash(b"sum.m"), b"sum.m").unwrap();
        let now = now();
        let request = SeriesRequest {
            metric: number,
            window: Window::between(now - age, now),
            now,
            max_points: 1 << 20,
            rollup: None,
        };
        let series = life.runtime.block_on(life.ingest.series().fetch(vec![request])).unwrap().remove(0).unwrap();
        let at = |time: Timestamp| series.values[((time - series.start) / i64::from(series.step)) as usize];
        (series.step, at(base), at(base + 60))
    };
    let check = |life: &Life| {
        assert_eq!(read(life, 3000), (30, 30.0, 7.0));
        let (step, old, new) = read(life, 7200);
        assert_eq!((step, old, new), (60, 60.0, 15.0));
    };
    check(&life);
    life.runtime.block_on(life.ingest.flush()).unwrap();
    check(&life);
    assert_eq!(life.registry.records(&[MetricId(0)])[0].policies.len(), 2);
}
