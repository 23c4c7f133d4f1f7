//! Memory of queries and answers: budgets that many clients share.

mod support;

use std::{
    future::Future,
    io::{Read, Write},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};
use support::{Metric, NOW, Server, Setup, receive, send};

const MIB: usize = 1 << 20;

/// A day of points for every series, one a second.
#[derive(Default)]
struct Seconds {
    /// Series that were asked for together.
    together: Mutex<Vec<usize>>,
    /// While it is true, reads do not end, and dropping them does not stop them.
    is_stuck: Arc<AtomicBool>,
}

impl SeriesSource for Seconds {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        let values: Vec<f64> = (0..86_400).map(|i| f64::from(i * 7919 % 10_007)).collect();
        let series = FetchedSeries { start: NOW - 86_400, step: 1, values, ..FetchedSeries::default() };
        self.together.lock().unwrap().push(requests.len());
        let is_stuck = self.is_stuck.clone();
        Box::pin(async move {
            let wait = move || {
                while is_stuck.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            tokio::task::spawn_blocking(wait).await.unwrap();
            Ok(vec![Some(series); requests.len()])
        })
    }
}

/// A server with metrics of a point a second. A day of one is 675 KiB.
fn server(change: impl FnOnce(&mut Setup)) -> Server {
    let metric = |i: usize| Metric {
        name: format!("many.m{i:04}"),
        step: 1,
        kept: 86_400,
        coarser: None,
        values: Default::default(),
    };
    let mut setup = Setup::new((0..60).map(metric).collect());
    setup.series = Some(Arc::new(Seconds::default()));
    setup.limits.memory_wait = Duration::from_millis(300);
    change(&mut setup);
    setup.start()
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const DAY: &str = "/render?from=-1d&format=json&target=";

#[test]
fn a_query_beyond_the_memory_of_queries_is_422() {
    let server = server(|setup| setup.limits.memory = 12 * MIB);
    for target in ["many.*", "scale(many.m001*,2)"] {
        let answer = server.get(&format!("{DAY}{target}"));
        assert_eq!(answer.status, 422, "{target}");
        assert!(answer.text().contains("query.memory raises this"), "{}", answer.text());
    }
    assert_eq!(server.get(&format!("{DAY}maxSeries(many.m001*)")).status, 200);
    eventually("all of it is given back", || {
        server.api.query_memory().used == 0 && server.api.answer_memory().used == 0
    });
    assert!(!server.notes.answered.lock().unwrap().is_empty());
}

#[test]
fn long_names_of_others_refuse_no_question_about_short_ones() {
    let names = |name: &'static str, value: String| {
        (0..2000).map(move |i| Metric {
            name: format!("{name};i={i:05};x={value}"),
            step: 1,
            kept: 86_400,
            coarser: None,
            values: Default::default(),
        })
    };
    let mut setup = Setup::new(names("short", "v".to_owned()).chain(names("long", "v".repeat(3900))).collect());
    setup.limits.memory = 8 * MIB;
    let server = setup.start();
    let answer = server.get("/tags/findSeries?expr=name%3Dshort");
    assert_eq!((answer.status, answer.text().matches("short;").count()), (200, 2000), "{}", answer.text());
    // All that is asked about is too long.
    assert_eq!(server.get("/tags/findSeries?expr=name%3Dlong").status, 422);
}

#[test]
fn wide_tables_and_large_sums_of_a_day_fit_in_the_defaults() {
    let metric = |i: usize| Metric {
        name: format!("wide.m{i:04}"),
        step: 60,
        kept: 1_440,
        coarser: None,
        values: Default::default(),
    };
    let server = Setup::new((0..5_000).map(metric).collect()).start();
    for target in ["sumSeries(wide.m0*)", "wide.*"] {
        let answer = server.get(&format!("/render?from=-1d&format=msgpack&target={target}"));
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    }
}

#[test]
fn a_source_is_asked_for_a_part_after_the_other() {
    let source = Arc::new(Seconds::default());
    let server = server(|setup| setup.series = Some(source.clone()));
    let answer = server.get(&format!("{DAY}countSeries(many.*)&maxDataPoints=1"));
    assert!(answer.text().contains("[[60,") || answer.text().contains("[[60.0,"), "{}", answer.text());
    // 24 of 86,400 points are the last that are fewer than 2 million.
    assert_eq!(*source.together.lock().unwrap(), [24, 24, 12]);
}

#[test]
fn a_read_whose_client_is_gone_holds_its_turn_and_its_memory_until_it_ends() {
    let source = Arc::new(Seconds::default());
    source.is_stuck.store(true, Relaxed);
    let server = server(|setup| setup.series = Some(source.clone()));
    let mut client = server.connect();
    send(&mut client, "GET", &format!("{DAY}many.*"), &[], b"");
    eventually("it is being read", || !source.together.lock().unwrap().is_empty());
    // The answer, and what the source holds for a part of it.
    assert!(server.api.query_memory().used > 70 * MIB as u64, "{:?}", server.api.query_memory());
    drop(client);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.api.activity().running, 1);
    assert!(server.api.query_memory().used > 70 * MIB as u64, "{:?}", server.api.query_memory());
    source.is_stuck.store(false, Relaxed);
    eventually("its turn is over", || server.api.activity().running == 0);
    assert_eq!(server.api.query_memory().used, 0);
    assert_eq!(*source.together.lock().unwrap(), [24], "it stops behind the part");
}

#[test]
fn a_reader_who_does_not_read_holds_no_turn_and_no_memory_of_queries() {
    let server = server(|setup| setup.limits.concurrent_queries = 1);
    let mut slow = server.connect();
    send(&mut slow, "GET", &format!("{DAY}many.*"), &[], b"");
    eventually("it is being sent", || server.api.answer_memory().used > 20 * MIB as u64);
    eventually("its turn is over", || server.api.activity().running == 0);
    assert_eq!(server.api.query_memory().used, 0);
    assert_eq!(server.get(&format!("{DAY}many.m0001")).status, 200);
    drop(slow);
    eventually("it is given back", || server.api.answer_memory().used == 0);
}

#[test]
fn answers_wait_for_memory_and_then_are_503() {
    let server = server(|setup| setup.limits.answer_memory = 64 * MIB);
    let slow = || {
        let mut slow = server.connect();
        send(&mut slow, "GET", &format!("{DAY}many.*"), &[], b"");
        slow
    };
    let first = slow();
    eventually("the first is being sent", || server.api.answer_memory().used > 20 * MIB as u64);
    let answer = server.get(&format!("{DAY}many.*"));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(answer.text().contains("http.answer_memory"), "{}", answer.text());
    assert_eq!(server.api.answer_memory().refused, 1);
    // Small answers still have room.
    assert_eq!(server.get(&format!("{DAY}many.m0001&maxDataPoints=100")).status, 200);
    drop(first);
    eventually("there is room again", || server.get(&format!("{DAY}many.*")).status == 200);
}

#[test]
fn a_query_waits_for_the_memory_of_another() {
    let server = server(|setup| {
        setup.limits.memory = 60 * MIB;
        setup.limits.memory_wait = Duration::from_secs(20);
        setup.limits.query = Duration::from_secs(60);
    });
    // Each takes 40 MiB, so that they run one after the other.
    let path = format!("{DAY}maxSeries(many.*)&maxDataPoints=100");
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let ask = |_| scope.spawn(|| server.get(&path).status);
        let all: Vec<_> = (0..3).map(ask).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(answers, [200, 200, 200]);
    assert!(server.api.query_memory().waits > 0);
}

#[test]
fn a_request_has_a_bound_of_parameters_and_its_body_is_counted() {
    let server = server(|setup| setup.limits.memory = 12 * MIB);
    let post = |body: &str| server.request("POST", "/render", &[], body.as_bytes());
    let parameters = |count: usize| "a=&".repeat(count) + "format=json&target=many.m0001&from=-1h";
    assert_eq!(post(&parameters(10_000)).status, 200);
    let answer = post(&parameters(30_000));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("parameters"), "{}", answer.text());
    // A body of 4 MiB takes four times that.
    let long = format!("format=json&target=many.m0001&from=-1h&x={}", "x".repeat(4 * MIB));
    let answer = post(&long);
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("query.memory"), "{}", answer.text());
}

#[test]
fn a_client_that_still_sends_reads_why_its_request_is_refused() {
    let server = server(|setup| setup.limits.memory = 12 * MIB);
    let long = vec![b'x'; 12 * MIB];
    for path in ["/render", "/no/such/path"] {
        let answer = server.request("POST", path, &[], &long);
        assert!([404, 413].contains(&answer.status), "{} for {path}", answer.status);
    }
    // A body without an end is not waited for.
    let mut stream = server.connect();
    let head = format!("POST /no/such/path HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40);
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(receive(&mut stream, "POST").status, 404);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
}

#[test]
fn a_later_value_of_a_template_replaces_an_earlier_one() {
    let server = server(|_| {});
    let values: String = (0..9_000).map(|i| format!("&template[k{i}]=x")).collect();
    let body = format!("format=json&from=-1h&target=many.m0001{values}{values}");
    let begun = Instant::now();
    assert_eq!(server.request("POST", "/render", &[], body.as_bytes()).status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let path = format!("{DAY}template(many.$name)&template[name]=m0001&template[name]=m0002&maxDataPoints=10");
    assert!(server.get(&path).text().contains("many.m0002"));
}
