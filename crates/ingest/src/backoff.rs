//! The wait before a failed call is retried.

use std::time::Duration;

use host::Backoff;

/// Between two attempts to write or sync the journal.
pub(crate) const JOURNAL_RETRY: Duration = Duration::from_millis(250);

/// Between two attempts to give metrics their new policies.
pub(crate) const RULES_RETRY: Duration = Duration::from_millis(250);

/// Waits for a store that fails.
pub(crate) fn store_backoff() -> Backoff {
    Backoff::new(Duration::from_secs(1), Duration::from_secs(30))
}
