//! What a request may cost, and what the server says when it would cost more.

use std::time::Duration;

/// Bounds of requests, connections and answers. Each names the setting that raises it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// `http.max_connections`: open connections. At the bound no further one is accepted, so that
    /// clients wait in the system's own queue.
    pub connections: usize,
    /// `http.max_header_bytes`: bytes of a request line and its headers, about: what was read at one time may be
    /// twice as much. Beyond: 431.
    pub header_bytes: usize,
    /// `http.max_body_bytes`: bytes of a request body. Beyond: 413.
    pub body_bytes: usize,
    /// `http.idle_timeout`: how long a connection may be silent, or slow with its headers, its body or
    /// with reading our answer. Beyond: it is closed.
    pub idle: Duration,
    /// `http.max_concurrent_queries`: renders, finds and listings at work or being sent at one time.
    pub concurrent_queries: usize,
    /// `http.max_queued_queries`: queries that wait for their turn. Beyond: 429.
    pub queued_queries: usize,
    /// `query.timeout`: time from a query's arrival to the first byte of its answer. Beyond: 422.
    pub query: Duration,
    /// `query.max_target_bytes`: bytes of all targets of a render, or of the patterns of a find. Beyond: 422.
    pub target_bytes: usize,
    /// `query.max_series`: series a render reads, over all its targets. Beyond: 422.
    pub series: usize,
    /// `query.max_points`: points a render reads, over all its series. A coarser stage is read before
    /// it is refused. Beyond: 422.
    pub points: usize,
    /// `query.max_response_bytes`: bytes of an answer before compression. A render's are reckoned
    /// before the first one is sent, from the fewest bytes its points can take. Beyond: 422.
    pub response_bytes: usize,
    /// `query.max_find_results`: nodes a find or an expand answers with. Beyond: 422.
    pub find_results: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            header_bytes: 64 << 10,
            body_bytes: 8 << 20,
            idle: Duration::from_secs(75),
            concurrent_queries: 16,
            queued_queries: 256,
            query: Duration::from_secs(60),
            target_bytes: 1 << 20,
            series: 100_000,
            points: 50_000_000,
            response_bytes: 1 << 30,
            find_results: 1_000_000,
        }
    }
}
