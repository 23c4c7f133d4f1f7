//! Events: things that happened, submitted by people and deployments, to mark graphs with.

use metric::Timestamp;

use crate::DriverFuture;

/// Something that happened, without an id yet. The caller bounds the texts; a store keeps them as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewEvent {
    /// Unix seconds.
    pub when: Timestamp,
    /// What happened, in a few words.
    pub what: String,
    /// Its tags as they were sent, with blanks between.
    pub tags: String,
    /// Anything more.
    pub data: String,
}

/// An event that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// At least 1, at most 2⁵³ (browsers read no more), no other event's. Larger for later ones where one node gives
    /// them out; where several do, that is not promised.
    pub id: u64,
    /// The event as submitted.
    pub content: NewEvent,
}

/// Where events are kept. They are few: people and deployments make them.
pub trait Events: Send + Sync + 'static {
    /// Keeps an event and returns its id. On `Ok` it is durable and there for every reader.
    fn put_event(&self, event: NewEvent) -> DriverFuture<'_, u64>;

    /// The first `most` events after `after` (a time and an id, exclusive: `(from, 0)` begins with the first of `from`),
    /// up to and with `until`, by time and then by id. Fewer than `most` are all there are.
    fn events(&self, after: (Timestamp, u64), until: Timestamp, most: usize) -> DriverFuture<'_, Vec<Event>>;

    /// The event with an id.
    fn event(&self, id: u64) -> DriverFuture<'_, Option<Event>>;

    /// Deletes the events before a time, durably, and returns how many. Their ids are not given again.
    fn expire_events(&self, before: Timestamp) -> DriverFuture<'_, u64>;

    /// Deletes events by their ids, durably, and returns how many there were. Their ids are not given again.
    fn delete_events(&self, ids: Vec<u64>) -> DriverFuture<'_, u64>;
}
