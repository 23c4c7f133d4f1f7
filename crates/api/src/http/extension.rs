//! Paths that the program adds to Graphite's.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use hyper::{HeaderMap, Method, StatusCode, Uri};
use metadata::NameFilter;

use super::{
    body::{BodyError, RequestBody, Response},
    parameters::Parameters,
    rejection::Rejection,
};

/// A request to a path that is not Graphite's.
pub struct ExtensionRequest {
    /// `GET`, `POST`, …
    pub method: Method,
    /// Path and query string, as sent.
    pub uri: Uri,
    /// Headers, as sent.
    pub headers: HeaderMap,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Who sends it, as the credential says.
    pub sender: Sender,
    /// Whether the answer may be the call of a function: `http.jsonp`.
    pub allows_jsonp: bool,
    /// Where the handler says what is asked for.
    pub asked_for: AskedFor,
    /// The body, not read yet.
    pub body: RequestBody,
}

impl ExtensionRequest {
    /// The parameters: the query string's, then those of a form of at most `limit` bytes, URL-encoded or multipart. Longer bodies and those of
    /// other types are errors, with the status of the answer.
    pub async fn parameters(self, limit: usize) -> Result<Vec<(String, String)>, (StatusCode, String)> {
        let refused = |rejection: Rejection| (rejection.status(), rejection.to_string());
        let body = self.body.read(limit, "").await.map_err(|error| match error {
            BodyError::TooLarge { limit, .. } => {
                let text = format!(
                    "the body is larger than {limit} bytes, the most that a form has here; ask for less at a time"
                );
                (StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            error => refused(error.into()),
        })?;
        let read = Parameters::read_whole(self.uri.query(), &self.headers, body).await;
        read.map(Parameters::into_pairs).map_err(refused)
    }
}

/// What a request asks for, in words that only its handler knows: for its record.
#[derive(Debug, Clone, Default)]
pub struct AskedFor(Arc<OnceLock<Vec<String>>>);

impl AskedFor {
    /// Says it, once.
    pub fn set(&self, texts: Vec<String>) {
        // A second word about the same request adds nothing.
        _ = self.0.set(texts);
    }

    /// What was said.
    pub(crate) fn texts(&self) -> &[String] {
        self.0.get().map_or(&[], Vec::as_slice)
    }
}

/// The sender of a request, as its credential says.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The credential's name; empty where clients are not asked for one.
    pub name: String,
    /// The names that it sees; all without this.
    pub names: Option<Arc<dyn NameFilter>>,
    /// The names that it may write; all without this.
    pub writes: Option<Arc<dyn NameFilter>>,
    /// How much it may send.
    pub limits: SenderLimits,
}

/// How much the sender of a credential may send, over all its requests. The default limits nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderLimits {
    /// Points a second, and at once.
    pub points_per_second: Option<u64>,
    /// New metrics a minute.
    pub creations_per_minute: Option<u64>,
    /// Metrics among the names that it sees.
    pub max_metrics: Option<u64>,
    /// Queries at once.
    pub queries: Option<usize>,
    /// Bytes of memory for its queries.
    pub query_memory: Option<usize>,
    /// Events a minute.
    pub events_per_minute: Option<usize>,
}

/// What a request touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Whether the server works; nothing of its contents.
    Health,
    /// Names and points, to read.
    Read,
    /// Points, to store.
    Write,
    /// Events, to read or to store.
    Events,
    /// The server's own metrics, to read.
    Metrics,
    /// Metrics, to delete by their names.
    Delete,
    /// The server itself: its state, deletion, backups.
    Admin,
    /// What nodes over the same tables ask each other. The extension checks their secret; clients have no credential for it.
    Peer,
}

impl Access {
    /// Whether the request changes something.
    pub fn is_write(self, method: &Method) -> bool {
        match self {
            Access::Health | Access::Read | Access::Metrics | Access::Peer => false,
            Access::Write => true,
            Access::Events | Access::Delete | Access::Admin => method != Method::GET && method != Method::HEAD,
        }
    }

    /// Whether the path is one of administration, which may have an address of its own.
    pub fn is_administration(self) -> bool {
        matches!(self, Access::Health | Access::Metrics | Access::Admin)
    }
}

/// The pending answer to an [`ExtensionRequest`]. The server drops the future when the client disconnects.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Paths that the program serves in addition to Graphite's: its own metrics, health, ingestion.
///
/// The server asks the extension about every path that is not Graphite's, and about `GET /metrics` without a `query`.
/// With a `query`, that path is graphite-web's second name for find.
pub trait Extension: Send + Sync + 'static {
    /// What this request touches, if [`Extension::answer`] answers it.
    fn access(&self, method: &Method, uri: &Uri) -> Option<Access>;

    /// Answers a request of [`Extension::access`].
    fn answer(&self, request: ExtensionRequest) -> Answer;
}

/// An extension without paths.
impl Extension for () {
    fn access(&self, _: &Method, _: &Uri) -> Option<Access> {
        None
    }

    fn answer(&self, _: ExtensionRequest) -> Answer {
        unreachable!("access() is always None")
    }
}
