//! Which slots of a segment have a value. The first and the last always do.

use crate::{
    Damaged,
    bytes::{Reader, put_varint},
};

/// The form of presence: the two low bits of a segment's head.
pub(crate) const DENSE: u8 = 0;
pub(crate) const BITMAP: u8 = 1;
pub(crate) const RUNS: u8 = 2;

/// Appends the smallest form of `present` and returns which it is. Appends nothing when all slots are present. `runs` is
/// a buffer.
pub(crate) fn encode(present: impl Iterator<Item = bool>, runs: &mut Vec<u32>, out: &mut Vec<u8>) -> u8 {
    runs.clear();
    let (mut len, mut run, mut last) = (0_usize, 0, true);
    for is in present {
        if is != last {
            runs.push(run);
            (run, last) = (0, is);
        }
        run += 1;
        len += 1;
    }
    if runs.is_empty() {
        return DENSE;
    }
    runs.push(run);
    let bytes_of_runs: usize = runs.iter().map(|&run| if run < 128 { 1 } else { 2 }).sum();
    if bytes_of_runs < len.div_ceil(8) {
        for &run in runs.iter() {
            put_varint(out, u64::from(run));
        }
        return RUNS;
    }
    let start = out.len();
    out.resize(start + len.div_ceil(8), 0);
    let mut slot = 0;
    for (i, &run) in runs.iter().enumerate() {
        if i % 2 == 0 {
            for slot in slot..slot + run as usize {
                out[start + slot / 8] |= 1 << (slot % 8);
            }
        }
        slot += run as usize;
    }
    BITMAP
}

/// The encoded presence of some slots.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Presence<'a> {
    Dense,
    Bitmap(&'a [u8]),
    Runs(Reader<'a>),
}

impl<'a> Presence<'a> {
    /// Reads the output of [`encode`]. Also returns the index of present slots.
    pub(crate) fn parse(form: u8, len: usize, reader: &mut Reader<'a>) -> Result<(Presence<'a>, usize), Damaged> {
        match form {
            DENSE => Ok((Presence::Dense, len)),
            BITMAP => {
                let bitmap = reader.take(len.div_ceil(8))?;
                let present = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
                // Bits past the end would count values that have no slot.
                if bitmap.last().is_some_and(|&byte| !len.is_multiple_of(8) && byte >> (len % 8) != 0) {
                    return Err(Damaged::new("a presence bitmap is longer than its segment"));
                }
                Ok((Presence::Bitmap(bitmap), present))
            }
            RUNS => {
                let start = *reader;
                let (mut slot, mut present, mut is) = (0, 0, true);
                while slot < len {
                    let run = reader.varint()?;
                    if run == 0 || run > (len - slot) as u64 {
                        return Err(Damaged::new("runs of presence do not add up to their segment"));
                    }
                    slot += run as usize;
                    present += if is { run as usize } else { 0 };
                    is = !is;
                }
                Ok((Presence::Runs(start), present))
            }
            _ => Err(Damaged(format!("unknown presence form {form}"))),
        }
    }

    /// Calls `each(slot, index)` for every present slot: its place among the slots, and among the present ones.
    pub(crate) fn for_each(self, len: usize, mut each: impl FnMut(usize, usize)) {
        match self {
            Presence::Dense => (0..len).for_each(|slot| each(slot, slot)),
            Presence::Bitmap(bitmap) => {
                let mut index = 0;
                for (i, &byte) in bitmap.iter().enumerate() {
                    let mut byte = byte;
                    while byte != 0 {
                        each(i * 8 + byte.trailing_zeros() as usize, index);
                        index += 1;
                        byte &= byte - 1;
                    }
                }
            }
            Presence::Runs(mut reader) => {
                let (mut slot, mut index, mut is) = (0, 0, true);
                while slot < len {
                    // Parsing has checked every run.
                    let run = reader.varint().unwrap_or(1) as usize;
                    for i in 0..if is { run } else { 0 } {
                        each(slot + i, index);
                        index += 1;
                    }
                    slot += run;
                    is = !is;
                }
            }
        }
    }
}
