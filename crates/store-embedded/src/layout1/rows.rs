//! Rows of the metrics table and the events table of layout 1.
//!
//! ```text
//! key  'm' │ id u32 BE                            value  created_on u32 │ policies u8 │ { since u32 │ policy u16 } … │ name
//! key  'p' │ id u16 BE                            value  xFilesFactor f64 │ "average 10080*60s:720*3600s"
//! key  'e' │ when i64 BE, sign flipped │ id u64   value  what u32 │ tags u32 │ what │ tags │ data
//! key  'i' │ id u64 BE                            value  when i64
//! ```

use std::collections::HashMap;

use metric::{MetricId, Policy, Timestamp};
use store::{Event, MetricRecord, NewEvent, PolicyChange};

/// A row of the metrics table.
pub(super) enum OldRow<'a> {
    Policy(u16, Policy),
    Metric(MetricId, &'a [u8]),
    Deleted(MetricId),
}

pub(super) fn read_row<'a>(key: &[u8], value: &'a [u8]) -> Option<OldRow<'a>> {
    match *key {
        [b'p', a, b] => Some(OldRow::Policy(u16::from_be_bytes([a, b]), Policy::decode(value)?)),
        [b'm', a, b, c, d] => {
            let id = MetricId(u32::from_be_bytes([a, b, c, d]));
            Some(if value.is_empty() { OldRow::Deleted(id) } else { OldRow::Metric(id, value) })
        }
        _ => None,
    }
}

/// A metric; its policy is carbon's default where the policy's row is damaged.
pub(super) fn read_metric(id: MetricId, value: &[u8], policies: &HashMap<u16, Policy>) -> Option<MetricRecord> {
    let (created_on, rest) = value.split_first_chunk::<4>()?;
    let (&count, mut rest) = rest.split_first()?;
    let mut changes = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (since, after) = rest.split_first_chunk::<4>()?;
        let (id, after) = after.split_first_chunk::<2>()?;
        let policy = policies.get(&u16::from_le_bytes(*id)).cloned().unwrap_or_default();
        changes.push(PolicyChange { since: Timestamp::from(u32::from_le_bytes(*since)), policy });
        rest = after;
    }
    Some(MetricRecord {
        id,
        name: std::str::from_utf8(rest).ok()?.to_owned(),
        created_on: Timestamp::from(u32::from_le_bytes(*created_on)),
        policies: changes,
    })
}

/// An event. `None` for a row that has only an id.
pub(super) fn read_event(key: &[u8], value: &[u8]) -> Option<Event> {
    let (when, id) = key.strip_prefix(b"e")?.split_first_chunk::<8>()?;
    let (what_len, rest) = value.split_first_chunk::<4>()?;
    let (tags_len, texts) = rest.split_first_chunk::<4>()?;
    let (what, rest) = texts.split_at_checked(u32::from_le_bytes(*what_len) as usize)?;
    let (tags, data) = rest.split_at_checked(u32::from_le_bytes(*tags_len) as usize)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let when = (u64::from_be_bytes(*when) ^ (1 << 63)) as Timestamp;
    let content = NewEvent { when, what: text(what)?, tags: text(tags)?, data: text(data)? };
    Some(Event { id: u64::from_be_bytes(id.try_into().ok()?), content })
}
