//! Work spread over the threads of the runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use metric::MetricId;
use store::StoreError;

/// Cancels the threads of a call when its future is dropped.
pub(crate) struct Cancel(pub(crate) Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) async fn joined<T>(task: tokio::task::JoinHandle<T>) -> Result<T, StoreError> {
    task.await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => StoreError::Unavailable("the program is stopping".to_owned()),
    })
}

/// Cuts work into a chunk for each thread. All items of one metric are in one chunk.
pub(crate) fn chunks<T>(mut items: Vec<T>, metric: impl Fn(&T) -> MetricId) -> Vec<Vec<T>> {
    let each = items.len().div_ceil(threads()).max(1);
    let mut chunks = Vec::new();
    while !items.is_empty() {
        let mut end = each.min(items.len());
        while 0 < end && end < items.len() && metric(&items[end]) == metric(&items[end - 1]) {
            end += 1;
        }
        let rest = items.split_off(end);
        chunks.push(std::mem::replace(&mut items, rest));
    }
    chunks
}
