//! How long segments are, by the headers of later ones and by the file of the newest.
//!
//! The header of the next segment says how many bytes of the one before were on the disk when it was begun, and how long it was. The
//! file `segments` says it of the newest, some seconds late. A segment may be longer: nothing says that what no fsync covered is
//! lost. But files are put on the disk in their order: once something of a later segment is there, so is all of the ones before.

use std::collections::BTreeMap;

use super::{
    header::{Repeats, SegmentHeader},
    newest::Newest,
    record::segment_start,
};

/// What is said of the lengths of segments.
pub(super) struct Lengths<'a> {
    headers: BTreeMap<u64, &'a SegmentHeader>,
    /// The newest segment, and how many bytes of it are whole records that were on the disk, where its file says that of the segment
    /// that is there.
    newest: Option<(u64, u64)>,
    /// The last segment of each writer that has something behind its header on the disk: all of the ones before it is there, too.
    synced: BTreeMap<u64, u64>,
    /// Records that an fsync failed for, and that a later segment of the same writer has.
    repeated: Vec<Repeated>,
}

/// From the first segment up to the last, but not that, records are in the last.
struct Repeated {
    writer: u64,
    first: u64,
    last: u64,
}

/// What is said of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    /// Bytes that were on the disk.
    pub(super) bytes: u64,
    /// Up to where these were whole records, where that is said.
    pub(super) whole: Option<u64>,
}

/// The opening of the store that wrote a segment.
fn writer_of(header: &SegmentHeader) -> Option<u64> {
    header.identity.chain.last().map(|opening| opening.id)
}

/// Bytes of a header at the beginning of a segment.
pub(super) fn header_bytes(header: &SegmentHeader) -> u64 {
    segment_start(header).len() as u64
}

impl<'a> Lengths<'a> {
    /// Of these segments, by their numbers.
    pub(super) fn new(headers: impl Iterator<Item = (u64, &'a SegmentHeader)>, newest: Option<Newest>) -> Lengths<'a> {
        let headers: BTreeMap<u64, &SegmentHeader> = headers.collect();
        // An earlier opening may have begun another with the same number.
        let is_it = |newest: &Newest| {
            let header = headers.get(&newest.number);
            0 < newest.synced && header.and_then(|header| writer_of(header)) == Some(newest.opening)
        };
        let newest = newest.filter(is_it);
        let mut synced: BTreeMap<u64, u64> = newest.iter().map(|newest| (newest.opening, newest.number)).collect();
        let mut repeated = Vec::new();
        for (&number, header) in &headers {
            let Some(writer) = writer_of(header) else { continue };
            if let Some(Repeats { segment: first, .. }) = header.repeats {
                repeated.push(Repeated { writer, first, last: number });
            }
            let Some(previous) = header.previous else { continue };
            let Some(before) = headers.get(&previous).filter(|before| writer_of(before) == Some(writer)) else {
                continue;
            };
            if header_bytes(before) < header.previous_bytes {
                let last = synced.entry(writer).or_default();
                *last = previous.max(*last);
            }
        }
        Lengths { headers, newest: newest.map(|newest| (newest.number, newest.synced)), synced, repeated }
    }

    /// The newest segment, and up to where it was whole records on the disk, where its file says that.
    pub(super) fn of_newest(&self) -> Option<(u64, u64)> {
        self.newest
    }

    /// For each header that says something of a segment that is there: its number, that of the other, and what it says.
    pub(super) fn by_headers(&self) -> impl Iterator<Item = (u64, u64, Said)> {
        self.headers
            .iter()
            .filter_map(|(&number, header)| Some((number, header.previous?, self.said_by(number, header)?)))
    }

    /// What the header of a segment says of the one before it: how much of that was on the disk when this one was begun, or all that it had
    /// then, where something of this one was put on the disk.
    fn said_by(&self, number: u64, header: &SegmentHeader) -> Option<Said> {
        let previous = header.previous?;
        // Another copy of the store may have gone on with the same number.
        let writer = writer_of(self.headers.get(&previous)?).filter(|&writer| has_opening(header, writer))?;
        let said = Said { bytes: header.previous_bytes, whole: header.previous_whole };
        let is_synced = || writer_of(header) == Some(writer) && self.is_synced(writer, number, previous);
        let length = header.previous_length.filter(|&length| said.bytes < length && is_synced());
        Some(length.map_or(said, |length| Said { bytes: length, whole: Some(length) }))
    }

    /// Whether all of the segment before this one was on the disk, and no later one repeats it.
    fn is_synced(&self, writer: u64, number: u64, previous: u64) -> bool {
        self.synced.get(&writer).is_some_and(|&last| number <= last)
            && !self.repeated.iter().any(|of| of.writer == writer && (of.first..of.last).contains(&previous))
    }

    /// Up to where a segment that is not there had whole records on the disk, by the header of the next one; 0 where nothing is said.
    pub(super) fn of_missing(&self, number: u64) -> u64 {
        let next = self.headers.iter().filter(|(_, header)| header.previous == Some(number));
        let said = |(&next, header): (&u64, &&SegmentHeader)| {
            let is_there = writer_of(header).is_some_and(|writer| self.is_synced(writer, next, number));
            header.previous_length.filter(|_| is_there).unwrap_or(0).max(header.previous_whole.unwrap_or(0))
        };
        next.map(said).max().unwrap_or(0)
    }

    /// How many bytes of a segment were on the disk, and up to where these were whole records; 0 where nothing is said.
    pub(super) fn of(&self, number: u64) -> (u64, u64) {
        let said = self.by_headers().filter(|&(_, of, _)| of == number).map(|(.., said)| said);
        let of_newest = self.newest.filter(|&(newest, _)| newest == number);
        let of_newest = of_newest.map(|(_, synced)| Said { bytes: synced, whole: Some(synced) });
        let all = said.chain(of_newest).map(|said| (said.bytes, said.whole.unwrap_or(0)));
        all.fold((0, 0), |(bytes, whole), one| (one.0.max(bytes), one.1.max(whole)))
    }

    /// How many bytes of segments are whole records that were on the disk, by their numbers. The process that wrote a segment knows
    /// it, and so does a later one that has read it. Headers of earlier programs say it only of segments of the same process: a later
    /// one counted the end of a write that a crash cut off as there.
    pub(super) fn whole(&self) -> BTreeMap<u64, u64> {
        let whole = |(number, of, said): (u64, u64, Said)| {
            let writer = |number: &u64| self.headers.get(number).and_then(|header| writer_of(header));
            Some((of, said.whole.or_else(|| (writer(&number) == writer(&of)).then_some(said.bytes))?))
        };
        let mut found: BTreeMap<u64, u64> = self.by_headers().filter_map(whole).collect();
        if let Some((segment, synced)) = self.newest {
            found.entry(segment).and_modify(|known| *known = synced.max(*known)).or_insert(synced);
        }
        found
    }
}

/// Whether the store of a segment had this opening.
pub(super) fn has_opening(header: &SegmentHeader, id: u64) -> bool {
    header.identity.chain.iter().any(|opening| opening.id == id)
}
