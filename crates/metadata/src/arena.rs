//! Names, each kept once: chunks of bytes that never move, so that growth copies nothing.

use crate::PolicyId;

/// Bytes of a chunk. A record never spans two.
const CHUNK_BYTES: usize = 1 << 20;

/// Records begin at multiples of this many bytes, so that a `u32` reaches 16 GiB of names.
const ALIGN: usize = 4;

/// `number: u32, created: u32, policy: u16, len: u16`, little-endian, then the name.
const HEADER_BYTES: usize = 12;

/// Where a record is: its offset over all chunks, divided by [`ALIGN`].
pub(crate) type Place = u32;

/// No record: the place of a number that has no name (yet).
pub(crate) const NOWHERE: Place = Place::MAX;

/// Records of names in the order they came.
pub(crate) struct Arena {
    // Every chunk has CHUNK_BYTES, zeroed by the system page by page, so that an unused end costs nothing.
    chunks: Vec<Box<[u8]>>,
    // Bytes used of the last chunk, a multiple of ALIGN.
    used: usize,
}

/// One record.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub number: u32,
    pub created: u32,
    pub policy: PolicyId,
    pub name: &'a [u8],
}

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena { chunks: Vec::new(), used: CHUNK_BYTES }
    }

    /// Appends a record. The name is at most `u16::MAX` bytes long.
    ///
    /// # Panics
    /// At 16 GiB of names, which is some 250 million metrics: far beyond what one node's memory holds.
    pub(crate) fn push(&mut self, record: Record<'_>) -> Place {
        debug_assert!(record.name.len() <= usize::from(u16::MAX));
        let bytes = HEADER_BYTES + record.name.len();
        if self.used + bytes > CHUNK_BYTES {
            self.chunks.push(vec![0; CHUNK_BYTES].into_boxed_slice());
            self.used = 0;
        }
        let offset = (self.chunks.len() - 1) * CHUNK_BYTES + self.used;
        let place = Place::try_from(offset / ALIGN).expect("16 GiB of names exceed what one node can hold");
        let chunk = self.chunks.last_mut().expect("a chunk was just made");
        let slot = &mut chunk[self.used..self.used + bytes];
        slot[0..4].copy_from_slice(&record.number.to_le_bytes());
        slot[4..8].copy_from_slice(&record.created.to_le_bytes());
        slot[8..10].copy_from_slice(&record.policy.to_le_bytes());
        slot[10..12].copy_from_slice(&(record.name.len() as u16).to_le_bytes());
        slot[12..].copy_from_slice(record.name);
        self.used += bytes.next_multiple_of(ALIGN);
        place
    }

    /// The record at a place that `push` returned.
    #[inline]
    pub(crate) fn get(&self, place: Place) -> Record<'_> {
        let offset = place as usize * ALIGN;
        let slot = &self.chunks[offset / CHUNK_BYTES][offset % CHUNK_BYTES..];
        let (header, rest) = slot.split_at(HEADER_BYTES);
        let len = usize::from(u16::from_le_bytes([header[10], header[11]]));
        Record {
            number: u32::from_le_bytes([header[0], header[1], header[2], header[3]]),
            created: u32::from_le_bytes([header[4], header[5], header[6], header[7]]),
            policy: PolicyId::from_le_bytes([header[8], header[9]]),
            name: &rest[..len],
        }
    }

    /// Replaces the policy of the record at `place`.
    pub(crate) fn set_policy(&mut self, place: Place, policy: PolicyId) {
        let offset = place as usize * ALIGN;
        let slot = &mut self.chunks[offset / CHUNK_BYTES][offset % CHUNK_BYTES..];
        slot[8..10].copy_from_slice(&policy.to_le_bytes());
    }

    /// Bytes in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES - (CHUNK_BYTES - self.used)
    }
}
