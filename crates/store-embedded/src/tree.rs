//! One tree of sorted rows on the disk: the LSM library behind four calls.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, SequenceNumberCounter, Slice, compaction::Leveled,
};
use store::StoreError;

/// Bytes of a file of a tree, about.
const FILE_BYTES: u64 = 64 << 20;

/// What all trees of a driver share.
pub(crate) struct Shared {
    pub(crate) cache: Arc<Cache>,
    pub(crate) descriptors: Arc<DescriptorTable>,
}

pub(crate) struct Tree {
    path: PathBuf,
    lsm: AnyTree,
    seqno: SequenceNumberCounter,
    /// Bytes of rows that are not on disk yet.
    unsynced: AtomicU64,
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
        Ok(Tree { path: path.to_owned(), lsm, seqno, unsynced: AtomicU64::new(0), grown: AtomicBool::new(true) })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        // Everything written is visible: there are no transactions here.
        self.lsm.get(key, u64::MAX >> 1).map_err(|error| failed(&self.path, error))
    }

    /// Puts a row into memory; `flush` puts it on the disk.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) {
        let (_, size) = self.lsm.insert(key, value, self.seqno.next());
        self.unsynced.store(size, Relaxed);
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced.load(Relaxed)
    }

    /// Makes everything inserted durable, in a file of its own. After an error it stays in memory.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        if self.unsynced.load(Relaxed) == 0 && self.lsm.sealed_memtable_count() == 0 {
            return Ok(());
        }
        let lock = self.lsm.get_flush_lock();
        self.lsm.rotate_memtable();
        self.unsynced.store(0, Relaxed);
        // Older versions of a row are for nobody: readers do not hold snapshots.
        self.lsm.flush(&lock, self.seqno.get()).map_err(|error| failed(&self.path, error))?;
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
        self.lsm.compact(strategy, self.seqno.get()).map_err(|error| failed(&self.path, error))?;
        let merged = self.lsm.table_count() != before;
        if merged {
            self.grown.store(true, Relaxed);
        }
        Ok(merged)
    }

    /// Merges everything, so that no row is on the disk twice.
    pub(crate) fn compact_fully(&self) -> Result<(), StoreError> {
        if self.lsm.table_count() > 1 {
            self.lsm.major_compact(FILE_BYTES, self.seqno.get()).map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.lsm.disk_space()
    }

    /// Calls `each` with every key and value, in order.
    pub(crate) fn scan(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
        use lsm_tree::Guard;
        for row in self.lsm.iter(u64::MAX >> 1, None) {
            let (key, value) = row.into_inner().map_err(|error| failed(&self.path, error))?;
            each(&key, &value)?;
        }
        Ok(())
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
