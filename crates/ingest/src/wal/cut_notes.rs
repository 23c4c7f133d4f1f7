//! The notes in `damaged/` of segments that have lost their end: `journal_00000003.cut+498@e17c7637`, with the bytes that were there. A note ends
//! in `~returned` once all of its segment is back.

use std::{io, path::Path};

use host::DamagedFolder;

use super::missing_notes::{PREFIX, RETURNED, has_ending};

/// What the name of the note of a segment that has lost its end has.
pub(super) const CUT: &str = ".cut+";

/// Notes in `damaged/` that a segment has lost its end, durably: it had `there` of so many bytes. The same is noted once. Returns the name of the
/// note relative to the data folder.
///
/// # Errors
/// Whatever the disk says.
pub fn note_cut(damaged: &DamagedFolder, segment: &Path, there: u64, synced: u64) -> io::Result<String> {
    let text = format!(
        "{there} of the {synced} bytes that were on the disk were there; the points in the others are lost unless they are stored"
    );
    let number = segment.file_stem().unwrap_or_default().to_string_lossy();
    // Later headers may say less than the file of the newest did.
    let noted = format!("{PREFIX}{number}{CUT}{there}@");
    let names = damaged.kept()?.into_iter().map(|entry| entry.name.to_string_lossy().into_owned());
    if let Some(name) = names.into_iter().find(|name| name.starts_with(&noted) && !has_ending(name, RETURNED)) {
        return Ok(format!("damaged/{name}"));
    }
    let note = segment.with_extension(CUT.trim_matches(['.', '+']));
    damaged.keep_bytes(&note, there, format!("{text}\n").as_bytes(), &text)
}
