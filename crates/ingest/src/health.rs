//! Whether the store does what it is asked: said once when that changes, and how long to wait before it is asked
//! again.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    task::{Context, Poll},
    time::Duration,
};

use store::StoreError;
use tokio::sync::Notify;

/// The first wait after a refusal; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Whether the last call of a kind failed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: AtomicBool,
    recovered: Notify,
}

impl Health {
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(SeqCst)
    }

    /// Notes a failure. `what` is said to the operator when the call before had not failed.
    pub(crate) fn failed(&self, error: &dyn Display, what: &str) {
        if !self.failing.swap(true, SeqCst) {
            tracing::error!(%error, "{what}");
        }
    }

    /// Notes a success. `what` is said to the operator when the call before had failed.
    pub(crate) fn worked(&self, what: &str) {
        if self.failing.load(SeqCst) && self.failing.swap(false, SeqCst) {
            tracing::info!("{what}");
            self.recovered.notify_waiters();
        }
    }

    /// Waits before the call is made again: for the time, or until another one of its kind has worked.
    pub(crate) async fn wait(&self, wait: &mut Backoff) {
        let recovered = self.recovered.notified();
        tokio::select! {
            () = recovered => {}
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
        assert_eq!(answer.unwrap_err().to_string(), "the store is unavailable: it panicked: at 7");
    }
}
