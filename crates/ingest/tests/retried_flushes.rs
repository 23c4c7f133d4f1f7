//! A flush that fails in the middle and is repeated stores what a flush without a fault stores: late points count once in each coarse
//! row, also in those that are all that is left of earlier points, whichever call of the store failed.

mod support;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use carbon::{RuleFiles, Rules, Sink as _};
use host::{Clock as _, Host, ManualClock};
use ingest::{Ingest, IngestOptions, Protocol};
use metric::{Methods, Timestamp, Window};
use store::{
    Cells, DriverFuture, Fetch, MemoryDriver, OwnRows, PointStore, Run, SeriesRequest, SharedPoints, Store, StoreError,
    Usage,
};
use support::{options, registry_of, runtime};

/// A whole hour of a day in 2026.
const BEGIN: Timestamp = 1_795_000_000 / 3600 * 3600;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The call does nothing and fails.
    Away,
    /// Reads say that the slots cannot be read now.
    Unreadable,
    /// A write stores only the points, or only the coarse rows, and fails: as where each row is a statement of its own.
    Half { points: bool },
}

/// A store in memory that fails once.
struct FailsOnce {
    memory: Arc<MemoryDriver>,
    fault: Fault,
    /// Calls until the one that fails.
    left: AtomicUsize,
    calls: AtomicUsize,
}

impl FailsOnce {
    fn fails(&self) -> bool {
        self.calls.fetch_add(1, SeqCst);
        self.left.fetch_sub(1, SeqCst) == 0
    }
}

impl PointStore for FailsOnce {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            if !self.fails() {
                return self.memory.write(runs).await;
            }
            if let Fault::Half { points } = self.fault {
                self.memory.write(runs.into_iter().filter(|run| run.table.aggregated != points).collect()).await?;
            }
            Err(StoreError::Unavailable("the test lets this call fail".to_owned()))
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            match (self.fails(), self.fault) {
                (true, Fault::Unreadable) => {
                    let cells = Cells { is_unreadable: true, is_damaged: true, ..Cells::default() };
                    Ok(vec![cells; fetches.len()])
                }
                (true, _) => Err(StoreError::Unavailable("the test lets this call fail".to_owned())),
                (false, _) => self.memory.fetch(fetches).await,
            }
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        self.memory.sync()
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.memory.expire(now)
    }

    fn usage(&self) -> Usage {
        self.memory.usage()
    }
}

impl SharedPoints for FailsOnce {
    /// The other processes never write.
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        Box::pin(std::future::ready(Ok(OwnRows { runs: totals, ..OwnRows::default() })))
    }
}

/// Retentions and methods before a change and after it.
#[derive(Debug, Clone, Copy)]
struct Change {
    retentions: [&'static str; 2],
    methods: [&'static str; 2],
    is_shared: bool,
}

impl Change {
    fn rules(&self, place: usize) -> Rules {
        let schemas = format!("[all]\npattern = .*\nretentions = {}\n", self.retentions[place]);
        let methods = self.methods[place];
        let aggregation = format!("[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = {methods}\n");
        let files = RuleFiles { schemas: Some(&schemas), aggregation: Some(&aggregation), ..RuleFiles::default() };
        Rules::parse(files).expect("good rules").0
    }
}

async fn send(ingest: &Ingest, points: &[(Timestamp, f64)]) {
    let mut batch = ingest.batch(Protocol::LineTcp);
    points.iter().for_each(|&(time, value)| batch.point(b"m", BEGIN + time, value));
    ingest.accept(&mut batch).await;
}

/// What coarse slots show by each method of a list.
async fn shown(ingest: &Ingest, now: Timestamp, methods: &str) -> Vec<String> {
    let registry = ingest.registry();
    let metric = registry.read().find(registry.hash(b"m"), b"m").expect("the metric is known");
    let mut all = Vec::new();
    for method in methods.parse::<Methods>().unwrap().iter() {
        let window = Window::between(now - 2 * 86_400, now);
        let request = SeriesRequest { metric, window, now, max_points: 1 << 20, rollup: Some(method) };
        let series = ingest.series().fetch(vec![request]).await.unwrap().remove(0).unwrap();
        let times = (series.start..).step_by(series.step as usize).map(|time| time - BEGIN);
        let slots = times.zip(&series.values).filter(|(_, value)| !value.is_nan());
        all.extend(slots.map(|(time, value)| format!("{method} {time} {value}")));
    }
    all
}

/// What slots show once late points came, and once the first rules are back, and how many calls their flush needed. `fails_at` is the
/// number of the call of the store that fails.
fn flushed(dir: &Path, change: &Change, fault: Fault, fails_at: usize) -> (Vec<String>, usize) {
    let clock = Arc::new(ManualClock::at(BEGIN + 7 * 3600));
    let memory = Arc::new(MemoryDriver::new());
    let (left, calls) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
    let points = Arc::new(FailsOnce { memory: memory.clone(), fault, left, calls });
    let shared = change.is_shared.then(|| points.clone() as Arc<dyn SharedPoints>);
    let store = Store { points: points.clone(), shared, ..Store::of(memory.clone()) };
    runtime(1).block_on(async {
        let host = Host { clock: clock.clone(), ..Host::system() };
        let options = IngestOptions { host, ..options(dir, Duration::from_millis(20)) };
        let ingest = Ingest::open(options, store, registry_of(&*memory).await, change.rules(0)).await.unwrap();
        // Seven hours old: points for the whole of a minute.
        send(&ingest, &[(0, 100.0), (60, 7.0)]).await;
        ingest.flush().await.unwrap();
        clock.advance(Duration::from_secs(5));
        ingest.set_rules(change.rules(1)).await;
        send(&ingest, &[(10, 5.0), (20, 2.0), (80, -3.0)]).await;
        points.calls.store(0, SeqCst);
        points.left.store(fails_at, SeqCst);
        let mut attempts = 0;
        while let Err(error) = ingest.flush().await {
            attempts += 1;
            assert!(attempts < 10, "{error}");
        }
        let calls = points.calls.load(SeqCst);
        points.left.store(usize::MAX, SeqCst);
        let mut all = shown(&ingest, clock.now(), change.methods[1]).await;
        clock.advance(Duration::from_secs(5));
        ingest.set_rules(change.rules(0)).await;
        all.extend(shown(&ingest, clock.now(), change.methods[0]).await);
        (all, calls)
    })
}

/// Lets each call of a flush fail, one after the other, in each of these ways.
fn check(change: &Change, faults: &[Fault]) -> Vec<String> {
    let flushed = |fault, fails_at| flushed(tempfile::tempdir().unwrap().path(), change, fault, fails_at);
    let (wanted, calls) = flushed(Fault::Away, usize::MAX);
    // Each waits for a second before it tries again.
    let all: Vec<(Fault, usize)> = faults.iter().flat_map(|&fault| (0..calls).map(move |at| (fault, at))).collect();
    std::thread::scope(|scope| {
        let of_fault = |&(fault, at): &(Fault, usize)| {
            let (flushed, wanted) = (&flushed, &wanted);
            scope.spawn(move || {
                assert_eq!(&flushed(fault, at).0, wanted, "{change:?}, call {at} of {calls}: {fault:?}");
            })
        };
        let threads: Vec<_> = all.iter().map(of_fault).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    wanted
}

#[test]
fn every_method_of_a_list_counts_late_points_once_whichever_call_of_a_flush_fails() {
    for retentions in [["10s:6h,60s:7d", "10s:1d,60s:7d"], ["10s:6h,60s:7d", "10s:1d,120s:30d"]] {
        for methods in [["avg,sum"; 2], ["avg,sum", "max,sum,last"], ["sum,max", "avg_zero,min,avg"]] {
            let change = Change { retentions, methods, is_shared: false };
            let wanted = check(&change, &[Fault::Away, Fault::Unreadable]);
            if (retentions[1], methods[1]) == ("10s:1d,60s:7d", "avg,sum") {
                // A point for a whole minute weighs as its six points in a mean.
                let sums: Vec<&String> = wanted.iter().filter(|slot| slot.starts_with("sum")).collect();
                assert_eq!(sums, ["sum 0 107", "sum 60 4", "sum 0 107", "sum 60 4"]);
            }
        }
    }
}

#[test]
fn late_points_count_once_where_a_call_stores_a_part_of_its_rows_and_fails() {
    for method in ["sum", "avg", "last", "max"] {
        let retentions = ["10s:6h,60s:7d", "10s:1d,60s:7d"];
        let change = Change { retentions, methods: [method; 2], is_shared: true };
        let faults = [Fault::Away, Fault::Half { points: true }, Fault::Half { points: false }];
        check(&change, &faults);
    }
}
