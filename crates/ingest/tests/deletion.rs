//! Metrics that are deleted: gone from memory, journal and store, also after a crash, and the same name begins again.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink};
use host::{Call, FailingDisk, Host, SystemDisk};
use ingest::{Ingest, Protocol};
use metadata::FindLimits;
use metric::{MetricId, Window};
use store::{MemoryDriver, NameStore, PointStore, ScriptedDriver, SeriesRequest, Store};
use support::{now, options, registry_of};

fn rules() -> Rules {
    let schemas = "[all]\npattern = .*\nretentions = 60s:1d,1h:30d\n";
    Rules::parse(RuleFiles { schemas: Some(schemas), ..RuleFiles::default() }).unwrap().0
}

async fn open<D: PointStore + NameStore>(dir: &Path, driver: &Arc<D>) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    Ingest::open(options(dir, Duration::from_secs(3600)), Store::of(driver.clone()), registry, rules()).await.unwrap()
}

async fn send(ingest: &Ingest, points: &[(&str, i64, f64)]) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    for &(name, ago, value) in points {
        batch.point(name.as_bytes(), now() - ago, value);
    }
    ingest.accept(&mut batch).await;
}

fn ids(ingest: &Ingest, pattern: &str) -> Vec<MetricId> {
    let found = ingest.registry().leaves(pattern, &FindLimits::default()).unwrap();
    found.leaves().map(|(id, _)| id).collect()
}

/// The values of the last two hours.
async fn values(ingest: &Ingest, name: &str) -> Vec<f64> {
    let requests = ids(ingest, name).into_iter().map(|metric| SeriesRequest {
        metric,
        window: Window::between(now() - 7200, now() + 60),
        now: now(),
        max_points: usize::MAX,
        rollup: None,
    });
    let series = ingest.series().fetch(requests.collect()).await.unwrap();
    series.into_iter().flatten().flat_map(|series| series.values).filter(|value| !value.is_nan()).collect()
}

async fn delete(ingest: &Ingest, pattern: &str) -> usize {
    ingest.delete(&ids(ingest, pattern)).await.unwrap()
}

#[tokio::test]
async fn a_spelling_means_the_metric_that_its_name_has_now() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let forms = ["a;t=v;s=u", "a{t=\"v\",s=\"u\"}", ".a;s=u;t=v"];
    let round = async |value: f64| {
        for (i, form) in forms.into_iter().enumerate() {
            send(&ingest, &[(form, 600 - 60 * i as i64, value)]).await;
        }
    };
    for value in [1.0, 2.0, 3.0] {
        round(value).await;
    }
    let before = ids(&ingest, "a;s=u;t=v")[0];
    assert_eq!((ingest.registry().len(), values(&ingest, "a;s=u;t=v").await), (1, vec![3.0; 3]));
    assert_eq!(delete(&ingest, "a;s=u;t=v").await, 1);
    for value in [4.0, 5.0, 6.0] {
        round(value).await;
    }
    let after = ids(&ingest, "a;s=u;t=v")[0];
    assert!(before < after, "{before:?} {after:?}");
    assert_eq!((ingest.registry().len(), values(&ingest, "a;s=u;t=v").await), (1, vec![6.0; 3]));
    // One that other nodes deleted comes back under its id.
    ingest.registry().hide(&[after]);
    round(7.0).await;
    assert_eq!((ids(&ingest, "a;s=u;t=v"), values(&ingest, "a;s=u;t=v").await), (vec![after], vec![7.0; 3]));
}

#[tokio::test]
async fn a_deleted_metric_is_gone_and_its_name_begins_again_without_the_old_points() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, &[("a.b", 600, 1.0), ("a.c", 600, 2.0), ("a;t=v", 600, 3.0)]).await;
    ingest.flush().await.unwrap();
    send(&ingest, &[("a.b", 300, 4.0), ("a.c", 300, 5.0)]).await;
    let before = ids(&ingest, "a.b")[0];
    assert_eq!((delete(&ingest, "a.b").await, delete(&ingest, "a;t=v").await), (1, 1));
    assert_eq!((ids(&ingest, "a.*").len(), values(&ingest, "a.b").await.len()), (1, 0));
    assert_eq!(ingest.registry().records(&[before]), []);
    send(&ingest, &[("a.b", 120, 6.0)]).await;
    assert!(before < ids(&ingest, "a.b")[0]);
    assert_eq!((values(&ingest, "a.b").await, values(&ingest, "a.c").await), (vec![6.0], vec![2.0, 5.0]));
    ingest.flush().await.unwrap();
    assert_eq!(values(&ingest, "a.b").await, [6.0]);
    ingest.close().await.unwrap();
    drop(ingest);
    let ingest = open(dir.path(), &driver).await;
    assert_eq!((values(&ingest, "a.b").await, values(&ingest, "a.c").await), (vec![6.0], vec![2.0, 5.0]));
    assert_eq!((ids(&ingest, "a;t=v").len(), ingest.counters().held_slots), (0, 0));
}

#[tokio::test]
async fn a_crash_after_a_deletion_brings_nothing_back() {
    for is_registered in [false, true] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
        let ingest = open(dir.path(), &driver).await;
        send(&ingest, &[("a.b", 600, 1.0), ("a.c", 600, 2.0)]).await;
        if is_registered {
            ingest.flush().await.unwrap();
            send(&ingest, &[("a.b", 300, 3.0)]).await;
        }
        assert_eq!(delete(&ingest, "a.b").await, 1);
        send(&ingest, &[("a.b", 120, 4.0)]).await;
        drop(ingest);
        let again = open(dir.path(), &driver).await;
        assert_eq!((values(&again, "a.b").await, values(&again, "a.c").await), (vec![4.0], vec![2.0]));
        assert_eq!(again.restored().nameless_points, 0);
        again.flush().await.unwrap();
        assert_eq!(values(&again, "a.b").await, [4.0]);
        drop(again);
        let again = open(dir.path(), &driver).await;
        assert_eq!((values(&again, "a.b").await, again.registry().len()), (vec![4.0], 2));
    }
}

/// What a crash leaves that comes after the journal took the deletion, and before the store did.
#[tokio::test]
async fn a_deletion_that_only_the_journal_has_is_ended_by_the_start() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, &[("a.b", 600, 1.0)]).await;
    ingest.flush().await.unwrap();
    let id = ids(&ingest, "a.b")[0];
    driver.is_down.store(true, SeqCst);
    assert!(ingest.delete(&[id]).await.is_err());
    send(&ingest, &[("a.b", 60, 2.0)]).await;
    drop(ingest);
    driver.is_down.store(false, SeqCst);
    let again = open(dir.path(), &driver).await;
    assert_eq!(values(&again, "a.b").await, [2.0]);
    again.flush().await.unwrap();
    drop(again);
    let again = open(dir.path(), &driver).await;
    assert_eq!((values(&again, "a.b").await, again.registry().len()), (vec![2.0], 1));
    assert!(id < ids(&again, "a.b")[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn points_that_come_while_their_metrics_are_deleted_are_before_or_after() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    let is_done = Arc::new(AtomicBool::new(false));
    let sender = {
        let (ingest, is_done) = (ingest.clone(), is_done.clone());
        tokio::spawn(async move {
            for round in 0u32.. {
                if is_done.load(Relaxed) {
                    return;
                }
                let names: Vec<String> = (0..20).map(|i| format!("m.n{i}")).collect();
                let points: Vec<_> = names.iter().map(|name| (&**name, 600, f64::from(round))).collect();
                send(&ingest, &points).await;
                tokio::task::yield_now().await;
            }
        })
    };
    let mut deleted = 0;
    while deleted < 1000 {
        deleted += delete(&ingest, "m.*").await;
        if deleted % 3 == 0 {
            ingest.flush().await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    is_done.store(true, Relaxed);
    sender.await.unwrap();
    delete(&ingest, "m.*").await;
    // Points that were on their way to the store at the last deletion are counted until they are there.
    ingest.flush().await.unwrap();
    assert_eq!((ids(&ingest, "**").len(), ingest.counters().held_slots), (0, 0));
    send(&ingest, &[("m.n3", 60, 7.0)]).await;
    ingest.flush().await.unwrap();
    assert_eq!(values(&ingest, "m.n3").await, [7.0]);
    drop(ingest);
    let again = open(dir.path(), &driver).await;
    assert_eq!((values(&again, "m.n3").await, again.registry().len()), (vec![7.0], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn points_whose_metrics_were_found_just_before_their_deletion_make_new_ones() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let is_slow = Arc::new(AtomicBool::new(false));
    let disk = {
        let is_slow = is_slow.clone();
        FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            if is_slow.load(SeqCst) && call == Call::Write {
                std::thread::sleep(Duration::from_millis(500));
            }
            None
        })
    };
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let options = ingest::IngestOptions { host, ..options(dir.path(), Duration::from_secs(3600)) };
    let registry = registry_of(&*driver).await;
    let ingest = Ingest::open(options, Store::of(driver.clone()), registry, rules()).await.unwrap();
    send(&ingest, &[("m.a", 600, 1.0), ("m.b", 600, 1.0), ("m.c", 600, 1.0)]).await;
    let before = ids(&ingest, "m.*");
    is_slow.store(true, SeqCst);
    let sending = {
        let ingest = ingest.clone();
        // A name with a control character is not resolved; one after it is.
        let points = [("m.a", 60, 2.0), ("m.\u{1}", 60, 2.0), ("m.c", 60, 4.0), ("m.b", 60, 3.0), ("m.a", 120, 5.0)];
        tokio::spawn(async move { send(&ingest, &points).await })
    };
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(ingest.delete(&before[..2]).await.unwrap(), 2);
    sending.await.unwrap();
    is_slow.store(false, SeqCst);
    assert_eq!(ingest.counters().points.iter().map(|(_, points)| points).sum::<u64>(), 3 + 4);
    let left = async |ingest: &Ingest| {
        let mut left = Vec::new();
        for name in ["m.a", "m.b", "m.c"] {
            left.push(values(ingest, name).await);
        }
        left
    };
    let expected = [vec![5.0, 2.0], vec![3.0], vec![1.0, 4.0]];
    assert_eq!(left(&ingest).await, expected);
    drop(ingest);
    assert_eq!(left(&*open(dir.path(), &driver).await).await, expected, "after a crash");
}

/// The journal has the points in a segment whose names are in the store, and no deletion.
#[tokio::test(flavor = "multi_thread")]
async fn points_of_a_deletion_that_the_journal_could_not_take_are_not_damage() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, &[("a.b", 600, 1.0), ("a.c", 600, 1.0)]).await;
    ingest.flush().await.unwrap();
    drop(ingest);
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = {
        let is_full = is_full.clone();
        FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            (is_full.load(SeqCst) && call == Call::Write).then(|| std::io::ErrorKind::StorageFull.into())
        })
    };
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    let options = ingest::IngestOptions { host, ..options(dir.path(), Duration::from_secs(3600)) };
    let ingest = Ingest::open(options, Store::of(driver.clone()), registry_of(&*driver).await, rules()).await.unwrap();
    send(&ingest, &[("a.b", 60, 2.0), ("a.c", 60, 2.0)]).await;
    let id = ids(&ingest, "a.b")[0];
    is_full.store(true, SeqCst);
    assert!(ingest.delete(&[id]).await.is_err());
    while !driver.is_deleted(id) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(ingest);
    let again = open(dir.path(), &driver).await;
    assert_eq!((ids(&again, "a.b"), values(&again, "a.c").await), (Vec::new(), vec![1.0, 2.0]));
    assert_eq!(again.restored().nameless_points, 0);
}

#[tokio::test]
async fn points_that_an_earlier_process_accepted_for_a_metric_that_is_deleted_since_are_not_damage() {
    for memory_limit_bytes in [1 << 30, 0] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
        let ingest = open(dir.path(), &driver).await;
        send(&ingest, &[("a.b", 600, 1.0), ("a.c", 600, 2.0)]).await;
        // From here on only the store has their names.
        ingest.flush().await.unwrap();
        send(&ingest, &[("a.b", 300, 3.0), ("a.c", 300, 4.0)]).await;
        drop(ingest);
        let again = open(dir.path(), &driver).await;
        assert_eq!(delete(&again, "a.b").await, 1);
        send(&again, &[("a.b", 120, 5.0)]).await;
        drop(again);
        let options = ingest::IngestOptions { memory_limit_bytes, ..options(dir.path(), Duration::from_secs(3600)) };
        let registry = registry_of(&*driver).await;
        let last = Ingest::open(options, Store::of(driver.clone()), registry, rules()).await.unwrap();
        assert_eq!(last.restored().nameless_points, 0, "{memory_limit_bytes}");
        if memory_limit_bytes > 0 {
            assert_eq!((values(&last, "a.b").await, values(&last, "a.c").await), (vec![5.0], vec![2.0, 4.0]));
        }
    }
}

#[tokio::test]
async fn a_metric_with_points_in_memory_is_not_idle() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(MemoryDriver::new()));
    let ingest = open(dir.path(), &driver).await;
    send(&ingest, &[("a", 600, 1.0), ("b", 600, 2.0)]).await;
    ingest.flush().await.unwrap();
    send(&ingest, &[("b", 60, 2.0)]).await;
    assert_eq!(ingest.delete_idle(&ids(&ingest, "*")).await.unwrap(), 1);
    assert_eq!((values(&ingest, "a").await.len(), values(&ingest, "b").await.len()), (0, 2));
}
