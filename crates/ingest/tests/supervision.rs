//! A background task that panics is started again, and ingestion goes on.

mod support;

use std::{sync::Arc, time::Duration};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use metadata::Registry;
use store::MemoryDriver;
use support::{now, options, rules};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_background_task_begins_again_after_a_panic_and_points_are_still_stored() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Duration::from_millis(20));
    let (driver, registry) = (Arc::new(MemoryDriver::new()), Arc::new(Registry::new()));
    let ingest = Ingest::open(options, driver, registry, rules("1s:1h")).await.unwrap();
    let supervisor = ingest.supervisor();
    let tasks: Vec<&str> = supervisor.health().iter().map(|task| task.name).collect();
    assert!(tasks.len() >= 6, "{tasks:?}");
    // A task that has ended cannot panic: this one ends when every metric has its policy.
    let lasting = tasks.into_iter().filter(|&name| name != "policy changes");
    for name in lasting {
        supervisor.inject_panic(name);
        let panics = || supervisor.health().into_iter().find(|task| task.name == name).unwrap().panics;
        let panicked = async {
            while panics() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, panicked).await.unwrap_or_else(|_| panic!("{name} did not panic"));
    }
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(b"a.b", now(), 1.0);
    ingest.accept(&mut batch).await;
    tokio::time::timeout(PATIENCE, ingest.flush()).await.expect("a flush ends").unwrap();
    assert_eq!(ingest.counters().flushed_points, 1);
    ingest.close().await.unwrap();
}
