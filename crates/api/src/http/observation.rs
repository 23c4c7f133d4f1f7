//! Events of the server for metrics: answered and cancelled requests, connections.

use std::time::Duration;

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

/// Receives every event. Calls come from many threads and must return at once.
pub trait Observer: Send + Sync + 'static {
    /// The server answered a request.
    fn answered(&self, answered: &Answered);

    /// A client disconnected before its answer was ready; the server stopped the work.
    fn cancelled(&self, path: &'static str);

    /// The number of open connections changed.
    fn connections(&self, open: usize);

    /// A connection could not be accepted.
    fn accept_failed(&self) {}

    /// An idle connection was closed to make room for a new client.
    fn made_room(&self) {}

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
