//! A request as the program's logs of requests have it: who asked what, from where, how long it took, and what it cost.
//!
//! Nothing of this is made while the observer wants no records.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use host::Clock;
use hyper::{
    HeaderMap,
    body::{Body as HttpBody, Frame, SizeHint},
    http::request::Parts,
};

use super::{
    body::{Body, BodyError, Response},
    extension::AskedFor,
    observation::{Observer, RequestRecord, TakenPoints},
};

/// Bytes of a text from outside, at most.
const TEXT_BYTES: usize = 200;

/// Headers by which Grafana says what a request is for, and their names in a record.
const GRAFANA: [(&str, &str); 6] = [
    ("x-dashboard-uid", "dashboard"),
    // From its pages; its backend sends the one above.
    ("x-dashboard-id", "dashboard"),
    ("x-panel-id", "panel"),
    ("x-rule-uid", "rule"),
    ("x-grafana-org-id", "org"),
    ("x-grafana-user", "user"),
];

/// The record of a request that is not finished. It reaches the observer when it is dropped.
pub(crate) struct Recording {
    // None once the observer has it.
    record: Option<Box<RequestRecord>>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    began: Instant,
    asked_for: AskedFor,
}

impl Recording {
    /// Begins one if the observer wants records.
    pub(crate) fn begin(
        observer: &Arc<dyn Observer>,
        clock: &Arc<dyn Clock>,
        head: &Parts,
        peer: SocketAddr,
    ) -> Option<Recording> {
        if !observer.wants_records() {
            return None;
        }
        let record = RequestRecord {
            kind: "other",
            access: None,
            is_write: false,
            who: String::new(),
            peer,
            method: beginning(head.method.as_str()),
            path: beginning(head.uri.path()),
            asked: String::new(),
            asked_bytes: 0,
            grafana: grafana(&head.headers),
            status: None,
            answered_in: Duration::ZERO,
            sent_in: Duration::ZERO,
            series: 0,
            points: 0,
            rejected: 0,
            bytes: 0,
            is_whole: false,
            limit: None,
        };
        let (record, observer, clock) = (Some(Box::new(record)), observer.clone(), clock.clone());
        Some(Recording { record, observer, began: clock.instant(), clock, asked_for: AskedFor::default() })
    }

    /// Where a handler outside of this crate says what was asked for.
    pub(crate) fn asked_for(&self) -> AskedFor {
        self.asked_for.clone()
    }

    /// Adds to the record.
    pub(crate) fn note(&mut self, add: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = &mut self.record {
            add(record);
        }
    }

    /// Notes what was asked for: the beginning of all texts.
    pub(crate) fn asks<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        self.note(|record| {
            for text in texts {
                if record.asked.len() < TEXT_BYTES {
                    let blank = if record.asked.is_empty() { "" } else { " " };
                    record.asked = beginning(&format!("{}{blank}{}", record.asked, beginning(text)));
                }
                record.asked_bytes += text.len();
            }
        });
    }

    /// The answer, whose bytes are counted until it is sent or its client goes away.
    pub(crate) fn follow(mut self, response: Response) -> Response {
        let answered_in = self.clock.instant().saturating_duration_since(self.began);
        // Nothing of its body is sent.
        let is_over = self.record.as_ref().is_some_and(|record| record.method == "HEAD");
        let taken = response.extensions().get::<TakenPoints>().copied();
        self.note(|record| {
            record.status = Some(response.status().as_u16());
            record.answered_in = answered_in;
            if let Some(TakenPoints { points, rejected }) = taken {
                (record.points, record.rejected) = (points, rejected);
            }
        });
        response.map(|body| Body::stream(FollowedBody { body, bytes: 0, is_over, recording: self }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let asked_for = self.asked_for.clone();
        self.asks(asked_for.texts().iter().map(String::as_str));
        if let Some(mut record) = self.record.take() {
            record.sent_in = self.clock.instant().saturating_duration_since(self.began);
            self.observer.recorded(&record);
        }
    }
}

/// A body whose bytes are counted.
struct FollowedBody {
    body: Body,
    bytes: u64,
    is_over: bool,
    recording: Recording,
}

impl HttpBody for FollowedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => self.bytes += frame.data_ref().map_or(0, |bytes| bytes.len() as u64),
            Poll::Ready(None) => self.is_over = true,
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for FollowedBody {
    fn drop(&mut self) {
        let (bytes, is_whole) = (self.bytes, self.is_over || self.body.is_end_stream());
        self.recording.note(|record| (record.bytes, record.is_whole) = (bytes, is_whole));
    }
}

/// The beginning of a text from outside.
fn beginning(text: &str) -> String {
    let end = (0..=TEXT_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].to_owned()
}

fn grafana(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    let mut given: Vec<(&'static str, String)> = Vec::new();
    for (header, name) in GRAFANA {
        let Some(value) = headers.get(header) else { continue };
        if given.iter().all(|(known, _)| *known != name) {
            given.push((name, beginning(&String::from_utf8_lossy(value.as_bytes()))));
        }
    }
    given
}
