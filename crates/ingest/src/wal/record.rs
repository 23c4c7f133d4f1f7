//! The bytes of a record, written and read back. See `schema/journal.md`.
//!
//! ```text
//! length u32 │ crc32 u32 │ kind u8 │ payload (length bytes)          all little-endian; crc over kind and payload
//! kind 1, points:   now i64 │ { metric id u32 │ time u32 │ value f64 }…
//! kind 2, metrics:  now i64 │ { metric id u32 │ policy u16 │ name length u16 │ name }…
//! kind 3, policy:   id u16 │ xFilesFactor f64 │ aggregation, blank, retention as text
//! kind 4, points:   low i64 │ high i64 │ cells as kind 1: accepted while the clock was in doubt
//! ```

use host::Now;
use metric::{MetricId, Policy, Timestamp};

/// The first bytes of a segment.
pub(super) const MAGIC: &[u8; 8] = b"PLBGJNL1";
/// Bytes before a record's payload.
pub(super) const HEADER: usize = 9;
/// Bytes of one point in a record of points.
pub(super) const POINT: usize = 16;
/// A longer record is damage.
const LONGEST_RECORD: usize = 64 << 20;
/// A record of metrics that is longer than this is closed, and another begun.
const METRICS_BYTES: usize = 1 << 20;
/// Points of one record, at most, so that a replay never takes one for damage.
pub(crate) const RECORD_POINTS: usize = 1 << 20;

const POINTS: u8 = 1;
const METRICS: u8 = 2;
const POLICY: u8 = 3;
const POINTS_IN_DOUBT: u8 = 4;

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
    /// Bytes of its buffer.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn begin(&mut self, kind: u8) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; HEADER]);
        self.bytes[8] = kind;
    }

    fn finish(&mut self) -> &[u8] {
        finish_record(&mut self.bytes);
        &self.bytes
    }

    /// A record of points accepted at `now`.
    pub fn points(&mut self, now: Now, points: &[ResolvedPoint]) -> &[u8] {
        self.begin(if now.is_certain() { POINTS } else { POINTS_IN_DOUBT });
        self.bytes.extend_from_slice(&now.low().to_le_bytes());
        if !now.is_certain() {
            self.bytes.extend_from_slice(&now.high().to_le_bytes());
        }
        self.bytes.reserve(points.len() * POINT);
        for point in points {
            let mut cell = [0; POINT];
            cell[..4].copy_from_slice(&point.metric.0.to_le_bytes());
            cell[4..8].copy_from_slice(&point.time.to_le_bytes());
            cell[8..].copy_from_slice(&point.value.to_le_bytes());
            self.bytes.extend_from_slice(&cell);
        }
        self.finish()
    }

    /// A record that names a policy.
    pub(super) fn policy(&mut self, id: u16, policy: &Policy) -> &[u8] {
        self.begin(POLICY);
        self.bytes.extend_from_slice(&id.to_le_bytes());
        policy.encode(&mut self.bytes);
        self.finish()
    }
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
}

impl MetricsWriter {
    pub(super) fn push(&mut self, metric: MetricId, policy: u16, name: &str, now: Timestamp) {
        let MetricsWriter { bytes, last } = self;
        if bytes.is_empty() || bytes.len() - *last > METRICS_BYTES {
            if !bytes.is_empty() {
                finish_record(&mut bytes[*last..]);
            }
            *last = bytes.len();
            bytes.extend_from_slice(&[0; HEADER]);
            bytes[*last + 8] = METRICS;
            bytes.extend_from_slice(&now.to_le_bytes());
        }
        bytes.extend_from_slice(&metric.0.to_le_bytes());
        bytes.extend_from_slice(&policy.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }

    /// The records; empty when no metric was pushed since `clear`. More may be pushed afterwards.
    pub(super) fn finish(&mut self) -> &[u8] {
        if !self.bytes.is_empty() {
            finish_record(&mut self.bytes[self.last..]);
        }
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.last = 0;
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

/// The records of a segment's bytes; see [`replay`].
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes.strip_prefix(MAGIC).unwrap_or(bytes), replayed: Replayed::default() }
}

/// Goes through a segment's bytes.
#[derive(Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    /// The result so far.
    pub replayed: Replayed,
}

/// Each record with its length in bytes.
impl<'a> Iterator for Records<'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<(usize, Record<'a>)> {
        while !self.rest.is_empty() {
            if let Some((length, record)) = record(self.rest) {
                self.replayed.records += 1;
                self.rest = &self.rest[length..];
                return Some((length, record));
            }
            self.rest = &self.rest[1..];
            self.replayed.damaged_bytes += 1;
        }
        None
    }
}

/// The complete record at the beginning of `bytes` and its length, if there is one.
fn record(bytes: &[u8]) -> Option<(usize, Record<'_>)> {
    let header = bytes.get(..HEADER)?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let kind = header[8];
    if length > LONGEST_RECORD || !(POINTS..=POINTS_IN_DOUBT).contains(&kind) {
        return None;
    }
    let payload = bytes.get(HEADER..HEADER + length)?;
    let crc = u32::from_le_bytes(header[4..8].try_into().ok()?);
    if crc32fast::hash(&bytes[8..HEADER + length]) != crc {
        return None;
    }
    let record = match kind {
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
        _ => policy(payload)?,
    };
    Some((HEADER + length, record))
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
