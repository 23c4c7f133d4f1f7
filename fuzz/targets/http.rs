//! Graphite over HTTP: for any request, the server soon answers or closes the connection, and continues to serve.
#![no_main]

use std::{
    future::Future,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use api::{Api, ApiOptions, BrowserRules, Limits, Paths};
use libfuzzer_sys::fuzz_target;
use metadata::Registry;
use metric::{Aggregation, Policy};
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};

const NOW: i64 = 1_700_000_000;

/// A value a minute, with gaps; nothing for every seventh metric.
struct Synthetic;

impl SeriesSource for Synthetic {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let series = requests.into_iter().map(|request| {
            let (from, until) = (request.window.from().max(NOW - 86_400), request.window.until().min(NOW));
            let start = from - from.rem_euclid(60) + 60;
            if request.metric.0 % 7 == 6 || until < start {
                return None;
            }
            let value = |i| if i % 5 == 3 { f64::NAN } else { i as f64 * 1.25 };
            let values = (0..(until - start) / 60 + 1).map(value).collect();
            Some(FetchedSeries { start, step: 60, values, aggregation: Aggregation::Average, ..FetchedSeries::default() })
        });
        let series = series.collect();
        Box::pin(async move { Ok(series) })
    }
}

/// The server of this process, which lives as long as it does.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Box::leak(Box::new(runtime.expect("a runtime")));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let registry = Arc::new(Registry::new());
        let policy = registry.intern(&Policy::default());
        for name in
            ["a.b", "a.c", "servers.a.cpu.user", "servers.a.cpu.system", "servers.b.cpu.user", "n;a=b", "\u{e9}.b"]
        {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
        }
        let limits = Limits {
            idle: Duration::from_secs(2),
            query: Duration::from_secs(4),
            points: 100_000,
            series: 100,
            response_bytes: 16 << 20,
            ..Limits::default()
        };
        let api = Api::new(ApiOptions {
            finder: registry.clone(),
            registry,
            series: Arc::new(Synthetic),
            events: Arc::new(store::MemoryDriver::new()),
            limits,
            doorkeeper: Arc::new(()),
            // More of the code is reached.
            browsers: BrowserRules { jsonp: true, ..BrowserRules::default() },
            clock: std::sync::Arc::new(host::ManualClock::at(NOW)),
            time_zone: jiff::tz::TimeZone::UTC,
            about: Vec::new(),
            extension: Arc::new(()),
            observer: Arc::new(()),
        });
        runtime.spawn(api.serve(listener, Paths::All, std::future::pending()));
        address
    })
}

fn answer(request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(8))).expect("a timeout");
    // The server may hang up on garbage while we are still sending it.
    let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "no end of the answer: {error}");
    }
    answer
}

fuzz_target!(|request: &[u8]| {
    let answer = answer(request);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
    // 500 is a bug of the server; bad requests get another status.
    assert!(!answer.starts_with(b"HTTP/1.1 500"), "{}", answer.escape_ascii());
});
