//! A store that measures another one: how long each call takes and how often it fails.

use std::{sync::Arc, time::Duration};

use host::Clock;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use store::{
    Cells, DriverFuture, Fetch, Identity, MetricRecord, NameStore, PointStore, Run, SharedPoints, Store, Usage,
};

/// Seconds: from a cached read to a disk that hangs.
const BUCKETS: [f64; 11] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0];

/// A store whose calls are measured into `registry`.
pub fn timed(store: Store, registry: &Registry, clock: &Arc<dyn Clock>) -> prometheus::Result<Store> {
    let seconds =
        HistogramOpts::new("plumbago_store_seconds", "Time the store took, by operation.").buckets(BUCKETS.to_vec());
    let seconds = HistogramVec::new(seconds, &["operation"])?;
    let failures = Opts::new("plumbago_store_failures_total", "Calls of the store that failed, by operation.");
    let failures = IntCounterVec::new(failures, &["operation"])?;
    for operation in ["write", "fetch", "own_part", "sync", "expire", "put_metrics", "scan_metrics", "delete_metrics"] {
        seconds.with_label_values(&[operation]);
        failures.with_label_values(&[operation]);
    }
    registry.register(Box::new(seconds.clone()))?;
    registry.register(Box::new(failures.clone()))?;
    let calls = Calls { clock: clock.clone(), seconds, failures, names_synced: Arc::default() };
    Ok(Store {
        points: Arc::new(Timed { store: store.points, calls: calls.clone() }),
        names: Arc::new(Timed { store: store.names, calls: calls.clone() }),
        shared: store.shared.map(|store| Arc::new(Timed { store, calls }) as Arc<dyn SharedPoints>),
    })
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
}

impl Calls {
    fn timed<'a, T: 'a>(&'a self, operation: &'static str, call: DriverFuture<'a, T>) -> DriverFuture<'a, T> {
        Box::pin(async move {
            let start = self.clock.instant();
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
            let synced = self.store.sync().await;
            let names = std::mem::take(&mut *self.calls.names_synced.lock());
            self.calls.ended("sync", names + (self.calls.clock.instant() - start), synced.is_err());
            synced
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.calls.timed("expire", self.store.expire(now))
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
        self.store.begin(first_id)
    }

    fn next_id(&self) -> MetricId {
        self.store.next_id()
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        self.calls.timed("delete_metrics", self.store.delete_metrics(ids))
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.calls.timed("put_metrics", self.store.put_metrics(records))
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.calls.timed("scan_metrics", self.store.scan_metrics(each))
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let start = self.calls.clock.instant();
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
}

impl SharedPoints for Timed<dyn SharedPoints> {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        self.calls.timed("own_part", self.store.writer_partials(totals))
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
        let store = timed(Store::of(Arc::new(MemoryDriver::new())), &registry, &clock).unwrap();
        for _ in 0..3 {
            store.sync().await.unwrap();
        }
        let families = registry.gather();
        let seconds = families.iter().find(|family| family.name() == "plumbago_store_seconds").unwrap();
        let of_sync = |metric: &&prometheus::proto::Metric| metric.get_label()[0].value() == "sync";
        assert_eq!(seconds.get_metric().iter().find(of_sync).unwrap().get_histogram().get_sample_count(), 3);
    }
}
