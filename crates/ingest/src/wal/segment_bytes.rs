//! The bytes of a segment, as far as its disk returns them.
//!
//! A read that fails is repeated. What the disk does not return then is not known to be damaged: another attempt may
//! succeed, so that the segment is kept as a whole.

use std::{io, ops::Range, path::Path};

use host::{Disk, DiskFile, Open, read_whole, retried};

use super::{
    reader::{is_all_records, records},
    segment::{Folder, Segment, uninterrupted},
};

/// Bytes that are given up together where a segment cannot be read.
const BLOCK: usize = 4096;

/// Reads of bytes that are not records, after the first.
const READS_OF_DOUBTFUL: usize = 2;

/// Attempts to read the blocks that cannot be read.
const ROUNDS: usize = 5;

/// A longer segment has zeros at its end, or bytes that are not of the program.
const LONG: u64 = 256 << 20;

/// Bytes of a segment that are read: no segment has as many.
const MOST: u64 = 1 << 30;

/// Bytes of one read of a long segment's end.
const PIECE: u64 = 1 << 20;

/// What was read of a segment.
pub(crate) struct SegmentBytes {
    pub(crate) bytes: Vec<u8>,
    /// What was not read; zero in `bytes`, or behind them.
    pub(crate) unread: Vec<Range<u64>>,
}

/// Whether all bytes of a segment are zeros. `first` are its first. Not where the disk does not return them.
pub(super) fn are_zeros(disk: &dyn Disk, path: &Path, first: &[u8]) -> bool {
    let is_zero = |byte: &u8| *byte == 0;
    !first.is_empty() && first.iter().all(is_zero) && read_contents(disk, path).is_ok_and(|all| all.iter().all(is_zero))
}

/// Whether a segment of so many bytes lacks a whole record, and even a header. `first` are its first. Not where the disk does not return
/// the others.
pub(super) fn has_nothing(disk: &dyn Disk, path: &Path, first: &[u8], bytes: u64) -> bool {
    let is_without = |bytes: &[u8]| records(bytes).next().is_none();
    is_without(first)
        && (bytes <= first.len() as u64 || read_contents(disk, path).is_ok_and(|contents| is_without(&contents)))
}

impl Folder {
    /// Reads a complete segment, but for zeros at the end of a long one.
    pub(crate) fn read(&self, segment: &Segment) -> io::Result<Vec<u8>> {
        read_contents(&*self.disk, &segment.path)
    }

    /// Reads a segment, and again where that fails; then what can be read of it.
    pub(crate) fn read_patiently(&self, segment: &Segment) -> io::Result<Vec<u8>> {
        Ok(self.read_parts(segment)?.bytes)
    }

    /// As [`Folder::read_patiently`], and says what was not read.
    pub(crate) fn read_parts(&self, segment: &Segment) -> io::Result<SegmentBytes> {
        match retried(|| open_and_read(&*self.disk, &segment.path)) {
            Err(error) if is_damage(&error) => read_in_blocks(&*self.disk, &segment.path),
            read => {
                let (file, mut bytes) = read?;
                read_doubtful_again(&*file, &mut bytes);
                Ok(SegmentBytes { bytes, unread: Vec::new() })
            }
        }
    }
}

/// Reads the bytes that are not records again, from the disk: a bit that flipped on the way must not cost records that
/// the disk has right. All bytes are of one file, also where another takes its name meanwhile.
fn read_doubtful_again(file: &dyn DiskFile, bytes: &mut [u8]) {
    for _ in 0..READS_OF_DOUBTFUL {
        if is_all_records(bytes) {
            return;
        }
        let mut found = records(bytes);
        found.by_ref().for_each(drop);
        for place in found.damage {
            let mut again = vec![0; place.len()];
            file.forget_cached(place.start as u64, place.len() as u64);
            if retried(|| file.read_exact_at(&mut again, place.start as u64)).is_ok() {
                bytes[place].copy_from_slice(&again);
            }
        }
    }
}

fn read_in_blocks(disk: &dyn Disk, path: &Path) -> io::Result<SegmentBytes> {
    let file = retried(|| disk.open(path, Open::Read))?;
    let end = retried(|| contents_end(&*file))?;
    let mut bytes = vec![0; end.min(MOST) as usize];
    let all = bytes.len().div_ceil(BLOCK);
    let mut left: Vec<usize> = (0..all).collect();
    for _ in 0..ROUNDS {
        let mut failed = Vec::new();
        for &i in &left {
            let block = bytes.chunks_mut(BLOCK).nth(i).expect("it is one of them");
            match uninterrupted(|| file.read_exact_at(block, (i * BLOCK) as u64)) {
                Ok(()) => {}
                Err(error) if is_damage(&error) => {
                    block.fill(0);
                    failed.push(i);
                }
                Err(error) => return Err(error),
            }
        }
        left = failed;
        if left.is_empty() {
            break;
        }
    }
    if left.len() == all && all > 0 {
        return Err(io::Error::other("no block of it can be read"));
    }
    let of_block = |i: usize| (i * BLOCK) as u64..((i + 1) * BLOCK).min(bytes.len()) as u64;
    let mut unread: Vec<Range<u64>> = left.into_iter().map(of_block).collect();
    if (bytes.len() as u64) < end {
        unread.push(bytes.len() as u64..end);
    }
    Ok(SegmentBytes { bytes, unread })
}

/// What the disk returns of a segment now, with zeros in place of the rest, and how many bytes that is.
///
/// # Errors
/// Nothing of it can be read.
pub(super) fn read_what_can_be(disk: &dyn Disk, path: &Path) -> io::Result<(Vec<u8>, u64)> {
    match retried(|| read_contents(disk, path)) {
        Err(error) if is_damage(&error) => {
            let read = read_in_blocks(disk, path)?;
            Ok((read.bytes, read.unread.iter().map(|unread| unread.end - unread.start).sum()))
        }
        read => Ok((read?, 0)),
    }
}

/// The bytes of a segment, but for zeros at the end of a long one.
///
/// # Errors
/// Whatever the disk says, or that the file is longer than any segment.
pub fn read_contents(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    open_and_read(disk, path).map(|(_, bytes)| bytes)
}

fn open_and_read(disk: &dyn Disk, path: &Path) -> io::Result<(Box<dyn DiskFile>, Vec<u8>)> {
    uninterrupted(|| {
        let mut file = disk.open(path, Open::Read)?;
        let end = contents_end(&*file)?;
        if MOST < end {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has {end} bytes, as no segment has")));
        }
        let bytes = read_whole(&mut *file, end)?;
        Ok((file, bytes))
    })
}

/// Where the contents of a file end: its length, but for the zeros at the end of a long one.
fn contents_end(file: &dyn DiskFile) -> io::Result<u64> {
    let mut end = file.len()?;
    if end <= LONG {
        return Ok(end);
    }
    let (mut piece, zeros) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
    while 0 < end {
        let from = end.saturating_sub(PIECE);
        let part = &mut piece[..(end - from) as usize];
        file.read_exact_at(part, from)?;
        if *part != zeros[..part.len()] {
            break;
        }
        end = from;
    }
    Ok(end)
}

/// Whether a file cannot be read because the disk lost it, and not because the process may not.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, Other, UnexpectedEof};
    matches!(error.kind(), InvalidData | Other | UnexpectedEof)
        || error.raw_os_error().is_some_and(|code| DAMAGE.contains(&code))
}

/// Whether a read may succeed later, of a file that is there: as [`is_damage`], or a disk of the network is away for a moment.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    is_damage(error) || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
}

/// EIO, EBADMSG and EUCLEAN: the disk cannot read it, a checksum of the file system is wrong, its structure is.
const DAMAGE: [i32; 3] = [5, 74, 117];
