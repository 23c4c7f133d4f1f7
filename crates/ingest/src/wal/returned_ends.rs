//! Segments that starts found without their ends, and that come back whole: their notes end.

use std::{collections::BTreeMap, io};

use super::{
    cut_notes,
    damage::JournalDamage,
    missing_notes::RETURNED,
    segment::{Folder, Segment},
};

impl JournalDamage {
    /// The segments that earlier starts found without their ends, and how many bytes were there.
    ///
    /// # Errors
    /// Where `damaged/` cannot be listed: then each may be one.
    pub(crate) fn cut_short(&self) -> io::Result<BTreeMap<u64, u64>> {
        let kept = self.folder.kept()?;
        Ok(cut_notes::cut_short(kept.iter().filter_map(|entry| entry.name.to_str())))
    }

    /// Ends the notes that a segment has lost its end where this file has all that they say was on the disk.
    pub(super) fn end_cut_notes_of(&self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        let mut whole = None;
        for entry in self.folder.kept()? {
            let Some(name) = entry.name.to_str() else { continue };
            if cut_notes::noted(name).is_none_or(|(number, _)| number != segment.number) {
                continue;
            }
            let text = folder.disk.read_to_string(&entry.path)?;
            // Of another program, or cut itself.
            let Some(needed) = cut_notes::needed_of(&text) else { continue };
            if needed <= *whole.get_or_insert_with(|| folder.whole_bytes(segment)) {
                self.end_cut_note(name)?;
            }
        }
        Ok(())
    }

    fn end_cut_note(&self, name: &str) -> io::Result<()> {
        self.folder.rename(name, &format!("{name}{RETURNED}"), "the segment is back")?;
        let kept = format!("damaged/{name}");
        self.log.mend(|damage| damage.moved_to.as_deref() == Some(&*kept));
        Ok(())
    }
}
