//! One client does not take the memory of queries and answers from the others.

mod support;

use std::{
    future::Future,
    io::Write,
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Doorkeeper, Scope, SenderLimits, Viewer};
use hyper::HeaderMap;
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use support::{Answer, Metric, NOW, Server, Setup, receive, send};

const MIB: usize = 1 << 20;

/// A day of points for every series, one a second.
struct Seconds;

impl SeriesSource for Seconds {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let values: Vec<f64> = (0..86_400).map(|i| f64::from(i * 7919 % 10_007)).collect();
        let series = FetchedSeries { start: NOW - 86_400, step: 1, values, ..FetchedSeries::default() };
        Box::pin(async move { Ok(vec![Some(series); requests.len()]) })
    }
}

/// Clients are who they say. "small" has little memory.
struct Names;

impl Doorkeeper for Names {
    fn viewer(&self, headers: &HeaderMap, _: SocketAddr) -> Option<Arc<Viewer>> {
        let name = headers.get("x-client").map_or("", |name| name.to_str().unwrap()).to_owned();
        let query_memory = (name == "small").then_some(MIB);
        let limits = SenderLimits { query_memory, ..SenderLimits::default() };
        Some(Arc::new(Viewer { name, scopes: Scope::ALL.to_vec(), names: None, writes: None, limits }))
    }
}

fn server(change: impl FnOnce(&mut api::Limits)) -> Server {
    let metric = |i: usize| Metric {
        name: format!("many.m{i:04}"),
        step: 1,
        kept: 86_400,
        coarser: None,
        values: Default::default(),
    };
    let mut setup = Setup::new((0..60).map(metric).collect());
    setup.series = Some(Arc::new(Seconds));
    setup.doorkeeper = Arc::new(Names);
    change(&mut setup.limits);
    setup.start()
}

/// A body of 8 MiB that lacks its last KiB.
fn body_without_end(server: &Server, client: &str) -> TcpStream {
    let mut stream = server.connect();
    let length = 8 * MIB;
    let head = format!("POST /render HTTP/1.1\r\nHost: t\r\nX-Client: {client}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(150))).unwrap();
    // A server that does not take more of it is fine.
    _ = stream.write_all(&vec![b'a'; length - 1024]);
    stream
}

fn get(server: &Server, client: &str, path: &str) -> Answer {
    server.request("GET", path, &[("X-Client", client)], b"")
}

/// 41 MiB of memory, and a small answer.
const LARGE: &str = "/render?from=-1d&format=json&target=maxSeries(many.*)&maxDataPoints=100";

/// An answer of 40 MiB.
const ANSWER: &str = "/render?from=-1d&format=json&target=many.*";

#[test]
fn bodies_without_an_end_do_not_hold_the_memory_of_others() {
    // Of one client, of the client that asks, and of many.
    for senders in [["bad"; 12], ["good"; 12], ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]] {
        let server = server(|limits| limits.memory = 64 * MIB);
        let mut bodies = senders.map(|client| body_without_end(&server, client));
        for _ in 0..3 {
            let begun = Instant::now();
            let answer = get(&server, "good", LARGE);
            assert_eq!(answer.status, 200, "{senders:?}: {}", answer.text());
            assert!(begun.elapsed() < Duration::from_millis(2500), "{senders:?}: {:?}", begun.elapsed());
        }
        if senders[0] == "a" {
            let closed = bodies.iter_mut().find_map(|body| {
                body.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                support::try_receive(body, "POST")
            });
            let closed = closed.expect("one gave way");
            assert_eq!((closed.status, closed.header("retry-after")), (503, Some("1")));
            assert!(closed.text().contains("while the body was coming"), "{}", closed.text());
        }
    }
}

#[test]
fn a_body_gets_the_memory_of_a_client_with_more_of_them() {
    let server = server(|limits| limits.memory = 64 * MIB);
    let _bodies = ["a", "b", "c", "d", "a", "b", "c", "d"].map(|client| body_without_end(&server, client));
    std::thread::sleep(Duration::from_millis(600));
    let begun = Instant::now();
    let body = format!("format=json&target=many.m0001&from=-1h&x={}", "x".repeat(MIB));
    let answer = server.request("POST", "/render", &[("X-Client", "good")], body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn bodies_count_against_the_memory_of_their_token() {
    let server = server(|_| {});
    let body = format!("format=json&target=many.m0001&from=-1min&x={}", "x".repeat(MIB));
    let answer = server.request("POST", "/render", &[("X-Client", "small")], body.as_bytes());
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("query_memory of the token"), "{}", answer.text());
    assert_eq!(server.request("POST", "/render", &[("X-Client", "other")], body.as_bytes()).status, 200);
}

#[test]
fn slow_readers_of_one_client_leave_memory_for_the_answers_of_others() {
    let server = server(|limits| {
        limits.answer_memory = 160 * MIB;
        limits.memory_wait = Duration::from_millis(500);
    });
    let slow = [(); 3].map(|()| {
        let mut stream = server.connect();
        send(&mut stream, "GET", ANSWER, &[("X-Client", "bad")], b"");
        std::thread::sleep(Duration::from_secs(1));
        stream
    });
    let answer = get(&server, "good", ANSWER);
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(slow);
}

#[test]
fn one_client_may_have_the_memory_for_one_large_answer() {
    let server = server(|limits| limits.answer_memory = 48 * MIB);
    let mut stream = server.connect();
    send(&mut stream, "GET", ANSWER, &[("X-Client", "one")], b"");
    assert_eq!(receive(&mut stream, "GET").status, 200);
}
