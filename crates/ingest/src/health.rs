//! Whether the store does what it is asked: said once when that changes, and how long to wait before it is asked
//! again.
//!
//! Calls of different kinds (points, names, whether it answers at all) fail one after the other when a store goes
//! away, and work again in any order. They share an [`Outage`], which is told once, at its beginning and its end.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use store::StoreError;
use tokio::sync::Notify;

/// The first wait after a refusal; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What fails, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// When the first call failed.
    pub(crate) since: Instant,
    /// What the last one that failed said.
    pub(crate) why: String,
}

/// The kinds of calls of one store that fail now.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    // How many kinds fail, and since when any does.
    failing: Mutex<(u32, Option<Instant>)>,
}

impl Outage {
    /// When it began; `None` while everything works.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.failing.lock().1
    }

    fn begins(&self, error: &dyn Display, what: Option<&str>) {
        let mut failing = self.failing.lock();
        failing.0 += 1;
        let is_first = failing.1.is_none();
        failing.1.get_or_insert_with(Instant::now);
        match what {
            Some(what) if is_first => tracing::error!(%error, "{what}"),
            Some(what) => tracing::debug!(%error, "{what}"),
            None => {}
        }
    }

    fn ends(&self, what: &str) {
        let mut failing = self.failing.lock();
        failing.0 -= 1;
        match failing.1 {
            Some(since) if failing.0 == 0 => {
                failing.1 = None;
                tracing::info!(seconds = since.elapsed().as_secs(), "{what}");
            }
            _ => tracing::debug!("{what}"),
        }
    }
}

/// Whether the last call of a kind failed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: AtomicBool,
    // Some while `failing`, which is there to be asked without a lock.
    problem: Mutex<Option<Problem>>,
    outage: Arc<Outage>,
    again: Notify,
}

impl Health {
    /// That of one kind of calls of a store that has others.
    pub(crate) fn of(outage: &Arc<Outage>) -> Health {
        Health { outage: outage.clone(), ..Health::default() }
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(SeqCst)
    }

    /// What is wrong; `None` when the last call worked.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem.lock().clone()
    }

    /// Notes a failure. `what` is said to the operator when no call before had failed.
    pub(crate) fn failed(&self, error: &dyn Display, what: &str) {
        self.note(error, Some(what));
    }

    /// Notes a failure that the operator was told of by whoever met it.
    pub(crate) fn failed_as_told(&self, error: &dyn Display) {
        self.note(error, None);
    }

    fn note(&self, error: &dyn Display, what: Option<&str>) {
        let mut problem = self.problem.lock();
        match &mut *problem {
            Some(problem) => problem.why = error.to_string(),
            None => {
                *problem = Some(Problem { since: Instant::now(), why: error.to_string() });
                self.failing.store(true, SeqCst);
                self.outage.begins(error, what);
            }
        }
    }

    /// Notes a success. `what` is said to the operator when this call was the last that had failed.
    pub(crate) fn worked(&self, what: &str) {
        if !self.is_failing() {
            return;
        }
        let mut problem = self.problem.lock();
        if problem.take().is_some() {
            self.failing.store(false, SeqCst);
            self.outage.ends(what);
            self.again.notify_waiters();
        }
    }

    /// Ends the waits of those whose call failed: there is a reason to make it again now.
    pub(crate) fn try_again(&self) {
        self.again.notify_waiters();
    }

    /// Waits before the call is made again: for the time, or until another one of its kind has worked.
    pub(crate) async fn wait(&self, wait: &mut Backoff) {
        let again = self.again.notified();
        tokio::select! {
            () = again => {}
            () = tokio::time::sleep(wait.next()) => {}
        }
    }
}

/// Waits that become longer.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(FIRST_WAIT)
    }
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (2 * wait).min(LONGEST_WAIT);
        wait
    }
}

/// A future whose panic is an error: what a driver does wrong must not end the task that asks it again.
pub(crate) struct NoPanic<F>(Pin<Box<F>>);

impl<F> NoPanic<F> {
    pub(crate) fn new(future: F) -> NoPanic<F> {
        NoPanic(Box::pin(future))
    }
}

impl<T, F: Future<Output = Result<T, StoreError>>> Future for NoPanic<F> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut();
        catch_unwind(AssertUnwindSafe(|| future.poll(context))).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Poll::Ready(Err(StoreError::Unavailable(format!("it panicked: {said}"))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_become_longer_and_not_too_long() {
        let mut wait = Backoff::default();
        let seconds: Vec<u64> = (0..7).map(|_| wait.next().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_that_tells_it() {
        let answer = NoPanic::new(async { if true { panic!("at {}", 7) } else { Ok(()) } }).await;
        assert_eq!(answer.unwrap_err().to_string(), "it panicked: at 7");
    }

    #[test]
    fn an_outage_lasts_from_the_first_kind_of_call_that_fails_to_the_last_that_works_again() {
        let outage = Arc::new(Outage::default());
        let (points, names) = (Health::of(&outage), Health::of(&outage));
        points.worked("");
        assert!(outage.since().is_none());
        points.failed(&"one", "");
        let since = outage.since().expect("it has begun");
        names.failed(&"two", "");
        points.failed(&"three", "");
        let problem = points.problem().expect("points fail");
        assert!(problem.why == "three" && problem.since <= Instant::now());
        points.worked("");
        assert!(points.problem().is_none() && !points.is_failing() && names.is_failing());
        assert_eq!(outage.since(), Some(since));
        names.worked("");
        names.worked("");
        assert_eq!(outage.since(), None);
    }

    #[tokio::test]
    async fn a_wait_ends_when_there_is_a_reason_to_try_again() {
        let health = Arc::new(Health::default());
        let waiting = tokio::spawn({
            let health = health.clone();
            async move { health.wait(&mut Backoff(LONGEST_WAIT)).await }
        });
        let ended = async {
            while !waiting.is_finished() {
                health.try_again();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.is_ok());
    }
}
