//! HTTP paths besides Graphite's: points by POST, metrics, health, administration.

use std::{sync::Arc, time::Duration};

use api::{Access, Answer, Body, Extension, ExtensionRequest, Response, TakenPoints};
use carbon::RejectReason;
use cluster::Peers;
use hyper::{Method, StatusCode, Uri, header::CONTENT_TYPE};
use ingest::{
    FlushError, Ingest,
    receivers::{ReceiveBudget, TakenBody},
};
use serde_json::{Map, Value, json};
use store::{DamageLog, Events, PointStore};
use store_embedded::EmbeddedDriver;

use crate::{
    asked::Asked,
    backups::{self, Backups},
    cardinality, clock, deletion,
    drain::Drain,
    event_deletion,
    health::Health,
    metrics::Metrics,
    peers::{self, PeerDoor},
    points_body,
    readiness::Readiness,
    status::StatusOf,
    tokens::TokenGates,
};

/// Answers paths that are not Graphite's.
pub struct Admin {
    /// The pipeline.
    pub ingest: Arc<Ingest>,
    /// Everything counted.
    pub metrics: Arc<Metrics>,
    /// Whether this node is ready.
    pub readiness: Arc<Readiness>,
    /// Liveness.
    pub health: Arc<Health>,
    /// The store.
    pub points: Arc<dyn PointStore>,
    /// Where events are kept.
    pub events: Arc<dyn Events>,
    /// The store in the data folder.
    pub embedded: Arc<EmbeddedDriver>,
    /// The damage found in the data folder.
    pub damage: DamageLog,
    /// Where backups are made.
    pub backups: Arc<Backups>,
    /// The memory that bodies of points share with receivers.
    pub budget: ReceiveBudget,
    /// Other nodes over the same tables.
    pub peers: Option<Arc<Peers>>,
    /// What answers them.
    pub peer_door: Option<Arc<PeerDoor>>,
    /// Bytes of a body of points, before and after gzip is undone.
    pub body_limit: usize,
    /// What tokens may write.
    pub gates: Arc<TokenGates>,
    /// Draining of this node, and the intake that it closes.
    pub drain: Arc<Drain>,
}

/// How long a flush waits for a store that accepts nothing. While the store accepts points, a flush has no limit.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);

/// Paths and their methods.
const PATHS: [(&str, &str); 17] = [
    ("GET", "/metrics"),
    ("GET", "/ready"),
    ("GET", "/healthy"),
    ("GET", "/admin/status"),
    ("GET", "/admin/rejects"),
    ("GET", "/admin/cardinality"),
    ("POST", "/admin/flush"),
    ("GET", "/admin/drain"),
    ("POST", "/admin/drain"),
    ("POST", "/admin/clock"),
    ("POST", "/admin/backup"),
    ("GET", "/admin/delete"),
    ("POST", "/admin/delete"),
    ("POST", "/admin/delete_events"),
    ("POST", "/tags/delSeries"),
    ("POST", "/ingest"),
    ("POST", peers::PATH),
];

impl Extension for Admin {
    fn access(&self, _: &Method, uri: &Uri) -> Option<Access> {
        let path = trimmed(uri);
        let access = match path {
            "/ready" | "/healthy" => Access::Health,
            "/metrics" => Access::Metrics,
            "/ingest" => Access::Write,
            "/tags/delSeries" => Access::Delete,
            // A node without others does not have this path.
            peers::PATH if self.peer_door.is_none() => return None,
            peers::PATH => Access::Peer,
            _ => Access::Admin,
        };
        PATHS.iter().any(|(_, known)| *known == path).then_some(access)
    }

    fn answer(&self, request: ExtensionRequest) -> Answer {
        let path = trimmed(&request.uri).to_owned();
        let is_head = request.method == Method::HEAD;
        let method = if is_head { "GET" } else { request.method.as_str() };
        if !PATHS.contains(&(method, &path)) {
            return ready(plain(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{path} does not support {}\n", request.method),
            ));
        }
        match path.as_str() {
            "/metrics" => {
                let metrics = self.metrics.clone();
                blocking(move || answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics.text()))
            }
            "/healthy" => ready(checked(self.health.liveness().map(|()| "healthy".to_owned()))),
            "/ready" => {
                let readiness = self.readiness.clone();
                Box::pin(async move { checked(readiness.checked().await) })
            }
            "/admin/status" => {
                let of = StatusOf {
                    ingest: self.ingest.clone(),
                    damage: self.damage.clone(),
                    health: self.health.clone(),
                    points: self.points.clone(),
                    embedded: self.embedded.clone(),
                    scrub: self.metrics.scrub.clone(),
                    backups: self.metrics.backups.clone(),
                    budget: self.budget.clone(),
                    peers: self.peers.clone(),
                };
                blocking(move || json_answer(StatusCode::OK, &of.status()))
            }
            "/admin/rejects" => ready(json_answer(StatusCode::OK, &rejects(&self.ingest))),
            "/admin/cardinality" => {
                let (ingest, points) = (self.ingest.clone(), self.points.clone());
                Box::pin(async move {
                    let (status, answer) = cardinality::answer(ingest, points, request).await;
                    json_answer(status, &answer)
                })
            }
            "/admin/clock" => {
                request.asked_for.set(request.uri.query().map(str::to_owned).into_iter().collect());
                ready(match clock::settle(self.ingest.time(), request.uri.query()) {
                    Ok(state) => json_answer(StatusCode::OK, &state),
                    Err(error) => json_answer(StatusCode::BAD_REQUEST, &json!({"error": error})),
                })
            }
            peers::PATH => {
                let door = self.peer_door.clone();
                Box::pin(async move {
                    match door {
                        Some(door) => door.answer(request).await,
                        None => plain(StatusCode::NOT_FOUND, "this node has no peers\n".to_owned()),
                    }
                })
            }
            "/admin/flush" => Box::pin(flush(self.ingest.clone(), request)),
            "/admin/drain" => Box::pin(drain(self.drain.clone(), request)),
            "/admin/backup" => {
                let backups = self.backups.clone();
                Box::pin(async move {
                    let (status, answer) = backups::answer(backups, request).await;
                    json_answer(status, &answer)
                })
            }
            "/admin/delete" => {
                let ingest = self.ingest.clone();
                Box::pin(async move {
                    let (status, answer) = deletion::delete(ingest, request).await;
                    json_answer(status, &answer)
                })
            }
            "/admin/delete_events" => {
                let events = self.events.clone();
                Box::pin(async move {
                    let (status, answer) = event_deletion::delete(events, request).await;
                    json_answer(status, &answer)
                })
            }
            "/tags/delSeries" => {
                let ingest = self.ingest.clone();
                Box::pin(async move {
                    let (status, kind, body) = deletion::del_series(ingest, request).await;
                    answer(status, kind, body)
                })
            }
            _ => {
                let (ingest, gates, budget, limit) =
                    (self.ingest.clone(), self.gates.clone(), self.budget.clone(), self.body_limit);
                let intake = self.drain.intake.clone();
                Box::pin(async move {
                    let Some(_share) = intake.enter().await else {
                        let error = "this node drains and takes no more points; send to another one".to_owned();
                        return taken_answer(Err((StatusCode::SERVICE_UNAVAILABLE, error)));
                    };
                    taken_answer(points_body::take(ingest, &gates, &budget, request, limit).await)
                })
            }
        }
    }
}

fn trimmed(uri: &Uri) -> &str {
    let path = uri.path();
    path.strip_suffix('/').unwrap_or(path)
}

fn rejects(ingest: &Ingest) -> Value {
    let example = |example: &ingest::RejectExample| {
        json!({
            "time": example.time,
            "protocol": example.protocol.name(),
            "reason": example.reason.name(),
            "why": example.reason.to_string(),
            "limit": example.limit.as_deref(),
            "sample": String::from_utf8_lossy(&example.sample),
        })
    };
    ingest.rejects().iter().map(example).collect()
}

/// Writes all points in memory; answers when they are durable in the store, or when the store has accepted nothing for
/// [`FLUSH_PATIENCE`].
async fn flush(ingest: Arc<Ingest>, request: ExtensionRequest) -> Response {
    let asked = Asked::read(request).await;
    let known = asked.and_then(|asked| asked.only(&[]).map_err(|error| (StatusCode::BAD_REQUEST, error)));
    if let Err((status, error)) = known {
        return json_answer(status, &json!({"error": error}));
    }
    // A task, so that the cycle also ends when the client goes away: a cycle cut short would be repeated.
    match tokio::spawn(async move { ingest.flush_patiently(FLUSH_PATIENCE).await }).await {
        Ok(Ok(())) => json_answer(StatusCode::OK, &json!({"flushed": true})),
        Ok(Err(error @ FlushError::Store { held_points, parked_points, unsynced_points, .. })) => {
            let body = json!({
                "error": error.to_string(),
                "held_points": held_points,
                "parked_points": parked_points,
                "unsynced_points": unsynced_points,
            });
            json_answer(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
        Ok(Err(error)) => json_answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error.to_string()})),
        Err(error) => json_answer(StatusCode::INTERNAL_SERVER_ERROR, &json!({"error": error.to_string()})),
    }
}

/// `POST` begins to drain this node, unless it does already; both methods answer how far that is.
async fn drain(drain: Arc<Drain>, request: ExtensionRequest) -> Response {
    let begins = request.method == Method::POST;
    let asked = Asked::read(request).await;
    let known = asked.and_then(|asked| asked.only(&[]).map_err(|error| (StatusCode::BAD_REQUEST, error)));
    if let Err((status, error)) = known {
        return json_answer(status, &json!({"error": error}));
    }
    if begins && let Err(error) = drain.begin() {
        return json_answer(StatusCode::CONFLICT, &json!({"error": error}));
    }
    blocking(move || json_answer(StatusCode::OK, &drain.status())).await
}

/// All taken: 200 with their number. Some rejected for their own fault: 200 with numbers, reasons and the first of them.
/// Taken in part or not at all: 503, what was taken, and why not the rest.
fn taken_answer(taken: Result<TakenBody, points_body::Refused>) -> Response {
    let TakenBody { tally, refusal } = match taken {
        Ok(taken) => taken,
        Err((status, error)) => return json_answer(status, &json!({"error": error})),
    };
    let mut body = json!({"points": tally.points, "refused": tally.rejected()});
    if 0 < tally.rejected() {
        let reasons: Map<String, Value> =
            tally.reasons().map(|(reason, count)| (reason.name().to_owned(), count.into())).collect();
        let example = |(reason, sample): &(RejectReason, Vec<u8>)| json!({"reason": reason.name(), "why": reason.to_string(), "sample": String::from_utf8_lossy(sample)});
        body["reasons"] = reasons.into();
        body["examples"] = tally.examples.iter().map(example).collect();
    }
    let mut answer = match refusal {
        None => json_answer(StatusCode::OK, &body),
        Some(why) => {
            body["error"] = format!("{why}; send the rest again").into();
            json_answer(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    };
    answer.extensions_mut().insert(TakenPoints { points: tally.points, rejected: tally.rejected() });
    answer
}

/// 200 with a text, or 503 with a reason.
fn checked(result: Result<String, String>) -> Response {
    match result {
        Ok(text) => plain(StatusCode::OK, format!("{text}\n")),
        Err(text) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n")),
    }
}

/// An answer that is made on a thread that may wait for the disk or for a lock.
fn blocking(make: impl FnOnce() -> Response + Send + 'static) -> Answer {
    Box::pin(async move {
        let made = tokio::task::spawn_blocking(make).await;
        made.unwrap_or_else(|error| plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))
    })
}

fn ready(response: Response) -> Answer {
    Box::pin(async move { response })
}

fn answer(status: StatusCode, kind: &str, text: impl Into<Body>) -> Response {
    let response = hyper::Response::builder().status(status).header(CONTENT_TYPE, kind);
    response.body(text.into()).expect("the parts of an answer are ours")
}

fn plain(status: StatusCode, text: String) -> Response {
    answer(status, "text/plain; charset=utf-8", text)
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    answer(status, "application/json", format!("{value}\n"))
}
