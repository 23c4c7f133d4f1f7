//! Calls of a driver, whose panic must not end the task that retries them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use store::StoreError;

/// Why a call of a driver failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The driver says why.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The driver panicked with this message.
    #[error("it panicked: {0}")]
    Panicked(String),
}

impl CallError {
    /// Whether the same call fails again, however long the caller waits.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            CallError::Panicked(_) => true,
            CallError::Store(error) => match error {
                StoreError::Damaged { .. }
                | StoreError::Spec { .. }
                | StoreError::Rejected(_)
                | StoreError::Full(_) => true,
                StoreError::Io { .. } | StoreError::Unavailable(_) => false,
            },
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> StoreError {
        match error {
            CallError::Store(error) => error,
            CallError::Panicked(_) => StoreError::Unavailable(error.to_string()),
        }
    }
}

/// A future whose panic is an error.
pub(crate) struct NoPanic<F>(Pin<Box<F>>);

impl<F> NoPanic<F> {
    pub(crate) fn new(future: F) -> NoPanic<F> {
        NoPanic(Box::pin(future))
    }
}

impl<T, F: Future<Output = Result<T, StoreError>>> Future for NoPanic<F> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(context)));
        polled.map(|poll| poll.map_err(CallError::from)).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Poll::Ready(Err(CallError::Panicked(message)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_message() {
        let answer = NoPanic::new(async { if true { panic!("at {}", 7) } else { Ok(()) } }).await;
        assert_eq!(answer.unwrap_err().to_string(), "it panicked: at 7");
    }
}
