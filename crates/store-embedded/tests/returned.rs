//! A file of rows that was missing, and comes back.

use std::{fs, path::PathBuf};

use metric::{MetricId, Policy};
use store::{PointStore, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

fn run(id: u32) -> Run {
    let policy = Policy::default();
    Run {
        metric: MetricId(id),
        name: format!("a.m{id}"),
        table: policy.retention.table(0),
        first_slot: 28_333_000,
        values: vec![0.5, 1.5],
        counts: Vec::new(),
        aggregation: policy.aggregation,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn options(data: &std::path::Path) -> EmbeddedOptions {
    EmbeddedOptions { data: Some(data.to_owned()), merges: false, ..EmbeddedOptions::default() }
}

/// The files of rows, in the order of their flushes.
fn files(driver: &EmbeddedDriver) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = driver.files().into_iter().map(|file| file.path).collect();
    files.sort();
    files
}

/// Whether a file with this name is in a folder of the data folder.
fn has(folder: PathBuf, name: &str) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|mut all| all.any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(name)))
}

#[test]
fn a_file_that_was_missing_and_is_put_back_behind_a_merge_is_kept_and_reported() {
    for was_missing in [true, false] {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().join("store");
        let driver = EmbeddedDriver::open(&store, options(data.path())).unwrap();
        for id in 0..3 {
            block_on(driver.write(vec![run(id)])).unwrap();
            block_on(driver.sync()).unwrap();
        }
        let second = store.join(&files(&driver)[1]);
        drop(driver);
        let bytes = fs::read(&second).unwrap();
        if was_missing {
            fs::remove_file(&second).unwrap();
        }
        let opened = options(data.path());
        let driver = EmbeddedDriver::open(&store, opened.clone()).unwrap();
        let is_missed = opened.damage.examples().iter().any(|found| found.how == "it is missing");
        assert_eq!(is_missed, was_missing, "{:?}", opened.damage.examples());
        driver.settle().unwrap();
        assert_eq!(driver.files().len(), 1);
        drop(driver);
        let _ = fs::remove_dir_all(data.path().join("trash"));
        fs::write(&second, &bytes).unwrap();
        let opened = options(data.path());
        drop(EmbeddedDriver::open(&store, opened.clone()).unwrap());
        assert!(!second.exists());
        let found = opened.damage.examples();
        let is_reported =
            found.iter().any(|found| found.how.contains("put back after the merge") && found.moved_to.is_some());
        let name = second.file_name().unwrap().to_str().unwrap();
        let kept = [has(data.path().join("damaged"), name), has(data.path().join("trash"), name)];
        assert_eq!((is_reported, kept), (was_missing, [was_missing, !was_missing]), "{found:?}");
    }
}
