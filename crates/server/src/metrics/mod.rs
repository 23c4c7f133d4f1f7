//! What `/metrics` answers: counters of ingestion, queries, HTTP and the process.
//!
//! Other crates count in atomics of their own; each scrape turns them into metric families.

mod certificates;
mod doors;
mod families;
mod files;
mod http;
mod ingest;
mod nodes;
mod quotas;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use ::ingest::{
    Ingest, TaskHealth,
    receivers::{Connections, Door, ReceiveBudget},
};
use api::{Answered, Api, MemoryUse, Observer, RequestRecord};
use cluster::{Connection, Peers};
use host::Disk;
use metadata::MetricCounts;
use parking_lot::Mutex;
use prometheus::{
    TextEncoder,
    proto::{MetricFamily, MetricType},
};
use store::{DamageLog, PointStore};
use store_embedded::EmbeddedDriver;
use tls::Identity;

use crate::{
    backups::{BackupCounters, ScrubCounters},
    cardinality::LargestBranches,
    health::Health,
    process::Process,
    quotas::shown,
    request_log::RequestLog,
    tokens::TokenGates,
};
use families::{counter, flag, gauge, labelled};
use http::HttpMetrics;

/// Everything the program counts.
pub struct Metrics {
    /// For crates that count in the registry itself.
    pub registry: prometheus::Registry,
    http: HttpMetrics,
    connections: Mutex<Vec<(String, Arc<Connections>)>>,
    budget: OnceLock<ReceiveBudget>,
    scraped: OnceLock<Scraped>,
    api: OnceLock<Weak<Api>>,
    certificates: OnceLock<Vec<Arc<Identity>>>,
    requests: OnceLock<RequestLog>,
    doors: OnceLock<Vec<Arc<Door>>>,
    /// What the scrub has read.
    pub scrub: Arc<ScrubCounters>,
    pub backups: Arc<BackupCounters>,
    /// What tokens with restrictions have sent.
    pub token_gates: Arc<TokenGates>,
    disk: Arc<dyn Disk>,
}

/// What each scrape asks.
pub struct Scraped {
    pub ingest: Arc<Ingest>,
    pub health: Arc<Health>,
    pub points: Arc<dyn PointStore>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    pub damage: DamageLog,
    /// Whether carbon's current files are not in force.
    pub rules_rejected: Arc<AtomicBool>,
    pub connection: Option<Arc<Connection>>,
    /// Other nodes over the same tables.
    pub peers: Option<Arc<Peers>>,
    /// `limits.metrics`; 0 without a limit.
    pub limit_metrics: u64,
    /// When the process started.
    pub started: i64,
    /// How many metrics the largest branches have.
    pub branches: LargestBranches,
}

impl Metrics {
    /// Counters at zero. The disk is where the system reports on this process.
    pub fn new(disk: Arc<dyn Disk>) -> prometheus::Result<Metrics> {
        let registry = prometheus::Registry::new();
        Ok(Metrics {
            http: HttpMetrics::new(&registry)?,
            registry,
            connections: Mutex::default(),
            budget: OnceLock::new(),
            scraped: OnceLock::new(),
            api: OnceLock::new(),
            certificates: OnceLock::new(),
            requests: OnceLock::new(),
            doors: OnceLock::new(),
            scrub: Arc::default(),
            backups: Arc::default(),
            token_gates: Arc::default(),
            disk,
        })
    }

    /// Adds the connections of a receiver.
    pub fn count_connections(&self, receiver: &str, connections: Arc<Connections>) {
        self.connections.lock().push((receiver.to_owned(), connections));
    }

    /// Adds the memory that receivers share.
    pub fn count_budget(&self, budget: ReceiveBudget) {
        let _ = self.budget.set(budget);
    }

    /// Writes requests to these logs. The start calls this once.
    pub fn log_requests(&self, log: RequestLog) {
        let _ = self.requests.set(log);
    }

    /// Adds the certificates of listeners. The start calls this once.
    pub fn count_certificates(&self, identities: Vec<Arc<Identity>>) {
        let _ = self.certificates.set(identities);
    }

    /// Adds what each `[[listener]]` counts. The start calls this once.
    pub fn count_doors(&self, doors: Vec<Arc<Door>>) {
        let _ = self.doors.set(doors);
    }

    /// What each scrape asks from now on. The start calls this once.
    pub fn scrape(&self, scraped: Scraped) {
        let _ = self.scraped.set(scraped);
    }

    /// Whose queries each scrape counts from now on.
    pub fn scrape_queries(&self, api: &Arc<Api>) {
        // Weak, because the API holds these metrics.
        let _ = self.api.set(Arc::downgrade(api));
    }

    /// Open connections of receivers and HTTP.
    pub fn open_connections(&self) -> u64 {
        let receivers: u64 = self.connections.lock().iter().map(|(_, connections)| connections.active()).sum();
        receivers + self.http.open_connections()
    }

    /// HTTP requests answered since the start.
    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// What the system reports on this process.
    pub async fn process(&self) -> Process {
        let disk = self.disk.clone();
        tokio::task::spawn_blocking(move || Process::read(&*disk)).await.unwrap_or_default()
    }

    /// The text that Prometheus scrapes. Reads files: not for a thread that serves sockets.
    pub fn text(&self) -> String {
        let mut families = self.registry.gather();
        if let Some(scraped) = self.scraped.get() {
            families.extend(ingest::ingest_families(&scraped.ingest.counters()));
            families.extend(scraped.families());
            families.extend(branch_families(&scraped.branches));
            families.extend(files::file_families(&scraped.embedded.status()));
            let are_events_taken = scraped.embedded.check_events().is_ok();
            families.extend(files::event_families(&scraped.embedded.event_usage(), are_events_taken));
            families.extend(health_families(&scraped.health));
            families.extend(quotas::quota_families(&shown(scraped.ingest.quotas())));
            families.extend(scraped.peers.iter().flat_map(|peers| nodes::node_families(peers)));
            families.push(panics(&scraped.ingest.supervisor().health()));
        }
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            let queries = api.activity();
            families.push(gauge("plumbago_queries", "Queries running.", queries.running as f64));
            families.push(gauge("plumbago_queries_waiting", "Queries waiting for their turn.", queries.waiting as f64));
            families.extend(query_memory_families(&api));
        }
        families.extend(self.connection_families());
        families.extend(self.certificates.get().into_iter().flat_map(|all| certificates::certificate_families(all)));
        let doors = self.doors.get().filter(|doors| !doors.is_empty());
        families.extend(doors.into_iter().flat_map(|doors| doors::door_families(doors)));
        families.extend(doors::token_families(&self.token_gates));
        families.extend(self.budget.get().into_iter().flat_map(budget_families));
        let process = Process::read(&*self.disk);
        families.extend(files::scrub_families(&self.scrub));
        families.extend(files::backup_families(&self.backups));
        families.push(counter("process_cpu_seconds_total", "CPU time used, user and system.", process.cpu_seconds));
        families.push(gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes as f64));
        families.push(gauge("process_open_fds", "Open file descriptors.", process.open_files as f64));
        // The encoder refuses a family without values, and all others with it.
        families.retain(|family| !family.get_metric().is_empty());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    fn connection_families(&self) -> [MetricFamily; 4] {
        let connections = self.connections.lock();
        let values = |value: fn(&Connections) -> u64| -> Vec<(&str, f64)> {
            connections.iter().map(|(name, connections)| (name.as_str(), value(connections) as f64)).collect()
        };
        let family = |name, help, kind, values| labelled(name, help, kind, "receiver", values);
        let (active, refused) = (values(Connections::active), values(Connections::refused));
        let mut failed = values(Connections::failed);
        failed.push(("http", self.http.accept_failures() as f64));
        let (total, accepted) = (MetricType::COUNTER, values(Connections::accepted));
        let help_refused = "Connections closed at once because there were too many, by receiver.";
        let help_failed = "Connections that could not be accepted, mostly for want of descriptors, by receiver.";
        [
            family("plumbago_connections", "Open connections, by receiver.", MetricType::GAUGE, active),
            family("plumbago_connections_total", "Connections accepted, by receiver.", total, accepted),
            family("plumbago_connections_refused_total", help_refused, total, refused),
            family("plumbago_accept_failures_total", help_failed, total, failed),
        ]
    }
}

fn branch_families(branches: &LargestBranches) -> [MetricFamily; 3] {
    let (largest, new) = branches.get();
    let values = |value: fn(&MetricCounts) -> u64| -> Vec<(&str, f64)> {
        largest.iter().map(|(branch, counts)| (branch.as_str(), value(counts) as f64)).collect()
    };
    let family = |name, help, values| labelled(name, help, MetricType::GAUGE, "branch", values);
    let help = "Metrics of the ten largest first components of names, counted a minute ago or earlier.";
    [
        family("plumbago_branch_metrics", help, values(|counts| counts.metrics)),
        family("plumbago_branch_new_metrics", "Of these, created within a day.", values(|counts| counts.new)),
        gauge("plumbago_new_metrics", "Metrics created within a day, counted a minute ago or earlier.", new as f64),
    ]
}

fn panics(tasks: &[TaskHealth]) -> MetricFamily {
    let help = "Panics of background tasks, which begin again, by task.";
    let values = tasks.iter().map(|task| (task.name, task.panics as f64)).collect();
    labelled("plumbago_task_panics_total", help, MetricType::COUNTER, "task", values)
}

fn health_families(health: &Health) -> Vec<MetricFamily> {
    let age = "Time since the last flush cycle ended, or since none was due.";
    let mut families = vec![
        gauge("plumbago_flush_cycle_age_seconds", age, health.cycle_age().as_secs_f64()),
        gauge("plumbago_hung", "1 while /healthy fails.", flag(health.liveness().is_err())),
    ];
    if let Some(disk) = health.disk() {
        families.push(gauge("plumbago_disk_free_bytes", "Free disk of the data folder.", disk.free as f64));
        let help = "Free disk that is kept for merges: data.reserve.";
        families.push(gauge("plumbago_disk_reserve_bytes", help, disk.reserve as f64));
        let help = "1 while less is free than the reserve, and senders wait.";
        families.push(gauge("plumbago_disk_short", help, flag(disk.is_short)));
    }
    families
}

/// The memory of queries and of answers.
fn query_memory_families(api: &Api) -> [MetricFamily; 4] {
    let both = [("queries", api.query_memory()), ("answers", api.answer_memory())];
    let values = |value: fn(&MemoryUse) -> u64| both.iter().map(|(of, now)| (*of, value(now) as f64)).collect();
    let family = |name, help, kind, values| labelled(name, help, kind, "of", values);
    let (now, total) = (MetricType::GAUGE, MetricType::COUNTER);
    let limit = "Size limit of that memory: query.memory and http.answer_memory.";
    let refused = "How often one got status 503, because it waited for memory too long.";
    [
        family("plumbago_query_bytes", "Memory of queries, and of answers not sent yet.", now, values(|of| of.used)),
        family("plumbago_query_limit_bytes", limit, now, values(|of| of.limit)),
        family("plumbago_query_memory_waits_total", "How often one waited for memory.", total, values(|of| of.waits)),
        family("plumbago_query_memory_refused_total", refused, total, values(|of| of.refused)),
    ]
}

fn budget_families(budget: &ReceiveBudget) -> [MetricFamily; 4] {
    let now = budget.usage();
    [
        gauge("plumbago_receive_bytes", "Memory that receivers hold for bytes not accepted yet.", now.used as f64),
        gauge("plumbago_receive_limit_bytes", "Size limit of that memory: receive.memory.", now.limit as f64),
        counter("plumbago_receive_waits_total", "How often a connection waited for that memory.", now.waits as f64),
        counter(
            "plumbago_receive_closed_total",
            "Connections and bodies that were cut off in a message, because that memory was spent.",
            now.closed as f64,
        ),
    ]
}

impl Scraped {
    fn families(&self) -> Vec<MetricFamily> {
        let usage = self.points.usage();
        let (damages, damaged_bytes) = self.damage.totals();
        let names = self.ingest.registry();
        let connected = self.connection.iter().map(|connection| {
            let help = "1 while any node of Cassandra can be reached.";
            gauge("plumbago_cassandra_connected", help, flag(connection.is_up()))
        });
        let version = vec![(env!("CARGO_PKG_VERSION"), 1.0)];
        let families = [
            gauge("plumbago_metrics", "Metrics known.", names.len() as f64),
            gauge(
                "plumbago_metrics_limit",
                "Metrics allowed: limits.metrics; 0 without a limit.",
                self.limit_metrics as f64,
            ),
            gauge("process_start_time_seconds", "When the process started, Unix seconds.", self.started as f64),
            labelled("plumbago_build_info", "The version of the program.", MetricType::GAUGE, "version", version),
            gauge("plumbago_index_bytes", "Memory of names and path index.", names.memory_bytes() as f64),
            gauge(
                "plumbago_store_disk_bytes",
                "Bytes of the store on disk, without the journal.",
                usage.disk_bytes as f64,
            ),
            gauge("plumbago_store_memory_bytes", "Memory of rows that are not on disk yet.", usage.memory_bytes as f64),
            gauge(
                "plumbago_clock_in_doubt",
                "1 while the clock is in doubt after a jump: points of both times are accepted, and nothing expires.",
                flag(self.ingest.time().is_doubtful()),
            ),
            counter(
                "plumbago_clock_jumps_total",
                "Jumps of the machine's clock, at the start and since.",
                self.ingest.time().jumps() as f64,
            ),
            gauge("plumbago_store_tables", "Datapoints tables.", usage.tables as f64),
            counter(
                "plumbago_damage_total",
                "Damage found in files of the data folder and in packed rows of Cassandra; /admin/status has the last findings.",
                damages as f64,
            ),
            counter("plumbago_damage_bytes_total", "Bytes that damage made unreadable.", damaged_bytes as f64),
            gauge(
                "plumbago_rules_refused",
                "1 while the current files of carbon are invalid and the old rules stay in force.",
                flag(self.rules_rejected.load(Relaxed)),
            ),
        ];
        connected.chain(families).collect()
    }
}

impl Observer for Metrics {
    fn answered(&self, answered: &Answered) {
        self.http.answered(answered);
    }

    fn cancelled(&self, path: &'static str) {
        self.http.cancelled(path);
    }

    fn withheld(&self, path: &'static str) {
        self.http.withheld(path);
    }

    fn connections(&self, open: usize) {
        self.http.connections(open);
    }

    fn accept_failed(&self) {
        self.http.accept_failed();
    }

    fn made_room(&self) {
        self.http.made_room();
    }

    fn refused(&self) {
        self.http.refused();
    }

    fn unreadable(&self) {
        self.http.unreadable();
    }

    fn wants_records(&self) -> bool {
        self.requests.get().is_some()
    }

    fn recorded(&self, record: &RequestRecord) {
        if let Some(log) = self.requests.get() {
            log.add(record);
        }
    }
}
