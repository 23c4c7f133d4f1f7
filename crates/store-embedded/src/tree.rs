//! One tree of sorted rows on the disk: the LSM library behind a few calls.
//!
//! The library reads and writes its files itself and knows no other file system. Only what surrounds it (deleting
//! folders and unfinished files) goes through [`host::Disk`]: a test that injects faults into a tree needs a real disk
//! that fails, as the test of a full disk has one.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use host::Disk;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SequenceNumberCounter, Slice, compaction::Leveled,
};
use parking_lot::Mutex;
use store::StoreError;

/// Bytes of a file of a tree, about.
const FILE_BYTES: u64 = 64 << 20;

/// Above every sequence number. There are no transactions: readers see everything that is written, and older
/// versions of a row and files that were merged into others go at once. With the newest number instead, the library
/// would keep the files of the last merge until the next.
const NEWEST: u64 = u64::MAX >> 1;

/// What all trees of a driver share.
pub(crate) struct Shared {
    pub(crate) cache: Arc<Cache>,
    pub(crate) descriptors: Arc<DescriptorTable>,
    pub(crate) disk: Arc<dyn Disk>,
}

pub(crate) struct Tree {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    lsm: AnyTree,
    seqno: SequenceNumberCounter,
    /// Bytes of rows in the memtable that is written to, and of those whose flush failed.
    active: AtomicU64,
    sealed: AtomicU64,
    /// Held while files are merged. Who holds this and the flush lock knows every file there is.
    merging: Mutex<()>,
    /// Whether files were added since the last compaction.
    grown: AtomicBool,
}

impl Tree {
    pub(crate) fn open(path: &Path, shared: &Shared) -> Result<Tree, StoreError> {
        let seqno = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        let config = Config::new(path, seqno.clone(), visible)
            .use_cache(shared.cache.clone())
            .use_descriptor_table(Some(shared.descriptors.clone()));
        let lsm = config.open().map_err(|error| failed(path, error))?;
        if let Some(highest) = lsm.get_highest_seqno() {
            seqno.fetch_max(highest + 1);
        }
        Ok(Tree {
            path: path.to_owned(),
            disk: shared.disk.clone(),
            lsm,
            seqno,
            active: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            merging: Mutex::new(()),
            grown: AtomicBool::new(true),
        })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.lsm.get(key, NEWEST).map_err(|error| failed(&self.path, error))
    }

    /// Puts a row into memory; `flush` puts it on the disk.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) {
        let (_, size) = self.lsm.insert(key, value, self.seqno.next());
        self.active.store(size, Relaxed);
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.active.load(Relaxed) + self.sealed.load(Relaxed)
    }

    /// Makes everything inserted durable, in a file of its own. After an error it stays in memory, and the next
    /// flush tries again.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let lock = self.lsm.get_flush_lock();
        if let Some(sealed) = self.lsm.rotate_memtable() {
            self.active.store(0, Relaxed);
            self.sealed.fetch_add(sealed.size(), Relaxed);
        }
        if self.lsm.sealed_memtable_count() == 0 {
            return Ok(());
        }
        let next_file = self.lsm.next_table_id();
        if let Err(error) = self.lsm.flush(&lock, NEWEST) {
            if let Some(_merging) = self.merging.try_lock() {
                self.sweep(next_file);
            }
            return Err(failed(&self.path, error));
        }
        self.sealed.store(0, Relaxed);
        self.grown.store(true, Relaxed);
        Ok(())
    }

    /// Merges files where there are enough of them. Returns whether it did.
    pub(crate) fn compact(&self) -> Result<bool, StoreError> {
        if !self.grown.swap(false, Relaxed) {
            return Ok(false);
        }
        let before = self.lsm.table_count();
        let strategy = Arc::new(Leveled::default().with_table_target_size(FILE_BYTES));
        self.merge(|| self.lsm.compact(strategy, NEWEST))?;
        let merged = self.lsm.table_count() != before;
        if merged {
            self.grown.store(true, Relaxed);
        }
        Ok(merged)
    }

    /// Merges everything, so that no row is on the disk twice.
    pub(crate) fn compact_fully(&self) -> Result<(), StoreError> {
        if self.lsm.table_count() > 1 {
            self.merge(|| self.lsm.major_compact(FILE_BYTES, NEWEST))?;
        }
        Ok(())
    }

    fn merge(&self, merge: impl FnOnce() -> lsm_tree::Result<()>) -> Result<(), StoreError> {
        let merging = self.merging.lock();
        let next_file = self.lsm.next_table_id();
        let merged = merge();
        if merged.is_err() {
            drop(merging);
            // In the order in which `flush` takes them.
            let _flushing = self.lsm.get_flush_lock();
            let _merging = self.merging.lock();
            self.sweep(next_file);
        }
        merged.map_err(|error| failed(&self.path, error))
    }

    /// Deletes files from number `from` on that no version knows. The library leaves what it could not finish
    /// until the next start, and on a full disk those are the bytes that the next attempt needs. The caller
    /// holds the flush lock and `merging`.
    fn sweep(&self, from: u64) {
        let version = self.lsm.current_version();
        let Ok(files) = self.disk.read_dir(&self.path.join("tables")) else { return };
        for file in files {
            let number = file.name.to_str().and_then(|name| name.parse::<u64>().ok());
            let is_unfinished = |number: u64| from <= number && version.iter_tables().all(|table| table.id() != number);
            if number.is_some_and(is_unfinished)
                && let Err(error) = self.disk.remove_file(&file.path)
            {
                tracing::warn!(%error, file = %file.path.display(), "cannot delete an unfinished file; it takes up space until the next start");
            }
        }
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.lsm.disk_space()
    }

    /// Calls `each` with every key and value, in order.
    pub(crate) fn scan(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
        for row in self.lsm.iter(NEWEST, None) {
            let (key, value) = row.into_inner().map_err(|error| failed(&self.path, error))?;
            each(&key, &value)?;
        }
        Ok(())
    }

    /// Calls `each` with the keys after `first` up to and with `last`, and their values, in order, until it returns
    /// false.
    pub(crate) fn scan_between(
        &self,
        first: &[u8],
        last: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        use std::ops::Bound::{Excluded, Included};
        let range: (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) = (Excluded(first), Included(last));
        for row in self.lsm.range::<&[u8], _>(range, NEWEST, None) {
            let (key, value) = row.into_inner().map_err(|error| failed(&self.path, error))?;
            if !each(&key, &value)? {
                break;
            }
        }
        Ok(())
    }

    /// The last key there is.
    pub(crate) fn last(&self) -> Result<Option<Slice>, StoreError> {
        let last = self.lsm.iter(NEWEST, None).next_back();
        last.map(|row| row.key()).transpose().map_err(|error| failed(&self.path, error))
    }

    /// The last key below another.
    pub(crate) fn last_below(&self, end: &[u8]) -> Result<Option<Slice>, StoreError> {
        let last = self.lsm.range::<&[u8], _>(..end, NEWEST, None).next_back();
        last.map(|row| row.key()).transpose().map_err(|error| failed(&self.path, error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn failed(path: &Path, error: lsm_tree::Error) -> StoreError {
    match error {
        lsm_tree::Error::Io(source) => StoreError::Io { what: format!("using {}", path.display()), source },
        other => StoreError::Damaged { what: path.display().to_string(), how: format!("{other:?}") },
    }
}
