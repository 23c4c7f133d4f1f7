//! What a segment says about itself: who wrote it, and which ids existed then. See `schema/journal.md`.

use metric::MetricId;
use store::{Identity, Incarnation};

/// The version of the format that this program writes.
pub(super) const VERSION: u16 = 2;
/// Openings of the store that a segment names; the oldest are left out.
const OPENINGS: usize = 16;

/// What a segment says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store, and the opening of it, whose ids the segment has.
    pub identity: Identity,
    /// Its number.
    pub segment: u64,
    /// Every id that was given out before this segment is below this.
    pub next_id: MetricId,
    /// The segment before it that has records, or the last one that was stored; 0 for the first. Segments of earlier
    /// programs do not say.
    pub previous: Option<u64>,
    /// Bytes of the previous segment that were known to be on the disk when this one was begun; 0 where that was not known.
    pub previous_bytes: u64,
    /// Up to where the previous segment had whole records on the disk then; 0 where that was not known. Segments of earlier
    /// programs do not say.
    pub previous_whole: Option<u64>,
    /// Bytes of the previous segment when this one was begun, also those that no fsync had covered: they are on the disk once something of this
    /// one is. Segments of earlier programs do not say.
    pub previous_length: Option<u64>,
    /// Where the segment begins with records of others.
    pub repeats: Option<Repeats>,
}

/// A part of the journal that could not be put on the disk and is repeated in a later segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// The first segment whose records are repeated.
    pub segment: u64,
    /// From this byte on, to the end of the segment before the one that repeats.
    pub offset: u64,
    /// Bytes of repeated records, directly behind the header.
    pub bytes: u64,
}

impl SegmentHeader {
    /// Of a segment that does not say.
    fn unknown() -> SegmentHeader {
        SegmentHeader {
            identity: Identity::default(),
            segment: 0,
            next_id: MetricId(0),
            previous: None,
            previous_bytes: 0,
            previous_whole: None,
            previous_length: None,
            repeats: None,
        }
    }

    /// Whether a file with this number is not the segment that it was begun as: a copy of another, or renamed.
    pub(super) fn is_misnamed(&self, number: u64) -> bool {
        self.segment != 0 && self.segment != number
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let SegmentHeader { identity, segment, next_id, previous, previous_bytes, repeats, .. } = self;
        let repeats = repeats.unwrap_or(Repeats { segment: 0, offset: 0, bytes: 0 });
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&identity.store.to_le_bytes());
        bytes.extend_from_slice(&segment.to_le_bytes());
        bytes.extend_from_slice(&next_id.0.to_le_bytes());
        for field in [repeats.segment, repeats.offset, repeats.bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let kept = &identity.chain[identity.chain.len().saturating_sub(OPENINGS)..];
        bytes.push(kept.len() as u8);
        for opening in kept {
            bytes.extend_from_slice(&opening.id.to_le_bytes());
            bytes.extend_from_slice(&opening.first_id.0.to_le_bytes());
        }
        if let Some(previous) = previous {
            bytes.extend_from_slice(&previous.to_le_bytes());
            bytes.extend_from_slice(&previous_bytes.to_le_bytes());
            for field in [self.previous_whole, self.previous_length].into_iter().map_while(|field| field) {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
    }

    /// The version of the format, and the header. Of a newer version only the version is known.
    pub(super) fn decode(payload: &[u8]) -> Option<(u16, SegmentHeader)> {
        let mut rest = payload;
        let version = u16::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Some((version, SegmentHeader::unknown()));
        }
        let store = u128::from_le_bytes(take(&mut rest)?);
        let segment = u64::from_le_bytes(take(&mut rest)?);
        let next_id = MetricId(u32::from_le_bytes(take(&mut rest)?));
        let [first, offset, bytes] = [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?].map(u64::from_le_bytes);
        let repeats = (first != 0).then_some(Repeats { segment: first, offset, bytes });
        let [openings] = take(&mut rest)?;
        let mut chain = Vec::new();
        for _ in 0..openings {
            let id = u64::from_le_bytes(take(&mut rest)?);
            chain.push(Incarnation { id, first_id: MetricId(u32::from_le_bytes(take(&mut rest)?)) });
        }
        let previous = take(&mut rest).map(u64::from_le_bytes);
        let previous_bytes = take(&mut rest).map_or(0, u64::from_le_bytes);
        let previous_whole = take(&mut rest).map(u64::from_le_bytes);
        let previous_length = take(&mut rest).map(u64::from_le_bytes);
        let header = SegmentHeader {
            identity: Identity { store, chain },
            segment,
            next_id,
            previous,
            previous_bytes,
            previous_whole,
            previous_length,
            repeats,
        };
        Some((version, header))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}
