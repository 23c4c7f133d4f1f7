//! Points are on the journal's disk before their rows are written: a power failure may leave a part of the rows, and a
//! replay makes them again.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::Sink as _;
use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::{Ingest, IngestOptions, Protocol};
use store::ScriptedDriver;
use support::{now, options, registry_of, rules, runtime};

async fn send(ingest: &Ingest, names: std::ops::Range<u32>) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    names.for_each(|n| batch.point(format!("m{n}").as_bytes(), now() - 10, 1.0));
    ingest.accept(&mut batch).await;
}

#[test]
fn points_that_come_during_a_flush_are_synced_before_it_writes_them() {
    let (dir, driver, syncs) =
        (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()), Arc::new(AtomicU32::new(0)));
    let counted = syncs.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path: &Path| {
        let counts = call == Call::Sync && path.extension().is_some_and(|end| end == "journal");
        counted.fetch_add(u32::from(counts), SeqCst);
        None
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    runtime(2).block_on(async {
        let options = IngestOptions { host, ..options(dir.path(), Duration::from_secs(3600)) };
        let ingest = Ingest::open(options, driver.store(), registry_of(&*driver).await, rules("1s:1h")).await.unwrap();
        send(&ingest, 0..1000).await;
        driver.writes.close();
        let flush = tokio::spawn({
            let ingest = ingest.clone();
            async move { ingest.flush().await }
        });
        while driver.writes.arrived() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The last one is behind those that are being written.
        let before = syncs.load(SeqCst);
        send(&ingest, 999..1000).await;
        assert_eq!(syncs.load(SeqCst), before, "only in memory and in the journal's cache");
        driver.writes.open();
        flush.await.unwrap().unwrap();
        assert!(before < syncs.load(SeqCst), "its rows were written, and a power failure would lose the point");
    });
}
