//! Metrics of the HTTP API.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use api::Answered;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, core::Collector};

/// Seconds: from a find in memory to a query that reaches its timeout.
const REQUEST_BUCKETS: [f64; 11] = [0.000_5, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

/// Counters of HTTP requests.
pub(super) struct HttpMetrics {
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    cancelled: IntCounterVec,
    withheld: IntCounterVec,
    series: IntCounter,
    points: IntCounter,
    open: IntGauge,
    accept_failures: AtomicU64,
    made_room: IntCounter,
    refused: IntCounter,
    unreadable: IntCounter,
}

impl HttpMetrics {
    /// Counters at zero, registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<HttpMetrics> {
        let counters = |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let requests = "HTTP requests answered, by kind and status.";
        let seconds = "Time from a request to the beginning of its answer, by kind.";
        let cancelled = "HTTP requests whose client went away, by kind.";
        let withheld = "Empty lists sent to a graphite-web in place of an error, by kind; the log says why.";
        let made_room = "Idle HTTP connections closed for new clients, because http.max_connections were open.";
        let refused = "HTTP connections closed at once, because their address had http.connections_per_address.";
        let unreadable = "HTTP requests whose head could not be read (400, 414, 431); no log has them.";
        let seconds = HistogramOpts::new("plumbago_http_request_seconds", seconds).buckets(REQUEST_BUCKETS.to_vec());
        let metrics = HttpMetrics {
            requests: counters("plumbago_http_requests_total", requests, &["path", "status"])?,
            request_seconds: HistogramVec::new(seconds, &["path"])?,
            cancelled: counters("plumbago_http_requests_cancelled_total", cancelled, &["path"])?,
            withheld: counters("plumbago_http_withheld_total", withheld, &["path"])?,
            series: IntCounter::new("plumbago_http_series_total", "Series read for HTTP requests.")?,
            points: IntCounter::new("plumbago_http_points_total", "Points read for HTTP requests.")?,
            open: IntGauge::new("plumbago_http_connections", "Open HTTP connections.")?,
            accept_failures: AtomicU64::new(0),
            made_room: IntCounter::new("plumbago_http_idle_closed_total", made_room)?,
            refused: IntCounter::new("plumbago_http_connections_refused_total", refused)?,
            unreadable: IntCounter::new("plumbago_http_requests_unreadable_total", unreadable)?,
        };
        let all: [Box<dyn Collector>; 10] = [
            Box::new(metrics.requests.clone()),
            Box::new(metrics.request_seconds.clone()),
            Box::new(metrics.cancelled.clone()),
            Box::new(metrics.withheld.clone()),
            Box::new(metrics.series.clone()),
            Box::new(metrics.points.clone()),
            Box::new(metrics.open.clone()),
            Box::new(metrics.made_room.clone()),
            Box::new(metrics.refused.clone()),
            Box::new(metrics.unreadable.clone()),
        ];
        for collector in all {
            registry.register(collector)?;
        }
        Ok(metrics)
    }

    /// Requests answered.
    pub(super) fn requests(&self) -> u64 {
        let families = self.requests.collect();
        let counts = families.iter().flat_map(|family| family.get_metric());
        counts.map(|metric| metric.get_counter().get_value() as u64).sum()
    }

    /// Connections open now.
    pub(super) fn open_connections(&self) -> u64 {
        self.open.get() as u64
    }

    /// Connections that could not be accepted.
    pub(super) fn accept_failures(&self) -> u64 {
        self.accept_failures.load(Relaxed)
    }

    pub(super) fn accept_failed(&self) {
        self.accept_failures.fetch_add(1, Relaxed);
    }

    pub(super) fn made_room(&self) {
        self.made_room.inc();
    }

    pub(super) fn refused(&self) {
        self.refused.inc();
    }

    pub(super) fn unreadable(&self) {
        self.unreadable.inc();
    }

    pub(super) fn answered(&self, answered: &Answered) {
        let status = answered.status.to_string();
        self.requests.with_label_values(&[answered.path, &status]).inc();
        self.request_seconds.with_label_values(&[answered.path]).observe(answered.duration.as_secs_f64());
        self.series.inc_by(answered.series);
        self.points.inc_by(answered.points);
    }

    pub(super) fn cancelled(&self, path: &'static str) {
        self.cancelled.with_label_values(&[path]).inc();
    }

    pub(super) fn withheld(&self, path: &'static str) {
        self.withheld.with_label_values(&[path]).inc();
    }

    pub(super) fn connections(&self, open: usize) {
        self.open.set(open as i64);
    }
}
