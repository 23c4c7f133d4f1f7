//! The bytes of a record, written and read back. See `schema/journal.md`.
//!
//! ```text
//! length u32 │ crc32 u32 │ kind u8 │ payload (length bytes)          all little-endian; crc over kind and payload
//! kind 1, points:   now i64 │ { metric id u32 │ time u32 │ value f64 }…
//! kind 2, metrics:  now i64 │ { metric id u32 │ policy u16 │ name length u16 │ name }…
//! kind 3, policy:   id u16 │ xFilesFactor f64 │ aggregation, blank, retention as text
//! kind 4, points:   low i64 │ high i64 │ cells as kind 1: accepted while the clock was in doubt
//! kind 5, segment:  see `header.rs`
//! ```

use host::Now;
use metric::{MetricId, Policy, Timestamp};

use super::header::{SegmentHeader, VERSION};

/// The first bytes of a segment of any version; the version's digit is the next one.
pub(super) const MAGIC: &[u8; 7] = b"PLBGJNL";
/// Bytes of the magic and the digit.
pub(super) const MAGIC_BYTES: usize = 8;
/// Bytes before a record's payload.
pub(super) const HEADER: usize = 9;
/// Bytes of one point in a record of points.
pub(super) const POINT: usize = 16;
/// A longer record is damage.
const LONGEST_RECORD: usize = 64 << 20;
/// Records of policies and segments are not longer than this.
const LONGEST_SMALL_RECORD: usize = 64 << 10;
/// A record of a later time than this, more than thirty thousand years away, is damage.
const LATEST: Timestamp = 1 << 40;
/// A record of metrics that is longer than this is closed, and another begun.
const METRICS_BYTES: usize = 1 << 20;
/// Bytes that a record of metrics has of one metric, at least.
pub(crate) const LEAST_NAME_BYTES: u64 = 9;
/// Points of one record, at most, so that a replay never takes one for damage.
pub(crate) const RECORD_POINTS: usize = 1 << 20;

const POINTS: u8 = 1;
const METRICS: u8 = 2;
const POLICY: u8 = 3;
const POINTS_IN_DOUBT: u8 = 4;
const SEGMENT: u8 = 5;

/// A point whose name is resolved to its metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResolvedPoint {
    /// The metric.
    pub metric: MetricId,
    /// Unix seconds.
    pub time: u32,
    /// Not NaN.
    pub value: f64,
}

/// Writes one record into memory, and keeps its memory for the next.
#[derive(Debug, Default)]
pub struct RecordWriter {
    bytes: Vec<u8>,
}

impl RecordWriter {
    /// A record of points accepted at `now`.
    pub fn points(&mut self, now: Now, points: &[ResolvedPoint]) -> &[u8] {
        self.bytes.clear();
        push_points(&mut self.bytes, now, points);
        &self.bytes
    }
}

/// Bytes of a record of so many points, at most.
pub(super) fn points_record_bytes(points: usize) -> usize {
    HEADER + 16 + points * POINT
}

/// Adds a record of points accepted at `now`.
pub(super) fn push_points(bytes: &mut Vec<u8>, now: Now, points: &[ResolvedPoint]) {
    bytes.reserve(points_record_bytes(points.len()));
    push_record(bytes, if now.is_certain() { POINTS } else { POINTS_IN_DOUBT }, |bytes| {
        bytes.extend_from_slice(&now.low().to_le_bytes());
        if !now.is_certain() {
            bytes.extend_from_slice(&now.high().to_le_bytes());
        }
        for point in points {
            let mut cell = [0; POINT];
            cell[..4].copy_from_slice(&point.metric.0.to_le_bytes());
            cell[4..8].copy_from_slice(&point.time.to_le_bytes());
            cell[8..].copy_from_slice(&point.value.to_le_bytes());
            bytes.extend_from_slice(&cell);
        }
    });
}

/// Adds a record that names a policy.
pub(super) fn push_policy(bytes: &mut Vec<u8>, id: u16, policy: &Policy) {
    push_record(bytes, POLICY, |bytes| {
        bytes.extend_from_slice(&id.to_le_bytes());
        policy.encode(bytes);
    });
}

/// The first bytes of a segment: the magic and two copies of one record, so that no flipped bit costs both.
pub(super) fn segment_start(header: &SegmentHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend_from_slice(MAGIC);
    bytes.push(b'0' + VERSION as u8);
    for _ in 0..2 {
        push_record(&mut bytes, SEGMENT, |bytes| header.encode(bytes));
    }
    bytes
}

fn push_record(bytes: &mut Vec<u8>, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let begin = bytes.len();
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, kind]);
    payload(bytes);
    finish_record(&mut bytes[begin..]);
}

fn finish_record(bytes: &mut [u8]) {
    let length = (bytes.len() - HEADER) as u32;
    let crc = crc32fast::hash(&bytes[8..]);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Writes records of metrics into memory, one behind the other, each of bounded length.
#[derive(Debug, Default)]
pub(super) struct MetricsWriter {
    bytes: Vec<u8>,
    /// Where the last record begins; it has no header yet.
    last: usize,
    /// The time of the last record.
    now: Timestamp,
}

impl MetricsWriter {
    pub(super) fn push(&mut self, metric: MetricId, policy: u16, name: &str, now: Timestamp) {
        let MetricsWriter { bytes, last, now: of_last } = self;
        // A change of policy is known by its time: metrics of one second may have changes of other times.
        if bytes.is_empty() || bytes.len() - *last > METRICS_BYTES || *of_last != now {
            if !bytes.is_empty() {
                finish_record(&mut bytes[*last..]);
            }
            (*last, *of_last) = (bytes.len(), now);
            bytes.extend_from_slice(&[0; HEADER]);
            bytes[*last + 8] = METRICS;
            bytes.extend_from_slice(&now.to_le_bytes());
        }
        bytes.extend_from_slice(&metric.0.to_le_bytes());
        bytes.extend_from_slice(&policy.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }

    /// The records; empty when no metric was pushed since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        if !self.bytes.is_empty() {
            finish_record(&mut self.bytes[self.last..]);
        }
        self.last = 0;
        std::mem::take(&mut self.bytes)
    }
}

/// A record read back.
#[derive(Debug)]
pub enum Record<'a> {
    /// Points, in the order they were accepted, and the time at which.
    Points {
        /// The time by which they were judged.
        now: Now,
        /// The points.
        points: Points<'a>,
    },
    /// Metrics that were created.
    Metrics {
        /// Unix seconds.
        now: Timestamp,
        /// Metric, policy id of this journal, canonical name.
        metrics: Vec<(MetricId, u16, &'a str)>,
    },
    /// A policy, and the id that this segment gives it.
    Policy {
        /// The id.
        id: u16,
        /// The policy.
        policy: Policy,
    },
    /// Which segment it is in.
    Segment {
        /// The version of the format. Of a newer one nothing else is known.
        version: u16,
        /// Who wrote it.
        header: SegmentHeader,
    },
}

/// The points of a record.
#[derive(Debug, Clone)]
pub struct Points<'a>(std::slice::ChunksExact<'a, u8>);

impl ExactSizeIterator for Points<'_> {}

impl Iterator for Points<'_> {
    type Item = ResolvedPoint;

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    fn next(&mut self) -> Option<ResolvedPoint> {
        let cell: &[u8; POINT] = self.0.next()?.try_into().expect("chunks are of a point's size");
        Some(ResolvedPoint {
            metric: MetricId(u32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]])),
            time: u32::from_le_bytes([cell[4], cell[5], cell[6], cell[7]]),
            value: f64::from_le_bytes([cell[8], cell[9], cell[10], cell[11], cell[12], cell[13], cell[14], cell[15]]),
        })
    }
}

/// A record's place, before its checksum is known to be right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Framed<'a> {
    crc: u32,
    checked: &'a [u8],
}

impl<'a> Framed<'a> {
    /// What may be a record at the beginning of `bytes`. Cheap, and false for nearly everything that is not one: damage
    /// is searched with this, byte by byte.
    pub(super) fn at(bytes: &'a [u8]) -> Option<Framed<'a>> {
        let header = bytes.get(..HEADER)?;
        let length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
        let is_plausible = match header[8] {
            POINTS | METRICS | POINTS_IN_DOUBT => {
                let now = Timestamp::from_le_bytes(bytes.get(HEADER..HEADER + 8)?.try_into().ok()?);
                (8..=LONGEST_RECORD).contains(&length) && (-LATEST..LATEST).contains(&now)
            }
            POLICY | SEGMENT => length <= LONGEST_SMALL_RECORD,
            _ => false,
        };
        if !is_plausible {
            return None;
        }
        let checked = bytes.get(8..HEADER + length)?;
        Some(Framed { crc: u32::from_le_bytes(header[4..8].try_into().ok()?), checked })
    }

    /// Bytes of the whole record.
    pub(super) fn len(&self) -> usize {
        8 + self.checked.len()
    }

    /// Whether its checksum is right.
    pub(super) fn is_right(&self) -> bool {
        crc32fast::hash(self.checked) == self.crc
    }

    /// The record, if its checksum is right.
    pub(super) fn record(&self) -> Option<Record<'a>> {
        if !self.is_right() {
            return None;
        }
        let (kind, payload) = self.checked.split_first()?;
        Some(match *kind {
            POINTS => {
                let (now, points) = time(payload)?;
                Record::Points { now: Now::at(now), points: Points(points.chunks_exact(POINT)) }
            }
            POINTS_IN_DOUBT => {
                let (low, rest) = time(payload)?;
                let (high, points) = time(rest)?;
                Record::Points { now: Now::between(low, high), points: Points(points.chunks_exact(POINT)) }
            }
            METRICS => metrics(payload)?,
            POLICY => policy(payload)?,
            _ => {
                let (version, header) = SegmentHeader::decode(payload)?;
                Record::Segment { version, header }
            }
        })
    }
}

/// A time and the bytes behind it.
fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (time, rest) = bytes.split_first_chunk()?;
    Some((i64::from_le_bytes(*time), rest))
}

fn metrics(payload: &[u8]) -> Option<Record<'_>> {
    let (now, mut rest) = time(payload)?;
    let mut metrics = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(8)?;
        let metric = MetricId(u32::from_le_bytes(head[..4].try_into().ok()?));
        let policy = u16::from_le_bytes(head[4..6].try_into().ok()?);
        let length = u16::from_le_bytes(head[6..8].try_into().ok()?);
        let (name, after) = after.split_at_checked(usize::from(length))?;
        metrics.push((metric, policy, std::str::from_utf8(name).ok()?));
        rest = after;
    }
    Some(Record::Metrics { now, metrics })
}

fn policy(payload: &[u8]) -> Option<Record<'_>> {
    let (id, policy) = payload.split_first_chunk()?;
    Some(Record::Policy { id: u16::from_le_bytes(*id), policy: Policy::decode(policy)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::records;

    #[test]
    fn each_metric_is_named_with_its_own_time() {
        let mut names = MetricsWriter::default();
        for (id, now) in [(1, 10), (2, 10), (3, 13), (4, 10)] {
            names.push(MetricId(id), 0, "a.metric", now);
        }
        let bytes = [b"PLBGJNL1".to_vec(), names.take()].concat();
        let mut found = Vec::new();
        for (_, record) in records(&bytes) {
            if let Record::Metrics { now, metrics } = record {
                found.extend(metrics.iter().map(|(id, ..)| (id.0, now)));
            }
        }
        assert_eq!(found, [(1, 10), (2, 10), (3, 13), (4, 10)]);
    }
}
