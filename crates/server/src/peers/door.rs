//! The path at which other nodes ask for the points in memory.

use std::{sync::Arc, time::Duration};

use api::{ExtensionRequest, Response};
use cluster::{GiveError, HeadGiver, MAX_REQUEST_BYTES};
use host::{Clock, MinuteLog};
use hyper::{StatusCode, header::CONTENT_TYPE};

use super::{request::SECRET, secret::PeerSecrets};

/// How long the body of a request may take. The node that asks does not wait for as long.
const BODY_WITHIN: Duration = Duration::from_secs(2);

/// Answers other nodes.
pub struct PeerDoor {
    /// Without secrets no node gets an answer.
    given: Option<(PeerSecrets, Arc<HeadGiver>)>,
    clock: Arc<dyn Clock>,
    refusals: MinuteLog,
}

impl PeerDoor {
    /// For nodes that show one of these secrets.
    pub fn new(given: Option<(PeerSecrets, Arc<HeadGiver>)>, clock: Arc<dyn Clock>) -> PeerDoor {
        PeerDoor { given, clock, refusals: MinuteLog::new() }
    }

    /// The points in memory that a node asks for.
    pub async fn answer(&self, request: ExtensionRequest) -> Response {
        let Some((secrets, giver)) = &self.given else {
            return text(StatusCode::FORBIDDEN, "this node has no peers.secret_file: it gives no points in memory");
        };
        // Before the body is read: that of another sender costs nothing.
        let shown = request.headers.get(SECRET).map(|secret| secret.as_bytes());
        if !shown.is_some_and(|shown| secrets.accepts(shown)) {
            giver.refuse();
            if let Some(suppressed) = self.refusals.is_due(self.clock.instant()) {
                let why = if shown.is_some() { "with another secret" } else { "without a secret" };
                tracing::warn!(peer = %request.peer, suppressed,
                    "a request for points in memory came {why} and was refused; peers.secret_file must be the same for all \
                     nodes. Logging this once a minute");
            }
            return text(
                StatusCode::FORBIDDEN,
                "the secret in x-plumbago-secret is not that of this node's peers.secret_file",
            );
        }
        let turn = giver.turn().await;
        let read = request.body.read(MAX_REQUEST_BYTES, "the program");
        let body = match tokio::time::timeout(BODY_WITHIN, read).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the body did not come within 2 s"),
        };
        match giver.give(turn, body).await {
            Ok(answer) => {
                let response = Response::new(answer.into());
                let (mut head, body) = response.into_parts();
                head.headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/octet-stream"));
                Response::from_parts(head, body)
            }
            Err(error) => {
                let status = match &error {
                    GiveError::Request(cluster::WireError::Version { .. }) => StatusCode::NOT_IMPLEMENTED,
                    GiveError::Request(_) => StatusCode::BAD_REQUEST,
                    GiveError::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
                    GiveError::Left => StatusCode::GONE,
                    GiveError::Broken => StatusCode::INTERNAL_SERVER_ERROR,
                };
                text(status, &error.to_string())
            }
        }
    }
}

fn text(status: StatusCode, text: &str) -> Response {
    let response = hyper::Response::builder().status(status).header(CONTENT_TYPE, "text/plain; charset=utf-8");
    response.body(format!("{text}\n").into()).expect("the parts of an answer are ours")
}
