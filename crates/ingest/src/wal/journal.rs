//! The open journal: appends, segments, fsyncs.
//!
//! ```text
//! syncing   fsyncs, and what happens when one fails
//! ```
//!
//! Everything here that waits for a disk blocks its thread: the runtime's threads call the `async` functions, which run
//! it elsewhere. Locks are taken in this order, each one optional: `turn`, `writer`, `names`.

mod syncing;

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Host;
use metric::{MetricId, Policy, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use store::JournalMark;

use super::{
    damage::JournalDamage,
    header::SegmentHeader,
    journalled::{Accepted, Journalled},
    lengths::Lengths,
    names::UnwrittenNames,
    newest::{Newest, NewestFile},
    positions::Positions,
    record::points_record_bytes,
    segment::{Folder, Segment},
    snapshot::StagedJournal,
    trim::Trim,
    writer::{Before, Writer, WriterIdentity},
};
use crate::counters::{Durations, Histogram};

/// A segment that is longer than this is closed, so that the journal can be trimmed in parts.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Bytes that wait for an fsync, at most: they are in memory too. Beyond, an append waits for the fsync.
const UNSYNCED_BYTES: u64 = 64 << 20;

/// The bytes of both for a process that has little memory.
const LEAST_BYTES: u64 = 1 << 20;

/// A missing segment has a number that is less far ahead of those that are known.
const MOST_AHEAD: u64 = 1 << 20;

/// The open journal.
pub(crate) struct Journal {
    folder: Folder,
    damage: JournalDamage,
    host: Host,
    /// Locked from an append until its points are in memory, and to begin a segment. Once a segment is closed, every
    /// point in it is therefore in memory, stored or spilled, and the order of records is the order in memory.
    writer: Mutex<Writer>,
    names: Mutex<UnwrittenNames>,
    /// Locked for the time of an fsync, so that callers who wait for one share it.
    turn: Mutex<()>,
    /// As `turn`, for callers that must not block their thread.
    async_turn: tokio::sync::Mutex<()>,
    positions: Positions,
    segment_bytes: u64,
    unsynced_bytes: u64,
    size: Arc<JournalSize>,
    counters: JournalCounters,
    trim: Trim,
    /// Whether the last append failed, or what an fsync failed for is not repeated yet.
    is_failing: AtomicBool,
    /// Whether the last note of what is on the disk failed.
    is_note_failing: AtomicBool,
}

/// Counters of the journal.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) errors: AtomicU64,
    pub(crate) replayed_points: AtomicU64,
    pub(crate) damaged_bytes: AtomicU64,
    pub(crate) nameless_points: AtomicU64,
    /// Segments closed because of a failed fsync whose records are safe in another.
    pub(crate) repeated: AtomicU64,
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

/// How a journal is opened.
pub(crate) struct JournalOptions {
    /// Who writes it.
    pub(crate) identity: WriterIdentity,
    /// Bytes of points in memory, which segments and the bytes that wait for an fsync must be well below.
    pub(crate) memory_limit: u64,
    /// The store's mark: no segment gets a number again that one had.
    pub(crate) mark: Option<JournalMark>,
    /// The file that names the newest segment, and what it says.
    pub(crate) newest: (NewestFile, Option<Newest>),
    /// The segments that a recovery has read, by their numbers, and the bytes of each.
    pub(crate) read: BTreeMap<u64, u64>,
    /// Kept up to date.
    pub(crate) size: Arc<JournalSize>,
    /// Keeps the files whose damaged bytes are nowhere else.
    pub(crate) damage: JournalDamage,
}

/// Records that were appended now. No segment begins, no other record is appended, and nothing else that asks for
/// [`Exclusive`] happens, until this is dropped: when their points are in memory.
#[must_use = "dropped before its points are in memory, it lets a cycle delete them"]
pub(crate) struct Group<'a> {
    _writer: MutexGuard<'a, Writer>,
}

impl Group<'_> {
    /// One of the group's records.
    pub(crate) fn record<'a>(&'a self, accepted: Accepted<'a>) -> Appended<'a> {
        Appended { points: Journalled::appended(accepted), _group: self }
    }
}

/// Points of a record that was appended now; see [`Group`].
pub(crate) struct Appended<'a> {
    points: Journalled<'a>,
    _group: &'a Group<'a>,
}

impl<'a> Appended<'a> {
    pub(crate) fn points(&self) -> Journalled<'a> {
        self.points
    }

    /// Bytes of their record.
    pub(crate) fn record_bytes(&self) -> u64 {
        points_record_bytes(self.points.points().len()) as u64
    }
}

/// The journal while appends wait. All points in it are in memory, stored or spilled.
pub(crate) struct Exclusive<'a> {
    journal: &'a Journal,
    writer: MutexGuard<'a, Writer>,
}

impl Exclusive<'_> {
    /// Closes the current segment and begins another. Returns the new one's number; a segment without a record continues.
    pub(crate) fn begin_segment(&mut self) -> io::Result<u64> {
        if !self.writer.is_empty() {
            let begun = self.writer.begin_segment(&self.journal.names);
            self.journal.note(&mut self.writer);
            begun?;
        }
        Ok(self.writer.segment())
    }

    /// As [`Exclusive::begin_segment`], also behind a segment without a record.
    pub(crate) fn close_segment(&mut self) -> io::Result<u64> {
        let begun = self.writer.begin_segment(&self.journal.names);
        self.journal.note(&mut self.writer);
        begun.map(|()| self.writer.segment())
    }

    /// As [`Exclusive::close_segment`], in the place of a segment without a record.
    fn begin_again(&mut self) -> io::Result<()> {
        let begun = self.writer.begin_again(&self.journal.names);
        self.journal.note(&mut self.writer);
        begun
    }

    /// Appends records; the caller puts their points into memory.
    pub(crate) fn append(&mut self, records: &[Accepted<'_>]) -> io::Result<()> {
        let appended = self.writer.append(&self.journal.names, records);
        self.journal.note(&mut self.writer);
        appended
    }

    /// Appends what was named.
    pub(crate) fn append_names(&mut self) -> io::Result<()> {
        let appended = self.writer.append(&self.journal.names, &[]);
        self.journal.note(&mut self.writer);
        appended
    }
}

/// Proof that every metric and policy named so far is on the disk. Rows are written only behind this: were they there
/// first, a machine that fails would forget the name, and later give its id, and its rows, to another metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamesOnDisk(());

impl Journal {
    /// Opens the folder for appending, in a new segment after the existing ones, which stay until they are trimmed and
    /// which the caller has synced. A segment that cannot be begun, as on a full disk, waits for the next append.
    pub(crate) fn open(host: Host, dir: &Path, options: JournalOptions) -> io::Result<Journal> {
        let JournalOptions { identity, memory_limit, mark, newest: (newest_file, newest), read, size, damage } =
            options;
        let folder = Folder::new(host.disk.clone(), dir);
        folder.make()?;
        let old = folder.segments()?;
        let lowest = old.first().map_or(u64::MAX, |first| first.number);
        let there = old.last().map_or(0, |last| last.number);
        let known = mark.map_or(0, |mark| mark.newest).max(newest.map_or(0, |newest| newest.number));
        // One that is missing may come back. Numbers far ahead are of no segment of this journal.
        let noted = damage.noted().unwrap_or_default();
        let most = there.max(known).saturating_add(MOST_AHEAD);
        let missing = noted.iter().map(|noted| *noted.end()).filter(|&last| last <= most).max().unwrap_or(0);
        let segment = there.max(known).max(missing) + 1;
        let opening = identity.identity.chain.last().map_or(0, |opening| opening.id);
        let trim = Trim::new((segment, opening), read, mark, lowest);
        let (mut empty, mut old): (Vec<Segment>, Vec<Segment>) =
            old.into_iter().partition(|one| folder.is_without_records(one) && !damage.has_only_copy_in(one));
        // A segment whose records a power failure took is one that a later segment names.
        let named: Vec<u64> = old.iter().filter_map(|segment| folder.previous_of(segment)).collect();
        old.extend(empty.extract_if(.., |segment| named.contains(&segment.number)));
        let is_ours = |newest: &Newest| identity.identity.chain.iter().any(|opening| opening.id == newest.opening);
        // The header of the next segment goes on with what headers and the file next to the folder say: those of segments without a record are
        // removed now, and the file is written with the first one.
        let headers: Vec<(u64, SegmentHeader)> =
            old.iter().chain(&empty).filter_map(|one| Some((one.number, folder.header_of(one)?))).collect();
        let lengths = Lengths::new(headers.iter().map(|(number, header)| (*number, header)), newest.filter(is_ours));
        // So is one that the file next to the folder says had records.
        old.extend(empty.extract_if(.., |segment| 0 < lengths.of(segment.number).0));
        // First, so that a segment that the store knows is never missing without a later one that explains it.
        let stored = mark.map_or(0, |mark| mark.stored_below.saturating_sub(1));
        let last = old.iter().filter(|old| stored <= old.number).max_by_key(|old| old.number);
        // Those behind the last that had a record were begun, and removed without one.
        let number = newest.filter(is_ours).map_or(stored, |newest| newest.number.min(stored));
        let before = |old: &Segment| {
            let (bytes, whole) = lengths.of(old.number);
            let (bytes, whole) = (old.bytes.max(bytes), folder.whole_bytes(old).max(whole));
            Before { number: old.number, bytes, whole, length: bytes }
        };
        let previous = last.map_or(Before { number, bytes: 0, whole: 0, length: 0 }, before);
        let (writer, begun) = Writer::new((folder.clone(), newest_file), identity, segment, previous);
        if begun.is_ok() {
            folder.remove_empty(&empty)?;
        }
        size.closed.store(old.iter().map(|segment| segment.bytes).sum(), Relaxed);
        size.open.store(writer.length(), Relaxed);
        let few = (memory_limit / 4).max(LEAST_BYTES);
        let journal = Journal {
            folder,
            damage,
            positions: Positions::new(host.clock.clone(), writer.segment(), writer.length()),
            host,
            writer: Mutex::new(writer),
            names: Mutex::default(),
            turn: Mutex::default(),
            async_turn: tokio::sync::Mutex::default(),
            segment_bytes: SEGMENT_BYTES.min(few),
            unsynced_bytes: UNSYNCED_BYTES.min(few),
            size,
            counters: JournalCounters::default(),
            trim,
            is_failing: AtomicBool::new(false),
            is_note_failing: AtomicBool::new(false),
        };
        if let Err(error) = begun {
            journal.failed(&error, "cannot begin a segment of the journal; stored points are served, and no point is accepted until a write \
                succeeds; if the disk is full, make room: see trash/ and damaged/ in the data folder");
        }
        Ok(journal)
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

    /// Appends records of points, and before them what was named, in one write. On an error nothing of it is in the
    /// journal, and the same call may be made again. Counts and logs the error. Blocks.
    pub(crate) fn append(&self, records: &[Accepted<'_>]) -> io::Result<Group<'_>> {
        if self.positions.unsynced() >= self.unsynced_bytes {
            self.sync()?;
        }
        let mut writer = self.writer.lock();
        let appended = match writer.length() >= self.segment_bytes {
            true => writer.begin_segment(&self.names),
            false => Ok(()),
        };
        let appended = appended.and_then(|()| writer.append(&self.names, records));
        self.note(&mut writer);
        match appended {
            Ok(()) => {
                self.works();
                Ok(Group { _writer: writer })
            }
            Err(error) => {
                drop(writer);
                self.failed(
                    &error,
                    "cannot write the journal; accepting no points until a write succeeds; is the disk full?",
                );
                Err(error)
            }
        }
    }

    /// Takes over what the writer did. The caller has its lock.
    fn note(&self, writer: &mut Writer) {
        self.size.closed.fetch_add(writer.take_closed_bytes(), Relaxed);
        self.size.open.store(writer.length(), Relaxed);
        self.positions.appended(writer.segment(), writer.length(), writer.appended());
    }

    fn works(&self) {
        if self.is_failing.load(Relaxed) && self.is_failing.swap(false, Relaxed) {
            tracing::info!("the journal can be written again");
        }
    }

    fn failed(&self, error: &io::Error, message: &str) {
        self.counters.errors.fetch_add(1, Relaxed);
        // Said once, not at every attempt: on a full disk log lines are a cost of their own.
        if !self.is_failing.swap(true, Relaxed) {
            tracing::error!(%error, dir = %self.folder.dir().display(), "{message}");
        }
    }

    /// Appends what was named, without waiting for points.
    pub(crate) async fn append_names(self: &Arc<Journal>) -> io::Result<()> {
        self.elsewhere(|journal| journal.exclusive().append_names()).await?
    }

    /// Waits for the current append until its points are in memory, and makes others wait. Blocks.
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        Exclusive { journal: self, writer: self.writer.lock() }
    }

    /// Closes the current segment and begins another. Returns the new one's number: once everything in memory at this
    /// moment is stored, the segments before it may be trimmed.
    pub(crate) async fn begin_segment(self: &Arc<Journal>) -> io::Result<u64> {
        let begin = |journal: &Journal| {
            // The next header says how much of this segment is on the disk. A failure is counted there.
            let _ = journal.sync();
            journal.exclusive().begin_segment()
        };
        let begun = self.elsewhere(begin).await?;
        begun.map_err(|error| self.naming("beginning a segment of", &error))
    }

    /// The number of the current segment and its length.
    pub(crate) fn current(&self) -> (u64, u64) {
        self.positions.current()
    }

    /// Where the segments are.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Links what a backup has of the journal into `into`, a folder of the same file system, and into `damaged` next to it.
    pub(crate) fn link_before(&self, segment: u64, into: &Path) -> io::Result<StagedJournal> {
        let mut staged = self.folder.link_before(segment, into)?;
        staged.add(self.damage.link_unread(&self.folder, &into.with_file_name("damaged"))?);
        Ok(staged)
    }

    /// What the store may record before the segments below `stored_below` are trimmed, at a time when `newest` exists.
    pub(crate) fn mark(&self, stored_below: u64, newest: u64) -> JournalMark {
        self.trim.mark(stored_below, newest)
    }

    /// Deletes the segments before `segment`.
    pub(crate) async fn trim(self: &Arc<Journal>, segment: u64) -> io::Result<()> {
        let trimmed = self.elsewhere(move |journal| journal.trim_now(segment)).await?;
        trimmed.map_err(|error| self.naming("removing stored segments of", &error))
    }

    /// With the attempted step and the folder.
    fn naming(&self, doing: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{doing} the journal in {}: {error}", self.folder.dir().display()))
    }

    fn trim_now(&self, segment: u64) -> io::Result<()> {
        let closed = &self.size.closed;
        let removed = |bytes: u64| _ = closed.fetch_sub(bytes.min(closed.load(Relaxed)), Relaxed);
        self.trim.below(&self.folder, &self.damage, segment, removed)
    }

    /// Returns once the journal has put nothing on its disk for this long although there is something to be put there.
    pub(crate) async fn given_up(&self, patience: Duration) {
        self.positions.stuck_for(patience).await;
    }

    /// Runs something that waits for the disk on a thread that may.
    pub(crate) async fn elsewhere<T: Send + 'static>(
        self: &Arc<Journal>,
        work: impl FnOnce(&Journal) -> T + Send + 'static,
    ) -> io::Result<T> {
        let journal = self.clone();
        let done = host::spawn_blocking(move || {
            let _work = journal.positions.work();
            work(&journal)
        });
        done.await.map_err(io::Error::other)
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// Seconds since everything that was appended was last known to be on the disk.
    pub(crate) fn sync_age(&self) -> f64 {
        self.positions.age().as_secs_f64()
    }

    /// How long fsyncs took.
    pub(crate) fn sync_seconds(&self) -> Histogram {
        self.counters.syncs.snapshot()
    }

    /// Whether nothing is accepted because the journal cannot be written or put on the disk.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    pub(crate) fn counters(&self) -> &JournalCounters {
        &self.counters
    }
}
