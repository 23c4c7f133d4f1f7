//! The events table: a log of events in `store/events/`, and their times, ids and places in memory.
//!
//! ```text
//! kind 1, event     id u64 │ when i64 │ what u32 │ tags u32 │ what │ tags │ data
//! kind 2, deleted   id u64
//! kind 3, seen      last id u64
//! kind 4, cut       file u64 │ bytes u64: the end of the log was lost here, which was at this place
//! ```
//!
//! Numbers are little-endian. Texts are read from the disk when they are asked for. What is deleted leaves the disk when
//! the log is written again, once more than half of it is obsolete.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    iter,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use metric::Timestamp;
use parking_lot::{Mutex, RwLock};
use store::{Event, NewEvent, StoreError};

use crate::{
    options::EventLimits,
    record_log::{
        CopiedLog, LONGEST_PAYLOAD, LogEnd, LogFiles, LogFolder, LostEnd, Place, RecordLog, encode_end, rotted,
    },
};

const EVENT: u8 = 1;
const DELETED: u8 = 2;
const SEEN: u8 = 3;
const CUT: u8 = 4;

/// A smaller log is not rewritten for what is obsolete in it.
const SMALL_BYTES: u64 = 1 << 20;

/// Events that are deleted with one write. New events wait meanwhile.
const DELETED_AT_ONCE: usize = 10_000;

/// The events of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventUsage {
    /// How many there are.
    pub events: u64,
    /// Bytes of their texts, and 24 of each.
    pub bytes: u64,
    /// Events that were refused since the start, because there were as many as [`EventLimits`] allow.
    pub refused: u64,
    /// Events that were refused since the start, because the disk did not take them.
    pub failed: u64,
}

/// The events table.
#[derive(Debug)]
pub(crate) struct EventsLog {
    /// Taken first.
    log: Mutex<RecordLog>,
    queue: Mutex<Queue>,
    index: RwLock<Index>,
    files: LogFiles,
    folder: LogFolder,
    limits: EventLimits,
    refusals: AtomicU64,
    failures: AtomicU64,
    /// Why the disk took no event, the last time that it was asked.
    problem: Mutex<Option<String>>,
    /// Whether a start found that the end of the log was lost.
    cut: Mutex<Cut>,
}

/// What is noted of ends of the log that were lost.
#[derive(Debug, Default)]
struct Cut {
    /// Whether there is a note whose end is not back.
    is_noted: bool,
    /// The ends that would be read if they were put back. Notes of earlier programs do not say which.
    lost_ends: Vec<LogEnd>,
    /// The end whose note comes before all other records, because writing it failed.
    owed: Option<LogEnd>,
}

/// Events on their way to the disk: of several at a time one writes for all.
#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    waiting: Vec<(u64, Timestamp, Vec<u8>)>,
    /// Ids whose write failed, until their callers know.
    failed: HashSet<u64>,
    /// The events that there are, those on their way included, and the bytes of their payloads.
    events: u64,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, id: u64, when: Timestamp, payload: Vec<u8>) {
        self.events += 1;
        self.bytes += payload.len() as u64;
        self.waiting.push((id, when, payload));
    }

    fn forget(&mut self, events: u64, bytes: u64) {
        self.events = self.events.saturating_sub(events);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[derive(Debug, Default)]
struct Index {
    places: BTreeMap<(Timestamp, u64), Place>,
    times: HashMap<u64, Timestamp>,
    stale: u64,
}

impl Index {
    fn insert(&mut self, id: u64, when: Timestamp, place: Place) {
        if let Some(old) = self.times.insert(id, when) {
            self.places.remove(&(old, id));
        }
        self.places.insert((when, id), place);
    }

    /// Returns the bytes of its payload; `None` if there is no such event.
    fn delete(&mut self, id: u64) -> Option<u64> {
        let place = self.times.remove(&id).and_then(|when| self.places.remove(&(when, id)))?;
        self.stale += place.bytes();
        Some(place.payload_bytes())
    }
}

impl EventsLog {
    /// Reads the log.
    pub(crate) fn open(folder: LogFolder, limits: EventLimits) -> Result<EventsLog, StoreError> {
        let (mut index, mut last_id, mut notes) = (Index::default(), 0, Vec::new());
        let log = RecordLog::open(folder.clone(), |place, kind, payload| match kind {
            EVENT => {
                let Some((id, event)) = decode(payload) else { return };
                index.insert(id, event.when, place);
                last_id = last_id.max(id);
            }
            DELETED | SEEN => {
                let Some(id) = payload.first_chunk().map(|id| u64::from_le_bytes(*id)) else { return };
                if kind == DELETED {
                    index.delete(id);
                    index.stale += place.bytes();
                }
                last_id = last_id.max(id);
            }
            CUT => notes.push(LostEnd::decode(place.start().0, payload).map(|(lost, _)| lost)),
            _ => {}
        })?;
        // Those that are hidden now may be read later, and have ids.
        last_id += log.most_hidden();
        let (events, bytes) = (index.places.len() as u64, index.places.values().map(Place::payload_bytes).sum());
        let queue = Queue { last_id, events, bytes, ..Queue::default() };
        notes.retain(|note| note.is_none_or(|lost| !log.is_back(&lost)));
        let lost_ends = notes.iter().flatten().filter(|lost| log.would_be_read(lost)).map(|lost| lost.end).collect();
        let cut = Mutex::new(Cut { is_noted: !notes.is_empty(), lost_ends, owed: None });
        let files = log.files();
        let (refusals, failures, problem) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
        let (log, queue, index) = (Mutex::new(log), Mutex::new(queue), RwLock::new(index));
        Ok(EventsLog { log, queue, index, files, folder, limits, refusals, failures, problem, cut })
    }

    /// The files, for readers.
    pub(crate) fn files(&self) -> LogFiles {
        self.files.clone()
    }

    /// Whether the log has what was on the disk once, or replaces it. `None` where that is not known now.
    pub(crate) fn reaches(&self, end: LogEnd) -> Option<bool> {
        self.log.lock().reaches(end)
    }

    /// Notes durably that the end of the log is lost, and where it was. After an error the next write notes it first.
    pub(crate) fn note_cut(&self, end: LogEnd) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        {
            let mut cut = self.cut.lock();
            if cut.lost_ends.contains(&end) {
                return Ok(());
            }
            cut.is_noted = true;
            cut.lost_ends.push(end);
            cut.owed = Some(end);
        }
        self.write(&mut log, iter::empty(), |_| {})
    }

    /// Writes records, durably, and calls `each` with their places.
    fn write<'r>(
        &self,
        log: &mut RecordLog,
        records: impl Iterator<Item = (u8, &'r [u8])> + Clone,
        mut each: impl FnMut(Place),
    ) -> Result<(), StoreError> {
        let owed = self.cut.lock().owed;
        if let Some(end) = owed {
            log.write(iter::once((CUT, &encode_end(end)[..])), |_, _, _| {})?;
            self.cut.lock().owed = None;
        }
        log.write(records, |place, _, _| each(place))
    }

    /// Whether the end of the log was lost.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.lock().is_noted
    }

    /// The next rewrite leaves out that the end was lost.
    pub(crate) fn forget_cut(&self) {
        *self.cut.lock() = Cut::default();
    }

    /// Keeps an event, durably, and returns its id.
    pub(crate) fn put(&self, event: &NewEvent) -> Result<u64, StoreError> {
        let id = {
            let mut queue = self.queue.lock();
            let id = queue.last_id + 1;
            let payload = encode(id, event)?;
            self.check_limits(queue.events + 1, queue.bytes + payload.len() as u64)?;
            queue.last_id = id;
            queue.push(id, event.when, payload);
            id
        };
        self.write_waiting(id)?;
        Ok(id)
    }

    /// Keeps an event under the id that it has already. For a conversion of an older folder, before it is synced.
    pub(crate) fn restore(&self, events: &[Event]) -> Result<(), StoreError> {
        let Some(last) = events.last() else { return Ok(()) };
        for event in events {
            let payload = encode(event.id, &event.content)?;
            let mut queue = self.queue.lock();
            queue.last_id = queue.last_id.max(event.id);
            queue.push(event.id, event.content.when, payload);
        }
        self.write_waiting(last.id)
    }

    /// Gives no id up to and with `last` to a new event, durably.
    pub(crate) fn never_give_up_to(&self, last: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        let mut queue = self.queue.lock();
        if queue.last_id < last {
            queue.last_id = last;
            self.write(&mut log, iter::once((SEEN, &last.to_le_bytes()[..])), |_| {})?;
        }
        Ok(())
    }

    fn write_waiting(&self, id: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        let batch = {
            let mut queue = self.queue.lock();
            if queue.failed.remove(&id) {
                return Err(StoreError::Unavailable("the event could not be written; see the log".to_owned()));
            }
            std::mem::take(&mut queue.waiting)
        };
        if batch.is_empty() {
            // Another call wrote it.
            return Ok(());
        }
        let mut places = Vec::with_capacity(batch.len());
        let records = batch.iter().map(|(_, _, payload)| (EVENT, &payload[..]));
        match self.write(&mut log, records, |place| places.push(place)) {
            Ok(()) => {
                *self.problem.lock() = None;
                let mut index = self.index.write();
                for ((id, when, _), place) in batch.iter().zip(places) {
                    index.insert(*id, *when, place);
                }
                Ok(())
            }
            Err(error) => {
                self.failures.fetch_add(batch.len() as u64, Relaxed);
                *self.problem.lock() = Some(error.to_string());
                let others = batch.iter().map(|(id, ..)| *id).filter(|other| *other != id);
                let mut queue = self.queue.lock();
                queue.failed.extend(others);
                queue.forget(batch.len() as u64, batch.iter().map(|(_, _, payload)| payload.len() as u64).sum());
                Err(error)
            }
        }
    }

    fn check_limits(&self, events: u64, bytes: u64) -> Result<(), StoreError> {
        let EventLimits { events: most, bytes: most_bytes } = self.limits;
        let full = if most < events {
            format!("there are {most} events, as many as limits.events allows")
        } else if most_bytes < bytes {
            format!("the events have as many bytes as limits.events_bytes allows, {most_bytes}")
        } else {
            return Ok(());
        };
        self.refusals.fetch_add(1, Relaxed);
        Err(StoreError::Full(full))
    }

    /// What there is, and what was refused since the start because there were too many.
    pub(crate) fn usage(&self) -> EventUsage {
        let queue = self.queue.lock();
        let (refused, failed) = (self.refusals.load(Relaxed), self.failures.load(Relaxed));
        EventUsage { events: queue.events, bytes: queue.bytes, refused, failed }
    }

    /// Why the disk took no event, the last time that it was asked; `None` where it took one, or was not asked yet.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Deletes the events before a time, durably. Their ids are not given again. Returns how many.
    pub(crate) fn expire(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut expired = 0;
        loop {
            let mut log = self.log.lock();
            let ids: Vec<u64> = {
                let index = self.index.read();
                index.places.range(..(before, 0)).map(|((_, id), _)| *id).take(DELETED_AT_ONCE).collect()
            };
            if ids.is_empty() {
                break;
            }
            self.delete(&mut log, &ids)?;
            expired += ids.len() as u64;
        }
        self.shrink(&mut self.log.lock());
        Ok(expired)
    }

    /// Deletes events by their ids, durably. Returns how many there were.
    pub(crate) fn remove(&self, ids: &[u64]) -> Result<u64, StoreError> {
        let mut removed = 0;
        for ids in ids.chunks(DELETED_AT_ONCE) {
            let mut log = self.log.lock();
            let known: Vec<u64> = {
                let index = self.index.read();
                let mut known: Vec<u64> = ids.iter().copied().filter(|id| index.times.contains_key(id)).collect();
                known.sort_unstable();
                known.dedup();
                known
            };
            if !known.is_empty() {
                self.delete(&mut log, &known)?;
                removed += known.len() as u64;
            }
        }
        self.shrink(&mut self.log.lock());
        Ok(removed)
    }

    fn delete(&self, log: &mut RecordLog, ids: &[u64]) -> Result<(), StoreError> {
        let payloads: Vec<[u8; 8]> = ids.iter().map(|id| id.to_le_bytes()).collect();
        let mut written = 0;
        self.write(log, payloads.iter().map(|id| (DELETED, &id[..])), |place| written += place.bytes())?;
        let mut index = self.index.write();
        index.stale += written;
        let bytes = ids.iter().filter_map(|id| index.delete(*id)).sum();
        drop(index);
        self.queue.lock().forget(ids.len() as u64, bytes);
        Ok(())
    }

    /// Writes the log again if most of it is obsolete.
    fn shrink(&self, log: &mut RecordLog) {
        let (bytes, stale) = (self.files.bytes(), self.index.read().stale);
        // What cannot be read or found now, the next start may read.
        let is_whole = !log.has_unread() && !log.is_incomplete() && self.cut.lock().lost_ends.is_empty();
        if SMALL_BYTES < bytes
            && bytes < 2 * stale
            && is_whole
            && let Err(error) = self.rewrite(log)
        {
            tracing::warn!(%error, "cannot rewrite the log of events; it stays larger than it needs to be");
        }
    }

    /// Writes the log again without what is deleted or damaged.
    pub(crate) fn write_again(&self) -> Result<(), StoreError> {
        self.rewrite(&mut self.log.lock())
    }

    /// As [`EventsLog::write_again`], with the log at hand.
    fn rewrite(&self, log: &mut RecordLog) -> Result<(), StoreError> {
        let last_id = self.queue.lock().last_id;
        let old: Vec<_> = self.index.read().places.iter().map(|(key, place)| (*key, *place)).collect();
        let mut places = BTreeMap::new();
        log.rewrite(|draft| {
            draft.put(SEEN, &last_id.to_le_bytes())?;
            if self.is_cut() {
                draft.put(CUT, &[])?;
            }
            for (key, place) in old {
                let (kind, payload) = self.files.read(place)?.ok_or_else(rotted)?;
                places.insert(key, draft.put(kind, &payload)?);
            }
            Ok(())
        })?;
        let mut index = self.index.write();
        index.times = places.keys().map(|(when, id)| (*id, *when)).collect();
        (index.places, index.stale) = (places, 0);
        Ok(())
    }

    pub(crate) fn after(
        &self,
        after: (Timestamp, u64),
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<Event>, StoreError> {
        use std::ops::Bound::{Excluded, Included};
        let last = (until, u64::MAX);
        if last <= after {
            return Ok(Vec::new());
        }
        let mut events = Vec::new();
        let mut from = after;
        while events.len() < most {
            let places: Vec<((Timestamp, u64), Place)> = {
                let index = self.index.read();
                let span = index.places.range((Excluded(from), Included(last)));
                span.map(|(key, place)| (*key, *place)).take(most - events.len()).collect()
            };
            let Some((end, _)) = places.last() else { break };
            from = *end;
            // One that is damaged or deleted is left out, and a later one takes its place: a short answer means the end.
            for (key, place) in places {
                events.extend(self.read(key, place)?);
            }
        }
        Ok(events)
    }

    pub(crate) fn get(&self, id: u64) -> Result<Option<Event>, StoreError> {
        let Some((key, place)) = self.place_of(id) else { return Ok(None) };
        let event = self.read(key, place)?;
        if event.is_none() && self.place_of(id).is_some() {
            let how = "its bytes are not a record".to_owned();
            return Err(StoreError::Damaged { what: format!("event {id}"), how });
        }
        Ok(event)
    }

    fn place_of(&self, id: u64) -> Option<((Timestamp, u64), Place)> {
        let index = self.index.read();
        let key = (*index.times.get(&id)?, id);
        index.places.get(&key).map(|place| (key, *place))
    }

    /// `None` if the event is deleted meanwhile, or damaged; that is reported.
    fn read(&self, key: (Timestamp, u64), place: Place) -> Result<Option<Event>, StoreError> {
        if let Some(event) = self.read_at(place)? {
            return Ok(Some(event));
        }
        // The log may have been written again since the place was looked up.
        let _log = self.log.lock();
        let Some(place) = self.index.read().places.get(&key).copied() else { return Ok(None) };
        let event = self.read_at(place)?;
        if event.is_none() {
            let how = format!("the event at {place} is not a record");
            self.folder.reporter.missing(self.folder.what, &self.folder.dir, &how);
        }
        Ok(event)
    }

    fn read_at(&self, place: Place) -> Result<Option<Event>, StoreError> {
        let read = self.files.read(place);
        let read = read.map_err(|source| StoreError::Io { what: "reading events".to_owned(), source })?;
        Ok(read.and_then(|(_, payload)| decode(&payload).map(|(id, content)| Event { id, content })))
    }

    /// Bytes on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// The files of the log.
    pub(crate) fn log_files(&self) -> &LogFiles {
        &self.files
    }

    /// Copies what is on the disk into a folder, durably; writes wait meanwhile.
    pub(crate) fn copy_into(&self, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        self.log.lock().copy_into(into)
    }
}

/// Whether a record of this file says that the end of the log was lost, and where that was; earlier programs did not note the place.
pub(crate) fn cut_of(file: u64, kind: u8, payload: &[u8]) -> Option<Option<LostEnd>> {
    (kind == CUT).then(|| LostEnd::decode(file, payload).map(|(lost, _)| lost))
}

fn encode(id: u64, event: &NewEvent) -> Result<Vec<u8>, StoreError> {
    let texts = [&event.what, &event.tags, &event.data];
    let len = 24 + texts.iter().map(|text| text.len()).sum::<usize>();
    if LONGEST_PAYLOAD < len {
        return Err(StoreError::Rejected(format!(
            "an event of {len} bytes is too long; it has at most {LONGEST_PAYLOAD}"
        )));
    }
    let mut payload = Vec::with_capacity(len);
    payload.extend_from_slice(&id.to_le_bytes());
    payload.extend_from_slice(&event.when.to_le_bytes());
    payload.extend_from_slice(&(event.what.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(event.tags.len() as u32).to_le_bytes());
    texts.iter().for_each(|text| payload.extend_from_slice(text.as_bytes()));
    Ok(payload)
}

fn decode(payload: &[u8]) -> Option<(u64, NewEvent)> {
    let (id, rest) = payload.split_first_chunk::<8>()?;
    let (when, rest) = rest.split_first_chunk::<8>()?;
    let (what_len, rest) = rest.split_first_chunk::<4>()?;
    let (tags_len, texts) = rest.split_first_chunk::<4>()?;
    let (what, rest) = texts.split_at_checked(u32::from_le_bytes(*what_len) as usize)?;
    let (tags, data) = rest.split_at_checked(u32::from_le_bytes(*tags_len) as usize)?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let when = Timestamp::from_le_bytes(*when);
    Some((u64::from_le_bytes(*id), NewEvent { when, what: text(what)?, tags: text(tags)?, data: text(data)? }))
}

#[cfg(test)]
mod tests;
