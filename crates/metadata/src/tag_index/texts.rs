//! The texts of tags and values, each kept once in chunks of bytes.

/// Bytes of a chunk. A text never spans two.
const CHUNK_BYTES: usize = 1 << 18;

/// Texts begin at multiples of this many bytes, as names do in their arena. No more texts than names can be there, so that
/// a place always suffices.
const ALIGN: usize = 4;

/// Bytes of the length before a text.
const HEADER_BYTES: usize = 2;

/// Bytes of removed texts below which they stay.
const FEW_GAPS: usize = 1 << 20;

/// Where a text is: its offset over all chunks, divided by [`ALIGN`].
pub(super) type TextPlace = u32;

/// Texts of at most 65,535 bytes.
#[derive(Default)]
pub(super) struct Texts {
    chunks: Vec<Vec<u8>>,
    used: usize,
    // Bytes of removed texts.
    gaps: usize,
}

impl Texts {
    pub(super) fn add(&mut self, text: &str) -> TextPlace {
        let bytes = bytes_of(text);
        if self.chunks.last().is_none_or(|chunk| chunk.len() + bytes > CHUNK_BYTES) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK_BYTES };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let begin = chunk.len();
        chunk.extend_from_slice(&(text.len() as u16).to_le_bytes());
        chunk.extend_from_slice(text.as_bytes());
        chunk.resize(begin + bytes, 0);
        self.used += bytes;
        TextPlace::try_from((number * CHUNK_BYTES + begin) / ALIGN)
            .expect("texts of tags are part of at most 16 GiB of names")
    }

    #[inline]
    pub(super) fn get(&self, place: TextPlace) -> &str {
        std::str::from_utf8(self.bytes(place)).expect("texts come from names, which are UTF-8")
    }

    /// The bytes of a text, which are UTF-8.
    #[inline]
    pub(super) fn bytes(&self, place: TextPlace) -> &[u8] {
        let offset = place as usize * ALIGN;
        let rest = &self.chunks[offset / CHUNK_BYTES][offset % CHUNK_BYTES..];
        let len = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        &rest[HEADER_BYTES..HEADER_BYTES + len]
    }

    /// Forgets a text that has no use.
    pub(super) fn remove(&mut self, place: TextPlace) {
        self.gaps += bytes_of(self.get(place));
    }

    /// Whether most of the bytes are those of removed texts.
    pub(super) fn are_sparse(&self) -> bool {
        self.gaps > FEW_GAPS && 2 * self.gaps > self.used
    }

    /// Bytes allocated.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}

fn bytes_of(text: &str) -> usize {
    (HEADER_BYTES + text.len()).next_multiple_of(ALIGN)
}
