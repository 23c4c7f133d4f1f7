//! Turns for heavy work: a limited number of queries runs, a limited number waits.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::{Limits, Rejection};

/// The queue of queries.
pub(crate) struct QueryTurns {
    // A query keeps its permit from its start until its answer is evaluated.
    permits: Arc<Semaphore>,
    max_running: usize,
    // Queries without a permit, at most `max_waiting`.
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// The number of unfinished queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Running.
    pub running: usize,
    /// Waiting for a turn.
    pub waiting: usize,
}

impl QueryTurns {
    /// A queue with the bounds of `limits`.
    pub fn new(limits: &Limits) -> QueryTurns {
        QueryTurns {
            permits: Arc::new(Semaphore::new(limits.concurrent_queries)),
            max_running: limits.concurrent_queries,
            waiting: AtomicUsize::new(0),
            max_waiting: limits.queued_queries,
        }
    }

    /// Waits for a turn. Fails at once when the queue is full.
    pub async fn wait(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let position = QueuePosition::enter(&self.waiting);
        if position.ahead >= self.max_waiting {
            return Err(Rejection::Busy(self.max_running));
        }
        Ok(self.permits.clone().acquire_owned().await.expect("the semaphore is never closed"))
    }

    /// The number of unfinished queries, for gauges.
    pub fn activity(&self) -> Activity {
        Activity {
            running: self.max_running.saturating_sub(self.permits.available_permits()),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}

/// A position in the queue. Dropping it leaves the queue.
struct QueuePosition<'a> {
    waiting: &'a AtomicUsize,
    ahead: usize,
}

impl QueuePosition<'_> {
    fn enter(waiting: &AtomicUsize) -> QueuePosition<'_> {
        QueuePosition { waiting, ahead: waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
