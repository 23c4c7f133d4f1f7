//! A store that takes points and cannot put them on its disk fails like one that takes none: every figure says so.

mod support;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use carbon::Sink as _;
use ingest::{FlushError, Ingest, IngestOptions, Protocol};
use store::ScriptedDriver;
use support::{now, options, registry_of, rules, runtime};

async fn open(dir: &std::path::Path, driver: &Arc<ScriptedDriver>) -> Arc<Ingest> {
    open_flushing_after(dir, driver, Duration::from_millis(100)).await
}

async fn open_flushing_after(
    dir: &std::path::Path,
    driver: &Arc<ScriptedDriver>,
    flush_after: Duration,
) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    let options = IngestOptions { flush_after, ..options(dir, Duration::from_millis(20)) };
    Ingest::open(options, driver.store(), registry, rules("1s:1h")).await.unwrap()
}

async fn send(ingest: &Ingest, points: u32) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    (0..points).for_each(|n| batch.point(format!("m{n}").as_bytes(), now() - 10, 1.0));
    ingest.accept(&mut batch).await;
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(20), "this did not happen in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_store_whose_disk_takes_nothing_is_an_outage_and_its_end_is_one() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let ingest = open(dir.path(), &driver).await;
        send(&ingest, 7).await;
        ingest.flush().await.unwrap();
        assert_eq!((ingest.counters().unsynced_points, ingest.store_outage()), (0, None));
        driver.is_disk_failing.store(true, SeqCst);
        send(&ingest, 100).await;
        until("the store is known to fail", || ingest.counters().store_failing).await;
        until("the points are with the store", || ingest.counters().held_slots == 0).await;
        let (_, why) = ingest.store_outage().expect("an outage");
        assert_eq!(why, "what it took does not get to its disk: its disk is broken");
        assert_eq!(ingest.store_problem(), Some(why));
        assert_eq!((ingest.counters().unsynced_points, ingest.flush_progress().store_failing), (100, true));
        let said = ingest.flush_patiently(Duration::from_secs(10)).await.expect_err("nothing is durable");
        assert!(matches!(&said, FlushError::Store { unsynced_points: 100, held_points: 0, .. }), "{said:?}");
        assert!(said.to_string().contains("100 that the store has taken are perhaps not on its disk"), "{said}");
        driver.is_disk_failing.store(false, SeqCst);
        until("the outage ends", || ingest.store_outage().is_none()).await;
        let counters = ingest.counters();
        assert_eq!((counters.unsynced_points, counters.store_failing, ingest.store_problem()), (0, false, None));
        ingest.close().await.unwrap();
    });
}

#[test]
fn a_flush_that_failed_once_is_followed_by_another_within_seconds() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    runtime(2).block_on(async {
        let ingest = open_flushing_after(dir.path(), &driver, Duration::from_secs(7200)).await;
        send(&ingest, 7).await;
        driver.is_disk_failing.store(true, SeqCst);
        ingest.flush().await.unwrap_err();
        assert!(ingest.counters().store_failing);
        driver.is_disk_failing.store(false, SeqCst);
        until("the outage ends", || ingest.store_outage().is_none()).await;
        assert_eq!((ingest.counters().unsynced_points, ingest.counters().store_failing), (0, false));
        ingest.close().await.unwrap();
    });
}
