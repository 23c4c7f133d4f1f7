//! Segments that have lost their end, exactly behind a record or within one, and the notes of it: in the next segment, and of
//! the newest one in the file next to the journal's folder (`lengths.rs`).

use std::{collections::BTreeSet, io, ops::Range, path::Path, sync::Arc};

use host::{Disk, replace_file};
use metric::Timestamp;

use super::{
    damage::accepted_when,
    header::SegmentHeader,
    lengths::{Lengths, Said, has_opening},
    newest::{Newest, NewestFile, newest_of},
    reader::{Start, records, start},
    record::{MAGIC_BYTES, Record, segment_start},
    segment::{Folder, path_of},
    segment_bytes::read_contents,
};

/// A segment that is shorter than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutEnd {
    /// Its number.
    pub segment: u64,
    /// Its bytes.
    pub there: u64,
    /// Its bytes that were on the disk.
    pub synced: u64,
    /// Up to where these were whole records: behind them a kill may have cut off a write.
    pub whole: u64,
    /// The number of the segment that says so. `None` where the file of the newest does.
    pub next: Option<u64>,
}

impl CutEnd {
    /// Bytes that are missing, or more.
    pub fn missing(&self) -> u64 {
        self.synced - self.there
    }

    /// What is missing, with the times at which the records around it were accepted.
    pub fn how(&self, disk: &dyn Disk, journal: &Path) -> String {
        let times = |number: u64| accepted(disk, &path_of(journal, number));
        let after = times(self.segment).and_then(|times| times.last().copied());
        let before = self.next.and_then(times).and_then(|times| times.first().copied());
        format!(
            "its end is missing: it has {} bytes, and {} were on the disk; the points in them, of any metric, are lost unless \
             they are stored; they were accepted {}",
            self.there,
            self.synced,
            accepted_when((after, before))
        )
    }
}

/// The segments at or above `below` that are shorter than a later one of the same writers says, or than the file of the newest
/// does. `bytes` is the length of a file, if there is one.
pub(super) fn cut_ends(lengths: &Lengths<'_>, bytes: impl Fn(u64) -> Option<u64>, below: u64) -> Vec<CutEnd> {
    let cut = |(next, segment, said): (u64, u64, Said)| {
        let there = bytes(segment).filter(|&there| below <= segment && there < said.bytes)?;
        let whole = said.whole.unwrap_or(said.bytes);
        Some(CutEnd { segment, there, synced: said.bytes, whole, next: Some(next) })
    };
    let cut_newest = lengths.of_newest().filter(|&(segment, _)| below <= segment).and_then(|(segment, synced)| {
        let there = bytes(segment).filter(|&there| there < synced)?;
        Some(CutEnd { segment, there, synced, whole: synced, next: None })
    });
    let mut found: Vec<CutEnd> = lengths.by_headers().filter_map(cut).collect();
    match cut_newest.and_then(|newest| found.iter_mut().find(|cut| cut.segment == newest.segment)) {
        Some(cut) => {
            let synced = cut_newest.map_or(0, |newest| newest.synced);
            (cut.synced, cut.whole) = (cut.synced.max(synced), cut.whole.max(synced));
        }
        None => found.extend(cut_newest),
    }
    found
}

/// Whether the end of a segment that looks like a write that a crash cut off was on the disk before: then it is damage. A
/// segment that is shorter than that is reported as cut.
pub fn has_lost_synced(torn: &Range<usize>, synced: u64) -> bool {
    (torn.start as u64) < synced && synced <= torn.end as u64
}

/// Lets the headers of segments say no more of the ones before than there is, and the file of the newest no more of that one, once
/// a repair has dealt with what is missing: otherwise each start would report it again. It wrote the segments with the `rewritten` numbers.
///
/// # Errors
/// Whatever the disk says. The same call may be made again.
pub fn note_lengths(disk: &Arc<dyn Disk>, journal: &Path, rewritten: &BTreeSet<u64>) -> io::Result<()> {
    let folder = Folder::new(disk.clone(), journal);
    let segments = folder.segments()?;
    for segment in &segments {
        let bytes = read_contents(&**disk, &segment.path)?;
        let Start::Known(header) = start(&bytes) else { continue };
        let before = segments.iter().find(|before| Some(before.number) == header.previous);
        let most = header.previous_bytes.max(header.previous_length.unwrap_or(0));
        let Some(before) = before.filter(|before| before.bytes < most) else { continue };
        // In its place may be one of another timeline: the header is of ours.
        let writer = folder.header_of(before).and_then(|before| before.identity.chain.last().map(|opening| opening.id));
        if !rewritten.contains(&before.number) && writer.is_none_or(|writer| !has_opening(&header, writer)) {
            continue;
        }
        let [previous_whole, previous_length] =
            [header.previous_whole, header.previous_length].map(|bytes| bytes.map(|bytes| bytes.min(before.bytes)));
        let previous_bytes = header.previous_bytes.min(before.bytes);
        let noted = SegmentHeader { previous_bytes, previous_whole, previous_length, ..*header };
        replace_file(&**disk, &segment.path, &with_header(&bytes, &noted))?;
    }
    let Some(newest) = newest_of(&**disk, journal) else { return Ok(()) };
    let there = segments.iter().find(|segment| segment.number == newest.number);
    if there.is_some_and(|there| there.bytes < newest.synced) {
        NewestFile::new(disk.clone(), journal.parent()).write(Newest { synced: 0, ..newest })?;
    }
    Ok(())
}

/// A segment with another header of the same length in the place of both copies.
pub(super) fn with_header(bytes: &[u8], header: &SegmentHeader) -> Vec<u8> {
    let new = segment_start(header);
    let copy = (new.len() - MAGIC_BYTES) / 2;
    let mut changed = bytes.to_vec();
    for (place, record) in records(bytes).take_while(|(place, _)| place.start < new.len()) {
        if matches!(record, Record::Segment { .. }) && place.len() == copy {
            changed[place].copy_from_slice(&new[MAGIC_BYTES..MAGIC_BYTES + copy]);
        }
    }
    changed
}

/// The times at which the points of a segment were accepted.
fn accepted(disk: &dyn Disk, path: &Path) -> Option<Vec<Timestamp>> {
    let bytes = read_contents(disk, path).ok()?;
    let now = |record: Record<'_>| match record {
        Record::Points { now, .. } => Some(now.low()),
        _ => None,
    };
    Some(records(&bytes).filter_map(|(_, record)| now(record)).collect())
}
