//! Damage to the spec and the names of a store: what it costs, and what is refused.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy};
use store::{MetricRecord, NameStore, PointStore, PolicyChange, Run, StoreError};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

fn record(id: u32) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    MetricRecord { id: MetricId(id), name: format!("a.m{id}"), created_on: 1_700_000_000, policies }
}

/// A store with three names, one of them deleted, and one opening.
fn small() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    block_on(async {
        driver.put_metrics((0..3).map(record).collect()).await.unwrap();
        driver.delete_metrics(vec![MetricId(1)]).await.unwrap();
        driver.sync_metrics().await.unwrap();
        driver.begin(MetricId(3)).await.unwrap();
    });
    dir
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn names(driver: &EmbeddedDriver) -> Vec<String> {
    let mut names = Vec::new();
    block_on(driver.scan_metrics(&mut |records| names.extend(records.into_iter().map(|record| record.name)))).unwrap();
    names.sort();
    names
}

#[test]
fn a_spec_that_is_damaged_or_missing_is_made_from_the_other_files() {
    for change in [|text: &str| Some(text.replace("layout 3", "layout 2")), |_: &str| None] {
        let dir = small();
        let identity = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap().identity();
        let path = dir.path().join("spec");
        match change(&std::fs::read_to_string(&path).unwrap()) {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let options = EmbeddedOptions::default();
        let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
        assert_eq!(driver.identity(), identity);
        assert_eq!(names(&driver), ["a.m0", "a.m2"]);
        assert_eq!(driver.next_id(), MetricId(3));
        assert_eq!(options.damage.totals().0, 1, "{:?}", options.damage.examples());
    }
}

#[test]
fn a_spec_of_another_store_is_made_from_the_other_files() {
    let (dir, other) = (small(), small());
    let identity = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap().identity();
    std::fs::copy(other.path().join("spec"), dir.path().join("spec")).unwrap();
    let options = EmbeddedOptions::default();
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    assert_eq!(driver.identity(), identity);
    assert_eq!((names(&driver), driver.next_id()), (vec!["a.m0".to_owned(), "a.m2".to_owned()], MetricId(3)));
    assert_eq!(options.damage.totals().0, 1, "{:?}", options.damage.examples());
    assert!(dir.path().join("names/00000001.log").exists());
}

/// Options with a disk on which reads of paths that end with `suffix` fail: as many as `failing` says, after `good` ones.
fn unreadable(suffix: &'static str, good: i64, failing: i64) -> EmbeddedOptions {
    let calls = AtomicI64::new(0);
    let fault = move |call: Call, path: &Path| {
        let is_due = call == Call::Read
            && path.to_string_lossy().ends_with(suffix)
            && (good..good.saturating_add(failing)).contains(&calls.fetch_add(1, Relaxed));
        is_due.then(|| io::Error::from_raw_os_error(5))
    };
    let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault));
    EmbeddedOptions { host: Host { disk, ..Host::system() }, ..EmbeddedOptions::default() }
}

/// A store that is open, whose next so many reads of the log of names fail.
fn open_and_failing(dir: &Path, failing: i64, read_patience: Duration) -> (EmbeddedDriver, EmbeddedOptions) {
    let left = Arc::new(AtomicI64::new(0));
    let counted = left.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
        let fails = call == Call::Read && path.ends_with("names/00000001.log") && 0 < counted.load(Relaxed);
        counted.fetch_sub(i64::from(fails), Relaxed);
        fails.then(|| io::Error::from_raw_os_error(5))
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let options = EmbeddedOptions { host, read_patience, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    left.store(failing, Relaxed);
    (driver, options)
}

#[test]
fn names_that_the_disk_does_not_return_for_a_moment_are_waited_for() {
    let dir = small();
    let (driver, options) = open_and_failing(dir.path(), 60, Duration::from_secs(60));
    assert_eq!(names(&driver), ["a.m0", "a.m2"]);
    assert_eq!(options.damage.totals().0, 0);
}

#[test]
fn names_that_were_there_when_the_log_was_opened_and_cannot_be_read_any_more_refuse_the_start() {
    let dir = small();
    let (driver, _) = open_and_failing(dir.path(), i64::MAX, Duration::ZERO);
    let error = block_on(driver.scan_metrics(&mut |_| {})).unwrap_err().to_string();
    assert!(error.contains("names") && error.contains("plumbago repair"), "{error}");
}

#[test]
fn names_that_are_damaged_after_the_log_was_opened_are_reported_and_the_others_handed_out() {
    let dir = small();
    let options = EmbeddedOptions::default();
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    let path = dir.path().join("names/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let name = bytes.windows(4).position(|part| part == b"a.m2").unwrap();
    bytes[name] ^= 3;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(names(&driver), ["a.m0"]);
    let found = options.damage.examples();
    assert_eq!(
        found.iter().map(|damage| (damage.what, damage.metrics)).collect::<Vec<_>>(),
        [("names", Some((MetricId(2), MetricId(2))))]
    );
}

#[test]
fn a_spec_that_cannot_be_read_is_made_from_the_other_files() {
    for failing in [2, i64::MAX] {
        let dir = small();
        let identity = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap().identity();
        let options = unreadable("spec", 0, failing);
        let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
        assert_eq!((driver.identity(), names(&driver)), (identity, vec!["a.m0".to_owned(), "a.m2".to_owned()]));
        assert_eq!(options.damage.totals().0, u64::from(failing == i64::MAX), "{:?}", options.damage.examples());
    }
}

#[test]
fn names_that_cannot_be_read_at_all_refuse_the_start_and_stay_where_they_are() {
    let dir = small();
    let path = dir.path().join("names/00000001.log");
    let bytes = std::fs::read(&path).unwrap();
    for good in [0, 1] {
        let error = EmbeddedDriver::open(dir.path(), unreadable("names/00000001.log", good, i64::MAX)).map(|_| ());
        let error = format!("{:?}", error.unwrap_err());
        assert!(error.contains("names/00000001.log") && error.contains("nothing was changed"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    // A moment without reads costs nothing.
    let options = unreadable("names/00000001.log", 0, 2);
    assert_eq!(names(&EmbeddedDriver::open(dir.path(), options.clone()).unwrap()), ["a.m0", "a.m2"]);
    assert_eq!(options.damage.totals().0, 0);
}

#[test]
fn names_behind_a_page_that_cannot_be_read_get_no_second_id() {
    let dir = tempfile::tempdir().unwrap();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    block_on(async {
        driver.put_metrics((0..1000).map(record).collect()).await.unwrap();
        driver.sync_metrics().await.unwrap();
        driver.begin(MetricId(1000)).await.unwrap();
    });
    drop(driver);
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_bad_sector("names/00000001.log", 9000..9001);
    let options =
        EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..EmbeddedOptions::default() };
    let log = dir.path().join("names/00000001.log");
    let before = std::fs::read(&log).unwrap();
    let error = EmbeddedDriver::open(dir.path(), options.clone()).map(|_| ()).unwrap_err();
    let error = format!("{error:?}");
    assert!(error.contains("names/00000001.log") && error.contains("plumbago repair"), "{error}");
    assert_eq!((std::fs::read(&log).unwrap(), options.damage.totals().0), (before, 0));
    // A fault that passes is waited for.
    let passing = EmbeddedOptions { read_patience: Duration::from_secs(20), ..unreadable("names/00000001.log", 1, 30) };
    assert_eq!(names(&EmbeddedDriver::open(dir.path(), passing.clone()).unwrap()).len(), 1000);
    assert_eq!(passing.damage.totals().0, 0, "{:?}", passing.damage.examples());
    // A repair goes on with what it can read, and keeps the file.
    let options = EmbeddedOptions { leaves_out_unread_names: true, ..options };
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    let found = names(&driver).len();
    assert!((800..1000).contains(&found), "{found} names");
    assert_eq!(options.damage.totals().0, 1, "{:?}", options.damage.examples());
    drop(driver);
    let options = EmbeddedOptions::default();
    assert_eq!(names(&EmbeddedDriver::open(dir.path(), options.clone()).unwrap()).len(), 1000);
    assert_eq!(options.damage.totals().0, 0, "{:?}", options.damage.examples());
}

#[test]
fn a_manifest_that_the_disk_does_not_return_for_a_moment_is_waited_for() {
    let dir = small();
    for (read_patience, findings) in [(Duration::from_secs(20), 0), (Duration::ZERO, 1)] {
        let options = EmbeddedOptions { read_patience, ..unreadable("store/manifest", 0, 30) };
        let store = dir.path().join("store");
        EmbeddedDriver::open(&store, EmbeddedOptions::default()).unwrap();
        EmbeddedDriver::open(&store, options.clone()).unwrap();
        assert_eq!(options.damage.totals().0, findings, "{:?}", options.damage.examples());
    }
    // What was in it is not gone.
    let kept = std::fs::read_dir(dir.path().join("store/damaged")).unwrap().flatten();
    assert_eq!(kept.filter(|entry| entry.file_name().to_string_lossy().contains("manifest")).count(), 1);
}

#[test]
fn files_of_two_stores_without_a_spec_are_refused() {
    let (dir, other) = (small(), small());
    std::fs::copy(other.path().join("names/00000001.log"), dir.path().join("names/00000002.log")).unwrap();
    std::fs::remove_file(dir.path().join("spec")).unwrap();
    let error = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, StoreError::Spec { .. }) && error.to_string().contains("2 stores"), "{error}");
    assert!(!dir.path().join("spec").exists(), "nothing is changed");
}

#[test]
fn a_names_file_of_another_store_is_put_aside() {
    let (dir, other) = (small(), small());
    std::fs::copy(other.path().join("names/00000001.log"), dir.path().join("names/00000002.log")).unwrap();
    let options = EmbeddedOptions::default();
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    assert_eq!(names(&driver), ["a.m0", "a.m2"]);
    assert_eq!(options.damage.totals().0, 1);
    assert!(dir.path().join("damaged/names_00000002.log").exists());
}

#[test]
fn a_missing_log_of_names_is_reported_and_its_ids_are_not_given_again() {
    let dir = small();
    std::fs::remove_dir_all(dir.path().join("names")).unwrap();
    let options = EmbeddedOptions::default();
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    assert_eq!(names(&driver), [""; 0]);
    assert_eq!(options.damage.totals().0, 1, "{:?}", options.damage.examples());
    assert_eq!(driver.next_id(), MetricId(3), "the openings of the spec know it");
}

#[test]
fn an_older_log_of_names_than_the_rows_stays_reported() {
    let dir = small();
    let before = std::fs::read(dir.path().join("names/00000001.log")).unwrap();
    let rows = |first: u32, end: u32| (first..end).map(run).collect::<Vec<Run>>();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    block_on(async {
        driver.write(rows(0, 1)).await.unwrap();
        driver.put_metrics((3..8).map(record).collect()).await.unwrap();
        driver.sync_metrics().await.unwrap();
        driver.write(rows(3, 6)).await.unwrap();
        driver.sync().await.unwrap();
    });
    drop(driver);
    let whole = std::fs::read(dir.path().join("names/00000001.log")).unwrap();
    let options = EmbeddedOptions::default();
    drop(EmbeddedDriver::open(dir.path(), options.clone()).unwrap());
    assert_eq!(options.damage.totals().0, 0, "metrics 6 and 7 have no rows");

    std::fs::write(dir.path().join("names/00000001.log"), before).unwrap();
    assert_eq!(store_embedded::lost_names(&SystemDisk, dir.path()), [(MetricId(3), MetricId(5))]);
    for _ in 0..2 {
        let options = EmbeddedOptions::default();
        let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
        assert_eq!((names(&driver), driver.next_id()), (vec!["a.m0".to_owned(), "a.m2".to_owned()], MetricId(6)));
        let found = options.damage.examples();
        assert_eq!((found.len(), found[0].metrics), (1, Some((MetricId(3), MetricId(5)))), "{found:?}");
        block_on(driver.begin(MetricId(6))).unwrap();
        drop(driver);
        assert_eq!(store_embedded::lost_names(&SystemDisk, dir.path()), [(MetricId(3), MetricId(5))]);
    }
    std::fs::write(dir.path().join("names/00000001.log"), whole).unwrap();
    let options = EmbeddedOptions::default();
    let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
    assert_eq!((names(&driver).len(), options.damage.totals().0), (7, 0));
}

#[test]
fn rows_that_the_disk_does_not_return_differ_from_damaged_ones() {
    let dir = small();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    block_on(async {
        driver.write(vec![run(0)]).await.unwrap();
        driver.sync().await.unwrap();
    });
    drop(driver);
    let fetch = |driver: &EmbeddedDriver| {
        let Run { metric, name, table, first_slot, aggregation, .. } = run(0);
        let fetch = store::Fetch { metric, name, table, first_slot, end_slot: first_slot + 2, aggregation };
        block_on(driver.fetch(vec![fetch])).unwrap().remove(0)
    };
    let is_failing = Arc::new(AtomicI64::new(0));
    let fault = {
        let is_failing = is_failing.clone();
        move |call: Call, path: &Path| {
            let is_due = call == Call::Read && path.extension().is_some_and(|name| name == "rows");
            (is_due && is_failing.load(Relaxed) == 1).then(|| io::Error::from_raw_os_error(5))
        }
    };
    let disk = Arc::new(FailingDisk::new(Arc::new(SystemDisk), fault));
    let options = EmbeddedOptions { host: Host { disk, ..Host::system() }, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir.path(), options).unwrap();
    is_failing.store(1, Relaxed);
    let cells = fetch(&driver);
    assert!(cells.is_damaged && cells.is_unreadable);
    is_failing.store(0, Relaxed);
    let cells = fetch(&driver);
    assert!(!cells.is_damaged && !cells.is_unreadable && cells.values == [0.5, 1.5], "{cells:?}");
}

fn run(id: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.table(0),
        first_slot: 28_333_000,
        values: vec![0.5, 1.5],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

/// A store with these rows in one file, and the file.
fn with_rows(ids: std::ops::Range<u32>) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).unwrap();
    block_on(driver.write(ids.map(run).collect())).unwrap();
    block_on(driver.sync()).unwrap();
    let path = dir.path().join(&driver.files()[0].path);
    (dir, path)
}

fn without_merges() -> EmbeddedOptions {
    EmbeddedOptions { merges: false, ..EmbeddedOptions::default() }
}

/// One byte more or less, most of the footer, the footer with a part of the index, and all behind the blocks but for a byte.
#[test]
fn an_end_of_a_file_of_rows_that_is_lost_behind_the_blocks_costs_nothing() {
    let (_dir, path) = with_rows(0..3);
    let bytes = std::fs::read(&path).unwrap();
    let index = bytes.windows(4).rposition(|four| four == b"PLBi").unwrap();
    for len in [bytes.len() + 1, bytes.len() - 1, bytes.len() - 100, index + 20, index + 4] {
        let (dir, path) = with_rows(0..3);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.resize(len, 0);
        std::fs::write(&path, &bytes).unwrap();
        let report = store_embedded::check_file(&SystemDisk, &path).unwrap();
        assert!(report.rows == 3 && report.damaged.iter().all(|part| part.metrics.is_none()), "{len}: {report:?}");
        for _ in 0..2 {
            let driver = EmbeddedDriver::open(dir.path(), without_merges()).unwrap();
            for id in 0..5 {
                let wanted = if id < 3 { vec![0.5] } else { vec![] };
                assert_eq!(read(&driver, id), (wanted, false), "{len}: {id}");
            }
        }
    }
}

#[test]
fn blocks_that_are_lost_with_the_end_of_a_file_cost_no_metric_and_no_time_that_the_file_never_had() {
    // In the middle of the last block, and before it.
    for more in [50, 0] {
        let (dir, path) = with_rows(100..3_100);
        let bytes = std::fs::read(&path).unwrap();
        let last_block = bytes.windows(4).rposition(|four| four == b"PLBk").unwrap();
        std::fs::write(&path, &bytes[..last_block + more]).unwrap();
        // The first start writes the manifest again.
        for start in 0..3 {
            let clock = Arc::new(ManualClock::at(1_795_000_000));
            let host = Host { clock: clock.clone(), ..Host::system() };
            let options = EmbeddedOptions { host, ..without_merges() };
            let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
            // Its end may be there within a minute.
            clock.advance(std::time::Duration::from_secs(61));
            driver.look_after_files();
            assert_eq!(read(&driver, 100), (vec![0.5], false));
            assert_eq!(read(&driver, 3_099), (vec![], true), "{more}, start {start}: it is lost, and that is said");
            for other in [99, 3_100, 9_000] {
                assert_eq!(read(&driver, other), (vec![], false), "{more}, start {start}: {other}");
            }
            let later = Run { first_slot: run(0).first_slot + 5_000, ..run(3_050) };
            assert_eq!(read_run(&driver, &later), (vec![], false), "{more}: behind its last slot");
            let spans: Vec<_> = options.damage.examples().into_iter().filter_map(|damage| damage.span).collect();
            let begin = i64::from(run(0).first_slot) * 60;
            assert!(spans.iter().all(|(_, until)| *until < begin + 90 * 86_400), "{more}: {spans:?}");
        }
    }
}

/// Version 0.1.0 wrote into the manifest what it could read of such a file, as if that was all.
#[test]
fn what_is_lost_with_the_end_of_a_file_stays_reported_where_no_manifest_says_what_the_file_had() {
    for by_earlier_program in [false, true] {
        let (dir, path) = with_rows(100..3_100);
        let bytes = std::fs::read(&path).unwrap();
        let last_block = bytes.windows(4).rposition(|four| four == b"PLBk").unwrap();
        std::fs::write(&path, &bytes[..last_block + 50]).unwrap();
        let read_rows = store_embedded::check_file(&SystemDisk, &path).unwrap().rows;
        std::fs::remove_file(dir.path().join("manifest")).unwrap();
        for start in 0..3 {
            let driver = EmbeddedDriver::open(dir.path(), without_merges()).unwrap();
            let found = [100, 3_099, 9_000].map(|id| read(&driver, id));
            assert_eq!(found[0], (vec![0.5], false));
            for lost in &found[1..] {
                assert_eq!(*lost, (vec![], true), "{by_earlier_program}, start {start}: the file may have had it");
            }
            drop(driver);
            if by_earlier_program && start == 0 {
                let manifest = std::fs::read_to_string(dir.path().join("manifest")).unwrap();
                let edited = manifest.replace(" 00000000 0 ", &format!(" 00000000 {read_rows} "));
                assert_ne!(edited, manifest);
                let lines = &edited[..edited.rfind("end ").unwrap()];
                let crc = crc32fast::hash(lines.as_bytes());
                std::fs::write(dir.path().join("manifest"), format!("{lines}end {crc:08x}\n")).unwrap();
            }
        }
    }
}

fn read(driver: &EmbeddedDriver, id: u32) -> (Vec<f64>, bool) {
    read_run(driver, &run(id))
}

/// The value of a run, and whether it may be lost.
fn read_run(driver: &EmbeddedDriver, run: &Run) -> (Vec<f64>, bool) {
    let Run { metric, name, table, first_slot, aggregation, .. } = run.clone();
    let fetch = store::Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation };
    let cells = block_on(driver.fetch(vec![fetch])).unwrap().remove(0);
    let is_empty = cells.values.iter().all(|value| value.is_nan());
    (if is_empty { Vec::new() } else { cells.values }, cells.is_damaged)
}

#[test]
fn a_draft_that_a_kill_left_in_the_log_of_names_hides_no_metric_without_a_name() {
    let dir = small();
    let mut metrics = store_embedded::IdSet::default();
    [2, 9].map(MetricId).into_iter().for_each(|metric| _ = metrics.insert(metric));
    let nameless = || store_embedded::without_name(&SystemDisk, dir.path(), &metrics);
    let found = nameless().unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), [MetricId(9)]);
    std::fs::write(dir.path().join("names/00000005.new"), b"").unwrap();
    assert_eq!(nameless(), Some(found));
}
