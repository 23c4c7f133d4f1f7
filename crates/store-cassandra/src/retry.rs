//! Statements tried again within a time limit.

use std::{sync::Arc, time::Duration};

use host::{Backoff, Clock};

use crate::failure::{Classify, Failure};

/// The pause before the second attempt, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a statement may take, its retries included.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limit: Duration,
}

impl Retry {
    /// Tries until success, a permanent failure, or the end of the limit, with growing pauses. The attempt must be
    /// idempotent.
    pub(crate) async fn run<T, E, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, E>
    where
        E: Classify,
        F: Future<Output = Result<T, E>>,
    {
        let began = self.clock.instant();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let elapsed = self.clock.instant() - began;
            if error.failure() != Failure::Transient || elapsed + backoff.peek() >= self.limit {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
}
