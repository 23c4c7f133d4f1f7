//! Reports of segments that have lost their end, or all that they had.

use std::path::Path;

use store::Damage;

use super::{
    cut_end::CutEnd,
    damage::{JournalDamage, UNREAD_SEGMENT},
    plan::Planned,
    segment::Folder,
    unwritten_notes::UnwrittenNote,
};

/// What a segment that has lost its end has lost.
const MISSING_RECORDS: &str = "journal records";

impl JournalDamage {
    /// Reports a segment that has lost its end.
    pub(super) fn report_cut(&self, file: &Path, cut: &CutEnd, how: String) {
        // It may come back whole.
        self.begin_noting();
        // Once its points are stored, nothing else says it.
        let note =
            UnwrittenNote::Cut { segment: file.to_owned(), there: cut.there, synced: cut.synced, whole: cut.whole };
        let moved_to = self.note_or_later(note);
        self.report(Damage { moved_to, ..self.damage(MISSING_RECORDS, file, how, cut.missing() as usize) });
    }

    /// Reports a segment that should have records, or at least a header, and had so many bytes at least.
    pub(super) fn report_emptied(&self, folder: &Folder, emptied: &Planned, bytes: u64) {
        let segment = &emptied.segment;
        let mut how = "it has no header and no record; the points in it are lost".to_owned();
        self.begin_noting();
        let note = UnwrittenNote::Missing { note: segment.path.clone(), bytes, how: how.clone() };
        let moved_to = self.note_or_later(note);
        // Zeros are nothing to look at.
        if !emptied.is_zeros && 0 < segment.bytes {
            let read = folder.read(segment);
            let kept = read.and_then(|bytes| self.folder.keep_bytes(&segment.path, 0, &bytes, &how));
            let _ = self.or_stays(&[segment], kept, &mut how);
        }
        let damage = self.damage(UNREAD_SEGMENT, &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to, ..damage });
    }
}
