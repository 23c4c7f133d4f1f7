//! Reads events from the store, page by page.

use metric::Timestamp;
use store::Event;

use crate::{http::Rejection, query::Backend};

/// Events in one page.
const PAGE_EVENTS: usize = 1000;

/// Calls `each` for the events of a time span, both ends included, in the order of time.
pub(crate) async fn for_each_event(
    backend: &Backend,
    from: Timestamp,
    until: Timestamp,
    mut each: impl FnMut(&Event) -> Result<(), Rejection>,
) -> Result<(), Rejection> {
    let mut after = (from, 0);
    loop {
        let page = backend.events.events(after, until, PAGE_EVENTS).await?;
        page.iter().try_for_each(&mut each)?;
        match page.last() {
            Some(last) if page.len() == PAGE_EVENTS => after = (last.content.when, last.id),
            _ => return Ok(()),
        }
    }
}
