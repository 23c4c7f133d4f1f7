//! A segment's bytes as records, and as what is not one.

use std::ops::Range;

use super::{
    header::{SegmentHeader, VERSION},
    record::{Framed, HEADER, MAGIC, MAGIC_BYTES, Record},
};

/// First bytes in which a reader searches the header.
pub(super) const SEARCHED: usize = 4096;

/// Bytes whose checksum a search for the next whole record may compute, beyond four times the segment's length.
/// A segment that was made to have many false beginnings is damage from there on.
const SEARCH_BYTES: usize = 64 << 20;

/// How a segment begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// Without a header: version 1.
    Old,
    /// With a header.
    Known(Box<SegmentHeader>),
    /// With a header that is damaged, or with none that is complete.
    Damaged,
    /// Another program's, whose version is this.
    Newer(String),
}

/// How a segment begins, whose first bytes these are.
pub(crate) fn start(bytes: &[u8]) -> Start {
    let first = &bytes[..bytes.len().min(SEARCHED)];
    let mut found = records(first).peekable();
    // A header follows the magic at once, in version 2.
    let has_none = found
        .peek()
        .is_some_and(|(place, record)| place.start == MAGIC_BYTES && !matches!(record, Record::Segment { .. }));
    let header = found.find_map(|(_, record)| match record {
        Record::Segment { version, header } => Some((version, header)),
        _ => None,
    });
    let digit = first.strip_prefix(MAGIC).and_then(|rest| rest.first()).copied();
    match (header, digit) {
        // A flipped bit in the digit does not make a segment of another version.
        (Some((VERSION, header)), _) => Start::Known(Box::new(header)),
        (Some((newer, _)), _) => Start::Newer(newer.to_string()),
        (None, Some(b'1')) => Start::Old,
        (None, _) if has_none => Start::Old,
        (None, Some(digit @ b'3'..=b'9')) if has_no_record(first) => Start::Newer(char::from(digit).to_string()),
        (None, _) => Start::Damaged,
    }
}

/// The header of a segment whose bytes these are.
pub(crate) fn header_of(bytes: &[u8]) -> Option<SegmentHeader> {
    match start(bytes) {
        Start::Known(header) => Some(*header),
        _ => None,
    }
}

fn has_no_record(first: &[u8]) -> bool {
    MAGIC_BYTES < first.len() && records(first).next().is_none()
}

/// The result of reading a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Whole records.
    pub records: u64,
    /// Bytes outside of intact records: a torn tail, or damage.
    pub damaged_bytes: u64,
}

/// Reads a segment's bytes, record by record. Damage costs only itself: reading goes on with the next whole
/// record. A torn tail is the normal end of a journal whose machine stopped.
pub fn replay(bytes: &[u8], mut each: impl FnMut(Record<'_>)) -> Replayed {
    let mut records = records(bytes);
    records.by_ref().for_each(|(_, record)| each(record));
    records.replayed
}

/// Whether a segment's bytes are records to their end. Cheaper than to decode them.
pub(super) fn is_all_records(bytes: &[u8]) -> bool {
    let Some(mut rest) = bytes.strip_prefix(MAGIC).and_then(|rest| rest.get(1..)) else { return false };
    while !rest.is_empty() {
        match Framed::at(rest) {
            Some(framed) if framed.is_right() => rest = &rest[framed.len()..],
            _ => return false,
        }
    }
    true
}

/// The records of a segment's bytes; see [`replay`].
pub fn records(bytes: &[u8]) -> Records<'_> {
    let at = if bytes.starts_with(MAGIC) { MAGIC_BYTES.min(bytes.len()) } else { 0 };
    let may_search = SEARCH_BYTES + 4 * bytes.len();
    Records { bytes, at, may_search, passed_over: 0..0, replayed: Replayed::default(), damage: Vec::new() }
}

/// Goes through a segment's bytes.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    may_search: usize,
    /// Points and names in here are left out, because they are read elsewhere.
    passed_over: Range<usize>,
    /// The result so far.
    pub replayed: Replayed,
    /// Where no record was found, so far.
    pub damage: Vec<Range<usize>>,
}

impl<'a> Records<'a> {
    /// Without the points and names in these bytes, which are read elsewhere.
    pub(super) fn passing_over(self, passed_over: Range<usize>) -> Records<'a> {
        Records { passed_over, ..self }
    }

    /// The bytes behind the last record, where they look like a record that was not written to its end.
    pub fn torn_tail(&self) -> Option<Range<usize>> {
        let last = self.damage.last().filter(|last| last.end == self.bytes.len())?;
        let bytes = &self.bytes[last.clone()];
        let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        let is_cut_off = length.is_none_or(|length| bytes.len() < HEADER + length);
        // Blocks that a file system gave the file and did not write.
        (is_cut_off || bytes.iter().all(|&byte| byte == 0)).then(|| last.clone())
    }

    /// The record that begins here. `Err` when looking for one costs more than a segment may cost.
    fn record_here(&mut self) -> Result<Option<(usize, Record<'a>)>, TooLong> {
        let bytes: &'a [u8] = &self.bytes[self.at..];
        let Some(framed) = Framed::at(bytes) else { return Ok(None) };
        if self.may_search < framed.len() {
            return Err(TooLong);
        }
        let record = framed.record();
        if record.is_none() {
            self.may_search -= framed.len();
        }
        Ok(record.map(|record| (framed.len(), record)))
    }
}

/// The search for a record ends.
struct TooLong;

/// Each record with its place.
impl<'a> Iterator for Records<'a> {
    type Item = (Range<usize>, Record<'a>);

    fn next(&mut self) -> Option<(Range<usize>, Record<'a>)> {
        loop {
            let (place, record) = self.next_whole()?;
            let is_content = matches!(record, Record::Points { .. } | Record::Metrics { .. });
            if !(is_content && self.passed_over.contains(&place.start)) {
                return Some((place, record));
            }
        }
    }
}

impl<'a> Records<'a> {
    fn next_whole(&mut self) -> Option<(Range<usize>, Record<'a>)> {
        let began = self.at;
        let mut found = None;
        while self.at < self.bytes.len() && found.is_none() {
            match self.record_here() {
                Ok(None) => self.at += 1,
                Ok(record) => found = record,
                Err(TooLong) => self.at = self.bytes.len(),
            }
        }
        if began < self.at {
            self.replayed.damaged_bytes += (self.at - began) as u64;
            self.damage.push(began..self.at);
        }
        let (length, record) = found?;
        self.replayed.records += 1;
        self.at += length;
        Some((self.at - length..self.at, record))
    }
}
