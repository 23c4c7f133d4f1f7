//! A driver that measures another one: how long each call takes and how often it fails.

use std::sync::Arc;

use host::Clock;
use metric::Timestamp;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use store::{Cells, Driver, DriverFuture, Fetch, MetricRecord, Run, Usage};

/// Seconds: from a cached read to a disk that hangs.
const BUCKETS: [f64; 11] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0];

/// Measures each call and passes it on.
pub struct TimedDriver {
    driver: Arc<dyn Driver>,
    clock: Arc<dyn Clock>,
    seconds: HistogramVec,
    failures: IntCounterVec,
}

impl TimedDriver {
    /// Measures `driver` into `registry`.
    pub fn new(driver: Arc<dyn Driver>, registry: &Registry, clock: Arc<dyn Clock>) -> prometheus::Result<TimedDriver> {
        let seconds = HistogramOpts::new("plumbago_store_seconds", "Time the store took, by operation.")
            .buckets(BUCKETS.to_vec());
        let seconds = HistogramVec::new(seconds, &["operation"])?;
        let failures = Opts::new("plumbago_store_failures_total", "Calls of the store that failed, by operation.");
        let failures = IntCounterVec::new(failures, &["operation"])?;
        for operation in ["write", "fetch", "own_part", "sync", "expire", "put_metrics", "scan_metrics"] {
            seconds.with_label_values(&[operation]);
            failures.with_label_values(&[operation]);
        }
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(TimedDriver { driver, clock, seconds, failures })
    }

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

impl Driver for TimedDriver {
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()> {
        self.timed("write", self.driver.write(runs))
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        self.timed("fetch", self.driver.fetch(fetches))
    }

    fn own_part(&self, wholes: Vec<Run>) -> DriverFuture<'_, Vec<Run>> {
        self.timed("own_part", self.driver.own_part(wholes))
    }

    fn is_alone(&self) -> bool {
        self.driver.is_alone()
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        self.timed("sync", self.driver.sync())
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        self.timed("expire", self.driver.expire(now))
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.timed("put_metrics", self.driver.put_metrics(records))
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        self.timed("scan_metrics", self.driver.scan_metrics(each))
    }

    fn usage(&self) -> Usage {
        self.driver.usage()
    }
}
