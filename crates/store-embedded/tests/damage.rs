//! Damage to the spec and the names of a store: what it costs, and what is refused.

use metric::{MetricId, Policy};
use store::{MetricRecord, NameStore, PolicyChange, StoreError};
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
    for change in [|text: &str| Some(text.replace("layout 2", "layout 3")), |_: &str| None] {
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
