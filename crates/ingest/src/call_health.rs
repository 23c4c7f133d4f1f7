//! Whether calls of one kind fail, and since when.
//!
//! Calls of different kinds (points, names, whether the store answers at all) fail one after the other when a store
//! goes away, and work again in any order. They share an [`Outage`], which is logged once, at its beginning and its end.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The current failure, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// When the first call failed.
    pub(crate) since: Instant,
    /// Message of the last call that failed.
    pub(crate) why: String,
}

/// The kinds of calls of one store that fail now.
#[derive(Debug)]
pub(crate) struct Outage {
    clock: Arc<dyn Clock>,
    // How many kinds fail, and since when any does.
    failing: Mutex<(u32, Option<Instant>)>,
}

impl Outage {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Outage> {
        Arc::new(Outage { clock, failing: Mutex::default() })
    }

    /// When it began; `None` while everything works.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.failing.lock().1
    }

    fn begins(&self, error: &dyn Display, message: Option<&str>) -> Instant {
        let now = self.clock.instant();
        let mut failing = self.failing.lock();
        failing.0 += 1;
        let is_first = failing.1.is_none();
        failing.1.get_or_insert(now);
        match message {
            Some(message) if is_first => tracing::error!(%error, "{message}"),
            Some(message) => tracing::debug!(%error, "{message}"),
            None => {}
        }
        now
    }

    fn ends(&self, message: &str) {
        let mut failing = self.failing.lock();
        failing.0 -= 1;
        match failing.1 {
            Some(since) if failing.0 == 0 => {
                failing.1 = None;
                let seconds = self.clock.instant().saturating_duration_since(since).as_secs();
                tracing::info!(seconds, "{message}");
            }
            _ => tracing::debug!("{message}"),
        }
    }
}

/// Whether the last call of a kind failed.
#[derive(Debug)]
pub(crate) struct CallHealth {
    is_failing: AtomicBool,
    // Some while `is_failing`, which is read without a lock.
    problem: Mutex<Option<Problem>>,
    outage: Arc<Outage>,
    retry: Notify,
}

impl CallHealth {
    /// Of one kind of calls, which shares the outage with others.
    pub(crate) fn new(outage: Arc<Outage>) -> CallHealth {
        CallHealth { is_failing: AtomicBool::new(false), problem: Mutex::default(), outage, retry: Notify::new() }
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(SeqCst)
    }

    /// The failure; `None` when the last call worked.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem.lock().clone()
    }

    /// Notes a failure. Logs `message` when no call before had failed.
    pub(crate) fn failed(&self, error: &dyn Display, message: &str) {
        self.note(error, Some(message));
    }

    /// Notes a failure that the caller has logged.
    pub(crate) fn failed_and_logged(&self, error: &dyn Display) {
        self.note(error, None);
    }

    fn note(&self, error: &dyn Display, message: Option<&str>) {
        let mut problem = self.problem.lock();
        match &mut *problem {
            Some(problem) => problem.why = error.to_string(),
            None => {
                self.is_failing.store(true, SeqCst);
                let since = self.outage.begins(error, message);
                *problem = Some(Problem { since, why: error.to_string() });
            }
        }
    }

    /// Notes a success. Logs `message` when this kind of call was the last that failed.
    pub(crate) fn worked(&self, message: &str) {
        if !self.is_failing() {
            return;
        }
        let mut problem = self.problem.lock();
        if problem.take().is_some() {
            self.is_failing.store(false, SeqCst);
            self.outage.ends(message);
            self.retry.notify_waiters();
        }
    }

    /// Ends the waits of callers whose call failed: there is a reason to retry now.
    pub(crate) fn retry_now(&self) {
        self.retry.notify_waiters();
    }

    /// Waits before a retry: for the time, or until another call of this kind has worked.
    pub(crate) async fn wait(&self, time: Duration) {
        let retry = self.retry.notified();
        tokio::select! {
            () = retry => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use host::SystemClock;

    use super::*;

    #[test]
    fn an_outage_lasts_from_the_first_kind_of_call_that_fails_to_the_last_that_works_again() {
        let outage = Outage::new(Arc::new(SystemClock));
        let (points, names) = (CallHealth::new(outage.clone()), CallHealth::new(outage.clone()));
        points.worked("");
        assert!(outage.since().is_none());
        points.failed(&"one", "");
        let since = outage.since().expect("it has begun");
        names.failed(&"two", "");
        points.failed(&"three", "");
        let problem = points.problem().expect("points fail");
        assert!(problem.why == "three" && problem.since == since);
        points.worked("");
        assert!(points.problem().is_none() && !points.is_failing() && names.is_failing());
        assert_eq!(outage.since(), Some(since));
        names.worked("");
        names.worked("");
        assert_eq!(outage.since(), None);
    }

    #[tokio::test]
    async fn a_wait_ends_when_there_is_a_reason_to_retry() {
        let health = Arc::new(CallHealth::new(Outage::new(Arc::new(SystemClock))));
        let waiting = tokio::spawn({
            let health = health.clone();
            async move {
                health.wait(Duration::from_secs(60)).await;
            }
        });
        let ended = async {
            while !waiting.is_finished() {
                health.retry_now();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok());
    }
}
