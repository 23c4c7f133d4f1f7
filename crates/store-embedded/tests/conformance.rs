//! The embedded driver passes the suite that every driver passes, and survives what only a disk can do to it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use metric::{Aggregation, MetricId, Stage, Table};
use store::{Events, Fetch, NameStore, PointStore, Run, StoreError, conformance, conformance::Fixture};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

struct Folder(tempfile::TempDir);

impl Folder {
    fn driver(&self) -> Arc<EmbeddedDriver> {
        // Small, so that rows reach files also in small tests.
        let options = EmbeddedOptions { unsynced_bytes: 64 << 10, ..EmbeddedOptions::default() };
        Arc::new(EmbeddedDriver::open(self.0.path(), options).unwrap())
    }
}

impl Fixture<dyn PointStore> for Folder {
    const OUTLIVES: bool = true;

    async fn open(&mut self) -> Arc<dyn PointStore> {
        self.driver()
    }
}

impl Fixture<dyn NameStore> for Folder {
    const OUTLIVES: bool = true;

    async fn open(&mut self) -> Arc<dyn NameStore> {
        self.driver()
    }
}

impl Fixture<dyn Events> for Folder {
    const OUTLIVES: bool = true;

    async fn open(&mut self) -> Arc<dyn Events> {
        self.driver()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn points_conform_to_the_suite_of_all_drivers() {
    runtime().block_on(conformance::points_suite(&mut Folder(tempfile::tempdir().unwrap()), u32::MAX, now()));
}

#[test]
fn names_conform_to_the_suite_of_all_drivers() {
    runtime().block_on(conformance::names_suite(&mut Folder(tempfile::tempdir().unwrap())));
}

#[test]
fn events_conform_to_the_suite_of_all_drivers() {
    runtime().block_on(conformance::events_suite(&mut Folder(tempfile::tempdir().unwrap())));
}

#[test]
fn a_folder_accepts_one_process_and_one_layout() {
    let dir = tempfile::tempdir().unwrap();
    let open = || EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).map(|_| ());
    let first = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("another process uses the folder"), "{error}");
    drop(first);
    std::fs::write(dir.path().join("spec"), "plumbago embedded store\nlayout 99\n").unwrap();
    // A process that another test is starting has all descriptors of this one for a moment, and with them the lock.
    let error = (0..500)
        .find_map(|_| match open().unwrap_err() {
            StoreError::Unavailable(_) => {
                std::thread::sleep(Duration::from_millis(10));
                None
            }
            error => Some(error),
        })
        .expect("the lock is free");
    assert!(matches!(&error, StoreError::Spec { .. }), "{error}");
    assert!(error.to_string().contains("layout 99") && error.to_string().contains("layout 2"), "{error}");
}

#[test]
fn expiry_frees_disk_space() {
    let dir = tempfile::tempdir().unwrap();
    let table = Table { stage: Stage::new(1, 3600).unwrap(), aggregated: false, rollup: None };
    runtime().block_on(async {
        let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
        let run = |slot: u32| Run {
            metric: MetricId(1),
            name: "a".into(),
            table,
            first_slot: slot,
            values: vec![1.5; 100],
            counts: vec![],
            aggregation: metric::Aggregation::Sum,
        };
        driver.write(vec![run(10_000), run(20_000)]).await.unwrap();
        driver.sync().await.unwrap();
        let folders = || std::fs::read_dir(dir.path().join(table.to_string())).unwrap().count();
        assert_eq!(folders(), 2);
        driver.expire(10_100 + 3600).await.unwrap();
        assert_eq!(folders(), 2, "still kept");
        driver.expire(12_000 + 2000 + 3601).await.unwrap();
        assert_eq!(folders(), 1);
        let fetch = Fetch {
            metric: MetricId(1),
            name: "a".into(),
            table,
            first_slot: 20_000,
            end_slot: 20_001,
            aggregation: Aggregation::Average,
        };
        assert_eq!(driver.fetch(vec![fetch]).await.unwrap()[0].values, [1.5]);
    });
}

const TABLE: (u32, u32) = (60, 10_080);

fn kill_run(metric: u32, round: u32) -> Run {
    let table = Table { stage: Stage::new(TABLE.0, TABLE.1).unwrap(), aggregated: false, rollup: None };
    let values = (0..50).map(|i| f64::from(metric * 1000 + round * 50 + i) / 4.0).collect();
    Run {
        metric: MetricId(metric),
        name: "m".into(),
        table,
        first_slot: 1_000_000 + round * 50,
        values,
        counts: vec![],
        aggregation: metric::Aggregation::Sum,
    }
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn child_that_writes_and_syncs_until_it_is_killed() {
    let Ok(dir) = std::env::var("PLUMBAGO_TEST_KILL_DIR") else { return };
    let options = EmbeddedOptions { unsynced_bytes: 32 << 10, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(Path::new(&dir), options).unwrap();
    runtime().block_on(async {
        for round in 0.. {
            driver.write((0..100).map(|metric| kill_run(metric, round)).collect()).await.unwrap();
            driver.sync().await.unwrap();
            println!("synced {round}");
        }
    });
}

#[test]
fn synced_points_survive_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_and_syncs_until_it_is_killed", "--nocapture"])
        .env("PLUMBAGO_TEST_KILL_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut synced = 0;
    let began = std::time::Instant::now();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if let Some(round) = line.unwrap().rsplit_once("synced ").and_then(|(_, round)| round.parse::<u32>().ok()) {
            synced = round;
            if began.elapsed() > Duration::from_secs(2) {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(synced > 2, "the child synced {synced} rounds");
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    runtime().block_on(async {
        for metric in 0..100 {
            for round in 0..=synced {
                let run = kill_run(metric, round);
                let fetch = Fetch {
                    metric: MetricId(metric),
                    name: "m".into(),
                    table: run.table,
                    first_slot: run.first_slot,
                    end_slot: run.first_slot + 50,
                    aggregation: Aggregation::Average,
                };
                let cells = driver.fetch(vec![fetch]).await.unwrap().remove(0);
                assert_eq!(cells.values, run.values, "metric {metric}, round {round} of {synced}");
            }
        }
    });
}

/// A small file system of its own, unmounted when the test ends.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(size: &str) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path()).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Small(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_an_error_until_there_is_room_again() {
    let Some(small) = Small::mount("16m") else {
        println!("SKIPPED: a small file system cannot be mounted; run as root to test a full disk");
        return;
    };
    let options = EmbeddedOptions { unsynced_bytes: 256 << 10, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(&small.0.path().join("store"), options).unwrap();
    let table = Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false, rollup: None };
    let run = |metric: u32| Run {
        metric: MetricId(metric),
        name: "m".into(),
        table,
        first_slot: 1_000_000,
        values: (0..500).map(|i| f64::from(metric * 1000 + i).sin()).collect(),
        counts: vec![],
        aggregation: metric::Aggregation::Sum,
    };
    let fetch = |metric: u32| Fetch {
        metric: MetricId(metric),
        name: "m".into(),
        table,
        first_slot: 1_000_000,
        end_slot: 1_000_500,
        aggregation: Aggregation::Average,
    };
    let ballast = small.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 15 << 20]).unwrap();
    runtime().block_on(async {
        let mut failures = 0;
        for metric in 0..600 {
            match driver.write(vec![run(metric)]).await {
                Ok(()) => {}
                Err(StoreError::Io { .. }) => failures += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(failures > 0, "the disk did not become full");
        assert!(matches!(driver.sync().await, Err(StoreError::Io { .. })));
        let held = driver.usage().memory_bytes;
        assert!(held < 2 << 20, "{held} bytes of memory are held while the disk is full");
        // What is in memory is still read.
        assert_eq!(driver.fetch(vec![fetch(0)]).await.unwrap()[0].values, run(0).values);

        std::fs::remove_file(&ballast).unwrap();
        for metric in 0..600 {
            driver.write(vec![run(metric)]).await.unwrap();
        }
        driver.sync().await.unwrap();
    });
    drop(driver);
    let driver = EmbeddedDriver::open(&small.0.path().join("store"), EmbeddedOptions::default()).unwrap();
    runtime().block_on(async {
        for metric in 0..600 {
            assert_eq!(driver.fetch(vec![fetch(metric)]).await.unwrap()[0].values, run(metric).values, "{metric}");
        }
    });
}
