//! The end of the journal: the segment that records are appended to.
//!
//! What an fsync does not cover yet is kept in memory. When an fsync fails, the segment gets no further record; a later
//! segment repeats what may be lost, and goes on.

use std::{cmp::Ordering, io, sync::Arc};

use host::DiskFile;
use metric::MetricId;
use parking_lot::Mutex;
use store::Identity;

use super::{
    header::{Repeats, SegmentHeader},
    journalled::Accepted,
    names::UnwrittenNames,
    newest::{Newest, NewestFile},
    record::{points_record_bytes, push_points},
    segment::{Folder, NewSegment},
    unsynced::Unsynced,
};

/// Reads the id that the next new metric gets.
pub(crate) type NextId = Box<dyn Fn() -> MetricId + Send + Sync>;

/// Puts the opening of the store on the disk, if it is not there.
pub(crate) type PutOpening = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// What a segment's header says about its writer.
pub(crate) struct WriterIdentity {
    /// The opening of the store.
    pub(crate) identity: Identity,
    /// Every id in use is below the answer.
    pub(crate) next_id: NextId,
    /// Called before each segment, whose header names the opening.
    pub(crate) put_opening: PutOpening,
}

/// The current segment.
pub(super) struct Writer {
    folder: Folder,
    newest: NewestFile,
    identity: WriterIdentity,
    current: Current,
    /// Closed segments that were not synced before they were closed.
    closed: Vec<Arc<dyn DiskFile>>,
    unsynced: Unsynced,
    /// Where the first byte of `unsynced` is: segment and offset.
    unsynced_from: (u64, u64),
    /// Bytes of records appended since the journal was opened, and of those that are in closed segments.
    appended: u64,
    closed_bytes: u64,
    /// Records of metrics that the last append took and could not write.
    metrics: Vec<u8>,
    /// Why the current segment gets no further record, if it does not.
    broken: Option<Broken>,
}

/// Where records go.
struct Current {
    /// `None` until the first segment is begun.
    file: Option<Arc<dyn DiskFile>>,
    number: u64,
    previous: Before,
    /// Bytes of the header.
    start: u64,
    length: u64,
    /// Policies that it names, of those that exist.
    named: usize,
    /// Whether the file of the newest segment says its number, so that it may have a record.
    is_noted: bool,
}

/// The segment before another that has records, or the last one that was stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    pub(super) number: u64,
    /// Its length when it was closed, as far as that is on the disk; 0 where that is not known.
    pub(super) bytes: u64,
    /// The end of its last whole record; 0 where that is not known.
    pub(super) whole: u64,
    /// Its length when it was closed: all of that is on the disk once something of the one behind it is.
    pub(super) length: u64,
}

impl Current {
    fn of(new: NewSegment, previous: Before) -> Current {
        let NewSegment { number, file, length } = new;
        Current { file: Some(file), number, previous, start: length, length, named: 0, is_noted: false }
    }

    /// In the place of a first segment that cannot be begun now.
    fn none(number: u64, previous: Before) -> Current {
        Current { file: None, number, previous, start: 0, length: 0, named: 0, is_noted: false }
    }

    /// The last segment that has records, up to this one.
    fn last_with_records(&self) -> Before {
        let this = Before { number: self.number, bytes: self.length, whole: self.length, length: self.length };
        if self.start < self.length { this } else { self.previous }
    }
}

/// What happened to a segment that gets no further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// It could not be begun.
    NotBegun,
    /// An append failed, and its bytes could not be cut off.
    Torn,
    /// An fsync failed.
    Unsynced,
}

/// What an fsync has to cover, and what it covers then.
pub(super) struct ToSync {
    pub(super) files: Vec<Arc<dyn DiskFile>>,
    appended: u64,
    end: (u64, u64),
}

impl Writer {
    /// Begins a segment behind the `previous` one that has records. Where that fails, as on a full disk, it says why, and the first
    /// append begins one.
    pub(super) fn new(
        (folder, newest): (Folder, NewestFile),
        identity: WriterIdentity,
        number: u64,
        previous: Before,
    ) -> (Writer, io::Result<()>) {
        let (current, begun) = match begin(&folder, &identity, number, previous, None) {
            Ok(new) => (Current::of(new, previous), Ok(())),
            Err(error) => (Current::none(number, previous), Err(error)),
        };
        let writer = Writer {
            folder,
            newest,
            identity,
            unsynced_from: (current.number, current.length),
            current,
            closed: Vec::new(),
            unsynced: Unsynced::default(),
            appended: 0,
            closed_bytes: 0,
            metrics: Vec::new(),
            broken: begun.is_err().then_some(Broken::NotBegun),
        };
        (writer, begun)
    }

    /// The number of the current segment.
    pub(super) fn segment(&self) -> u64 {
        self.current.number
    }

    /// Bytes of the current segment.
    pub(super) fn length(&self) -> u64 {
        self.current.length
    }

    /// Bytes of records appended since the journal was opened.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Bytes that no fsync covers.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.unsynced.bytes()
    }

    /// Bytes of the segments that were closed since the last call.
    pub(super) fn take_closed_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.closed_bytes)
    }

    /// The file that says which segment is the newest, and what it may say of the current one: up to where its records are on
    /// the disk.
    pub(super) fn newest_synced(&self) -> Option<(NewestFile, Newest)> {
        let (segment, synced) = self.unsynced_from;
        let Current { number, start, is_noted, .. } = self.current;
        let has_records = is_noted && segment == number && start < synced;
        has_records.then(|| (self.newest.clone(), Newest { synced, ..newest(&self.identity, number) }))
    }

    /// Whether the current segment has no record, and can have one.
    pub(super) fn is_empty(&self) -> bool {
        self.current.length == self.current.start && self.broken.is_none()
    }

    /// Appends the names, then the records, in one write. On an error none of it is in the segment, and the same may be
    /// appended again.
    pub(super) fn append(&mut self, names: &Mutex<UnwrittenNames>, records: &[Accepted<'_>]) -> io::Result<()> {
        match self.broken {
            Some(Broken::Torn | Broken::NotBegun) => self.begin_next()?,
            Some(Broken::Unsynced) => self.repeat_unsynced(names)?,
            None => {}
        }
        let mut policies = Vec::new();
        let named = self.take_names(names, &mut policies);
        let points: usize = records.iter().map(|record| points_record_bytes(record.points.len())).sum();
        if 0 < policies.len() + self.metrics.len() + points {
            self.note_newest()?;
        }
        let buffer = self.unsynced.buffer(policies.len() + self.metrics.len() + points);
        let begin = buffer.len();
        buffer.extend_from_slice(&policies);
        buffer.extend_from_slice(&self.metrics);
        for record in records {
            push_points(buffer, record.at, record.points);
        }
        let bytes = (buffer.len() - begin) as u64;
        let file = self.current.file.as_ref().expect("a segment that is not broken was begun");
        if bytes > 0
            && let Err(error) = file.write_shared(&buffer[begin..])
        {
            buffer.truncate(begin);
            // The next record must begin where the last whole one ended.
            if file.set_len(self.current.length).is_err() {
                self.broken = Some(Broken::Torn);
            }
            return Err(error);
        }
        self.unsynced.added(bytes);
        self.current.length += bytes;
        self.current.named = named;
        self.appended += bytes;
        self.metrics.clear();
        Ok(())
    }

    /// Takes over the metrics that are not written, and writes out the policies that this segment does not name. Returns
    /// how many policies there are. The lock is held for no longer than that.
    fn take_names(&mut self, names: &Mutex<UnwrittenNames>, policies: &mut Vec<u8>) -> usize {
        let mut names = names.lock();
        let metrics = names.take_metrics();
        if self.metrics.is_empty() {
            self.metrics = metrics;
        } else {
            self.metrics.extend_from_slice(&metrics);
        }
        names.policies(self.current.named, policies)
    }

    /// Closes the current segment and begins another.
    pub(super) fn begin_segment(&mut self, names: &Mutex<UnwrittenNames>) -> io::Result<()> {
        if self.broken == Some(Broken::Unsynced) {
            self.repeat_unsynced(names)?;
        }
        self.begin_next()
    }

    /// As [`Writer::begin_segment`], in the place of a segment without a record.
    pub(super) fn begin_again(&mut self, names: &Mutex<UnwrittenNames>) -> io::Result<()> {
        let (number, length) = (self.current.number, self.current.length);
        let has_record = self.current.start < length;
        self.begin_segment(names)?;
        // Where it stays, it is a file more.
        if !has_record && self.folder.remove_number(number).is_ok() {
            self.closed_bytes -= length;
        }
        self.note_newest()
    }

    /// Before the first record of the current segment.
    fn note_newest(&mut self) -> io::Result<()> {
        if !self.current.is_noted {
            self.newest.write(newest(&self.identity, self.current.number))?;
            self.current.is_noted = true;
        }
        Ok(())
    }

    fn begin_next(&mut self) -> io::Result<()> {
        let previous = self.current.last_with_records();
        let known = self.known_of(previous);
        let new = begin(&self.folder, &self.identity, self.current.number + 1, known, None)?;
        self.go_on_in(new, previous);
        Ok(())
    }

    /// With as many bytes as an fsync has covered. After a power failure a segment may have no more.
    fn known_of(&self, previous: Before) -> Before {
        let (segment, offset) = self.unsynced_from;
        let synced = match previous.number.cmp(&segment) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => offset,
            Ordering::Greater => 0,
        };
        Before { bytes: previous.bytes.min(synced), whole: previous.whole.min(synced), ..previous }
    }

    fn go_on_in(&mut self, new: NewSegment, previous: Before) {
        let before = std::mem::replace(&mut self.current, Current::of(new, previous));
        self.closed_bytes += before.length;
        self.closed.extend(before.file);
        if self.unsynced.bytes() == 0 {
            self.unsynced_from = (self.current.number, self.current.length);
        }
        self.broken = None;
    }

    /// What an fsync has to cover now; `None` when it must be [`Writer::repeat_unsynced`].
    pub(super) fn to_sync(&self) -> Option<ToSync> {
        let files = self.closed.iter().chain(&self.current.file).cloned().collect();
        let end = (self.current.number, self.current.length);
        (self.broken != Some(Broken::Unsynced)).then_some(ToSync { files, appended: self.appended, end })
    }

    /// These are on the disk. Returns up to where: bytes of records since the journal was opened.
    pub(super) fn synced(&mut self, synced: &ToSync) -> u64 {
        // Records may have been repeated elsewhere since.
        let newer = self.appended - synced.appended;
        if let Some(covered) = self.unsynced.bytes().checked_sub(newer) {
            self.unsynced.forget(covered);
            self.unsynced_from = synced.end;
        }
        self.closed.drain(..(synced.files.len() - 1).min(self.closed.len()));
        synced.appended
    }

    /// An fsync failed: what it should have covered may be lost, although a later fsync of the same file succeeds. The
    /// segment gets no further record.
    pub(super) fn sync_failed(&mut self) {
        self.broken = Some(Broken::Unsynced);
    }

    /// Repeats in a new segment what no fsync covers, puts that on the disk, and goes on there. The segments before stay
    /// until they are trimmed.
    pub(super) fn repeat_unsynced(&mut self, names: &Mutex<UnwrittenNames>) -> io::Result<()> {
        let mut policies = Vec::new();
        let named = names.lock().policies(0, &mut policies);
        let (segment, offset) = self.unsynced_from;
        let repeats = Repeats { segment, offset, bytes: policies.len() as u64 + self.unsynced.bytes() };
        let previous = self.current.last_with_records();
        // What no fsync covers is not there, but in the new one.
        let known = self.known_of(previous);
        let known = Before { length: known.bytes, ..known };
        let new = begin(&self.folder, &self.identity, self.current.number + 1, known, Some(repeats))?;
        let pieces = std::iter::once(&policies[..]).chain(self.unsynced.pieces());
        let written = pieces.filter(|piece| !piece.is_empty()).try_for_each(|piece| new.file.write_shared(piece));
        let written = written.and_then(|()| new.file.sync_data());
        // Only now: one that is removed must not be missed.
        if let Err(error) = written.and_then(|()| self.newest.write(newest(&self.identity, new.number))) {
            // If it stays, it is left out of a replay: it is not whole, or a later one repeats the same.
            if !self.newest.may_say(new.number) {
                let _ = self.folder.remove_number(new.number);
            }
            return Err(error);
        }
        let repeated = self.unsynced.bytes();
        self.unsynced.forget(repeated);
        self.go_on_in(new, previous);
        self.current.is_noted = true;
        self.current.length += repeats.bytes;
        self.current.named = named;
        self.unsynced_from = (self.current.number, self.current.length);
        // A failed fsync of these is what was repeated.
        self.closed.clear();
        Ok(())
    }
}

/// What the file of the newest segment says of one that this opening of the store writes.
fn newest(identity: &WriterIdentity, number: u64) -> Newest {
    let opening = identity.identity.chain.last().map_or(0, |opening| opening.id);
    Newest { number, opening, synced: 0 }
}

fn begin(
    folder: &Folder,
    identity: &WriterIdentity,
    number: u64,
    previous: Before,
    repeats: Option<Repeats>,
) -> io::Result<NewSegment> {
    let WriterIdentity { identity, next_id, put_opening } = identity;
    // A start that does not know the opening would take the segment for another timeline's.
    put_opening()?;
    let (identity, next_id) = (identity.clone(), next_id());
    let header = SegmentHeader {
        identity,
        segment: number,
        next_id,
        previous: Some(previous.number),
        previous_bytes: previous.bytes,
        previous_whole: Some(previous.whole),
        previous_length: Some(previous.length),
        repeats,
    };
    folder.create(header)
}
