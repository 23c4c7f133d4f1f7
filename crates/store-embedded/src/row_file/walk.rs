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

/// The blocks between the header and `end`, by the seal of the file. Calls `each` with every block. Bytes that are not
/// a block become an entry, too: reading it fails. A disk that fails to read is an error: it may work later.
pub(super) fn walk(
    file: &dyn DiskFile,
    seal: u32,
    start: u64,
    end: u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<Index> {
    let mut index = Index::default();
    let mut after = RowKey::FIRST;
    let mut at = start;
    while at < end {
        if let Some(block) = block_at(file, seal, at, end)? {
            let head = BlockHead::parse(&block).expect("the block was checked");
            index.blocks.push(Entry { first: head.first, offset: at, len: head.len as u32 });
            after = next_key(head.last);
            at += head.len as u64;
            each(&block);
        } else if is_index(file, at, end)? {
            break;
        } else {
            let next = search(file, seal, at + 1, end)?;
            index.blocks.push(Entry { first: after, offset: at, len: u32::try_from(next - at).unwrap_or(u32::MAX) });
            at = next;
        }
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

/// Whether an index begins here that ends where the footer begins.
fn is_index(file: &dyn DiskFile, at: u64, end: u64) -> io::Result<bool> {
    let mut head = [0; 8];
    if end - at < head.len() as u64 {
        return Ok(false);
    }
    retried(|| file.read_exact_at(&mut head, at))?;
    let entries = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    Ok(head[..4] == super::index::MAGIC && at + Index::bytes_of(entries) + footer::LEN as u64 == end)
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
                || four == super::index::MAGIC && is_index(file, place, end)?;
            if begins {
                return Ok(place);
            }
        }
        // The next piece begins with the last three bytes of this one.
        at += len.saturating_sub(3).max(1) as u64;
    }
    Ok(end)
}
