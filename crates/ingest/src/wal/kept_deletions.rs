//! What is deleted while segments of the journal are kept that were not read whole: `deleted` next to the segments, in their
//! format. Points that are put back later must not bring a deleted metric back.
//!
//! Each record has the ids and names of metrics that are deleted.

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

use super::{
    reader::records,
    record::{MetricsWriter, Record},
};

/// The name of the file.
pub(super) const LIST: &str = "deleted";

/// The list.
#[derive(Debug)]
pub(crate) struct KeptDeletions {
    disk: Arc<dyn Disk>,
    file: PathBuf,
    /// Whether something is kept.
    is_noting: AtomicBool,
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
        KeptDeletions { disk, file, is_noting }
    }

    pub(crate) fn is_noting(&self) -> bool {
        self.is_noting.load(SeqCst)
    }

    /// Notes deletions from here on, durably.
    pub(crate) fn begin(&self) -> io::Result<()> {
        if self.is_noting.swap(true, SeqCst) && self.disk.exists(&self.file) {
            return Ok(());
        }
        self.append(&[])
    }

    /// Notes metrics that are deleted, durably.
    pub(crate) fn note<'a>(
        &self,
        metrics: impl Iterator<Item = (MetricId, &'a str)>,
        now: Timestamp,
    ) -> io::Result<()> {
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
