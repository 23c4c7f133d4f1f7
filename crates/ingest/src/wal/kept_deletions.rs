//! What is deleted while segments of the journal are kept that were not read whole: `deleted` next to the segments, in their
//! format. Points that are put back later must not bring a deleted metric back.
//!
//! Each record has the ids and names of metrics that are deleted. What is deleted while points are parked in the journal is
//! remembered: if a segment of theirs is missing, the list has it from the beginning.
//!
//! A list that is damaged, or begins later than what is kept, as when there was no room for it, does not have all that was
//! deleted: a record with no id says so.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use host::{Disk, Open, retried};
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

use super::{
    reader::records,
    record::{MetricsWriter, Record},
};

/// The name of the file.
pub const LIST: &str = "deleted";

/// Deletions that are remembered before the list begins.
const MOST_REMEMBERED: usize = 1 << 16;

/// The list.
#[derive(Debug)]
pub(crate) struct KeptDeletions {
    disk: Arc<dyn Disk>,
    file: PathBuf,
    /// Whether something is kept.
    is_noting: AtomicBool,
    /// Whether there is a file.
    is_made: AtomicBool,
    /// Whether the list begins later than what is kept.
    is_late: AtomicBool,
    /// Whether deletions could not be noted: the next record says that the list does not have all.
    lacks_some: AtomicBool,
    /// What is deleted while points are parked, and when.
    remembered: Mutex<Option<Vec<(MetricId, String, Timestamp)>>>,
}

/// What was deleted.
#[derive(Debug, Default)]
pub(crate) struct Deleted {
    pub(crate) ids: HashSet<MetricId>,
    /// The last id that each name had when it was deleted.
    pub(crate) names: HashMap<String, MetricId>,
    /// Whether all deletions were noted since something is kept.
    pub(crate) is_known: bool,
    /// Whether there is a list, with bytes that are not records.
    pub(crate) is_damaged: bool,
}

impl Deleted {
    /// Whether a metric was deleted, by its name. `is_before` says whether its id was given before the last that was deleted
    /// under the name: if not, it came later.
    pub(crate) fn has_name(&self, name: &str, is_before: impl Fn(MetricId) -> bool) -> bool {
        self.names.get(name).is_some_and(|&last| is_before(last))
    }
}

/// The record that says that a list does not have all that was deleted.
fn lacks_some() -> Vec<u8> {
    let mut writer = MetricsWriter::default();
    writer.push(MetricId::NONE, 0, "", 0);
    writer.take()
}

/// A list of deletions from which a repair has cut all but whole records: it says that it does not have all that was deleted, unless a write was cut off
/// at its end alone.
pub fn repaired_list(bytes: &[u8], mut kept: Vec<u8>) -> Vec<u8> {
    let mut all = records(bytes);
    all.by_ref().for_each(drop);
    if all.damage.len() != usize::from(all.torn_tail().is_some()) {
        kept.extend_from_slice(&lacks_some());
    }
    kept
}

impl KeptDeletions {
    /// Of the journal in this folder.
    pub(crate) fn new(disk: Arc<dyn Disk>, journal: &Path) -> KeptDeletions {
        let file = journal.join(LIST);
        // A disk that says once that there is none may have one.
        let is_listed = || disk.read_dir(journal).is_ok_and(|list| list.iter().any(|entry| entry.name == LIST));
        let is_there = disk.exists(&file) || is_listed();
        let (is_noting, is_made) = (AtomicBool::new(is_there), AtomicBool::new(is_there));
        let [is_late, lacks_some] = [(); 2].map(|()| AtomicBool::new(false));
        KeptDeletions { disk, file, is_noting, is_made, is_late, lacks_some, remembered: Mutex::default() }
    }

    pub(crate) fn is_noting(&self) -> bool {
        self.is_noting.load(SeqCst)
    }

    /// Whether deletions are asked for.
    pub(crate) fn is_asking(&self) -> bool {
        self.is_noting() || self.remembered.lock().is_some()
    }

    /// Points are parked from here on: their segments may be missing when they are read.
    pub(crate) fn remember(&self) {
        self.remembered.lock().get_or_insert_default();
    }

    /// No points are parked any more.
    pub(crate) fn forget(&self) {
        *self.remembered.lock() = None;
    }

    /// Notes deletions from here on, durably.
    pub(crate) fn begin(&self) -> io::Result<()> {
        if self.is_noting.swap(true, SeqCst) && self.disk.exists(&self.file) {
            return Ok(());
        }
        self.append(&[])
    }

    /// As [`KeptDeletions::begin`], at a start that finds something kept by an earlier one: if there was no list, it is not known
    /// what was deleted since.
    pub(crate) fn go_on(&self) -> io::Result<()> {
        if self.is_noting.swap(true, SeqCst) {
            return Ok(());
        }
        self.is_late.store(true, SeqCst);
        self.append(&[])
    }

    /// What the list begins with.
    fn head(&self) -> Vec<u8> {
        let mut writer = MetricsWriter::default();
        if self.is_late.load(SeqCst) {
            writer.push(MetricId::NONE, 0, "", 0);
        }
        for (metric, name, at) in self.remembered.lock().iter().flatten() {
            writer.push(*metric, 0, name, *at);
        }
        writer.take()
    }

    /// Notes metrics that are deleted, durably, or remembers them.
    pub(crate) fn note<'a>(
        &self,
        metrics: impl Iterator<Item = (MetricId, &'a str)> + Clone,
        now: Timestamp,
    ) -> io::Result<()> {
        // Before it is asked whether the list has begun: it begins with all that is remembered.
        let remembered = self.remembered.lock().as_mut().map_or(0, |all| {
            all.extend(metrics.clone().map(|(metric, name)| (metric, name.to_owned(), now)));
            all.len()
        });
        if !self.is_noting() {
            return if MOST_REMEMBERED < remembered { self.begin() } else { Ok(()) };
        }
        let (mut writer, count) = (MetricsWriter::default(), metrics.clone().count());
        metrics.for_each(|(metric, name)| writer.push(metric, 0, name, now));
        let noted = self.append(&writer.take());
        if noted.is_err()
            && let Some(all) = self.remembered.lock().as_mut()
        {
            // They are not deleted.
            all.truncate(all.len().saturating_sub(count));
        }
        noted
    }

    /// As [`KeptDeletions::note`], of metrics that are deleted already, where a disk that takes nothing must hold up nothing.
    pub(crate) fn note_deleted<'a>(&self, metrics: impl Iterator<Item = (MetricId, &'a str)> + Clone, now: Timestamp) {
        if let Err(error) = self.note(metrics, now) {
            tracing::warn!(%error, "cannot note what was deleted while segments of the journal are away; their points will wait for an operator \
                                    where their metrics may have been deleted");
            self.lacks_some.store(true, SeqCst);
        }
    }

    /// Notes that the list lacks some, where that is not written yet. A disk that takes nothing is asked again by the next call.
    pub(crate) fn note_lacks(&self) {
        if self.is_noting()
            && self.lacks_some.load(SeqCst)
            && let Err(error) = self.append(&[])
        {
            tracing::debug!(%error, "cannot note yet that the list of deletions does not have all");
        }
    }

    /// The first call that succeeds begins the list: it may be a later one than that which began to note.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut all = if self.is_made.load(SeqCst) { Vec::new() } else { self.head() };
        if self.lacks_some.load(SeqCst) {
            all.extend_from_slice(&lacks_some());
        }
        all.extend_from_slice(bytes);
        let mut file = self.disk.open(&self.file, Open::ReadWrite)?;
        let end = file.seek(SeekFrom::End(0))?;
        if let Err(error) = file.write_all(&all).and_then(|()| file.sync_all()) {
            // A part of a record in front of others is damage.
            let _ = file.set_len(end);
            return Err(error);
        }
        self.is_made.store(true, SeqCst);
        self.lacks_some.store(false, SeqCst);
        self.file.parent().map_or(Ok(()), |folder| self.disk.sync_dir(folder))
    }

    /// Cuts off a record that was not written whole.
    pub(crate) fn cut_torn_end(&self) -> io::Result<()> {
        let bytes = match retried(|| self.disk.read(&self.file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes?,
        };
        let mut all = records(&bytes);
        all.by_ref().for_each(drop);
        let Some(torn) = all.torn_tail() else { return Ok(()) };
        let file = self.disk.open(&self.file, Open::ReadWrite)?;
        file.set_len(torn.start as u64)?;
        file.sync_all()
    }

    /// What was noted so far.
    ///
    /// # Errors
    /// Whatever the disk says, also where it has lost the file.
    pub(crate) fn read(&self) -> io::Result<Deleted> {
        let mut deleted = Deleted::default();
        let bytes = match retried(|| self.disk.read(&self.file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_made.load(SeqCst) => return Ok(deleted),
            bytes => bytes?,
        };
        let mut all = records(&bytes);
        for (_, record) in all.by_ref() {
            let Record::Metrics { metrics, .. } = record else { continue };
            for (id, _, name) in metrics {
                deleted.ids.insert(id);
                if !name.is_empty() {
                    let last = deleted.names.entry(name.to_owned()).or_insert(id);
                    *last = id.max(*last);
                }
            }
        }
        // Of a damaged list it is not known what it lacks.
        deleted.is_damaged = all.damage.len() != usize::from(all.torn_tail().is_some());
        let has_all = !deleted.ids.remove(&MetricId::NONE) && !self.lacks_some.load(SeqCst);
        deleted.is_known = has_all && !deleted.is_damaged;
        Ok(deleted)
    }

    /// Nothing is kept any more.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.is_noting.store(false, SeqCst);
        self.is_made.store(false, SeqCst);
        self.is_late.store(false, SeqCst);
        self.lacks_some.store(false, SeqCst);
        match self.disk.remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use host::SystemDisk;

    use super::*;

    fn names(deletions: &KeptDeletions) -> Vec<String> {
        let mut names: Vec<String> = deletions.read().unwrap().names.into_keys().collect();
        names.sort();
        names
    }

    #[test]
    fn a_list_from_which_a_repair_cut_a_record_does_not_have_all_that_was_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let deletions = KeptDeletions::new(Arc::new(SystemDisk), dir.path());
        let note = |id: u32, name: &str| deletions.note([(MetricId(id), name)].into_iter(), 7).unwrap();
        deletions.begin().unwrap();
        (1..5).for_each(|id| note(id, &format!("metric{id}")));
        assert!(deletions.read().unwrap().is_known);
        let file = dir.path().join(LIST);
        let whole = std::fs::read(&file).unwrap();
        let repair = |bytes: &[u8]| {
            std::fs::write(&file, repaired_list(bytes, crate::wal::without_damage(bytes).0)).unwrap();
            let deleted = deletions.read().unwrap();
            assert!(!deleted.is_damaged);
            (deleted.names.len(), deleted.is_known)
        };
        assert_eq!(repair(&whole), (4, true));
        assert_eq!(repair(&whole[..whole.len() - 3]), (3, true), "a write that was cut off");
        let mut flipped = whole.clone();
        let at = flipped.windows(7).position(|seven| seven == b"metric2").unwrap();
        flipped[at] ^= 1;
        assert_eq!(repair(&flipped), (3, false));
        assert_eq!(repair(&flipped[..whole.len() - 3]), (2, false));
    }

    #[test]
    fn deletions_that_a_full_disk_does_not_take_are_missing_in_the_list_and_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let is_full = Arc::new(AtomicBool::new(false));
        let full = is_full.clone();
        let disk = host::FailingDisk::new(Arc::new(SystemDisk), move |call, _| {
            let fails = call == host::Call::Write && full.load(SeqCst);
            fails.then(|| io::ErrorKind::StorageFull.into())
        });
        let deletions = KeptDeletions::new(Arc::new(disk), dir.path());
        deletions.begin().unwrap();
        let note = |id: u32| deletions.note_deleted([(MetricId(id), "metric")].into_iter(), 7);
        note(1);
        assert!(deletions.read().unwrap().is_known);
        is_full.store(true, SeqCst);
        note(2);
        assert_eq!((deletions.read().unwrap().ids.len(), deletions.read().unwrap().is_known), (1, false));
        let again = || {
            let again = KeptDeletions::new(Arc::new(SystemDisk), dir.path()).read().unwrap();
            (again.ids.len(), again.is_known)
        };
        // Before the segments go that have the deletions.
        deletions.note_lacks();
        assert_eq!(again(), (1, true));
        is_full.store(false, SeqCst);
        deletions.note_lacks();
        assert_eq!(again(), (1, false));
        note(3);
        assert_eq!(again(), (2, false));
    }

    #[test]
    fn what_is_deleted_while_points_are_parked_is_in_a_list_that_begins_later() {
        let dir = tempfile::tempdir().unwrap();
        let deletions = KeptDeletions::new(Arc::new(SystemDisk), dir.path());
        let note = |id: u32, name: &str| deletions.note([(MetricId(id), name)].into_iter(), 7).unwrap();
        assert!(!deletions.is_asking());
        note(1, "before");
        deletions.remember();
        assert!(deletions.is_asking() && !deletions.is_noting());
        note(2, "parked");
        assert!(!dir.path().join(LIST).exists());
        deletions.begin().unwrap();
        note(3, "noted");
        assert!(deletions.read().unwrap().is_known);
        assert_eq!(names(&deletions), ["noted", "parked"]);
        // The list may end and begin again while points are parked.
        deletions.end().unwrap();
        deletions.begin().unwrap();
        assert_eq!(names(&deletions), ["noted", "parked"]);
        deletions.end().unwrap();
        deletions.forget();
        deletions.begin().unwrap();
        assert_eq!(names(&deletions), [""; 0]);
    }

    #[test]
    fn a_name_that_is_given_again_is_deleted_up_to_the_id_that_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let deletions = KeptDeletions::new(Arc::new(SystemDisk), dir.path());
        deletions.begin().unwrap();
        for id in [3, 9, 5] {
            deletions.note([(MetricId(id), "again")].into_iter(), 7).unwrap();
        }
        let deleted = deletions.read().unwrap();
        let is_deleted = |id: u32| deleted.has_name("again", |last| MetricId(id) <= last);
        assert_eq!([2, 9, 10].map(is_deleted), [true, true, false]);
        assert!(!deleted.has_name("other", |_| true) && deleted.is_known);
    }

    #[test]
    fn a_list_that_begins_late_or_is_damaged_does_not_know_all() {
        let dir = tempfile::tempdir().unwrap();
        let begun = || KeptDeletions::new(Arc::new(SystemDisk), dir.path());
        let note = |deletions: &KeptDeletions, id: u32| deletions.note([(MetricId(id), "m")].into_iter(), 7).unwrap();
        let state = || {
            let deleted = begun().read().unwrap();
            (deleted.ids.len(), deleted.is_known, deleted.is_damaged)
        };
        begun().go_on().unwrap();
        note(&begun(), 1);
        begun().go_on().unwrap();
        assert_eq!(state(), (1, false, false));
        begun().end().unwrap();
        begun().begin().unwrap();
        [2, 3].into_iter().for_each(|id| note(&begun(), id));
        assert_eq!(state(), (2, true, false));
        // A record that was not written whole is cut off before the next.
        let (file, whole) = (dir.path().join(LIST), std::fs::read(dir.path().join(LIST)).unwrap());
        std::fs::write(&file, &whole[..whole.len() - 3]).unwrap();
        begun().cut_torn_end().unwrap();
        note(&begun(), 4);
        assert_eq!(state(), (2, true, false));
        let mut flipped = whole;
        flipped[20] ^= 1;
        std::fs::write(&file, flipped).unwrap();
        assert_eq!(state(), (1, false, true));
    }

    #[test]
    fn a_list_that_cannot_be_made_at_first_begins_with_what_it_would_have_had() {
        for is_late in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let journal = dir.path().join("journal");
            let deletions = KeptDeletions::new(Arc::new(SystemDisk), &journal);
            let note = |id: u32, name: &str| deletions.note([(MetricId(id), name)].into_iter(), 7);
            deletions.remember();
            note(1, "remembered").unwrap();
            // Its folder is missing.
            if is_late { deletions.go_on() } else { deletions.begin() }.unwrap_err();
            note(2, "not deleted").unwrap_err();
            std::fs::create_dir(&journal).unwrap();
            note(3, "noted").unwrap();
            assert_eq!(deletions.read().unwrap().is_known, !is_late);
            assert_eq!(names(&deletions), ["noted", "remembered"]);
        }
    }

    #[test]
    fn so_many_deletions_begin_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let deletions = KeptDeletions::new(Arc::new(SystemDisk), dir.path());
        deletions.remember();
        let names: Vec<String> = (0..=MOST_REMEMBERED).map(|number| format!("m{number}")).collect();
        let all = names.iter().enumerate().map(|(id, name)| (MetricId(id as u32), &**name));
        deletions.note(all, 7).unwrap();
        assert!(deletions.is_noting());
        assert_eq!(deletions.read().unwrap().names.len(), names.len());
    }
}
