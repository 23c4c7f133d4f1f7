//! The index of a file of rows: where its blocks are, by their first keys.

use super::bytes::{Bad, Bytes};
use crate::row_key::RowKey;

/// The first bytes of an index.
pub(super) const MAGIC: [u8; 4] = *b"PLBi";

/// Bytes of an entry.
const ENTRY: usize = 20;

/// Bytes of an index besides its entries.
const FRAME: usize = 12;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: RowKey,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The blocks of a file, in the order of their keys and offsets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    pub(crate) blocks: Vec<Entry>,
}

fn checksum(seal: u32, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seal);
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

impl Index {
    /// Where the last block ends. A file without a footer has its index behind that, or has lost its end.
    pub(super) fn ends_at(&self) -> u64 {
        self.blocks.last().map_or(0, |last| last.offset + u64::from(last.len))
    }

    /// The bytes for `offset` of the file with this seal, and their checksum.
    pub(super) fn encode(&self, seal: u32, offset: u64) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(FRAME + ENTRY * self.blocks.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        for entry in &self.blocks {
            out.extend_from_slice(&entry.first.to_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.len.to_le_bytes());
        }
        let crc = checksum(seal, offset, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        (out, crc)
    }

    pub(super) fn parse(seal: u32, offset: u64, bytes: &[u8]) -> Result<Index, Bad> {
        let mut parts = Bytes(bytes);
        if parts.array()? != MAGIC {
            return Err(Bad("no index begins here"));
        }
        let count = parts.u32()? as usize;
        if bytes.len() != FRAME.saturating_add(count.saturating_mul(ENTRY)) {
            return Err(Bad("the index has another length than its file says"));
        }
        let (content, crc) = bytes.split_at(bytes.len() - 4);
        if checksum(seal, offset, content).to_le_bytes() != crc {
            return Err(Bad("the checksum of the index is wrong"));
        }
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            blocks.push(Entry { first: parts.key()?, offset: parts.u64()?, len: parts.u32()? });
        }
        Ok(Index { blocks })
    }

    /// Bytes of an index with so many entries.
    pub(super) fn bytes_of(entries: u32) -> u64 {
        (FRAME + ENTRY * entries as usize) as u64
    }

    /// The number of the only block that may have the key. The search begins at block `from`, whose first key is not
    /// above it, and costs little near there.
    pub(crate) fn find(&self, key: RowKey, from: usize) -> Option<usize> {
        let blocks = self.blocks.get(from..).unwrap_or_default();
        let mut reach = 1;
        while blocks.get(reach).is_some_and(|entry| entry.first <= key) {
            reach *= 2;
        }
        let below = blocks[..reach.min(blocks.len())].partition_point(|entry| entry.first <= key);
        (from + below).checked_sub(1)
    }

    /// The last key that a block may have, given the last of its file.
    pub(crate) fn last_key(&self, block: usize, of_file: RowKey) -> RowKey {
        self.blocks.get(block + 1).map_or(of_file, |next| next.first)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Entry>() * self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use metric::MetricId;

    use super::*;

    #[test]
    fn an_index_survives_and_any_flipped_bit_is_noticed() {
        let entry =
            |n: u32| Entry { first: RowKey { group: n, metric: MetricId(9) }, offset: u64::from(n) * 100, len: 100 };
        let index = Index { blocks: (1..5).map(entry).collect() };
        let (bytes, _) = index.encode(5, 1000);
        assert_eq!(Index::parse(5, 1000, &bytes), Ok(index.clone()));
        assert!(Index::parse(5, 1001, &bytes).is_err() && Index::parse(6, 1000, &bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Index::parse(5, 1000, &flipped).is_err(), "bit {bit}");
        }
        let key = |group, metric| RowKey { group, metric: MetricId(metric) };
        let find = |group, metric| index.find(key(group, metric), 0);
        assert_eq!((find(1, 8), find(1, 9), find(2, 0), find(9, 9)), (None, Some(0), Some(0), Some(3)));
        let many = Index { blocks: (1..100).map(entry).collect() };
        for (from, wanted) in (0..99_u32).flat_map(|from| (from..99).map(move |wanted| (from, wanted))) {
            assert_eq!(many.find(key(wanted + 1, 12), from as usize), Some(wanted as usize));
        }
    }
}
