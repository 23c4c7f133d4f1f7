//! What happened, for whoever counts it.

use std::time::Duration;

/// One request that was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The kind of request, one of a small fixed set (`render`, `find`, `other`, …): fit for a label.
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

/// Told of every request. Calls come from many threads and must return at once.
pub trait Observer: Send + Sync + 'static {
    /// A request was answered.
    fn answered(&self, answered: &Answered);

    /// A client went away before its answer was ready; the work was stopped.
    fn cancelled(&self, path: &'static str);

    /// Connections open now.
    fn connections(&self, open: usize);

    /// A graphite-web in front of us was sent an empty list where anybody else is refused: it would leave us
    /// out for a minute, for all its users.
    fn withheld(&self, path: &'static str) {
        let _ = path;
    }
}

/// Counts nothing.
impl Observer for () {
    fn answered(&self, _: &Answered) {}

    fn cancelled(&self, _: &'static str) {}

    fn connections(&self, _: usize) {}
}
