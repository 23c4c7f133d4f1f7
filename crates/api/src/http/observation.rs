//! Events of the server for metrics: answered and cancelled requests, connections.

use std::{net::SocketAddr, time::Duration};

use super::extension::Access;

/// An answered request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The kind of request, from a small fixed set (`render`, `find`, `other`, …): suitable as a label.
    pub path: &'static str,
    /// HTTP status.
    pub status: u16,
    /// From the request's headers to the answer's headers.
    pub duration: Duration,
    /// Series read.
    pub series: u64,
    /// Points read.
    pub points: u64,
}

/// A finished request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// The kind of request, as in [`Answered`].
    pub kind: &'static str,
    /// What it touches; `None` for an unknown path.
    pub access: Option<Access>,
    /// Whether it changes something.
    pub is_write: bool,
    /// The name of its credential; empty without one.
    pub who: String,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Its method.
    pub method: String,
    /// The beginning of its path.
    pub path: String,
    /// The beginning of its targets or patterns.
    pub asked: String,
    /// Bytes of all of these.
    pub asked_bytes: usize,
    /// Dashboard, panel and so on, by name.
    pub grafana: Vec<(&'static str, String)>,
    /// Its status; `None` if the client left before the answer.
    pub status: Option<u16>,
    /// From its head to the head of the answer.
    pub answered_in: Duration,
    /// From its head to the end of the answer.
    pub sent_in: Duration,
    /// Series read.
    pub series: u64,
    /// Points read, or stored.
    pub points: u64,
    /// Points rejected.
    pub rejected: u64,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Whether the answer was sent whole.
    pub is_whole: bool,
    /// The setting of the limit that was met.
    pub limit: Option<&'static str>,
}

/// The points of a request, which an answer carries among its extensions.
#[derive(Debug, Clone, Copy)]
pub struct TakenPoints {
    /// Points stored.
    pub points: u64,
    /// Points rejected.
    pub rejected: u64,
}

/// Receives every event. Calls come from many threads and must return at once.
pub trait Observer: Send + Sync + 'static {
    /// The server answered a request.
    fn answered(&self, answered: &Answered);

    /// A client disconnected before its answer was ready; the server stopped the work.
    fn cancelled(&self, path: &'static str);

    /// Whether records of requests are wanted.
    fn wants_records(&self) -> bool {
        false
    }

    /// A request is over: its answer is sent, or its client is gone.
    fn recorded(&self, record: &RequestRecord) {
        let _ = record;
    }

    /// The number of open connections changed.
    fn connections(&self, open: usize);

    /// A connection could not be accepted.
    fn accept_failed(&self) {}

    /// An idle connection was closed to make room for a new client.
    fn made_room(&self) {}

    /// The head of a request could not be read: it was answered with 400, 414 or 431, and reached no handler.
    fn unreadable(&self) {}

    /// A connection was closed at once, because its address had as many as it may have.
    fn refused(&self) {}

    /// A graphite-web in front of this server received an empty list where other clients receive a rejection. A
    /// rejection would make it skip this server for a minute, for all its users.
    fn withheld(&self, path: &'static str) {
        let _ = path;
    }
}

/// Ignores every event.
impl Observer for () {
    fn answered(&self, _: &Answered) {}

    fn cancelled(&self, _: &'static str) {}

    fn connections(&self, _: usize) {}
}
