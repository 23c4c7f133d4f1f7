//! Batches of very many points: the other tasks of the runtime go on.

mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use carbon::Sink as _;
use ingest::{Ingest, Protocol};
use metadata::Registry;
use store::MemoryDriver;
use support::{now, options, rules};

/// One worker: a task that keeps it would stop all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_tasks_and_readers_go_on_while_a_batch_of_new_names_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Duration::from_secs(3600));
    let driver = Arc::new(MemoryDriver::new());
    let ingest = Ingest::open(options, driver, Arc::new(Registry::new()), rules("60s:1d")).await.unwrap();
    let mut batch = ingest.batch(Protocol::Pickle);
    for i in 0..300_000 {
        batch.point(format!("a.b{}.c{i}", i % 7).as_bytes(), now(), 1.0);
    }
    let registry = ingest.registry().clone();
    let ticking = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        let mut began = Instant::now();
        while registry.len() < 300_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            longest = longest.max(began.elapsed());
            began = Instant::now();
        }
        longest
    });
    let accepting = ingest.clone();
    let took = tokio::spawn(async move {
        let began = Instant::now();
        accepting.accept(&mut batch).await;
        began.elapsed()
    });
    let (took, longest) = (took.await.unwrap(), ticking.await.unwrap());
    println!("{took:?}, other tasks waited {longest:?}");
    assert!(longest < took / 5, "{longest:?} of {took:?}");
}
