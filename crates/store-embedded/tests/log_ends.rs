//! The end of a log that was on the disk when the manifest was written, and that is gone.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Call, Clock, FailingDisk, Host, ManualClock, SystemDisk};
use metric::{MetricId, Policy, Stage, Table};
use store::{Events, MetricRecord, NameStore, NewEvent, PointStore, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, cut_logs, lost_names};

const NAMES: &str = "names/00000001.log";
const EVENTS: &str = "events/00000001.log";

fn record(id: u32) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    MetricRecord { id: MetricId(id), name: format!("a.m{id}"), created_on: 1_700_000_000, policies }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn open(dir: &Path) -> (EmbeddedDriver, EmbeddedOptions) {
    let options = EmbeddedOptions::default();
    (EmbeddedDriver::open(dir, options.clone()).unwrap(), options)
}

fn names(driver: &EmbeddedDriver) -> usize {
    let mut names = 0;
    block_on(driver.scan_metrics(&mut |records| names += records.len())).unwrap();
    names
}

fn events(driver: &EmbeddedDriver) -> usize {
    block_on(driver.events((0, 0), i64::MAX, 100)).unwrap().len()
}

fn put_event(driver: &EmbeddedDriver, what: &str) {
    let event = NewEvent { when: 1_700_000_000, what: what.to_owned(), tags: String::new(), data: String::new() };
    block_on(driver.put_event(event)).unwrap();
}

fn run(id: u32) -> Run {
    let table = Table { stage: Stage::new(60, 1440).unwrap(), aggregated: false, rollup: None };
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table,
        first_slot: 28_333_333,
        aggregation: metric::Aggregation::Average,
        values: vec![1.0],
        counts: Vec::new(),
    }
}

/// Six metrics with rows and an event, flushed; then `change`, flushed. Returns how long the logs were before it.
fn flushed(dir: &Path, change: impl FnOnce(&EmbeddedDriver)) -> [usize; 2] {
    let (driver, _) = open(dir);
    block_on(async {
        driver.begin(MetricId(0)).await.unwrap();
        driver.put_metrics((0..6).map(record).collect()).await.unwrap();
        driver.write((0..6).map(run).collect()).await.unwrap();
    });
    put_event(&driver, "first");
    sync(&driver);
    let before = [NAMES, EVENTS].map(|log| std::fs::metadata(dir.join(log)).unwrap().len() as usize);
    change(&driver);
    sync(&driver);
    before
}

fn sync(driver: &EmbeddedDriver) {
    block_on(async {
        driver.sync_metrics().await.unwrap();
        driver.sync().await.unwrap();
    });
}

/// What may be left of a log whose bytes from `before` on are lost.
fn losses(bytes: &[u8], before: usize) -> [Vec<u8>; 4] {
    let zeros = |from: usize| [&bytes[..from], &vec![0; bytes.len() - from]].concat();
    [bytes[..before].to_vec(), bytes[..before + 9].to_vec(), zeros(before), zeros(before + 5)]
}

/// Loses the end of a log in each way: every start reports it until the log is back, or repaired.
fn is_reported(log: &str, change: impl Fn(&EmbeddedDriver), expected: usize) {
    for loss in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let before = flushed(dir, &change)[usize::from(log == EVENTS)];
        let whole = std::fs::read(dir.join(log)).unwrap();
        let (driver, options) = open(dir);
        assert_eq!((options.damage.totals().0, names(&driver)), (0, expected), "as it is");
        drop(driver);
        assert_eq!(reported(dir), 0);

        std::fs::write(dir.join(log), &losses(&whole, before)[loss]).unwrap();
        assert_eq!(reported(dir), 1, "loss {loss} of {log}");
        for start in 0..3 {
            let (driver, options) = open(dir);
            let found = options.damage.examples();
            // Bytes that are neither zeros nor a record's beginning are damage besides.
            let expected = if loss == 3 { 2 } else { 1 };
            assert_eq!(found.len(), expected, "loss {loss} of {log}, start {start}: {found:?}");
            let is_cut =
                |damage: &store::Damage| log.starts_with(&damage.file) && damage.how.contains("the end of the log");
            assert!(found.iter().any(is_cut), "{found:?}");
            block_on(driver.begin(MetricId(6))).unwrap();
            put_event(&driver, "later");
            sync(&driver);
            drop(driver);
            assert_eq!(reported(dir), 1, "loss {loss} of {log}, after start {start}");
        }
        if loss == 0 {
            repair(dir);
            let (_driver, options) = open(dir);
            assert_eq!(options.damage.totals().0, 0, "{:?}", options.damage.examples());
            assert_eq!(reported(dir), 0);
        }
    }
}

fn repair(dir: &Path) {
    let lock = store_embedded::lock(&host::SystemDisk, dir).unwrap();
    store_embedded::repair(dir, &EmbeddedOptions::default(), &lock).unwrap();
}

#[test]
fn deletions_that_were_flushed_and_are_cut_off_are_reported() {
    is_reported(NAMES, |driver| block_on(driver.delete_metrics(vec![MetricId(2), MetricId(4)])).unwrap(), 4);
}

#[test]
fn names_that_were_flushed_and_are_cut_off_are_reported() {
    is_reported(NAMES, |driver| block_on(driver.put_metrics((6..9).map(record).collect())).unwrap(), 9);
}

#[test]
fn events_that_were_flushed_and_are_cut_off_are_reported() {
    is_reported(EVENTS, |driver| put_event(driver, "second"), 6);
}

#[test]
fn a_rotten_last_record_is_not_a_lost_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| {
        block_on(driver.delete_metrics(vec![MetricId(2)])).unwrap();
        put_event(driver, "second");
    });
    for log in [NAMES, EVENTS] {
        let mut bytes = std::fs::read(dir.join(log)).unwrap();
        *bytes.last_mut().unwrap() ^= 3;
        std::fs::write(dir.join(log), bytes).unwrap();
    }
    assert_eq!(reported(dir), 0);
    let (driver, options) = open(dir);
    let found = options.damage.examples();
    let of = |log: &str| found.iter().filter(|damage| log.starts_with(&damage.file)).count();
    assert!(0 < of(NAMES) && 0 < of(EVENTS), "{found:?}");
    assert!(found.iter().all(|damage| !damage.how.contains("the end of the log")), "{found:?}");
    // The log of names is written again.
    block_on(driver.begin(MetricId(6))).unwrap();
    sync(&driver);
    assert!(!dir.join(NAMES).exists());
}

#[test]
fn the_right_log_ends_the_report_also_before_the_next_flush() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let [before, _] = flushed(dir, |driver| block_on(driver.delete_metrics(vec![MetricId(2)])).unwrap());
    let whole = std::fs::read(dir.join(NAMES)).unwrap();
    std::fs::write(dir.join(NAMES), &whole[..before]).unwrap();
    for start in 0..2 {
        let (driver, options) = open(dir);
        assert_eq!((options.damage.totals().0, names(&driver)), (1, 6), "start {start}");
    }
    std::fs::write(dir.join(NAMES), &whole).unwrap();
    let (driver, options) = open(dir);
    assert_eq!((options.damage.totals().0, names(&driver)), (0, 5), "{:?}", options.damage.examples());
}

#[test]
fn the_right_log_is_used_also_where_the_end_of_the_other_was_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let [before, _] = flushed(dir, |driver| block_on(driver.delete_metrics(vec![MetricId(2)])).unwrap());
    let whole = std::fs::read(dir.join(NAMES)).unwrap();
    std::fs::write(dir.join(NAMES), &losses(&whole, before)[3]).unwrap();
    for start in 0..2 {
        let (driver, _) = open(dir);
        block_on(driver.begin(MetricId(6))).unwrap();
        sync(&driver);
        assert_eq!(names(&driver), 6, "start {start}");
    }
    std::fs::write(dir.join(NAMES), &whole).unwrap();
    assert_eq!(names(&open(dir).0), 5);
    repair(dir);
    assert_eq!((names(&open(dir).0), reported(dir)), (5, 0));
    // Behind the repair it is not read any more.
    std::fs::write(dir.join(NAMES), &whole[..before]).unwrap();
    let (driver, options) = open(dir);
    let moved = options.damage.examples().remove(0).moved_to.unwrap();
    assert_eq!((names(&driver), std::fs::read(dir.join(moved)).unwrap()), (5, whole[..before].to_vec()));
}

/// Ten metrics with rows, two of them deleted. The end of the log with the deletions and four names is lost. Returns the whole log.
fn lost_deletions(dir: &Path, loss: usize) -> Vec<u8> {
    let [before, _] = flushed(dir, |driver| {
        block_on(async {
            driver.put_metrics((6..10).map(record).collect()).await.unwrap();
            driver.write((6..10).map(run).collect()).await.unwrap();
            driver.delete_metrics(vec![MetricId(1), MetricId(2)]).await.unwrap();
        });
    });
    let whole = std::fs::read(dir.join(NAMES)).unwrap();
    std::fs::write(dir.join(NAMES), &losses(&whole, before)[loss]).unwrap();
    whole
}

#[test]
fn names_that_come_again_do_not_end_the_report_of_lost_deletions() {
    for loss in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let whole = lost_deletions(dir, loss);
        for start in 0..3 {
            let (driver, options) = open(dir);
            let found = options.damage.examples();
            let is_cut = |damage: &store::Damage| damage.how.contains("the end of the log");
            assert!(found.iter().any(is_cut), "loss {loss}, start {start}: {found:?}");
            block_on(driver.begin(MetricId(10))).unwrap();
            block_on(driver.put_metrics((6..10).map(record).collect())).unwrap();
            sync(&driver);
            assert_eq!(names(&driver), 10);
            drop(driver);
            assert_eq!(reported(dir), 1, "loss {loss}, after start {start}");
        }
        // The log was not written again, so that the right one is read. What came meanwhile is missing then.
        std::fs::write(dir.join(NAMES), &whole).unwrap();
        assert_eq!((names(&open(dir).0), reported(dir)), (8, 1), "loss {loss}");
        repair(dir);
        let (driver, options) = open(dir);
        assert_eq!((names(&driver), options.damage.totals().0, reported(dir)), (8, 0, 0), "loss {loss}");
    }
}

#[test]
fn the_right_log_in_the_place_of_the_shorter_one_is_reported_also_where_less_came_than_was_lost() {
    for log in [NAMES, EVENTS] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let before = flushed(dir, |driver| {
            block_on(driver.put_metrics((6..60).map(record).collect())).unwrap();
            (0..40).for_each(|n| put_event(driver, &format!("lost {n}")));
        });
        let whole = std::fs::read(dir.join(log)).unwrap();
        std::fs::write(dir.join(log), &whole[..before[usize::from(log == EVENTS)]]).unwrap();
        let (driver, _) = open(dir);
        block_on(driver.begin(MetricId(60))).unwrap();
        block_on(driver.delete_metrics(vec![MetricId(3)])).unwrap();
        put_event(&driver, "meanwhile");
        sync(&driver);
        drop(driver);
        assert!(std::fs::metadata(dir.join(log)).unwrap().len() < whole.len() as u64);
        std::fs::write(dir.join(log), &whole).unwrap();
        for start in 0..3 {
            assert_eq!(reported(dir), 1, "{log}, before start {start}");
            let (driver, options) = open(dir);
            let found = options.damage.examples();
            let is_cut = |damage: &store::Damage| damage.how.contains("the end of the log");
            assert!(found.len() == 1 && found.iter().all(is_cut), "{log}, start {start}: {found:?}");
            put_event(&driver, "later");
            sync(&driver);
        }
        repair(dir);
        assert_eq!((reported(dir), open(dir).1.damage.totals().0), (0, 0), "{log}");
    }
}

#[test]
fn a_file_that_is_back_ends_its_report_also_with_an_id_that_was_never_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| {
        block_on(driver.put_metrics(vec![record(8)])).unwrap();
        block_on(driver.write(vec![run(8)])).unwrap();
        put_event(driver, "second");
    });
    for log in [NAMES, EVENTS] {
        std::fs::rename(dir.join(log), dir.join(log.replace('/', "-"))).unwrap();
    }
    for start in 0..2 {
        let (driver, options) = open(dir);
        assert_eq!(options.damage.totals().0, 2 + u64::from(start == 0), "{:?}", options.damage.examples());
        block_on(driver.begin(MetricId(9 + start))).unwrap();
        block_on(driver.put_metrics(vec![record(9 + start)])).unwrap();
        put_event(&driver, "later");
        sync(&driver);
        drop(driver);
        assert_eq!((reported(dir), lost_names(&SystemDisk, dir).len()), (1, 1));
    }
    // Parts of the files are not the files.
    for part in [1, 0] {
        for log in [NAMES, EVENTS] {
            let bytes = std::fs::read(dir.join(log.replace('/', "-"))).unwrap();
            std::fs::write(dir.join(log), &bytes[..bytes.len() - 5 * part]).unwrap();
        }
        assert_eq!((reported(dir), lost_names(&SystemDisk, dir).len()), (part, part));
        let (driver, options) = open(dir);
        assert_eq!(options.damage.totals().0 == 0, part == 0, "{:?}", options.damage.examples());
        assert_eq!((names(&driver), events(&driver)), (9 - part, 4 - part));
    }
}

#[test]
fn a_log_that_waits_for_its_end_does_not_get_a_file_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    lost_deletions(dir, 3);
    for start in 0..5 {
        let (driver, _) = open(dir);
        block_on(driver.begin(MetricId(10 + start))).unwrap();
        block_on(driver.put_metrics(vec![record(10 + start)])).unwrap();
        sync(&driver);
    }
    assert_eq!(std::fs::read_dir(dir.join("names")).unwrap().count(), 1);
    assert_eq!(names(&open(dir).0), 11);
}

#[test]
fn a_log_is_not_written_again_while_a_file_of_it_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |_| ());
    let away = dir.join("away");
    std::fs::rename(dir.join(NAMES), &away).unwrap();
    let (driver, _) = open(dir);
    block_on(async {
        driver.begin(MetricId(6)).await.unwrap();
        driver.put_metrics(vec![record(6)]).await.unwrap();
    });
    sync(&driver);
    drop(driver);
    // A wrong bit in what came meanwhile, for which a log is written again.
    let second = dir.join("names/00000002.log");
    let mut bytes = std::fs::read(&second).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&second, bytes).unwrap();
    let (driver, _) = open(dir);
    block_on(driver.begin(MetricId(7))).unwrap();
    sync(&driver);
    drop(driver);
    std::fs::rename(&away, dir.join(NAMES)).unwrap();
    assert_eq!(names(&open(dir).0), 7);
}

#[test]
fn a_log_that_is_short_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| put_event(driver, "second"));
    let lens = AtomicU32::new(0);
    let shorten = move |path: &Path, len: u64| {
        if path.ends_with(NAMES) && lens.fetch_add(1, Relaxed) < 2 { len - 20 } else { len }
    };
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_lengths(shorten);
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let options = EmbeddedOptions { host, read_patience: Duration::from_secs(60), ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    assert_eq!((names(&driver), options.damage.totals().0), (6, 0));
}

#[test]
fn a_log_that_is_being_copied_is_waited_for_as_long_as_it_grows() {
    for is_growing in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        flushed(dir, |driver| put_event(driver, "second"));
        let whole = std::fs::read(dir.join(NAMES)).unwrap();
        let copied = whole.len() - 100;
        std::fs::write(dir.join(NAMES), &whole[..copied]).unwrap();
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let (passes, rest) = (clock.clone(), whole.clone());
        let began = clock.instant();
        // Each open of the file takes a while, in which some of its bytes come.
        let copy = move |call, path: &Path| {
            if call == Call::Open && path.ends_with(NAMES) {
                passes.advance(Duration::from_secs(2));
                let len = std::fs::metadata(path).unwrap().len() as usize;
                if is_growing && len < rest.len() {
                    std::fs::write(path, &rest[..(len + 10).min(rest.len())]).unwrap();
                }
            }
            None
        };
        let disk = FailingDisk::new(Arc::new(SystemDisk), copy);
        let host = Host { disk: Arc::new(disk), clock: clock.clone(), ..Host::system() };
        let options = EmbeddedOptions { host, read_patience: Duration::from_secs(60), ..EmbeddedOptions::default() };
        let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
        assert_eq!(
            (names(&driver) == 6, options.damage.totals().0 == 0),
            (is_growing, is_growing),
            "{:?}",
            options.damage.examples()
        );
        if !is_growing {
            let waited = clock.instant() - began;
            assert!(waited < Duration::from_secs(30), "{waited:?}");
        }
    }
}

#[test]
fn a_look_at_a_growing_log_that_fails_does_not_end_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| put_event(driver, "second"));
    let whole = std::fs::read(dir.join(NAMES)).unwrap();
    std::fs::write(dir.join(NAMES), &whole[..whole.len() - 100]).unwrap();
    let clock = Arc::new(ManualClock::at(1_700_000_000));
    let (passes, began) = (clock.clone(), clock.instant());
    let copy = move |call, path: &Path| {
        if call != Call::Open || !path.ends_with(NAMES) {
            return None;
        }
        passes.advance(Duration::from_secs(1));
        // For a while the file cannot be opened, and it is not whole when that ends.
        if (4..20).contains(&(passes.instant() - began).as_secs()) {
            return Some(std::io::Error::other("injected"));
        }
        let len = std::fs::metadata(path).unwrap().len() as usize;
        if len < whole.len() {
            std::fs::write(path, &whole[..(len + 10).min(whole.len())]).unwrap();
        }
        None
    };
    let disk = FailingDisk::new(Arc::new(SystemDisk), copy);
    let host = Host { disk: Arc::new(disk), clock, ..Host::system() };
    let options = EmbeddedOptions { host, read_patience: Duration::from_secs(60), ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    assert_eq!((names(&driver), options.damage.totals().0), (6, 0), "{:?}", options.damage.examples());
}

#[test]
fn a_log_that_was_written_again_or_is_newer_than_the_manifest_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| block_on(driver.delete_metrics(vec![MetricId(2)])).unwrap());
    let manifest = std::fs::read(dir.join("manifest")).unwrap();
    let (driver, _) = open(dir);
    block_on(driver.delete_metrics(vec![MetricId(3)])).unwrap();
    put_event(&driver, "second");
    sync(&driver);
    drop(driver);
    let newer = std::fs::read(dir.join("manifest")).unwrap();
    std::fs::write(dir.join("manifest"), &manifest).unwrap();
    assert_eq!(reported(dir), 0, "the manifest is older");
    assert_eq!(open(dir).1.damage.totals().0, 0);
    std::fs::write(dir.join("manifest"), &newer).unwrap();
    // Writes both logs again, to other files.
    repair(dir);
    assert!(!dir.join(NAMES).exists() && !dir.join(EVENTS).exists());
    for manifest in [&std::fs::read(dir.join("manifest")).unwrap(), &newer, &manifest] {
        std::fs::write(dir.join("manifest"), manifest).unwrap();
        assert_eq!(reported(dir), 0);
        let (driver, options) = open(dir);
        assert_eq!((options.damage.totals().0, names(&driver)), (0, 4), "{:?}", options.damage.examples());
    }
    // And what is flushed then is compared again.
    let log = dir.join("names/00000002.log");
    let before = std::fs::metadata(&log).unwrap().len();
    let (driver, _) = open(dir);
    block_on(driver.delete_metrics(vec![MetricId(5)])).unwrap();
    sync(&driver);
    drop(driver);
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(before).unwrap();
    assert_eq!((reported(dir), open(dir).1.damage.totals().0), (1, 1));
}

#[test]
fn a_file_that_the_manifest_names_and_that_is_gone_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| put_event(driver, "second"));
    std::fs::remove_file(dir.join(EVENTS)).unwrap();
    assert_eq!(reported(dir), 1);
    for _ in 0..2 {
        assert_eq!(open(dir).1.damage.totals().0, 1);
    }
}

#[test]
fn a_snapshot_has_the_logs_that_its_manifest_says() {
    let dir = tempfile::tempdir().unwrap();
    let into = tempfile::tempdir().unwrap();
    let (dir, into) = (dir.path(), into.path());
    flushed(dir, |driver| block_on(driver.delete_metrics(vec![MetricId(2)])).unwrap());
    let (driver, _) = open(dir);
    block_on(driver.delete_metrics(vec![MetricId(3)])).unwrap();
    put_event(&driver, "second");
    driver.snapshot_all(into).unwrap();
    block_on(driver.delete_metrics(vec![MetricId(4)])).unwrap();
    sync(&driver);
    drop(driver);
    assert_eq!(reported(into), 0);
    let (driver, options) = open(into);
    assert_eq!((options.damage.totals().0, names(&driver)), (0, 4), "{:?}", options.damage.examples());
}

/// A disk that does not find what `is_hidden`.
fn hiding(is_hidden: impl Fn(Call, &Path) -> bool + Send + Sync + 'static) -> EmbeddedOptions {
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_hidden(is_hidden);
    EmbeddedOptions { host: Host { disk: Arc::new(disk), ..Host::system() }, ..EmbeddedOptions::default() }
}

#[test]
fn a_file_that_the_list_of_its_folder_lacks_is_read() {
    for hidden in [NAMES, EVENTS] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        flushed(dir, |driver| put_event(driver, "second"));
        let options = hiding(move |from, path| from == Call::ReadDir && path.ends_with(hidden));
        let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
        block_on(driver.begin(MetricId(6))).unwrap();
        assert_eq!((names(&driver), events(&driver), options.damage.totals().0), (6, 2, 0), "{hidden}");
        block_on(driver.put_metrics(vec![record(6)])).unwrap();
        put_event(&driver, "third");
        sync(&driver);
        drop(driver);
        let (driver, options) = open(dir);
        assert_eq!((names(&driver), events(&driver), options.damage.totals().0), (7, 3, 0), "{hidden}");
    }
}

#[test]
fn a_log_that_one_start_does_not_find_is_there_at_the_next_with_what_came_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| put_event(driver, "second"));
    let options = hiding(|_, path| path.ends_with(NAMES) || path.ends_with(EVENTS));
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    assert_eq!((names(&driver), events(&driver)), (0, 0));
    assert!(0 < options.damage.totals().0);
    block_on(driver.begin(MetricId(6))).unwrap();
    block_on(driver.put_metrics(vec![record(6)])).unwrap();
    put_event(&driver, "third");
    sync(&driver);
    drop(driver);
    for _ in 0..2 {
        let (driver, _) = open(dir);
        assert_eq!((names(&driver), events(&driver)), (7, 3));
    }
}

#[test]
fn a_log_that_is_not_found_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    flushed(dir, |driver| put_event(driver, "second"));
    let looks = AtomicU32::new(0);
    let options = hiding(move |_, path| path.ends_with(NAMES) && looks.fetch_add(1, Relaxed) < 4);
    let options = EmbeddedOptions { read_patience: Duration::from_secs(60), ..options };
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    assert_eq!((names(&driver), options.damage.totals().0), (6, 0));
}

/// What a verification says of the ends of the logs.
fn reported(dir: &Path) -> usize {
    cut_logs(&host::SystemDisk, dir).len()
}
