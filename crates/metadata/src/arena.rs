//! Names, each kept once: chunks of bytes that never move, so that growth copies nothing.

use crate::policies::PolicyId;
use metric::MetricId;

/// Bytes of a chunk. A record never spans two.
const CHUNK_BYTES: usize = 1 << 20;

/// Records begin at multiples of this many bytes, so that a `u32` reaches 16 GiB of names.
const ALIGN: usize = 4;

/// `id: u32, created: u32, policy: u16, len: u16`, little-endian, then the name.
const HEADER_BYTES: usize = 12;

/// Where a record is: its offset over all chunks, divided by [`ALIGN`].
pub(crate) type Place = u32;

/// No record: the place of an id that has no name (yet).
pub(crate) const NOWHERE: Place = Place::MAX;

/// Records of names in the order of their creation.
pub(crate) struct Arena {
    // Every chunk has CHUNK_BYTES, zeroed by the system page by page, so that an unused end costs nothing.
    chunks: Vec<Box<[u8]>>,
    // Bytes used of each chunk, a multiple of ALIGN.
    ends: Vec<u32>,
}

/// One record.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub id: MetricId,
    pub created: u32,
    pub policy: PolicyId,
    pub name: &'a [u8],
}

impl Arena {
    pub(crate) fn new() -> Arena {
        Arena { chunks: Vec::new(), ends: Vec::new() }
    }

    /// Appends a record. The name is at most `u16::MAX` bytes long.
    ///
    /// # Panics
    /// At 16 GiB of names, which is some 250 million metrics: far beyond what one node's memory holds.
    pub(crate) fn push(&mut self, record: Record<'_>) -> Place {
        debug_assert!(record.name.len() <= usize::from(u16::MAX));
        let bytes = HEADER_BYTES + record.name.len();
        if self.ends.last().is_none_or(|&end| end as usize + bytes > CHUNK_BYTES) {
            self.chunks.push(vec![0; CHUNK_BYTES].into_boxed_slice());
            self.ends.push(0);
        }
        let last = self.chunks.len() - 1;
        let begin = self.ends[last] as usize;
        let place = place(last, begin).expect("16 GiB of names exceed what one node can hold");
        self.ends[last] = (begin + bytes).next_multiple_of(ALIGN) as u32;
        let slot = &mut self.chunks[last][begin..begin + bytes];
        slot[0..4].copy_from_slice(&record.id.0.to_le_bytes());
        slot[4..8].copy_from_slice(&record.created.to_le_bytes());
        slot[8..10].copy_from_slice(&record.policy.to_le_bytes());
        slot[10..12].copy_from_slice(&(record.name.len() as u16).to_le_bytes());
        slot[12..].copy_from_slice(record.name);
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
            id: MetricId(u32::from_le_bytes([header[0], header[1], header[2], header[3]])),
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
        self.ends.iter().map(|&end| end as usize).sum()
    }

    /// Bytes in use of each chunk. Bytes before these ends change only in their policies.
    pub(crate) fn ends(&self) -> Vec<u32> {
        self.ends.clone()
    }

    /// A chunk, its unused end included.
    pub(crate) fn chunk(&self, index: usize) -> &[u8] {
        &self.chunks[index]
    }

    /// Takes over the used bytes of a chunk of another arena, or nothing when they do not end with a record.
    pub(crate) fn push_chunk(&mut self, bytes: &[u8]) -> Option<()> {
        let mut begin = 0;
        while begin < bytes.len() {
            let header = bytes.get(begin..begin + HEADER_BYTES)?;
            let len = usize::from(u16::from_le_bytes([header[10], header[11]]));
            begin += (HEADER_BYTES + len).next_multiple_of(ALIGN);
        }
        if begin != bytes.len() || begin > CHUNK_BYTES {
            return None;
        }
        place(self.chunks.len(), CHUNK_BYTES)?;
        let mut chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        chunk[..bytes.len()].copy_from_slice(bytes);
        self.chunks.push(chunk);
        self.ends.push(bytes.len() as u32);
        Some(())
    }

    /// The places of all records, in the order of their creation.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let mut chunk = 0;
        let mut begin = 0;
        std::iter::from_fn(move || {
            while begin >= *self.ends.get(chunk)? as usize {
                chunk += 1;
                begin = 0;
            }
            let place = place(chunk, begin)?;
            begin += (HEADER_BYTES + self.get(place).name.len()).next_multiple_of(ALIGN);
            Some(place)
        })
    }
}

fn place(chunk: usize, begin: usize) -> Option<Place> {
    let place = Place::try_from((chunk * CHUNK_BYTES + begin) / ALIGN).ok()?;
    (place != NOWHERE).then_some(place)
}
