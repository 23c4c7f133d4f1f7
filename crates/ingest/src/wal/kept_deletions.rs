//! What is deleted while segments of the journal are kept that were not read whole: `deleted` next to the segments, in their
//! format. Points that are put back later must not bring a deleted metric back.
//!
//! Each record has the ids and names of metrics that are deleted. What is deleted while points are parked in the journal is
//! remembered: if a segment of theirs is missing, the list has it from the beginning.

use std::{
    collections::HashSet,
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
pub(super) const LIST: &str = "deleted";

/// Deletions that are remembered before the list begins.
const MOST_REMEMBERED: usize = 1 << 16;

/// The list.
#[derive(Debug)]
pub(crate) struct KeptDeletions {
    disk: Arc<dyn Disk>,
    file: PathBuf,
    /// Whether something is kept.
    is_noting: AtomicBool,
    /// What is deleted while points are parked, and when.
    remembered: Mutex<Option<Vec<(MetricId, String, Timestamp)>>>,
}

/// What was deleted.
#[derive(Debug, Default)]
pub(crate) struct Deleted {
    pub(crate) ids: HashSet<MetricId>,
    pub(crate) names: HashSet<String>,
    /// Whether deletions were noted since something is kept.
    pub(crate) is_known: bool,
}

impl KeptDeletions {
    /// Of the journal in this folder.
    pub(crate) fn new(disk: Arc<dyn Disk>, journal: &Path) -> KeptDeletions {
        let file = journal.join(LIST);
        let is_noting = AtomicBool::new(disk.exists(&file));
        KeptDeletions { disk, file, is_noting, remembered: Mutex::default() }
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
        let mut writer = MetricsWriter::default();
        for (metric, name, at) in self.remembered.lock().iter().flatten() {
            writer.push(*metric, 0, name, *at);
        }
        self.append(&writer.take())
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
        let mut writer = MetricsWriter::default();
        metrics.for_each(|(metric, name)| writer.push(metric, 0, name, now));
        self.append(&writer.take())
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.disk.open(&self.file, Open::ReadWrite)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.file.parent().map_or(Ok(()), |folder| self.disk.sync_dir(folder))
    }

    /// What was noted so far.
    pub(crate) fn read(&self) -> io::Result<Deleted> {
        let mut deleted = Deleted::default();
        let bytes = match retried(|| self.disk.read(&self.file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(deleted),
            bytes => bytes?,
        };
        let mut all = records(&bytes);
        for (_, record) in all.by_ref() {
            let Record::Metrics { metrics, .. } = record else { continue };
            deleted.ids.extend(metrics.iter().map(|&(id, ..)| id));
            deleted
                .names
                .extend(metrics.iter().filter(|(.., name)| !name.is_empty()).map(|(.., name)| (*name).to_owned()));
        }
        // Of a damaged list it is not known what it lacks.
        deleted.is_known = all.damage.len() == usize::from(all.torn_tail().is_some());
        Ok(deleted)
    }

    /// Nothing is kept any more.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.is_noting.store(false, SeqCst);
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
        let mut names: Vec<String> = deletions.read().unwrap().names.into_iter().collect();
        names.sort();
        names
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
