//! What all files of rows share: the disk, blocks and indexes that were read, open files, and the log of damage.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use host::{Clock, DamagedFolder, Disk, DiskFile, Host, Open, Trash, utc};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::Cache};
use store::{Damage, DamageLog};

use crate::row_file::{Index, MarkedBlock, Obsolete};

/// What a finding says of a file of rows that the manifest does not have.
pub(crate) const UNLISTED: &str = "the manifest does not have it; its rows are used";

/// Files that are kept open.
const OPEN_FILES: usize = 256;

/// Bytes that a cached item takes besides its contents.
const OVERHEAD: u64 = 96;

/// A block or an index, checked.
#[derive(Debug, Clone)]
pub(crate) enum Cached {
    Block(Arc<MarkedBlock>),
    Index(Arc<Index>),
}

/// The number of a file in this process and an offset in it.
pub(crate) type Place = (u64, u64);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Place, Cached> for Bytes {
    fn weight(&self, _: &Place, cached: &Cached) -> u64 {
        OVERHEAD
            + match cached {
                Cached::Block(block) => block.memory() as u64,
                Cached::Index(index) => index.memory() as u64,
            }
    }
}

/// What files of rows share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) damage: DamageLog,
    pub(crate) damaged_folder: DamagedFolder,
    pub(crate) trash: Arc<Trash>,
    /// Bytes that were copied to `damaged/`.
    pub(crate) quarantined_bytes: AtomicU64,
    /// Paths in reports begin behind this one.
    data: PathBuf,
    cache: Cache<Place, Cached, Bytes>,
    open: Cache<u64, Arc<dyn DiskFile>>,
    /// Files to be removed.
    obsolete: Mutex<Vec<Obsolete>>,
}

impl Shared {
    pub(crate) fn new(host: &Host, data: &Path, damage: DamageLog, trash: Arc<Trash>, cache_bytes: u64) -> Shared {
        // A block of the usual size is one item.
        let items = (cache_bytes >> 14) as usize;
        let cache = Cache::with_weighter(items.max(16), cache_bytes, Bytes);
        Shared {
            disk: host.disk.clone(),
            clock: host.clock.clone(),
            damage,
            damaged_folder: DamagedFolder::new(host, data),
            trash,
            quarantined_bytes: AtomicU64::new(0),
            data: data.to_owned(),
            cache,
            open: Cache::new(OPEN_FILES),
            obsolete: Mutex::default(),
        }
    }

    pub(crate) fn cached(&self, place: Place) -> Option<Cached> {
        self.cache.get(&place)
    }

    pub(crate) fn keep(&self, place: Place, cached: Cached) {
        self.cache.insert(place, cached);
    }

    /// The file with this number, opened where it is not open.
    pub(crate) fn file(&self, number: u64, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.open.get(&number) {
            return Ok(file);
        }
        let file: Arc<dyn DiskFile> = Arc::from(self.disk.open(path, Open::Read)?);
        self.open.insert(number, file.clone());
        Ok(file)
    }

    /// Forgets an open file, so that its bytes are free once it is removed.
    pub(crate) fn close(&self, number: u64) {
        self.open.remove(&number);
    }

    /// Leaves the removal of a file to [`Shared::remove_obsolete`].
    pub(crate) fn remove_later(&self, file: Obsolete) {
        self.obsolete.lock().push(file);
    }

    /// Removes the files that are no longer used. Waits for the disk.
    pub(crate) fn remove_obsolete(&self) {
        let obsolete = std::mem::take(&mut *self.obsolete.lock());
        for file in obsolete {
            match file.remove(&*self.disk, &self.damaged_folder) {
                Ok(damage) => damage.into_iter().for_each(|damage| {
                    self.report(Damage { file: self.shown(file.path()), ..damage });
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(%error, file = %file.path().display(), "cannot remove a merged file; it takes up space until the next start");
                }
            }
        }
    }

    /// The path as reports have it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.data).unwrap_or(path).display().to_string()
    }

    /// Reports damage, and logs it the first time.
    pub(crate) fn report(&self, damage: Damage) {
        let damage = Damage { found_at: self.clock.now(), ..damage };
        if self.damage.report(damage.clone()) {
            let Damage { what, file, how, bytes, metrics, span, moved_to, .. } = damage;
            let metrics = metrics.map(|(first, last)| format!("{first} to {last}"));
            let span = span.map(|(from, until)| format!("{} to {}", utc(from), utc(until)));
            match what {
                "manifest" => tracing::error!(
                    file,
                    how,
                    bytes,
                    moved_to,
                    "the list of the files of rows is damaged or was lost; all files that are there are used; compare the folder with a \
                     backup (plumbago verify of both), put back files that are missing, and plumbago repair ends this report"
                ),
                _ if how == UNLISTED => tracing::warn!(
                    file,
                    bytes,
                    metrics,
                    span,
                    "the list of the files of rows does not have a file that is there, as where it was put back; its rows are used, and \
                     nothing is missing"
                ),
                _ => tracing::error!(
                    what,
                    file,
                    how,
                    bytes,
                    metrics,
                    span,
                    moved_to,
                    "the store has damaged bytes; what they held is missing from answers, or older values are in its place; \
                     everything else is served; restore the file from a backup if there is one"
                ),
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.remove_obsolete();
    }
}
