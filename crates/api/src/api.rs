//! The front door: which request goes where, in what order, and what is counted of it.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use hyper::{Method, Request, Uri, body::Incoming};
use metric::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    Answered, Extension, ExtensionRequest, Limits, Observer, Refusal, RequestBody, Response,
    carbonapi::{self, Protocol},
    events,
    failures::Failures,
    find, functions, metric_info, page,
    params::Params,
    render_request, tags,
};

/// What an [`Api`] is made of.
pub struct ApiOptions {
    /// The names there are.
    pub registry: Arc<metadata::Registry>,
    /// Who answers globs; the registry, unless something else knows more.
    pub finder: Arc<dyn metadata::Finder>,
    /// Their points.
    pub series: Arc<dyn store::SeriesSource>,
    /// What happened.
    pub events: Arc<dyn store::Events>,
    /// What a request may cost.
    pub limits: Limits,
    /// The current time, Unix seconds. An argument, so that tests can stop it.
    pub clock: fn() -> Timestamp,
    /// The zone of times of day in `from` and `until` and of csv, where a request names none:
    /// graphite-web's `TIME_ZONE`.
    pub time_zone: jiff::tz::TimeZone,
    /// What the start page says beside, as a name and a text: where to point relays, mostly.
    pub about: Vec<(String, String)>,
    /// What else is served on the port.
    pub extension: Arc<dyn Extension>,
    /// Told of every request.
    pub observer: Arc<dyn Observer>,
}

/// Graphite over HTTP.
pub struct Api {
    pub(crate) registry: Arc<metadata::Registry>,
    pub(crate) finder: Arc<dyn metadata::Finder>,
    pub(crate) series: Arc<dyn store::SeriesSource>,
    pub(crate) events: Arc<dyn store::Events>,
    pub(crate) limits: Limits,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) time_zone: jiff::tz::TimeZone,
    pub(crate) about: Vec<(String, String)>,
    pub(crate) observer: Arc<dyn Observer>,
    extension: Arc<dyn Extension>,
    // A permit is held from a query's start until the last byte of its answer is made.
    turns: Arc<Semaphore>,
    // Queries that hold no permit yet.
    waiting: AtomicUsize,
    failures: Failures,
}

/// Queries under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// At work, or being sent.
    pub at_work: usize,
    /// Waiting for their turn.
    pub waiting: usize,
}

/// What a handler gives back.
pub(crate) struct Reply {
    /// The answer.
    pub response: Response,
    /// Series read for it.
    pub series: u64,
    /// Points read for it.
    pub points: u64,
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply { response, series: 0, points: 0 }
    }
}

/// A Graphite request, read.
pub(crate) struct Query {
    /// How it came.
    pub method: Method,
    /// Its path without the slash that may end it.
    pub path: String,
    /// Its headers.
    pub headers: hyper::HeaderMap,
    /// Its parameters.
    pub params: Params,
    /// Its body.
    pub body: Bytes,
    /// Which of carbonapi's protocols it speaks, if any.
    pub protocol: Option<Protocol>,
}

type Handler = for<'a> fn(&'a Arc<Api>, &'a Query) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;

/// A path of Graphite's.
struct Route {
    /// How requests to it are counted.
    label: &'static str,
    /// The methods it answers.
    allow: &'static str,
    handler: Handler,
}

macro_rules! route {
    ($label:literal, $allow:literal, $handler:path) => {
        Some(Route { label: $label, allow: $allow, handler: |api, query| Box::pin($handler(api, query)) })
    };
}

/// What Graphite's API has at a path (without a final slash).
fn route(path: &str) -> Option<Route> {
    match path {
        "/render" => route!("render", "GET, HEAD, POST", render_request::render),
        "/metrics" | "/metrics/find" => route!("find", "GET, HEAD, POST", find::find),
        "/metrics/expand" => route!("expand", "GET, HEAD, POST", find::expand),
        "/metrics/index.json" => route!("index", "GET, HEAD, POST", find::index),
        "/metrics/list" => route!("list", "GET, HEAD, POST", metric_info::list),
        "/metrics/details" => route!("details", "GET, HEAD, POST", metric_info::details),
        "/info" => route!("info", "GET, HEAD, POST", metric_info::info),
        "/_internal/capabilities" => route!("capabilities", "GET, HEAD, POST", carbonapi::capabilities),
        "/functions" => route!("functions", "GET, HEAD", functions::list),
        "/tags" => route!("tags", "GET, HEAD, POST", tags::tags),
        "/events" => route!("events", "GET, HEAD, POST", events::events),
        "/events/get_data" => route!("events", "GET, HEAD, POST", events::get_data),
        "/version" => route!("version", "GET, HEAD, POST", page::version),
        "" => route!("page", "GET, HEAD", page::start),
        _ if path.starts_with("/functions/") => route!("functions", "GET, HEAD", functions::one),
        _ if path.starts_with("/events/") => route!("events", "GET, HEAD", events::one),
        _ if path.starts_with("/tags/") => route!("tags", "GET, HEAD, POST", tags::tags),
        _ => None,
    }
}

/// Whether `GET /metrics` is meant for Prometheus: find without its one required parameter is nothing.
fn scrapes(method: &Method, path: &str, uri: &Uri) -> bool {
    let has_query =
        || form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).any(|(name, _)| name == "query");
    path == "/metrics" && method != Method::POST && !has_query()
}

impl Api {
    /// An API over names and points. Call [`Api::serve`] to have it answer.
    pub fn new(options: ApiOptions) -> Arc<Api> {
        let ApiOptions { registry, finder, series, events, limits, clock, time_zone, about, extension, observer } =
            options;
        let turns = Arc::new(Semaphore::new(limits.concurrent_queries));
        let waiting = AtomicUsize::new(0);
        Arc::new(Api {
            registry,
            finder,
            series,
            events,
            limits,
            clock,
            time_zone,
            about,
            observer,
            extension,
            turns,
            waiting,
            failures: Failures::default(),
        })
    }

    /// What is under way, for gauges.
    pub fn activity(&self) -> Activity {
        Activity {
            at_work: self.limits.concurrent_queries.saturating_sub(self.turns.available_permits()),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    pub(crate) async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Response {
        let started = Instant::now();
        let (head, incoming) = request.into_parts();
        let body = RequestBody::new(incoming, self.limits.idle);
        let path = head.uri.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        let route = route(path).filter(|_| !scrapes(&head.method, path, &head.uri));
        // Dropped before it is answered when the client goes away: hyper drops this future then.
        let mut record = Record { observer: &*self.observer, path: "other", answered: false };
        let reply = match route {
            Some(route) => {
                record.path = route.label;
                let limit = self.limits.query;
                let answer = self.answer(&route, head, body);
                let answer = tokio::time::timeout(limit, answer).await;
                answer.unwrap_or_else(|_| Err(Refusal::TooSlow(limit.as_secs_f64())))
            }
            None if self.extension.claims(&head.method, &head.uri) => {
                record.path = "extension";
                let hyper::http::request::Parts { method, uri, headers, .. } = head;
                let request = ExtensionRequest { method, uri, headers, peer, body };
                Ok(self.extension.answer(request).await.into())
            }
            None if path == "/metrics" => Err(find::query_is_missing()),
            None => Err(Refusal::NoSuchPath(head.uri.path().to_owned())),
        };
        let reply = reply.unwrap_or_else(|refusal| {
            if refusal.is_of_the_store() {
                if let Some(untold) = self.failures.is_due(Instant::now()) {
                    tracing::error!(%peer, path = record.path, untold, error = %refusal,
                        "a request failed; further ones are told once a minute");
                }
            } else if refusal.status().is_server_error() {
                tracing::error!(%peer, path = record.path, error = %refusal, "a request failed");
            }
            refusal.response().into()
        });
        record.answered = true;
        self.observer.answered(&Answered {
            path: record.path,
            status: reply.response.status().as_u16(),
            duration: started.elapsed(),
            series: reply.series,
            points: reply.points,
        });
        reply.response
    }

    async fn answer(
        self: &Arc<Self>,
        route: &Route,
        head: hyper::http::request::Parts,
        body: RequestBody,
    ) -> Result<Reply, Refusal> {
        let path = head.uri.path();
        let path = path.strip_suffix('/').unwrap_or(path).to_owned();
        if !route.allow.split(", ").any(|method| method == head.method.as_str()) {
            return Err(Refusal::Method { path: head.uri.path().to_owned(), allow: route.allow });
        }
        let body = body.read(self.limits.body_bytes, "http.max_body_bytes").await?;
        let is_v3 = Protocol::is_v3(head.uri.query(), &head.headers);
        // A message that comes without a content type must not be read as a form.
        let form = if is_v3 { Bytes::new() } else { body.clone() };
        let params = Params::read(head.uri.query(), &head.headers, form).await?;
        let named = || params.last("format").and_then(Protocol::named);
        let protocol = if is_v3 { Some(Protocol::V3) } else { named() };
        let query = Query { method: head.method, path, headers: head.headers, params, body, protocol };
        (route.handler)(self, &query).await
    }

    /// Checks the bytes of all targets of a render.
    pub(crate) fn check_targets(&self, bytes: usize) -> Result<(), Refusal> {
        let limit = self.limits.target_bytes;
        if bytes <= limit {
            return Ok(());
        }
        let given = bytes.to_string();
        Err(Refusal::TooMuch { what: "the bytes of the targets are", given, limit, setting: "query.max_target_bytes" })
    }

    /// Waits for a turn to do heavy work.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(permit) = self.turns.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let place = Waiting::enter(&self.waiting);
        if place.before >= self.limits.queued_queries {
            return Err(Refusal::Busy(self.limits.concurrent_queries));
        }
        Ok(self.turns.clone().acquire_owned().await.expect("the semaphore is never closed"))
    }
}

/// A place in the queue, given back when dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl Waiting<'_> {
    fn enter(count: &AtomicUsize) -> Waiting<'_> {
        Waiting { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says that a request was cancelled unless it was answered.
struct Record<'a> {
    observer: &'a dyn Observer,
    path: &'static str,
    answered: bool,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.observer.cancelled(self.path);
        }
    }
}
