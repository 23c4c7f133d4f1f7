//! A store that measures another one: how long each call takes and how often it fails.

use std::sync::Arc;

use host::Clock;
use metric::Timestamp;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use store::{Cells, DriverFuture, Fetch, MetricRecord, NameStore, PointStore, Run, SharedPoints, Store, Usage};

/// Seconds: from a cached read to a disk that hangs.
const BUCKETS: [f64; 11] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0];

/// A store whose calls are measured into `registry`.
pub fn timed(store: Store, registry: &Registry, clock: &Arc<dyn Clock>) -> prometheus::Result<Store> {
    let seconds =
        HistogramOpts::new("plumbago_store_seconds", "Time the store took, by operation.").buckets(BUCKETS.to_vec());
    let seconds = HistogramVec::new(seconds, &["operation"])?;
    let failures = Opts::new("plumbago_store_failures_total", "Calls of the store that failed, by operation.");
    let failures = IntCounterVec::new(failures, &["operation"])?;
    for operation in ["write", "fetch", "own_part", "sync", "expire", "put_metrics", "scan_metrics"] {
        seconds.with_label_values(&[operation]);
        failures.with_label_values(&[operation]);
    }
    registry.register(Box::new(seconds.clone()))?;
    registry.register(Box::new(failures.clone()))?;
    let calls = Calls { clock: clock.clone(), seconds, failures };
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
}

impl Calls {
    fn timed<'a, T: 'a>(&'a self, operation: &'static str, call: DriverFuture<'a, T>) -> DriverFuture<'a, T> {
        Box::pin(async move {
            let start = self.clock.instant();
            let answer = call.await;
            self.seconds.with_label_values(&[operation]).observe((self.clock.instant() - start).as_secs_f64());
            if answer.is_err() {
                self.failures.with_label_values(&[operation]).inc();
            }
            answer
        })
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
        self.calls.timed("sync", self.store.sync())
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.calls.timed("expire", self.store.expire(now))
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}

impl NameStore for Timed<dyn NameStore> {
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.calls.timed("put_metrics", self.store.put_metrics(records))
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.calls.timed("scan_metrics", self.store.scan_metrics(each))
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        self.calls.timed("sync", self.store.sync_metrics())
    }
}

impl SharedPoints for Timed<dyn SharedPoints> {
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        self.calls.timed("own_part", self.store.writer_partials(totals))
    }
}
