//! Test support: a server on its own port over points in memory, and a client that shows bytes.

#![allow(dead_code, reason = "every test file takes what it needs")]

pub mod decode;

use std::{
    collections::HashMap,
    future::Future,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use api::{Answered, Api, ApiOptions, BrowserRules, Doorkeeper, Extension, Limits, Observer, Paths};
use metadata::{FindError, FindLimits, Finder, Found, Registry};
use metric::{Aggregation, Policy, Timestamp};
use store::{FetchError, FetchedSeries, SeriesRequest, SeriesSource};

/// The time of all recordings.
pub const NOW: Timestamp = 1_700_000_000;

/// A metric kept in one stage.
#[derive(Clone)]
pub struct Metric {
    pub name: String,
    pub step: u32,
    pub kept: u32,
    /// Step and points of a coarser stage without values.
    pub coarser: Option<(u32, u32)>,
    pub values: HashMap<Timestamp, f64>,
}

/// Series as whisper would read them from files of one archive.
pub struct Points {
    pub metrics: Vec<Metric>,
    /// The requests in their order.
    pub asked: Mutex<Vec<SeriesRequest>>,
}

impl Points {
    fn read(&self, request: &SeriesRequest) -> Option<FetchedSeries> {
        let metric = self.metrics.get(request.metric.index())?;
        let now = request.now;
        let oldest = now - i64::from(metric.step) * i64::from(metric.kept);
        let fine = (request.window.seconds() / i64::from(metric.step)) as usize;
        let step = metric.coarser.filter(|_| fine > request.max_points).map_or(metric.step, |(step, _)| step);
        let step = i64::from(step);
        let (from, until) = (request.window.from(), request.window.until());
        if from > now || until < oldest {
            return None;
        }
        let (from, until) = (from.max(oldest), until.min(now));
        let start = from - from.rem_euclid(step) + step;
        let end = until - until.rem_euclid(step) + step;
        let end = if start == end { end + step } else { end };
        let times = (start..end).step_by(step as usize);
        let values = times.map(|time| metric.values.get(&time).copied().unwrap_or(f64::NAN)).collect();
        Some(FetchedSeries {
            start,
            step: step as u32,
            values,
            aggregation: Aggregation::Average,
            ..FetchedSeries::default()
        })
    }
}

impl SeriesSource for Points {
    fn fetch(
        self: Arc<Self>,
        requests: Vec<SeriesRequest>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Option<FetchedSeries>>, FetchError>> + Send>> {
        Box::pin(async move {
            self.asked.lock().unwrap().extend(requests.iter().cloned());
            Ok(requests.iter().map(|request| self.read(request)).collect())
        })
    }
}

/// A registry in which the id of a metric is its index.
pub fn registry(metrics: &[Metric]) -> Arc<Registry> {
    let registry = Registry::new();
    for metric in metrics {
        let coarser = metric.coarser.map(|(step, kept)| format!(":{kept}*{step}s")).unwrap_or_default();
        let retention = format!("{}*{}s{coarser}", metric.kept, metric.step).parse().unwrap();
        let policy = registry.intern(&Policy { retention, ..Policy::default() });
        let hash = registry.hash(metric.name.as_bytes());
        registry.write().create(hash, &metric.name, policy, 0);
    }
    Arc::new(registry)
}

/// Records all events.
#[derive(Default)]
pub struct Notes {
    pub answered: Mutex<Vec<Answered>>,
    pub cancelled: Mutex<Vec<&'static str>>,
    pub connections: Mutex<Vec<usize>>,
    pub withheld: Mutex<Vec<&'static str>>,
    /// Searches of the index for a pattern.
    pub finds: AtomicUsize,
}

/// Counts searches.
struct CountedFinds(Arc<Registry>, Arc<Notes>);

impl Finder for CountedFinds {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.1.finds.fetch_add(1, Relaxed);
        self.0.find(pattern, limits)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        self.1.finds.fetch_add(1, Relaxed);
        self.0.leaves(pattern, limits)
    }
}

impl Observer for Notes {
    fn answered(&self, answered: &Answered) {
        self.answered.lock().unwrap().push(answered.clone());
    }

    fn cancelled(&self, path: &'static str) {
        self.cancelled.lock().unwrap().push(path);
    }

    fn connections(&self, open: usize) {
        self.connections.lock().unwrap().push(open);
    }

    fn withheld(&self, path: &'static str) {
        self.withheld.lock().unwrap().push(path);
    }
}

/// A server that stops when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub api: Arc<Api>,
    pub notes: Arc<Notes>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The setup of a server.
pub struct Setup {
    pub metrics: Vec<Metric>,
    pub limits: Limits,
    pub browsers: BrowserRules,
    pub paths: Paths,
    pub doorkeeper: Arc<dyn Doorkeeper>,
    pub series: Option<Arc<dyn SeriesSource>>,
    pub extension: Arc<dyn Extension>,
    /// The names, instead of those of the metrics.
    pub registry: Option<Arc<Registry>>,
}

impl Setup {
    pub fn new(metrics: Vec<Metric>) -> Setup {
        Setup {
            metrics,
            limits: Limits::default(),
            // graphite-web's recorded answers have it.
            browsers: BrowserRules { jsonp: true, ..BrowserRules::default() },
            paths: Paths::All,
            doorkeeper: Arc::new(()),
            series: None,
            extension: Arc::new(()),
            registry: None,
        }
    }

    pub fn start(self) -> Server {
        let notes = Arc::new(Notes::default());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let registry = self.registry.clone().unwrap_or_else(|| registry(&self.metrics));
        let points = || Arc::new(Points { metrics: self.metrics.clone(), asked: Mutex::default() });
        let series = self.series.clone().unwrap_or_else(|| points());
        let api = Api::new(ApiOptions {
            finder: Arc::new(CountedFinds(registry.clone(), notes.clone())),
            registry,
            series,
            events: Arc::new(store::MemoryDriver::new()),
            limits: self.limits,
            browsers: self.browsers,
            doorkeeper: self.doorkeeper,
            clock: Arc::new(host::ManualClock::at(NOW)),
            time_zone: jiff::tz::TimeZone::UTC,
            about: vec![("Relays".to_owned(), "lines to <here>:2003".to_owned())],
            extension: self.extension,
            observer: notes.clone(),
        });
        let served = api.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                served.serve(listener, self.paths, async { drop(stopped.await) }).await;
            });
        });
        Server { address: receiver.recv().unwrap(), api, notes, stop: Some(stop), thread: Some(thread) }
    }
}

impl Server {
    /// An unused connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        send(&mut stream, method, path, headers, body);
        receive(&mut stream, method)
    }

    /// Stops the server, and waits for the end.
    pub fn stop(mut self) {
        self.stop_now();
    }

    fn stop_now(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// Sends a request and keeps the connection.
pub fn send(stream: &mut TcpStream, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
}

/// An answer with its whole body.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Reads one answer.
pub fn receive(stream: &mut TcpStream, method: &str) -> Answer {
    try_receive(stream, method).expect("an answer")
}

/// Reads one answer, or nothing when the connection ends first.
pub fn try_receive(stream: &mut TcpStream, method: &str) -> Option<Answer> {
    let mut byte = [0];
    let mut line = || {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            if stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).unwrap())
    };
    let status = line()?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(": ") else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if method == "HEAD" {
        return Some(answer);
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut size = Vec::new();
            while !size.ends_with(b"\r\n") {
                stream.read_exact(&mut byte).ok()?;
                size.push(byte[0]);
            }
            let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            if size == 0 {
                return Some(answer);
            }
            answer.body.extend_from_slice(&chunk[..size]);
        }
    }
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).ok()?;
    Some(answer)
}
