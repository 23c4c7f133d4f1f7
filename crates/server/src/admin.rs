//! What the HTTP port serves beside Graphite: points by POST, metrics, health, administration.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use api::{Answer, Body, Extension, ExtensionRequest, Response};
use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use ingest::{
    FlushError, Ingest,
    receivers::{BodyFormat, take_body},
};
use serde_json::{Value, json};

use crate::{cluster::Link, metrics::Metrics, unread_names::NamesRead};

/// Answers what is not Graphite's.
pub struct Admin {
    /// The pipeline.
    pub ingest: Arc<Ingest>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whether the start has ended and the stop has not begun.
    pub is_ready: Arc<AtomicBool>,
    /// Where points are in Cassandra: the connection.
    pub link: Option<Arc<Link>>,
    /// Where the names are in shared tables and globs are answered here: whether they were read.
    pub names: Option<Arc<NamesRead>>,
    /// Bytes of a body of points, before and after gzip is undone.
    pub body_limit: usize,
}

/// How long a flush waits for a store that takes nothing. While it takes points, a flush takes as long as it takes.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Paths and their methods.
const PATHS: [(&str, &str); 7] = [
    ("GET", "/metrics"),
    ("GET", "/ready"),
    ("GET", "/healthy"),
    ("GET", "/admin/status"),
    ("GET", "/admin/rejects"),
    ("POST", "/admin/flush"),
    ("POST", "/ingest"),
];

impl Extension for Admin {
    fn claims(&self, _: &Method, uri: &Uri) -> bool {
        let path = trimmed(uri);
        PATHS.iter().any(|(_, known)| *known == path)
    }

    fn answer(&self, request: ExtensionRequest) -> Answer {
        let path = trimmed(&request.uri).to_owned();
        let is_head = request.method == Method::HEAD;
        let method = if is_head { "GET" } else { request.method.as_str() };
        if !PATHS.contains(&(method, &path)) {
            let text = format!("{path} does not take {}\n", request.method);
            return Box::pin(async move { plain(StatusCode::METHOD_NOT_ALLOWED, text) });
        }
        match path.as_str() {
            "/metrics" => {
                let text = self.metrics.text();
                Box::pin(async move { answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text) })
            }
            "/healthy" => Box::pin(async { plain(StatusCode::OK, "healthy\n".to_owned()) }),
            "/ready" => {
                let response = self.ready();
                Box::pin(async { response })
            }
            "/admin/status" => {
                let response = json_answer(StatusCode::OK, &self.status());
                Box::pin(async { response })
            }
            "/admin/rejects" => {
                let response = json_answer(StatusCode::OK, &self.rejects());
                Box::pin(async { response })
            }
            "/admin/flush" => Box::pin(flush(self.ingest.clone())),
            _ => Box::pin(take_points(self.ingest.clone(), request, self.body_limit)),
        }
    }
}

fn trimmed(uri: &Uri) -> &str {
    let path = uri.path();
    path.strip_suffix('/').unwrap_or(path)
}

impl Admin {
    fn ready(&self) -> Response {
        if !self.is_ready.load(Relaxed) {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "starting or stopping\n".to_owned());
        }
        if self.names.as_ref().is_some_and(|names| !names.are_read()) {
            let why = self.away().map(|why| format!(": {why}")).unwrap_or_default();
            let text = format!("points are accepted, but the names in Cassandra have not been read yet{why}\n");
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        let counts = self.ingest.counters();
        if counts.journal_failing {
            let text = "the journal cannot be written, so no points are accepted; is the disk full?\n";
            return plain(StatusCode::SERVICE_UNAVAILABLE, text.to_owned());
        }
        let Some(why) = counts.store_problem.filter(|_| counts.store_failing) else {
            let text = match self.away() {
                Some(why) => format!("ready, but {why}; points are accepted, and what is in memory is served\n"),
                None => "ready\n".to_owned(),
            };
            return plain(StatusCode::OK, text);
        };
        // It does what it can do; another instance, or a restart, could do no more.
        let does =
            if counts.stalled { "senders wait, because memory or the journal is full" } else { "points are accepted" };
        let text = format!("ready, but the store takes no points: {why}; {does}, and what is in memory is served\n");
        plain(StatusCode::OK, text)
    }

    /// Why Cassandra cannot be asked, where it should be.
    fn away(&self) -> Option<String> {
        self.link.as_ref()?.driver().err().map(|error| error.to_string())
    }

    fn status(&self) -> Value {
        let counts = self.ingest.counters();
        let flush = self.ingest.flush_progress();
        let points: serde_json::Map<String, Value> =
            counts.points.iter().map(|(protocol, points)| (protocol.name().to_owned(), (*points).into())).collect();
        let rejected: serde_json::Map<String, Value> = counts
            .rejects
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.name().to_owned(), (*count).into()))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "metrics": self.ingest.registry().len(),
            "points": points,
            "rejected": rejected,
            "held_slots": counts.held_slots,
            "journal_bytes": counts.journal_bytes,
            "journal_failing": counts.journal_failing,
            "stalled": counts.stalled,
            "stalled_seconds": counts.stalled_seconds,
            "flush_cycles": counts.cycles,
            "parked_points": counts.parked_points,
            "store_failing": counts.store_failing,
            "store_problem": counts.store_problem,
            "flush": {
                "waiting": flush.waiting,
                "metrics": flush.metrics,
                "metrics_done": flush.metrics_done,
            },
        })
    }

    fn rejects(&self) -> Value {
        let example = |example: &ingest::RejectExample| {
            json!({
                "time": example.time,
                "protocol": example.protocol.name(),
                "reason": example.reason.name(),
                "why": example.reason.to_string(),
                "sample": String::from_utf8_lossy(&example.sample),
            })
        };
        self.ingest.rejects().iter().map(example).collect()
    }
}

/// Writes out everything that is held; answers when it is durable in the store, or when the store has taken nothing for
/// [`FLUSH_PATIENCE`].
async fn flush(ingest: Arc<Ingest>) -> Response {
    // Goes on when the client does not wait: a cycle that is cut off would be done again for nothing.
    match tokio::spawn(async move { ingest.flush_patiently(FLUSH_PATIENCE).await }).await {
        Ok(Ok(())) => json_answer(StatusCode::OK, &json!({"flushed": true})),
        Ok(Err(error @ FlushError::Store { held_points, parked_points, .. })) => {
            let said = json!({"error": error.to_string(), "held_points": held_points, "parked_points": parked_points});
            json_answer(StatusCode::SERVICE_UNAVAILABLE, &said)
        }
        Ok(Err(error)) => json_answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error.to_string()})),
        Err(error) => json_answer(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": error.to_string()})),
    }
}

async fn take_points(ingest: Arc<Ingest>, request: ExtensionRequest, limit: usize) -> Response {
    let format = body_format(&request.headers);
    let is_gzip =
        request.headers.get(CONTENT_ENCODING).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let body = match request.body.read(limit, "receive.max_body").await {
        Ok(body) => body,
        Err(error @ api::BodyError::TooLarge { .. }) => {
            return json_answer(StatusCode::PAYLOAD_TOO_LARGE, &json!({"error": error.to_string()}));
        }
        Err(error) => return json_answer(StatusCode::BAD_REQUEST, &json!({"error": error.to_string()})),
    };
    let unpacked = if is_gzip { unpacked(&body, limit) } else { Ok(None) };
    let unpacked = match unpacked {
        Ok(unpacked) => unpacked,
        Err(error) => return json_answer(StatusCode::BAD_REQUEST, &json!({"error": error})),
    };
    let bytes = unpacked.as_deref().unwrap_or(&body);
    let (points, refused) = take_body(&ingest, format, bytes).await;
    json_answer(StatusCode::OK, &json!({"points": points, "refused": refused}))
}

/// go-carbon's choice by content type; anything else is lines.
fn body_format(headers: &HeaderMap) -> BodyFormat {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
        "application/python-pickle" | "application/pickle" => BodyFormat::Pickle,
        "application/protobuf" | "application/x-protobuf" => BodyFormat::Protobuf,
        _ => BodyFormat::Lines,
    }
}

fn unpacked(body: &[u8], limit: usize) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let mut unpacking = flate2::read::MultiGzDecoder::new(body).take(limit as u64 + 1);
    unpacking.read_to_end(&mut bytes).map_err(|error| format!("the body is not gzip: {error}"))?;
    if bytes.len() > limit {
        return Err(format!("the body is larger than {limit} bytes when unpacked; receive.max_body raises this"));
    }
    Ok(Some(bytes))
}

fn answer(status: StatusCode, kind: &str, text: String) -> Response {
    let response = hyper::Response::builder().status(status).header(CONTENT_TYPE, kind);
    response.body(Body::from(text)).expect("the parts of an answer are ours")
}

fn plain(status: StatusCode, text: String) -> Response {
    answer(status, "text/plain; charset=utf-8", text)
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    answer(status, "application/json", format!("{value}\n"))
}
