//! Finding the blocks of a file that has no index: each block says where it ends, and behind damage the next one is
//! searched for.

use std::io;

use host::{DiskFile, read_checked, retried};

use super::{
    footer,
    index::{Entry, Index},
    row_block::{self, BlockHead},
};
use crate::row_key::RowKey;

/// Bytes that are searched at once.
const SEARCH: usize = 64 << 10;

/// What comes behind the blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// The index, unless the end of the file is lost.
    Index,
    /// Nothing: they end where the index is known to begin.
    Nothing,
}

/// The blocks between the header and `end`, by the seal of the file. Calls `each` with every block. Bytes that are not
/// a block become an entry, too: reading it fails. So does an end of the file that is lost with blocks. A disk that fails to read is an error: it
/// may work later.
pub(super) fn walk(
    file: &dyn DiskFile,
    seal: u32,
    (start, end): (u64, u64),
    behind: Behind,
    mut each: impl FnMut(&[u8]),
) -> io::Result<Index> {
    let mut index = Index::default();
    let mut after = RowKey::FIRST;
    let (mut at, mut is_whole) = (start, behind == Behind::Nothing);
    // Whether the block before was read: what follows it, and is none, is the index if it begins like one, whatever is left of that.
    let mut is_behind_a_block = true;
    while at < end {
        if let Some(block) = block_at(file, seal, at, end)? {
            let head = BlockHead::parse(&block).expect("the block was checked");
            index.blocks.push(Entry { first: head.first, offset: at, len: head.len as u32 });
            after = next_key(head.last);
            at += head.len as u64;
            is_behind_a_block = true;
            each(&block);
        } else if is_index(file, seal, at, end)? || is_behind_a_block && is_magic_of_index(file, at, end)? {
            is_whole = true;
            break;
        } else {
            let next = search(file, seal, at + 1, end)?;
            index.blocks.push(Entry { first: after, offset: at, len: u32::try_from(next - at).unwrap_or(u32::MAX) });
            (at, is_behind_a_block) = (next, false);
        }
    }
    if !is_whole && is_behind_a_block {
        index.blocks.push(Entry { first: after, offset: end, len: 0 });
    }
    Ok(index)
}

fn next_key(key: RowKey) -> RowKey {
    let next = (u64::from(key.group) << 32 | u64::from(key.metric.0)).saturating_add(1);
    RowKey::from_bytes(next.to_be_bytes())
}

fn block_at(file: &dyn DiskFile, seal: u32, at: u64, end: u64) -> io::Result<Option<Vec<u8>>> {
    let mut block = vec![0; row_block::HEAD];
    if end - at < row_block::HEAD as u64 {
        return Ok(None);
    }
    let Ok(head) = read_checked(file, &mut block, at, BlockHead::parse)? else { return Ok(None) };
    if end - at < head.len as u64 {
        return Ok(None);
    }
    block.resize(head.len, 0);
    let checked = read_checked(file, &mut block, at, |block| row_block::check(seal, at, block))?;
    Ok(checked.is_ok().then_some(block))
}

fn is_magic_of_index(file: &dyn DiskFile, at: u64, end: u64) -> io::Result<bool> {
    let mut magic = [0; 4];
    if end - at < magic.len() as u64 {
        return Ok(false);
    }
    retried(|| file.read_exact_at(&mut magic, at))?;
    Ok(magic == super::index::MAGIC)
}

/// Whether an index begins here that ends where the footer begins, or that is right.
fn is_index(file: &dyn DiskFile, seal: u32, at: u64, end: u64) -> io::Result<bool> {
    let mut head = [0; 8];
    if end - at < head.len() as u64 {
        return Ok(false);
    }
    retried(|| file.read_exact_at(&mut head, at))?;
    if head[..4] != super::index::MAGIC {
        return Ok(false);
    }
    let behind = at.saturating_add(Index::bytes_of(u32::from_le_bytes([head[4], head[5], head[6], head[7]])));
    if behind.saturating_add(footer::LEN as u64) == end {
        return Ok(true);
    }
    if end < behind {
        return Ok(false);
    }
    let mut bytes = vec![0; (behind - at) as usize];
    Ok(read_checked(file, &mut bytes, at, |bytes| Index::parse(seal, at, bytes))?.is_ok())
}

/// The next place from `at` on where a block or the index begins; `end` if there is none.
fn search(file: &dyn DiskFile, seal: u32, mut at: u64, end: u64) -> io::Result<u64> {
    let mut bytes = vec![0; SEARCH];
    while at < end {
        let len = (end - at).min(SEARCH as u64) as usize;
        retried(|| file.read_exact_at(&mut bytes[..len], at))?;
        // Without an end in the middle, so that many bytes are compared at once.
        if bytes[..len].iter().fold(0, |all, byte| all | byte) == 0 {
            at += len as u64;
            at = file.data_from(at).clamp(at, end);
            continue;
        }
        for (i, four) in bytes[..len].windows(4).enumerate() {
            let place = at + i as u64;
            let begins = four == row_block::MAGIC && block_at(file, seal, place, end)?.is_some()
                || four == super::index::MAGIC && is_index(file, seal, place, end)?;
            if begins {
                return Ok(place);
            }
        }
        // The next piece begins with the last three bytes of this one.
        at += len.saturating_sub(3).max(1) as u64;
    }
    Ok(end)
}
