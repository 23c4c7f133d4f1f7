//! The front door: serves a listener, and observes each request.

use std::{future::Future, net::SocketAddr, sync::Arc};

use host::Clock;
use hyper::{Request, body::Incoming, http::request::Parts};
use tokio::net::TcpListener;

use crate::{
    http::{
        Answered, Extension, ExtensionRequest, FailureLog, Handle, Limits, Observer, Rejection, RequestBody, Response,
        serve,
    },
    query::{Activity, Backend, QueryTurns, Reply},
    router::{Route, no_route},
};

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

/// Graphite over HTTP.
pub struct Api {
    backend: Arc<Backend>,
    extension: Arc<dyn Extension>,
    failures: FailureLog,
}

impl Api {
    /// An API over names and points. [`Api::serve`] answers requests.
    pub fn new(options: ApiOptions) -> Arc<Api> {
        let ApiOptions { registry, finder, series, events, limits, clock, time_zone, about, extension, observer } =
            options;
        let turns = QueryTurns::new(&limits);
        let backend = Backend { registry, finder, series, events, limits, clock, time_zone, about, observer, turns };
        Arc::new(Api { backend: Arc::new(backend), extension, failures: FailureLog::default() })
    }

    /// The number of unfinished queries, for gauges.
    pub fn activity(&self) -> Activity {
        self.backend.turns.activity()
    }

    /// Serves a listener until `shutdown` resolves. Then it stops accepting, closes idle connections, and gives
    /// unfinished answers ten seconds.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
        let backend = self.backend.clone();
        serve(listener, &backend.limits, &*backend.observer, self, shutdown).await;
    }

    /// Answers a request; the label is its kind.
    async fn answer(
        &self,
        head: Parts,
        body: RequestBody,
        peer: SocketAddr,
        label: &mut &'static str,
    ) -> Result<Reply, Rejection> {
        if let Some(route) = Route::of(&head.method, &head.uri) {
            *label = route.label;
            let limit = self.backend.limits.query;
            let answer = tokio::time::timeout(limit, route.answer(&self.backend, head, body)).await;
            return answer.unwrap_or_else(|_| Err(Rejection::TooSlow(limit.as_secs_f64())));
        }
        if self.extension.claims(&head.method, &head.uri) {
            *label = "extension";
            let Parts { method, uri, headers, .. } = head;
            let request = ExtensionRequest { method, uri, headers, peer, body };
            return Ok(self.extension.answer(request).await.into());
        }
        Err(no_route(&head.uri))
    }

    /// Logs a rejection for which the store or the server is at fault.
    fn log(&self, rejection: &Rejection, peer: SocketAddr, path: &'static str) {
        if rejection.is_store_failure() {
            if let Some(suppressed) = self.failures.is_due(self.backend.clock.instant()) {
                tracing::error!(%peer, path, suppressed, error = %rejection,
                    "a request failed; logging such failures once a minute");
            }
        } else if rejection.status().is_server_error() {
            tracing::error!(%peer, path, error = %rejection, "a request failed");
        }
    }
}

impl Handle for Api {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: SocketAddr) -> Response {
        let started = self.backend.clock.instant();
        let (head, incoming) = request.into_parts();
        let body = RequestBody::new(incoming, self.backend.limits.idle);
        // The connection drops this future when the client disconnects.
        let mut record = Record { observer: &*self.backend.observer, path: "other", answered: false };
        let reply = self.answer(head, body, peer, &mut record.path).await.unwrap_or_else(|rejection| {
            self.log(&rejection, peer, record.path);
            rejection.response().into()
        });
        record.answered = true;
        self.backend.observer.answered(&Answered {
            path: record.path,
            status: reply.response.status().as_u16(),
            duration: self.backend.clock.instant().saturating_duration_since(started),
            series: reply.series,
            points: reply.points,
        });
        reply.response
    }
}

/// Reports a request as cancelled when dropped before the answer.
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
