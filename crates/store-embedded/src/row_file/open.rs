//! Opening a file of rows, whichever part of it is damaged.
//!
//! 1. The footer has the header again and says where the index is.
//! 2. Without a footer the blocks are walked, with the seal of the header.
//! 3. Without both, the blocks are walked with the seal of the header that the file should have by its path.

use std::{io, path::Path};

use host::{Disk, DiskFile, Open, read_checked, retried};
use metric::{MetricId, Slot, Stage};
use store::Incarnation;

use super::{
    file_header::{self, Header, HeaderError, Sealed},
    footer::{self, Footer, Summary},
    index::Index,
    row_block::{self, RowsOfBlock},
    walk::{Behind, walk},
};
use crate::{
    row_key::{GROUP_SLOTS, RowKey},
    window_key::window_slots,
};

/// A part of a file, other than its blocks, that cannot be read. Its rows can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) what: &'static str,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) how: String,
}

/// Where the index of a file is.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexAt {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) len: u64,
    pub(super) header: Header,
    pub(super) seal: u32,
    pub(super) index_at: Option<IndexAt>,
    pub(super) summary: Summary,
    /// The opening of the store that wrote it; `None` where it does not say, or its footer is damaged.
    pub(super) opening: Option<Incarnation>,
    pub(super) problems: Vec<Problem>,
    /// Whether reads of the footer fail: what it says may still be right.
    pub(super) is_footer_unread: bool,
}

/// Why a file cannot be opened as one of rows.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The disk failed.
    Io(io::Error),
    /// A later program wrote the file.
    Version(u32),
    /// Nothing in the file can be read.
    Unreadable(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Io(error) => error.fmt(f),
            OpenError::Version(version) => {
                write!(f, "a later program wrote it (version {version}, this one reads 1 to {})", file_header::VERSION)
            }
            OpenError::Unreadable(how) => how.fmt(f),
        }
    }
}

/// The bytes at an offset, parsed.
fn read_part<const N: usize, T>(
    file: &dyn DiskFile,
    offset: Option<u64>,
    is_unread: &mut bool,
    parse: impl Fn(&[u8; N]) -> Result<T, HeaderError>,
) -> Result<Result<T, String>, OpenError> {
    let parse = |bytes: &[u8]| parse(bytes.try_into().expect("as many bytes were read"));
    let Some(offset) = offset else { return Ok(Err("the file is too short".to_owned())) };
    let mut bytes = [0; N];
    let parsed = match read_checked(file, &mut bytes, offset, parse) {
        Ok(parsed) => parsed,
        Err(error) => {
            *is_unread = error.kind() != io::ErrorKind::UnexpectedEof;
            return Ok(Err(error.to_string()));
        }
    };
    match parsed {
        Ok(part) => Ok(Ok(part)),
        Err(HeaderError::Version(version)) => Err(OpenError::Version(version)),
        Err(HeaderError::Bad(bad)) => Ok(Err(bad.0.to_owned())),
    }
}

/// Whether the disk returns what tells of a file, also where that is damaged. `expected` is its header by its path.
pub(crate) fn may_open(disk: &dyn Disk, path: &Path, expected: Header) -> bool {
    !matches!(open(disk, path, Some(expected)), Err(OpenError::Io(_)))
}

/// The opening of the store that wrote a file, and the file's highest metric. `None` where the file does not say, or has no
/// row.
pub(crate) fn written_by(disk: &dyn Disk, path: &Path) -> Option<(Incarnation, MetricId)> {
    let Opened { opening, summary, .. } = open(disk, path, None).ok()?;
    opening.filter(|_| 0 < summary.rows).map(|opening| (opening, summary.metrics.1))
}

/// What a file says it is. `None` where it does not say.
pub(crate) fn header_of(disk: &dyn Disk, path: &Path) -> Option<Header> {
    open(disk, path, None).ok().map(|opened| opened.header)
}

/// Opens a file. `expected` is its header by its path, where that is known. What seems to be damaged is opened again: a
/// network file system may give the length of a moment ago.
pub(super) fn open(disk: &dyn Disk, path: &Path, expected: Option<Header>) -> Result<Opened, OpenError> {
    let open = || open_file(retried(|| disk.open(path, Open::Read)).map_err(OpenError::Io)?, expected);
    let mut opened = open();
    for _ in 1..ATTEMPTS {
        let is_certain = match &opened {
            Ok(file) => file.problems.is_empty(),
            Err(error) => !matches!(error, OpenError::Unreadable(_)),
        };
        if is_certain {
            break;
        }
        opened = open();
    }
    opened
}

/// The length of a file now, as another opening of it has it.
pub(crate) fn len_of(disk: &dyn Disk, path: &Path) -> io::Result<u64> {
    disk.open(path, Open::Read)?.len()
}

/// The length of a file that had so many `bytes`, where it is shorter and has no footer: it is being copied, its end is cut off, or the
/// disk gives a length of before. Reads only its end.
pub(crate) fn cut_len(disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<Option<u64>> {
    let (file, len) = retried(|| {
        let file = disk.open(path, Open::Read)?;
        let len = file.len()?;
        Ok((file, len))
    })?;
    if bytes <= len {
        return Ok(None);
    }
    let is_cut = match read_part(&*file, len.checked_sub(footer::LEN as u64), &mut false, Footer::parse) {
        Ok(Ok(footer)) => !fits(&footer, len),
        Ok(Err(_)) => true,
        Err(_) => false,
    };
    Ok(is_cut.then_some(len))
}

/// Whether a file that had so many `bytes` can be opened, and is not cut, see [`cut_len`].
pub(crate) fn is_whole(disk: &dyn Disk, path: &Path, bytes: u64) -> bool {
    cut_len(disk, path, bytes).is_ok_and(|cut| cut.is_none())
}

/// Where the blocks of a file end, by its footer. `None` where the file is of another seal, or without an end.
pub(super) fn blocks_end(disk: &dyn Disk, path: &Path, seal: u32) -> io::Result<Option<u64>> {
    let file = disk.open(path, Open::Read)?;
    let len = file.len()?;
    let footer = read_part(&*file, len.checked_sub(footer::LEN as u64), &mut false, Footer::parse);
    let footer = footer.ok().and_then(Result::ok);
    Ok(footer.filter(|footer| footer.seal == seal && fits(footer, len)).map(|footer| footer.index_offset))
}

/// Whether a file without a footer lacks blocks, or so much that no block can be read. Reads all of it.
pub(crate) fn lacks_blocks(disk: &dyn Disk, path: &Path, expected: Header) -> bool {
    match open(disk, path, Some(expected)) {
        Ok(opened) if opened.index_at.is_some() => false,
        Ok(opened) => opened.index().is_ok_and(|(index, _)| opened.len <= index.ends_at()),
        Err(error) => matches!(error, OpenError::Unreadable(_)),
    }
}

/// As [`open`], of a file that is open.
pub(super) fn open_file(file: Box<dyn DiskFile>, expected: Option<Header>) -> Result<Opened, OpenError> {
    let len = file.len().map_err(OpenError::Io)?;
    let mut problems = Vec::new();
    let mut problem = |what, offset, bytes, how: String| problems.push(Problem { what, offset, bytes, how });
    let (mut is_header_unread, mut is_footer_unread) = (false, false);
    let header = read_part(&*file, Some(0), &mut is_header_unread, Header::parse)?;
    let footer_at = len.checked_sub(footer::LEN as u64);
    let footer = read_part(&*file, footer_at, &mut is_footer_unread, Footer::parse)?;
    if let Err(how) = &header {
        problem("header of a file of rows", 0, file_header::LEN as u64, how.clone());
    }
    let footer = match footer {
        Ok(footer) if fits(&footer, len) => footer,
        bad => {
            if let (Err(how), true, None) = (&header, is_header_unread, expected) {
                // The blocks cannot be checked.
                return Err(OpenError::Io(io::Error::other(how.clone())));
            }
            let how = bad.err().unwrap_or_else(|| "the file has another length than its footer says".to_owned());
            problem("footer of a file of rows", footer_at.unwrap_or(0), footer::LEN as u64, how);
            let opened = open_by_walk(file, len, header, expected, problems);
            return opened.map(|opened| Opened { is_footer_unread, ..opened });
        }
    };
    if header.is_ok_and(|sealed| sealed != Sealed { header: footer.header, seal: footer.seal }) {
        problem("header of a file of rows", 0, file_header::LEN as u64, "it is of another file".to_owned());
    }
    let index_at = IndexAt { offset: footer.index_offset, len: footer.index_len, crc: footer.index_crc };
    let Footer { header, seal, summary, opening, .. } = footer;
    Ok(Opened { file, len, header, seal, index_at: Some(index_at), summary, opening, problems, is_footer_unread })
}

fn fits(footer: &Footer, len: u64) -> bool {
    let end = footer.index_offset.checked_add(footer.index_len).and_then(|end| end.checked_add(footer::LEN as u64));
    file_header::LEN as u64 <= footer.index_offset && end == Some(len)
}

fn open_by_walk(
    file: Box<dyn DiskFile>,
    len: u64,
    header: Result<Sealed, String>,
    expected: Option<Header>,
    problems: Vec<Problem>,
) -> Result<Opened, OpenError> {
    let why = match (&header, expected) {
        (Err(how), _) => format!("neither its header ({how}) nor its footer nor a block can be read"),
        (Ok(_), _) => "no block can be read".to_owned(),
    };
    let candidates: Vec<Sealed> = match (header, expected) {
        (Ok(sealed), _) => vec![sealed],
        (Err(_), Some(header)) => header.seals().map(|seal| Sealed { header, seal }).collect(),
        (Err(_), None) => Vec::new(),
    };
    for Sealed { header, seal } in candidates {
        let mut summary = Summary::NONE;
        let start = file_header::LEN as u64;
        let each = |block: &[u8]| summarise(block, &mut summary);
        walk(&*file, seal, (start, len), Behind::Index, each).map_err(OpenError::Io)?;
        if 0 < summary.rows {
            // Damaged blocks may have had any key of the window.
            (summary.first, summary.last) = keys_of_window(header.table.stage, header.window);
            return Ok(Opened {
                file,
                len,
                header,
                seal,
                index_at: None,
                summary,
                opening: None,
                problems,
                is_footer_unread: false,
            });
        }
    }
    Err(OpenError::Unreadable(why))
}

/// The first and the last key that rows of a window may have.
fn keys_of_window(stage: Stage, window: u32) -> (RowKey, RowKey) {
    let groups = window_slots(stage) / GROUP_SLOTS;
    let first = window.saturating_mul(groups);
    let last = first.saturating_add(groups.saturating_sub(1));
    (RowKey { group: first, metric: MetricId(0) }, RowKey { group: last, metric: MetricId(u32::MAX) })
}

/// Counts the rows of a block.
fn summarise(block: &[u8], summary: &mut Summary) {
    let Ok(rows) = RowsOfBlock::new(block) else { return };
    for (key, row) in rows.map_while(Result::ok) {
        summary.add(key, newest_slot(key, row));
    }
}

/// The newest slot of a row.
pub(crate) fn newest_slot(key: RowKey, row: &[u8]) -> Slot {
    let ends = codec::segments(row).map_while(Result::ok).map(|segment| segment.slots.end as u32);
    let first = key.group.saturating_mul(GROUP_SLOTS);
    first.saturating_add(ends.max().unwrap_or(1).saturating_sub(1))
}

impl Opened {
    /// The index, or what a walk of the blocks finds. With the reason where the index cannot be read.
    pub(super) fn index(&self) -> io::Result<(Index, Option<Problem>)> {
        read_index(&*self.file, self.seal, self.len, self.index_at)
    }
}

/// As [`Opened::index`].
pub(super) fn read_index(
    file: &dyn DiskFile,
    seal: u32,
    len: u64,
    index_at: Option<IndexAt>,
) -> io::Result<(Index, Option<Problem>)> {
    let start = file_header::LEN as u64;
    let Some(at) = index_at else { return Ok((walk(file, seal, (start, len), Behind::Index, |_| ())?, None)) };
    let mut bytes = vec![0; at.len as usize];
    match read_checked(file, &mut bytes, at.offset, |bytes| Index::parse(seal, at.offset, bytes))? {
        Ok(index) => Ok((index, None)),
        Err(bad) => {
            let how = bad.0.to_owned();
            let problem = Problem { what: "index of a file of rows", offset: at.offset, bytes: at.len, how };
            Ok((walk(file, seal, (start, at.offset), Behind::Nothing, |_| ())?, Some(problem)))
        }
    }
}

/// Openings of a file that seems to be damaged.
const ATTEMPTS: u32 = 3;

/// Why a block cannot be read.
#[derive(Debug)]
pub(crate) enum BlockError {
    /// The disk failed; the next read may work.
    Io(io::Error),
    /// The bytes are not those that were written.
    Damaged(&'static str),
}

impl std::fmt::Display for BlockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockError::Io(error) => error.fmt(f),
            BlockError::Damaged(how) => how.fmt(f),
        }
    }
}

/// Reads a block and checks it.
pub(super) fn read_block(file: &dyn DiskFile, seal: u32, offset: u64, len: u32) -> Result<Vec<u8>, BlockError> {
    if len as usize > row_block::MAX {
        return Err(BlockError::Damaged("no block can be read"));
    }
    let mut block = vec![0; len as usize];
    let checked = read_checked(file, &mut block, offset, |block| row_block::check(seal, offset, block));
    checked.map_err(BlockError::Io)?.map_err(|bad| BlockError::Damaged(bad.0))?;
    Ok(block)
}
