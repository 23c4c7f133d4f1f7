//! A journal with missing segments, once a repair has said what is lost: the segments that are left, and a new one, explain
//! the numbers of the others, so that no later check reports them again.

use std::{io, path::Path, sync::Arc};

use host::{Disk, replace_file};
use store::{Identity, JournalMark};

use super::{
    chain::check_chain,
    cut_end::with_header,
    header::SegmentHeader,
    newest::newest_of,
    reader::{Start, start},
    segment::Folder,
    segment_bytes::read_contents,
};

/// Explains missing segments.
///
/// # Errors
/// Whatever the disk says. The same call may be made again.
pub fn note_missing(
    disk: &Arc<dyn Disk>,
    journal: &Path,
    mark: Option<JournalMark>,
    ours: &Identity,
) -> io::Result<()> {
    let missing = check_chain(&**disk, journal, mark, ours)?.missing;
    if missing.is_empty() {
        return Ok(());
    }
    let folder = Folder::new(disk.clone(), journal);
    // Segments up to here are stored, and may be gone: none is the first that there was.
    let stored = mark.map_or(0, |mark| mark.stored_below.saturating_sub(1));
    let segments = folder.segments()?;
    for segment in &segments {
        let bytes = read_contents(&**disk, &segment.path)?;
        let Start::Known(header) = start(&bytes) else { continue };
        let is_missing = |number: u64| missing.iter().any(|(_, last)| *last == number);
        if header.previous.is_some_and(is_missing) {
            let before = segments.iter().rfind(|before| before.number < segment.number);
            let noted = SegmentHeader {
                previous: Some(before.map_or(0, |before| before.number).max(stored)),
                previous_bytes: 0,
                previous_whole: header.previous_whole.map(|_| 0),
                previous_length: header.previous_length.map(|_| 0),
                ..*header
            };
            replace_file(&**disk, &segment.path, &with_header(&bytes, &noted))?;
        }
    }
    // As a start does, which begins a segment behind the newest that the store, or the file next to the folder, knows.
    if check_chain(&**disk, journal, mark, ours)?.missing.is_empty() {
        return Ok(());
    }
    let known = newest_of(&**disk, journal).map_or(0, |newest| newest.number);
    let newest = segments.last().map_or(0, |last| last.number).max(mark.map_or(0, |mark| mark.newest)).max(known);
    let header = SegmentHeader {
        identity: ours.clone(),
        segment: newest + 1,
        next_id: ours.first_id(),
        previous: Some(stored),
        previous_bytes: 0,
        previous_whole: Some(0),
        previous_length: Some(0),
        repeats: None,
    };
    folder.make()?;
    folder.create(header).map(drop)
}
