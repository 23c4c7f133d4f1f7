//! Files that are longer than they can be, and names with numbers that no file has: little is read, and nothing is touched.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use host::{Call, FailingDisk, Host, SystemDisk};
use metric::{Aggregation, MetricId, Policy, Stage, Table};
use store::{MetricRecord, NameStore, PointStore, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, check_spec, identity_of, newer_file, read_manifest};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn table() -> Table {
    Table { stage: Stage::new(60, 1440).unwrap(), aggregated: false, rollup: None }
}

/// A store with a flush of four metrics.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    let record = |id: u32| {
        let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
        MetricRecord { id: MetricId(id), name: format!("a.m{id}"), created_on: 1_700_000_000, policies }
    };
    let run = |id: u32| Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: table(),
        first_slot: 28_333_000,
        values: vec![f64::from(id); 5],
        counts: Vec::new(),
        aggregation: Aggregation::Average,
    };
    block_on(async {
        driver.put_metrics((0..4).map(record).collect()).await.unwrap();
        driver.sync_metrics().await.unwrap();
        driver.write((0..4).map(run).collect()).await.unwrap();
        driver.sync().await.unwrap();
    });
    dir
}

fn file_of_rows(dir: &Path) -> PathBuf {
    let path = read_manifest(&SystemDisk, dir).unwrap().remove(0).path;
    dir.join(path)
}

fn extend(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// A disk that counts the bytes that are read.
fn counting() -> (FailingDisk, Arc<AtomicU64>) {
    let read = Arc::new(AtomicU64::new(0));
    let counted = read.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_reads(move |_, bytes| {
        let all = counted.fetch_add(bytes.len() as u64, Relaxed);
        assert!(all < 4 << 30, "too much is read");
    });
    (disk, read)
}

fn options(disk: FailingDisk) -> EmbeddedOptions {
    EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..EmbeddedOptions::default() }
}

#[test]
fn zeros_behind_a_file_of_rows_are_not_read() {
    let dir = filled();
    extend(&file_of_rows(dir.path()), 1 << 40);
    let (disk, read) = counting();
    let options = options(disk);
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    assert!(0 < options.damage.totals().0);
    assert_eq!(driver.status().files, 1);
    assert!(read.load(Relaxed) < 16 << 20, "{read:?} bytes were read");
}

#[test]
fn a_spec_and_a_manifest_that_are_too_long_are_not_read_whole() {
    let dir = filled();
    let identity = identity_of(&SystemDisk, dir.path());
    assert!(identity.is_some());
    for file in ["spec", "manifest"] {
        extend(&dir.path().join(file), 8 << 30);
    }
    let (disk, read) = counting();
    assert_eq!(newer_file(&disk, dir.path()).unwrap(), None);
    assert!(check_spec(&disk, dir.path()).is_err() && identity_of(&disk, dir.path()).is_none());
    assert!(read.load(Relaxed) < 600 << 20, "{read:?} bytes were read");
}

#[test]
fn files_with_numbers_that_none_has_are_reported_and_left_alone() {
    let dir = filled();
    let window = file_of_rows(dir.path()).parent().unwrap().to_owned();
    let most = u64::MAX;
    let strays = [
        dir.path().join(format!("names/{most}.log")),
        dir.path().join(format!("events/{most}.log")),
        window.join(format!("{most}-{most}.rows")),
        window.join(format!("1-{most}.rows")),
    ];
    for stray in &strays {
        std::fs::write(stray, "text").unwrap();
    }
    for _ in 0..2 {
        let options = EmbeddedOptions::default();
        let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
        block_on(driver.sync()).unwrap();
        let found = options.damage.examples();
        assert_eq!(found.iter().filter(|damage| damage.what == "stray file").count(), strays.len(), "{found:?}");
    }
    assert!(strays.iter().all(|stray| std::fs::read(stray).unwrap() == b"text"));
}

#[test]
fn a_footer_that_could_not_be_read_for_a_moment_changes_no_line_of_the_manifest() {
    let dir = filled();
    let before = std::fs::read_to_string(dir.path().join("manifest")).unwrap();
    let lines =
        |text: &str| text.lines().filter(|line| line.starts_with("file ")).map(str::to_owned).collect::<Vec<_>>();
    let (is_failing, footer) =
        (Arc::new(AtomicBool::new(true)), std::fs::metadata(file_of_rows(dir.path())).unwrap().len() - 8);
    let failing = is_failing.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_: Call, _: &Path| None::<io::Error>);
    let disk = disk.with_sector_bad_while("1-1.rows", footer..footer + 8, failing);
    let first = options(disk);
    let driver = EmbeddedDriver::open(dir.path(), first.clone()).unwrap();
    assert_eq!(first.damage.totals().0, 1);
    is_failing.store(false, Relaxed);
    let run = Run {
        metric: MetricId(1),
        name: "a.m1".to_owned(),
        table: table(),
        first_slot: 28_330_000,
        values: vec![1.0],
        counts: Vec::new(),
        aggregation: Aggregation::Average,
    };
    block_on(async {
        driver.write(vec![run]).await.unwrap();
        driver.sync().await.unwrap();
    });
    drop(driver);
    let after = std::fs::read_to_string(dir.path().join("manifest")).unwrap();
    assert!(lines(&after).contains(&lines(&before)[0]) && 1 < lines(&after).len(), "{before}{after}");
    let second = EmbeddedOptions::default();
    EmbeddedDriver::open(dir.path(), second.clone()).unwrap();
    assert_eq!(second.damage.totals().0, 0, "{:?}", second.damage.examples());
}
