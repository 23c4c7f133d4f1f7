//! A journal on a disk that stalls: the runtime's threads never wait for it, and a stop ends.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::{FlushError, Ingest, IngestOptions, Protocol};
use metadata::Registry;
use metric::Window;
use store::{MemoryDriver, SeriesRequest};
use support::{now, options, registry_of, rules};

/// The machine with a disk whose writes, fsyncs and removals take this long while `is_slow`.
fn slow(is_slow: &Arc<AtomicBool>, stall: Duration) -> Host {
    let is_slow = is_slow.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
        if is_slow.load(SeqCst) && call != Call::Read {
            std::thread::sleep(stall);
        }
        None
    });
    Host { disk: Arc::new(disk), ..Host::system() }
}

async fn open(dir: &Path, host: Host, driver: &Arc<MemoryDriver>, rules: Rules) -> Arc<Ingest> {
    let options = IngestOptions { host, ..options(dir, Duration::from_millis(20)) };
    Ingest::open(options, driver.clone(), registry_of(&**driver).await, rules).await.unwrap()
}

async fn send(ingest: &Ingest, name: &str, ago: i64, value: f64) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(name.as_bytes(), now() - ago, value);
    ingest.accept(&mut batch).await;
}

async fn values(ingest: &Ingest, name: &str) -> Vec<f64> {
    let registry: &Arc<Registry> = ingest.registry();
    let Some(metric) = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes()) else { return Vec::new() };
    let request = SeriesRequest {
        metric,
        window: Window::between(now() - 600, now()),
        now: now(),
        max_points: 1 << 20,
        rollup: None,
    };
    let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
    series.values.into_iter().filter(|value| !value.is_nan()).collect()
}

#[tokio::test]
async fn timers_and_reads_go_on_while_each_call_of_the_disk_takes_a_second() {
    let (dir, is_slow) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let driver = Arc::new(MemoryDriver::new());
    let host = slow(&is_slow, Duration::from_secs(1));
    let ingest = open(dir.path(), host, &driver, rules("1s:1h")).await;
    send(&ingest, "before", 60, 1.0).await;
    is_slow.store(true, SeqCst);
    let mut longest = Duration::ZERO;
    let sending = async {
        let senders = (0..4).map(|n| {
            let ingest = ingest.clone();
            tokio::spawn(async move { send(&ingest, &format!("s{n}"), 60, 2.0).await })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        ingest.flush().await.unwrap();
    };
    let ticking = async {
        loop {
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(values(&ingest, "before").await, [1.0]);
            longest = longest.max(began.elapsed());
        }
    };
    let began = Instant::now();
    tokio::select! {
        () = sending => {}
        () = ticking => {}
    }
    // An append and the calls of a cycle, each of a second.
    assert!(Duration::from_secs(3) < began.elapsed(), "{:?}", began.elapsed());
    assert!(longest < Duration::from_millis(700), "{longest:?}");
    is_slow.store(false, SeqCst);
    for n in 0..4 {
        assert_eq!(values(&ingest, &format!("s{n}")).await, [2.0]);
    }
}

#[tokio::test]
async fn a_stop_on_a_disk_that_does_not_answer_ends_and_says_what_is_not_promised() {
    let (dir, is_slow) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let driver = Arc::new(MemoryDriver::new());
    let host = slow(&is_slow, Duration::from_secs(4));
    let ingest = open(dir.path(), host, &driver, rules("1s:1h")).await;
    send(&ingest, "a", 60, 1.0).await;
    is_slow.store(true, SeqCst);
    let began = Instant::now();
    let stopped = ingest.close_patiently(Duration::from_millis(300)).await;
    let error = stopped.expect_err("the journal is not on the disk");
    assert!(matches!(error, FlushError::JournalStuck { .. }), "{error}");
    assert!(error.to_string().contains("those since its last fsync are lost if the machine stops"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    is_slow.store(false, SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_gives_the_value_that_was_readable_when_two_connections_wrote_one_slot() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    for round in 0..20 {
        let ingest = open(dir.path(), Host::system(), &driver, rules("1s:1h")).await;
        let time = now() - 60;
        let senders = (0..8).map(|n| {
            let ingest = ingest.clone();
            tokio::spawn(async move {
                for i in 0..5 {
                    let mut batch = ingest.batch(Protocol::LineTcp);
                    batch.point(format!("m{round}").as_bytes(), time, f64::from(n * 10 + i));
                    ingest.accept(&mut batch).await;
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        let name = format!("m{round}");
        let readable = values(&ingest, &name).await;
        drop(ingest);
        // The process ends without a stop.
        let again = open(dir.path(), Host::system(), &driver, rules("1s:1h")).await;
        assert_eq!(values(&again, &name).await, readable, "round {round}");
    }
}

#[tokio::test]
async fn points_that_a_list_rejected_are_not_there_after_a_replay() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), Host::system(), &driver, rules("1s:1h")).await;
    send(&ingest, "a.b", 90, 1.0).await;
    let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
    let files = RuleFiles { schemas: Some(schemas), blacklist: Some("^a\\.\n"), ..RuleFiles::default() };
    ingest.set_rules(Rules::parse(files).unwrap().0).await;
    send(&ingest, "a.b", 60, 2.0).await;
    assert_eq!(ingest.counters().rejects.iter().map(|(_, inputs)| inputs).sum::<u64>(), 1);
    assert_eq!(values(&ingest, "a.b").await, [1.0]);
    drop(ingest);
    let again = open(dir.path(), Host::system(), &driver, rules("1s:1h")).await;
    assert_eq!(values(&again, "a.b").await, [1.0]);
}
