//! The open journal: appends, segments, fsyncs.
//!
//! Locks are taken in this order, each one optional: `gate`, `fsync`'s turn, `writer`, `names`.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::{Host, Now};
use metric::{MetricId, Policy, Timestamp};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    fsync::Fsync,
    names::UnwrittenNames,
    record::{MAGIC, RecordWriter, ResolvedPoint},
    segment::{Folder, Segment},
    writer::Writer,
};
use crate::{
    backoff::JOURNAL_RETRY,
    counters::{Durations, Histogram},
};

/// A segment that is longer than this is closed, so that the journal can be trimmed in parts.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Folder,
    host: Host,
    /// Shared from an append until its points are in memory, exclusive to begin a segment. Once a segment is closed,
    /// every point in it is therefore in memory, stored or spilled.
    gate: RwLock<()>,
    writer: Mutex<Writer>,
    names: Mutex<UnwrittenNames>,
    fsync: Fsync,
    size: Arc<JournalSize>,
    counters: JournalCounters,
    /// Whether the last append failed.
    is_failing: AtomicBool,
}

/// Counters of the journal.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) errors: AtomicU64,
    pub(crate) replayed_points: AtomicU64,
    pub(crate) damaged_bytes: AtomicU64,
    syncs: Durations,
}

/// Bytes on disk, for back-pressure to look at.
#[derive(Debug, Default)]
pub(crate) struct JournalSize {
    closed: AtomicU64,
    open: AtomicU64,
}

impl JournalSize {
    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.closed.load(Relaxed) + self.open.load(Relaxed)
    }
}

/// Points that are in the journal: memory takes no others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journalled<'a> {
    points: &'a [ResolvedPoint],
    accepted_at: Now,
}

impl<'a> Journalled<'a> {
    /// Points that were read from a record of the journal.
    pub(crate) fn read_back(points: &'a [ResolvedPoint], accepted_at: Now) -> Journalled<'a> {
        Journalled { points, accepted_at }
    }

    pub(crate) fn points(&self) -> &'a [ResolvedPoint] {
        self.points
    }

    /// The time by which points are too old or too far ahead.
    pub(crate) fn accepted_at(&self) -> Now {
        self.accepted_at
    }
}

/// Points that were appended now. No segment begins, and nothing else that asks for [`Exclusive`] happens, until this
/// is dropped: when they are in memory.
#[derive(Debug)]
#[must_use = "dropped before its points are in memory, it lets a cycle delete them"]
pub(crate) struct Appended<'a> {
    points: Journalled<'a>,
    record_bytes: u64,
    _gate: RwLockReadGuard<'a, ()>,
}

impl<'a> Appended<'a> {
    pub(crate) fn points(&self) -> Journalled<'a> {
        self.points
    }

    /// Bytes of their record.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }
}

/// The journal while appends wait. All points in it are in memory, stored or spilled.
#[derive(Debug)]
pub(crate) struct Exclusive<'a> {
    journal: &'a Journal,
    _gate: RwLockWriteGuard<'a, ()>,
}

impl Exclusive<'_> {
    /// Closes the current segment and begins another. Returns the new one's number; a segment without a record continues.
    pub(crate) fn begin_segment(&self) -> io::Result<u64> {
        let mut writer = self.journal.writer.lock();
        if !writer.is_empty() {
            let file = self.journal.folder.create(writer.segment() + 1)?;
            self.journal.size.closed.fetch_add(writer.length(), Relaxed);
            self.journal.size.open.store(MAGIC.len() as u64, Relaxed);
            writer.begin_segment(file);
            self.journal.names.lock().begin_segment();
        }
        Ok(writer.segment())
    }
}

/// Proof that every metric and policy named so far is on the disk. Rows are written only behind this: were they there
/// first, a machine that fails would forget the name, and later give its id, and its rows, to another metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamesOnDisk(());

impl Journal {
    /// Opens the folder for appending, in a new segment after the existing ones, which stay until they are trimmed.
    /// Keeps `size` up to date.
    pub(crate) fn open(host: Host, dir: &Path, size: Arc<JournalSize>) -> io::Result<Journal> {
        let folder = Folder::new(host.disk.clone(), dir);
        folder.make()?;
        let mut old = folder.segments()?;
        let segment = old.last().map_or(1, |last| last.number + 1);
        for empty in old.extract_if(.., |segment| segment.bytes <= MAGIC.len() as u64) {
            folder.remove(&empty)?;
        }
        let writer = Mutex::new(Writer::new(folder.create(segment)?, segment));
        size.closed.store(old.iter().map(|segment| segment.bytes).sum(), Relaxed);
        size.open.store(MAGIC.len() as u64, Relaxed);
        Ok(Journal {
            folder,
            fsync: Fsync::new(host.clock.clone()),
            host,
            gate: RwLock::new(()),
            writer,
            names: Mutex::default(),
            size,
            counters: JournalCounters::default(),
            is_failing: AtomicBool::new(false),
        })
    }

    /// Names a policy, before any metric is created with it.
    pub(crate) fn name_policy(&self, id: u16, policy: &Policy) {
        self.names.lock().name_policy(id, policy);
    }

    /// Names a metric, or its new policy; the next append writes it.
    pub(crate) fn name_metric(&self, metric: MetricId, policy: u16, name: &str, now: Timestamp) {
        self.names.lock().name_metric(metric, policy, name, now);
    }

    /// Names the deletion of a metric; the next append writes it, before every metric that is named later.
    pub(crate) fn name_deletion(&self, metric: MetricId, now: Timestamp) {
        // As a metric without a name, which nothing else is.
        self.names.lock().name_metric(metric, u16::MAX, "", now);
    }

    /// Appends one record of points, and before it what was named. On an error nothing of it is in the journal, and the
    /// same call may be made again. Counts and logs the error.
    pub(crate) fn append<'a>(
        &'a self,
        record: &mut RecordWriter,
        points: &'a [ResolvedPoint],
        accepted_at: Now,
    ) -> io::Result<Appended<'a>> {
        let record = record.points(accepted_at, points);
        match self.append_record(record) {
            Ok(gate) => {
                if self.is_failing.load(Relaxed) && self.is_failing.swap(false, Relaxed) {
                    tracing::info!("the journal can be written again");
                }
                let points = Journalled { points, accepted_at };
                Ok(Appended { points, record_bytes: record.len() as u64, _gate: gate })
            }
            Err(error) => {
                self.counters.errors.fetch_add(1, Relaxed);
                // Said once, not at every attempt: on a full disk log lines are a cost of their own.
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::error!(%error, dir = %self.folder.dir().display(),
                        "cannot write the journal; accepting no points until a write succeeds; is the disk full?");
                }
                Err(error)
            }
        }
    }

    /// Appends what was named, without waiting for points.
    pub(crate) fn append_names(&self) -> io::Result<()> {
        self.append_record(&[]).map(drop)
    }

    fn append_record(&self, record: &[u8]) -> io::Result<RwLockReadGuard<'_, ()>> {
        if self.writer.lock().length() >= SEGMENT_BYTES {
            self.begin_segment()?;
        }
        // Not `read_recursive`: appends that overlap without end would keep a cycle from ever beginning.
        let gate = self.gate.read();
        let mut writer = self.writer.lock();
        writer.append(&mut self.names.lock(), record)?;
        self.fsync.count_append();
        self.size.open.store(writer.length(), Relaxed);
        Ok(gate)
    }

    /// Waits for the current appends, and makes others wait.
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        Exclusive { journal: self, _gate: self.gate.write() }
    }

    /// Closes the current segment and begins another. Returns the new one's number: once everything in memory at this
    /// moment is stored, the segments before it may be trimmed.
    pub(crate) fn begin_segment(&self) -> io::Result<u64> {
        self.exclusive().begin_segment()
    }

    /// The number of the current segment and its length.
    pub(crate) fn current(&self) -> (u64, u64) {
        let writer = self.writer.lock();
        (writer.segment(), writer.length())
    }

    /// Where the segments are.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Deletes the segments before `segment`.
    pub(crate) fn trim(&self, segment: u64) -> io::Result<()> {
        let is_behind = |old: &Segment| old.number < segment;
        for old in self.folder.segments()?.into_iter().filter(is_behind) {
            self.folder.remove(&old)?;
            let closed = &self.size.closed;
            closed.fetch_sub(old.bytes.min(closed.load(Relaxed)), Relaxed);
        }
        Ok(())
    }

    /// Returns when everything appended before this call is on the disk. Counts and logs a failure.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let began = self.host.clock.instant();
        let result = self.fsync.sync(&self.writer);
        match &result {
            Ok(()) => self.counters.syncs.observe(self.host.clock.instant().saturating_duration_since(began)),
            Err(error) => {
                self.counters.errors.fetch_add(1, Relaxed);
                tracing::error!(%error, dir = %self.folder.dir().display(), "cannot sync the journal to the disk; a power failure can lose points; retrying");
            }
        }
        result
    }

    /// Waits for an fsync that covers everything appended so far, however often it fails first.
    pub(crate) async fn synced(self: &Arc<Journal>) -> NamesOnDisk {
        loop {
            let journal = self.clone();
            match tokio::task::spawn_blocking(move || journal.sync()).await {
                Ok(Ok(())) => return NamesOnDisk(()),
                _ => tokio::time::sleep(JOURNAL_RETRY).await,
            }
        }
    }

    /// Syncs at this interval, until the task is aborted.
    pub(crate) async fn sync_every(self: Arc<Journal>, interval: Duration) {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let journal = self.clone();
            // A failure is counted and logged there; the next tick is the next attempt.
            let _ = tokio::task::spawn_blocking(move || journal.sync()).await;
        }
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// Seconds since everything that was appended was last known to be on the disk.
    pub(crate) fn sync_age(&self) -> f64 {
        self.fsync.age()
    }

    /// How long fsyncs took.
    pub(crate) fn sync_seconds(&self) -> Histogram {
        self.counters.syncs.snapshot()
    }

    /// Whether the last append failed, so that nothing is accepted.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    pub(crate) fn counters(&self) -> &JournalCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use host::{Call, FailingDisk, SystemDisk};

    use super::super::record::{HEADER, POINT, Record, Replayed, replay};
    use super::*;

    fn points(n: u32) -> Vec<ResolvedPoint> {
        (0..n).map(|i| ResolvedPoint { metric: MetricId(i), time: 1000 + i, value: f64::from(i) }).collect()
    }

    fn open(dir: &Path) -> Journal {
        let journal = Journal::open(Host::system(), dir, Arc::default()).unwrap();
        journal.name_policy(0, &Policy::default());
        journal
    }

    fn append(journal: &Journal, n: u32, now: i64) -> io::Result<()> {
        journal.append(&mut RecordWriter::default(), &points(n), Now::at(now)).map(drop)
    }

    /// The bytes of the only segment.
    fn bytes(journal: &Journal) -> Vec<u8> {
        let segments = journal.folder().segments().unwrap();
        assert_eq!(segments.len(), 1);
        journal.folder().read(&segments[0]).unwrap()
    }

    fn journal_of(batches: &[u32]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path());
        for &n in batches {
            journal.name_metric(MetricId(n), 0, "a.b", 7);
            append(&journal, n, 5).unwrap();
        }
        journal.sync().unwrap();
        bytes(&journal)
    }

    fn read(bytes: &[u8]) -> (Vec<String>, Replayed) {
        let mut seen = Vec::new();
        let replayed = replay(bytes, |record| {
            seen.push(match record {
                Record::Points { now, points } => format!("{} points at {}", points.count(), now.low()),
                Record::Metrics { metrics, .. } => format!("{metrics:?}"),
                Record::Policy { id, policy } => format!("policy {id} {}", policy.retention),
            });
        });
        (seen, replayed)
    }

    #[test]
    fn an_append_is_read_back_after_what_it_names() {
        let expected = [
            "policy 0 10080*60s",
            "[(MetricId(2), 0, \"a.b\")]",
            "2 points at 5",
            "[(MetricId(3), 0, \"a.b\")]",
            "3 points at 5",
        ];
        let replayed = Replayed { records: 5, damaged_bytes: 0 };
        assert_eq!(read(&journal_of(&[2, 3])), (expected.map(String::from).to_vec(), replayed));
    }

    #[test]
    fn the_schema_page_shows_the_bytes_that_are_written() {
        let page = include_str!("../../../../schema/journal.md");
        let hex: String =
            page.split("```hex").nth(1).unwrap().split("```").next().unwrap().split_whitespace().collect();
        let point = ResolvedPoint { metric: MetricId(7), time: 1_700_000_000, value: 1.5 };
        let mut writer = RecordWriter::default();
        let written = writer.points(Now::at(1_700_000_001), &[point]);
        assert_eq!(written.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
    }

    #[test]
    fn names_are_written_again_when_the_record_behind_them_failed() {
        // Writes: the segment's head, the policy, the metric, the points.
        let writes = AtomicU32::new(0);
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            (call == Call::Write && writes.fetch_add(1, Relaxed) == 3).then(|| io::Error::other("no space left"))
        });
        let host = Host { disk: Arc::new(disk), ..Host::system() };
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(host, dir.path(), Arc::default()).unwrap();
        journal.name_policy(0, &Policy::default());
        journal.name_metric(MetricId(7), 0, "a.b", 7);
        assert!(append(&journal, 1, 5).is_err());
        assert!(journal.is_failing() && read(&bytes(&journal)).0.is_empty());
        append(&journal, 1, 5).unwrap();
        assert!(!journal.is_failing());
        assert_eq!(read(&bytes(&journal)).0, ["policy 0 10080*60s", "[(MetricId(7), 0, \"a.b\")]", "1 points at 5"]);
    }

    #[test]
    fn any_number_of_metrics_may_be_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path());
        let name = "n".repeat(1000);
        (0..70_000).for_each(|metric| journal.name_metric(MetricId(metric), 0, &name, 7));
        journal.append_names().unwrap();
        let mut named = 0;
        let replayed = replay(&bytes(&journal), |record| {
            if let Record::Metrics { metrics, .. } = record {
                assert!(metrics.iter().map(|&(metric, ..)| metric.0).eq(named..named + metrics.len() as u32));
                named += metrics.len() as u32;
            }
        });
        assert_eq!((named, replayed.damaged_bytes), (70_000, 0));
    }

    #[test]
    fn a_torn_tail_costs_only_the_last_record() {
        let bytes = journal_of(&[2, 3]);
        for cut in 1..(HEADER + 8 + 3 * POINT) {
            let (seen, replayed) = read(&bytes[..bytes.len() - cut]);
            assert_eq!(seen.len(), 4, "cut by {cut}");
            assert_eq!(replayed.damaged_bytes as usize, HEADER + 8 + 3 * POINT - cut);
        }
    }

    #[test]
    fn damage_in_the_middle_costs_only_its_own_record() {
        let mut bytes = journal_of(&[50, 3]);
        bytes[200] ^= 0x10;
        let (seen, replayed) = read(&bytes);
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[3], "3 points at 5");
        assert_eq!(replayed.damaged_bytes as usize, HEADER + 8 + 50 * POINT);
    }

    #[test]
    fn garbage_and_zeroes_are_not_records() {
        assert_eq!(read(&[0; 1000]).1, Replayed { records: 0, damaged_bytes: 1000 });
        assert_eq!(read(b"x").1, Replayed { records: 0, damaged_bytes: 1 });
        assert_eq!(read(b"").1, Replayed::default());
    }

    #[test]
    fn a_new_segment_names_its_policies_again_and_old_ones_are_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path());
        append(&journal, 1, 5).unwrap();
        let second = journal.begin_segment().unwrap();
        append(&journal, 1, 6).unwrap();
        let on_disk: u64 = journal.folder().segments().unwrap().iter().map(|segment| segment.bytes).sum();
        assert_eq!(journal.bytes(), on_disk);
        journal.trim(second).unwrap();
        assert_eq!(read(&bytes(&journal)).0, ["policy 0 10080*60s", "1 points at 6"]);
        assert_eq!(journal.bytes(), bytes(&journal).len() as u64);
        assert_eq!(journal.begin_segment().unwrap(), second + 1);
        assert_eq!(journal.begin_segment().unwrap(), second + 1, "an empty segment is not closed");
    }
}
