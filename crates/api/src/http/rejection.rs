//! Rejected requests: the reasons, their messages and their HTTP statuses.

use std::fmt::{self, Write as _};

use hyper::{StatusCode, header};

use metadata::FindError;

use super::body::{Body, BodyError, Response};

/// Bytes of a message, at most.
const MESSAGE_BYTES: usize = 16 << 10;

/// Why the server rejects a request. The store or the server is at fault for the last four, the client for the others.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejection {
    /// An invalid parameter, target or function argument: graphite-web's `InputParameterError`.
    #[error("Invalid parameters ({message}){context}")]
    Parameters {
        /// The reason, in graphite-web's words where it has some.
        message: String,
        /// `; targets: "…"; source: "…"; func: "…"`, or nothing.
        context: String,
    },
    /// A request that is invalid in another way; the full message.
    #[error("{0}")]
    Request(String),
    /// A request larger than its limit.
    #[error("{what} {given}, but at most {limit} are allowed: {}; {setting} raises this", narrower(setting))]
    TooMuch {
        /// The beginning of the sentence, up to the amount.
        what: &'static str,
        /// The amount when counting stopped.
        given: String,
        /// The limit.
        limit: usize,
        /// The setting that raises it.
        setting: &'static str,
    },
    /// A query that takes too much work; the full message.
    #[error("{0}")]
    TooHard(String),
    /// A query that exceeded its timeout.
    #[error("the query took longer than {0} seconds; ask for less, or raise query.timeout")]
    TooSlow(f64),
    /// The queue of queries is full.
    #[error(
        "{0} queries are running and the queue is full; try again, or raise http.max_concurrent_queries or \
         http.max_queued_queries"
    )]
    Busy(usize),
    /// A credential has as many queries under way as it may have.
    #[error("{name} has {limit} queries under way, as many as it may have; try again when one is done")]
    TooManyQueries {
        /// The credential's name.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// The memory for queries or for answers is spent.
    #[error("the server's memory for this {}; try again, ask for less, or raise {setting}", spent(*seconds))]
    NoMemory {
        /// How long the request waited for it; 0 where all that have some wait for more, so that a wait has no end.
        seconds: f64,
        /// The setting that raises it.
        setting: &'static str,
    },
    /// Others waited for the memory that a body held which was still coming.
    #[error(
        "the server's memory for this was spent while the body was coming, and other queries waited for it; send the body \
         again, faster or smaller, or raise {setting}"
    )]
    GaveWay {
        /// The setting that raises it.
        setting: &'static str,
    },
    /// The client is gone, or the time of the query is over. No client reads this.
    #[error("the request was cancelled")]
    Cancelled,
    /// Reading the body failed.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The path is unknown.
    #[error(
        "unknown path {0}; the server has /render, /metrics/find, /metrics/expand, /metrics/index.json, \
         /metrics/list, /metrics/details, /info, /functions, /tags, /events, /version and the start page /"
    )]
    NoSuchPath(String),
    /// The path is answered at another address.
    #[error("{0} is answered at the address of administration (listen.admin)")]
    Administration(String),
    /// Metrics are deleted at another address.
    #[error(
        "{0} deletes metrics, so that without tokens only the address of administration (listen.admin) answers it; here it \
         needs http.tokens and a token with the scope delete"
    )]
    DeletionElsewhere(String),
    /// The path is not one of administration.
    #[error("unknown path {0}; this address has /metrics, /healthy, /ready and /admin/… alone")]
    OnlyAdministration(String),
    /// The request names a host that this server does not have.
    #[error(
        "'{0}' is not a name of this server; if it is, add it to http.hosts. Web pages could otherwise read this server \
         by a name of their own"
    )]
    ForeignHost(String),
    /// No valid credential.
    #[error(
        "this server asks for a token: send it as 'Authorization: Bearer TOKEN', or as a password with any user name"
    )]
    NoCredential,
    /// A valid credential that does not allow this.
    #[error("{name} does not have the scope '{scope}', which this request needs")]
    NotAllowed {
        /// The credential's name.
        name: String,
        /// The scope.
        scope: &'static str,
    },
    /// More headers than a client has use for.
    #[error("the request has {given} headers; at most {limit} are allowed")]
    TooManyHeaders {
        /// The headers of the request.
        given: usize,
        /// The limit.
        limit: usize,
    },
    /// A page of another site sends a write.
    #[error("a page of another site may not write here")]
    CrossSite,
    /// The metric is unknown.
    #[error("unknown metric {0}")]
    NoSuchMetric(String),
    /// The path does not have this method.
    #[error("{path} supports only {allow}")]
    Method {
        /// The path.
        path: String,
        /// Its methods.
        allow: &'static str,
    },
    /// A body that is packed.
    #[error("the body has the Content-Encoding '{0}'; send it as it is: only /ingest takes packed bodies")]
    Packed(String),
    /// An unsupported format; the full message.
    #[error("{0}")]
    Format(String),
    /// Reading names from the store failed.
    #[error("cannot read names: {0}")]
    Names(String),
    /// Reading points from the store failed.
    #[error("the store could not be read: {0}")]
    Store(#[from] store::FetchError),
    /// Reading or storing events failed.
    #[error("cannot access the store of events: {0}")]
    Events(#[from] store::StoreError),
    /// A bug: a task of the server failed.
    #[error("the query failed inside the server; this is a bug, please report it")]
    Broken,
}

impl From<FindError> for Rejection {
    fn from(error: FindError) -> Rejection {
        match error {
            FindError::TooManyNodes { limit } => Rejection::TooMuch {
                what: "the names that match are",
                given: format!("more than {limit}"),
                limit,
                setting: "query.max_find_results",
            },
            FindError::TooMuchWork | FindError::TooManyTagged { .. } | FindError::TooManyRows(_) => {
                Rejection::TooHard(error.to_string())
            }
            FindError::Cancelled => Rejection::Cancelled,
            FindError::Elsewhere(problem) => Rejection::Names(problem),
            other => Rejection::parameters(other.to_string()),
        }
    }
}

/// How the user stays within the limit of a setting.
fn narrower(setting: &str) -> &'static str {
    match setting {
        "query.max_series" => "make the targets match fewer series",
        "query.max_points" => "ask for a shorter time or for fewer series",
        "query.max_find_results" => "make the pattern match fewer names",
        "query.max_target_bytes" => "ask for less at a time",
        "query.memory" => "ask for a shorter time or for fewer series",
        _ => "ask for a shorter time, for fewer series or names, or for less at a time",
    }
}

/// What is wrong with memory that a request has waited for.
fn spent(seconds: f64) -> String {
    if seconds == 0.0 {
        return "is spent, and all work that has some waits for more".to_owned();
    }
    format!("was spent for {} seconds", (seconds * 10.0).round() / 10.0)
}

impl Rejection {
    /// An invalid parameter, without context.
    pub fn parameters(message: impl Into<String>) -> Rejection {
        Rejection::Parameters { message: message.into(), context: String::new() }
    }

    /// Whether the server has too much to do.
    pub fn is_overload(&self) -> bool {
        matches!(self, Rejection::NoMemory { .. } | Rejection::GaveWay { .. })
    }

    /// The setting of the limit that was met, if it was one.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            Rejection::TooMuch { setting, .. }
            | Rejection::NoMemory { setting, .. }
            | Rejection::GaveWay { setting }
            | Rejection::Body(BodyError::TooLarge { setting, .. }) => Some(setting),
            Rejection::TooSlow(_) => Some("query.timeout"),
            Rejection::Busy(_) => Some("http.max_queued_queries"),
            Rejection::TooManyQueries { .. } => Some("queries of the token"),
            Rejection::TooHard(_) => Some("the work of a query"),
            Rejection::Body(BodyError::TooSlow(_)) => Some("http.min_rate"),
            _ => None,
        }
    }

    /// An answer longer than `query.max_response_bytes`.
    pub fn response_too_large(given: String, limit: usize) -> Rejection {
        let (what, setting) = ("the bytes of the answer are", "query.max_response_bytes");
        Rejection::TooMuch { what, given, limit, setting }
    }

    /// The HTTP status: below 500 for everything that the client can correct.
    pub fn status(&self) -> StatusCode {
        match self {
            Rejection::Parameters { .. } | Rejection::Request(_) | Rejection::Format(_) => StatusCode::BAD_REQUEST,
            Rejection::TooMuch { .. } | Rejection::TooHard(_) | Rejection::TooSlow(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Rejection::Busy(_) | Rejection::TooManyQueries { .. } => StatusCode::TOO_MANY_REQUESTS,
            Rejection::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Rejection::Body(BodyError::TooSlow(_)) => StatusCode::REQUEST_TIMEOUT,
            Rejection::Body(BodyError::Broken(_)) => StatusCode::BAD_REQUEST,
            Rejection::NoSuchPath(_)
            | Rejection::NoSuchMetric(_)
            | Rejection::Administration(_)
            | Rejection::DeletionElsewhere(_)
            | Rejection::OnlyAdministration(_) => StatusCode::NOT_FOUND,
            Rejection::ForeignHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Rejection::CrossSite | Rejection::NotAllowed { .. } => StatusCode::FORBIDDEN,
            Rejection::NoCredential => StatusCode::UNAUTHORIZED,
            Rejection::TooManyHeaders { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Rejection::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Rejection::Store(_)
            | Rejection::Names(_)
            | Rejection::Events(_)
            | Rejection::NoMemory { .. }
            | Rejection::GaveWay { .. }
            | Rejection::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            Rejection::Packed(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Rejection::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The message. What it quotes of a request is cut where the message would be longer than [`MESSAGE_BYTES`]: no
    /// budget of memory counts it.
    fn text(&self) -> String {
        let mut text = Shortened(String::new());
        // It ends with an error where the text is cut.
        let _ = write!(text, "{self}");
        text.0
    }

    /// The answer. Plain text, where graphite-web sends HTML: the text quotes the request, and a browser must not read
    /// the quotation as markup.
    pub fn response(&self) -> Response {
        let mut text = self.text();
        // graphite-web's messages have no line end, and clients show them as they are.
        if !matches!(self, Rejection::Parameters { .. } | Rejection::Format(_)) {
            text.push('\n');
        }
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
        match self {
            Rejection::Method { allow, .. } => {
                headers.insert(header::ALLOW, header::HeaderValue::from_static(allow));
            }
            Rejection::NoCredential => {
                let challenge = header::HeaderValue::from_static("Basic realm=\"plumbago\", charset=\"UTF-8\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            Rejection::Busy(_) | Rejection::TooManyQueries { .. } | Rejection::NoMemory { .. } => {
                headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            }
            Rejection::GaveWay { .. } => {
                headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
                headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            // The unread rest of a body must not count as the next request.
            Rejection::Body(_) => {
                headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// A text of at most [`MESSAGE_BYTES`], and `…` where it was longer.
struct Shortened(String);

impl fmt::Write for Shortened {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MESSAGE_BYTES - self.0.len();
        if more.len() <= room {
            self.0.push_str(more);
            return Ok(());
        }
        let end = (0..=room).rev().find(|&end| more.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(&more[..end]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_quote_a_request_without_end() {
        assert_eq!(Rejection::NoSuchMetric("a.b".to_owned()).text(), "unknown metric a.b");
        let long = Rejection::NoSuchMetric("é".repeat(1 << 20)).text();
        assert!(long.starts_with("unknown metric éé") && long.ends_with("é…"), "{}", long.len());
        assert!(MESSAGE_BYTES <= long.len() && long.len() < MESSAGE_BYTES + 3, "{}", long.len());
    }
}
