//! One merge: the rows of some files, each key once.
//!
//! 1. Each file has a cursor at its next row. The lowest key of all cursors is next.
//! 2. A row that one file has is copied. Of one that several files have, the tail is coded again (see `tail`): later
//!    flushes win, and a slot without a value leaves what is below it. The last merge of a window codes each row as one
//!    segment.
//! 3. A block that cannot be read is copied to `damaged/` as it is, reported, and left out; which keys it had is returned. A disk that fails to read
//!    ends the merge: it may work later.

use std::{
    cell::RefCell,
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use codec::Segment;
use metric::MetricId;
use store::Damage;

use crate::{
    cache::Shared,
    lost::Lost,
    row_file::{BlockError, Index, Missed, ReadFrom, RowFile, RowsOfBlock, RowsWriter, is_short_of_something},
    row_key::RowKey,
    rows::Recoder,
};

use super::tail::kept;

/// Bytes that are copied to `damaged/` at once, at most.
const MOST_DAMAGED: u64 = 64 << 20;

/// Why a merge ended.
#[derive(Debug)]
pub(crate) enum MergeError {
    /// The disk does not return all of this file. Others may be merged.
    Unread(Arc<RowFile>, io::Error),
    /// The disk failed.
    Io(io::Error),
    /// It was asked to.
    Stopped,
}

impl From<io::Error> for MergeError {
    fn from(error: io::Error) -> MergeError {
        MergeError::Io(error)
    }
}

/// A read of a file failed; another file would fail as well where the process lacks something.
fn unread(file: &Arc<RowFile>, error: io::Error) -> MergeError {
    if is_short_of_something(&error) { MergeError::Io(error) } else { MergeError::Unread(file.clone(), error) }
}

/// What a merge works with.
pub(crate) struct Merging<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) is_aggregated: bool,
    /// Whether the window is past: each row becomes one segment.
    pub(crate) is_last: bool,
    /// Whether a metric was deleted: its rows are left out.
    pub(crate) is_deleted: &'a (dyn Fn(MetricId) -> bool + Send + Sync),
    /// Called for each block; ends the merge when it returns true.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
    /// Gets the rows that could not be read.
    pub(crate) lost: RefCell<Vec<Lost>>,
}

impl Merging<'_> {
    /// Writes the rows of files, which are in the order of their flushes.
    pub(crate) fn run(&self, files: &[Arc<RowFile>], writer: &mut RowsWriter<'_>) -> Result<(), MergeError> {
        let mut cursors = Vec::with_capacity(files.len());
        for file in files {
            let mut cursor = Cursor::new(file)?;
            self.fill(&mut cursor)?;
            cursors.push(cursor);
        }
        let (mut recoder, mut one) = (Recoder::default(), Vec::new());
        while let Some(key) = cursors.iter().filter_map(Cursor::key).min() {
            if !(self.is_deleted)(key.metric) {
                self.write(key, &cursors, &mut recoder, &mut one, writer)?;
            }
            for cursor in cursors.iter_mut().filter(|cursor| cursor.key() == Some(key)) {
                cursor.next += 1;
                self.fill(cursor)?;
            }
        }
        Ok(())
    }

    /// Writes the row of a key.
    fn write(
        &self,
        key: RowKey,
        cursors: &[Cursor],
        recoder: &mut Recoder,
        one: &mut Vec<u8>,
        writer: &mut RowsWriter<'_>,
    ) -> Result<(), MergeError> {
        let at_key = || cursors.iter().filter(|cursor| cursor.key() == Some(key));
        let mut rows = at_key().map(Cursor::row);
        if let (Some(row), None) = (rows.next(), rows.next())
            && (!self.is_last || codec::segments(row).nth(1).is_none())
        {
            return Ok(writer.push(key, row)?);
        }
        one.clear();
        let kept = |segments: &[Segment]| if self.is_last { 0 } else { kept(segments, self.is_aggregated) };
        if recoder.join(at_key().map(Cursor::row), self.is_aggregated, kept, one).is_err() {
            let mut readable = Vec::new();
            for cursor in at_key() {
                let mut alone = Vec::new();
                match recoder.recode([cursor.row()], self.is_aggregated, &mut alone) {
                    Ok(()) => readable.push(alone),
                    Err(damaged) => self.keep_row(cursor, key, &damaged.to_string())?,
                }
            }
            one.clear();
            let readable = readable.iter().map(Vec::as_slice);
            recoder.recode(readable, self.is_aggregated, one).expect("rows that were coded a moment ago");
        }
        if !one.is_empty() {
            writer.push(key, one)?;
        }
        Ok(())
    }

    /// Reads blocks until the cursor is at a row or at the end.
    fn fill(&self, cursor: &mut Cursor) -> Result<(), MergeError> {
        while cursor.next == cursor.rows.len() && cursor.next_block < cursor.index.blocks.len() {
            if (self.is_stopped)() {
                return Err(MergeError::Stopped);
            }
            let number = cursor.next_block;
            cursor.next_block += 1;
            cursor.next = 0;
            cursor.rows.clear();
            match cursor.file.read_block(&cursor.index.blocks[number]) {
                Ok(block) => {
                    cursor.block = block;
                    if cursor.find_rows().is_err() {
                        // The rows before the bad one are kept.
                        self.keep_block(cursor, number, "its rows are not in the order of their keys")?;
                    }
                }
                Err(BlockError::Io(error)) => return Err(unread(&cursor.file, error)),
                Err(BlockError::Damaged(how)) => self.keep_block(cursor, number, how)?,
            }
        }
        Ok(())
    }

    fn keep_block(&self, cursor: &Cursor, number: usize, how: &str) -> Result<(), MergeError> {
        let entry = cursor.index.blocks[number];
        let bytes = cursor.file.raw(entry.offset, u64::from(entry.len).min(MOST_DAMAGED) as usize);
        let bytes = bytes.map_err(|error| unread(&cursor.file, error))?;
        let damage = cursor.file.damage_of_block(&cursor.index, number, &how);
        self.lost.borrow_mut().extend(cursor.file.lost_with_block(&cursor.index, number));
        self.keep(cursor, entry.offset, &bytes, damage)
    }

    fn keep_row(&self, cursor: &Cursor, key: RowKey, how: &str) -> Result<(), MergeError> {
        self.lost.borrow_mut().extend(cursor.file.lost_between(key, key));
        let damage = Damage {
            what: "row",
            file: self.shared.shown(cursor.file.path()),
            how: format!("row {} of metric {}: {how}", key.group, key.metric),
            bytes: cursor.row().len() as u64,
            metrics: Some((key.metric, key.metric)),
            span: Some(key.span_to(key, cursor.file.header().table.stage)),
            ..Damage::default()
        };
        self.keep(cursor, cursor.offset(), cursor.row(), damage)
    }

    /// Copies bytes to `damaged/` and reports them.
    fn keep(&self, cursor: &Cursor, offset: u64, bytes: &[u8], damage: Damage) -> Result<(), MergeError> {
        let kept = self.shared.damaged_folder.keep_bytes(cursor.file.path(), offset, bytes, &damage.how)?;
        self.shared.quarantined_bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.shared.report(Damage {
            how: format!("{}; left out of a merge", damage.how),
            moved_to: Some(kept),
            ..damage
        });
        Ok(())
    }
}

/// The place in one file.
struct Cursor {
    file: Arc<RowFile>,
    index: Arc<Index>,
    next_block: usize,
    block: Vec<u8>,
    rows: Vec<(RowKey, Range<usize>)>,
    next: usize,
}

impl Cursor {
    fn new(file: &Arc<RowFile>) -> Result<Cursor, MergeError> {
        let index = match file.index(ReadFrom::Disk) {
            Ok(index) => index.map_err(|error| unread(file, error))?,
            Err(Missed::Io(_, error)) => return Err(MergeError::Io(error)),
            Err(Missed::NotCached) => unreachable!("the disk may be read"),
        };
        Ok(Cursor { file: file.clone(), index, next_block: 0, block: Vec::new(), rows: Vec::new(), next: 0 })
    }

    fn key(&self) -> Option<RowKey> {
        self.rows.get(self.next).map(|(key, _)| *key)
    }

    fn row(&self) -> &[u8] {
        self.rows.get(self.next).map_or(&[], |(_, bytes)| &self.block[bytes.clone()])
    }

    /// The offset of the row in the file.
    fn offset(&self) -> u64 {
        let of_block = self.index.blocks.get(self.next_block - 1).map_or(0, |entry| entry.offset);
        of_block + self.rows.get(self.next).map_or(0, |(_, bytes)| bytes.start as u64)
    }

    /// Finds the rows of the block. Keys that do not rise are an error, too.
    fn find_rows(&mut self) -> Result<(), ()> {
        let start = self.block.as_ptr() as usize;
        for row in RowsOfBlock::new(&self.block).map_err(drop)? {
            let (key, row) = row.map_err(drop)?;
            if self.rows.last().is_some_and(|(last, _)| key <= *last) {
                return Err(());
            }
            let from = row.as_ptr() as usize - start;
            self.rows.push((key, from..from + row.len()));
        }
        Ok(())
    }
}
