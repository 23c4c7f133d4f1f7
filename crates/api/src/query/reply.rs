//! The result of a handler.

use hyper::StatusCode;

use crate::http::{Body, Response, short};

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
