//! What files of rows cost while they grow and merge: disk, CPU of merges, files, and latency of a query.
//! `cargo run --release -p store-embedded --example steady [hourly|often]`.
//!
//! `hourly`: two days of minutes, flushed every hour, with one stage and with three. `often`: 100 slots of every metric
//! in each flush, which are 20 seconds apart.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use host::{Host, ManualClock, Random, SeededRandom};
use metric::{Aggregation, MetricId, Stage, Table};
use store::{Fetch, PointStore, Run};
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

const MINUTES: (u32, u32) = (60, 10_080);
const START: i64 = 1_700_006_400;

struct Load {
    name: &'static str,
    metrics: u32,
    flushes: u32,
    /// Slots of the finest stage in a flush.
    slots: u32,
    /// Seconds between two flushes.
    every: u64,
    /// Slots of the finest stage under a slot of each coarse stage, and how many such slots are kept.
    coarse: &'static [(u32, u32)],
}

const LOADS: [Load; 3] = [
    Load { name: "hourly", metrics: 4000, flushes: 48, slots: 60, every: 3600, coarse: &[] },
    Load { name: "hourly", metrics: 4000, flushes: 48, slots: 60, every: 3600, coarse: &[(5, 17_280), (60, 8760)] },
    Load { name: "often", metrics: 20_000, flushes: 60, slots: 100, every: 20, coarse: &[] },
];

fn main() {
    let wanted = std::env::args().nth(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    for load in LOADS.iter().filter(|load| wanted.as_deref().is_none_or(|wanted| wanted == load.name)) {
        runtime.block_on(measure(load));
    }
}

async fn measure(load: &Load) {
    let dir = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(ManualClock::at(START));
    let host = Host { clock: clock.clone(), ..Host::system() };
    let options = EmbeddedOptions { host, merges: false, ..EmbeddedOptions::default() };
    let driver = EmbeddedDriver::open(dir.path(), options).expect("a store");
    let finest = Table { stage: Stage::new(MINUTES.0, MINUTES.1).expect("a stage"), aggregated: false, rollup: None };
    let first = finest.stage.slot(START).expect("a slot");
    let mut levels: Vec<f64> = (0..load.metrics).map(|i| f64::from(i % 10_000)).collect();
    let random = SeededRandom::new(0x5EED);
    let (mut writing, mut merging, mut of_disk, mut files, mut latency) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut reading, mut slowest) = (0.0, 0.0_f64);
    for flush in 0..load.flushes {
        let from = first + flush * load.slots;
        for metrics in (0..load.metrics).collect::<Vec<_>>().chunks(512) {
            let runs = metrics.iter().flat_map(|&m| runs(load, &random, finest, from, m, &mut levels)).collect();
            let start = cpu_seconds();
            driver.write(runs).await.expect("a write");
            writing += cpu_seconds() - start;
        }
        let start = cpu_seconds();
        driver.sync().await.expect("a sync");
        writing += cpu_seconds() - start;
        // A spread cycle takes half the time between two.
        let start = cpu_seconds();
        for _ in 0..10 {
            driver.merge();
            clock.advance(Duration::from_secs(load.every) / 20);
        }
        merging += cpu_seconds() - start;
        let start = cpu_seconds();
        let took = query(&driver, load, finest, from + load.slots).await;
        reading += cpu_seconds() - start;
        latency += took;
        slowest = slowest.max(took);
        clock.advance(Duration::from_secs(load.every) / 2);
        let points = f64::from(load.metrics) * f64::from((flush + 1) * load.slots);
        let bytes: u64 = driver.files().iter().map(|file| file.bytes).sum();
        of_disk += if flush >= load.flushes / 2 { bytes as f64 / points } else { 0.0 };
        files += driver.status().most_files as f64;
        if std::env::var("VERBOSE").is_ok() {
            let tables = bytes_of_tables(&driver);
            let tables: Vec<f64> = tables.values().map(|bytes| (*bytes as f64 / points * 1e3).round() / 1e3).collect();
            println!(
                "{flush}: {:.3} B/pt, {tables:?}, {} files, {took:.1} ms",
                bytes as f64 / points,
                driver.status().most_files
            );
        }
    }
    if let Some(reads) = std::env::var("READS").ok().and_then(|reads| reads.parse::<u32>().ok()) {
        // What a busy store answers with: the window is not settled.
        let (start, mut wall) = (cpu_seconds(), 0.0);
        for _ in 0..reads {
            wall += query(&driver, load, finest, first + load.flushes * load.slots).await;
        }
        let cpu = (cpu_seconds() - start) * 1e3 / f64::from(reads);
        println!(
            "{} files; 1000 x 1440: {:.2} ms, {cpu:.2} ms of CPU",
            driver.status().most_files,
            wall / f64::from(reads)
        );
    }
    let points = f64::from(load.metrics) * f64::from(load.flushes * load.slots);
    let flushes = f64::from(load.flushes);
    let status = driver.status();
    let before = cpu_seconds();
    driver.settle().expect("a merge");
    let settling = cpu_seconds() - before;
    let settled: u64 = driver.files().iter().map(|file| file.bytes).sum();
    if std::env::var("VERBOSE").is_ok() {
        for (table, bytes) in bytes_of_tables(&driver) {
            println!("{table} settled: {:.3} B/pt", bytes as f64 / points);
        }
    }
    println!(
        "{:>6}, {} stages: {:.3} B/point in the second half, {:.3} settled; CPU ns/point: {:.0} written, {:.0} merged, {:.0} settled; \
         {:.1} files, {} merges of {:.1} MiB in all; 1000 x 1440: {:.1} ms, at most {slowest:.1}, {:.1} ms of CPU",
        load.name,
        load.coarse.len() + 1,
        of_disk / (flushes / 2.0),
        settled as f64 / points,
        writing * 1e9 / points,
        merging * 1e9 / points,
        settling * 1e9 / points,
        files / flushes,
        status.merges,
        status.merged_bytes as f64 / f64::from(1 << 20),
        latency / flushes,
        reading * 1e3 / flushes,
    );
}

fn bytes_of_tables(driver: &EmbeddedDriver) -> BTreeMap<String, u64> {
    let mut tables = BTreeMap::new();
    for file in driver.files() {
        let table = file.path.components().next().expect("a folder").as_os_str().to_string_lossy().into_owned();
        *tables.entry(table).or_default() += file.bytes;
    }
    tables
}

/// The runs of one flush of a metric.
fn runs(load: &Load, random: &SeededRandom, finest: Table, from: u32, metric: u32, levels: &mut [f64]) -> Vec<Run> {
    let values: Vec<f64> = (0..load.slots).map(|_| next(random, metric, &mut levels[metric as usize])).collect();
    let run = |table, first_slot, values, counts| Run {
        metric: MetricId(metric),
        name: String::new(),
        table,
        first_slot,
        values,
        counts,
        aggregation: Aggregation::Average,
    };
    let mut runs = Vec::new();
    for &(under, kept) in load.coarse {
        let table =
            Table { stage: Stage::new(MINUTES.0 * under, kept).expect("a stage"), aggregated: true, rollup: None };
        let sums: Vec<f64> = values.chunks(under as usize).map(|slots| slots.iter().sum()).collect();
        let counts = vec![under; sums.len()];
        runs.push(run(table, from / under, sums, counts));
    }
    runs.push(run(finest, from, values, vec![]));
    runs
}

/// Milliseconds of a fetch of 1,000 series.
async fn query(driver: &EmbeddedDriver, load: &Load, table: Table, end_slot: u32) -> f64 {
    let fetches: Vec<Fetch> = (0..1000)
        .map(|i| Fetch {
            metric: MetricId(i * (load.metrics / 1000)),
            name: String::new(),
            table,
            first_slot: end_slot - 1440,
            end_slot,
            aggregation: Aggregation::Average,
        })
        .collect();
    let start = Instant::now();
    let cells = driver.fetch(fetches).await.expect("a fetch");
    assert!(cells.iter().all(|cells| cells.values.len() == 1440));
    start.elapsed().as_secs_f64() * 1e3
}

/// Steps of calm and lively metrics, as the benchmarks send them: hundredths of gauges, growth of counters.
const GAUGES: [f64; 8] = [0.0, 2.0, 5.0, 25.0, 50.0, 100.0, 250.0, 500.0];
const COUNTERS: [f64; 8] = [0.0, 1.0, 6.0, 60.0, 100.0, 600.0, 2000.0, 10_000.0];

/// Half gauges of two decimals, half counters.
fn next(random: &SeededRandom, metric: u32, level: &mut f64) -> f64 {
    let temper = (metric / 2 % 8) as usize;
    if metric.is_multiple_of(2) {
        *level = (*level + ((2.0 * random.unit() - 1.0) * GAUGES[temper]).round()).abs();
        *level / 100.0
    } else {
        *level += ((0.5 + random.unit()) * COUNTERS[temper]).round();
        *level
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
