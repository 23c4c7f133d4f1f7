//! The payloads of the names log. Numbers are little-endian; times are Unix seconds.
//!
//! ```text
//! kind 1, policy     id u16 │ xFilesFactor f64 │ "average 10080*60s:720*3600s"
//! kind 2, metric     id u32 │ created_on u32 │ policies u8 │ { since u32 │ policy u16 } … │ name
//! kind 3, deleted    { first id u32 │ how many u32 } …
//! kind 4, opening    id u64 │ first id u32
//! kind 5, seen       next id u32
//! kind 6, missing    { first id u32 │ how many u32 } …
//! kind 7, lost       what u8 │ { first id u32 │ how many u32 } …
//! kind 8, lost end   file u64 │ bytes u64 │ { first id u32 │ how many u32 } …
//! ```

use metric::{MetricId, Policy, Timestamp};
use store::{Incarnation, MetricRecord, PolicyChange};

use crate::record_log::LONGEST_CORRECTED;

pub(super) const POLICY: u8 = 1;
pub(super) const METRIC: u8 = 2;
pub(super) const DELETED: u8 = 3;
pub(super) const OPENING: u8 = 4;
pub(super) const SEEN: u8 = 5;
pub(super) const MISSING: u8 = 6;
pub(super) const LOST: u8 = 7;
pub(super) const LOST_END: u8 = 8;

/// The id of a record of kind [`METRIC`].
pub(super) fn id_of(payload: &[u8]) -> Option<MetricId> {
    payload.first_chunk().map(|id| MetricId(u32::from_le_bytes(*id)))
}

/// The policies of a record of kind [`METRIC`], oldest first: since when, and the number of each.
pub(super) fn policies_of(payload: &[u8]) -> impl Iterator<Item = (Timestamp, u16)> + '_ {
    let (&count, spans) = payload.get(8..).and_then(<[u8]>::split_first).unwrap_or((&0, &[]));
    let span = |span: &[u8]| {
        let (since, policy) = span.split_first_chunk()?;
        Some((Timestamp::from(u32::from_le_bytes(*since)), u16::from_le_bytes(policy.try_into().ok()?)))
    };
    spans.chunks_exact(6).take(usize::from(count)).filter_map(span)
}

/// The name of a record of kind [`METRIC`].
pub(super) fn name_of(payload: &[u8]) -> Option<&str> {
    let count = usize::from(*payload.get(8)?);
    std::str::from_utf8(payload.get(9 + 6 * count..)?).ok()
}

/// Unsigned seconds last until 2106.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}

pub(super) fn encode_policy(id: u16, policy: &Policy) -> Vec<u8> {
    let mut payload = id.to_le_bytes().to_vec();
    policy.encode(&mut payload);
    payload
}

pub(super) fn decode_policy(payload: &[u8]) -> Option<(u16, Policy)> {
    let (id, policy) = payload.split_first_chunk()?;
    Some((u16::from_le_bytes(*id), Policy::decode(policy)?))
}

/// `policy_id` gives the id of each policy.
pub(super) fn encode_metric(record: &MetricRecord, mut policy_id: impl FnMut(&Policy) -> u16, payload: &mut Vec<u8>) {
    // The registry keeps far fewer.
    let kept = &record.policies[record.policies.len().saturating_sub(usize::from(u8::MAX))..];
    payload.extend_from_slice(&record.id.0.to_le_bytes());
    payload.extend_from_slice(&seconds(record.created_on).to_le_bytes());
    payload.push(kept.len() as u8);
    for change in kept {
        payload.extend_from_slice(&seconds(change.since).to_le_bytes());
        payload.extend_from_slice(&policy_id(&change.policy).to_le_bytes());
    }
    payload.extend_from_slice(record.name.as_bytes());
}

/// `policy` has the policy of each id.
pub(super) fn decode_metric(payload: &[u8], mut policy: impl FnMut(u16) -> Policy) -> Option<MetricRecord> {
    let (id, rest) = payload.split_first_chunk::<4>()?;
    let (created_on, rest) = rest.split_first_chunk::<4>()?;
    let (&count, mut rest) = rest.split_first()?;
    let mut policies = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (since, after) = rest.split_first_chunk::<4>()?;
        let (id, after) = after.split_first_chunk::<2>()?;
        let policy = policy(u16::from_le_bytes(*id));
        policies.push(PolicyChange { since: Timestamp::from(u32::from_le_bytes(*since)), policy });
        rest = after;
    }
    Some(MetricRecord {
        id: MetricId(u32::from_le_bytes(*id)),
        name: std::str::from_utf8(rest).ok()?.to_owned(),
        created_on: Timestamp::from(u32::from_le_bytes(*created_on)),
        policies,
    })
}

/// Runs of ids that a record has at most, so that a wrong bit of it can be corrected.
pub(super) const MOST_RUNS: usize = LONGEST_CORRECTED / 8;

/// Of kinds [`DELETED`] and [`MISSING`]: [`MOST_RUNS`] at most.
pub(super) fn encode_runs(runs: &[(MetricId, u32)]) -> Vec<u8> {
    runs.iter().flat_map(|(first, count)| [first.0.to_le_bytes(), count.to_le_bytes()]).flatten().collect()
}

pub(super) fn decode_deleted(payload: &[u8]) -> impl Iterator<Item = MetricId> + '_ {
    decode_runs(payload).flat_map(|(first, count)| first.0..first.0.saturating_add(count)).map(MetricId)
}

/// The first id of each run, and how many it has.
pub(super) fn decode_runs(payload: &[u8]) -> impl Iterator<Item = (MetricId, u32)> + '_ {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    payload.chunks_exact(8).map(move |run| (MetricId(number(&run[..4])), number(&run[4..])))
}

pub(super) fn encode_opening(opening: &Incarnation) -> Vec<u8> {
    [&opening.id.to_le_bytes()[..], &opening.first_id.0.to_le_bytes()].concat()
}

pub(super) fn decode_opening(payload: &[u8]) -> Option<Incarnation> {
    let (id, first_id) = payload.split_first_chunk()?;
    Some(Incarnation { id: u64::from_le_bytes(*id), first_id: decode_seen(first_id)? })
}

pub(super) fn encode_seen(next: MetricId) -> Vec<u8> {
    next.0.to_le_bytes().to_vec()
}

pub(super) fn decode_seen(payload: &[u8]) -> Option<MetricId> {
    Some(MetricId(u32::from_le_bytes(payload.try_into().ok()?)))
}
