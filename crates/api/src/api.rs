//! The front door: serves a listener, and observes each request.

use std::{future::Future, net::SocketAddr, sync::Arc};

use host::{Clock, Excerpt, MinuteLog};
use hyper::{Request, StatusCode, body::Incoming, header, http::request::Parts};
use tls::Identity;
use tokio::net::TcpListener;

use crate::{
    http::{
        Access, Answered, BodyPace, BrowserRules, Extension, ExtensionRequest, Handle, Limits, MemoryBudget, MemoryUse,
        Observer, Recording, Rejection, RequestBody, RequestRecord, Response, serve,
    },
    query::{Activity, Backend, Doorkeeper, QueryTurns, Reply, SenderUse, Viewer},
    router::{Route, no_route},
};

/// What clients choose from in a TLS handshake, the best one first.
pub const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Open connections to a listener of administration.
const ADMINISTRATION_CONNECTIONS: usize = 64;

/// Headers of a request, at most: as many as HTTP/1.1 reads here.
const MAX_HEADERS: usize = 100;

/// The parts of an [`Api`].
pub struct ApiOptions {
    /// All metrics.
    pub registry: Arc<metadata::Registry>,
    /// Resolves globs: the registry, or a finder that knows more names.
    pub finder: Arc<dyn metadata::Finder>,
    /// Reads points.
    pub series: Arc<dyn store::SeriesSource>,
    /// Reads and stores events.
    pub events: Arc<dyn store::Events>,
    /// Limits of requests.
    pub limits: Limits,
    /// Who sends a request.
    pub doorkeeper: Arc<dyn Doorkeeper>,
    /// Rules for browsers.
    pub browsers: BrowserRules,
    /// The current time. Tests set their own.
    pub clock: Arc<dyn Clock>,
    /// The zone of times of day in `from` and `until` and of csv, for requests without one: graphite-web's `TIME_ZONE`.
    pub time_zone: jiff::tz::TimeZone,
    /// Names and texts on the start page, such as the addresses for relays.
    pub about: Vec<(String, String)>,
    /// Other paths on the same port.
    pub extension: Arc<dyn Extension>,
    /// Receives events for metrics.
    pub observer: Arc<dyn Observer>,
}

/// Which paths a listener answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// Every path.
    All,
    /// Graphite's paths, points and events.
    Graphite,
    /// The extension's paths of administration.
    Administration,
}

/// Graphite over HTTP.
pub struct Api {
    backend: Arc<Backend>,
    doorkeeper: Arc<dyn Doorkeeper>,
    extension: Arc<dyn Extension>,
    failures: MinuteLog,
    overloads: MinuteLog,
}

impl Api {
    /// An API over names and points. [`Api::serve`] answers requests.
    pub fn new(options: ApiOptions) -> Arc<Api> {
        let backend = Backend {
            turns: QueryTurns::new(&options.limits),
            senders: SenderUse::default(),
            memory: query_memory(&options.limits),
            answers: answer_memory(&options.limits),
            registry: options.registry,
            finder: options.finder,
            series: options.series,
            events: options.events,
            limits: options.limits,
            browsers: options.browsers,
            clock: options.clock,
            time_zone: options.time_zone,
            about: options.about,
            observer: options.observer,
            withheld: MinuteLog::default(),
        };
        Arc::new(Api {
            backend: Arc::new(backend),
            doorkeeper: options.doorkeeper,
            extension: options.extension,
            failures: MinuteLog::default(),
            overloads: MinuteLog::default(),
        })
    }

    /// The number of unfinished queries, for gauges.
    pub fn activity(&self) -> Activity {
        self.backend.turns.activity()
    }

    /// The memory of queries, for metrics.
    pub fn query_memory(&self) -> MemoryUse {
        self.backend.memory.usage()
    }

    /// The memory of answers, for metrics.
    pub fn answer_memory(&self) -> MemoryUse {
        self.backend.answers.usage()
    }

    /// Waits until queries and answers have returned much memory since the last call ended.
    pub async fn memory_returned(&self) {
        tokio::select! {
            () = self.backend.memory.returned() => {}
            () = self.backend.answers.returned() => {}
        }
    }

    /// Serves some paths at a listener until `shutdown` resolves. Then it stops accepting, closes idle connections, and
    /// gives unfinished answers ten seconds. A listener of administration has a limit of connections of its own.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        paths: Paths,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        self.serve_over(None, listener, paths, shutdown).await;
    }

    /// The same with TLS, over which clients choose between HTTP/1.1 and HTTP/2. `identity` offers [`PROTOCOLS`].
    pub async fn serve_tls(
        self: Arc<Self>,
        identity: Arc<Identity>,
        listener: TcpListener,
        paths: Paths,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        self.serve_over(Some(identity), listener, paths, shutdown).await;
    }

    async fn serve_over(
        self: Arc<Self>,
        tls: Option<Arc<Identity>>,
        listener: TcpListener,
        paths: Paths,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let backend = self.backend.clone();
        let door = Arc::new(Door { api: self, paths });
        if paths == Paths::Administration {
            let limits = Limits { connections: ADMINISTRATION_CONNECTIONS, ..backend.limits.clone() };
            return serve(listener, tls, &limits, &Uncounted(backend.observer.clone()), door, shutdown).await;
        }
        serve(listener, tls, &backend.limits, &*backend.observer, door, shutdown).await;
    }

    /// Answers a request; the record gets its kind.
    async fn answer(
        &self,
        paths: Paths,
        head: Parts,
        body: RequestBody,
        peer: SocketAddr,
        record: &mut Record<'_>,
    ) -> Result<Reply, Rejection> {
        // Over HTTP/2 a byte can be a header, and the head is kept while the body comes.
        if head.headers.len() > MAX_HEADERS {
            return Err(Rejection::TooManyHeaders { given: head.headers.len(), limit: MAX_HEADERS });
        }
        let route = Route::of(&head.method, &head.uri);
        let access = match &route {
            Some(route) => Some(route.access()),
            None => self.extension.access(&head.method, &head.uri),
        };
        let is_write = access.is_some_and(|access| access.is_write(&head.method));
        record.note(|record| (record.access, record.is_write) = (access, is_write));
        // No page of a browser has the secret of the nodes, which reach each other by whatever name this machine has.
        if access != Some(Access::Peer) {
            self.backend.browsers.check(&head, is_write)?;
        }
        paths.check(access, &head, self.doorkeeper.asks())?;
        if let Some(route) = &route {
            record.path = route.label;
        }
        let viewer = self.viewer(access, &head, peer, record)?;
        if let Some(route) = route {
            let limit = self.backend.limits.query;
            let _query = self.backend.senders.begin_query(&viewer)?;
            let answer = route.answer(&self.backend, viewer.clone(), peer.ip(), head, body, record.recording.as_mut());
            let answer = tokio::time::timeout(limit, answer).await;
            return answer.unwrap_or_else(|_| Err(Rejection::TooSlow(limit.as_secs_f64())));
        }
        if access.is_some() {
            record.path = "extension";
            let Parts { method, uri, headers, .. } = head;
            let asked_for = record.recording.as_ref().map(Recording::asked_for).unwrap_or_default();
            let sender = viewer.sender();
            let allows_jsonp = self.backend.browsers.jsonp;
            let request = ExtensionRequest { method, uri, headers, peer, sender, allows_jsonp, asked_for, body };
            return Ok(self.extension.answer(request).await.into());
        }
        Err(no_route(&head.uri))
    }

    /// The sender of a request, who may do what it asks.
    fn viewer(
        &self,
        access: Option<Access>,
        head: &Parts,
        peer: SocketAddr,
        record: &mut Record<'_>,
    ) -> Result<Arc<Viewer>, Rejection> {
        if matches!(access, Some(Access::Health | Access::Peer)) {
            return Ok(Arc::new(Viewer::everyone()));
        }
        let viewer = self.doorkeeper.viewer(&head.headers, peer).ok_or(Rejection::NoCredential)?;
        record.note(|record| record.who.clone_from(&viewer.name));
        match access.and_then(|access| viewer.lacks(access, &head.method)) {
            Some(scope) => Err(Rejection::NotAllowed { name: viewer.name.clone(), scope: scope.name() }),
            None => Ok(viewer),
        }
    }

    /// Logs a rejection for which the store or the server is at fault.
    fn log(&self, rejection: &Rejection, peer: SocketAddr, path: &'static str) {
        if rejection.is_overload() {
            if let Some(suppressed) = self.overloads.is_due(self.backend.clock.instant()) {
                tracing::warn!(%peer, path, suppressed, error = %Excerpt(rejection),
                    "a request found no memory; logging this once a minute");
            }
        } else if rejection.status().is_server_error()
            && !matches!(rejection, Rejection::Cancelled)
            && let Some(suppressed) = self.failures.is_due(self.backend.clock.instant())
        {
            tracing::error!(%peer, path, suppressed, error = %Excerpt(rejection),
                    "a request failed; logging such failures once a minute");
        }
    }
}

fn query_memory(limits: &Limits) -> MemoryBudget {
    let what = "the bytes of memory that the query needs are";
    MemoryBudget::new(limits.memory, limits.memory_wait, what, "query.memory")
}

fn answer_memory(limits: &Limits) -> MemoryBudget {
    let what = "the bytes of memory that the answer needs are";
    MemoryBudget::new(limits.answer_memory, limits.memory_wait, what, "http.answer_memory")
}

impl Paths {
    /// Refuses a path that this listener does not answer. Where senders have credentials, those who may delete metrics do so at
    /// both addresses.
    fn check(self, access: Option<Access>, head: &Parts, has_credentials: bool) -> Result<(), Rejection> {
        if access == Some(Access::Delete) {
            return match self {
                Paths::Graphite if !has_credentials => Err(Rejection::DeletionElsewhere(head.uri.path().to_owned())),
                _ => Ok(()),
            };
        }
        let is_administration = access.is_some_and(Access::is_administration);
        let path = || head.uri.path().to_owned();
        match self {
            Paths::Graphite if is_administration => Err(Rejection::Administration(path())),
            Paths::Administration if !is_administration => Err(Rejection::OnlyAdministration(path())),
            _ => Ok(()),
        }
    }
}

/// The API as one listener answers it.
struct Door {
    api: Arc<Api>,
    paths: Paths,
}

impl Handle for Door {
    fn unreadable(&self) {
        self.api.backend.observer.unreadable();
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Response {
        let Api { backend, .. } = &*self.api;
        let started = backend.clock.instant();
        let (head, incoming) = request.into_parts();
        // Pages of other origins have no business with administration.
        let origin = backend.browsers.allowed_origin(&head.headers).filter(|_| self.paths != Paths::Administration);
        let (body, unread) = RequestBody::new(incoming, BodyPace::new(&backend.limits), &head);
        // The connection drops this future when the client disconnects.
        let recording = Recording::begin(&backend.observer, &backend.clock, &head, peer);
        let mut record = Record { observer: &*backend.observer, path: "other", answered: false, recording };
        let mut reply: Reply = match backend.browsers.preflight(&head) {
            Some(response) => response.into(),
            None => {
                let answer = self.api.answer(self.paths, head, body, peer, &mut record).await;
                answer.unwrap_or_else(|rejection| {
                    self.api.log(&rejection, peer, record.path);
                    record.note(|record| record.limit = rejection.limit());
                    rejection.response().into()
                })
            }
        };
        backend.browsers.protect(reply.response.headers_mut(), origin);
        if self.api.doorkeeper.asks() {
            reply.response.headers_mut().append(header::VARY, header::HeaderValue::from_static("Authorization"));
        }
        // A client that has sent too slowly is not waited for again.
        if !reply.response.status().is_success() && reply.response.status() != StatusCode::REQUEST_TIMEOUT {
            unread.discard().await;
        }
        record.answered = true;
        backend.observer.answered(&Answered {
            path: record.path,
            status: reply.response.status().as_u16(),
            duration: backend.clock.instant().saturating_duration_since(started),
            series: reply.series,
            points: reply.points,
        });
        record.note(|record| (record.series, record.points) = (reply.series, reply.points));
        match record.recording.take() {
            Some(mut recording) => {
                recording.note(|recorded| recorded.kind = record.path);
                recording.follow(reply.response)
            }
            None => reply.response,
        }
    }
}

/// An observer without the count of connections, which is that of the other listener.
struct Uncounted(Arc<dyn Observer>);

impl Observer for Uncounted {
    fn answered(&self, answered: &Answered) {
        self.0.answered(answered);
    }

    fn cancelled(&self, path: &'static str) {
        self.0.cancelled(path);
    }

    fn connections(&self, _: usize) {}

    fn accept_failed(&self) {
        self.0.accept_failed();
    }

    fn made_room(&self) {
        self.0.made_room();
    }

    fn unreadable(&self) {
        self.0.unreadable();
    }

    fn refused(&self) {
        self.0.refused();
    }

    fn wants_records(&self) -> bool {
        self.0.wants_records()
    }

    fn recorded(&self, record: &RequestRecord) {
        self.0.recorded(record);
    }
}

/// Reports a request as cancelled when dropped before the answer.
struct Record<'a> {
    observer: &'a dyn Observer,
    path: &'static str,
    answered: bool,
    /// For the program's logs of requests, if they are wanted.
    recording: Option<Recording>,
}

impl Record<'_> {
    fn note(&mut self, add: impl FnOnce(&mut RequestRecord)) {
        if let Some(recording) = &mut self.recording {
            recording.note(add);
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.observer.cancelled(self.path);
            let kind = self.path;
            self.note(|record| record.kind = kind);
        }
    }
}
