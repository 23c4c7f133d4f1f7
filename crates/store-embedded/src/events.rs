//! The events table: a row for each event by its time, and one that says when an id was.
//!
//! ```text
//! key  'e' │ when i64 BE, sign flipped │ id u64 BE     value  what u32 │ tags u32 │ what │ tags │ data
//! key  'i' │ id u64 BE                                 value  when i64
//! ```
//!
//! Lengths and times in values are little-endian. An event's second row is written first: an id that is in use by half
//! an event, after a crash, is not given again.

use metric::Timestamp;
use parking_lot::Mutex;
use store::{Event, NewEvent, StoreError};

use crate::tree::Tree;

const EVENT: u8 = b'e';
const ID: u8 = b'i';

pub(crate) struct EventsTable {
    pub(crate) tree: Tree,
    last_id: Mutex<u64>,
}

impl EventsTable {
    pub(crate) fn open(tree: Tree) -> Result<EventsTable, StoreError> {
        let last_id = match tree.last()? {
            // Ids sort after events.
            Some(key) => match &key[..] {
                [ID, id @ ..] => id.try_into().map(u64::from_be_bytes).map_err(|_| damaged(&tree, &key))?,
                _ => return Err(damaged(&tree, &key)),
            },
            None => 0,
        };
        Ok(EventsTable { tree, last_id: Mutex::new(last_id) })
    }

    /// Keeps an event, durably. Of several at a time one syncs for all.
    pub(crate) fn put(&self, event: &NewEvent) -> Result<u64, StoreError> {
        let id = {
            let mut last_id = self.last_id.lock();
            *last_id += 1;
            *last_id
        };
        self.tree.insert(&id_key(id), &event.when.to_le_bytes());
        let mut value = Vec::with_capacity(8 + event.what.len() + event.tags.len() + event.data.len());
        value.extend_from_slice(&len(&event.what)?);
        value.extend_from_slice(&len(&event.tags)?);
        for text in [&event.what, &event.tags, &event.data] {
            value.extend_from_slice(text.as_bytes());
        }
        self.tree.insert(&event_key(event.when, id), &value);
        self.tree.flush()?;
        Ok(id)
    }

    pub(crate) fn after(
        &self,
        (when, id): (Timestamp, u64),
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let mut events = Vec::new();
        let (first, last) = (event_key(when, id), event_key(until, u64::MAX));
        if last <= first || most == 0 {
            return Ok(events);
        }
        self.tree.scan_between(&first, &last, |key, value| {
            events.push(read_event(key, value).ok_or_else(|| damaged(&self.tree, key))?);
            Ok(events.len() < most)
        })?;
        Ok(events)
    }

    pub(crate) fn get(&self, id: u64) -> Result<Option<Event>, StoreError> {
        let Some(when) = self.tree.get(&id_key(id))? else { return Ok(None) };
        let when = Timestamp::from_le_bytes(when[..].try_into().map_err(|_| damaged(&self.tree, &id_key(id)))?);
        let key = event_key(when, id);
        let Some(value) = self.tree.get(&key)? else { return Ok(None) };
        read_event(&key, &value).map(Some).ok_or_else(|| damaged(&self.tree, &key))
    }
}

fn len(text: &str) -> Result<[u8; 4], StoreError> {
    let len = u32::try_from(text.len());
    len.map(u32::to_le_bytes).map_err(|_| StoreError::Unavailable("an event of 4 GiB is not kept".to_owned()))
}

/// Times before 1970 sort before those after.
fn event_key(when: Timestamp, id: u64) -> [u8; 17] {
    let mut key = [EVENT; 17];
    key[1..9].copy_from_slice(&((when as u64) ^ (1 << 63)).to_be_bytes());
    key[9..].copy_from_slice(&id.to_be_bytes());
    key
}

fn id_key(id: u64) -> [u8; 9] {
    let mut key = [ID; 9];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

fn read_event(key: &[u8], value: &[u8]) -> Option<Event> {
    let (when, id) = key.strip_prefix(&[EVENT])?.split_first_chunk::<8>()?;
    let (what_len, rest) = value.split_first_chunk::<4>()?;
    let (tags_len, texts) = rest.split_first_chunk::<4>()?;
    let (what, rest) = texts.split_at_checked(u32::from_le_bytes(*what_len) as usize)?;
    let (tags, data) = rest.split_at_checked(u32::from_le_bytes(*tags_len) as usize)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    Some(Event {
        id: u64::from_be_bytes(id.try_into().ok()?),
        content: NewEvent {
            when: (u64::from_be_bytes(*when) ^ (1 << 63)) as Timestamp,
            what: text(what)?,
            tags: text(tags)?,
            data: text(data)?,
        },
    })
}

fn damaged(tree: &Tree, key: &[u8]) -> StoreError {
    let what = format!("the row of key {key:02x?} in {}", tree.path().display());
    StoreError::Damaged { what, how: "it cannot be read".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_schema_shows_what_is_written() {
        let page = include_str!("../../../schema/embedded.md");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(page.contains(&hex(&event_key(1_700_000_000, 3))));
        assert!(page.contains(&hex(&id_key(3))));
    }
}
