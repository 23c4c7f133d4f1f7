//! Notes of what is lost that the disk does not take, as where it is full: each flush tries them again, because the next start
//! knows nothing of segments whose numbers the store counts as stored.

use std::{io, path::PathBuf};

use host::DamagedFolder;

use super::cut_notes::note_cut;

/// One of them.
#[derive(Debug, Clone)]
pub(super) enum UnwrittenNote {
    /// Segments are missing; the last had so many bytes at least.
    Missing {
        /// A path that names them.
        note: PathBuf,
        /// Bytes.
        bytes: u64,
        /// What is lost, in words.
        how: String,
    },
    /// A segment has lost its end.
    Cut {
        /// Its path.
        segment: PathBuf,
        /// Its bytes.
        there: u64,
        /// The bytes that were on the disk.
        synced: u64,
        /// Up to where these were whole records.
        whole: u64,
    },
}

impl UnwrittenNote {
    /// Writes it. Returns its name relative to the data folder.
    pub(super) fn write(&self, damaged: &DamagedFolder) -> io::Result<String> {
        match self {
            UnwrittenNote::Missing { note, bytes, how } => damaged.keep_note_of(note, *bytes, how),
            UnwrittenNote::Cut { segment, there, synced, whole } => {
                note_cut(damaged, segment, *there, (*synced, *whole))
            }
        }
    }
}
