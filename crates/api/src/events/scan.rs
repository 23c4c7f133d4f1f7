//! Reads events from the store, page by page.

use metric::Timestamp;
use store::Event;

use crate::{http::Rejection, query::Backend};

/// Events in one page: some MiB of the longest.
const PAGE_EVENTS: usize = 100;

/// Events between two looks at other work and at whether the client still waits: some milliseconds for the longest.
const SLICE: usize = 8;

/// The events of a time span, both ends included, in the order of time.
pub(crate) struct Pages<'a> {
    backend: &'a Backend,
    /// The time and id of the last event before those that are left; none at the end.
    after: Option<(Timestamp, u64)>,
    until: Timestamp,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(backend: &'a Backend, from: Timestamp, until: Timestamp) -> Pages<'a> {
        Pages { backend, after: Some((from, 0)), until }
    }

    /// Calls `each` for the events of the next page. Returns false at the end.
    pub(crate) async fn next(
        &mut self,
        mut each: impl FnMut(&Event) -> Result<(), Rejection>,
    ) -> Result<bool, Rejection> {
        let Some(after) = self.after.take() else { return Ok(false) };
        let page = self.backend.events.events(after, self.until, PAGE_EVENTS).await?;
        for slice in page.chunks(SLICE) {
            slice.iter().try_for_each(&mut each)?;
            tokio::task::yield_now().await;
        }
        if page.len() == PAGE_EVENTS {
            self.after = page.last().map(|last| (last.content.when, last.id));
        }
        Ok(true)
    }
}
