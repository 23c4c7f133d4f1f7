//! Whether the store accepts calls and keeps what it accepted, as its answers and the driver's connection show.

use std::{
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

use crate::call_health::{CallHealth, Outage, Problem};

/// Poll interval of a caller who waits for the store with a time limit.
const POLL: Duration = Duration::from_millis(20);

const NOT_SYNCED: &str = "the store cannot put points on its disk; they are safe in the journal; retrying";

/// The health of the store's kinds of calls, logged as one outage.
#[derive(Debug)]
pub struct StoreHealth {
    clock: Arc<dyn Clock>,
    outage: Arc<Outage>,
    /// Whether the store can be reached, where a driver with a connection reports that.
    reach: CallHealth,
    /// Writes of points.
    pub(crate) writes: CallHealth,
    /// Writes to the metrics table.
    pub(crate) registration: CallHealth,
    /// Whether what was written gets to the store's disk: only then is the journal trimmed.
    syncs: CallHealth,
    /// When the store last took points, where a driver reports that.
    last_write: Mutex<Option<Instant>>,
}

impl StoreHealth {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> StoreHealth {
        let outage = Outage::new(clock.clone());
        let health = || CallHealth::new(outage.clone());
        let (reach, writes, registration, syncs) = (health(), health(), health(), health());
        StoreHealth { clock, outage, reach, writes, registration, syncs, last_write: Mutex::default() }
    }

    /// The store cannot be reached: a call need not fail first to find out. Logs it, unless an outage is logged already.
    pub fn unreachable(&self, why: &str) {
        self.reach.failed(
            &why,
            "the store cannot be reached; points are accepted into the journal and written when the store is back",
        );
    }

    /// As [`StoreHealth::unreachable`], from a caller that has logged it.
    pub fn unreachable_and_logged(&self, why: &str) {
        self.reach.failed_and_logged(&why);
    }

    /// The store can be reached again: calls that wait for their turn are retried now.
    pub fn reachable(&self) {
        if self.reach.is_failing() {
            self.reach.worked("the store can be reached again");
            self.retry_now();
        }
    }

    /// The store has accepted a part of the current write: a slow write is not a stuck one.
    pub fn wrote(&self) {
        *self.last_write.lock() = Some(self.clock.instant());
    }

    /// What was written could not be made durable.
    pub(crate) fn not_synced(&self, error: &dyn Display) {
        self.syncs.failed(&format!("what it took does not get to its disk: {error}"), NOT_SYNCED);
    }

    /// All that was written is durable.
    pub(crate) fn synced(&self) {
        self.syncs.worked("the store gets points to its disk again");
    }

    /// Whether points do not get to the store's disk: it rejects them, or cannot sync them.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_away() || self.syncs.is_failing()
    }

    /// Whether the store is known to reject points.
    pub(crate) fn is_away(&self) -> bool {
        self.writes.is_failing() || self.reach.is_failing()
    }

    /// When the first call of those that fail now failed.
    pub(crate) fn away_since(&self) -> Option<Instant> {
        self.outage.since()
    }

    /// The failure that explains the most.
    pub(crate) fn problem(&self) -> Option<Problem> {
        [&self.reach, &self.writes, &self.syncs, &self.registration].into_iter().find_map(CallHealth::problem)
    }

    /// How long points have not got to the store's disk, and why.
    pub(crate) fn outage(&self) -> Option<(Duration, String)> {
        let problem = [&self.reach, &self.writes, &self.syncs].into_iter().find_map(CallHealth::problem)?;
        Some((self.clock.instant().saturating_duration_since(problem.since), problem.why))
    }

    /// Retries every call that failed now.
    pub(crate) fn retry_now(&self) {
        self.writes.retry_now();
        self.registration.retry_now();
    }

    /// Returns the problem once the store has taken nothing for this long, counted from this call at the earliest.
    pub(crate) async fn given_up(&self, patience: Duration) -> String {
        let began = self.clock.instant();
        loop {
            tokio::time::sleep(POLL.min(patience)).await;
            let last = self.last_write.lock().unwrap_or(began).max(began);
            for problem in [&self.reach, &self.writes].into_iter().filter_map(CallHealth::problem) {
                let waited = self.clock.instant().saturating_duration_since(problem.since.max(last));
                if patience <= waited {
                    return problem.why;
                }
            }
        }
    }
}
