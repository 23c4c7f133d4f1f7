//! Reads of an opening that are made again for a while: what the disk does not return now is missed for long.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use store::StoreError;

/// Interval of attempts.
const INTERVAL: Duration = Duration::from_secs(1);

/// Until when an opening tries again.
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    until: Instant,
    is_said: Cell<bool>,
}

impl Patience {
    pub(crate) fn new(clock: &Arc<dyn Clock>, patience: Duration) -> Patience {
        Patience { clock: clock.clone(), until: clock.instant() + patience, is_said: Cell::new(false) }
    }

    /// How long it tries still.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(self.clock.instant())
    }

    /// Calls, and again while the disk returns errors. Blocks.
    pub(crate) fn retry<T>(&self, mut call: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            let error = match call() {
                Err(error @ StoreError::Io { .. }) => error,
                done => return done,
            };
            let left = self.left();
            if left.is_zero() {
                return Err(error);
            }
            if !self.is_said.replace(true) {
                tracing::warn!(%error, seconds = left.as_secs(), "the disk does not return a file of the store; trying again before the start goes on");
            }
            std::thread::sleep(INTERVAL.min(left));
        }
    }
}
