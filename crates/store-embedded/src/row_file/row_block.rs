//! A block: some rows of consecutive keys, with a checksum that also covers where the block is.

use metric::MetricId;

use super::bytes::{Bad, Bytes, put_varint};
use crate::row_key::RowKey;

/// The first bytes of a block. A file without an index is searched for them.
pub(super) const MAGIC: [u8; 4] = *b"PLBk";

/// Bytes before the rows of a block.
pub(super) const HEAD: usize = 32;

/// Bytes of rows at which a block ends: few enough that a lookup reads little, enough that the head does not matter.
const TARGET: usize = 16 << 10;

/// Most bytes of a block with its head; bounds the memory of reading one. A row has at most 13 KiB.
pub(super) const MAX: usize = 64 << 10;

/// Most bytes of a row.
pub(crate) const MAX_ROW: usize = MAX - TARGET - HEAD - 32;

/// What the head of a block says of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Bytes of the block, head included.
    pub(super) len: usize,
    pub(super) rows: u32,
    pub(super) first: RowKey,
    pub(super) last: RowKey,
    crc: u32,
}

impl BlockHead {
    /// Reads the head. Only [`check`] makes sure that it is right.
    pub(super) fn parse(bytes: &[u8]) -> Result<BlockHead, Bad> {
        let mut bytes = Bytes(bytes);
        if bytes.array()? != MAGIC {
            return Err(Bad("no block begins here"));
        }
        let len = bytes.u32()? as usize;
        let head = BlockHead { len, rows: bytes.u32()?, first: bytes.key()?, last: bytes.key()?, crc: bytes.u32()? };
        if !(HEAD..=MAX).contains(&len) {
            return Err(Bad("a block has an impossible length"));
        }
        Ok(head)
    }
}

/// The checksum of a block at `offset` of the file with this seal: the same bytes elsewhere have another one.
fn checksum(seal: u32, offset: u64, block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seal);
    hasher.update(&offset.to_le_bytes());
    hasher.update(&block[..HEAD - 4]);
    hasher.update(&block[HEAD..]);
    hasher.finalize()
}

/// Checks a whole block.
pub(super) fn check(seal: u32, offset: u64, block: &[u8]) -> Result<BlockHead, Bad> {
    let head = BlockHead::parse(block)?;
    if head.len != block.len() {
        return Err(Bad("a block has another length than its file says"));
    }
    if checksum(seal, offset, block) != head.crc {
        return Err(Bad("the checksum of a block is wrong"));
    }
    Ok(head)
}

/// Makes blocks out of rows.
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    rows: u32,
    first: RowKey,
    last: RowKey,
}

impl BlockBuilder {
    pub(super) fn new() -> BlockBuilder {
        BlockBuilder { bytes: vec![0; HEAD], rows: 0, first: RowKey::FIRST, last: RowKey::FIRST }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether the next row begins another block.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= TARGET
    }

    pub(super) fn first(&self) -> RowKey {
        self.first
    }

    /// Adds a row; keys rise.
    pub(super) fn push(&mut self, key: RowKey, row: &[u8]) {
        debug_assert!(self.is_empty() || self.last < key, "keys rise");
        assert!(row.len() <= MAX_ROW, "a row has {} bytes", row.len());
        if self.is_empty() {
            (self.first, self.last) = (key, key);
        }
        if key.group == self.last.group {
            put_varint(&mut self.bytes, u64::from(key.metric.0 - self.last.metric.0) << 1);
        } else {
            put_varint(&mut self.bytes, u64::from(key.metric.0) << 1 | 1);
            put_varint(&mut self.bytes, u64::from(key.group - self.last.group));
        }
        put_varint(&mut self.bytes, row.len() as u64);
        self.bytes.extend_from_slice(row);
        self.last = key;
        self.rows += 1;
    }

    /// The bytes of the block, for `offset` of the file with this seal.
    pub(super) fn seal(&mut self, seal: u32, offset: u64) -> &[u8] {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&MAGIC);
        self.bytes[4..8].copy_from_slice(&len.to_le_bytes());
        self.bytes[8..12].copy_from_slice(&self.rows.to_le_bytes());
        self.bytes[12..20].copy_from_slice(&self.first.to_bytes());
        self.bytes[20..28].copy_from_slice(&self.last.to_bytes());
        let crc = checksum(seal, offset, &self.bytes);
        self.bytes[28..HEAD].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.rows = 0;
    }
}

/// Bytes of rows behind which the next row has a mark. A search reads fewer than these: to step over rows costs a miss of the
/// processor's cache for each few of them.
const MARK_EVERY: usize = 256;

/// A block that was checked, with marks: a search steps over the rows before the one that it wants.
#[derive(Debug)]
pub(crate) struct MarkedBlock {
    bytes: Vec<u8>,
    /// In the order of their keys.
    marks: Vec<Mark>,
}

/// A place in a block from which its rows can be read.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The key of the row, and that of the row before it.
    key: RowKey,
    before: RowKey,
    offset: u32,
    /// Rows of the block from here on.
    left: u32,
}

impl MarkedBlock {
    /// Marks the rows of a block up to the first that cannot be read.
    pub(super) fn new(bytes: Vec<u8>) -> MarkedBlock {
        let mut marks = Vec::new();
        if let Ok(mut rows) = RowsOfBlock::new(&bytes) {
            marks.reserve_exact(bytes.len() / MARK_EVERY);
            let mut marked = HEAD;
            for left in (1..=rows.left).rev() {
                let (before, offset) = (rows.last, bytes.len() - rows.bytes.0.len());
                let Ok((key, _)) = rows.row() else { break };
                if MARK_EVERY <= offset - marked {
                    marks.push(Mark { key, before, offset: offset as u32, left });
                    marked = offset;
                }
            }
        }
        MarkedBlock { bytes, marks }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + size_of::<Mark>() * self.marks.len()
    }

    /// Calls `each` with the place of every key that the block has, and its row. Keys rise, and may repeat. False when the block
    /// has no rows that can be read.
    pub(super) fn find(&self, keys: &[RowKey], mut each: impl FnMut(usize, &[u8])) -> bool {
        let Ok(mut rows) = RowsOfBlock::new(&self.bytes) else { return false };
        let (mut wanted, mut passed) = (0, 0);
        while let Some(&key) = keys.get(wanted) {
            // The last mark that is not behind the key.
            let near = passed + self.marks[passed..].partition_point(|mark| mark.key <= key);
            if passed < near {
                rows.go_to(&self.bytes, self.marks[near - 1]);
                passed = near;
            }
            let Some(Ok((found, row))) = rows.find(|row| row.as_ref().is_ok_and(|(found, _)| key <= *found)) else {
                break;
            };
            while keys.get(wanted).is_some_and(|wanted| *wanted < found) {
                wanted += 1;
            }
            while keys.get(wanted) == Some(&found) {
                each(wanted, row);
                wanted += 1;
            }
        }
        true
    }
}

/// The rows of a block that was checked, in the order of their keys.
pub(crate) struct RowsOfBlock<'a> {
    bytes: Bytes<'a>,
    left: u32,
    last: RowKey,
}

impl<'a> RowsOfBlock<'a> {
    pub(crate) fn new(block: &'a [u8]) -> Result<RowsOfBlock<'a>, Bad> {
        let head = BlockHead::parse(block)?;
        Ok(RowsOfBlock { bytes: Bytes(&block[HEAD..]), left: head.rows, last: head.first })
    }

    /// Goes to a mark of the block.
    fn go_to(&mut self, block: &'a [u8], mark: Mark) {
        self.bytes = Bytes(block.get(mark.offset as usize..).unwrap_or_default());
        (self.left, self.last) = (mark.left, mark.before);
    }

    fn row(&mut self) -> Result<(RowKey, &'a [u8]), Bad> {
        let number = self.bytes.varint()?;
        let too_large = Bad("a key is too large");
        let part = u32::try_from(number >> 1).map_err(|_| too_large.clone())?;
        let key = if number & 1 == 0 {
            let metric = self.last.metric.0.checked_add(part).ok_or(too_large)?;
            RowKey { group: self.last.group, metric: MetricId(metric) }
        } else {
            let groups = u32::try_from(self.bytes.varint()?).map_err(|_| too_large.clone())?;
            RowKey { group: self.last.group.checked_add(groups).ok_or(too_large)?, metric: MetricId(part) }
        };
        let len = usize::try_from(self.bytes.varint()?).map_err(|_| Bad("a row is too long"))?;
        self.last = key;
        Ok((key, self.bytes.take(len)?))
    }
}

impl<'a> Iterator for RowsOfBlock<'a> {
    type Item = Result<(RowKey, &'a [u8]), Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let row = self.row();
        if row.is_err() {
            self.left = 0;
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u32, metric: u32) -> RowKey {
        RowKey { group, metric: MetricId(metric) }
    }

    #[test]
    fn any_keys_of_a_block_are_found() {
        for (count, len) in [(1, 8), (50, 8), (60, 8), (200, 8), (7, 700), (20, 600), (40, 300)] {
            let rows: Vec<RowKey> = (0..count).map(|i| key(3 + i / 50, 10 * (i % 50))).collect();
            let mut builder = BlockBuilder::new();
            let row = |key: RowKey| key.to_bytes().repeat(len / 8);
            rows.iter().for_each(|key| builder.push(*key, &row(*key)));
            let block = MarkedBlock::new(builder.seal(7, 64).to_vec());
            let found = |keys: &[RowKey]| {
                let mut found = Vec::new();
                assert!(block.find(keys, |place, found_row| {
                    assert_eq!(found_row, row(keys[place]));
                    found.push(place);
                }));
                found
            };
            assert_eq!(found(&rows), (0..rows.len()).collect::<Vec<_>>());
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(found(&[*row, *row]), [0, 1], "row {i} of {count}");
                let absent = key(row.group, row.metric.0 + 1);
                let wanted = [key(0, 7), rows[i / 2], absent, rows[count as usize - 1]];
                let mut wanted = wanted.to_vec();
                wanted.sort();
                let there = (0..wanted.len()).filter(|&place| rows.contains(&wanted[place])).collect::<Vec<_>>();
                assert_eq!(found(&wanted), there, "row {i} of {count}");
            }
        }
    }

    #[test]
    fn rows_come_back_and_any_flipped_bit_is_noticed() {
        let rows = [(key(3, 5), &b"one"[..]), (key(3, 700_000), b""), (key(4, 2), b"three"), (key(9, u32::MAX), b"4")];
        let mut builder = BlockBuilder::new();
        rows.iter().for_each(|(key, row)| builder.push(*key, row));
        let block = builder.seal(7, 64).to_vec();
        let head = check(7, 64, &block).unwrap();
        assert_eq!((head.rows, head.first, head.last), (4, rows[0].0, rows[3].0));
        let read: Vec<_> = RowsOfBlock::new(&block).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, rows);
        assert!(check(8, 64, &block).is_err(), "of another file");
        assert!(check(7, 65, &block).is_err(), "at another place");
        for bit in 0..block.len() * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(7, 64, &flipped).is_err(), "bit {bit}");
            // Never read without the check, and harmless if it were.
            if let Ok(rows) = RowsOfBlock::new(&flipped) {
                rows.for_each(drop);
            }
        }
    }
}
