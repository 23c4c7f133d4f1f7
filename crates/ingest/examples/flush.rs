//! What a point of three stages costs from memory into the embedded store, and what a metric costs in memory:
//! `cargo run --release -p ingest --example flush [NAMES] [ROUNDS]`.
//!
//! Each round is half an hour of minutes of every metric, and a flush. After half of the rounds the pipeline is
//! opened again, so that it has to find out what is stored.

use std::{
    fs,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use carbon::{RuleFiles, Rules, Sink as _};
use ingest::{BATCH_POINTS, Ingest, IngestOptions, Protocol};
use metadata::Registry;
use store::NameStore;
use store_embedded::{EmbeddedDriver, EmbeddedOptions};

const ROUND: usize = 30;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().expect("a number"));
    let names = args.next().unwrap_or(20_000);
    let rounds = args.next().unwrap_or(12);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let first = now - 60 * (rounds * ROUND) as i64;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store =
        Arc::new(EmbeddedDriver::open(&dir.path().join("store"), EmbeddedOptions::default()).expect("a new store"));
    let open = || {
        let options = IngestOptions { journal_dir: dir.path().join("journal"), ..IngestOptions::default() };
        let schemas = "[all]\npattern = .*\nretentions = 60s:1d,300s:7d,3600s:1y\n";
        let rules = Rules::parse(RuleFiles { schemas: Some(schemas), ..RuleFiles::default() }).expect("good rules").0;
        let registry = Arc::new(Registry::new());
        runtime.block_on(async {
            store.scan_metrics(&mut |records| _ = registry.restore(records)).await.unwrap();
            Ingest::open(options, store.clone(), registry, rules).await.unwrap()
        })
    };
    let mut ingest = open();
    for round in 0..rounds {
        if round == rounds / 2 {
            runtime.block_on(ingest.close()).unwrap();
            ingest = open();
        }
        let mut batch = ingest.batch(Protocol::LineTcp);
        for i in 0..ROUND {
            let time = first + 60 * (round * ROUND + i) as i64;
            for n in 0..names {
                let name = format!("servers.dc{}.host{:05}.cpu.{:02}.user", n / 50 % 4, n / 50, n % 50);
                batch.point(name.as_bytes(), time, ((n * 7 + i * 13) % 1000) as f64 + 0.25);
                if batch.len() == BATCH_POINTS {
                    runtime.block_on(ingest.accept(&mut batch));
                }
            }
        }
        runtime.block_on(ingest.accept(&mut batch));
        let before = cpu_seconds();
        runtime.block_on(ingest.flush()).unwrap();
        let nanoseconds = (cpu_seconds() - before) * 1e9 / (names * ROUND) as f64;
        println!("round {round}: {nanoseconds:.0} ns of CPU a point flushed; {} MB resident", resident() >> 20);
    }
}

/// CPU time of the process, all threads, in seconds.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let after = stat.rsplit(')').next().expect("a name in parentheses");
    let fields: Vec<f64> =
        after.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().expect("ticks")).collect();
    fields.iter().sum::<f64>() / 100.0
}

/// Resident bytes of the process.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux tells");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}
