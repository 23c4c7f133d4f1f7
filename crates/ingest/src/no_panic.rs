//! Calls of a driver, whose panic must not end the task that retries them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use store::StoreError;

/// A future whose panic is an error.
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
            let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Poll::Ready(Err(StoreError::Unavailable(format!("it panicked: {message}"))))
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
