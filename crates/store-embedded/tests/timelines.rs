//! Two timelines of one store: a folder that is copied, and both go on. Files of one next to files of the other are reported, and
//! never answer for metrics of other names.

use std::{
    fs,
    path::{Path, PathBuf},
};

use host::SystemDisk;
use metric::{MetricId, Policy};
use store::{Cells, Fetch, MetricRecord, NameStore, PointStore, PolicyChange, Run, StoreError};
use store_embedded::{EmbeddedDriver, EmbeddedOptions, of_other_timeline};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn options() -> EmbeddedOptions {
    EmbeddedOptions { merges: false, ..EmbeddedOptions::default() }
}

fn open(dir: &Path) -> EmbeddedDriver {
    EmbeddedDriver::open(dir, options()).unwrap()
}

/// Gives ids names, and stores a point of each.
fn store(driver: &EmbeddedDriver, ids: std::ops::Range<u32>, name: &str, value: f64) {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    let record = |id| MetricRecord {
        id: MetricId(id),
        name: format!("{name}{id}"),
        created_on: 1_700_000_000,
        policies: policies.clone(),
    };
    block_on(async {
        driver.put_metrics(ids.clone().map(record).collect()).await.unwrap();
        driver.sync_metrics().await.unwrap();
        driver.write(ids.map(|id| run(id, value)).collect()).await.unwrap();
        driver.sync().await.unwrap();
    });
}

fn run(id: u32, value: f64) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: String::new(),
        table: policy.table(0),
        first_slot: 28_333_000,
        values: vec![value],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn fetch(driver: &EmbeddedDriver, id: u32) -> Cells {
    let Run { metric, name, table, first_slot, aggregation, .. } = run(id, 0.0);
    let fetch = Fetch { metric, name, table, first_slot, end_slot: first_slot + 1, aggregation };
    block_on(driver.fetch(vec![fetch])).unwrap().remove(0)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to)
        } else {
            _ = fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn row_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(row_files(&entry.path()));
        } else if entry.path().extension().is_some_and(|ending| ending == "rows") {
            found.push(entry.path());
        }
    }
    found.retain(|path| !path.to_string_lossy().contains("damaged"));
    found.sort();
    found
}

/// A store that gives the ids 20 to 29 after a copy of it was made, and the copy, which goes on and gives them to others.
struct Timelines {
    _dir: tempfile::TempDir,
    old: PathBuf,
    new: PathBuf,
}

impl Timelines {
    /// `is_opened`: the old store was opened once more since.
    fn part(is_opened: bool) -> Timelines {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let mut driver = open(&old);
        block_on(driver.begin(MetricId(0))).unwrap();
        store(&driver, 0..20, "common", 1.0);
        copy(&old, &new);
        fs::remove_file(new.join("lock")).unwrap();
        if is_opened {
            drop(driver);
            driver = open(&old);
            block_on(driver.begin(MetricId(20))).unwrap();
        }
        store(&driver, 20..30, "old", 2.0);
        drop(driver);
        let driver = open(&new);
        block_on(driver.begin(MetricId(20))).unwrap();
        store(&driver, 20..30, "new", 3.0);
        Timelines { _dir: dir, old, new }
    }
}

#[test]
fn each_timeline_is_whole_by_itself() {
    let timelines = Timelines::part(true);
    for (dir, value) in [(&timelines.old, 2.0), (&timelines.new, 3.0)] {
        assert_eq!(of_other_timeline(&SystemDisk, dir).unwrap(), []);
        let options = options();
        let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
        assert_eq!((fetch(&driver, 7).values, fetch(&driver, 25).values), (vec![1.0], vec![value]));
        assert_eq!(options.damage.examples(), []);
    }
}

#[test]
fn a_file_of_rows_of_another_timeline_is_put_aside_and_answers_for_no_metric() {
    for is_opened in [false, true] {
        let timelines = Timelines::part(is_opened);
        let path = row_files(&timelines.new).pop().unwrap();
        let of_old = timelines.old.join(path.strip_prefix(&timelines.new).unwrap());
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            fs::metadata(&of_old).unwrap().len(),
            "the length does not tell"
        );
        let bytes = fs::read(&of_old).unwrap();
        fs::write(&path, &bytes).unwrap();
        let found = of_other_timeline(&SystemDisk, &timelines.new).unwrap();
        assert_eq!(found.iter().map(|(path, _)| path).collect::<Vec<_>>(), [&path]);

        let options = options();
        let driver = EmbeddedDriver::open(&timelines.new, options.clone()).unwrap();
        let cells = fetch(&driver, 25);
        assert!(cells.values.is_empty() && cells.is_damaged, "{cells:?}");
        assert_eq!(fetch(&driver, 7).values, [1.0]);
        let reports = options.damage.examples();
        let report = reports.iter().find(|damage| damage.how.contains("another timeline")).unwrap();
        let kept = timelines.new.join(report.moved_to.as_ref().unwrap());
        assert_eq!(fs::read(kept).unwrap(), bytes, "it is kept as it was");
        drop(driver);
        // Later starts still know what is missing.
        assert!(fetch(&open(&timelines.new), 25).is_damaged);
        assert_eq!(of_other_timeline(&SystemDisk, &timelines.new).unwrap(), []);
    }
}

#[test]
fn a_file_of_rows_of_another_timeline_that_no_one_misses_is_put_aside_too() {
    let timelines = Timelines::part(true);
    let newest = row_files(&timelines.new).pop().unwrap();
    let (dir, old) = (newest.parent().unwrap(), row_files(&timelines.old).pop().unwrap());
    let driver = open(&timelines.old);
    store(&driver, 30..31, "old", 4.0);
    drop(driver);
    let third = row_files(&timelines.old).pop().unwrap();
    assert_ne!(third, old);
    fs::copy(&third, dir.join(third.file_name().unwrap())).unwrap();
    let options = options();
    let driver = EmbeddedDriver::open(&timelines.new, options.clone()).unwrap();
    assert!(fetch(&driver, 30).values.is_empty());
    assert_eq!(fetch(&driver, 25).values, [3.0]);
    assert_eq!(options.damage.totals().0, 1, "{:?}", options.damage.examples());
}

#[test]
fn rows_of_the_same_ids_from_another_timeline_do_not_take_the_place_of_those_that_the_manifest_has() {
    let timelines = Timelines::part(false);
    // Both timelines have one more file, with values of a metric that they share.
    for dir in [&timelines.old, &timelines.new] {
        let driver = open(dir);
        if dir == &timelines.new {
            block_on(driver.begin(MetricId(30))).unwrap();
        }
        block_on(async {
            driver.write(vec![run(7, if dir == &timelines.new { 8.0 } else { 9.0 })]).await.unwrap();
            driver.sync().await.unwrap();
        });
    }
    let (old, new) = (row_files(&timelines.old).pop().unwrap(), row_files(&timelines.new).pop().unwrap());
    assert_eq!(old.file_name(), new.file_name());
    fs::copy(&old, &new).unwrap();
    let options = options();
    let cells = fetch(&EmbeddedDriver::open(&timelines.new, options.clone()).unwrap(), 7);
    assert!(cells.values != [9.0] && cells.is_damaged, "{cells:?}");
    assert_ne!(options.damage.totals().0, 0);
}

fn refused(dir: &Path) -> String {
    let error = EmbeddedDriver::open(dir, options()).map(|_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Spec { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_log_of_names_of_another_timeline_is_refused_with_the_way_out() {
    for is_opened in [false, true] {
        let timelines = Timelines::part(is_opened);
        let names = timelines.new.join("names");
        fs::rename(&names, timelines.new.join("../kept")).unwrap();
        copy(&timelines.old.join("names"), &names);
        let before = fs::read(names.join("00000001.log")).unwrap();
        let text = refused(&timelines.new);
        assert!(
            text.contains("another timeline")
                && text.contains("metrics 20 to 29")
                && text.contains("put that log back"),
            "{text}"
        );
        assert_eq!(fs::read(names.join("00000001.log")).unwrap(), before);
        assert_eq!(of_other_timeline(&SystemDisk, &timelines.new).unwrap()[0].0, names);

        fs::remove_dir_all(&names).unwrap();
        fs::rename(timelines.new.join("../kept"), &names).unwrap();
        assert_eq!(fetch(&open(&timelines.new), 25).values, [3.0]);
    }
}

#[test]
fn a_folder_whose_file_lock_was_removed_is_in_use_still() {
    let dir = tempfile::tempdir().unwrap();
    let driver = open(dir.path());
    fs::remove_file(dir.path().join("lock")).unwrap();
    let error = EmbeddedDriver::open(dir.path(), options()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("another process uses"), "{error}");
    assert!(store_embedded::lock(&SystemDisk, dir.path()).is_err(), "a repair is refused, too");
    drop(driver);
    drop(open(dir.path()));
}

#[test]
fn names_whose_log_was_replaced_are_not_stored_until_it_is_back() {
    type Change = fn(&Path, &Path);
    let changes: [Change; 3] = [
        |names, aside| {
            copy(names, aside);
            fs::remove_dir_all(names).unwrap();
            fs::rename(aside, names).unwrap();
        },
        |names, aside| fs::rename(names, aside).unwrap(),
        |names, _| fs::remove_file(names.join("00000001.log")).unwrap(),
    ];
    for change in changes {
        let dir = tempfile::tempdir().unwrap();
        let (names, aside) = (dir.path().join("names"), dir.path().join("aside"));
        let driver = open(dir.path());
        block_on(driver.begin(MetricId(0))).unwrap();
        block_on(driver.sync_metrics()).unwrap();
        driver.check_names_place().unwrap();
        change(&names, &aside);
        assert!(driver.check_names_place().unwrap_err().to_string().contains("00000001.log"));
        driver.check_events().unwrap();
        for _ in 0..2 {
            let error = block_on(driver.sync_metrics()).unwrap_err();
            assert!(error.to_string().contains("00000001.log"), "{error}");
        }
        assert!(block_on(driver.begin(MetricId(0))).is_ok(), "the spec has the opening");
        if aside.exists() {
            fs::rename(&aside, &names).unwrap();
            block_on(driver.sync_metrics()).unwrap();
            driver.check_names_place().unwrap();
        }
    }
}

#[test]
fn an_older_spec_takes_the_openings_of_the_log_of_names() {
    let timelines = Timelines::part(true);
    let older = fs::read(timelines.new.join("spec")).unwrap();
    let driver = open(&timelines.new);
    let chain = block_on(driver.begin(MetricId(30))).unwrap().chain;
    store(&driver, 30..31, "new", 5.0);
    drop(driver);
    fs::write(timelines.new.join("spec"), older).unwrap();
    let options = options();
    let driver = EmbeddedDriver::open(&timelines.new, options.clone()).unwrap();
    assert_eq!((driver.identity().chain, fetch(&driver, 30).values), (chain, vec![5.0]));
    assert_eq!(options.damage.examples(), []);
}

/// A store with yesterday's spec and log of names; the metrics 20 to 29 are of today, and so is a value of metric 7.
fn yesterday_with_today() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (store_dir, before) = (dir.path().join("store"), dir.path().join("before"));
    let driver = open(&store_dir);
    block_on(driver.begin(MetricId(0))).unwrap();
    store(&driver, 0..20, "yesterday", 1.0);
    drop(driver);
    copy(&store_dir, &before);
    let driver = open(&store_dir);
    block_on(driver.begin(MetricId(20))).unwrap();
    store(&driver, 20..30, "today", 2.0);
    store(&driver, 7..8, "yesterday", 5.0);
    drop(driver);
    (dir, store_dir, before)
}

#[test]
fn yesterdays_spec_and_log_of_names_with_todays_rows_are_refused_until_todays_are_back() {
    let (dir, store_dir, before) = yesterday_with_today();
    let today = dir.path().join("today");
    copy(&store_dir, &today);
    let names = store_dir.join("names");
    fs::remove_dir_all(&names).unwrap();
    copy(&before.join("names"), &names);
    fs::copy(before.join("spec"), store_dir.join("spec")).unwrap();
    let rows = row_files(&store_dir);
    for _ in 0..2 {
        let text = refused(&store_dir);
        assert!(text.contains("earlier time") && text.contains("put both back"), "{text}");
        assert!(!of_other_timeline(&SystemDisk, &store_dir).unwrap().is_empty(), "verify says so, too");
    }
    assert_eq!(row_files(&store_dir), rows, "nothing was moved");
    // Either of today is enough.
    for back in ["spec", "names/00000001.log"] {
        let folder = dir.path().join(back.replace('/', "-"));
        copy(&store_dir, &folder);
        let _ = fs::remove_file(folder.join("lock"));
        fs::copy(today.join(back), folder.join(back)).unwrap();
        let driver = open(&folder);
        assert_eq!((fetch(&driver, 7).values, fetch(&driver, 25).values), (vec![5.0], vec![2.0]), "{back}");
        assert!(MetricId(30) <= driver.next_id(), "{back}");
    }
}

#[test]
fn yesterdays_log_of_names_without_a_spec_costs_no_rows_and_gives_no_id_again() {
    let (_dir, store_dir, before) = yesterday_with_today();
    let names = store_dir.join("names");
    fs::remove_dir_all(&names).unwrap();
    copy(&before.join("names"), &names);
    fs::remove_file(store_dir.join("spec")).unwrap();
    for start in 0..3 {
        let options = options();
        let driver = EmbeddedDriver::open(&store_dir, options.clone()).unwrap();
        assert_eq!((fetch(&driver, 7).values, fetch(&driver, 25).values), (vec![5.0], vec![2.0]), "start {start}");
        let reports: Vec<String> = options.damage.examples().into_iter().map(|damage| damage.how).collect();
        assert!(reports.iter().any(|how| how.contains("metrics 20 to 29")), "{reports:?}");
        assert!(MetricId(30) <= driver.next_id());
        block_on(driver.begin(MetricId(20))).unwrap();
    }
}

#[test]
fn a_log_of_names_of_another_timeline_without_a_spec_gives_no_row_a_wrong_name() {
    let timelines = Timelines::part(true);
    let names = timelines.new.join("names");
    fs::remove_dir_all(&names).unwrap();
    copy(&timelines.old.join("names"), &names);
    fs::remove_file(timelines.new.join("spec")).unwrap();
    let rows = row_files(&timelines.new);
    refused(&timelines.new);
    // The spec was made again; it still has no openings.
    refused(&timelines.new);
    assert_eq!(row_files(&timelines.new), rows);
}

#[test]
fn a_spec_and_a_log_of_names_that_are_both_lost_cost_no_rows() {
    let timelines = Timelines::part(true);
    fs::remove_file(timelines.new.join("spec")).unwrap();
    fs::remove_dir_all(timelines.new.join("names")).unwrap();
    for id in [40, 50] {
        let driver = open(&timelines.new);
        assert_eq!((fetch(&driver, 7).values, fetch(&driver, 25).values), (vec![1.0], vec![3.0]));
        block_on(driver.begin(MetricId(id))).unwrap();
    }
}

#[test]
fn rows_of_openings_that_the_spec_has_forgotten_are_served() {
    let timelines = Timelines::part(true);
    let driver = open(&timelines.new);
    for _ in 0..520 {
        block_on(driver.begin(MetricId(30))).unwrap();
    }
    drop(driver);
    let options = options();
    let driver = EmbeddedDriver::open(&timelines.new, options.clone()).unwrap();
    assert_eq!((fetch(&driver, 7).values, fetch(&driver, 25).values), (vec![1.0], vec![3.0]));
    assert_eq!(options.damage.examples(), []);
    assert!(fs::metadata(timelines.new.join("spec")).unwrap().len() < 64 << 10);
}

#[test]
fn the_manifest_vouches_for_files_whose_opening_is_lost_with_the_spec() {
    let dir = tempfile::tempdir().unwrap();
    let store_dir = dir.path().join("store");
    for opening in 0..4 {
        let driver = open(&store_dir);
        block_on(driver.begin(MetricId(opening * 10))).unwrap();
        store(&driver, opening * 10..opening * 10 + 10, "m", f64::from(opening));
    }
    fs::remove_file(store_dir.join("spec")).unwrap();
    // One bit in the record of the third opening.
    let log = store_dir.join("names/00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    let records = bytes.windows(3).enumerate().filter(|(_, head)| **head == [0xf5, 0xc3, 4]);
    let third = records.map(|(place, _)| place).nth(2).expect("four openings are in the log");
    bytes[third + 12] ^= 4;
    fs::write(&log, bytes).unwrap();
    assert_eq!(of_other_timeline(&SystemDisk, &store_dir).unwrap(), []);
    for start in 0..2 {
        let options = options();
        let driver = EmbeddedDriver::open(&store_dir, options.clone()).unwrap();
        for id in 0..40 {
            assert_eq!(fetch(&driver, id).values, [f64::from(id / 10)], "start {start}");
        }
        assert_eq!(options.damage.examples().iter().filter(|damage| damage.what == "file of rows").count(), 0);
        block_on(driver.begin(MetricId(40))).unwrap();
    }
}
