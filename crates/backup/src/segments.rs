//! Segments of the journal in a backup that the disk does not return whole now.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, Open};
use ingest::wal::read_what_can_be;

use crate::files::hash;

/// Bytes of a segment that cannot be read at all, at most.
const LONGEST: u64 = 256 << 20;

/// What the rest is.
pub(crate) const UNREAD: &str = "in the backup, zeros are in the place of what cannot be read: a restored store reports it, and lacks the points in it";

/// Whether a file of a data folder is a segment, or has the format of one: one that is kept for its points.
pub(crate) fn is_one(file: &Path) -> bool {
    file.starts_with("journal") || file.starts_with("damaged")
}

/// A part of a segment that was copied.
pub(crate) struct Part {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// Zeros in place of what cannot be read.
    pub(crate) unread: u64,
}

/// Copies what can be read. A file that cannot be read at all is zeros: that a segment was there is worth a report, too.
pub(crate) fn copy_part(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<Part> {
    let (bytes, unread) = match read_what_can_be(disk, from) {
        Ok(read) => read,
        Err(error) => {
            let len = disk.open(from, Open::Read).and_then(|file| file.len()).map_err(|_| error)?.min(LONGEST);
            (vec![0; len as usize], len)
        }
    };
    let copy = disk.open(to, Open::CreateNew)?;
    copy.write_shared(&bytes)?;
    copy.sync_all()?;
    let (bytes, sha256) = hash(disk, to)?;
    Ok(Part { bytes, sha256, unread })
}

/// A file in `damaged/` that each start reports, in the form of damaged bytes of the segment.
pub(crate) fn note(segment: &Path, unread: u64) -> (PathBuf, String) {
    let name = segment.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_prefix("journal_").unwrap_or(&name);
    let text = format!("{unread} bytes of the segment could not be read when this backup was made\n");
    let crc = crc32fast::hash(text.as_bytes());
    (Path::new("damaged").join(format!("journal_{name}+0@{crc:08x}")), text)
}

/// A file in `damaged/` that each start reports: a segment that the node missed. Nothing waits for it in a restored folder.
pub(crate) fn note_of_gone(segment: &Path) -> (PathBuf, String) {
    let name = segment.file_name().unwrap_or_default().to_string_lossy();
    let (note, text) = ingest::wal::note_of_gone(&name);
    (Path::new("damaged").join(note), text)
}
