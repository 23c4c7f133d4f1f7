//! Notes of what is lost that the disk does not take, as where it is full: each flush tries them again, because the next start
//! knows nothing of segments whose numbers the store counts as stored.

use std::{io, path::PathBuf};

use host::DamagedFolder;

use super::{cut_end::note_cut, damage::JournalDamage};

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
    },
}

impl UnwrittenNote {
    fn write(&self, damaged: &DamagedFolder) -> io::Result<String> {
        match self {
            UnwrittenNote::Missing { note, bytes, how } => damaged.keep_note_of(note, *bytes, how),
            UnwrittenNote::Cut { segment, there, synced } => note_cut(damaged, segment, *there, *synced),
        }
    }
}

impl JournalDamage {
    /// Writes a note. Returns its name relative to the data folder; `None` where the disk does not take it: then it is written later.
    pub(super) fn note_or_later(&self, note: UnwrittenNote) -> Option<String> {
        match note.write(&self.folder) {
            Ok(kept) => Some(kept),
            Err(error) => {
                tracing::warn!(%error, "cannot note in the folder damaged what the journal has lost; the next flush tries again");
                self.unwritten.lock().push(note);
                None
            }
        }
    }

    /// Writes the notes that the disk did not take before.
    pub(super) fn write_notes(&self) {
        let notes = std::mem::take(&mut *self.unwritten.lock());
        for note in notes {
            self.note_or_later(note);
        }
    }
}
