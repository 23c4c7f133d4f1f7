//! The events table: a log of events in `store/events/`, and their times, ids and places in memory.
//!
//! ```text
//! kind 1, event     id u64 │ when i64 │ what u32 │ tags u32 │ what │ tags │ data
//! kind 2, deleted   id u64
//! kind 3, seen      last id u64
//! kind 4, cut       nothing: the end of the log was lost here
//! ```
//!
//! Numbers are little-endian. Texts are read from the disk when they are asked for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    iter,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use metric::Timestamp;
use parking_lot::{Mutex, RwLock};
use store::{Event, NewEvent, StoreError};

use crate::record_log::{LONGEST_PAYLOAD, LogEnd, LogFiles, LogFolder, Place, RecordLog, rotted};

const EVENT: u8 = 1;
const DELETED: u8 = 2;
const SEEN: u8 = 3;
const CUT: u8 = 4;

/// A smaller log is not rewritten for what is obsolete in it.
const SMALL_BYTES: u64 = 1 << 20;

/// The events table.
#[derive(Debug)]
pub(crate) struct EventsLog {
    /// Taken first.
    log: Mutex<RecordLog>,
    queue: Mutex<Queue>,
    index: RwLock<Index>,
    files: LogFiles,
    folder: LogFolder,
    /// Whether a start found that the end of the log was lost.
    is_cut: AtomicBool,
}

/// Events on their way to the disk: of several at a time one writes for all.
#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    waiting: Vec<(u64, Timestamp, Vec<u8>)>,
    /// Ids whose write failed, until their callers know.
    failed: HashSet<u64>,
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

    fn delete(&mut self, id: u64) {
        let place = self.times.remove(&id).and_then(|when| self.places.remove(&(when, id)));
        self.stale += place.map_or(0, |place| place.bytes());
    }
}

impl EventsLog {
    /// Reads the log.
    pub(crate) fn open(folder: LogFolder) -> Result<EventsLog, StoreError> {
        let (mut index, mut last_id, mut is_cut) = (Index::default(), 0, false);
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
                }
                last_id = last_id.max(id);
            }
            CUT => is_cut = true,
            _ => {}
        })?;
        let queue = Queue { last_id, ..Queue::default() };
        let files = log.files();
        let is_cut = AtomicBool::new(is_cut);
        let (log, queue, index) = (Mutex::new(log), Mutex::new(queue), RwLock::new(index));
        Ok(EventsLog { log, queue, index, files, folder, is_cut })
    }

    /// The files, for readers.
    pub(crate) fn files(&self) -> LogFiles {
        self.files.clone()
    }

    /// Whether the log has what was on the disk once, or replaces it. `None` where that is not known now.
    pub(crate) fn reaches(&self, end: LogEnd) -> Option<bool> {
        self.log.lock().reaches(end)
    }

    /// Notes durably that the end of the log is lost.
    pub(crate) fn note_cut(&self) -> Result<(), StoreError> {
        if self.is_cut.swap(true, Relaxed) {
            return Ok(());
        }
        self.log.lock().write(iter::once((CUT, &[][..])), |_, _, _| {})
    }

    /// Whether the end of the log was lost.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Relaxed)
    }

    /// The next rewrite leaves out that the end was lost.
    pub(crate) fn forget_cut(&self) {
        self.is_cut.store(false, Relaxed);
    }

    /// Keeps an event, durably, and returns its id.
    pub(crate) fn put(&self, event: &NewEvent) -> Result<u64, StoreError> {
        let id = {
            let mut queue = self.queue.lock();
            let id = queue.last_id + 1;
            let payload = encode(id, event)?;
            queue.last_id = id;
            queue.waiting.push((id, event.when, payload));
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
            queue.waiting.push((event.id, event.content.when, payload));
        }
        self.write_waiting(last.id)
    }

    /// Gives no id up to and with `last` to a new event, durably.
    pub(crate) fn never_give_up_to(&self, last: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        let mut queue = self.queue.lock();
        if queue.last_id < last {
            queue.last_id = last;
            log.write(iter::once((SEEN, &last.to_le_bytes()[..])), |_, _, _| {})?;
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
        match log.write(records, |place, _, _| places.push(place)) {
            Ok(()) => {
                let mut index = self.index.write();
                for ((id, when, _), place) in batch.iter().zip(places) {
                    index.insert(*id, *when, place);
                }
                Ok(())
            }
            Err(error) => {
                let others = batch.iter().map(|(id, ..)| *id).filter(|other| *other != id);
                self.queue.lock().failed.extend(others);
                Err(error)
            }
        }
    }

    /// Deletes an event, durably. Its id is not given again.
    #[allow(dead_code, reason = "expiry of events is not a setting yet; the format has it so that it can become one")]
    pub(crate) fn delete(&self, id: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock();
        log.write(iter::once((DELETED, &id.to_le_bytes()[..])), |_, _, _| {})?;
        self.index.write().delete(id);
        let (bytes, stale) = (self.files.bytes(), self.index.read().stale);
        if SMALL_BYTES < bytes
            && bytes < 2 * stale
            && let Err(error) = self.rewrite(&mut log)
        {
            tracing::warn!(%error, "cannot rewrite the log of events; it stays larger than it needs to be");
        }
        Ok(())
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
            // One that is damaged is left out, and a later one takes its place: a short answer means the end.
            for (_, place) in places {
                events.extend(self.read(place)?);
            }
        }
        Ok(events)
    }

    pub(crate) fn get(&self, id: u64) -> Result<Option<Event>, StoreError> {
        let place = {
            let index = self.index.read();
            let Some(&when) = index.times.get(&id) else { return Ok(None) };
            index.places.get(&(when, id)).copied()
        };
        let Some(place) = place else { return Ok(None) };
        let damaged =
            || StoreError::Damaged { what: format!("event {id}"), how: "its bytes are not a record".to_owned() };
        self.read(place)?.map(Some).ok_or_else(damaged)
    }

    /// `None` if the event is damaged; that is reported.
    fn read(&self, place: Place) -> Result<Option<Event>, StoreError> {
        let read = self.files.read(place);
        let read = read.map_err(|source| StoreError::Io { what: "reading events".to_owned(), source })?;
        let event = read.and_then(|(_, payload)| decode(&payload).map(|(id, content)| Event { id, content }));
        if event.is_none() {
            let how = format!("the event at {place} is not a record");
            self.folder.reporter.missing(self.folder.what, &self.folder.dir, &how);
        }
        Ok(event)
    }

    /// Bytes on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Copies what is on the disk into a folder, durably; writes wait meanwhile.
    pub(crate) fn copy_into(&self, into: &Path) -> Result<Vec<PathBuf>, StoreError> {
        self.log.lock().copy_into(into)
    }
}

/// Whether a record says that the end of the log was lost.
pub(crate) fn is_cut(kind: u8) -> bool {
    kind == CUT
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
