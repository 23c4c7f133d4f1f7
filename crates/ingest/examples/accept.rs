//! What a point costs from decoded bytes to memory, without sockets or a store, and what it costs while the store is
//! down, memory is full, and points spill into the journal:
//! `cargo run --release -p ingest --example accept [NAMES] [POINTS]`.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use carbon::LineDecoder;
use ingest::{BATCH_POINTS, Ingest, IngestOptions, Protocol};
use metadata::Registry;
use store::{MemoryDriver, ScriptedDriver, Store};

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().expect("a number"));
    let names = args.next().unwrap_or(100_000);
    let points = args.next().unwrap_or(30);
    println!("the store is up:");
    measure(names, points, Arc::new(MemoryDriver::new()).into(), IngestOptions::default().memory_limit_bytes);
    println!("the store is down, memory is full:");
    let down = Arc::new(ScriptedDriver::default());
    down.is_down.store(true, SeqCst);
    measure(names, points, down.store(), 8 * names as u64 / 2);
}

fn measure(names: usize, points: usize, store: Store, memory_limit_bytes: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let round = |i: usize| {
        let mut text = Vec::new();
        for n in 0..names {
            let (host, metric) = (n / 50, n % 50);
            let value = (n * 7 + i * 13) % 1000;
            let time = now - 60 * (points - i) as i64;
            text.extend_from_slice(
                format!("servers.dc{}.host{host:05}.cpu.{metric:02}.user {value}.25 {time}\n", host % 4).as_bytes(),
            );
        }
        text
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let options =
            IngestOptions { journal_dir: dir.path().to_owned(), memory_limit_bytes, ..IngestOptions::default() };
        let registry = Arc::new(Registry::new());
        let ingest = Ingest::open(options, store, registry, carbon::Rules::default()).await.unwrap();
        let mut batch = ingest.batch(Protocol::LineTcp);
        let (mut decode, mut accept) = (0.0, 0.0);
        for i in 0..points {
            let text = round(i);
            let mut decoder = LineDecoder::new();
            let (mut decoding, mut accepting) = (0.0, 0.0);
            for chunk in text.chunks(BATCH_POINTS * 52) {
                // Chunks end anywhere; what a decoder leaves would be kept by a receiver, here it is lost.
                let began = Instant::now();
                decoder.decode(chunk, now, &mut batch);
                let decoded = Instant::now();
                ingest.accept(&mut batch).await;
                decoding += (decoded - began).as_secs_f64();
                accepting += decoded.elapsed().as_secs_f64();
            }
            if i == 0 {
                println!("new names: {:.0} ns decode, {:.0} ns accept", per(decoding, names), per(accepting, names));
            } else {
                decode += decoding;
                accept += accepting;
            }
        }
        let known = names * (points - 1);
        println!("known names: {:.1} ns decode, {:.1} ns accept a point", per(decode, known), per(accept, known));
        println!("{} points are spilled", ingest.counters().parked_points);
    });
}

fn per(seconds: f64, points: usize) -> f64 {
    seconds * 1e9 / points as f64
}
