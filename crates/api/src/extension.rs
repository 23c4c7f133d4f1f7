//! What the program adds to the port that is not Graphite's.

use std::{future::Future, net::SocketAddr, pin::Pin};

use hyper::{HeaderMap, Method, Uri};

use crate::{RequestBody, Response};

/// A request that is none of Graphite's.
pub struct ExtensionRequest {
    /// `GET`, `POST`, …
    pub method: Method,
    /// Path and query string, as sent.
    pub uri: Uri,
    /// Headers, as sent.
    pub headers: HeaderMap,
    /// Who asks.
    pub peer: SocketAddr,
    /// The body, not read yet.
    pub body: RequestBody,
}

/// What answers an [`ExtensionRequest`]. It is dropped when the client goes away.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Paths that the program serves beside Graphite's: its own metrics, health, ingestion.
///
/// It is asked for every path that Graphite's API does not have, and for `GET /metrics` without a
/// `query`: with one, that path is graphite-web's second name for find.
pub trait Extension: Send + Sync + 'static {
    /// Whether [`Extension::answer`] is to answer this.
    fn claims(&self, method: &Method, uri: &Uri) -> bool;

    /// Answers a request that was claimed.
    fn answer(&self, request: ExtensionRequest) -> Answer;
}

/// Claims nothing.
impl Extension for () {
    fn claims(&self, _: &Method, _: &Uri) -> bool {
        false
    }

    fn answer(&self, _: ExtensionRequest) -> Answer {
        unreachable!("nothing is claimed")
    }
}
