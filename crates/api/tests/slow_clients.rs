//! Clients that send or read a little now and then: never silent for long, and never done.

mod support;

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use support::{Metric, NOW, Server, Setup, receive, send};

const PAUSE: Duration = Duration::from_millis(50);

fn many(count: usize) -> Vec<Metric> {
    let values: HashMap<_, _> = (0..60).map(|i| (NOW - i * 60, 1.0 / (i as f64 + 3.0))).collect();
    let metric =
        |i| Metric { name: format!("many.m{i:05}"), step: 60, kept: 60, coarser: None, values: values.clone() };
    (0..count).map(metric).collect()
}

fn server(metrics: usize, limits: impl FnOnce(&mut api::Limits)) -> Server {
    let mut setup = Setup::new(many(metrics));
    setup.limits.min_rate = 0;
    limits(&mut setup.limits);
    setup.start()
}

/// Sends a byte now and then until the server has had enough, or for ten seconds.
fn trickle(mut stream: TcpStream, begin: &str) -> (TcpStream, Duration) {
    let begun = Instant::now();
    stream.write_all(begin.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PAUSE)).unwrap();
    while begun.elapsed() < Duration::from_secs(10) {
        // Something to read, or the end.
        if stream.peek(&mut [0]).is_ok() || stream.write_all(b"x").is_err() {
            break;
        }
    }
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (stream, begun.elapsed())
}

#[test]
fn half_a_head_is_not_waited_for() {
    let server = server(1, |limits| limits.head_time = Duration::from_millis(500));
    let (mut stream, time) = trickle(server.connect(), "GET /version HTTP/1.1\r\nX: ");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    assert!(time < Duration::from_secs(5), "{time:?}");
    // A connection that waits for its next request stays.
    let mut stream = server.connect();
    for _ in 0..2 {
        send(&mut stream, "GET", "/version", &[], b"");
        assert_eq!(receive(&mut stream, "GET").status, 200);
        std::thread::sleep(Duration::from_millis(1500));
    }
}

#[test]
fn a_body_that_comes_too_slowly_or_for_too_long_is_refused() {
    let begin = "POST /render HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n";
    let check = |words: &str, limits: &dyn Fn(&mut api::Limits)| {
        let (mut stream, time) = trickle(server(1, limits).connect(), begin);
        let answer = receive(&mut stream, "POST");
        assert_eq!(answer.status, 408);
        assert!(answer.text().contains(words) && time < Duration::from_secs(5), "{time:?}: {}", answer.text());
    };
    check("http.min_rate", &|limits| (limits.idle, limits.min_rate) = (Duration::from_millis(700), 1000));
    check("http.body_timeout", &|limits| limits.body_time = Duration::from_millis(700));
}

#[test]
fn clients_that_keep_requests_waiting_make_room_for_others() {
    let server = server(2000, |limits| limits.connections = 4);
    let mut kept: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for stream in &mut kept {
        stream.write_all(b"POST /render HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    }
    let targets = "target=many.*&".repeat(6);
    for _ in 0..2 {
        let mut stream = server.connect();
        send(&mut stream, "POST", "/render", &[], format!("{targets}from=-1h&format=json").as_bytes());
        kept.push(stream);
    }
    // The bodies trickle, the answers are read a byte at a time.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        kept[..2].iter_mut().for_each(|stream| stream.write_all(b"x").unwrap());
        kept[2..].iter_mut().for_each(|stream| assert_eq!(stream.read(&mut [0]).unwrap(), 1));
        std::thread::sleep(PAUSE);
    }
    for _ in 0..4 {
        let begun = Instant::now();
        assert_eq!(server.get("/version").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[test]
fn an_answer_that_is_read_too_slowly_is_cut() {
    let read = |window: u64, rate: u64| {
        let server = server(2000, |limits| {
            (limits.idle, limits.min_rate) = (Duration::from_secs(window), rate);
        });
        let mut stream = server.connect();
        // About 15 MB, more than the buffers of the operating system.
        let targets = "target=many.*&".repeat(6);
        send(&mut stream, "POST", "/render", &[], format!("{targets}from=-1h&format=json").as_bytes());
        let (mut piece, mut last) = (vec![0; 256 << 10], Vec::new());
        while let Ok(bytes @ 1..) = stream.read(&mut piece) {
            last.extend_from_slice(&piece[..bytes]);
            last.drain(..last.len().saturating_sub(16));
            if last.ends_with(b"0\r\n\r\n") {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        last.ends_with(b"0\r\n\r\n")
    };
    assert!(read(30, 1000), "a slow reader above the rate gets all of it");
    assert!(!read(1, 1 << 30), "one below the rate does not");
}
