//! Changes of policies on their way to the metrics table, where others may have deleted the metrics.

mod support;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use store::{NameStore as _, ScriptedDriver};
use support::{now, options, registry_of, rules};

/// How many policies the table has of the only metric.
async fn policies(driver: &ScriptedDriver) -> usize {
    let mut records = Vec::new();
    driver.scan_metrics(&mut |all| records.extend(all)).await.unwrap();
    assert_eq!(records.len(), 1);
    records[0].policies.len()
}

/// A node whose only metric is in the table, and is to be written there with another policy.
async fn with_a_change(dir: &std::path::Path, driver: &Arc<ScriptedDriver>) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    let options = options(dir, Duration::from_secs(60));
    let ingest = Ingest::open(options, driver.store(), registry, rules("60s:1d")).await.unwrap();
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"m", now(), 1.0);
    ingest.accept(&mut batch).await;
    ingest.flush().await.unwrap();
    assert_eq!(policies(driver).await, 1);
    ingest.set_rules(rules("10s:1d")).await;
    ingest
}

#[tokio::test]
async fn a_metric_that_is_in_the_table_gets_its_new_policy_there() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let ingest = with_a_change(dir.path(), &driver).await;
    ingest.flush().await.unwrap();
    assert_eq!((policies(&driver).await, ingest.unregistered()), (2, vec![]));
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn a_metric_that_is_gone_from_the_table_is_not_made_again_by_its_new_policy() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    driver.are_changed_gone.store(true, SeqCst);
    let ingest = with_a_change(dir.path(), &driver).await;
    ingest.flush().await.unwrap();
    driver.are_changed_gone.store(false, SeqCst);
    ingest.flush().await.unwrap();
    assert_eq!((policies(&driver).await, ingest.unregistered()), (1, vec![]));
    ingest.close().await.unwrap();
}

#[tokio::test]
async fn a_metric_whose_policy_changes_before_it_is_in_the_table_gets_there() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    driver.are_changed_gone.store(true, SeqCst);
    let registry = registry_of(&*driver).await;
    let options = options(dir.path(), Duration::from_secs(60));
    let ingest = Ingest::open(options, driver.store(), registry, rules("60s:1d")).await.unwrap();
    driver.syncs.close();
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"m", now(), 1.0);
    ingest.accept(&mut batch).await;
    ingest.set_rules(rules("10s:1d")).await;
    driver.syncs.open();
    ingest.flush().await.unwrap();
    assert_eq!((policies(&driver).await, ingest.unregistered()), (2, vec![]));
    ingest.close().await.unwrap();
}
