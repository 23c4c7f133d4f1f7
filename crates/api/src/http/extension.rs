//! Paths that the program adds to Graphite's.

use std::{future::Future, net::SocketAddr, pin::Pin};

use hyper::{HeaderMap, Method, Uri};

use super::body::{RequestBody, Response};

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
    /// The body, not read yet.
    pub body: RequestBody,
}

/// The pending answer to an [`ExtensionRequest`]. The server drops the future when the client disconnects.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Paths that the program serves in addition to Graphite's: its own metrics, health, ingestion.
///
/// The server asks the extension about every path that is not Graphite's, and about `GET /metrics` without a `query`.
/// With a `query`, that path is graphite-web's second name for find.
pub trait Extension: Send + Sync + 'static {
    /// Whether [`Extension::answer`] answers this request.
    fn claims(&self, method: &Method, uri: &Uri) -> bool;

    /// Answers a request that [`Extension::claims`] accepted.
    fn answer(&self, request: ExtensionRequest) -> Answer;
}

/// An extension without paths.
impl Extension for () {
    fn claims(&self, _: &Method, _: &Uri) -> bool {
        false
    }

    fn answer(&self, _: ExtensionRequest) -> Answer {
        unreachable!("claims() is always false")
    }
}
