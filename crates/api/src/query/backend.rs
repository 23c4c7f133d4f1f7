//! The sources of every answer: names, points, events, limits, the clock.

use std::{fmt, sync::Arc};

use host::{Clock, Excerpt, MinuteLog};
use metadata::{Finder, Registry};
use metric::Timestamp;
use store::{Events, SeriesSource};

use super::{sender_limits::SenderUse, turns::QueryTurns, viewer::Viewer};
use crate::http::{BodyMemory, BrowserRules, Client, Limits, MemoryBudget, Observer, Rejection};

/// The sources of every answer. One for the life of the server, shared by all requests.
pub(crate) struct Backend {
    /// All metrics.
    pub registry: Arc<Registry>,
    /// Resolves globs.
    pub finder: Arc<dyn Finder>,
    /// Reads points.
    pub series: Arc<dyn SeriesSource>,
    /// Reads and stores events.
    pub events: Arc<dyn Events>,
    /// Limits of requests.
    pub limits: Limits,
    /// Rules for browsers.
    pub browsers: BrowserRules,
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// The zone of requests without one.
    pub time_zone: jiff::tz::TimeZone,
    /// Names and texts on the start page.
    pub about: Vec<(String, String)>,
    /// Receives events for metrics.
    pub observer: Arc<dyn Observer>,
    /// Turns for heavy work.
    pub turns: QueryTurns,
    /// What credentials use of their limits.
    pub senders: SenderUse,
    /// Memory of queries.
    pub memory: MemoryBudget,
    /// Memory of answers.
    pub answers: MemoryBudget,
    /// Invalid queries that a graphite-web got an empty answer to.
    pub withheld: MinuteLog,
}

impl Backend {
    /// The current time, Unix seconds.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Counts and logs an invalid query of a graphite-web, which gets an empty answer.
    pub fn withhold(&self, path: &'static str, error: &dyn fmt::Display) {
        self.observer.withheld(path);
        if let Some(suppressed) = self.withheld.is_due(self.clock.instant()) {
            tracing::warn!(path, suppressed, error = %Excerpt(error),
                "a graphite-web gets an empty answer to an invalid query; logging this once a minute");
        }
    }

    /// The memory for queries of this sender alone; `None` without a limit.
    pub fn own_memory(&self, viewer: &Viewer) -> Option<MemoryBudget> {
        self.senders.memory(viewer, self.limits.memory_wait)
    }

    /// The memory of the body of a request.
    pub fn body_memory(&self, viewer: &Viewer, client: &Client) -> BodyMemory {
        let own = self.own_memory(viewer);
        // The sender's own first, so that no memory of all is held while it waits for that.
        BodyMemory::new(client, own.iter().chain([&self.memory]))
    }

    /// Checks the bytes of all targets of a render, or of all patterns of a find; `what` begins the message.
    pub fn check_target_bytes(&self, what: &'static str, bytes: usize) -> Result<(), Rejection> {
        let limit = self.limits.target_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Rejection::TooMuch { what, given: bytes.to_string(), limit, setting: "query.max_target_bytes" })
    }
}
