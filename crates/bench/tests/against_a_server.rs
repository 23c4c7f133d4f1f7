//! The commands, as they are typed, against a small Graphite server that loses points on request.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;

/// Points by name and time.
type Points = Arc<Mutex<HashMap<String, BTreeMap<u64, String>>>>;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: bench::Args,
}

fn run(arguments: &[&str]) -> Result<(), bench::Error> {
    bench::run(Program::parse_from(["bench"].iter().chain(arguments)).bench)
}

/// Addresses for lines and for HTTP. Every `forgotten`-th line is lost; none if it is 0.
fn server(forgotten: usize) -> (String, String) {
    let points = Points::default();
    (receiver(points.clone(), forgotten), reader(points))
}

fn receiver(taken: Points, forgotten: usize) -> String {
    serve(move |stream| {
        for (count, line) in BufReader::new(stream).lines().map_while(Result::ok).enumerate() {
            let mut fields = line.split(' ').map(str::to_owned);
            if let (Some(name), Some(value), Some(time)) = (fields.next(), fields.next(), fields.next())
                && (forgotten == 0 || count % forgotten != 1)
            {
                let time = time.parse().expect("times are whole");
                taken.lock().expect("no thread panics with the lock").entry(name).or_default().insert(time, value);
            }
        }
    })
}

fn reader(kept: Points) -> String {
    serve(move |stream| {
        let mut reader = BufReader::new(stream);
        loop {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                if !matches!(reader.read_line(&mut request), Ok(read) if 0 < read) {
                    return;
                }
            }
            let url = request.split(' ').nth(1).expect("a request has an address").to_owned();
            let body = answer(&url, &kept);
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// A server that writes by itself: what it has taken can be read after `delay`, in one go. Also an address to post to, which
/// answers when all is written.
fn slow_server(delay: Duration) -> (String, String, String) {
    let (taken, written) = (Points::default(), Points::default());
    let (from, to) = (taken.clone(), written.clone());
    thread::spawn(move || {
        loop {
            thread::sleep(delay);
            to.lock()
                .expect("no thread panics with the lock")
                .clone_from(&from.lock().expect("no thread panics with the lock"));
        }
    });
    let flush = serve(move |mut stream| {
        _ = stream.read(&mut [0; 1024]);
        thread::sleep(2 * delay);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    (receiver(taken, 0), reader(written), flush)
}

/// A process that stands for one that is measured. It ends with the test.
struct Running(Child);

impl Running {
    fn new(script: &str) -> Running {
        Running(Command::new("sh").args(["-c", script]).spawn().expect("there is a shell"))
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// `/render` of names, and `/metrics/find` that finds everything.
fn answer(url: &str, points: &Points) -> String {
    let points = points.lock().expect("no thread panics with the lock");
    let (path, parameters) = url.split_once('?').unwrap_or((url, ""));
    if path == "/metrics/find" {
        let found: Vec<String> = points.keys().map(|name| format!(r#"{{"path": "{name}"}}"#)).collect();
        return format!(r#"{{"metrics": [{}]}}"#, found.join(", "));
    }
    let pairs: Vec<(&str, &str)> = parameters.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let parameters: HashMap<&str, &str> = pairs.iter().copied().collect();
    let time = |name: &str| parameters[name].parse::<u64>().expect("the bench asks with epoch seconds");
    let mut found = Vec::new();
    for (_, target) in pairs.iter().filter(|(name, _)| *name == "target") {
        let Some(series) = points.get(*target) else { continue };
        let window = series.range(time("from") + 1..=time("until"));
        let window: Vec<String> = window.map(|(time, value)| format!("[{value}, {time}]")).collect();
        found.push(format!(r#"{{"target": "{target}", "datapoints": [{}]}}"#, window.join(", ")));
    }
    format!("[{}]", found.join(", "))
}

#[test]
fn a_server_that_keeps_everything_passes() {
    let (line, http) = server(0);
    run(&["ingest", "--line", &line, "--names", "300", "--points", "5", "--http", &http, "--verify", "300"])
        .expect("everything was kept");
    run(&["find", "--http", &http, "--query", "*", "--count", "3"]).expect("it finds");
    run(&["visible", "--line", &line, "--http", &http, "--count", "3", "--json"]).expect("points are there at once");
}

#[test]
fn a_server_that_loses_points_fails() {
    let (line, http) = server(10);
    let lost = run(&["ingest", "--line", &line, "--names", "300", "--points", "5", "--http", &http, "--verify", "300"]);
    match lost {
        Err(bench::Error::Unfaithful { checked: 1_800, missing, wrong: 0, extra: 0 }) => assert!(0 < missing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_without_a_listener_is_in_the_error() {
    let error = run(&["ingest", "--line", "127.0.0.1:1", "--names", "1", "--points", "1"]).expect_err("no listener");
    assert!(error.to_string().starts_with("connecting to 127.0.0.1:1: "), "{error}");
}

#[test]
fn a_server_that_is_not_graphite_is_not_measured() {
    let http = serve(|mut stream| {
        let mut request = [0; 1024];
        _ = stream.read(&mut request);
        _ = stream.write_all(b"220 mail ready\r\n");
    });
    assert!(run(&["find", "--http", &http, "--query", "*"]).is_err());
    assert!(run(&["render", "--http", &http, "--target", "a"]).is_err());
}

const SMALL: [&str; 6] = ["--names", "20", "--points", "5", "--idle-timeout", "4"];

#[test]
fn points_that_are_written_late_are_waited_for_with_a_store_and_a_server_that_is_never_idle() {
    let (line, http, _) = slow_server(Duration::from_millis(700));
    let (busy, store) = (Running::new("while :; do :; done"), Running::new("exec sleep 600"));
    let arguments = ["ingest", "--line", &line, "--http", &http, "--until-readable", "20", "--verify", "20"];
    let processes = ["--pid", &busy.id(), "--store-pid", &store.id()];
    let started = Instant::now();
    run(&[&arguments[..], &processes, &SMALL].concat()).expect("everything is readable in the end");
    assert!(started.elapsed() < Duration::from_secs(60), "what never rests is not waited for for ever");
}

#[test]
fn points_that_never_become_readable_fail_in_time() {
    let (line, http, _) = slow_server(Duration::from_secs(3_600));
    let arguments = ["ingest", "--line", &line, "--http", &http, "--until-readable", "20", "--timeout", "1"];
    match run(&[&arguments[..], &SMALL].concat()) {
        Err(bench::Error::Unreadable { metrics: 20, whole: 0, lacking: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn points_are_stored_when_a_server_that_is_asked_at_once_has_written_them() {
    let (line, _, flush) = slow_server(Duration::from_millis(100));
    let flush = format!("http://{flush}/admin/flush");
    run(&[&["ingest", "--line", &line, "--flush-url", &flush, "--flush-at-once"][..], &SMALL].concat())
        .expect("it writes everything");
}

#[test]
fn a_process_given_twice_is_refused() {
    let me = std::process::id().to_string();
    let error = run(&["ingest", "--line", "127.0.0.1:1", "--pid", &me, "--store-pid", &me]).expect_err("it is one");
    assert!(error.to_string().contains("is given twice"), "{error}");
}
