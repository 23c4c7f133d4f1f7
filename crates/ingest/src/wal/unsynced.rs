//! Records that no fsync covers yet, kept in memory: after an fsync that failed, the pages of the file cannot be trusted.

use std::collections::VecDeque;

/// Bytes that are allocated at once, and used again.
const CHUNK: usize = 1 << 20;
/// Free chunks that are kept, also where fewer were written since the last fsync.
const SPARES: usize = 4;

/// The last bytes of the journal, in the order in which they were appended.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    chunks: VecDeque<Vec<u8>>,
    spares: Vec<Vec<u8>>,
    /// Chunks that were begun since the last call of [`Unsynced::forget`]: as many are kept for the next ones.
    begun: usize,
    /// Bytes of the first chunk that an fsync covers.
    synced: usize,
    bytes: u64,
}

impl Unsynced {
    /// Bytes that no fsync covers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A buffer to write up to `most` bytes behind the others; [`Unsynced::added`] says how many it became.
    pub(super) fn buffer(&mut self, most: usize) -> &mut Vec<u8> {
        let has_room = self.chunks.back().is_some_and(|last| most <= last.capacity() - last.len());
        if !has_room {
            let spare = if most <= CHUNK { self.spares.pop() } else { None };
            self.begun += 1;
            self.chunks.push_back(spare.unwrap_or_else(|| Vec::with_capacity(most.max(CHUNK))));
        }
        self.chunks.back_mut().expect("there is a chunk")
    }

    /// Counts bytes written to the buffer.
    pub(super) fn added(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The oldest `bytes` are on the disk.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.bytes -= bytes;
        let kept = std::mem::take(&mut self.begun).max(SPARES);
        let mut left = bytes as usize + self.synced;
        while let Some(first) = self.chunks.front_mut()
            && first.len() <= left
        {
            left -= first.len();
            let mut free = self.chunks.pop_front().expect("there is a chunk");
            free.clear();
            if self.spares.len() < kept && free.capacity() == CHUNK {
                self.spares.push(free);
            }
            if self.chunks.is_empty() {
                break;
            }
        }
        self.synced = left;
        self.spares.truncate(kept);
    }

    /// The bytes, in pieces.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.synced;
        self.chunks.iter().map(move |chunk| &chunk[std::mem::take(&mut skip)..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_and_not_synced_is_there_in_order() {
        let mut unsynced = Unsynced::default();
        let mut model: Vec<u8> = Vec::new();
        for i in 0..400u32 {
            let length = [7, 100_000, 3_000_000, 0][i as usize % 4];
            let buffer = unsynced.buffer(length + 10);
            buffer.extend(std::iter::repeat_n(i as u8, length));
            unsynced.added(length as u64);
            model.extend(std::iter::repeat_n(i as u8, length));
            if i % 3 == 2 {
                let synced = model.len() / 2 + usize::from(i % 2 == 0) * (model.len() - model.len() / 2);
                unsynced.forget(synced as u64);
                model.drain(..synced);
            }
            assert_eq!(unsynced.bytes() as usize, model.len());
            assert!(unsynced.pieces().flatten().eq(model.iter()), "after step {i}");
        }
    }
}
