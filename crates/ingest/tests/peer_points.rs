//! Points in the memory of another node that came under another first step than the one of this node.

mod support;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use carbon::Sink as _;
use ingest::{AskedHeads, HeadRequest, HeadRun, HeadSource, Ingest, PeerHeads, Protocol};
use metric::{Timestamp, Window};
use store::{FetchedSeries, ScriptedDriver, SeriesRequest};
use support::{now, options, registry_of, rules};

const NAME: &str = "m";

/// A node with points of 10 s from a time on.
struct Peer {
    since: Timestamp,
    values: Vec<f64>,
}

impl HeadSource for Peer {
    fn has_peers(&self) -> bool {
        true
    }

    fn heads(&self, requests: Vec<HeadRequest>, _given_up: Vec<String>) -> AskedHeads<'_> {
        let run = HeadRun {
            is_coarse: false,
            resolution: 10,
            first_slot: (self.since / 10) as u32,
            values: self.values.clone(),
        };
        let of_peers = vec![requests.iter().map(|_| vec![run.clone()]).collect()];
        Box::pin(std::future::ready(PeerHeads { of_peers, ..PeerHeads::default() }))
    }
}

async fn open(dir: &std::path::Path, driver: &Arc<ScriptedDriver>, retentions: &str) -> Arc<Ingest> {
    let registry = registry_of(&**driver).await;
    Ingest::open(options(dir, Duration::from_secs(60)), driver.store(), registry, rules(retentions)).await.unwrap()
}

async fn send(ingest: &Ingest, time: Timestamp, value: f64) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    batch.point(NAME.as_bytes(), time, value);
    ingest.accept(&mut batch).await;
}

/// The slots of a minute from a time until now.
async fn minutes(ingest: &Ingest, from: Timestamp) -> FetchedSeries {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(NAME.as_bytes()), NAME.as_bytes()).unwrap();
    let window = Window::between(from - 1, now());
    let request = SeriesRequest { metric, window, now: now(), max_points: 1 << 20, rollup: None };
    ingest.series().fetch(vec![request]).await.unwrap().pop().unwrap().unwrap()
}

/// A node whose metric had the earlier retention, and has 60 s now, with points of minutes: 2 nine minutes before this one, which is stored,
/// and 9 a minute after it, which is in memory. A peer has 1, 5 and 7 of this minute, every 10 s. The method is a sum.
async fn node_behind_a_peer(
    dir: &std::path::Path,
    driver: &Arc<ScriptedDriver>,
    earlier: &str,
) -> (Arc<Ingest>, Timestamp) {
    driver.has_other_writers.store(true, SeqCst);
    let minute = now() / 60 * 60 - 180;
    let ingest = open(dir, driver, earlier).await;
    send(&ingest, minute - 1200, 1.0).await;
    ingest.flush().await.unwrap();
    ingest.close().await.unwrap();
    drop(ingest);
    let ingest = open(dir, driver, "60s:1d").await;
    send(&ingest, minute - 600, 1.0).await;
    // The rules are new here, and hold from the flush after the first point on.
    ingest.flush().await.unwrap();
    send(&ingest, minute - 540, 2.0).await;
    ingest.flush().await.unwrap();
    send(&ingest, minute + 60, 9.0).await;
    ingest.set_peers(Arc::new(Peer { since: minute, values: vec![1.0, 5.0, 7.0] }));
    (ingest, minute)
}

#[tokio::test]
async fn they_are_shown_as_they_will_be_stored_and_while_the_store_is_away_at_their_own_times() {
    for earlier in ["10s:1h,60s:1d", "10s:1h"] {
        let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
        let (ingest, minute) = node_behind_a_peer(dir.path(), &driver, earlier).await;
        let series = minutes(&ingest, minute).await;
        assert_eq!((series.step, series.start, &series.values[..2]), (60, minute, &[13.0, 9.0][..]), "{earlier}");
        assert!(series.missing_peers.is_none());

        // Nothing has noticed it before the query does.
        driver.is_down.store(true, SeqCst);
        let series = minutes(&ingest, minute).await;
        assert_eq!(series.values[..2], [7.0, 9.0], "{earlier}");
        assert_eq!(series.missing_peers.as_deref().unwrap(), [ingest::STORE]);
        driver.is_down.store(false, SeqCst);
        ingest.close().await.unwrap();
    }
}

#[tokio::test]
async fn they_are_shown_as_they_will_be_stored_where_the_store_is_read_though_writes_fail() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), Arc::new(ScriptedDriver::default()));
    let (ingest, minute) = node_behind_a_peer(dir.path(), &driver, "10s:1h,60s:1d").await;
    driver.is_down.store(true, SeqCst);
    let flush = tokio::time::timeout(Duration::from_millis(300), ingest.flush()).await;
    assert!(!matches!(flush, Ok(Ok(_))), "a write failed");
    driver.writes.close();
    driver.is_down.store(false, SeqCst);
    let series = minutes(&ingest, minute - 540).await;
    assert_eq!((series.values[0], &series.values[9..11]), (2.0, &[13.0, 9.0][..]));
    assert!(series.missing_peers.is_none());
    driver.writes.open();
    ingest.close().await.unwrap();
}
