//! The driver: calls of the traits, each spread over the threads of the runtime.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use host::Trash;
use metric::{MetricId, Policy, Timestamp};
use parking_lot::Mutex;
use store::{
    Cells, DriverFuture, Event, Events, Fetch, Identity, JournalMark, LostPolicy, MetricRecord, NameStore, NamesMark,
    NewEvent, PointStore, Run, StoreError, Usage,
};

use crate::{
    compaction::{Compaction, Rounds},
    events::EventUsage,
    manifest::{Manifest, ManifestFile},
    merges::Merges,
    options::EmbeddedOptions,
    patience::Patience,
    record_log::CopiedLog,
    row_file::{Missed, ReadFrom},
    rows::Recoder,
    status::{StoreStatus, StoredFile, status},
    tables::Tables,
    tasks::{Cancel, chunks, joined},
    window_key::KEPT_LONGER,
};

/// Bytes of names that wait for a sync; beyond, a call writes them. A sync has each of them several times in memory.
const UNSYNCED_NAMES: u64 = 4 << 20;

/// Fetches below this number are answered by the asking thread.
const FEW: usize = 8;

/// What a backup has of a store.
#[derive(Debug)]
pub struct Snapshot {
    /// The files of rows.
    pub rows: Vec<StoredFile>,
    /// Files of rows that the store misses, by their paths in its folder.
    pub missing: Vec<PathBuf>,
    /// The files of the logs of names and events.
    pub logs: Vec<CopiedLog>,
}

/// The driver.
pub struct EmbeddedDriver {
    tables: Arc<Tables>,
    /// Rows are read, changed and written back: one writer at a time.
    writing: Arc<tokio::sync::Mutex<()>>,
    merges: Arc<Merges>,
    /// Of a driver without a thread that merges.
    rounds: Mutex<Rounds>,
    _compaction: Option<Compaction>,
}

impl EmbeddedDriver {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// [`Unavailable`](StoreError::Unavailable) while another process uses the folder, [`Spec`](StoreError::Spec) when
    /// another program wrote it.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<EmbeddedDriver, StoreError> {
        EmbeddedDriver::of(Tables::open(dir, options)?)
    }

    /// As [`EmbeddedDriver::open`], of a folder whose lock the caller holds until the driver is gone.
    pub(crate) fn open_locked(dir: &Path, options: EmbeddedOptions) -> Result<EmbeddedDriver, StoreError> {
        EmbeddedDriver::of(Tables::open_locked(dir, options, None)?)
    }

    fn of(tables: Tables) -> Result<EmbeddedDriver, StoreError> {
        let (tables, merges) = (Arc::new(tables), Arc::new(Merges::default()));
        let compaction =
            tables.options.merges.then(|| Compaction::start(tables.clone(), merges.clone())).transpose()?;
        let rounds = Mutex::new(Rounds::new(&tables));
        Ok(EmbeddedDriver { tables, writing: Arc::default(), merges, rounds, _compaction: compaction })
    }

    /// Writes everything to files and merges them until no row is on the disk twice, as the background thread does
    /// after a quiet time. Takes as long as reading and writing the whole store.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.tables.flush()?;
        self.tables.with_merging(&|| false, |with| self.merges.run_fully(with))
    }

    /// Writes the logs of names and events again without what is damaged, for a repair.
    pub(crate) fn write_logs_again(&self) -> Result<(), StoreError> {
        self.tables.write_again()
    }

    /// Merges files as the background thread does, until nothing is due. Blocks the thread.
    pub fn merge(&self) {
        self.tables.with_merging(&|| false, |with| self.merges.run(with));
    }

    /// What the background thread does each half second: where [`EmbeddedOptions::merges`] is false, a rehearsal does it at a moment
    /// that it chooses. Blocks the thread.
    pub fn look_after_files(&self) {
        self.rounds.lock().look(&self.tables, &self.merges, &|| false);
    }

    /// The highest metric that a row was ever of: no metric may get this id or a lower one for another name.
    pub fn highest_id(&self) -> Option<MetricId> {
        self.tables.points.highest_metric()
    }

    /// The files of rows that are in use.
    pub fn files(&self) -> Vec<StoredFile> {
        self.tables.points.files().iter().map(StoredFile::of).collect()
    }

    /// Links the files of rows into the folder `into` of the same file system, with a manifest: one moment of what is
    /// synced. Flushes, merges and expiry wait meanwhile; there is no other cost. Blocks the thread.
    ///
    /// # Errors
    /// Whatever the disk says. Part of the files may be linked.
    pub fn snapshot(&self, into: &Path) -> Result<Vec<StoredFile>, StoreError> {
        Ok(self.tables.points.snapshot(into)?.files.iter().map(StoredFile::of).collect())
    }

    /// As [`EmbeddedDriver::snapshot`], with names, events and the identity of the store: all that a backup has of it. Files
    /// that may change are copied. Writes of names wait meanwhile.
    ///
    /// # Errors
    /// Whatever the disk says. Part of the files may be there.
    pub fn snapshot_all(&self, into: &Path) -> Result<Snapshot, StoreError> {
        let _one = self.writing.blocking_lock();
        self.tables.names.sync()?;
        let Manifest { files, missing, .. } = self.tables.points.snapshot(into)?;
        let rows = files.iter().map(StoredFile::of).collect();
        let missing = missing.iter().map(ManifestFile::path).collect();
        Ok(Snapshot { rows, missing, logs: self.tables.copy_logs(into)? })
    }

    /// Why nothing is written any more, if another process has taken the folder.
    pub fn lost_folder(&self) -> Option<String> {
        self.tables.spec.owner().lost().map(str::to_owned)
    }

    /// Whether the log of names is where it was. While it is not, no name is stored, and no row of a flush.
    ///
    /// # Errors
    /// Names the file that was removed or replaced.
    pub fn check_names_place(&self) -> Result<(), StoreError> {
        self.tables.check_names_place()
    }

    /// Whether events are taken, as far as that is known: their log is where it was, and the disk took the last event.
    ///
    /// # Errors
    /// Names the file that was removed or replaced, or the error of the disk.
    pub fn check_events(&self) -> Result<(), StoreError> {
        self.tables.check_events()
    }

    /// Where expired rows go.
    pub fn trash(&self) -> &Arc<Trash> {
        &self.tables.points.shared.trash
    }

    /// The state of the files.
    pub fn status(&self) -> StoreStatus {
        status(&self.tables.points, &self.merges)
    }

    /// How many events there are.
    pub fn event_usage(&self) -> EventUsage {
        self.tables.events.usage()
    }

    /// The time of the newest slot that is stored, Unix seconds.
    pub fn newest_point(&self) -> Option<Timestamp> {
        self.tables.points.newest_point()
    }
}

impl PointStore for EmbeddedDriver {
    fn write(&self, mut runs: Vec<Run>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Shared by the tasks: they run to their end even when this future is dropped, and until then no other
            // call may read, change and write back the same rows.
            let one = Arc::new(self.writing.clone().lock_owned().await);
            // Stable: of runs that overlap, the later one wins.
            runs.sort_by_key(|run| (run.metric, run.table));
            if self.tables.points.unsynced_bytes() > self.tables.options.unsynced_bytes {
                // Before anything is added: while the disk is full, memory does not grow.
                let (tables, one) = (self.tables.clone(), one.clone());
                joined(host::spawn_blocking(move || (tables.flush_points(), one).0)).await??;
            }
            let tasks: Vec<_> = chunks(runs, |run| run.metric)
                .into_iter()
                .map(|chunk| {
                    let (tables, one) = (self.tables.clone(), one.clone());
                    host::spawn_blocking(move || (tables.points.write(&chunk, &mut Recoder::default()), one).0)
                })
                .collect();
            for task in tasks {
                joined(task).await?;
            }
            Ok(())
        })
    }

    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>> {
        Box::pin(async move {
            if fetches.len() <= FEW {
                // From memory alone: this thread must not wait for a disk.
                let all: Vec<&Fetch> = fetches.iter().collect();
                let answers = self.tables.points.fetch(&all, ReadFrom::Cache, &mut Recoder::default(), || false);
                if let Ok(answers) = answers {
                    return Ok(answers);
                }
            }
            let cancelled = Arc::new(AtomicBool::new(false));
            let _cancel = Cancel(cancelled.clone());
            let mut answers = vec![Cells::default(); fetches.len()];
            let mut numbered: Vec<(usize, Fetch)> = fetches.into_iter().enumerate().collect();
            // Neighbours share blocks.
            numbered.sort_unstable_by_key(|(number, fetch)| (fetch.metric, *number));
            let tasks: Vec<_> = chunks(numbered, |(_, fetch)| fetch.metric)
                .into_iter()
                .map(|chunk| {
                    let (tables, cancelled) = (self.tables.clone(), cancelled.clone());
                    host::spawn_blocking(move || {
                        let fetches: Vec<&Fetch> = chunk.iter().map(|(_, fetch)| fetch).collect();
                        let is_cancelled = || cancelled.load(Relaxed);
                        let cells =
                            tables.points.fetch(&fetches, ReadFrom::Disk, &mut Recoder::default(), is_cancelled);
                        let cells = cells.map_err(|missed| match missed {
                            Missed::Io(path, source) => {
                                StoreError::Io { what: format!("opening {}", path.display()), source }
                            }
                            Missed::NotCached => unreachable!("what is not in the cache is read"),
                        })?;
                        Ok(chunk.iter().map(|(number, _)| *number).zip(cells).collect::<Vec<(usize, Cells)>>())
                    })
                })
                .collect();
            for task in tasks {
                for (number, cells) in joined(task).await?? {
                    answers[number] = cells;
                }
            }
            Ok(answers)
        })
    }

    fn sync(&self) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            // Writers continue meanwhile: their rows are in the next memtable.
            let tables = self.tables.clone();
            joined(host::spawn_blocking(move || tables.flush_points())).await?
        })
    }

    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let one = self.writing.clone().lock_owned().await;
            let tables = self.tables.clone();
            let expire = move || (tables.points.expire(now), one).0;
            joined(host::spawn_blocking(expire)).await?
        })
    }

    fn slots_kept_longer(&self) -> u32 {
        KEPT_LONGER
    }

    fn has_newer_rows(&self) -> bool {
        self.tables.points.has_newer_rows()
    }

    fn newest_slot(&self) -> Option<Timestamp> {
        let points = &self.tables.points;
        let are_whole = !points.windows().iter().any(|window| window.is_incomplete());
        are_whole.then(|| points.newest_point().unwrap_or(0))
    }

    fn usage(&self) -> Usage {
        self.tables.usage()
    }
}

impl NameStore for EmbeddedDriver {
    fn identity(&self) -> Identity {
        self.tables.spec.identity()
    }

    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity> {
        let (tables, first_id) = (self.tables.clone(), first_id.max(self.next_id()));
        Box::pin(async move { joined(host::spawn_blocking(move || tables.begin(first_id))).await })
    }

    fn put_opening(&self) -> Result<(), StoreError> {
        self.tables.spec.raise()
    }

    fn names_mark(&self) -> Option<NamesMark> {
        let end = self.tables.names.end()?;
        let Identity { store, chain } = self.tables.spec.identity();
        Some(NamesMark { store, opening: chain.last().map_or(0, |opening| opening.id), end: (end.file, end.bytes) })
    }

    fn next_id(&self) -> MetricId {
        self.tables.next_id()
    }

    fn is_deleted(&self, id: MetricId) -> bool {
        self.tables.names.is_deleted(id)
    }

    fn lost_policies(&self) -> Vec<LostPolicy> {
        self.tables.names.lost_policies()
    }

    fn set_lost_policy(&self, number: u16, policy: &Policy, how: &str) {
        self.tables.names.set_lost_policy(number, policy, how);
    }

    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()> {
        let tables = self.tables.clone();
        let delete = move || tables.names.delete(&ids);
        Box::pin(async move { joined(host::spawn_blocking(delete)).await })
    }

    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        Box::pin(async move {
            let one = self.writing.clone().lock_owned().await;
            let tables = self.tables.clone();
            let put = move || {
                let _one = one;
                if tables.names.unsynced_bytes() > UNSYNCED_NAMES {
                    // Before anything is added: while the disk is full, memory does not grow.
                    tables.names.sync()?;
                }
                tables.names.put(&records);
                Ok(())
            };
            joined(host::spawn_blocking(put)).await?
        })
    }

    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()> {
        // Called once, at the start, when no other task needs this thread.
        Box::pin(async move {
            let options = &self.tables.options;
            self.tables.names.scan(&Patience::new(&options.host.clock, options.read_patience), each)
        })
    }

    fn sync_metrics(&self) -> DriverFuture<'_, ()> {
        let tables = self.tables.clone();
        Box::pin(async move { joined(host::spawn_blocking(move || tables.names.sync())).await? })
    }

    fn journal_mark(&self) -> Option<JournalMark> {
        self.tables.points.journal_mark()
    }

    fn set_journal_mark(&self, mark: JournalMark) -> DriverFuture<'_, ()> {
        let tables = self.tables.clone();
        let set = move || tables.points.set_journal_mark(mark);
        Box::pin(async move { joined(host::spawn_blocking(set)).await? })
    }
}

impl Events for EmbeddedDriver {
    fn put_event(&self, event: NewEvent) -> DriverFuture<'_, u64> {
        let tables = self.tables.clone();
        Box::pin(async move { joined(host::spawn_blocking(move || tables.events.put(&event))).await? })
    }

    fn events(&self, after: (Timestamp, u64), until: Timestamp, most: usize) -> DriverFuture<'_, Vec<Event>> {
        let tables = self.tables.clone();
        let read = move || tables.events.after(after, until, most);
        Box::pin(async move { joined(host::spawn_blocking(read)).await? })
    }

    fn event(&self, id: u64) -> DriverFuture<'_, Option<Event>> {
        let tables = self.tables.clone();
        Box::pin(async move { joined(host::spawn_blocking(move || tables.events.get(id))).await? })
    }

    fn expire_events(&self, before: Timestamp) -> DriverFuture<'_, u64> {
        let tables = self.tables.clone();
        Box::pin(async move { joined(host::spawn_blocking(move || tables.events.expire(before))).await? })
    }

    fn delete_events(&self, ids: Vec<u64>) -> DriverFuture<'_, u64> {
        let tables = self.tables.clone();
        Box::pin(async move { joined(host::spawn_blocking(move || tables.events.remove(&ids))).await? })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metric::Policy;
    use store::{PolicyChange, Store};

    use super::*;

    #[test]
    fn a_sync_writes_names_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let driver = Arc::new(EmbeddedDriver::open(folder.path(), EmbeddedOptions::default()).unwrap());
        let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
        let record = MetricRecord { id: MetricId(0), name: "a.b".to_owned(), created_on: 0, policies };
        runtime.block_on(driver.put_metrics(vec![record])).unwrap();
        assert!(0 < driver.usage().memory_bytes);
        runtime.block_on(Store::of(driver.clone()).sync()).unwrap();
        assert_eq!(driver.usage().memory_bytes, 0);
    }
}
