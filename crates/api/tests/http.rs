//! The server as clients use and abuse it.

mod support;

use std::{
    future::Future,
    io::{Read, Write},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use api::{Access, Answer as Promise, Body, Extension, ExtensionRequest, Limits, Response};
use host::{Random, SeededRandom};
use hyper::{Method, Uri};
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use support::{Metric, NOW, Setup, decode, receive, send, try_receive};

/// `count` metrics named `many.m0000`, …, each with a value a minute for the last hour.
fn many(count: usize) -> Vec<Metric> {
    let first = NOW - NOW % 60;
    let values = (0..60).map(|i| (first - i * 60, i as f64)).collect();
    let metric = Metric { name: String::new(), step: 60, kept: 1440, coarser: None, values };
    (0..count).map(|i| Metric { name: format!("many.m{i:04}"), ..metric.clone() }).collect()
}

/// A source whose reads never end. It counts the dropped ones.
#[derive(Default)]
struct Never {
    begun: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl SeriesSource for Never {
    fn fetch(
        self: Arc<Self>,
        _: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let dropped = Dropped(self.dropped.clone());
        Box::pin(async move {
            let _dropped = dropped;
            std::future::pending().await
        })
    }
}

/// Waits a few seconds until `holds` is true.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_large_answer_comes_in_chunks_and_is_equal_when_compressed() {
    let server = Setup::new(many(800)).start();
    let path = "/render?target=many.*&from=-1h&format=json";
    let plain = server.get(path);
    assert_eq!(plain.status, 200);
    assert_eq!(plain.header("transfer-encoding"), Some("chunked"));
    let series: Vec<serde_json::Value> = serde_json::from_slice(&plain.body).unwrap();
    assert_eq!(series.len(), 800);
    assert_eq!(series[799]["target"], "many.m0799");
    assert_eq!(series[799]["datapoints"].as_array().unwrap().len(), 60);
    let packed = server.request("GET", path, &[("Accept-Encoding", "gzip")], b"");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain.body);
    for format in ["pickle", "msgpack", "csv", "raw", "rickshaw"] {
        let answer = server.get(&format!("/render?target=many.*&from=-1h&format={format}"));
        let count = match format {
            "pickle" => decode::pickle(&answer.body).as_array().unwrap().len(),
            "msgpack" => decode::msgpack(&answer.body).as_array().unwrap().len(),
            "csv" => answer.text().lines().count() / 60,
            "raw" => answer.text().lines().count(),
            _ => serde_json::from_slice::<Vec<serde_json::Value>>(&answer.body).unwrap().len(),
        };
        assert_eq!(count, 800, "{format}");
    }
}

#[test]
fn small_answers_are_compressed_beyond_200_bytes() {
    let server = Setup::new(many(20)).start();
    let gzip = [("Accept-Encoding", "gzip")];
    let small = server.request("GET", "/metrics/find?query=many", &gzip, b"");
    assert_eq!(small.header("content-encoding"), None);
    let large = server.request("GET", "/metrics/find?query=many.*", &gzip, b"");
    assert_eq!(large.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&large.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, server.get("/metrics/find?query=many.*").body);
}

#[test]
fn one_connection_serves_many_requests() {
    let server = Setup::new(many(3)).start();
    let mut stream = server.connect();
    for _ in 0..3 {
        send(&mut stream, "GET", "/version", &[], b"");
        assert_eq!(receive(&mut stream, "GET").text(), "1.1.10\n");
        send(&mut stream, "POST", "/render", &[], b"target=many.*&format=raw&from=-2min");
        assert_eq!(receive(&mut stream, "POST").text().lines().count(), 3);
        send(&mut stream, "HEAD", "/metrics/find?query=many.*", &[], b"");
        assert_eq!(receive(&mut stream, "HEAD").status, 200);
        send(&mut stream, "GET", "/render?format=pdf&target=a", &[], b"");
        assert_eq!(receive(&mut stream, "GET").status, 400);
    }
}

#[test]
fn an_answer_has_headers_for_caches() {
    let server = Setup::new(many(1)).start();
    let kept = server.get("/render?target=many.*&format=raw&cacheTimeout=60");
    assert_eq!(kept.header("expires"), Some("Tue, 14 Nov 2023 22:14:20 GMT"));
    let not_kept = server.get("/render?target=many.*&format=raw&noCache=1");
    assert_eq!(not_kept.header("expires"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
    let found = server.get("/metrics/find?query=many.*");
    assert_eq!((found.header("pragma"), found.header("cache-control")), (Some("no-cache"), Some("no-cache")));
}

#[test]
fn an_unknown_path_is_answered_with_the_known_ones() {
    let server = Setup::new(many(1)).start();
    let answer = server.get("/dashboard/");
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("/dashboard/") && answer.text().contains("/metrics/find"), "{}", answer.text());
    let answer = server.request("DELETE", "/render", &[], b"");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, POST")));
    assert_eq!(server.request("POST", "/functions", &[], b"a=b").status, 405);
    let answer = server.get("/render?target=many.*&format=pdf");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("format=svg"), "{}", answer.text());
    assert_eq!(server.get("/functions/noSuchFunction").text(), "{\"error\": \"Function not found: noSuchFunction\"}");
    assert_eq!(server.get("/functions/noSuchFunction").status, 404);
}

#[test]
fn functions_are_described() {
    let server = Setup::new(many(1)).start();
    let get = |path: &str| -> serde_json::Value { serde_json::from_str(server.get(path).text()).unwrap() };
    let all = get("/functions");
    assert_eq!(all["sumSeries"]["group"], "Combine");
    assert_eq!(get("/functions/sumSeries"), all["sumSeries"]);
    assert_eq!(get("/functions/sumSeries?pretty=1"), all["sumSeries"]);
    assert_eq!(get("/functions?grouped=true")["Combine"]["sumSeries"], all["sumSeries"]);
    assert!(get("/functions?group=Combine")["scale"].is_null());
}

#[test]
fn the_start_page_counts_metrics_and_quotes_markup() {
    let server = Setup::new(many(1234)).start();
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("1,234"));
    assert!(page.text().contains("lines to &lt;here&gt;:2003"));
    assert!(!page.text().contains("{{"));
}

#[test]
fn a_path_that_is_leaf_and_branch_is_two_nodes() {
    let mut metrics = many(2);
    metrics[0].name = "both".to_owned();
    metrics[1].name = "both.child".to_owned();
    let server = Setup::new(metrics).start();
    let completer = server.get("/metrics/find?query=both&format=completer");
    let expected = r#"{"metrics": [{"path": "both.", "name": "both", "is_leaf": "0"}, {"path": "both", "name": "both", "is_leaf": "1"}]}"#;
    assert_eq!(completer.text(), expected);
    let tree = server.get("/metrics/find?query=both");
    let expected = r#"[{"text": "both", "id": "both", "allowChildren": 1, "expandable": 1, "leaf": 0}]"#;
    assert_eq!(tree.text(), expected);
    let leaves = server.get("/metrics/find?query=both&format=completer&leavesOnly=1");
    assert_eq!(leaves.text(), r#"{"metrics": [{"path": "both", "name": "both", "is_leaf": "1"}]}"#);
    let pickle = decode::pickle(&server.get("/metrics/find?query=both&format=pickle").body);
    assert_eq!(pickle.as_array().unwrap().len(), 2);
}

// Requests of a graphite-web in front of this server, which skips this server for a minute after an error.

#[test]
fn a_front_end_gets_its_path_expressions_back_and_always_200() {
    let server = Setup::new(many(3)).start();
    let ask = |target: &str| {
        let target: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        let path = format!(
            "/render/?format=pickle&local=1&noCache=1&from={}&until={NOW}&target={target}&target=many.m0001&now={NOW}",
            NOW - 120
        );
        let answer = server.get(&path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/pickle")), "{path}");
        decode::pickle(&answer.body)
    };
    let paths = |answer: serde_json::Value| -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        answer
            .as_array()
            .unwrap()
            .iter()
            .map(|series| (text(&series["name"]), text(&series["pathExpression"])))
            .collect()
    };
    let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    let alone = pair("many.m0001", "many.m0001");
    // A series that two targets match comes twice, each time with its own path expression.
    let twice = paths(ask("many.m000[01]"));
    let glob = "many.m000[01]";
    assert_eq!(twice, [pair("many.m0000", glob), pair("many.m0001", glob), alone.clone()]);
    // Targets that are not metrics, patterns or calls match nothing.
    for target in
        ["no.such", "many.[", "{{{", "", "a b", "seriesByTag('a=b')", "seriesByTag('", "(", "x)y", "many.m000[01", "\\"]
    {
        assert_eq!(paths(ask(target)), std::slice::from_ref(&alone), "{target}");
    }
    for query in ["no.such", "many.[", "{{{", "(", "a b", &"{a,b}".repeat(40)] {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = server.get(&format!("/metrics/find/?local=1&format=pickle&query={query}"));
        assert_eq!((answer.status, decode::pickle(&answer.body)), (200, serde_json::json!([])), "{query}");
    }
}

#[test]
fn a_front_end_gets_an_empty_list_beyond_a_limit() {
    let mut setup = Setup::new(many(30));
    setup.limits = Limits { series: 10, find_results: 10, ..Limits::default() };
    let server = setup.start();
    let answer = server.get("/render?target=many.*&format=pickle&local=1&from=-5min");
    assert_eq!((answer.status, decode::pickle(&answer.body)), (200, serde_json::json!([])));
    let answer = server.get("/metrics/find?query=many.*&format=pickle&local=1");
    assert_eq!((answer.status, decode::pickle(&answer.body)), (200, serde_json::json!([])));
    assert_eq!(*server.notes.withheld.lock().unwrap(), ["render", "find"]);
}

// Limits.

/// At each limit a request succeeds; one unit beyond, the answer is a 4xx that names the setting.
#[test]
fn every_limit_is_a_4xx_that_names_its_setting() {
    let check = |limits: Limits, path: &str, status: u16, words: &str| {
        let mut setup = Setup::new(many(30));
        setup.limits = limits;
        let server = setup.start();
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains(words), "{}", answer.text());
    };
    let limits = Limits::default;
    let hour = "/render?target=many.*&from=-1h&format=json";
    check(Limits { series: 29, ..limits() }, hour, 422, "query.max_series");
    check(Limits { series: 30, ..limits() }, hour, 200, "many.m0029");
    check(Limits { points: 30 * 60 - 1, ..limits() }, hour, 422, "query.max_points");
    check(Limits { points: 30 * 60, ..limits() }, hour, 200, "many.m0029");
    check(Limits { response_bytes: 10_000, ..limits() }, hour, 422, "query.max_response_bytes");
    check(Limits { target_bytes: 5, ..limits() }, hour, 422, "query.max_target_bytes");
    check(Limits { target_bytes: 6, ..limits() }, hour, 200, "many.m0029");
    check(Limits { find_results: 29, ..limits() }, "/metrics/find?query=many.*", 422, "query.max_find_results");
    check(Limits { find_results: 30, ..limits() }, "/metrics/find?query=many.*", 200, "m0029");
    check(Limits { find_results: 29, ..limits() }, "/metrics/expand?query=many.*", 422, "query.max_find_results");
    check(Limits { target_bytes: 5, ..limits() }, "/metrics/find?query=many.*", 422, "query.max_target_bytes");
    check(Limits { response_bytes: 100, ..limits() }, "/metrics/index.json", 422, "query.max_response_bytes");
}

#[test]
fn a_render_tries_coarser_stages_before_the_rejection() {
    let mut metrics = many(10);
    metrics.iter_mut().for_each(|metric| metric.coarser = Some((600, 1440)));
    let check = |points: usize, status: u16, steps: &str| {
        let mut setup = Setup::new(metrics.clone());
        setup.limits.points = points;
        let server = setup.start();
        let answer = server.get("/render?target=many.*&from=-1h&format=raw");
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(steps), "{}", answer.text());
    };
    check(600, 200, ",60|");
    check(599, 200, ",600|");
    check(60, 200, ",600|");
    check(59, 422, "even at the coarsest stage");
}

#[test]
fn a_body_beyond_its_limit_is_413() {
    let mut setup = Setup::new(many(3));
    setup.limits.body_bytes = 100;
    let server = setup.start();
    let body = |bytes: usize| format!("target=many.*&format=raw&x={:x<1$}", "", bytes - 27);
    let ask = |bytes: usize| {
        assert_eq!(body(bytes).len(), bytes);
        server.request("POST", "/render", &[], body(bytes).as_bytes()).status
    };
    assert_eq!(ask(100), 200);
    assert_eq!(ask(101), 413);
    // The same without an announced length.
    let mut stream = server.connect();
    stream.write_all(b"POST /render HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    for _ in 0..11 {
        stream.write_all(b"a\r\nxxxxxxxxxx\r\n").ok();
    }
    assert_eq!(receive(&mut stream, "POST").status, 413);
}

#[test]
fn a_head_beyond_its_limit_is_rejected() {
    let server = Setup::new(many(1)).start();
    let mut stream = server.connect();
    let head = format!("GET /version HTTP/1.1\r\nHost: t\r\nX-Long: {}\r\n\r\n", "x".repeat(400_000));
    stream.write_all(head.as_bytes()).ok();
    let answer = try_receive(&mut stream, "GET");
    // The unread rest of the request may reset the connection before the client reads the answer.
    assert!(answer.is_none_or(|answer| answer.status == 431));
    assert_eq!(server.get("/version").status, 200);
}

#[test]
fn a_slow_query_ends_with_its_timeout() {
    let never = Arc::new(Never::default());
    let mut setup = Setup::new(many(3));
    setup.series = Some(never.clone());
    setup.limits.query = Duration::from_millis(200);
    let server = setup.start();
    let answer = server.get("/render?target=many.*&format=json");
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("query.timeout"), "{}", answer.text());
    eventually("the read is given up", || never.dropped.load(Ordering::SeqCst) == 1);
}

#[test]
fn queries_wait_for_a_turn_and_a_full_queue_is_429() {
    let never = Arc::new(Never::default());
    let mut setup = Setup::new(many(3));
    setup.series = Some(never.clone());
    setup.limits = Limits { concurrent_queries: 2, queued_queries: 1, ..Limits::default() };
    let server = setup.start();
    let ask = || {
        let mut stream = server.connect();
        send(&mut stream, "GET", "/render?target=many.*&format=json", &[], b"");
        stream
    };
    let (first, second) = (ask(), ask());
    eventually("two read", || never.begun.load(Ordering::SeqCst) == 2);
    let mut third = ask();
    // The third waits; either of the two later ones is rejected.
    let mut fourth = ask();
    third.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    fourth.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let answers = [try_receive(&mut third, "GET"), try_receive(&mut fourth, "GET")];
    let refused: Vec<_> = answers.iter().flatten().collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].status, refused[0].header("retry-after")), (429, Some("1")));
    assert!(refused[0].text().contains("http.max_queued_queries"));
    assert_eq!(server.api.activity(), api::Activity { running: 2, waiting: 1 });
    // Requests other than queries do not wait.
    assert_eq!(server.get("/version").status, 200);
    drop((first, second));
    eventually("the third has its turn", || never.begun.load(Ordering::SeqCst) == 3);
}

#[test]
fn a_disconnect_stops_the_query() {
    let never = Arc::new(Never::default());
    let mut setup = Setup::new(many(3));
    setup.series = Some(never.clone());
    let server = setup.start();
    let mut stream = server.connect();
    send(&mut stream, "GET", "/render?target=many.*&format=json", &[], b"");
    eventually("it reads", || never.begun.load(Ordering::SeqCst) == 1);
    assert_eq!(never.dropped.load(Ordering::SeqCst), 0);
    drop(stream);
    eventually("the read is given up", || never.dropped.load(Ordering::SeqCst) == 1);
    eventually("it is counted", || *server.notes.cancelled.lock().unwrap() == ["render"]);
    assert!(server.notes.answered.lock().unwrap().is_empty());
}

/// One day of points for every series, one a second.
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

#[test]
fn a_disconnect_stops_the_evaluation() {
    let mut setup = Setup::new(many(100));
    setup.series = Some(Arc::new(Seconds));
    setup.limits.query = Duration::from_secs(1);
    let server = setup.start();
    let answer = server.get("/render?target=movingMedian(many.*,20000)&from=-1d&format=json");
    assert_eq!(answer.status, 422, "{}", answer.text().len());
    // A stopped server has no running thread. The whole evaluation takes about ten seconds.
    let begun = Instant::now();
    server.stop();
    println!("stopped after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let mut setup = Setup::new(many(2000));
    setup.limits.idle = Duration::from_millis(300);
    setup.limits.concurrent_queries = 1;
    let server = setup.start();
    let mut stream = server.connect();
    // About 15 MB, more than the buffers of the operating system.
    let targets = "target=many.*&".repeat(6);
    send(&mut stream, "POST", "/render", &[], format!("{targets}from=-1h&format=json").as_bytes());
    std::thread::sleep(Duration::from_millis(1500));
    // Its turn is free.
    assert_eq!(server.get("/metrics/find?query=many").status, 200);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the answer was cut");
}

#[test]
fn a_client_that_does_not_send_is_disconnected() {
    let mut setup = Setup::new(many(1));
    setup.limits.idle = Duration::from_millis(200);
    let server = setup.start();
    for begun in ["", "GET / HT", "GET /version HTTP/1.1\r\nHost:"] {
        let mut stream = server.connect();
        stream.write_all(begun.as_bytes()).unwrap();
        let begun_at = Instant::now();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        assert!(begun_at.elapsed() < Duration::from_secs(5), "{begun:?}");
    }
    let mut stream = server.connect();
    stream.write_all(b"POST /render HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    assert_eq!(receive(&mut stream, "POST").status, 408);
}

#[test]
fn garbage_costs_only_its_connection() {
    let server = Setup::new(many(1)).start();
    let random = SeededRandom::new(SeededRandom::test_seed(0x5EED));
    for round in 0..200 {
        let mut stream = server.connect();
        let mut bytes: Vec<u8> = match round % 4 {
            0 => Vec::new(),
            1 => b"GET /render?".to_vec(),
            2 => b"POST /render HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 64\r\n\r\n--x\r\n".to_vec(),
            _ => b"\x80\x02]q\x00.servers.a 1 2\n".to_vec(),
        };
        bytes.extend((0..64).map(|_| random.bits() as u8));
        bytes.extend_from_slice(b"\r\n\r\n");
        stream.write_all(&bytes).ok();
        if let Some(answer) = try_receive(&mut stream, "GET") {
            assert!((400..500).contains(&answer.status) || answer.status == 200, "{}", answer.status);
        }
    }
    // Invalid parameters.
    for query in ["%", "%ff=%fe", "target=%00", "target=%ff%fe&format=json", "&&&===", "from=%F0%9F%98%80&format=json"]
    {
        let status = server.get(&format!("/render?{query}")).status;
        assert!((200..500).contains(&status), "{query}: {status}");
        let status = server.get(&format!("/metrics/find?query=a&{query}")).status;
        assert!((200..500).contains(&status), "{query}: {status}");
    }
    assert_eq!(server.get("/version").status, 200);
}

#[test]
fn hostile_targets_get_an_answer() {
    let server = Setup::new(many(3)).start();
    let deep = 50_000;
    let targets = [
        format!("{}a{}", "scale(".repeat(deep), ",1)".repeat(deep)),
        "{".repeat(deep),
        "many.".to_owned() + &"{a,b}".repeat(200),
        "many.".to_owned() + &"*".repeat(5000) + "x",
        "**.".repeat(500) + "x",
        "a".to_owned() + &"|scale(1)".repeat(20_000),
        "a.".repeat(deep) + "b",
        "many.[z-a]*".to_owned(),
        "many.\0".to_owned(),
        "aliasSub(many.*,'(','x')".to_owned(),
        "movingAverage(many.*,999999999999)".to_owned(),
        "summarize(many.*,'99999999999y')".to_owned(),
        "summarize(many.*,'0s')".to_owned(),
        "timeShift(many.*,'9999999999d')".to_owned(),
        "constantLine(1e999)".to_owned(),
    ];
    for target in targets {
        let begun = Instant::now();
        let encoded: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
        for times in ["from=-1h", "from=0&until=99999999999", "from=-9999y&until=%2B9999y", "from=1%2F1%2F01"] {
            for format in ["json&maxDataPoints=10", "csv&tz=Europe%2FBerlin", "dygraph"] {
                let body = format!("target={encoded}&format={format}&{times}");
                let answer = server.request("POST", "/render", &[], body.as_bytes());
                let status = answer.status;
                assert!(status < 500, "{target:.50} {body:.50}: {status} {}", answer.text());
            }
        }
        let status = server.request("POST", "/metrics/find", &[], format!("query={encoded}").as_bytes()).status;
        assert!(status < 500, "{target:.50}: {status}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{target:.50} took {:?}", begun.elapsed());
    }
}

#[test]
fn connections_beyond_the_limit_wait_for_one_without_a_request() {
    let mut setup = Setup::new(many(1));
    setup.limits.connections = 2;
    let server = setup.start();
    let begin_request = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"POST /render HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\ntarget").unwrap();
    };
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    begin_request(&mut first);
    begin_request(&mut second);
    eventually("both are counted", || server.notes.connections.lock().unwrap().contains(&2));
    send(&mut third, "GET", "/version", &[], b"");
    third.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(try_receive(&mut third, "GET").is_none(), "both have a request under way");
    drop(first);
    third.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(receive(&mut third, "GET").status, 200);
    // The third is idle now, and makes room for the next.
    let mut fourth = server.connect();
    send(&mut fourth, "GET", "/version", &[], b"");
    fourth.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(receive(&mut fourth, "GET").status, 200);
    second.write_all(b"=a1").unwrap();
    assert_eq!(receive(&mut second, "POST").status, 200);
}

#[test]
fn health_checks_do_not_wait_for_room() {
    let mut setup = Setup::new(many(1));
    setup.limits.connections = 2;
    let server = setup.start();
    let mut busy: Vec<_> = (0..5).map(|_| server.connect()).collect();
    let begin = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"POST /render HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\ntarget").unwrap();
    };
    busy.iter_mut().for_each(begin);
    eventually("both are counted", || server.notes.connections.lock().unwrap().contains(&2));
    let begun = Instant::now();
    let mut check = server.connect();
    send(&mut check, "GET", "/healthy", &[], b"");
    check.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // No extension answers here. The reserve is for one answer.
    let answer = receive(&mut check, "GET");
    assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    // Those before it are turned away, or still wait.
    let first = &mut busy[2];
    first.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(receive(first, "POST").status, 503);
}

#[test]
fn halves_of_health_checks_keep_no_health_check_out() {
    let mut setup = Setup::new(many(1));
    setup.limits.connections = 64;
    let server = setup.start();
    let mut busy: Vec<_> = (0..64).map(|_| server.connect()).collect();
    for stream in &mut busy {
        stream.write_all(b"POST /render HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\ntarget").unwrap();
    }
    eventually("all are counted", || server.notes.connections.lock().unwrap().contains(&64));
    let mut halves: Vec<_> = (0..24).map(|_| server.connect()).collect();
    for stream in &mut halves {
        stream.write_all(b"GET /healthy HTTP/1.1\r\nHost: a\r\n").unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let begun = Instant::now();
    let mut check = server.connect();
    send(&mut check, "GET", "/healthy", &[], b"");
    assert_eq!(receive(&mut check, "GET").header("connection"), Some("close"));
    assert!(begun.elapsed() < std::time::Duration::from_millis(1200), "{:?}", begun.elapsed());
    assert_eq!(receive(&mut halves[0], "GET").status, 503);
}

#[test]
fn a_connection_that_begins_with_a_health_check_stays_while_there_is_room() {
    let server = Setup::new(many(1)).start();
    for _ in 0..12 {
        // The server looks ten times a second at those that wait.
        std::thread::sleep(Duration::from_millis(120));
        let mut client = server.connect();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        send(&mut client, "GET", "/ready", &[], b"");
        assert_eq!(receive(&mut client, "GET").status, 404);
        send(&mut client, "GET", "/ready", &[], b"");
        assert!(receive(&mut client, "GET").header("connection").is_none());
    }
}

#[test]
fn a_stop_lets_an_answer_finish() {
    let server = Setup::new(many(2000)).start();
    let mut stream = server.connect();
    let targets = "target=many.*&".repeat(4);
    send(&mut stream, "POST", "/render", &[], format!("{targets}from=-1h&format=json").as_bytes());
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    let idle = server.connect();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(9), "idle connections do not hold it up");
    assert!(reader.join().unwrap().ends_with(b"0\r\n\r\n"));
    drop(idle);
}

// Paths of the program.

/// Answers at `/metrics`, `/health` and `/write`.
struct Added;

impl Extension for Added {
    fn access(&self, method: &Method, uri: &Uri) -> Option<Access> {
        match (method.as_str(), uri.path()) {
            ("GET", "/metrics") => Some(Access::Admin),
            ("GET", "/health") => Some(Access::Health),
            ("POST", "/write") => Some(Access::Write),
            _ => None,
        }
    }

    fn answer(&self, request: ExtensionRequest) -> Promise {
        Box::pin(async move {
            assert!(request.peer.ip().is_loopback());
            let path = request.uri.path().to_owned();
            match request.body.read(10, "ingest.max_body_bytes").await {
                Ok(body) => Response::new(Body::from(format!("{path} {}", String::from_utf8_lossy(&body)))),
                Err(error) => {
                    let mut response = Response::new(Body::from(error.to_string()));
                    *response.status_mut() = hyper::StatusCode::PAYLOAD_TOO_LARGE;
                    response
                }
            }
        })
    }
}

#[test]
fn an_extension_adds_paths() {
    let mut setup = Setup::new(many(1));
    setup.extension = Arc::new(Added);
    let server = setup.start();
    assert_eq!(server.get("/metrics").text(), "/metrics ");
    assert_eq!(server.get("/health").text(), "/health ");
    assert_eq!(server.request("POST", "/write", &[], b"points").text(), "/write points");
    let refused = server.request("POST", "/write", &[], b"too many points");
    assert_eq!(
        (refused.status, refused.text()),
        (413, "the body is larger than 10 bytes; ingest.max_body_bytes raises this")
    );
    // With a query it is graphite-web's second name for find.
    assert!(server.get("/metrics?query=many").text().contains("many"));
    assert!(server.request("POST", "/metrics", &[], b"query=many").text().contains("many"));
    assert_eq!(server.request("PUT", "/write", &[], b"x").status, 404);
    let labels: Vec<_> = server.notes.answered.lock().unwrap().iter().map(|answered| answered.path).collect();
    assert_eq!(labels, ["extension", "extension", "extension", "extension", "find", "find", "other"]);
}

#[test]
fn the_observer_receives_series_and_points() {
    let server = Setup::new(many(5)).start();
    server.get("/render?target=many.*&from=-10min&format=json");
    server.get("/render?target=many.*&from=bogus&format=json");
    let answered = server.notes.answered.lock().unwrap();
    let observed: Vec<_> = answered.iter().map(|a| (a.path, a.status, a.series, a.points)).collect();
    assert_eq!(observed, [("render", 200, 5, 50), ("render", 400, 0, 0)]);
}

#[test]
fn a_request_asks_its_source_once_for_all_series() {
    let metrics = many(4);
    let points = Arc::new(support::Points { metrics: metrics.clone(), asked: Default::default() });
    let mut setup = Setup::new(metrics);
    setup.series = Some(points.clone());
    let server = setup.start();
    let answer = server.get("/render?target=many.*&target=sumSeries(many.*)&from=-10min&format=raw");
    assert_eq!(answer.text().lines().count(), 5);
    let asked = points.asked.lock().unwrap();
    assert_eq!(asked.iter().map(|request| request.metric.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!((asked[0].window.from(), asked[0].window.until(), asked[0].now), (NOW - 600, NOW, NOW));
}

#[test]
fn a_window_in_points_is_read_once() {
    let metrics = many(2);
    let points = Arc::new(support::Points { metrics: metrics.clone(), asked: Default::default() });
    let mut setup = Setup::new(metrics);
    setup.series = Some(points.clone());
    let server = setup.start();
    let answer = server.get("/render?target=movingAverage(many.*,5)&from=-10min&format=raw");
    assert_eq!(answer.text().lines().count(), 2, "{}", answer.text());
    let asked = points.asked.lock().unwrap();
    let asked: Vec<_> = asked.iter().map(|request| (request.metric.0, request.window.from() - NOW)).collect();
    assert_eq!(asked, [(0, -900), (1, -900)]);
}
