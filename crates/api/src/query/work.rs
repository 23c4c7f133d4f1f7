//! Work on threads that may block, and its cancellation.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use metadata::FindError;

use crate::http::Rejection;

/// Sets a flag when dropped. Work on another thread checks the flag to learn that the client disconnected.
pub(crate) struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Rejection> + Send + 'static,
) -> Result<T, Rejection> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Rejection::Broken)?
}

/// Whether the user's pattern caused the error, not the store or a disconnect.
pub(crate) fn is_invalid_pattern(error: &FindError) -> bool {
    !matches!(error, FindError::Cancelled | FindError::Elsewhere(_))
}
