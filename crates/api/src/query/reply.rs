//! The result of a handler.

use hyper::{
    StatusCode,
    header::{HeaderName, HeaderValue},
};

use crate::http::{Body, Response, short};

/// Names the nodes whose points in memory are not in an answer. Only where there are some.
const MISSING_PEERS: HeaderName = HeaderName::from_static("x-plumbago-missing-peers");

/// The answer to a query, with its cost for metrics.
pub(crate) struct Reply {
    /// The answer.
    pub response: Response,
    /// Number of series read.
    pub series: u64,
    /// Number of points read.
    pub points: u64,
}

impl Reply {
    /// Names nodes whose points in memory are not in the answer.
    pub fn name_missing(&mut self, peers: &[String]) {
        if let Some(peers) = (!peers.is_empty()).then(|| HeaderValue::try_from(peers.join(", ")).ok()).flatten() {
            self.response.headers_mut().insert(MISSING_PEERS, peers);
        }
    }

    /// A short JSON answer.
    pub fn json(status: StatusCode, text: impl Into<Body>) -> Reply {
        Reply::short(status, "application/json", text)
    }

    /// A short answer.
    pub fn short(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Reply {
        short(status, content_type, body).into()
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply { response, series: 0, points: 0 }
    }
}
