//! Bits that flip on the way from the disk: what the disk has right is read again, and costs nothing.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use host::{FailingDisk, Host, SystemDisk};
use metric::{Aggregation, MetricId, Policy, Stage, Table};
use store::{Events, Fetch, MetricRecord, NameStore, NewEvent, PointStore, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

const METRICS: u32 = 300;
const FIRST: u32 = 28_000_100;

fn table() -> Table {
    Table { stage: Stage::new(60, 10_080).unwrap(), aggregated: false, rollup: None }
}

fn value(metric: u32, slot: u32) -> f64 {
    f64::from(metric) + f64::from(slot % 1000 * 7919 % 1000) / 100.0
}

/// A store with names, events, a deletion, and rows of three flushes.
fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { merges: false, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir.path(), options).unwrap();
    block_on(async {
        driver.begin(MetricId(0)).await.unwrap();
        let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
        let record =
            |id| MetricRecord { id: MetricId(id), name: format!("a.m{id}"), created_on: 0, policies: policies.clone() };
        driver.put_metrics((0..=METRICS).map(record).collect()).await.unwrap();
        driver.delete_metrics(vec![MetricId(METRICS)]).await.unwrap();
        driver.sync_metrics().await.unwrap();
        for number in 0..3 {
            let event = NewEvent { what: format!("event {number}"), when: i64::from(number), ..NewEvent::default() };
            driver.put_event(event).await.unwrap();
        }
        for flush in 0..3 {
            let first_slot = FIRST + flush * 30;
            let run = |metric| Run {
                metric: MetricId(metric),
                name: String::new(),
                table: table(),
                first_slot,
                values: (first_slot..first_slot + 30).map(|slot| value(metric, slot)).collect(),
                counts: vec![],
                aggregation: Aggregation::Average,
            };
            driver.write((0..METRICS).map(run).collect()).await.unwrap();
            driver.sync().await.unwrap();
        }
    });
    dir
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// A disk whose reads from number `flipped` on, `times` of them, come with a flipped bit, and the number of reads.
fn flipping(flipped: u64, times: u64) -> (EmbeddedOptions, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_reads(move |_, bytes| {
        let read = counted.fetch_add(u64::from(!bytes.is_empty()), Relaxed);
        if !bytes.is_empty() && (flipped..flipped + times).contains(&read) {
            let bit = (flipped * 7919) as usize % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    });
    let host = Host { disk: Arc::new(disk), ..Host::system() };
    (EmbeddedOptions { host, merges: false, ..EmbeddedOptions::default() }, reads)
}

/// Opens the store and reads everything, while the reads from number `flipped` on, `times` of them, come with a flipped
/// bit. Returns how many reads there were.
fn check(dir: &Path, flipped: u64, times: u64) -> u64 {
    let (options, reads) = flipping(flipped, times);
    let driver = EmbeddedDriver::open(dir, options.clone()).unwrap();
    let mut names = 0;
    block_on(async {
        driver.scan_metrics(&mut |records| names += records.len()).await.unwrap();
        let events = driver.events((0, 0), i64::MAX, 100).await.unwrap();
        assert_eq!(
            (names, events.len(), driver.next_id()),
            (METRICS as usize, 3, MetricId(METRICS + 1)),
            "read {flipped}"
        );
        let fetch = |metric| Fetch {
            metric: MetricId(metric),
            name: String::new(),
            table: table(),
            first_slot: FIRST,
            end_slot: FIRST + 90,
            aggregation: Aggregation::Average,
        };
        let cells = driver.fetch((0..METRICS).map(fetch).collect()).await.unwrap();
        for (metric, cells) in (0..).zip(cells) {
            let expected: Vec<f64> = (FIRST..FIRST + 90).map(|slot| value(metric, slot)).collect();
            assert_eq!((cells.values, cells.is_damaged), (expected, false), "read {flipped}, metric {metric}");
        }
    });
    assert_eq!(options.damage.examples(), [], "read {flipped}");
    assert!(!dir.join("damaged").exists(), "read {flipped}");
    reads.load(Relaxed)
}

#[test]
fn bits_that_flip_on_the_way_from_the_disk_cost_nothing() {
    let dir = store();
    for times in [1, 2] {
        let mut flipped = 0;
        while flipped < check(dir.path(), flipped, times) {
            flipped += 1;
        }
        assert!(30 < flipped, "{flipped} reads");
    }
}

#[test]
fn bits_that_flip_on_the_way_from_the_disk_cost_nothing_in_a_merge() {
    let mut flipped = 0;
    loop {
        let dir = store();
        let (options, reads) = flipping(flipped, 1);
        let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
        driver.settle().unwrap();
        assert_eq!((driver.files().len(), options.damage.examples()), (1, vec![]), "read {flipped}");
        drop(driver);
        check(dir.path(), 0, 0);
        if reads.load(Relaxed) <= flipped {
            return;
        }
        flipped += 3;
    }
}

#[test]
fn a_file_of_rows_whose_length_is_stale_for_a_moment_is_used() {
    type Cut = fn(u64) -> u64;
    // With none of its blocks, it is waited for, also when it is short for longer.
    let cuts: [(Cut, u64); 4] = [(|_| 0, 5), (|_| 100, 5), (|len| len / 2, 2), (|len| len - 1, 2)];
    for (number, (cut, most)) in cuts.into_iter().enumerate() {
        for times in 1..=most {
            let dir = store();
            let left = Arc::new(AtomicU64::new(times));
            let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_changed_lengths(move |path, len| {
                let is_stale = path.to_string_lossy().ends_with("2-2.rows")
                    && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
                if is_stale { cut(len) } else { len }
            });
            let host = Host { disk: Arc::new(disk), ..Host::system() };
            let options = EmbeddedOptions { host, ..EmbeddedOptions::default() };
            let driver = EmbeddedDriver::open(dir.path(), options.clone()).unwrap();
            let wait = std::time::Instant::now();
            while !options.damage.examples().is_empty() && wait.elapsed().as_secs() < 20 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            assert_eq!(options.damage.examples(), [], "{number}, {times} times");
            assert_eq!(driver.files().len(), 3, "{number}, {times} times");
            let fetch = Fetch {
                metric: MetricId(7),
                name: String::new(),
                table: table(),
                first_slot: FIRST,
                end_slot: FIRST + 90,
                aggregation: Aggregation::Average,
            };
            let cells = block_on(driver.fetch(vec![fetch])).unwrap().remove(0);
            let wanted: Vec<f64> = (FIRST..FIRST + 90).map(|slot| value(7, slot)).collect();
            assert_eq!((cells.values, cells.is_damaged), (wanted, false), "{number}, {times} times");
        }
    }
}
