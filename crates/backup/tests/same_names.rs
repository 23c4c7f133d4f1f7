//! A data folder of an earlier program, in which a name has two ids.

use std::{path::Path, sync::Arc};

use backup::{lock, verify};
use host::SystemDisk;
use metadata::Registry;
use metric::{MetricId, Policy};
use store::{MetricRecord, NameStore as _, PolicyChange};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};
use tokio::runtime::{Builder, Runtime};

fn record(id: u32, name: &str) -> MetricRecord {
    let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
    MetricRecord { id: MetricId(id), name: name.to_owned(), created_on: 5, policies }
}

fn open(data: &Path) -> Arc<EmbeddedDriver> {
    Arc::new(EmbeddedDriver::open(&data.join("store"), EmbeddedOptions::default()).unwrap())
}

/// The id of a name after a start, and whether that says that there are others.
fn started(data: &Path, runtime: &Runtime) -> (MetricId, usize) {
    let (registry, same) = runtime.block_on(Registry::of_table(&*open(data))).unwrap();
    let id = registry.read().find(registry.hash(b"a"), b"a").unwrap();
    (id, same.len())
}

#[test]
fn a_name_of_two_ids_is_reported_and_has_the_lowest_at_every_start() {
    let data = tempfile::tempdir().unwrap();
    let runtime = Builder::new_current_thread().build().unwrap();
    let put = |records: Vec<MetricRecord>| {
        let driver = open(data.path());
        runtime.block_on(driver.put_metrics(records)).unwrap();
        runtime.block_on(driver.sync_metrics()).unwrap();
    };
    let losses = || {
        let _lock = lock(&SystemDisk, data.path()).unwrap();
        verify(&SystemDisk, data.path()).unwrap().known_losses
    };
    put(vec![record(3, "a"), record(4, "b")]);
    assert_eq!((started(data.path(), &runtime), losses()), ((MetricId(3), 0), Vec::new()));
    put(vec![record(7, "a")]);
    // A change of policy writes the lower id again, behind the other.
    put(vec![record(3, "a")]);
    assert_eq!(started(data.path(), &runtime), (MetricId(3), 1));
    let found = losses();
    assert!(found.len() == 1 && found[0].how.contains("such as a: 3") && found[0].how.contains("and 7"), "{found:?}");
    assert_eq!(found[0].metrics, Some((MetricId(7), MetricId(7))));
    let driver = open(data.path());
    runtime.block_on(driver.delete_metrics(vec![MetricId(7)])).unwrap();
    runtime.block_on(driver.sync_metrics()).unwrap();
    drop(driver);
    assert_eq!((started(data.path(), &runtime), losses()), ((MetricId(3), 0), Vec::new()));
}
