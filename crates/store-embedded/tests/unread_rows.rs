//! The disk does not return a part of a file of rows: merges and repairs go on with the others.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy};
use store::{PointStore as _, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, check_file};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn run(id: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.table(0),
        first_slot: 28_333_000,
        values: vec![f64::from(id)],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn options(data: &Path) -> EmbeddedOptions {
    EmbeddedOptions { data: Some(data.to_owned()), merges: false, ..EmbeddedOptions::default() }
}

/// A store with seven files of a past window.
fn seven(data: &Path) -> Vec<PathBuf> {
    let store = data.join("store");
    let driver = EmbeddedDriver::open(&store, options(data)).unwrap();
    for flush in 0..7 {
        block_on(driver.write((0..2_000).map(|id| run(id * 7 + flush)).collect())).unwrap();
        block_on(driver.sync()).unwrap();
    }
    let mut files: Vec<PathBuf> = driver.files().iter().map(|file| store.join(&file.path)).collect();
    files.sort();
    files
}

/// A disk that does not return a block of the third file while the flag is set.
fn bad_disk() -> (Arc<FailingDisk>, Arc<AtomicBool>) {
    let is_bad = Arc::new(AtomicBool::new(true));
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None);
    (Arc::new(disk.with_sector_bad_while("3-3.rows", 100..200, is_bad.clone())), is_bad)
}

#[test]
fn a_merge_leaves_out_a_file_that_the_disk_does_not_return_and_merges_the_others_of_its_window() {
    let data = tempfile::tempdir().unwrap();
    seven(data.path());
    let (disk, is_bad) = bad_disk();
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let opened =
        EmbeddedOptions { host: Host { disk, clock: clock.clone(), ..Host::system() }, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&data.path().join("store"), opened).unwrap();
    let rows = |name: &str| format!("{name}.rows");
    let names = || {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = driver.files().into_iter().map(|file| name(file.path)).collect();
        names.sort();
        names
    };
    // The next round merges what is next to the file.
    for _ in 0..3 {
        driver.merge();
    }
    assert_eq!((names(), driver.status().merges_failed), (["1-1", "2-2", "3-3", "4-7"].map(rows).to_vec(), 1));
    clock.advance(Duration::from_secs(60));
    for _ in 0..3 {
        driver.merge();
    }
    assert_eq!((names(), driver.status().merges_failed), (["1-2", "3-3", "4-7"].map(rows).to_vec(), 2));
    let mut failed = Vec::new();
    for _ in 0..30 {
        clock.advance(Duration::from_secs(60));
        driver.merge();
        failed.push(driver.status().merges_failed);
    }
    assert!((5..10).contains(failed.last().unwrap()), "the attempts become rare: {failed:?}");
    assert_eq!(names().len(), 3);
    is_bad.store(false, Relaxed);
    clock.advance(Duration::from_secs(86_400));
    driver.merge();
    assert_eq!(names(), ["1-7.rows"]);
}

#[test]
fn a_file_that_was_away_is_merged_as_soon_as_it_is_back() {
    let data = tempfile::tempdir().unwrap();
    let files = seven(data.path());
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let opened = EmbeddedOptions { host: Host { clock: clock.clone(), ..Host::system() }, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&data.path().join("store"), opened).unwrap();
    let aside = data.path().join("aside");
    fs::rename(&files[2], &aside).unwrap();
    for _ in 0..300 {
        clock.advance(Duration::from_secs(60));
        driver.look_after_files();
    }
    assert!((3..30).contains(&driver.status().merges_failed), "{:?}", driver.status());
    fs::rename(&aside, &files[2]).unwrap();
    clock.advance(Duration::from_secs(61));
    driver.look_after_files();
    driver.look_after_files();
    assert_eq!(driver.files().len(), 1, "{:?}", driver.files());
}

#[test]
fn a_repair_leaves_a_file_that_the_disk_does_not_return_and_repairs_the_others() {
    // Reads of a block fail, and those of the header and the footer, too.
    for bad in [100..200, 0..1 << 20] {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let files = seven(data.path());
        let damaged = |path: &Path| check_file(&SystemDisk, path).unwrap().damaged.len();
        for file in [&files[1], &files[2], &files[4]] {
            let mut bytes = fs::read(file).unwrap();
            let second = bytes.windows(4).enumerate().filter(|(_, four)| *four == b"PLBk").nth(1).unwrap().0;
            bytes[second + 40] ^= 3;
            fs::write(file, bytes).unwrap();
            assert_eq!(damaged(file), 1);
        }
        let before = fs::read(&files[2]).unwrap();
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("3-3.rows", bad.clone());
        let failing = EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options(data.path()) };
        let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
        for _ in 0..2 {
            let left = store_embedded::repair(&store, &failing, &lock).unwrap();
            assert_eq!(left.iter().map(|left| store.join(&left.path)).collect::<Vec<_>>(), [files[2].clone()]);
            assert!(left[0].how.contains("a bad sector"), "{left:?}");
            assert_eq!((damaged(&files[1]), damaged(&files[4])), (0, 0));
            assert_eq!(fs::read(&files[2]).unwrap(), before);
        }
        // The disk is copied to another one.
        assert_eq!(store_embedded::repair(&store, &options(data.path()), &lock).unwrap(), []);
        assert!(files.iter().all(|file| damaged(file) == 0));
    }
}

#[test]
fn a_repair_fails_at_a_file_that_its_user_may_not_read() {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().join("store");
    seven(data.path());
    let refused = |call: Call, path: &Path| {
        let is_it = call == Call::Open && path.ends_with("3-3.rows");
        is_it.then(|| std::io::ErrorKind::PermissionDenied.into())
    };
    let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), refused));
    let failing = EmbeddedOptions { host: Host { disk, ..Host::system() }, ..options(data.path()) };
    let lock = store_embedded::lock(&SystemDisk, &store).unwrap();
    let error = store_embedded::repair(&store, &failing, &lock).unwrap_err();
    assert!(error.to_string().contains("3-3.rows"), "{error}");
}

#[test]
fn a_file_that_a_start_could_not_read_is_not_waited_for_once_its_window_has_expired() {
    let data = tempfile::tempdir().unwrap();
    seven(data.path());
    let disk = FailingDisk::new(Arc::new(SystemDisk), |call, path| {
        (call == Call::Open && path.ends_with("3-3.rows")).then(|| std::io::Error::other("a bad sector"))
    });
    let opened = EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..options(data.path()) };
    let store = data.path().join("store");
    let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
    let has_unread = || driver.files().iter().any(|file| file.path.ends_with("3-3.rows"));
    let is_reported = || opened.damage.examples().iter().any(|damage| damage.how.ends_with("retrying"));
    assert!(has_unread() && is_reported(), "it is waited for");
    block_on(driver.expire(i64::MAX / 2)).unwrap();
    assert!(!has_unread() && !is_reported());
    drop(driver);
    assert!(!fs::read_to_string(store.join("manifest")).unwrap().contains("3-3"));
}

#[test]
fn a_file_that_lacks_its_end_is_used_after_a_minute_also_where_its_header_cannot_be_read() {
    let data = tempfile::tempdir().unwrap();
    let files = seven(data.path());
    let bytes = fs::read(&files[2]).unwrap();
    fs::write(&files[2], &bytes[..bytes.len() / 2]).unwrap();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("3-3.rows", 0..1);
    let clock = Arc::new(ManualClock::at(1_795_000_000));
    let host = Host { disk: Arc::new(disk), clock: clock.clone(), ..Host::system() };
    let opened = EmbeddedOptions { host, ..options(data.path()) };
    let driver = EmbeddedDriver::open(&data.path().join("store"), opened.clone()).unwrap();
    let is_waiting = || opened.damage.examples().iter().any(|damage| damage.how.ends_with("retrying"));
    assert!(is_waiting(), "{:?}", opened.damage.examples());
    for _ in 0..3 {
        clock.advance(Duration::from_secs(61));
        driver.look_after_files();
    }
    assert!(!is_waiting(), "{:?}", opened.damage.examples());
}
