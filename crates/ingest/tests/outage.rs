//! What happens while the store is down: points are accepted as long as the journal has room, nothing is lost, and
//! when it is back all of it gets there, in the order it came.

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Clock, FailingDisk, Host, SystemClock, SystemDisk};
use ingest::{DeletionError, Ingest, IngestOptions, Protocol};
use metadata::Registry;
use metric::{MetricId, Timestamp, Window};
use store::{DamageLog, Fetch, NameStore, PointStore, ScriptedDriver, SeriesRequest};
use support::{THREE_STAGES, now, options, registry_of, rules, runtime};

/// Bytes of a journal without records, at most: a segment with its header.
const EMPTY_JOURNAL: u64 = 600;

/// Slots that memory may hold in these tests.
const MEMORY_SLOTS: u64 = 2000;

async fn open_with(
    dir: &Path,
    driver: &Arc<ScriptedDriver>,
    retentions: &str,
    journal_limit_bytes: u64,
) -> Arc<Ingest> {
    open_on(Host::system(), dir, driver, retentions, journal_limit_bytes).await
}

async fn open_on(
    host: Host,
    dir: &Path,
    driver: &Arc<ScriptedDriver>,
    retentions: &str,
    journal_limit_bytes: u64,
) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    let options = IngestOptions {
        memory_limit_bytes: 8 * MEMORY_SLOTS,
        journal_limit_bytes,
        host,
        ..options(dir, Duration::from_millis(20))
    };
    Ingest::open(options, driver.store(), registry, rules(retentions)).await.unwrap()
}

async fn open(dir: &Path, driver: &Arc<ScriptedDriver>) -> Arc<Ingest> {
    open_with(dir, driver, THREE_STAGES, 1 << 30).await
}

/// Points as they should be, the last write of each.
type Model = BTreeMap<String, BTreeMap<Timestamp, f64>>;

/// Sends `count` seconds from `first` on, of each of a hundred metrics.
async fn send(ingest: &Ingest, model: &mut Model, first: Timestamp, count: i64, value: f64) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    for time in first..first + count {
        for n in 0..100 {
            let (name, value) = (format!("m{n}"), value + f64::from(n));
            batch.point(name.as_bytes(), time, value);
            model.entry(name).or_default().insert(time, value);
        }
    }
    ingest.accept(&mut batch).await;
    assert!(batch.is_empty());
}

async fn read(ingest: &Arc<Ingest>, name: &str, age: i64) -> (Timestamp, i64, Vec<f64>) {
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
    (series.start, i64::from(series.step), series.values)
}

async fn check(ingest: &Arc<Ingest>, model: &Model, what: &str) {
    for (name, points) in model {
        for age in [3500, 5 * 3600, 40 * 3600] {
            let (start, step, values) = read(ingest, name, age).await;
            let mut expected: BTreeMap<Timestamp, f64> = BTreeMap::new();
            for (time, value) in points {
                *expected.entry(time - time % step).or_default() += value;
            }
            for (i, &value) in values.iter().enumerate() {
                let time = start + i as i64 * step;
                let want = expected.get(&time).copied().unwrap_or(f64::NAN);
                let is_same = value == want || value.is_nan() && want.is_nan();
                assert!(is_same, "{what}: {name} at {time} ({step} s) is {value}, expected {want}");
            }
        }
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "this did not happen in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it ends")
}

/// Brings the store down and fills memory, so that the next points spill. Returns the time of the first that is.
async fn fill_and_spill(ingest: &Ingest, driver: &ScriptedDriver, model: &mut Model) -> Timestamp {
    let base = now() - 1800;
    driver.is_down.store(true, SeqCst);
    in_time(send(ingest, model, base, 21, 1.0)).await;
    until("the store is known to be down", || ingest.counters().store_failing).await;
    assert_eq!(ingest.counters().parked_points, 0);
    base + 21
}

#[test]
fn spilled_points_wait_for_pages_that_cannot_be_read_for_a_while() {
    // A page, and all of the segment.
    for bad in [8192..8193, 0..1 << 30] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let is_bad = Arc::new(AtomicBool::new(false));
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_sector_bad_while(
            "00000002.journal",
            bad.clone(),
            is_bad.clone(),
        );
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        runtime(2).block_on(async {
            let (ingest, mut model) = (open_on(host, dir.path(), &driver, THREE_STAGES, 1 << 30).await, Model::new());
            let next = fill_and_spill(&ingest, &driver, &mut model).await;
            in_time(send(&ingest, &mut model, next, 20, 2.0)).await;
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
            is_bad.store(true, SeqCst);
            driver.is_down.store(false, SeqCst);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(0 < ingest.counters().parked_points, "{bad:?}");
            is_bad.store(false, SeqCst);
            in_time(ingest.flush()).await.unwrap();
            check(&ingest, &model, "afterwards").await;
            drop(ingest);
            check(&open(dir.path(), &driver).await, &model, "after a restart").await;
        });
    }
}

/// A process that is killed: its journal has a second segment, whose points wait for room in memory.
fn killed_with_parked_points(dir: &Path, driver: &Arc<ScriptedDriver>) -> Model {
    // Its tasks end with the runtime.
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir, driver).await, Model::new());
        let next = fill_and_spill(&ingest, driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 20, 2.0)).await;
        model
    })
}

#[test]
fn spilled_points_wait_for_a_segment_that_is_moved_away_cut_or_replaced_for_a_while() {
    type Change = fn(&Path, &Path);
    let changes: [(&str, Change); 3] = [
        ("moved away", |_, _| {}),
        ("cut", |file, aside| {
            let bytes = std::fs::read(aside).unwrap();
            std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("replaced", |file, _| _ = std::fs::copy(file.with_file_name("00000001.journal"), file).unwrap()),
    ];
    for (what, change) in changes {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let aside = tempfile::tempdir().unwrap();
        let model = killed_with_parked_points(dir.path(), &driver);
        runtime(2).block_on(async {
            let ingest = open(dir.path(), &driver).await;
            assert_eq!(ingest.counters().parked_points, 2000);
            // The journal is listed by then.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let (file, aside) = (dir.path().join("00000002.journal"), aside.path().join("aside"));
            std::fs::rename(&file, &aside).unwrap();
            change(&file, &aside);
            driver.is_down.store(false, SeqCst);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(0 < ingest.counters().parked_points, "{what}");
            std::fs::rename(&aside, &file).unwrap();
            // The next attempt comes after a rest that has grown.
            let began = Instant::now();
            while 0 < ingest.counters().parked_points {
                assert!(began.elapsed() < Duration::from_secs(60), "{what}: it is not read");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            in_time(ingest.flush()).await.unwrap();
            check(&ingest, &model, what).await;
            assert_eq!(ingest.counters().parked_points, 0);
            drop(ingest);
            check(&open(dir.path(), &driver).await, &model, "after a restart").await;
        });
    }
}

/// The machine's clock, with a stopwatch that a test sets forward.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn since_epoch(&self) -> Duration {
        SystemClock.since_epoch()
    }

    fn instant(&self) -> Instant {
        SystemClock.instant() + Duration::from_secs(self.0.load(SeqCst))
    }
}

/// A segment whose points wait is not there: it is waited for, and then the others are read.
async fn waited_for_and_given_up(ingest: &Ingest, clock: &Ahead, damage: &DamageLog) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(0 < ingest.counters().parked_points && damage.examples().is_empty(), "it is waited for");
    let began = Instant::now();
    while 0 < ingest.counters().parked_points {
        assert!(began.elapsed() < Duration::from_secs(20), "the points behind it are not read");
        tokio::time::sleep(Duration::from_millis(500)).await;
        clock.0.fetch_add(601, SeqCst);
    }
}

#[test]
fn points_that_wait_in_a_segment_that_does_not_come_back_are_reported_until_it_does() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    killed_with_parked_points(dir.path(), &driver);
    runtime(2).block_on(async {
        let (clock, damage) = (Arc::new(Ahead::default()), DamageLog::new());
        let options = IngestOptions {
            memory_limit_bytes: 8 * MEMORY_SLOTS,
            journal_limit_bytes: 1 << 30,
            host: Host { clock: clock.clone(), ..Host::system() },
            damage: damage.clone(),
            ..options(dir.path(), Duration::from_millis(20))
        };
        let registry = registry_of(&*driver).await;
        let ingest = Ingest::open(options, driver.store(), registry, rules(THREE_STAGES)).await.unwrap();
        let parked = ingest.counters().parked_points;
        assert!(0 < parked);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (segment, away) = (dir.path().join("00000002.journal"), dir.path().join("away"));
        std::fs::rename(&segment, &away).unwrap();
        driver.is_down.store(false, SeqCst);
        waited_for_and_given_up(&ingest, &clock, &damage).await;
        let found: Vec<String> = damage.examples().into_iter().map(|damage| damage.how).collect();
        assert!(found.iter().any(|how| how.starts_with("it is missing")), "{found:?}");
        let lost = "2000 points that waited in the journal for room in memory were not found there again";
        assert!(found.iter().any(|how| how.starts_with(lost)), "{found:?}");
        // It comes back after all.
        std::fs::rename(&away, &segment).unwrap();
        in_time(ingest.flush()).await.unwrap();
        assert_eq!(ingest.put_back().await.unwrap(), 2000);
        let found: Vec<String> = damage.examples().into_iter().map(|damage| damage.how).collect();
        assert!(!found.iter().any(|how| how.starts_with(lost)), "{found:?}");
    });
}

/// The same of a segment that this process wrote. It is away before the process looks for it, so that only the next one names it.
#[test]
fn points_that_wait_in_a_segment_of_this_process_that_is_away_are_put_back_when_it_comes_back() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (clock, damage) = (Arc::new(Ahead::default()), DamageLog::new());
        let options = IngestOptions {
            memory_limit_bytes: 8 * MEMORY_SLOTS,
            journal_limit_bytes: 1 << 30,
            host: Host { clock: clock.clone(), ..Host::system() },
            damage: damage.clone(),
            ..options(dir.path(), Duration::from_millis(20))
        };
        let registry = registry_of(&*driver).await;
        let ingest = Ingest::open(options, driver.store(), registry, rules(THREE_STAGES)).await.unwrap();
        let mut model = Model::new();
        let mut next = fill_and_spill(&ingest, &driver, &mut model).await;
        let segment = |number: u64| dir.path().join(format!("{number:08}.journal"));
        while !segment(4).exists() {
            assert!(next < now() - 20, "no segment is closed");
            in_time(send(&ingest, &mut model, next, 20, 2.0)).await;
            next += 20;
        }
        let away = dir.path().join("away");
        std::fs::rename(segment(3), &away).unwrap();
        driver.is_down.store(false, SeqCst);
        waited_for_and_given_up(&ingest, &clock, &damage).await;
        assert!(damage.examples().iter().any(|damage| damage.how.starts_with("it is missing")), "{damage:?}");
        std::fs::rename(&away, segment(3)).unwrap();
        in_time(ingest.flush()).await.unwrap();
        assert!(0 < ingest.put_back().await.unwrap());
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after it came back").await;
    });
}

#[test]
fn points_behind_a_segment_whose_beginning_cannot_be_read_do_not_wait_for_it_for_ever() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    killed_with_parked_points(dir.path(), &driver);
    runtime(2).block_on(async {
        let (clock, damage, is_bad) = (Arc::new(Ahead::default()), DamageLog::new(), Arc::new(AtomicBool::new(false)));
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_sector_bad_while(
            "00000002.journal",
            0..4096,
            is_bad.clone(),
        );
        let options = IngestOptions {
            memory_limit_bytes: 8 * MEMORY_SLOTS,
            journal_limit_bytes: 1 << 30,
            host: Host { clock: clock.clone(), disk: Arc::new(disk), ..Host::system() },
            damage: damage.clone(),
            ..options(dir.path(), Duration::from_millis(20))
        };
        let registry = registry_of(&*driver).await;
        let ingest = Ingest::open(options, driver.store(), registry, rules(THREE_STAGES)).await.unwrap();
        assert!(0 < ingest.counters().parked_points);
        tokio::time::sleep(Duration::from_millis(200)).await;
        is_bad.store(true, SeqCst);
        driver.is_down.store(false, SeqCst);
        waited_for_and_given_up(&ingest, &clock, &damage).await;
        let found: Vec<String> = damage.examples().into_iter().map(|damage| damage.how).collect();
        assert!(found.iter().any(|how| how.starts_with("it cannot be read: a bad sector")), "{found:?}");
    });
}

#[test]
fn points_are_accepted_while_the_store_is_down_and_stored_in_order() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        // Again, and also what is in memory: the last write wins.
        in_time(send(&ingest, &mut model, next + 10, 20, 3.0)).await;
        in_time(send(&ingest, &mut model, next - 5, 3, 4.0)).await;
        let counters = ingest.counters();
        assert_eq!((counters.parked_points, counters.parked_points_total), (8300, 8300));
        assert!(counters.parked_bytes >= 8300 * 16 && !counters.stalled && counters.held_slots <= MEMORY_SLOTS + 100);
        assert_eq!(counters.stalled_seconds, 0.0);
        assert!(driver.answers() < 30, "it is not asked without a rest");
        driver.is_down.store(false, SeqCst);
        // Points go on coming while the others are read back.
        for i in 0..50 {
            in_time(send(&ingest, &mut model, next + 60 + i, 1, 5.0)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after the outage").await;
        let counters = ingest.counters();
        assert_eq!((counters.parked_points, counters.parked_bytes, counters.store_failing), (0, 0, false));
        // Memory is full of what is read back: a sender may wait for a flush, for some milliseconds.
        assert!(counters.stalled_seconds < 1.0, "{}", counters.stalled_seconds);
        in_time(send(&ingest, &mut model, next + 110, 1, 6.0)).await;
        check(&ingest, &model, "points are held again").await;
    });
}

#[test]
fn a_crash_while_points_are_spilled_loses_none() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let mut model = Model::new();
    let life = runtime(2);
    let next = life.block_on(async {
        let ingest = open(dir.path(), &driver).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        next
    });
    life.shutdown_timeout(Duration::from_secs(1));
    let life = runtime(2);
    life.block_on(async {
        let ingest = open(dir.path(), &driver).await;
        let restored = ingest.restored();
        assert_eq!((restored.points, restored.parked_points, restored.metrics), (2100, 6000, 100));
        assert!(ingest.counters().held_slots <= MEMORY_SLOTS + 100);
        // In memory there is no room for these either.
        in_time(send(&ingest, &mut model, next + 30, 40, 3.0)).await;
        driver.is_down.store(false, SeqCst);
        // Cut off while they are read back.
        until("some are read back", || ingest.counters().parked_points < 10_000).await;
    });
    life.shutdown_timeout(Duration::from_secs(1));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver).await;
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after two crashes").await;
        assert_eq!((ingest.counters().parked_points, ingest.counters().held_slots), (0, 0));
        in_time(ingest.flush()).await.unwrap();
        assert!(ingest.counters().journal_bytes <= EMPTY_JOURNAL, "nothing is left of the journal");
    });
}

#[test]
fn senders_wait_when_the_journal_is_full_and_go_on_when_the_store_is_back() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let mut model = Model::new();
        let ingest = open_with(dir.path(), &driver, THREE_STAGES, 100_000).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        assert!(ingest.counters().stalled, "the journal is full");
        let sending = tokio::spawn({
            let (ingest, mut model) = (ingest.clone(), model.clone());
            async move {
                send(&ingest, &mut model, next + 60, 10, 3.0).await;
                model
            }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!sending.is_finished());
        driver.is_down.store(false, SeqCst);
        model = in_time(sending).await.unwrap();
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after the outage").await;
    });
}

#[test]
fn the_time_that_senders_wait_is_counted_while_they_wait() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let mut model = Model::new();
        let ingest = open_with(dir.path(), &driver, THREE_STAGES, 100_000).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        let sending: Vec<_> = (0..2)
            .map(|_| {
                let (ingest, mut model) = (ingest.clone(), model.clone());
                tokio::spawn(async move { send(&ingest, &mut model, next + 60, 1, 3.0).await })
            })
            .collect();
        until("both are counted", || ingest.counters().stalled_seconds > 0.2).await;
        assert!(sending.iter().all(|sending| !sending.is_finished()));
        driver.is_down.store(false, SeqCst);
        for sending in sending {
            in_time(sending).await.unwrap();
        }
        let waited = ingest.counters().stalled_seconds;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(ingest.counters().stalled_seconds, waited);
    });
}

#[test]
fn a_flush_of_a_store_that_is_down_ends_and_reports_the_waiting_points() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        let patience = Duration::from_millis(200);
        let began = Instant::now();
        let said = in_time(ingest.flush_patiently(patience)).await.expect_err("nothing is written");
        assert!(patience <= began.elapsed());
        assert!(matches!(&said, ingest::FlushError::Store { held_points: 2100, parked_points: 6000, .. }), "{said:?}");
        assert_eq!(
            said.to_string(),
            "it is down; 2100 points are in memory and 6000 are in the journal alone; all are safe in the \
             journal and are written when the store accepts them"
        );
        // Not while some of it is taken, although no write has ended.
        let taken = async {
            loop {
                ingest.store_health().wrote();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            said = ingest.flush_patiently(patience) => panic!("{said:?}"),
            () = taken => {}
            () = tokio::time::sleep(5 * patience) => {}
        }
        // Also when the driver's connection reports it first.
        ingest.store_health().unreachable("it is too far");
        let said = in_time(ingest.flush_patiently(patience)).await.expect_err("nothing is written");
        assert!(said.to_string().starts_with("it is too far; "), "{said}");
        assert_eq!(ingest.flush_progress().waiting, 0);
        driver.is_down.store(false, SeqCst);
        ingest.store_health().reachable();
        in_time(ingest.flush_patiently(Duration::from_secs(10))).await.unwrap();
        check(&ingest, &model, "after the outage").await;
    });
}

#[test]
fn a_flush_tries_a_store_that_was_down_at_once() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        fill_and_spill(&ingest, &driver, &mut model).await;
        // After one, two and four seconds; the next try would be in eight.
        let tries = driver.answers();
        until("retries are rare", || driver.answers() >= tries + 4).await;
        driver.is_down.store(false, SeqCst);
        let began = Instant::now();
        in_time(ingest.flush_patiently(Duration::from_secs(10))).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    });
}

#[test]
fn a_stop_while_the_store_is_down_ends_soon_and_the_next_start_goes_on() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let mut model = Model::new();
    let life = runtime(2);
    let next = life.block_on(async {
        let ingest = open_with(dir.path(), &driver, THREE_STAGES, 100_000).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        // One sender waits for room in the journal, with points in its hands.
        assert!(ingest.counters().stalled, "the journal is full");
        let sending = tokio::spawn({
            let (ingest, mut model) = (ingest.clone(), model.clone());
            async move {
                send(&ingest, &mut model, next + 60, 10, 3.0).await;
                model
            }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!sending.is_finished());
        ingest.release_receivers();
        model = in_time(sending).await.unwrap();
        let began = Instant::now();
        let said = in_time(ingest.close_patiently(Duration::from_millis(200))).await.expect_err("nothing is written");
        assert!(matches!(&said, ingest::FlushError::Store { parked_points: 7000, .. }), "{said:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        next
    });
    life.shutdown_timeout(Duration::from_secs(1));
    driver.is_down.store(false, SeqCst);
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver).await;
        in_time(send(&ingest, &mut model, next + 70, 5, 4.0)).await;
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after the stop").await;
        in_time(ingest.close_patiently(Duration::from_secs(10))).await.unwrap();
        assert!(ingest.counters().journal_bytes <= EMPTY_JOURNAL, "nothing is left of the journal");
    });
}

#[test]
fn a_store_that_does_not_answer_is_down_too() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let base = now() - 1800;
        driver.writes.close();
        in_time(send(&ingest, &mut model, base, 21, 1.0)).await;
        in_time(send(&ingest, &mut model, base + 21, 21, 2.0)).await;
        assert_eq!(ingest.counters().parked_points, 2100);
        driver.writes.open();
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "after the outage").await;
    });
}

#[test]
fn a_flush_ends_when_points_spilled_before_it_are_stored_and_reports_progress() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 60, 2.0)).await;
        let flushing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        until("it waits", || ingest.flush_progress().waiting == 1).await;
        let progress = ingest.flush_progress();
        assert_eq!((progress.parked_points, progress.store_failing, progress.metrics), (6000, true, 100));
        assert!(progress.held_slots > 0 && !flushing.is_finished());
        driver.is_down.store(false, SeqCst);
        in_time(flushing).await.unwrap().unwrap();
        let progress = ingest.flush_progress();
        assert_eq!((progress.parked_points, progress.held_slots, progress.waiting), (0, 0, 0));
        // What is in the store alone is all of it.
        let fetches = model.keys().map(|name| {
            let number = ingest.registry().read().find(ingest.registry().hash(name.as_bytes()), name.as_bytes());
            let policy = ingest.registry().policy(0);
            Fetch {
                metric: number.unwrap(),
                name: name.clone(),
                table: policy.table(0),
                first_slot: (next - 21) as u32,
                end_slot: (next + 60) as u32,
                aggregation: policy.aggregation,
            }
        });
        for cells in driver.memory.fetch(fetches.collect()).await.unwrap() {
            assert_eq!(cells.values.iter().filter(|value| !value.is_nan()).count(), 81);
        }
    });
}

#[test]
fn while_a_shared_store_is_down_memory_is_read_and_anything_else_is_an_error() {
    runtime(2).block_on(async {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        driver.has_other_writers.store(true, SeqCst);
        let ingest = open(dir.path(), &driver).await;
        let (base, mut model) = (now() - 1000, Model::new());
        send(&ingest, &mut model, base, 5, 1.0).await;
        driver.is_down.store(true, SeqCst);
        // Whatever the stage: nothing of these was ever stored here.
        in_time(check(&ingest, &model, "down, nothing stored")).await;
        driver.is_down.store(false, SeqCst);
        in_time(ingest.flush()).await.unwrap();

        driver.is_down.store(true, SeqCst);
        send(&ingest, &mut model, base + 10, 900, 2.0).await;
        let registry = ingest.registry();
        let metric = registry.read().find(registry.hash(b"m1"), b"m1").unwrap();
        let request = |age: i64| SeriesRequest {
            metric,
            window: Window::between(now() - age, now()),
            now: now(),
            max_points: 1 << 20,
            rollup: None,
        };
        let recent = in_time(ingest.series().fetch(vec![request(now() - base - 20)])).await.unwrap();
        assert!(recent[0].as_ref().unwrap().values.contains(&3.0), "what came since is in memory");
        assert!(in_time(ingest.series().fetch(vec![request(1100)])).await.is_err(), "the rest is stored");
        driver.is_down.store(false, SeqCst);
        in_time(ingest.flush()).await.unwrap();
        in_time(check(&ingest, &model, "up again")).await;
    });
}

#[test]
fn a_driver_that_panics_is_asked_again() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        driver.panics.store(true, SeqCst);
        in_time(send(&ingest, &mut model, now() - 1800, 15, 1.0)).await;
        until("it was asked", || ingest.counters().store_errors > 1).await;
        driver.panics.store(false, SeqCst);
        until("a cycle ended", || ingest.counters().cycles > 0).await;
        assert_eq!(ingest.counters().held_slots, 0);
        check(&ingest, &model, "after the panic").await;
    });
}

#[test]
fn new_metrics_are_registered_within_seconds_and_again_after_an_error() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let listed = async || {
            let mut names = 0;
            driver.scan_metrics(&mut |records| names += records.len()).await.unwrap();
            names
        };
        in_time(send(&ingest, &mut model, now() - 1800, 1, 1.0)).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!((listed().await, ingest.counters().cycles), (100, 0));
        driver.is_down.store(true, SeqCst);
        let mut batch = ingest.batch(Protocol::LineTcp);
        batch.point(b"another", now(), 1.0);
        in_time(ingest.accept(&mut batch)).await;
        until("the store was called", || ingest.counters().store_errors > 0).await;
        assert_eq!(listed().await, 100);
        driver.is_down.store(false, SeqCst);
        tokio::time::sleep(Duration::from_millis(2000)).await;
        assert_eq!(listed().await, 101);
    });
}

#[test]
fn spilled_points_keep_the_policy_under_which_they_were_accepted() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let mut model = Model::new();
        let ingest = open_with(dir.path(), &driver, "1s:1h", 1 << 30).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 5, 2.0)).await;
        in_time(ingest.set_rules(rules("1s:2h"))).await;
        in_time(send(&ingest, &mut model, next + 5, 5, 3.0)).await;
        driver.is_down.store(false, SeqCst);
        let changed = || ingest.registry().policies(MetricId(0)).is_some_and(|history| history.len() == 2);
        assert!(!changed());
        until("the policies are changed", changed).await;
        in_time(ingest.flush()).await.unwrap();
        for (name, points) in &model {
            let (start, step, values) = read(&ingest, name, 3500).await;
            assert_eq!(step, 1);
            for (time, value) in points {
                assert_eq!(values[(time - start) as usize], *value, "{name} at {time}");
            }
        }
    });
}

#[test]
fn a_blacklist_holds_for_existing_metrics_while_points_are_spilled() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let mut model = Model::new();
        let ingest = open_with(dir.path(), &driver, "1s:1h", 1 << 30).await;
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 5, 2.0)).await;
        let schemas = "[all]\npattern = .*\nretentions = 1s:2h\n";
        let files = RuleFiles { schemas: Some(schemas), blacklist: Some("^m7$"), ..RuleFiles::default() };
        in_time(ingest.set_rules(Rules::parse(files).unwrap().0)).await;
        let is_rejected = async || {
            let mut batch = ingest.batch(Protocol::LineTcp);
            batch.point(b"m7", next, 1.0);
            in_time(ingest.accept(&mut batch)).await;
            ingest.counters().rejects.iter().any(|(_, count)| 0 < *count)
        };
        for _ in 0..500 {
            if is_rejected().await {
                let history = ingest.registry().policies(MetricId(0)).map(|history| history.len());
                return assert!(history.is_none_or(|changes| changes == 1), "its policy waits");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("points of a listed metric are accepted");
    });
}

#[test]
fn policies_changed_before_a_crash_apply_to_spilled_points_after_it() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let mut model = Model::new();
    let life = runtime(2);
    let base = (now() - 1800) / 60 * 60;
    life.block_on(async {
        // Much memory, so that nothing spills, and nothing is stored.
        let registry = Arc::new(Registry::new());
        let options = IngestOptions { journal_dir: dir.path().to_owned(), ..IngestOptions::default() };
        let ingest = Ingest::open(options, driver.clone(), registry, rules("1s:1h,60s:1d")).await.unwrap();
        in_time(send(&ingest, &mut model, base, 30, 1.0)).await;
        driver.is_down.store(true, SeqCst);
        // What comes after this is in another segment. What came before is on its way, and stays there.
        let flushing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        until("all of it is on its way", || ingest.counters().flushing_metrics == 100).await;
        let changing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.set_rules(rules("1s:1h,10s:6h,60s:1d")).await }
        });
        until("the policies are changed", || {
            ingest.registry().policies(MetricId(99)).is_some_and(|history| history.len() == 2)
        })
        .await;
        in_time(send(&ingest, &mut model, base + 60, 30, 2.0)).await;
        changing.abort();
        flushing.abort();
    });
    life.shutdown_timeout(Duration::from_secs(1));
    driver.is_down.store(false, SeqCst);
    runtime(2).block_on(async {
        let ingest = open_with(dir.path(), &driver, "1s:1h,10s:6h,60s:1d", 1 << 30).await;
        assert_eq!((ingest.restored().points, ingest.restored().parked_points), (3000, 3000));
        in_time(ingest.flush()).await.unwrap();
        for (name, points) in &model {
            let (start, _, values) = read(&ingest, name, 3500).await;
            for (time, value) in points {
                assert_eq!(values[(time - start) as usize], *value, "{name} at {time}");
            }
            let (start, step, values) = read(&ingest, name, 20 * 3600).await;
            for minute in [base, base + 60] {
                let want: f64 = points.range(minute..minute + 60).map(|(_, value)| value).sum();
                assert_eq!((step, values[((minute - start) / step) as usize]), (60, want), "{name}");
            }
        }
    });
}

fn id(ingest: &Ingest, name: &str) -> Option<MetricId> {
    let registry = ingest.registry();
    registry.read().find(registry.hash(name.as_bytes()), name.as_bytes())
}

/// Deletes a metric here that another process deleted at this time.
async fn follow_deletion(ingest: &Arc<Ingest>, name: &str, at: Timestamp) {
    let metric = id(ingest, name).expect("the metric is known");
    let deleted = ingest.delete_followed(vec![(metric, at)], 0, ingest.registration_turn().await).await;
    // A store that is away deletes the name later.
    assert!(matches!(deleted, Ok(1) | Err(DeletionError::Store { deleted: 1, .. })), "{deleted:?}");
}

#[test]
fn points_that_spill_after_a_deletion_by_another_process_begin_the_metric_again() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    driver.has_other_writers.store(true, SeqCst);
    runtime(2).block_on(async {
        let (ingest, mut model) = (open(dir.path(), &driver).await, Model::new());
        let next = fill_and_spill(&ingest, &driver, &mut model).await;
        in_time(send(&ingest, &mut model, next, 20, 2.0)).await;
        let deleted_at = next + 8;
        follow_deletion(&ingest, "m0", deleted_at).await;
        model.get_mut("m0").unwrap().retain(|time, _| deleted_at < *time);
        // All of its points are from before.
        follow_deletion(&ingest, "m1", next + 20).await;
        model.remove("m1");
        // Another process made it again and deleted it once more before this one had a point of it.
        follow_deletion(&ingest, "m2", deleted_at).await;
        ingest.note_deletions([("m2", next + 20)].into_iter());
        model.remove("m2");
        assert_eq!(["m0", "m1", "m2"].map(|name| id(&ingest, name)), [None; 3]);
        driver.is_down.store(false, SeqCst);
        in_time(ingest.flush()).await.unwrap();
        check(&ingest, &model, "afterwards").await;
        assert_eq!(["m1", "m2"].map(|name| id(&ingest, name)), [None; 2]);
        let again = id(&ingest, "m0").expect("it has points of after the deletion");
        assert_eq!(ingest.registry().read().creation(again), Some(deleted_at + 1));
    });
}

#[test]
fn a_flush_writes_nothing_of_what_another_process_has_deleted_by_then() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    driver.has_other_writers.store(true, SeqCst);
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver).await;
        let at = now() - 60;
        let mut batch = ingest.batch(Protocol::LineTcp);
        for name in ["gone", "stays"] {
            batch.point(name.as_bytes(), at, 1.0);
        }
        driver.deletions.close();
        ingest.accept(&mut batch).await;
        let metrics = ["gone", "stays"].map(|name| id(&ingest, name).unwrap());
        let flushing = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        until("the flush asks what was deleted", || 0 < driver.deletions.arrived()).await;
        follow_deletion(&ingest, "gone", at + 30).await;
        driver.deletions.open();
        in_time(flushing).await.unwrap().unwrap();
        let policy = Arc::new(rules(THREE_STAGES).policies()[0].clone());
        let slot = policy.retention.finest().slot(at).unwrap();
        let fetch = |metric, name: &str| Fetch {
            metric,
            name: name.to_owned(),
            table: policy.table(0),
            first_slot: slot,
            end_slot: slot + 1,
            aggregation: policy.aggregation,
        };
        let fetches = [fetch(metrics[0], "gone"), fetch(metrics[0], ""), fetch(metrics[1], "stays")];
        let cells = driver.memory.fetch(fetches.to_vec()).await.unwrap();
        let values: Vec<f64> = cells.iter().map(|cells| cells.values.first().copied().unwrap_or(f64::NAN)).collect();
        assert!(values[0].is_nan() && values[1].is_nan(), "{values:?}");
        assert_eq!(values[2], 1.0);
    });
}
