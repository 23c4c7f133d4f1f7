//! Segments of the journal in a backup that the disk does not return whole now.

use std::path::{Path, PathBuf};

/// What the rest is.
pub(crate) const UNREAD: &str = "in the backup, zeros are in the place of what cannot be read: a restored store reports it, and lacks the points in it";

/// Whether a file of a data folder is a segment, or has the format of one: one that is kept for its points.
pub(crate) fn is_one(file: &Path) -> bool {
    file.starts_with("journal") || file.starts_with("damaged")
}

/// Whether a file is a segment by its number, whose absence a start notices.
pub(crate) fn has_number(file: &Path) -> bool {
    file.starts_with("journal") && file.extension().is_some_and(|end| end == "journal")
}

/// Where the first of several segments in a row would be, which a backup lacks under one name (`journal/00000007-00000008.journal`); the
/// path itself of others.
pub(crate) fn first_of(lacking: &Path) -> PathBuf {
    let stem = lacking.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    match stem.split_once('-').filter(|_| has_number(lacking)) {
        Some((first, _)) => lacking.with_file_name(format!("{first}.journal")),
        None => lacking.to_owned(),
    }
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
