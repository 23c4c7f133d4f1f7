//! Why a request is not answered, and how that is said.

use hyper::{StatusCode, header};

use crate::{Body, BodyError, Response};

/// A request that gets no answer. Nothing here is our fault but the last three.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A parameter, target or function argument that cannot be: graphite-web's `InputParameterError`.
    #[error("Invalid parameters ({message}){context}")]
    Parameters {
        /// What is wrong, in graphite-web's words where it has some.
        message: String,
        /// `; targets: "…"; source: "…"; func: "…"`, or nothing.
        context: String,
    },
    /// A request that is wrong in another way, in full.
    #[error("{0}")]
    Request(String),
    /// A request larger than its limit.
    #[error("{what} {given}, but at most {limit} are allowed: {}; {setting} raises this", narrower(setting))]
    TooMuch {
        /// What there is too much of, as the beginning of the sentence.
        what: &'static str,
        /// How much was found before counting stopped.
        given: String,
        /// The bound.
        limit: usize,
        /// The setting that raises it.
        setting: &'static str,
    },
    /// A question that takes too long to answer, in full.
    #[error("{0}")]
    TooHard(String),
    /// A query that took too long.
    #[error("the query took longer than {0} seconds; ask for less, or raise query.timeout")]
    TooSlow(f64),
    /// No place in the queue.
    #[error(
        "{0} queries are at work and as many as may wait are waiting; try again, or raise \
         http.max_concurrent_queries or http.max_queued_queries"
    )]
    Busy(usize),
    /// The body could not be read.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// Nothing lives at this path.
    #[error(
        "there is nothing at {0}; there are /render, /metrics/find, /metrics/expand, /metrics/index.json, \
         /metrics/list, /metrics/details, /info, /functions, /tags, /events, /version and the start page /"
    )]
    NoSuchPath(String),
    /// No metric has the name.
    #[error("there is no metric {0}")]
    NoSuchMetric(String),
    /// Something lives here, but not for this method.
    #[error("{path} is there for {allow} only")]
    Method {
        /// The path.
        path: String,
        /// The methods it is there for.
        allow: &'static str,
    },
    /// A format that is not made here, in full.
    #[error("{0}")]
    Format(String),
    /// The store of the names could not answer.
    #[error("the names could not be read: {0}")]
    Names(String),
    /// The store could not answer.
    #[error("the store could not be read: {0}")]
    Store(#[from] store::FetchError),
    /// The store could not answer about events, or keep one.
    #[error("the store of events failed: {0}")]
    Events(#[from] store::StoreError),
    /// A part of the program failed.
    #[error("the query failed inside the server; this is a bug, please report it")]
    Broken,
}

/// What a user can do about the limit of a setting.
fn narrower(setting: &str) -> &'static str {
    match setting {
        "query.max_series" => "make the targets match less",
        "query.max_points" => "ask for a shorter time or for fewer series",
        "query.max_find_results" => "make the pattern match less",
        "query.max_target_bytes" => "ask for less at a time",
        _ => "ask for a shorter time, for fewer series or names, or for less at a time",
    }
}

impl Refusal {
    /// A bad parameter, without context.
    pub fn parameters(message: impl Into<String>) -> Refusal {
        Refusal::Parameters { message: message.into(), context: String::new() }
    }

    /// Whether the store is to blame.
    pub fn is_of_the_store(&self) -> bool {
        matches!(self, Refusal::Store(_) | Refusal::Names(_) | Refusal::Events(_))
    }

    /// The status that goes with it: below 500 for everything a user can mend.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Parameters { .. } | Refusal::Request(_) | Refusal::Format(_) => StatusCode::BAD_REQUEST,
            Refusal::TooMuch { .. } | Refusal::TooHard(_) | Refusal::TooSlow(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Body(BodyError::TooSlow(_)) => StatusCode::REQUEST_TIMEOUT,
            Refusal::Body(BodyError::Broken(_)) => StatusCode::BAD_REQUEST,
            Refusal::NoSuchPath(_) | Refusal::NoSuchMetric(_) => StatusCode::NOT_FOUND,
            Refusal::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Store(_) | Refusal::Names(_) | Refusal::Events(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The answer that says it. Plain text, where graphite-web sends HTML: the text quotes the request,
    /// and a browser must not take a quotation for markup.
    pub fn response(&self) -> Response {
        let mut text = self.to_string();
        // graphite-web's messages have no line end, and clients show them as they are.
        if !matches!(self, Refusal::Parameters { .. } | Refusal::Format(_)) {
            text.push('\n');
        }
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
        match self {
            Refusal::Method { allow, .. } => {
                headers.insert(header::ALLOW, header::HeaderValue::from_static(allow));
            }
            Refusal::Busy(_) => {
                headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            }
            // What is left of a body that was not read must not be taken for the next request.
            Refusal::Body(_) => {
                headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
