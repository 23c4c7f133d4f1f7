//! What cannot be stored or read costs itself alone: the points of one metric, the coarse slots over damaged ones.

mod support;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::Sink as _;
use ingest::{Ingest, IngestOptions, Protocol};
use metric::{MetricId, Timestamp, Window};
use store::{
    Cells, DamageLog, DriverFuture, Fetch, Identity, MemoryDriver, MetricRecord, NameStore, PointStore, Run,
    SeriesRequest, Store, StoreError, Usage,
};
use support::{now, options, registry_of, rules, runtime};

/// How a driver rejects what it cannot take.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Damaged,
    Rejected,
    Panic,
}

/// A driver that can never take the rows of some metrics.
#[derive(Default)]
struct Picky {
    memory: MemoryDriver,
    fault: Mutex<Option<Fault>>,
    /// The names that it cannot take.
    bad: Mutex<BTreeSet<String>>,
    /// While true, stage-0 slots cannot be read.
    is_damaged: AtomicBool,
    /// While true, the disk returns no stage-0 slots of these names.
    unreadable: Mutex<BTreeSet<String>>,
}

impl Picky {
    fn answer(&self, names: impl Iterator<Item = String>) -> Result<(), StoreError> {
        let bad = self.bad.lock().unwrap().clone();
        let Some(name) = names.into_iter().find(|name| bad.contains(name) || bad.contains("all")) else {
            return Ok(());
        };
        let fault = *self.fault.lock().unwrap();
        match fault {
            Some(Fault::Damaged) => Err(StoreError::Damaged { what: name, how: "a test says so".into() }),
            Some(Fault::Rejected) => Err(StoreError::Rejected(name)),
            Some(Fault::Panic) => panic!("the test lets {name} panic"),
            None => Ok(()),
        }
    }

    fn set(&self, fault: Option<Fault>, bad: &[&str]) {
        *self.fault.lock().unwrap() = fault;
        *self.bad.lock().unwrap() = bad.iter().map(|&name| name.to_owned()).collect();
    }
}

impl PointStore for Picky {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            self.answer(runs.iter().map(|run| run.name.clone()))?;
            self.memory.write(runs).await
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            let is_finest: Vec<bool> = fetches.iter().map(|fetch| !fetch.table.aggregated).collect();
            let unreadable = self.unreadable.lock().unwrap().clone();
            let is_unreadable: Vec<bool> = fetches.iter().map(|fetch| unreadable.contains(&fetch.name)).collect();
            let mut cells = self.memory.fetch(fetches).await?;
            for ((cells, is_finest), is_unreadable) in cells.iter_mut().zip(is_finest).zip(is_unreadable) {
                if is_finest && (is_unreadable || self.is_damaged.load(SeqCst)) {
                    *cells = Cells { is_damaged: true, is_unreadable, ..Cells::default() };
                }
            }
            Ok(cells)
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn expire(&self, _: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

impl NameStore for Picky {
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.memory.put_metrics(records)
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.memory.scan_metrics(each)
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn identity(&self) -> Identity {
        self.memory.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.memory.begin(first_id)
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.memory.put_opening()
    }

    fn next_id(&self) -> MetricId {
        self.memory.next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.memory.delete_metrics(ids)
    }
}

async fn open(dir: &Path, driver: &Arc<Picky>, damage: &DamageLog) -> Arc<Ingest> {
    open_with(dir, driver, damage, "1s:1h,10s:6h").await
}

async fn open_with(dir: &Path, driver: &Arc<Picky>, damage: &DamageLog, retentions: &str) -> Arc<Ingest> {
    let options = IngestOptions { damage: damage.clone(), ..options(&dir.join("journal"), Duration::from_millis(20)) };
    let registry = registry_of(&**driver).await;
    Ingest::open(options, Store::of(driver.clone()), registry, rules(retentions)).await.unwrap()
}

async fn send(ingest: &Ingest, points: impl IntoIterator<Item = (String, Timestamp, f64)>) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.into_iter().for_each(|(name, time, value)| batch.point(name.as_bytes(), time, value));
    ingest.accept(&mut batch).await;
}

/// The values at `time`: of stage 0, and of stage 1.
async fn read(ingest: &Ingest, name: &str, time: Timestamp) -> [f64; 2] {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()).expect("the metric is known");
    let now = now();
    let mut values = [f64::NAN; 2];
    for (value, age) in values.iter_mut().zip([3500, 5 * 3600]) {
        let request =
            SeriesRequest { metric, window: Window::between(now - age, now), now, max_points: 1 << 20, rollup: None };
        let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
        *value = series.values[((time - series.start) / i64::from(series.step)) as usize];
    }
    values
}

#[test]
fn a_metric_that_cannot_be_stored_is_set_aside_and_all_others_are_stored() {
    for fault in [Fault::Damaged, Fault::Rejected, Fault::Panic] {
        let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
        let base = (now() - 1000) / 10 * 10;
        runtime(2).block_on(async {
            let ingest = open(dir.path(), &driver, &damage).await;
            driver.set(Some(fault), &["m7", "m400"]);
            for time in base..base + 5 {
                send(&ingest, (0..600).map(|n| (format!("m{n}"), time, f64::from(n)))).await;
            }
            ingest.flush().await.unwrap();
            let counters = ingest.counters();
            assert_eq!(
                (counters.points_aside, counters.held_slots, counters.flushing_metrics),
                (10, 0, 0),
                "{fault:?}"
            );
            assert!(counters.journal_bytes <= 600 && !counters.store_failing, "everything else is stored: {fault:?}");
            assert_eq!(read(&ingest, "m6", base).await, [6.0, 30.0]);
            assert_eq!(read(&ingest, "m599", base).await, [599.0, 5.0 * 599.0]);
            assert!(read(&ingest, "m7", base).await[0].is_nan());
            let found = damage.examples();
            assert_eq!((damage.totals().0, found[0].span), (2, Some((base, base + 5))), "{found:?}");
            assert!(found.iter().any(|found| found.how.contains("m400")), "{found:?}");
        });
        // The files have all of it: as a part of a journal they bring the points back.
        let files: Vec<_> = std::fs::read_dir(dir.path().join("damaged")).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 2);
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir(other.path().join("journal")).unwrap();
        for (number, file) in files.iter().enumerate() {
            let to = other.path().join(format!("journal/0000000{}.journal", number + 1));
            std::fs::copy(file.path(), to).unwrap();
        }
        runtime(2).block_on(async {
            let driver = Arc::new(Picky::default());
            // The ids are those of the store that the file comes from.
            let ingest = open(dir.path(), &driver, &damage).await;
            ingest.close().await.unwrap();
            let ingest = open(other.path(), &driver, &damage).await;
            assert_eq!(read(&ingest, "m7", base).await, [7.0, 35.0]);
            assert_eq!(read(&ingest, "m400", base + 4).await, [400.0, 2000.0]);
        });
    }
}

#[test]
fn nothing_is_set_aside_while_the_store_takes_nothing_at_all() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        for (count, first) in [(300, 0), (3, 1000)] {
            driver.set(Some(Fault::Damaged), &["all"]);
            send(&ingest, (first..first + count).map(|n| (format!("m{n}"), base, 1.0))).await;
            let patience = Duration::from_millis(300);
            assert!(ingest.flush_patiently(patience).await.is_err(), "{count} metrics");
            assert_eq!((ingest.counters().points_aside, damage.totals().0), (0, 0));
            driver.set(None, &[]);
            while ingest.flush().await.is_err() {}
            assert_eq!((read(&ingest, &format!("m{first}"), base).await, ingest.counters().held_slots), ([1.0; 2], 0));
        }
    });
}

#[test]
fn metrics_that_can_be_stored_are_however_many_before_them_cannot() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        let bad: Vec<String> = (0..30).map(|n| format!("m{n}")).collect();
        driver.set(Some(Fault::Damaged), &bad.iter().map(String::as_str).collect::<Vec<_>>());
        send(&ingest, (0..32).map(|n| (format!("m{n}"), base, 1.0))).await;
        ingest.flush().await.unwrap();
        let counters = ingest.counters();
        assert_eq!((counters.points_aside, counters.held_slots, counters.store_failing), (30, 0, false));
        for name in ["m30", "m31"] {
            assert_eq!(read(&ingest, name, base).await, [1.0; 2]);
        }
    });
}

#[test]
fn a_metric_alone_waits_for_others_before_it_is_set_aside() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        driver.set(Some(Fault::Panic), &["bad"]);
        send(&ingest, [("bad".to_owned(), base, 1.0)]).await;
        assert!(ingest.flush().await.is_err(), "the journal keeps the point");
        assert_eq!((ingest.counters().points_aside, read(&ingest, "bad", base).await), (0, [1.0; 2]));
        send(&ingest, [("good".to_owned(), base, 1.0)]).await;
        ingest.flush().await.unwrap();
        let counters = ingest.counters();
        assert_eq!((counters.points_aside, counters.held_slots, read(&ingest, "good", base).await), (1, 0, [1.0; 2]));
    });
}

#[test]
fn late_points_wait_for_stored_slots_that_cannot_be_read_and_all_others_are_stored() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    let all = || (0..20).map(|n| format!("m{n}"));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        send(&ingest, all().flat_map(|name| (base..base + 10).map(move |time| (name.clone(), time, 1.0)))).await;
        ingest.flush().await.unwrap();
        *driver.unreadable.lock().unwrap() = ["m3".to_owned(), "m11".to_owned()].into();
        send(&ingest, all().map(|name| (name, base + 3, 5.0))).await;
        for _ in 0..2 {
            let error = ingest.flush_patiently(Duration::from_secs(20)).await.unwrap_err().to_string();
            assert!(error.contains("stored rows of 2 metrics cannot be read"), "{error}");
            assert_eq!(ingest.counters().held_slots, 2, "all other points are stored");
        }
        assert_eq!(read(&ingest, "m4", base).await[1], 14.0);
        driver.unreadable.lock().unwrap().clear();
        ingest.flush().await.unwrap();
        assert_eq!((ingest.counters().held_slots, ingest.counters().doubtful_slots), (0, 0));
        for name in all() {
            assert_eq!(read(&ingest, &name, base).await[1], 14.0, "{name}");
        }
        ingest.close().await.unwrap();
    });
}

#[test]
fn late_points_that_cannot_wait_for_a_read_reach_coarse_slots_when_it_works() {
    for restarts in [false, true] {
        let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
        let base = (now() - 1000) / 10 * 10;
        let late_files = || {
            let names = std::fs::read_dir(dir.path().join("journal")).unwrap().map(|file| file.unwrap().file_name());
            names.filter(|name| name.to_str().unwrap().starts_with("late-")).count()
        };
        runtime(2).block_on(async {
            let ingest = open(dir.path(), &driver, &damage).await;
            send(&ingest, (base..base + 10).map(|time| ("m".to_owned(), time, 1.0))).await;
            ingest.flush().await.unwrap();
            ingest.close().await.unwrap();
            driver.unreadable.lock().unwrap().insert("m".to_owned());
            // Memory is full at once.
            let options = IngestOptions {
                damage: damage.clone(),
                memory_limit_bytes: 1,
                ..options(&dir.path().join("journal"), Duration::from_millis(20))
            };
            let registry = registry_of(&*driver).await;
            let ingest =
                Ingest::open(options, Store::of(driver.clone()), registry, rules("1s:1h,10s:6h")).await.unwrap();
            send(&ingest, [("m".to_owned(), base + 3, 5.0), ("m".to_owned(), base + 4, 6.0)]).await;
            ingest.flush_patiently(Duration::from_secs(20)).await.unwrap();
            assert_eq!((late_files(), damage.examples().len()), (1, 1), "{:?}", damage.examples());
            assert!(ingest.put_back().await.is_err(), "it still cannot be read");
            drop(ingest);
            let damage = if restarts { DamageLog::new() } else { damage.clone() };
            let ingest = open(dir.path(), &driver, &damage).await;
            assert_eq!((late_files(), damage.examples().len()), (1, 1), "{:?}", damage.examples());
            driver.unreadable.lock().unwrap().clear();
            // One has a newer value by now.
            send(&ingest, [("m".to_owned(), base + 4, 7.0)]).await;
            ingest.flush().await.unwrap();
            assert_eq!(ingest.put_back().await.unwrap(), 1);
            assert_eq!((late_files(), damage.examples().len()), (0, 0), "{:?}", damage.examples());
            assert_eq!(read(&ingest, "m", base).await[1], 8.0 + 5.0 + 7.0);
            ingest.flush().await.unwrap();
            assert_eq!(read(&ingest, "m", base + 3).await, [5.0, 20.0]);
            ingest.close().await.unwrap();
        });
    }
}

#[test]
fn late_points_that_reached_their_coarse_slots_are_not_put_again_while_others_of_their_file_wait() {
    for waiting in ["a", "b"] {
        let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
        let base = (now() - 3300) / 10 * 10;
        let late_files = || {
            let names = std::fs::read_dir(dir.path().join("journal")).unwrap().map(|file| file.unwrap().file_name());
            names.filter(|name| name.to_str().unwrap().starts_with("late-")).count()
        };
        // Of two groups: more than 4,096 points together.
        let points = |is_late: bool| {
            let times = (base..base + 3000).filter(move |time| (time % 10 != 0) == is_late);
            times.flat_map(move |time| ["a", "b"].map(|name| (name.to_owned(), time, 1.0)))
        };
        runtime(2).block_on(async {
            let ingest = open(dir.path(), &driver, &damage).await;
            send(&ingest, points(false)).await;
            ingest.flush().await.unwrap();
            ingest.close().await.unwrap();
            *driver.unreadable.lock().unwrap() = ["a".to_owned(), "b".to_owned()].into();
            let options = IngestOptions {
                memory_limit_bytes: 1,
                ..options(&dir.path().join("journal"), Duration::from_millis(20))
            };
            let registry = registry_of(&*driver).await;
            let ingest =
                Ingest::open(options, Store::of(driver.clone()), registry, rules("1s:1h,10s:6h")).await.unwrap();
            send(&ingest, points(true)).await;
            ingest.flush_patiently(Duration::from_secs(20)).await.unwrap();
            drop(ingest);
            let ingest = open(dir.path(), &driver, &damage).await;
            assert_eq!((late_files(), ingest.counters().held_slots), (1, 0));
            *driver.unreadable.lock().unwrap() = [waiting.to_owned()].into();
            assert!(ingest.put_back().await.is_err());
            assert!(2700 <= ingest.counters().held_slots, "those of the other");
            ingest.flush().await.unwrap();
            assert!(ingest.put_back().await.is_err());
            assert_eq!(ingest.counters().held_slots, 0, "{waiting}");
            driver.unreadable.lock().unwrap().clear();
            assert_eq!((ingest.put_back().await.unwrap(), late_files()), (2700, 0));
            ingest.flush().await.unwrap();
            for name in ["a", "b"] {
                assert_eq!(read(&ingest, name, base + 20).await, [1.0, 10.0], "{name}");
            }
            ingest.close().await.unwrap();
        });
    }
}

#[test]
fn points_that_wait_for_a_read_are_in_the_journal_when_the_process_ends() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        send(&ingest, (base..base + 10).map(|time| ("m".to_owned(), time, 1.0))).await;
        ingest.flush().await.unwrap();
        driver.unreadable.lock().unwrap().insert("m".to_owned());
        send(&ingest, [("m".to_owned(), base + 3, 5.0)]).await;
        assert!(ingest.flush().await.is_err());
        drop(ingest);
        driver.unreadable.lock().unwrap().clear();
        let ingest = open(dir.path(), &driver, &damage).await;
        ingest.flush().await.unwrap();
        assert_eq!(read(&ingest, "m", base).await[1], 14.0);
    });
}

#[test]
fn points_of_an_earlier_policy_that_wait_for_a_read_do_not_replace_later_ones() {
    for flushes in [0, 1, 2] {
        let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
        let base = (now() - 1000) / 10 * 10;
        let later = "1s:1h,10s:12h";
        runtime(2).block_on(async {
            let ingest = open(dir.path(), &driver, &damage).await;
            send(&ingest, (base..base + 10).map(|time| ("m".to_owned(), time, 1.0))).await;
            ingest.flush().await.unwrap();
            driver.unreadable.lock().unwrap().insert("m".to_owned());
            send(&ingest, [("m".to_owned(), base + 3, 5.0)]).await;
            ingest.set_rules(rules(later)).await;
            send(&ingest, [("m".to_owned(), base + 3, 7.0)]).await;
            drop(ingest);
            // The replay sets the first of the two aside, because it came under the policy before.
            let ingest = open_with(dir.path(), &driver, &damage, later).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            for _ in 0..flushes {
                let error = ingest.flush_patiently(Duration::from_secs(20)).await.unwrap_err().to_string();
                assert!(error.contains("cannot be read"), "{error}");
            }
            driver.unreadable.lock().unwrap().clear();
            while ingest.flush().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(read(&ingest, "m", base + 3).await, [7.0, 16.0], "{flushes}");
            drop(ingest);
            let ingest = open_with(dir.path(), &driver, &damage, later).await;
            assert_eq!(read(&ingest, "m", base + 3).await, [7.0, 16.0], "{flushes}");
            assert_eq!(ingest.counters().doubtful_slots, 0);
        });
    }
}

#[test]
fn points_wait_while_what_another_policy_stored_of_their_slots_cannot_be_read() {
    let base = (now() - 1000) / 10 * 10;
    for (before, after) in [("1s:1h", "1s:2h"), ("1s:1h", "1s:2h,10s:6h"), ("10s:1h", "1s:1h"), ("1s:1h", "10s:2h")] {
        let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
        runtime(2).block_on(async {
            let ingest = open_with(dir.path(), &driver, &damage, before).await;
            send(&ingest, [("m".to_owned(), base, 1.0)]).await;
            ingest.flush().await.unwrap();
            ingest.set_rules(rules(after)).await;
            driver.unreadable.lock().unwrap().insert("m".to_owned());
            send(&ingest, [("m".to_owned(), base, 5.0)]).await;
            let error = ingest.flush_patiently(Duration::from_secs(20)).await.unwrap_err().to_string();
            assert!(error.contains("cannot be read"), "{before}, {after}: {error}");
            driver.unreadable.lock().unwrap().clear();
            ingest.flush().await.unwrap();
            ingest.set_rules(rules(before)).await;
            assert_eq!(read(&ingest, "m", base).await[0], 5.0, "{before}, {after}");
            ingest.close().await.unwrap();
        });
    }
}

#[test]
fn a_newer_point_replaces_one_of_another_policy_where_damage_hides_whether_that_is_stored() {
    let base = (now() - 1000) / 10 * 10;
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    runtime(2).block_on(async {
        let ingest = open_with(dir.path(), &driver, &damage, "1s:1h").await;
        send(&ingest, [("m".to_owned(), base, 1.0)]).await;
        ingest.flush().await.unwrap();
        ingest.set_rules(rules("1s:2h")).await;
        driver.is_damaged.store(true, SeqCst);
        send(&ingest, [("m".to_owned(), base, 5.0)]).await;
        ingest.flush().await.unwrap();
        driver.is_damaged.store(false, SeqCst);
        ingest.set_rules(rules("1s:1h")).await;
        assert_eq!(read(&ingest, "m", base).await[0], 5.0);
        ingest.close().await.unwrap();
    });
}

#[test]
fn newer_points_wait_behind_older_ones_that_came_under_other_rules_and_wait_for_a_read() {
    let (dir, damage) = (tempfile::tempdir().unwrap(), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    let all = || (0..5).map(|n| format!("m{n}"));
    let each = |time, value| all().map(move |name| (name, time, value));
    let retentions_after = "1s:1h,10s:7h";
    for may_flush_meanwhile in [false, true] {
        let (dir, driver) = (dir.path().join(may_flush_meanwhile.to_string()), Arc::new(Picky::default()));
        runtime(2).block_on(async {
            let ingest = open(&dir, &driver, &damage).await;
            send(&ingest, (base..base + 10).flat_map(|time| each(time, 1.0))).await;
            ingest.flush().await.unwrap();
            // A change of rules makes the points before it a job of its own in a replay.
            send(&ingest, each(base + 3, 6.0)).await;
            send(&ingest, each(base + 4, 6.0)).await;
            driver.unreadable.lock().unwrap().extend(all());
            ingest.set_rules(rules(retentions_after)).await;
            send(&ingest, each(base + 4, 7.0)).await;
            drop(ingest);
        });
        runtime(2).block_on(async {
            let ingest = open_with(&dir, &driver, &damage, retentions_after).await;
            if may_flush_meanwhile {
                let error = ingest.flush_patiently(Duration::from_secs(20)).await.unwrap_err().to_string();
                assert!(error.contains("cannot be read"), "{error}");
            } else {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            driver.unreadable.lock().unwrap().clear();
            ingest.flush().await.unwrap();
            for name in all() {
                assert_eq!(read(&ingest, &name, base + 3).await[0], 6.0, "{name}");
                assert_eq!(read(&ingest, &name, base + 4).await[0], 7.0, "{name}");
                assert_eq!(read(&ingest, &name, base).await[1], 8.0 + 6.0 + 7.0, "{name}");
            }
            assert_eq!(ingest.counters().held_slots, 0);
            ingest.close().await.unwrap();
        });
    }
}

#[test]
fn coarse_slots_over_damaged_ones_stay_as_they_are_and_points_in_memory_answer_null() {
    let (dir, driver, damage) = (tempfile::tempdir().unwrap(), Arc::new(Picky::default()), DamageLog::new());
    let base = (now() - 1000) / 10 * 10;
    let points = |times: std::ops::Range<Timestamp>| times.map(|time| ("m".to_owned(), time, 1.0));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver, &damage).await;
        send(&ingest, points(base..base + 25)).await;
        ingest.flush().await.unwrap();
        driver.is_damaged.store(true, SeqCst);
        // A late point, and one that extends what is stored.
        send(&ingest, [("m".to_owned(), base + 3, 5.0)]).await;
        assert!(read(&ingest, "m", base).await[1].is_nan(), "the other nine cannot be read");
        send(&ingest, points(base + 25..base + 30)).await;
        ingest.flush().await.unwrap();
        assert_eq!(read(&ingest, "m", base).await[1], 10.0, "the row is good");
        assert_eq!(ingest.counters().doubtful_slots, 2);
        ingest.close().await.unwrap();
        // The store leaves damaged slots out later, and they are no more than absent then.
        let rest = Arc::new(Picky::default());
        let table = |resolution, points, aggregated| metric::Table {
            stage: metric::Stage::new(resolution, points).unwrap(),
            aggregated,
            rollup: None,
        };
        let (metric, name, aggregation) = (metric::MetricId(0), "m".to_owned(), metric::Aggregation::Sum);
        let (table, first_slot) = (table(10, 2160, true), (base / 10) as u32);
        let end_slot = first_slot + 1;
        let fetch = Fetch { metric, name: name.clone(), table, first_slot, end_slot, aggregation };
        let Cells { values, counts, .. } = driver.memory.fetch(vec![fetch]).await.unwrap().remove(0);
        rest.write(vec![Run { metric, name, table, first_slot, values, counts, aggregation }]).await.unwrap();
        let mut records = Vec::new();
        driver.scan_metrics(&mut |some| records.extend(some)).await.unwrap();
        rest.put_metrics(records).await.unwrap();
        let other = tempfile::tempdir().unwrap();
        let ingest = open(other.path(), &rest, &damage).await;
        send(&ingest, [("m".to_owned(), base + 4, 7.0)]).await;
        ingest.flush().await.unwrap();
        assert_eq!(read(&ingest, "m", base).await[1], 10.0);
    });
}
