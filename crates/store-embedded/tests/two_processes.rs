//! Two processes on one folder, where the file system grants every lock: the first notices the second, and writes nothing more.

use std::{fs, path::Path, sync::Arc};

use host::{FailingDisk, Host, SystemDisk};
use metric::{MetricId, Policy};
use store::{Events as _, MetricRecord, NameStore, NewEvent, PointStore, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn open(dir: &Path) -> EmbeddedDriver {
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).granting_locks();
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    EmbeddedDriver::open(dir, EmbeddedOptions { host, merges: false, ..EmbeddedOptions::default() }).unwrap()
}

fn put(driver: &EmbeddedDriver, id: u32, name: &str) -> Result<(), String> {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    let record = MetricRecord { id: MetricId(id), name: name.to_owned(), created_on: 1_700_000_000, policies };
    block_on(async {
        driver.put_metrics(vec![record]).await?;
        driver.sync_metrics().await
    })
    .map_err(|error| error.to_string())
}

fn write(driver: &EmbeddedDriver, id: u32) -> Result<(), String> {
    let policy = Policy::default();
    let run = Run {
        metric: MetricId(id),
        name: format!("m{id}"),
        table: policy.table(0),
        first_slot: 28_333_000,
        values: vec![0.5],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    };
    block_on(async {
        driver.write(vec![run]).await?;
        driver.sync().await
    })
    .map_err(|error| error.to_string())
}

fn names(dir: &Path) -> Vec<String> {
    let (mut names, driver) = (Vec::new(), open(dir));
    block_on(driver.scan_metrics(&mut |records| names.extend(records.into_iter().map(|record| record.name)))).unwrap();
    names
}

/// The bytes of all files.
fn bytes(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            all.extend(bytes(&entry.path()));
        } else {
            all.push((entry.path().display().to_string(), fs::read(entry.path()).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn the_first_process_writes_nothing_once_a_second_has_begun_and_the_second_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    block_on(first.begin(MetricId(0))).unwrap();
    put(&first, 0, "a.first").unwrap();
    write(&first, 0).unwrap();
    let second = open(dir.path());
    block_on(second.begin(MetricId(1))).unwrap();
    assert_eq!(first.lost_folder(), None, "it has not looked");
    let before = bytes(dir.path());
    let said = "another process uses the data folder";
    for result in [put(&first, 1, "a.lost"), write(&first, 0)] {
        assert!(result.as_ref().is_err_and(|error| error.contains(said)), "{result:?}");
    }
    let event = NewEvent { when: 5, what: "e".to_owned(), tags: String::new(), data: String::new() };
    assert!(block_on(first.put_event(event)).is_err());
    assert!(first.lost_folder().is_some_and(|why| why.contains(said)));
    assert_eq!(bytes(dir.path()), before);
    put(&second, 1, "a.second").unwrap();
    write(&second, 1).unwrap();
    drop((first, second));
    assert_eq!(names(dir.path()), ["a.first", "a.second"]);
}

#[test]
fn a_log_that_another_process_has_made_longer_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    block_on(first.begin(MetricId(0))).unwrap();
    put(&first, 0, "a.first").unwrap();
    let spec = fs::read(dir.path().join("spec")).unwrap();
    let second = open(dir.path());
    block_on(second.begin(MetricId(1))).unwrap();
    put(&second, 1, "a.second").unwrap();
    // As the first would see it on a file system that shows files of before.
    fs::write(dir.path().join("spec"), spec).unwrap();
    let before = bytes(dir.path());
    let said = put(&first, 1, "a.lost").unwrap_err();
    assert!(said.contains("another process writes to it"), "{said}");
    assert_eq!(bytes(dir.path()), before);
    drop((first, second));
    assert_eq!(names(dir.path()), ["a.first", "a.second"]);
}
