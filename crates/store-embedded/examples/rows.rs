//! What a point costs in the embedded store: CPU, disk, memory and latency, for long rows, for short ones, and for
//! a million new metrics. `cargo run --release -p store-embedded --example rows [long|short|new]`.

use std::time::Instant;

use host::{Random, SeededRandom};
use metric::{Aggregation, MetricId, Policy, Stage, Table};
use store::{Fetch, MetricRecord, NameStore, PointStore, PolicyChange, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

/// A slot some way into a row, as now mostly is.
const FIRST: u32 = 28_333_777;

struct Load {
    name: &'static str,
    metrics: u32,
    points: u32,
    /// Slots of a metric that are written together.
    piece: u32,
    /// Whether the rows of the metrics table are written, too.
    names: bool,
}

const LOADS: [Load; 4] = [
    Load { name: "long", metrics: 10_000, points: 1440, piece: 100, names: false },
    Load { name: "whole", metrics: 10_000, points: 1440, piece: 1440, names: false },
    Load { name: "short", metrics: 100_000, points: 30, piece: 30, names: false },
    Load { name: "new", metrics: 1_000_000, points: 3, piece: 3, names: true },
];

fn main() {
    let wanted = std::env::args().nth(1);
    println!(
        "{:>6} {:>9} {:>6} {:>12} {:>9} {:>11} {:>9} {:>14}",
        "load", "metrics", "points", "CPU ns/point", "wall s", "disk B/pt", "RSS MiB", "1000 series ms"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    for load in LOADS.iter().filter(|load| wanted.as_deref().is_none_or(|wanted| wanted == load.name)) {
        runtime.block_on(measure(load));
    }
}

async fn measure(load: &Load) {
    let dir = tempfile::tempdir().expect("a folder");
    let driver = EmbeddedDriver::open(dir.path(), EmbeddedOptions::default()).expect("a store");
    let table = Table { stage: Stage::new(60, 10_080).expect("a stage"), aggregated: false, rollup: None };
    let mut levels: Vec<f64> = (0..load.metrics).map(|i| f64::from(i % 10_000)).collect();
    let random = SeededRandom::new(0x5EED);
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let mut making = 0.0;
    if load.names {
        for first in (0..load.metrics).step_by(10_000) {
            let start = cpu_seconds();
            let records = (first..(first + 10_000).min(load.metrics)).map(record).collect();
            making += cpu_seconds() - start;
            driver.put_metrics(records).await.expect("a write");
        }
    }
    for from in (0..load.points).step_by(load.piece as usize) {
        let len = load.piece.min(load.points - from);
        for first in (0..load.metrics).step_by(2000) {
            let start = cpu_seconds();
            let runs = (first..(first + 2000).min(load.metrics))
                .map(|metric| Run {
                    metric: MetricId(metric),
                    name: String::new(),
                    table,
                    first_slot: FIRST + from,
                    values: (0..len).map(|_| next(&random, metric, &mut levels[metric as usize])).collect(),
                    counts: vec![],
                    aggregation: metric::Aggregation::Sum,
                })
                .collect();
            making += cpu_seconds() - start;
            driver.write(runs).await.expect("a write");
        }
    }
    driver.sync_metrics().await.expect("a sync");
    driver.sync().await.expect("a sync");
    let written = cpu_seconds() - cpu - making;
    let wall = began.elapsed().as_secs_f64();
    let dirty = folder_bytes(dir.path());
    driver.settle().expect("a compaction");
    let settled = cpu_seconds() - cpu - making;
    let points = f64::from(load.metrics) * f64::from(load.points);

    let fetches: Vec<Fetch> = (0..1000)
        .map(|i| Fetch {
            metric: MetricId(i * (load.metrics / 1000)),
            name: String::new(),
            table,
            first_slot: FIRST,
            end_slot: FIRST + 1440,
            aggregation: Aggregation::Average,
        })
        .collect();
    let mut latencies = Vec::new();
    for _ in 0..15 {
        let fetches = fetches.clone();
        let start = Instant::now();
        let cells = driver.fetch(fetches).await.expect("a fetch");
        latencies.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(cells.iter().all(|cells| cells.values.len() == 1440));
    }
    let first = latencies[0];
    latencies.sort_by(f64::total_cmp);
    println!(
        "{:>6} {:>9} {:>6} {:>5.0} ({:>5.0}) {wall:>8.1} {:>5.2} ({:>4.2}) {:>8.0} {:>6.1} ({first:.1})",
        load.name,
        load.metrics,
        load.points,
        settled * 1e9 / points,
        written * 1e9 / points,
        folder_bytes(dir.path()) as f64 / points,
        dirty as f64 / points,
        resident_mib(),
        latencies[latencies.len() / 2],
    );
}

/// Half gauges of two decimals, half counters.
fn next(random: &SeededRandom, metric: u32, level: &mut f64) -> f64 {
    if metric.is_multiple_of(2) {
        *level += ((random.unit() + random.unit() + random.unit() + random.unit() - 2.0) * 35.0).round();
        *level / 100.0
    } else {
        *level += (100.0 + random.unit() * 100.0).round();
        *level
    }
}

fn record(id: u32) -> MetricRecord {
    MetricRecord {
        id: MetricId(id),
        name: format!("servers.dc{}.host{:05}.cpu.{}.user", id % 3, id / 40, id % 40),
        created_on: 1_700_000_000,
        policies: vec![PolicyChange { since: 0, policy: Policy::default() }],
    }
}

fn cpu_seconds() -> f64 {
    // SAFETY: the structure is plain numbers, filled by the call.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn folder_bytes(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let about = entry.metadata().expect("metadata");
            if about.is_dir() { folder_bytes(&entry.path()) } else { about.len() }
        })
        .sum()
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / f64::from(1 << 20)
}
