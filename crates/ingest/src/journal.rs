//! The journal: what is accepted is here first, on disk, until the store holds it.
//!
//! A journal is a folder of segments, `00000001.journal` and on. A segment is eight bytes of magic and then
//! records; only the last one grows. A record is
//!
//! ```text
//! length u32 │ crc32 u32 │ kind u8 │ payload (length bytes)          all little-endian; crc over kind and payload
//! kind 1, points:   now i64 │ { number u32 │ time u32 │ value f64 }…
//! kind 2, metrics:  now i64 │ { number u32 │ policy u16 │ name length u16 │ name }…
//! kind 3, policy:   id u16 │ xFilesFactor f64 │ aggregation, blank, retention as text
//! ```
//!
//! A segment names every policy it uses, so that any suffix of the journal can be replayed by itself.
//! Appending is a `write(2)`: a killed process loses nothing, a lost machine at most what was appended
//! since the last `fsync`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use metric::{MetricId, Policy, Timestamp};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

const MAGIC: &[u8; 8] = b"PLBGJNL1";
const HEADER: usize = 9;
/// Bytes of one point in a record of points.
const POINT: usize = 16;
/// A record longer than this was not written by us.
const LONGEST_RECORD: usize = 64 << 20;
/// A record of metrics that is longer than this is closed, and another begun.
const METRICS_BYTES: usize = 1 << 20;
/// Points of one record, at most: so that none is ever taken for damage.
pub(crate) const RECORD_POINTS: usize = 1 << 20;
/// A segment is closed when it is longer than this, so that the journal can be trimmed in pieces.
const SEGMENT_BYTES: u64 = 64 << 20;

const POINTS: u8 = 1;
const METRICS: u8 = 2;
const POLICY: u8 = 3;

/// A point whose metric is known by its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberedPoint {
    /// The metric's number.
    pub metric: MetricId,
    /// Unix seconds.
    pub time: u32,
    /// Not NaN.
    pub value: f64,
}

/// Writes one record into memory, piece by piece.
#[derive(Debug, Default)]
pub struct RecordWriter {
    bytes: Vec<u8>,
}

impl RecordWriter {
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
    pub fn points(&mut self, now: Timestamp, points: &[NumberedPoint]) -> &[u8] {
        self.begin(POINTS);
        self.bytes.extend_from_slice(&now.to_le_bytes());
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

    fn policy(&mut self, id: u16, policy: &Policy) -> &[u8] {
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

/// Metrics that exist in the registry and are not in the journal yet. Whoever appends next writes them
/// first, so that no point is ever in the journal before its metric.
#[derive(Debug, Default)]
struct Unwritten {
    /// Records of metrics, one behind the other.
    metrics: Vec<u8>,
    /// Where the last of them begins; it is not finished yet.
    last: usize,
    policies: Vec<(u16, Policy)>,
}

#[derive(Debug)]
struct Writer {
    file: Arc<File>,
    segment: u64,
    length: u64,
    /// Closed segments that were not synced before they were closed.
    unsynced: Vec<Arc<File>>,
    /// Policies that the current segment names already.
    named: Vec<u16>,
    scratch: RecordWriter,
}

/// The open journal.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    writer: Mutex<Writer>,
    unwritten: Mutex<Unwritten>,
    /// Held shared from an append until its points are in memory; held alone to begin a segment. Once a
    /// segment is closed, every point in it is therefore in memory, or stored.
    gate: RwLock<()>,
    /// Every policy there is, named again at the head of each segment.
    policies: Mutex<Vec<(u16, Policy)>>,
    /// Taken for the time of an fsync, so that callers who wait for one share it.
    syncing: Mutex<()>,
    appended: AtomicU64,
    synced: AtomicU64,
    last_sync: Mutex<Instant>,
    closed_bytes: AtomicU64,
    open_bytes: AtomicU64,
}

/// A segment on disk.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Its place in the order.
    pub number: u64,
    /// Its file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The segments of a folder, oldest first. Other files are left alone.
pub fn segments(dir: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".journal")).and_then(|n| n.parse().ok());
        if let Some(number) = number {
            segments.push(Segment { number, path: entry.path(), bytes: entry.metadata()?.len() });
        }
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

impl Journal {
    /// Opens the folder for appending, in a new segment after those that are there. What is there is
    /// replayed with [`replay`] and goes away with the first `trim`.
    pub fn open(dir: &Path) -> io::Result<Journal> {
        fs::create_dir_all(dir)?;
        let mut old = segments(dir)?;
        let segment = old.last().map_or(1, |last| last.number + 1);
        for empty in old.extract_if(.., |segment| segment.bytes <= MAGIC.len() as u64) {
            fs::remove_file(&empty.path)?;
        }
        let file = create_segment(dir, segment)?;
        let writer = Writer {
            file,
            segment,
            length: MAGIC.len() as u64,
            unsynced: Vec::new(),
            named: Vec::new(),
            scratch: RecordWriter::default(),
        };
        Ok(Journal {
            dir: dir.to_owned(),
            writer: Mutex::new(writer),
            unwritten: Mutex::default(),
            gate: RwLock::new(()),
            policies: Mutex::default(),
            syncing: Mutex::new(()),
            appended: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            last_sync: Mutex::new(Instant::now()),
            closed_bytes: AtomicU64::new(old.iter().map(|segment| segment.bytes).sum()),
            open_bytes: AtomicU64::new(MAGIC.len() as u64),
        })
    }

    /// Names a policy, before any metric is created with it.
    pub fn name_policy(&self, id: u16, policy: &Policy) {
        let mut policies = self.policies.lock();
        if policies.iter().all(|(known, _)| *known != id) {
            policies.push((id, policy.clone()));
            self.unwritten.lock().policies.push((id, policy.clone()));
        }
    }

    /// Says that a metric exists; written by the next append. The caller holds the registry's write lock.
    pub fn name_metric(&self, number: MetricId, policy: u16, name: &str, now: Timestamp) {
        let mut unwritten = self.unwritten.lock();
        let Unwritten { metrics: bytes, last, .. } = &mut *unwritten;
        if bytes.is_empty() || bytes.len() - *last > METRICS_BYTES {
            if !bytes.is_empty() {
                finish_record(&mut bytes[*last..]);
            }
            *last = bytes.len();
            bytes.extend_from_slice(&[0; HEADER]);
            bytes[*last + 8] = METRICS;
            bytes.extend_from_slice(&now.to_le_bytes());
        }
        bytes.extend_from_slice(&number.0.to_le_bytes());
        bytes.extend_from_slice(&policy.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }

    /// Appends a finished record, and before it whatever was named; with an empty one, that alone. On an error
    /// nothing of it is in the journal, what was named is still to be written, and the same call may be made
    /// again. The guard is kept until the record's points are in memory.
    pub fn append(&self, record: &[u8]) -> io::Result<RwLockReadGuard<'_, ()>> {
        if self.writer.lock().length >= SEGMENT_BYTES {
            self.rotate()?;
        }
        // Not `read_recursive`: appends that overlap without end would keep a cycle from ever beginning.
        let gate = self.gate.read();
        let mut writer = self.writer.lock();
        let before = writer.length;
        let mut unwritten = self.unwritten.lock();
        let result = write_named(&mut writer, &mut unwritten).and_then(|()| write(&mut writer, record));
        match result {
            Ok(()) => {
                // Only now: had the record failed, what was written before it would have been taken back as well.
                unwritten.metrics.clear();
                unwritten.last = 0;
                writer.named.extend(unwritten.policies.drain(..).map(|(id, _)| id));
                self.appended.fetch_add(1, Ordering::Release);
                self.open_bytes.store(writer.length, Ordering::Relaxed);
                Ok(gate)
            }
            Err(error) => {
                // Take back the torn record: the next one must begin where the last whole one ended.
                let cut = writer.file.set_len(before);
                writer.length = before;
                cut.and(Err(error))
            }
        }
    }

    /// Closes the current segment and begins another. Returns the new one's number: once everything in
    /// memory at this moment is stored, the segments before it may be trimmed.
    pub fn rotate(&self) -> io::Result<u64> {
        self.rotate_and(|_| ())
    }

    /// As [`Journal::rotate`]; `then` is called with the new segment's number before anybody appends to it.
    pub fn rotate_and(&self, then: impl FnOnce(u64)) -> io::Result<u64> {
        let _alone = self.gate.write();
        let segment = self.begin_segment()?;
        then(segment);
        Ok(segment)
    }

    /// Calls `work` with the number of the current segment, while nobody appends.
    pub fn alone<T>(&self, work: impl FnOnce(u64) -> T) -> T {
        let _alone = self.gate.write();
        let segment = self.writer.lock().segment;
        work(segment)
    }

    /// The number of the current segment and its length.
    pub fn current(&self) -> (u64, u64) {
        let writer = self.writer.lock();
        (writer.segment, writer.length)
    }

    fn begin_segment(&self) -> io::Result<u64> {
        let mut writer = self.writer.lock();
        if writer.length == MAGIC.len() as u64 {
            return Ok(writer.segment);
        }
        let segment = writer.segment + 1;
        let file = create_segment(&self.dir, segment)?;
        let closed = std::mem::replace(&mut writer.file, file);
        writer.unsynced.push(closed);
        self.closed_bytes.fetch_add(writer.length, Ordering::Relaxed);
        self.open_bytes.store(MAGIC.len() as u64, Ordering::Relaxed);
        writer.segment = segment;
        writer.length = MAGIC.len() as u64;
        writer.named.clear();
        self.unwritten.lock().policies = self.policies.lock().clone();
        Ok(segment)
    }

    /// Deletes the segments before `segment`.
    pub fn trim(&self, segment: u64) -> io::Result<()> {
        for old in segments(&self.dir)?.into_iter().filter(|old| old.number < segment) {
            fs::remove_file(&old.path)?;
            self.closed_bytes.fetch_sub(old.bytes.min(self.closed_bytes.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until everything appended before this call is on the disk. Callers that come while one
    /// fsync runs share the next.
    pub fn sync(&self) -> io::Result<()> {
        let wanted = self.appended.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= wanted {
            *self.last_sync.lock() = Instant::now();
            return Ok(());
        }
        let _turn = self.syncing.lock();
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let (files, reached) = {
            let writer = self.writer.lock();
            let mut files = writer.unsynced.clone();
            files.push(writer.file.clone());
            (files, self.appended.load(Ordering::Acquire))
        };
        let began = Instant::now();
        for file in &files {
            file.sync_data()?;
        }
        let closed = files.len() - 1;
        self.writer.lock().unsynced.drain(..closed);
        self.synced.store(reached, Ordering::Release);
        *self.last_sync.lock() = began;
        Ok(())
    }

    /// Seconds since everything that was appended was last known to be on the disk.
    pub fn sync_age(&self) -> f64 {
        if self.synced.load(Ordering::Acquire) >= self.appended.load(Ordering::Acquire) {
            return 0.0;
        }
        self.last_sync.lock().elapsed().as_secs_f64()
    }

    /// Bytes on disk, all segments.
    pub fn bytes(&self) -> u64 {
        self.closed_bytes.load(Ordering::Relaxed) + self.open_bytes.load(Ordering::Relaxed)
    }
}

/// Writes the policies and metrics that were named since the last append. Forgetting them is for the caller.
fn write_named(writer: &mut Writer, unwritten: &mut Unwritten) -> io::Result<()> {
    let Unwritten { metrics, last, policies } = unwritten;
    for (id, policy) in policies.iter() {
        if !writer.named.contains(id) {
            let mut scratch = std::mem::take(&mut writer.scratch);
            let written = write(writer, scratch.policy(*id, policy));
            writer.scratch = scratch;
            written?;
        }
    }
    if !metrics.is_empty() {
        finish_record(&mut metrics[*last..]);
        write(writer, metrics)?;
    }
    Ok(())
}

fn write(writer: &mut Writer, record: &[u8]) -> io::Result<()> {
    (&*writer.file).write_all(record)?;
    writer.length += record.len() as u64;
    Ok(())
}

fn create_segment(dir: &Path, number: u64) -> io::Result<Arc<File>> {
    let path = dir.join(format!("{number:08}.journal"));
    let mut file = OpenOptions::new().create_new(true).append(true).open(&path)?;
    let begun = file.write_all(MAGIC).and_then(|()| File::open(dir)?.sync_all());
    if let Err(error) = begun {
        // A segment that is there already would be in the way of the next try.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(Arc::new(file))
}

/// A record read back.
#[derive(Debug)]
pub enum Record<'a> {
    /// Points, in the order they were accepted, and the time at which.
    Points {
        /// Unix seconds.
        now: Timestamp,
        /// The points.
        points: Points<'a>,
    },
    /// Metrics that were created.
    Metrics {
        /// Unix seconds.
        now: Timestamp,
        /// Number, policy id of this journal, canonical name.
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
    type Item = NumberedPoint;

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    fn next(&mut self) -> Option<NumberedPoint> {
        let cell: &[u8; POINT] = self.0.next()?.try_into().expect("chunks are of a point's size");
        Some(NumberedPoint {
            metric: MetricId(u32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]])),
            time: u32::from_le_bytes([cell[4], cell[5], cell[6], cell[7]]),
            value: f64::from_le_bytes([cell[8], cell[9], cell[10], cell[11], cell[12], cell[13], cell[14], cell[15]]),
        })
    }
}

/// What was found in a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Whole records.
    pub records: u64,
    /// Bytes that belong to no whole record: a torn tail, or damage.
    pub damaged_bytes: u64,
}

/// Reads a segment's bytes, record by record. Damage costs only itself: after it the next whole record is
/// looked for. A torn tail is the normal end of a journal whose machine stopped.
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
    /// What was found so far.
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

/// The whole record at the beginning of `bytes` and its length, if there is one.
fn record(bytes: &[u8]) -> Option<(usize, Record<'_>)> {
    let header = bytes.get(..HEADER)?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let kind = header[8];
    if length > LONGEST_RECORD || !(POINTS..=POLICY).contains(&kind) {
        return None;
    }
    let payload = bytes.get(HEADER..HEADER + length)?;
    let crc = u32::from_le_bytes(header[4..8].try_into().ok()?);
    if crc32fast::hash(&bytes[8..HEADER + length]) != crc {
        return None;
    }
    let record = match kind {
        POINTS => {
            let (now, points) = payload.split_at_checked(8)?;
            Record::Points { now: i64::from_le_bytes(now.try_into().ok()?), points: Points(points.chunks_exact(POINT)) }
        }
        METRICS => metrics(payload)?,
        _ => policy(payload)?,
    };
    Some((HEADER + length, record))
}

fn metrics(payload: &[u8]) -> Option<Record<'_>> {
    let (now, mut rest) = payload.split_at_checked(8)?;
    let mut metrics = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at_checked(8)?;
        let number = MetricId(u32::from_le_bytes(head[..4].try_into().ok()?));
        let policy = u16::from_le_bytes(head[4..6].try_into().ok()?);
        let length = u16::from_le_bytes(head[6..8].try_into().ok()?);
        let (name, after) = after.split_at_checked(usize::from(length))?;
        metrics.push((number, policy, std::str::from_utf8(name).ok()?));
        rest = after;
    }
    Some(Record::Metrics { now: i64::from_le_bytes(now.try_into().ok()?), metrics })
}

fn policy(payload: &[u8]) -> Option<Record<'_>> {
    let (id, policy) = payload.split_first_chunk()?;
    Some(Record::Policy { id: u16::from_le_bytes(*id), policy: Policy::decode(policy)? })
}

/// Reads a segment's file whole; segments are bounded in size.
pub fn read_segment(segment: &Segment) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(segment.bytes as usize);
    File::open(&segment.path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(n: u32) -> Vec<NumberedPoint> {
        (0..n).map(|i| NumberedPoint { metric: MetricId(i), time: 1000 + i, value: f64::from(i) }).collect()
    }

    fn journal_of(batches: &[u32]) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        journal.name_policy(0, &Policy::default());
        for &n in batches {
            journal.name_metric(MetricId(n), 0, "a.b", 7);
            drop(journal.append(RecordWriter::default().points(5, &points(n))).unwrap());
        }
        journal.sync().unwrap();
        let bytes = read_segment(&segments(dir.path()).unwrap()[0]).unwrap();
        (dir, bytes)
    }

    fn read(bytes: &[u8]) -> (Vec<String>, Replayed) {
        let mut seen = Vec::new();
        let replayed = replay(bytes, |record| {
            seen.push(match record {
                Record::Points { now, points } => format!("{} points at {now}", points.count()),
                Record::Metrics { metrics, .. } => format!("{metrics:?}"),
                Record::Policy { id, policy } => format!("policy {id} {}", policy.retention),
            });
        });
        (seen, replayed)
    }

    #[test]
    fn what_is_appended_is_read_back_after_what_it_needs() {
        let (_dir, bytes) = journal_of(&[2, 3]);
        let expected = [
            "policy 0 10080*60s",
            "[(MetricId(2), 0, \"a.b\")]",
            "2 points at 5",
            "[(MetricId(3), 0, \"a.b\")]",
            "3 points at 5",
        ];
        assert_eq!(read(&bytes), (expected.map(String::from).to_vec(), Replayed { records: 5, damaged_bytes: 0 }));
    }

    #[test]
    fn the_schema_page_shows_the_bytes_that_are_written() {
        let page = include_str!("../../../schema/journal.md");
        let hex: String =
            page.split("```hex").nth(1).unwrap().split("```").next().unwrap().split_whitespace().collect();
        let point = NumberedPoint { metric: MetricId(7), time: 1_700_000_000, value: 1.5 };
        let mut writer = RecordWriter::default();
        let written = writer.points(1_700_000_001, &[point]);
        assert_eq!(written.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
    }

    #[test]
    fn what_was_named_is_in_the_journal_though_the_record_behind_it_failed_at_first() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        journal.name_policy(0, &Policy::default());
        journal.name_metric(MetricId(7), 0, "a.b", 7);
        // A socket that nobody reads takes the names and then is full, like a disk.
        let (full, _unread) = std::os::unix::net::UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        let full = Arc::new(File::from(std::os::fd::OwnedFd::from(full)));
        let disk = std::mem::replace(&mut journal.writer.lock().file, full);
        assert!(journal.append(RecordWriter::default().points(5, &points(1 << 20))).is_err());
        journal.writer.lock().file = disk;
        drop(journal.append(RecordWriter::default().points(5, &points(1))).unwrap());
        let bytes = read_segment(&segments(dir.path()).unwrap()[0]).unwrap();
        assert_eq!(read(&bytes).0, ["policy 0 10080*60s", "[(MetricId(7), 0, \"a.b\")]", "1 points at 5"]);
    }

    #[test]
    fn any_number_of_metrics_may_be_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        journal.name_policy(0, &Policy::default());
        let name = "n".repeat(1000);
        (0..70_000).for_each(|number| journal.name_metric(MetricId(number), 0, &name, 7));
        drop(journal.append(&[]).unwrap());
        let bytes = read_segment(&segments(dir.path()).unwrap()[0]).unwrap();
        let mut named = 0;
        let replayed = replay(&bytes, |record| {
            if let Record::Metrics { metrics, .. } = record {
                assert!(metrics.iter().map(|&(number, ..)| number.0).eq(named..named + metrics.len() as u32));
                named += metrics.len() as u32;
            }
        });
        assert_eq!((named, replayed.damaged_bytes), (70_000, 0));
    }

    #[test]
    fn a_torn_tail_costs_only_the_last_record() {
        let (_dir, bytes) = journal_of(&[2, 3]);
        for cut in 1..(HEADER + 8 + 3 * POINT) {
            let (seen, replayed) = read(&bytes[..bytes.len() - cut]);
            assert_eq!(seen.len(), 4, "cut by {cut}");
            assert_eq!(replayed.damaged_bytes as usize, HEADER + 8 + 3 * POINT - cut);
        }
    }

    #[test]
    fn damage_in_the_middle_costs_only_itself() {
        let (_dir, mut bytes) = journal_of(&[50, 3]);
        bytes[200] ^= 0x10;
        let (seen, replayed) = read(&bytes);
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[3], "3 points at 5");
        assert_eq!(replayed.damaged_bytes as usize, HEADER + 8 + 50 * POINT);
    }

    #[test]
    fn garbage_and_zeroes_are_no_records() {
        assert_eq!(read(&[0; 1000]).1, Replayed { records: 0, damaged_bytes: 1000 });
        assert_eq!(read(b"x").1, Replayed { records: 0, damaged_bytes: 1 });
        assert_eq!(read(b"").1, Replayed::default());
    }

    #[test]
    fn a_new_segment_names_its_policies_again_and_old_ones_are_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        journal.name_policy(0, &Policy::default());
        drop(journal.append(RecordWriter::default().points(5, &points(1))).unwrap());
        let second = journal.rotate().unwrap();
        drop(journal.append(RecordWriter::default().points(6, &points(1))).unwrap());
        assert_eq!(journal.bytes(), segments(dir.path()).unwrap().iter().map(|s| s.bytes).sum::<u64>());
        journal.trim(second).unwrap();
        let left = segments(dir.path()).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(read(&read_segment(&left[0]).unwrap()).0, ["policy 0 10080*60s", "1 points at 6"]);
        assert_eq!(journal.bytes(), left[0].bytes);
        assert_eq!(journal.rotate().unwrap(), second + 1);
        assert_eq!(journal.rotate().unwrap(), second + 1, "an empty segment is not closed");
    }
}
