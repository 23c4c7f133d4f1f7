//! Reads of the journal that are made again for a while, because what is not read now is lost when the segment is removed.

use std::{sync::Arc, time::Duration};

use host::Clock;

/// Interval of attempts.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a start waits for parts of a segment that cannot be read.
pub(crate) struct ReadPatience {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) patience: Duration,
}

impl ReadPatience {
    /// Reads, and again while that fails. Returns the last result. Blocks.
    pub(crate) fn read<T>(&self, mut read: impl FnMut() -> T, is_failing: impl Fn(&T) -> bool) -> T {
        let began = self.clock.instant();
        let mut is_said = false;
        loop {
            let found = read();
            let waited = self.clock.instant().saturating_duration_since(began);
            if !is_failing(&found) || self.patience <= waited {
                return found;
            }
            if !std::mem::replace(&mut is_said, true) {
                tracing::warn!(
                    seconds = self.patience.as_secs(),
                    "parts of the journal cannot be read; reading them again before the start goes on"
                );
            }
            std::thread::sleep(INTERVAL);
        }
    }
}
