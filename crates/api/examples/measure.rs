//! Measures the HTTP front alone: a thousand series of 1,440 points from memory in every format, and finds with many
//! results. The client runs on the same machine and discards the bytes.
//!
//!     cargo run --release -p api --example measure

use std::{
    future::Future,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::Arc,
    time::Instant,
};

use api::{Api, ApiOptions, BrowserRules, Limits, Paths};
use metadata::Registry;
use metric::{Aggregation, Policy, Timestamp};
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};

const NOW: Timestamp = 1_700_000_000;
const SERIES: usize = 1000;
const POINTS: i64 = 1440;

/// A third counters, a third gauges of two decimals, a third floats of all digits; one value in fifty absent.
struct Synthetic;

fn value(metric: u32, slot: i64) -> f64 {
    let mix = (u64::from(metric) << 32 | slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = mix ^ (mix >> 29);
    match (noise % 50, metric % 3) {
        (0, _) => f64::NAN,
        (_, 0) => (slot * 17 + i64::from(metric)) as f64,
        (_, 1) => (noise % 10_000) as f64 / 100.0,
        _ => noise as f64 / 1e15,
    }
}

impl SeriesSource for Synthetic {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let read = |request: &SeriesRequest| {
            let (from, until) = (request.window.from() / 60, request.window.until() / 60);
            let values = (from + 1..until + 1).map(|slot| value(request.metric.0, slot)).collect();
            Some(FetchedSeries {
                start: (from + 1) * 60,
                step: 60,
                values,
                aggregation: Aggregation::Average,
                ..FetchedSeries::default()
            })
        };
        Box::pin(async move { Ok(requests.iter().map(read).collect()) })
    }
}

fn ask(address: SocketAddr, path: &str, header: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).expect("an answer") {
            0 => return bytes,
            read => {
                assert!(
                    bytes > 0 || buffer.starts_with(b"HTTP/1.1 200"),
                    "{}",
                    String::from_utf8_lossy(&buffer[..read])
                );
                bytes += read;
            }
        }
    }
}

/// One encoder for a whole answer, as a plain use of flate2 would compress it: time without making or sending the text.
fn measure_one_encoder(address: SocketAddr, path: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("an answer");
    let mut millis = Vec::new();
    let mut bytes = 0;
    for _ in 0..15 {
        let begun = Instant::now();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&text).expect("memory takes bytes");
        bytes = encoder.finish().expect("memory takes bytes").len();
        millis.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    report("  one gzip encoder over that text", millis, bytes);
}

fn report(what: &str, mut millis: Vec<f64>, bytes: usize) {
    millis.sort_by(f64::total_cmp);
    println!("{what:<44} p50 {:7.1} ms   best {:7.1} ms   {bytes:>10} bytes", millis[millis.len() / 2], millis[0]);
}

fn measure(address: SocketAddr, what: &str, path: &str, header: &str) {
    let mut millis = Vec::new();
    let mut bytes = 0;
    for _ in 0..15 {
        let begun = Instant::now();
        bytes = ask(address, path, header);
        millis.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    report(what, millis, bytes);
}

fn main() {
    let registry = Arc::new(Registry::new());
    let policy = registry.intern(&Policy::default());
    let create = |name: &str| {
        let hash = registry.hash(name.as_bytes());
        registry.write().create(hash, name, policy, 0);
    };
    (0..SERIES).for_each(|i| create(&format!("load.host{i:04}.value")));
    (0..80_000).for_each(|i| create(&format!("servers.dc{}.rack{:02}.host{:04}.cpu.user", i % 4, i % 100, i / 4)));
    while registry.compact() {}
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("a port");
    let api = Api::new(ApiOptions {
        finder: registry.clone(),
        registry,
        series: Arc::new(Synthetic),
        events: Arc::new(store::MemoryDriver::new()),
        limits: Limits::default(),
        doorkeeper: Arc::new(()),
        browsers: BrowserRules::default(),
        clock: Arc::new(host::ManualClock::at(NOW)),
        time_zone: jiff::tz::TimeZone::UTC,
        about: Vec::new(),
        extension: Arc::new(()),
        observer: Arc::new(()),
    });
    runtime.spawn(api.serve(listener, Paths::All, std::future::pending()));

    let from = NOW - POINTS * 60;
    for format in ["json", "csv", "raw", "pickle", "msgpack", "rickshaw", "carbonapi_v2_pb", "carbonapi_v3_pb"] {
        let path = format!("/render?target=load.*.value&from={from}&until={NOW}&format={format}");
        measure(address, &format!("{SERIES} series of {POINTS} points as {format}"), &path, "");
    }
    let path = format!("/render?target=load.*.value&from={from}&until={NOW}&format=json");
    measure(address, "the same as json, compressed", &path, "Accept-Encoding: gzip\r\n");
    measure_one_encoder(address, &path);
    measure(address, "the same as json, 300 points a series", &format!("{path}&maxDataPoints=300"), "");
    let path = format!("/render?target=sumSeries(load.*.value)&from={from}&until={NOW}&format=json");
    measure(address, "their sum", &path, "");
    let path = format!("/render?target=load.host0001.value&from={}&until={NOW}&format=json", NOW - 3600);
    measure(address, "one series of 60 points", &path, "");
    for format in ["treejson", "completer", "json", "pickle", "msgpack"] {
        let path = format!("/metrics/find?query=servers.*.*.*.cpu.user&format={format}");
        measure(address, &format!("find of 80,000 names as {format}"), &path, "");
    }
    measure(address, "expand to 80,000 names", "/metrics/expand?query=servers.*.*.*.cpu.user", "");
    measure(address, "find of 4 branches", "/metrics/find?query=servers.*", "");
    measure(address, "index.json of 81,000 names", "/metrics/index.json", "");
    measure(address, "version", "/version", "");
}
