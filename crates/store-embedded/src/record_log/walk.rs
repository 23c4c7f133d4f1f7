//! Reading a file of a record log from its first record to its last, around what is damaged.

use host::{DiskFile, retried};

use super::frame::{FRAME, HEADER, LONGEST_CORRECTED, MARK, Seal};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Damaged bytes that are handed out at once.
const DAMAGE: usize = 1 << 20;
/// Reads of bytes that are not a record, or that cannot be read, before they are given up.
const ATTEMPTS: u32 = 3;
/// Searches for the next record that are made again because reads of theirs failed. A disk may take seconds for each.
const SEARCHES_AGAIN: u32 = 1;
/// Bytes that are read one by one where a larger read failed.
const PAGE: usize = 4096;

/// What a report says of a record with one wrong bit, which is read as it was written.
pub const ONE_BIT: &str = "one bit of the record is wrong, and is corrected: nothing is lost";

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A whole record at an offset.
    Record(u64, u8, &'a [u8]),
    /// An offset, and the bytes of a record with one wrong bit; kind and payload of the record with that bit corrected.
    Corrected(u64, &'a [u8], u8, &'a [u8]),
    /// Bytes that are not a record. Many are handed out in pieces.
    Damaged(u64, &'a [u8]),
    /// An offset, and how many bytes from there on have no record, because reads of them fail.
    Unread(u64, u64),
    /// An offset, and how many bytes from there on are zeros, in front of others that are not.
    Zeros(u64, u64),
    /// The beginning of a record, or zeros, up to the end of the file: a write that was cut off.
    Torn(u64),
}

/// Bytes of a file from an offset on.
struct View<'a> {
    file: &'a dyn DiskFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
    /// Where pages begin that could not be read; they are zeros here.
    holes: Vec<u64>,
}

impl<'a> View<'a> {
    fn new(file: &'a dyn DiskFile, len: u64, start: u64) -> View<'a> {
        View { file, len, start, bytes: Vec::new(), holes: Vec::new() }
    }

    /// Up to `len` bytes from `offset` on, fewer only at the end of the file. Offsets only rise.
    fn at(&mut self, offset: u64, len: usize) -> &[u8] {
        debug_assert!(self.start <= offset, "offsets rise");
        let len = len.min((self.len.saturating_sub(offset)) as usize);
        let mut skip = (offset - self.start) as usize;
        if self.bytes.len() < skip + len {
            self.bytes.drain(..skip.min(self.bytes.len()));
            (self.start, skip) = (offset, 0);
            let have = self.bytes.len();
            let wanted = len.max(CHUNK).min((self.len - offset) as usize);
            self.bytes.resize(wanted.max(have), 0);
            self.fill(have);
        }
        &self.bytes[skip..skip + len]
    }

    /// Whether some bytes could not be read.
    fn has_holes(&self) -> bool {
        !self.holes.is_empty()
    }

    /// Whether some bytes of a range could not be read.
    fn has_hole_in(&self, start: u64, end: u64) -> bool {
        self.holes.iter().any(|&hole| hole < end && start < hole + PAGE as u64)
    }

    /// Reads the bytes behind the first `have`.
    fn fill(&mut self, have: usize) {
        let at = self.start + have as u64;
        if self.file.read_exact_at(&mut self.bytes[have..], at).is_ok() {
            return;
        }
        // Again, page by page: the rest of the file is good where a page is not.
        for (place, page) in self.bytes[have..].chunks_mut(PAGE).enumerate() {
            if retried(|| self.file.read_exact_at(page, at + (place * PAGE) as u64)).is_err() {
                page.fill(0);
                self.holes.push(at + (place * PAGE) as u64);
            }
        }
    }
}

/// Calls `each` with every part of a file behind its header, in order, up to a length.
pub(super) fn walk(file: &dyn DiskFile, len: u64, seal: &Seal, mut each: impl FnMut(Part<'_>)) {
    let mut view = View::new(file, len, HEADER as u64);
    let mut offset = HEADER as u64;
    let (mut failed_at, mut attempts, mut searches) = (0, 0, 0);
    while offset < view.len {
        if let Some((kind, payload)) = record(&mut view, seal, offset) {
            let end = offset + (FRAME + payload.len()) as u64;
            each(Part::Record(offset, kind, payload));
            offset = end;
            continue;
        }
        if failed_at != offset {
            (failed_at, attempts, searches) = (offset, 0, 0);
        }
        attempts += 1;
        if attempts < ATTEMPTS {
            // What failed a moment ago may succeed, and what was wrong may have been so on the way from the disk only.
            file.forget_cached(offset, view.len - offset);
            view = View::new(file, view.len, offset);
            continue;
        }
        let mut search = View::new(file, view.len, offset);
        let next = next_record(&mut search, seal, offset + 1);
        let end = next.unwrap_or(view.len);
        // A record may be where the search could not read, however much a later read returns.
        if search.has_hole_in(offset, end) {
            if searches < SEARCHES_AGAIN {
                (attempts, searches) = (0, searches + 1);
            } else {
                each(Part::Unread(offset, end - offset));
                offset = end;
            }
            view = View::new(file, view.len, offset);
            continue;
        }
        view = View::new(file, view.len, offset);
        if next.is_none() && is_torn(&mut view, seal, offset) {
            return each(Part::Torn(offset));
        }
        view = View::new(file, view.len, offset);
        if let Some((record, found)) = corrected(&mut view, seal, offset, end)
            && let Some((kind, payload)) = seal.open(offset, &record)
        {
            each(Part::Corrected(offset, &found, kind, payload));
            offset += record.len() as u64;
            continue;
        }
        let mut ahead = View::new(file, view.len, offset);
        while offset < end {
            let zeros = zeros_until(&mut ahead, offset, end);
            if (DAMAGE as u64) < zeros - offset {
                each(Part::Zeros(offset, zeros - offset));
                offset = zeros;
                continue;
            }
            let len = view.at(offset, DAMAGE.min((end - offset) as usize)).len();
            if view.has_hole_in(offset, offset + len as u64) {
                each(Part::Unread(offset, len as u64));
            } else {
                each(Part::Damaged(offset, view.at(offset, len)));
            }
            offset += len as u64;
        }
    }
}

/// Kind and payload of the record at an offset, if a whole one is there.
fn record<'a>(view: &'a mut View<'_>, seal: &Seal, offset: u64) -> Option<(u8, &'a [u8])> {
    let head = seal.head(offset, view.at(offset, FRAME))?;
    let (kind, len) = (head.kind, FRAME + head.payload_len);
    let payload = view.at(offset, len).get(FRAME..len)?;
    head.fits(payload).then_some((kind, payload))
}

/// The record at an offset with its wrong bit corrected, where that is the only one, and the bytes that are there.
fn corrected(view: &mut View<'_>, seal: &Seal, offset: u64, end: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let bytes = view.at(offset, (FRAME + LONGEST_CORRECTED).min((end - offset) as usize)).to_vec();
    let record = seal.corrected(offset, &bytes).filter(|_| !view.has_holes())?;
    let found = bytes[..record.len()].to_vec();
    Some((record, found))
}

/// The offset of the first whole record from an offset on.
fn next_record(view: &mut View<'_>, seal: &Seal, mut offset: u64) -> Option<u64> {
    while offset < view.len {
        let bytes = view.at(offset, PAGE);
        let skip = bytes.iter().position(|&byte| byte == MARK[0]);
        let may_be_zeros = bytes.last() == Some(&0);
        offset += skip.unwrap_or(bytes.len()) as u64;
        if skip.is_some() {
            if record(view, seal, offset).is_some() {
                return Some(offset);
            }
            offset += 1;
        } else if may_be_zeros {
            offset = zeros_until(view, offset, view.len);
        }
    }
    None
}

/// Whether the bytes up to the end of the file look like a write that a power cut ended: a record that is cut off, or
/// zeros.
fn is_torn(view: &mut View<'_>, seal: &Seal, offset: u64) -> bool {
    let left = view.len - offset;
    let head = seal.head(offset, view.at(offset, FRAME)).map(|head| head.payload_len);
    let is_cut_off = left < FRAME as u64 || head.is_some_and(|payload| left < (FRAME + payload) as u64);
    if is_cut_off {
        return !view.has_holes();
    }
    zeros_until(view, offset, view.len) == view.len && !view.has_holes()
}

/// Where zeros end that begin at an offset, or may go on; `end` at most. They can be many in a file that is longer than it
/// was. Stops at bytes that cannot be read.
fn zeros_until(view: &mut View<'_>, mut offset: u64, end: u64) -> u64 {
    let mut step = PAGE;
    while offset < end {
        let bytes = view.at(offset, step.min((end - offset) as usize));
        // Without an end in the middle, so that many bytes are compared at once.
        if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
            let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
            return offset + zeros as u64;
        }
        let after = offset + bytes.len() as u64;
        if view.has_holes() {
            return offset;
        }
        offset = if step < CHUNK { after } else { view.file.data_from(after).clamp(after, end) };
        step = CHUNK.min(2 * step);
    }
    offset
}
