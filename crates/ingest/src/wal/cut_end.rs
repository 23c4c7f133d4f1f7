//! Segments that have lost their end, exactly behind a record or within one, and the notes of it: in the next segment, and of
//! the newest one in the file next to the journal's folder.
//!
//! The header of the next segment says how many bytes of the one before were on the disk when it was begun, and how long it was. The
//! file `segments` says it of the newest, some seconds late. A segment may be longer: nothing says that what no fsync covered is
//! lost. But files are put on the disk in their order: once something of a later segment is there, so is all of the ones before.

use std::{collections::BTreeMap, io, ops::Range, path::Path, sync::Arc};

use host::{DamagedFolder, Disk, replace_file};
use metric::Timestamp;

use super::{
    damage::accepted_when,
    header::SegmentHeader,
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
    let note = segment.with_extension(CUT.trim_matches(['.', '+']));
    damaged.keep_bytes(&note, there, format!("{text}\n").as_bytes(), &text)
}

/// The segments at or above `below` that are shorter than a later one of the same writers says, or than the file of the newest
/// does. `bytes` is the length of a file, if there is one.
pub(super) fn cut_ends(
    headers: &[(u64, &SegmentHeader)],
    newest: Option<Newest>,
    bytes: impl Fn(u64) -> Option<u64>,
    below: u64,
) -> Vec<CutEnd> {
    let cut = |&(next, header): &(u64, &SegmentHeader)| {
        let segment = header.previous.filter(|&previous| below <= previous)?;
        let Said { bytes: synced, .. } = said_by(headers, newest, (next, header))?;
        let there = bytes(segment).filter(|&there| there < synced)?;
        Some(CutEnd { segment, there, synced, next: Some(next) })
    };
    let cut_newest =
        newest_synced(headers, newest).filter(|&(segment, _)| below <= segment).and_then(|(segment, synced)| {
            let there = bytes(segment).filter(|&there| there < synced)?;
            Some(CutEnd { segment, there, synced, next: None })
        });
    let mut found: Vec<CutEnd> = headers.iter().filter_map(cut).collect();
    match cut_newest.and_then(|newest| found.iter_mut().find(|cut| cut.segment == newest.segment)) {
        Some(cut) => cut.synced = cut.synced.max(cut_newest.map_or(0, |newest| newest.synced)),
        None => found.extend(cut_newest),
    }
    found
}

/// The newest segment, and how many bytes of it are whole records that were on the disk, where its file says that of the segment
/// that is there.
pub(super) fn newest_synced(headers: &[(u64, &SegmentHeader)], newest: Option<Newest>) -> Option<(u64, u64)> {
    let newest = newest.filter(|newest| 0 < newest.synced)?;
    let (_, header) = headers.iter().find(|(number, _)| *number == newest.number)?;
    // An earlier opening may have begun another with the same number.
    let writer = header.identity.chain.last()?;
    (writer.id == newest.opening).then_some((newest.number, newest.synced))
}

/// What a header says of the segment before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    /// Bytes that were on the disk.
    bytes: u64,
    /// Up to where these were whole records, where that is said.
    whole: Option<u64>,
}

/// What the header of a segment says of the one before it, which is there: how much of that was on the disk when this one was begun, or
/// all that it had then, where something of this one was put on the disk.
fn said_by(
    headers: &[(u64, &SegmentHeader)],
    newest: Option<Newest>,
    (number, header): (u64, &SegmentHeader),
) -> Option<Said> {
    let (_, before) = headers.iter().find(|&&(number, _)| Some(number) == header.previous)?;
    // Another copy of the store may have gone on with the same number.
    let writer = before.identity.chain.last().filter(|writer| has_opening(header, writer.id))?;
    let said = Said { bytes: header.previous_bytes, whole: header.previous_whole };
    let Some(length) = header.previous_length.filter(|&length| said.bytes < length) else { return Some(said) };
    let is_of_writer = |header: &SegmentHeader| header.identity.chain.last().is_some_and(|last| last.id == writer.id);
    // What an fsync failed for is in a later segment.
    let repeats = |one: &SegmentHeader| one.repeats.is_some_and(|repeats| repeats.segment <= before.segment);
    let is_repeated = headers.iter().any(|&(_, one)| before.segment < one.segment && is_of_writer(one) && repeats(one));
    let is_noted = newest_synced(headers, newest).is_some_and(|(newest, _)| {
        number <= newest && headers.iter().any(|&(number, one)| number == newest && is_of_writer(one))
    });
    let says_more = |&&(_, one): &&(u64, &SegmentHeader)| {
        let of = headers.iter().find(|&&(number, _)| Some(number) == one.previous);
        let has_synced =
            |&(of, header): &(u64, &SegmentHeader)| number <= of && header_bytes(header) < one.previous_bytes;
        is_of_writer(one) && of.is_some_and(|of| is_of_writer(of.1) && has_synced(of))
    };
    let is_synced = is_noted || headers.iter().any(|one| says_more(&one));
    Some(if is_of_writer(header) && is_synced && !is_repeated {
        Said { bytes: length, whole: Some(length) }
    } else {
        said
    })
}

/// Bytes of a header at the beginning of a segment.
fn header_bytes(header: &SegmentHeader) -> u64 {
    segment_start(header).len() as u64
}

/// How many bytes of a segment were on the disk, by the headers behind it and by the file of the newest, and up to where these were whole
/// records; 0 where nothing is said.
pub(super) fn said_of(headers: &[(u64, &SegmentHeader)], newest: Option<Newest>, number: u64) -> (u64, u64) {
    let of_number = headers.iter().filter(|(_, header)| header.previous == Some(number));
    let said = of_number.filter_map(|&one| said_by(headers, newest, one));
    let newest = newest_synced(headers, newest).filter(|&(newest, _)| newest == number).map(|(_, synced)| synced);
    let of_newest = newest.map(|synced| Said { bytes: synced, whole: Some(synced) });
    let all = said.chain(of_newest).map(|said| (said.bytes, said.whole.unwrap_or(0)));
    all.fold((0, 0), |(bytes, whole), one| (one.0.max(bytes), one.1.max(whole)))
}

/// How many bytes of segments are whole records that were on the disk, by their numbers. The process that wrote a segment knows
/// it, and so does a later one that has read it. Headers of earlier programs say it only of segments of the same process: a later
/// one counted the end of a write that a crash cut off as there.
pub(super) fn synced_bytes(headers: &[(u64, &SegmentHeader)], newest: Option<Newest>) -> BTreeMap<u64, u64> {
    let writer_of = |header: &SegmentHeader| header.identity.chain.last().map(|opening| opening.id);
    let synced = |&(number, header): &(u64, &SegmentHeader)| {
        let (segment, before) = headers.iter().find(|&&(number, _)| Some(number) == header.previous)?;
        let writer = writer_of(before)?;
        let said = said_by(headers, newest, (number, header))?;
        match said.whole {
            Some(whole) => Some((*segment, whole)),
            None if writer_of(header) == Some(writer) => Some((*segment, said.bytes)),
            None => None,
        }
    };
    let mut found: BTreeMap<u64, u64> = headers.iter().filter_map(synced).collect();
    if let Some((segment, synced)) = newest_synced(headers, newest) {
        found.entry(segment).and_modify(|known| *known = synced.max(*known)).or_insert(synced);
    }
    found
}

fn has_opening(header: &SegmentHeader, id: u64) -> bool {
    header.identity.chain.iter().any(|opening| opening.id == id)
}

/// Whether the end of a segment that looks like a write that a crash cut off was on the disk before: then it is damage. A
/// segment that is shorter than that is reported as cut.
pub fn has_lost_synced(torn: &Range<usize>, synced: u64) -> bool {
    (torn.start as u64) < synced && synced <= torn.end as u64
}

/// Lets the headers of segments say no more of the ones before than there is, and the file of the newest no more of that one, once
/// a repair has dealt with what is missing: otherwise each start would report it again.
///
/// # Errors
/// Whatever the disk says. The same call may be made again.
pub fn note_lengths(disk: &Arc<dyn Disk>, journal: &Path) -> io::Result<()> {
    let segments = Folder::new(disk.clone(), journal).segments()?;
    for segment in &segments {
        let bytes = read_contents(&**disk, &segment.path)?;
        let Start::Known(header) = start(&bytes) else { continue };
        let before = segments.iter().find(|before| Some(before.number) == header.previous);
        let most = header.previous_bytes.max(header.previous_length.unwrap_or(0));
        let Some(before) = before.filter(|before| before.bytes < most) else { continue };
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
