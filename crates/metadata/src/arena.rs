//! Names, each kept once: chunks of bytes, so that growth copies nothing. A removed record leaves a gap; the records of a
//! chunk that is mostly gaps move to others, and the chunk is used again.

use crate::{policies::PolicyId, prefetch::prefetch};
use metric::MetricId;

/// Bytes of a chunk. A record never spans two.
const CHUNK_BYTES: usize = 1 << 20;

/// Records begin at multiples of this many bytes, so that a `u32` reaches 16 GiB of names.
const ALIGN: usize = 4;

/// `id: u32, created: u32, policy: u16, len: u16`, little-endian, then the name.
const HEADER_BYTES: usize = 12;

/// Bytes that the processor fetches at a time, and as many times as most records need.
const LINE_BYTES: usize = 64;
const LINES: usize = 3;

/// Where a record is: its offset over all chunks, divided by [`ALIGN`].
pub(crate) type Place = u32;

/// No record: the place of an id that has no name (yet).
pub(crate) const NOWHERE: Place = Place::MAX;

/// Records of names.
pub(crate) struct Arena {
    // Every chunk has room for CHUNK_BYTES and its length is a multiple of ALIGN. Room that was never written costs no memory. A
    // free chunk has none.
    chunks: Vec<Vec<u8>>,
    // Bytes of removed records in each chunk.
    gaps: Vec<u32>,
    // Chunks without records, to be used again.
    free: Vec<usize>,
    // The chunk that new records go to.
    open: Option<usize>,
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
        Arena { chunks: Vec::new(), gaps: Vec::new(), free: Vec::new(), open: None }
    }

    /// Appends a record. The name is at most `u16::MAX` bytes long.
    ///
    /// # Panics
    /// At 16 GiB of names, which is some 250 million metrics: far beyond what one node's memory holds.
    pub(crate) fn push(&mut self, record: Record<'_>) -> Place {
        debug_assert!(record.name.len() <= usize::from(u16::MAX));
        let bytes = HEADER_BYTES + record.name.len();
        let has_room = |&chunk: &usize| self.chunks[chunk].len() + bytes <= CHUNK_BYTES;
        let open = self.open.filter(has_room).unwrap_or_else(|| self.open_chunk());
        let chunk = &mut self.chunks[open];
        let place = place(open, chunk.len()).expect("16 GiB of names exceed what one node can hold");
        chunk.extend_from_slice(&record.id.0.to_le_bytes());
        chunk.extend_from_slice(&record.created.to_le_bytes());
        chunk.extend_from_slice(&record.policy.to_le_bytes());
        chunk.extend_from_slice(&(record.name.len() as u16).to_le_bytes());
        chunk.extend_from_slice(record.name);
        chunk.resize(chunk.len().next_multiple_of(ALIGN), 0);
        place
    }

    fn open_chunk(&mut self) -> usize {
        let chunk = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Vec::new());
            self.gaps.push(0);
            self.chunks.len() - 1
        });
        self.chunks[chunk] = Vec::with_capacity(CHUNK_BYTES);
        self.open = Some(chunk);
        chunk
    }

    /// Removes the record at `place`: it leaves a gap.
    pub(crate) fn remove(&mut self, place: Place) {
        let bytes = (HEADER_BYTES + self.get(place).name.len()).next_multiple_of(ALIGN);
        let offset = place as usize * ALIGN;
        let chunk = offset / CHUNK_BYTES;
        self.gaps[chunk] += bytes as u32;
        self.chunks[chunk][offset % CHUNK_BYTES..][..4].copy_from_slice(&MetricId::NONE.0.to_le_bytes());
    }

    /// A full chunk that is mostly gaps, if there is one.
    pub(crate) fn sparse_chunk(&self) -> Option<usize> {
        let is_sparse =
            |&chunk: &usize| self.gaps[chunk] as usize > self.chunks[chunk].len() / 2 && self.open != Some(chunk);
        (0..self.chunks.len()).find(is_sparse)
    }

    /// The places of a chunk's records.
    pub(crate) fn places_of(&self, chunk: usize) -> Vec<Place> {
        self.places_from(chunk, chunk + 1).collect()
    }

    /// Frees a chunk, whose records have moved.
    pub(crate) fn free_chunk(&mut self, chunk: usize) {
        self.chunks[chunk] = Vec::new();
        self.gaps[chunk] = 0;
        self.free.push(chunk);
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

    /// Asks the processor to fetch the record at a place.
    #[inline]
    pub(crate) fn prefetch(&self, place: Place) {
        let offset = place as usize * ALIGN;
        let slot = &self.chunks[offset / CHUNK_BYTES][offset % CHUNK_BYTES..];
        slot.iter().step_by(LINE_BYTES).take(LINES).for_each(prefetch);
    }

    /// Replaces the policy of the record at `place`.
    pub(crate) fn set_policy(&mut self, place: Place, policy: PolicyId) {
        let offset = place as usize * ALIGN;
        let slot = &mut self.chunks[offset / CHUNK_BYTES][offset % CHUNK_BYTES..];
        slot[8..10].copy_from_slice(&policy.to_le_bytes());
    }

    /// Bytes in use, gaps included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Bytes in use of each chunk. While no record is removed, bytes before these ends change only in their policies.
    pub(crate) fn ends(&self) -> Vec<u32> {
        self.chunks.iter().map(|chunk| chunk.len() as u32).collect()
    }

    /// The bytes in use of a chunk. A free chunk is empty.
    pub(crate) fn chunk(&self, index: usize) -> &[u8] {
        &self.chunks[index]
    }

    /// Takes over the used bytes of a chunk of another arena, or nothing when they do not end with a record.
    pub(crate) fn push_chunk(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut begin, mut gaps) = (0, 0);
        while begin < bytes.len() {
            let header = bytes.get(begin..begin + HEADER_BYTES)?;
            let len = usize::from(u16::from_le_bytes([header[10], header[11]]));
            let length = (HEADER_BYTES + len).next_multiple_of(ALIGN);
            if header[..4] == MetricId::NONE.0.to_le_bytes() {
                gaps += length as u32;
            }
            begin += length;
        }
        if begin != bytes.len() || begin > CHUNK_BYTES {
            return None;
        }
        let index = self.chunks.len();
        place(index, CHUNK_BYTES)?;
        self.gaps.push(gaps);
        self.chunks.push(Vec::new());
        if bytes.is_empty() {
            self.free.push(index);
        } else {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            chunk.extend_from_slice(bytes);
            self.chunks[index] = chunk;
            self.open = Some(index);
        }
        Some(())
    }

    /// The places of all records.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.places_from(0, self.chunks.len())
    }

    fn places_from(&self, first: usize, end: usize) -> impl Iterator<Item = Place> {
        let (mut chunk, mut begin) = (first, 0);
        let all = std::iter::from_fn(move || {
            while chunk < end && begin >= self.chunks[chunk].len() {
                chunk += 1;
                begin = 0;
            }
            if chunk >= end {
                return None;
            }
            let place = place(chunk, begin)?;
            begin += (HEADER_BYTES + self.get(place).name.len()).next_multiple_of(ALIGN);
            Some(place)
        });
        all.filter(|&place| self.get(place).id != MetricId::NONE)
    }
}

fn place(chunk: usize, begin: usize) -> Option<Place> {
    let place = Place::try_from((chunk * CHUNK_BYTES + begin) / ALIGN).ok()?;
    (place != NOWHERE).then_some(place)
}
