//! Limits of requests, connections and answers.

use std::time::Duration;

/// Limits of requests, connections and answers. Each names its setting and the status of a request beyond it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// `http.max_connections`: open connections. At the limit the longest idle one is closed for a new client, or else one
    /// whose client keeps a request waiting. Without these, clients wait in a queue; beyond it: 503.
    pub connections: usize,
    /// `http.connections_per_address`: open connections of one address, or of one /64 of IPv6; loopback is exempt. At the
    /// limit the longest idle one of the address is closed for a new one. Where none is idle, the new one is closed.
    pub connections_per_address: usize,
    /// `http.max_header_bytes`: approximate bytes of a request line and its headers; one read may be twice as long.
    /// Beyond: 431.
    pub header_bytes: usize,
    /// `http.max_body_bytes`: bytes of a request body. Beyond: 413.
    pub body_bytes: usize,
    /// `http.idle_timeout`: longest pause of a client while it sends headers or a body, or reads the answer.
    /// Beyond: the server closes the connection.
    pub idle: Duration,
    /// `http.head_timeout`: time from the first byte of a request to the end of its head. Beyond: the server closes the
    /// connection.
    pub head_time: Duration,
    /// `http.body_timeout`: time in which a client sends a body. Beyond: 408.
    pub body_time: Duration,
    /// `http.min_rate`: bytes a second that a client must send of a body, or read of an answer that waits for it; 0 is any.
    /// Beyond: 408, or the server closes the connection.
    pub min_rate: u64,
    /// `http.answer_memory`: memory of answers that clients have not read yet. When it is spent, answers wait for it.
    pub answer_memory: usize,
    /// `http.max_concurrent_queries`: renders, finds and listings that run at one time.
    pub concurrent_queries: usize,
    /// `http.max_queued_queries`: queries that wait for a turn. Beyond: 429.
    pub queued_queries: usize,
    /// `query.timeout`: time from a query's arrival to the first byte of its answer. Beyond: 422.
    pub query: Duration,
    /// `query.memory`: memory of all queries together, for names, points and what functions make of them. A query that
    /// needs more than the queries before it leave waits. One that needs more than there is: 422.
    pub memory: usize,
    /// `query.memory_wait`: time that a query or an answer waits for memory. Beyond: 503.
    pub memory_wait: Duration,
    /// `query.max_target_bytes`: bytes of all targets of a render, or of the patterns of a find. Beyond: 422.
    pub target_bytes: usize,
    /// `limits.events_per_minute`: events that are stored in a minute. Beyond: 429.
    pub events_per_minute: usize,
    /// `limits.events_keep`: events from before are deleted. A new one from before: 400.
    pub events_keep: Option<Duration>,
    /// `query.max_series`: series a render reads, over all its targets. Beyond: 422.
    pub series: usize,
    /// `query.max_points`: points a render reads, over all its series. The reader tries coarser stages first.
    /// Beyond: 422.
    pub points: usize,
    /// `query.max_response_bytes`: bytes of an answer before compression. A render estimates them from below,
    /// before it sends the first one. Beyond: 422.
    pub response_bytes: usize,
    /// `query.max_find_results`: nodes in the answer to a find or an expand. Beyond: 422.
    pub find_results: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            connections_per_address: 1024,
            header_bytes: 64 << 10,
            body_bytes: 8 << 20,
            idle: Duration::from_secs(75),
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(600),
            min_rate: 256,
            answer_memory: 96 << 20,
            concurrent_queries: 16,
            queued_queries: 256,
            query: Duration::from_secs(60),
            memory: 256 << 20,
            memory_wait: Duration::from_secs(5),
            target_bytes: 1 << 20,
            events_per_minute: 6000,
            events_keep: None,
            series: 100_000,
            points: 50_000_000,
            response_bytes: 1 << 30,
            find_results: 1_000_000,
        }
    }
}
