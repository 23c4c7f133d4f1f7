//! Writing a file of rows.
//!
//! The file is written under another name, synced, renamed, and its folder synced. After an error nothing is left of
//! it: the next attempt is another file, because a system may take the pages of a failed fsync for written.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, DiskFile, Open};
use store::Incarnation;

use super::{
    file_header::Header,
    footer::{Footer, Summary},
    index::{Entry, Index},
    open::{IndexAt, newest_slot},
    row_block::BlockBuilder,
};
use crate::row_key::RowKey;

/// Bytes that are given to the system at once.
const AT_ONCE: usize = 256 << 10;

/// A file that is on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    pub(super) seal: u32,
    pub(crate) len: u64,
    /// `None` where the footer is damaged.
    pub(super) index_at: Option<IndexAt>,
    pub(crate) summary: Summary,
    pub(crate) opening: Option<Incarnation>,
}

/// A file that is being written. Dropping it removes it.
pub(crate) struct RowsWriter<'a> {
    disk: &'a dyn Disk,
    draft: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    header: Header,
    opening: Option<Incarnation>,
    seal: u32,
    block: BlockBuilder,
    index: Index,
    summary: Summary,
    /// Once the draft is complete.
    index_at: Option<IndexAt>,
    /// Whether a file with the same name is there, whose rows are in this one.
    is_replacing: bool,
    /// Bytes that were given to the system, and those that wait.
    written: u64,
    buffer: Vec<u8>,
}

impl<'a> RowsWriter<'a> {
    /// Begins a file in `dir` that an opening of the store writes; `attempt` is a number that no draft in it has.
    pub(crate) fn create(
        disk: &'a dyn Disk,
        dir: &Path,
        (header, opening): (Header, Option<Incarnation>),
        attempt: u64,
    ) -> io::Result<RowsWriter<'a>> {
        let draft = dir.join(format!("{}.{attempt}.draft", header.flushes.file_name()));
        let file = disk.open(&draft, Open::CreateNew)?;
        Ok(RowsWriter {
            disk,
            draft,
            file: Some(file),
            header,
            opening,
            seal: header.seal(),
            block: BlockBuilder::new(),
            index: Index::default(),
            summary: Summary::NONE,
            index_at: None,
            is_replacing: false,
            written: 0,
            buffer: header.encode().to_vec(),
        })
    }

    /// The file takes the place of one with the same name, whose rows it has. After an error behind its rename it stays: nothing
    /// else has them.
    pub(crate) fn replacing(mut self) -> RowsWriter<'a> {
        self.is_replacing = true;
        self
    }

    /// Adds a row; keys rise.
    pub(crate) fn push(&mut self, key: RowKey, row: &[u8]) -> io::Result<()> {
        self.block.push(key, row);
        self.summary.add(key, newest_slot(key, row));
        if self.block.is_full() { self.end_block() } else { Ok(()) }
    }

    /// Whether it has no row yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.summary.rows == 0
    }

    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end_block(&mut self) -> io::Result<()> {
        let offset = self.offset();
        let first = self.block.first();
        let bytes = self.block.seal(self.seal, offset);
        self.index.blocks.push(Entry { first, offset, len: bytes.len() as u32 });
        self.buffer.extend_from_slice(bytes);
        self.block.clear();
        if self.buffer.len() >= AT_ONCE { self.write_buffer() } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let file = self.file.as_mut().expect("open until it is finished");
        file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left, and puts the draft on the disk: the long part of [`RowsWriter::finish`].
    pub(crate) fn complete(&mut self) -> io::Result<()> {
        if self.index_at.is_some() {
            return Ok(());
        }
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let offset = self.offset();
        let (index, crc) = self.index.encode(self.seal, offset);
        let at = IndexAt { offset, len: index.len() as u64, crc };
        let footer = Footer {
            header: self.header,
            seal: self.seal,
            index_offset: at.offset,
            index_len: at.len,
            index_crc: at.crc,
            summary: self.summary,
            opening: self.opening,
        };
        self.buffer.extend_from_slice(&index);
        self.buffer.extend_from_slice(&footer.encode());
        self.write_buffer()?;
        self.file.as_ref().expect("open until it is finished").sync_all()?;
        self.index_at = Some(at);
        Ok(())
    }

    /// Puts the file on the disk under its name.
    pub(crate) fn finish(mut self) -> io::Result<Written> {
        self.complete()?;
        debug_assert!(self.index_at.is_some(), "the file is complete");
        let dir = self.draft.parent().expect("a draft is in a folder");
        let path = dir.join(self.header.flushes.file_name());
        self.disk.rename(&self.draft, &path)?;
        self.file = None;
        if let Err(error) = self.disk.sync_dir(dir) {
            // The caller keeps the rows and writes them to another file. In the place of one that was there, as in a repair, it
            // has the only copy of them.
            if !self.is_replacing {
                remove(self.disk, &path);
            }
            return Err(error);
        }
        let RowsWriter { header, seal, written: len, index_at, summary, opening, .. } = self;
        Ok(Written { path, header, seal, len, index_at, summary, opening })
    }
}

impl Drop for RowsWriter<'_> {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            remove(self.disk, &self.draft);
        }
    }
}

fn remove(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove_file(path) {
        tracing::warn!(%error, file = %path.display(), "cannot remove an unfinished file; it takes up space until the next start");
    }
}
