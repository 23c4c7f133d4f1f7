//! What `/metrics` says: counters of ingestion, reading and HTTP, gathered when somebody asks.
//!
//! What other crates count stays in their atomics; it becomes metric families here, at each scrape.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use api::{Answered, Api, Observer};
use ingest::{CountersSnapshot, Histogram, Ingest, receivers::Connections};
use parking_lot::Mutex;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, TextEncoder,
    core::Collector,
    proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};
use store::Driver;

use crate::{cluster::Link, process::Process};

/// Seconds: from a find in memory to a query that runs into its timeout.
const REQUEST_BUCKETS: [f64; 11] = [0.000_5, 0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

/// Everything the program counts.
pub struct Metrics {
    /// The registry behind `/metrics`.
    pub registry: prometheus::Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    cancelled: IntCounterVec,
    withheld: IntCounterVec,
    series: IntCounter,
    points: IntCounter,
    open: IntGauge,
    http_open: AtomicUsize,
    connections: Mutex<Vec<(&'static str, Arc<Connections>)>>,
    watched: OnceLock<Watched>,
    api: OnceLock<Weak<Api>>,
}

/// What is asked at each scrape.
struct Watched {
    ingest: Arc<Ingest>,
    names: Arc<metadata::Registry>,
    driver: Arc<dyn Driver>,
    rules_refused: Arc<AtomicBool>,
    link: Option<Arc<Link>>,
}

impl Metrics {
    /// Counters at zero.
    pub fn new() -> prometheus::Result<Metrics> {
        let registry = prometheus::Registry::new();
        let requests = IntCounterVec::new(
            Opts::new("plumbago_http_requests_total", "HTTP requests answered, by kind and status."),
            &["path", "status"],
        )?;
        let request_seconds = HistogramVec::new(
            HistogramOpts::new(
                "plumbago_http_request_seconds",
                "Time from a request to the beginning of its answer, by kind.",
            )
            .buckets(REQUEST_BUCKETS.to_vec()),
            &["path"],
        )?;
        let cancelled = IntCounterVec::new(
            Opts::new("plumbago_http_requests_cancelled_total", "HTTP requests whose client went away, by kind."),
            &["path"],
        )?;
        let withheld = IntCounterVec::new(
            Opts::new(
                "plumbago_http_withheld_total",
                "Empty lists sent to a graphite-web in place of a refusal, by kind; the log says why.",
            ),
            &["path"],
        )?;
        let series = IntCounter::new("plumbago_http_series_total", "Series read for HTTP requests.")?;
        let points = IntCounter::new("plumbago_http_points_total", "Points read for HTTP requests.")?;
        let open = IntGauge::new("plumbago_http_connections", "HTTP connections open now.")?;
        let all: [Box<dyn Collector>; 7] = [
            Box::new(requests.clone()),
            Box::new(request_seconds.clone()),
            Box::new(cancelled.clone()),
            Box::new(withheld.clone()),
            Box::new(series.clone()),
            Box::new(points.clone()),
            Box::new(open.clone()),
        ];
        for collector in all {
            registry.register(collector)?;
        }
        Ok(Metrics {
            registry,
            requests,
            request_seconds,
            cancelled,
            withheld,
            series,
            points,
            open,
            http_open: AtomicUsize::new(0),
            connections: Mutex::default(),
            watched: OnceLock::new(),
            api: OnceLock::new(),
        })
    }

    /// Connections of a receiver, to be told by name.
    pub fn connections(&self, receiver: &'static str, connections: Arc<Connections>) {
        self.connections.lock().push((receiver, connections));
    }

    /// What is asked at each scrape from now on.
    pub fn watch(
        &self,
        ingest: Arc<Ingest>,
        names: Arc<metadata::Registry>,
        driver: Arc<dyn Driver>,
        rules_refused: Arc<AtomicBool>,
        link: Option<Arc<Link>>,
    ) {
        // Set once, by the start.
        let _ = self.watched.set(Watched { ingest, names, driver, rules_refused, link });
    }

    /// Whose queries are told at each scrape from now on.
    pub fn watch_queries(&self, api: &Arc<Api>) {
        // Weak, because the API holds what counts for it.
        let _ = self.api.set(Arc::downgrade(api));
    }

    /// Connections open now, of receivers and HTTP.
    pub fn open_connections(&self) -> u64 {
        let receivers: u64 = self.connections.lock().iter().map(|(_, connections)| connections.active()).sum();
        receivers + self.http_open.load(Relaxed) as u64
    }

    /// Requests answered since the start.
    pub fn queries(&self) -> u64 {
        let families = self.requests.collect();
        families
            .iter()
            .flat_map(|family| family.get_metric())
            .map(|metric| metric.get_counter().get_value() as u64)
            .sum()
    }

    /// The text that Prometheus scrapes.
    pub fn text(&self) -> String {
        let mut families = self.registry.gather();
        if let Some(watched) = self.watched.get() {
            families.extend(ingest_families(&watched.ingest.counters()));
            families.extend(watched.families());
        }
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            let queries = api.activity();
            families.push(gauge("plumbago_queries", "Queries at work or being sent.", queries.at_work as f64));
            families.push(gauge(
                "plumbago_queries_waiting",
                "Queries that wait for their turn.",
                queries.waiting as f64,
            ));
        }
        families.extend(self.connection_families());
        let process = Process::now();
        families.push(counter("process_cpu_seconds_total", "CPU time used, user and system.", process.cpu_seconds));
        families.push(gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes as f64));
        families.push(gauge("process_open_fds", "Open file descriptors.", process.open_files as f64));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    fn connection_families(&self) -> Vec<MetricFamily> {
        let connections = self.connections.lock();
        let of = |value: fn(&Connections) -> u64| {
            connections.iter().map(|(name, connections)| (*name, value(connections) as f64)).collect::<Vec<_>>()
        };
        vec![
            labelled(
                "plumbago_connections",
                "Connections open now, by receiver.",
                MetricType::GAUGE,
                "receiver",
                of(Connections::active),
            ),
            labelled(
                "plumbago_connections_total",
                "Connections accepted, by receiver.",
                MetricType::COUNTER,
                "receiver",
                of(Connections::accepted),
            ),
            labelled(
                "plumbago_connections_refused_total",
                "Connections closed at once because there were too many, by receiver.",
                MetricType::COUNTER,
                "receiver",
                of(Connections::refused),
            ),
        ]
    }
}

impl Watched {
    fn families(&self) -> Vec<MetricFamily> {
        let usage = self.driver.usage();
        let connected = self.link.iter().map(|link| {
            let is_up = f64::from(u8::from(link.is_up()));
            gauge("plumbago_cassandra_connected", "1 while any node of Cassandra can be asked.", is_up)
        });
        let families = vec![
            gauge("plumbago_metrics", "Metrics known.", self.names.len() as f64),
            gauge("plumbago_index_bytes", "Memory of names and path index.", self.names.memory_bytes() as f64),
            gauge(
                "plumbago_store_disk_bytes",
                "Bytes of the store on disk, without the journal.",
                usage.disk_bytes as f64,
            ),
            gauge("plumbago_store_memory_bytes", "Memory of rows that are not on disk yet.", usage.memory_bytes as f64),
            gauge("plumbago_store_tables", "Datapoints tables.", usage.tables as f64),
            gauge(
                "plumbago_rules_refused",
                "1 while carbon's files that are there now cannot be used.",
                f64::from(u8::from(self.rules_refused.load(Relaxed))),
            ),
        ];
        connected.chain(families).collect()
    }
}

fn ingest_families(counts: &CountersSnapshot) -> Vec<MetricFamily> {
    let points = counts.points.iter().map(|(protocol, points)| (protocol.name(), *points as f64)).collect();
    let rejects = counts.rejects.iter().map(|(reason, points)| (reason.name(), *points as f64)).collect();
    let flag = |set: bool| f64::from(u8::from(set));
    vec![
        labelled("plumbago_points_total", "Points accepted, by protocol.", MetricType::COUNTER, "protocol", points),
        labelled(
            "plumbago_rejected_total",
            "Points, lines and frames refused, by reason; /admin/rejects has the last ones.",
            MetricType::COUNTER,
            "reason",
            rejects,
        ),
        counter("plumbago_batches_total", "Batches accepted.", counts.batches as f64),
        counter("plumbago_created_total", "Metrics created.", counts.created as f64),
        counter(
            "plumbago_stalled_seconds_total",
            "Time that receivers waited for room, all connections together.",
            counts.stalled_seconds,
        ),
        gauge("plumbago_stalled", "1 while receivers wait for room.", flag(counts.stalled)),
        counter(
            "plumbago_journal_errors_total",
            "Appends and syncs of the journal that failed.",
            counts.journal_errors as f64,
        ),
        gauge(
            "plumbago_journal_failing",
            "1 while the journal cannot be written and nothing is accepted.",
            flag(counts.journal_failing),
        ),
        gauge("plumbago_journal_bytes", "Bytes of the journal on disk.", counts.journal_bytes as f64),
        gauge(
            "plumbago_journal_sync_age_seconds",
            "Time since all that was accepted was on the disk.",
            counts.sync_age,
        ),
        counter(
            "plumbago_journal_replayed_points_total",
            "Points replayed by the start.",
            counts.replayed_points as f64,
        ),
        gauge(
            "plumbago_journal_damaged_bytes",
            "Bytes of the journal that the start could not read.",
            counts.damaged_bytes as f64,
        ),
        gauge("plumbago_held_slots", "Slots of points held in memory, not stored yet.", counts.held_slots as f64),
        gauge(
            "plumbago_parked_points",
            "Points that are in the journal alone, because memory was full while the store was away.",
            counts.parked_points as f64,
        ),
        gauge("plumbago_parked_bytes", "Bytes of the journal's records of those points.", counts.parked_bytes as f64),
        counter("plumbago_parked_points_total", "Points that were parked.", counts.parked_points_total as f64),
        gauge("plumbago_store_failing", "1 while the store does not take points.", flag(counts.store_failing)),
        gauge("plumbago_flushing_metrics", "Metrics on their way to the store.", counts.flushing_metrics as f64),
        counter(
            "plumbago_store_errors_total",
            "Writes that the store refused and that were tried again.",
            counts.store_errors as f64,
        ),
        counter("plumbago_flush_cycles_total", "Flush cycles ended.", counts.cycles as f64),
        counter("plumbago_flushed_metrics_total", "Metrics written out.", counts.flushed_metrics as f64),
        counter("plumbago_flushed_points_total", "Points written out.", counts.flushed_points as f64),
        counter("plumbago_series_read_total", "Series read.", counts.fetches as f64),
        histogram("plumbago_flush_seconds", "Time to write out a group of metrics.", &counts.flush),
        histogram("plumbago_read_seconds", "Time to read the series of a request.", &counts.fetch),
        histogram("plumbago_journal_sync_seconds", "Time of an fsync of the journal.", &counts.sync),
    ]
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn value_of(kind: MetricType, value: f64) -> Metric {
    let mut metric = Metric::default();
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

fn counter(name: &str, help: &str, value: f64) -> MetricFamily {
    family(name, help, MetricType::COUNTER, vec![value_of(MetricType::COUNTER, value)])
}

fn gauge(name: &str, help: &str, value: f64) -> MetricFamily {
    family(name, help, MetricType::GAUGE, vec![value_of(MetricType::GAUGE, value)])
}

fn labelled(name: &str, help: &str, kind: MetricType, label: &str, values: Vec<(&str, f64)>) -> MetricFamily {
    let metric = |(labelled, value): (&str, f64)| {
        let mut pair = LabelPair::default();
        pair.set_name(label.to_owned());
        pair.set_value(labelled.to_owned());
        let mut metric = value_of(kind, value);
        metric.set_label(vec![pair]);
        metric
    };
    family(name, help, kind, values.into_iter().map(metric).collect())
}

fn histogram(name: &str, help: &str, durations: &Histogram) -> MetricFamily {
    let buckets = Histogram::BOUNDS.iter().zip(durations.cumulative).map(|(&bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = prometheus::proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.seconds);
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    family(name, help, MetricType::HISTOGRAM, vec![metric])
}

impl Observer for Metrics {
    fn answered(&self, answered: &Answered) {
        let status = answered.status.to_string();
        self.requests.with_label_values(&[answered.path, &status]).inc();
        self.request_seconds.with_label_values(&[answered.path]).observe(answered.duration.as_secs_f64());
        self.series.inc_by(answered.series);
        self.points.inc_by(answered.points);
    }

    fn cancelled(&self, path: &'static str) {
        self.cancelled.with_label_values(&[path]).inc();
    }

    fn withheld(&self, path: &'static str) {
        self.withheld.with_label_values(&[path]).inc();
    }

    fn connections(&self, open: usize) {
        self.open.set(open as i64);
        self.http_open.store(open, Relaxed);
    }
}
