//! A store that measures another one: how long each call takes and how often it fails.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use metric::{MetricId, Policy, Timestamp};
use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use store::{
    Cells, DriverFuture, Fetch, Identity, JournalMark, LostPolicy, MetricRecord, NameStore, NamesMark, OtherWriters,
    OwnRows, PointStore, Run, SharedPoints, Store, StoreError, Usage,
};

/// Operations that show a disk that hangs when they do not end. A fetch may have been given up.
const WRITES: [&str; 4] = ["write", "put_metrics", "begin", "set_journal_mark"];

/// Seconds: from a cached read to a disk that hangs.
const BUCKETS: [f64; 11] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0];

/// A store whose calls are measured into `registry`, and the calls that have not ended.
pub fn timed(store: Store, registry: &Registry, clock: &Arc<dyn Clock>) -> prometheus::Result<(Store, RunningCalls)> {
    let seconds =
        HistogramOpts::new("plumbago_store_seconds", "Time the store took, by operation.").buckets(BUCKETS.to_vec());
    let seconds = HistogramVec::new(seconds, &["operation"])?;
    let failures = Opts::new("plumbago_store_failures_total", "Calls of the store that failed, by operation.");
    let failures = IntCounterVec::new(failures, &["operation"])?;
    for operation in [
        "write",
        "fetch",
        "own_part",
        "other_rows",
        "sync",
        "expire",
        "put_metrics",
        "scan_metrics",
        "begin",
        "set_journal_mark",
        "delete_metrics",
        "delete_shared",
    ] {
        seconds.with_label_values(&[operation]);
        failures.with_label_values(&[operation]);
    }
    registry.register(Box::new(seconds.clone()))?;
    registry.register(Box::new(failures.clone()))?;
    let running = RunningCalls::default();
    let calls =
        Calls { clock: clock.clone(), seconds, failures, names_synced: Arc::default(), running: running.clone() };
    let store = Store {
        points: Arc::new(Timed { store: store.points, calls: calls.clone() }),
        names: Arc::new(Timed { store: store.names, calls: calls.clone() }),
        shared: store.shared.map(|store| Arc::new(Timed { store, calls }) as Arc<dyn SharedPoints>),
    };
    Ok((store, running))
}

/// The calls that write and have not ended. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct RunningCalls(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    next: u64,
    calls: BTreeMap<u64, (&'static str, Instant)>,
}

impl RunningCalls {
    /// The oldest of them: its name and its begin.
    pub fn longest(&self) -> Option<(&'static str, Instant)> {
        self.0.lock().calls.first_key_value().map(|(_, &call)| call)
    }

    fn begin(&self, name: &'static str, now: Instant) -> RunningCall<'_> {
        let mut running = self.0.lock();
        let id = running.next;
        running.next += 1;
        running.calls.insert(id, (name, now));
        RunningCall { running: self, id }
    }
}

/// A call, until it is dropped.
struct RunningCall<'a> {
    running: &'a RunningCalls,
    id: u64,
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.running.0.lock().calls.remove(&self.id);
    }
}

/// Measures each call and passes it on.
struct Timed<S: ?Sized> {
    store: Arc<S>,
    calls: Calls,
}

#[derive(Clone)]
struct Calls {
    clock: Arc<dyn Clock>,
    seconds: HistogramVec,
    failures: IntCounterVec,
    /// The time of the names' half of a sync, until the points' half ends: both are one call of the operator's `sync`.
    names_synced: Arc<Mutex<Duration>>,
    running: RunningCalls,
}

impl Calls {
    fn timed<'a, T: 'a>(&'a self, operation: &'static str, call: DriverFuture<'a, T>) -> DriverFuture<'a, T> {
        Box::pin(async move {
            let start = self.clock.instant();
            let _running = WRITES.contains(&operation).then(|| self.running.begin(operation, start));
            let answer = call.await;
            self.ended(operation, self.clock.instant() - start, answer.is_err());
            answer
        })
    }

    fn ended(&self, operation: &str, time: Duration, is_failure: bool) {
        self.seconds.with_label_values(&[operation]).observe(time.as_secs_f64());
        if is_failure {
            self.failures.with_label_values(&[operation]).inc();
        }
    }
}

impl PointStore for Timed<dyn PointStore> {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        self.calls.timed("write", self.store.write(runs))
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        self.calls.timed("fetch", self.store.fetch(fetches))
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let start = self.calls.clock.instant();
            let _running = self.calls.running.begin("sync", start);
            let synced = self.store.sync().await;
            let names = std::mem::take(&mut *self.calls.names_synced.lock());
            self.calls.ended("sync", names + (self.calls.clock.instant() - start), synced.is_err());
            synced
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.calls.timed("expire", self.store.expire(now))
    }

    fn slots_kept_longer(&self) -> u32 {
        self.store.slots_kept_longer()
    }

    fn has_newer_rows(&self) -> bool {
        self.store.has_newer_rows()
    }

    fn newest_slot(&self) -> Option<Timestamp> {
        self.store.newest_slot()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}

impl NameStore for Timed<dyn NameStore> {
    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        self.calls.timed("begin", self.store.begin(first_id))
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.store.put_opening()
    }

    fn names_mark(&self) -> Option<NamesMark> {
        self.store.names_mark()
    }

    fn next_id(&self) -> MetricId {
        self.store.next_id()
    }

    fn is_deleted(&self, id: MetricId) -> bool {
        self.store.is_deleted(id)
    }

    fn lost_policies(&self) -> Vec<LostPolicy> {
        self.store.lost_policies()
    }

    fn set_lost_policy(&self, number: u16, policy: &Policy, how: &str) {
        self.store.set_lost_policy(number, policy, how);
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.calls.timed("delete_metrics", self.store.delete_metrics(ids))
    }

    /// Mostly a wait.
    fn names_are_current(&self) -> DriverFuture<'_, ()> {
        self.store.names_are_current()
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.calls.timed("put_metrics", self.store.put_metrics(records))
    }

    fn put_changed_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.calls.timed("put_metrics", self.store.put_changed_metrics(records))
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.calls.timed("scan_metrics", self.store.scan_metrics(each))
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let start = self.calls.clock.instant();
            let _running = self.calls.running.begin("sync", start);
            let synced = self.store.sync_metrics().await;
            let time = self.calls.clock.instant() - start;
            // The points' half does not come after a failure.
            match synced {
                Ok(()) => *self.calls.names_synced.lock() = time,
                Err(_) => self.calls.ended("sync", time, true),
            }
            synced
        })
    }

    fn journal_mark(&self) -> Option<JournalMark> {
        self.store.journal_mark()
    }

    fn set_journal_mark(&self, mark: JournalMark) -> DriverFuture<'_, ()> {
        self.calls.timed("set_journal_mark", self.store.set_journal_mark(mark))
    }
}

impl SharedPoints for Timed<dyn SharedPoints> {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows> {
        self.calls.timed("own_part", self.store.writer_partials(totals))
    }

    fn other_writers(&self) -> OtherWriters {
        self.store.other_writers()
    }

    fn have_others(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<bool>> {
        self.calls.timed("other_rows", self.store.have_others(fetches))
    }

    fn deletion_time(&self) -> Timestamp {
        self.store.deletion_time()
    }

    fn delete_metrics(&self, metrics: Vec<MetricRecord>, at: Timestamp) -> DriverFuture<'_, ()> {
        self.calls.timed("delete_shared", self.store.delete_metrics(metrics, at))
    }

    fn deleted_elsewhere(&self, names: &[String], logged: i64) {
        self.store.deleted_elsewhere(names, logged);
    }

    /// Mostly a wait.
    fn deletions_are_known(&self) -> DriverFuture<'_, ()> {
        self.store.deletions_are_known()
    }

    /// The same.
    fn deletions_are_followed(&self) -> DriverFuture<'_, ()> {
        self.store.deletions_are_followed()
    }
}

#[cfg(test)]
mod tests {
    use host::SystemClock;
    use store::MemoryDriver;

    use super::*;

    #[tokio::test]
    async fn a_sync_of_names_and_points_is_one_call() {
        let (registry, clock): (_, Arc<dyn Clock>) = (Registry::new(), Arc::new(SystemClock));
        let (store, _) = timed(Store::of(Arc::new(MemoryDriver::new())), &registry, &clock).unwrap();
        for _ in 0..3 {
            store.sync().await.unwrap();
        }
        let families = registry.gather();
        let seconds = families.iter().find(|family| family.name() == "plumbago_store_seconds").unwrap();
        let of_sync = |metric: &&prometheus::proto::Metric| metric.get_label()[0].value() == "sync";
        assert_eq!(seconds.get_metric().iter().find(of_sync).unwrap().get_histogram().get_sample_count(), 3);
    }
}
