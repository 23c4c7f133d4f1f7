//! The points of a store: windows found by table and time, written, read, flushed and expired.

mod beneath;
mod fetch;
mod snapshot;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use metric::{MetricId, Slot, Table, Timestamp};
use parking_lot::{Mutex, RwLock};
use store::{Cells, Damage, Fetch, Identity, Incarnation, JournalMark, Run, StoreError, Usage};

use self::{
    beneath::Beneath,
    fetch::{lay_over, wanted},
};
use crate::{
    buffer::Buffer,
    cache::Shared,
    commits::{Commits, Unlisted},
    folder::io_error,
    lost::Lost,
    manifest::{Manifest, ManifestFile},
    opening::{self, Found, ReadManifest, UNTIL_BACK, UNTIL_READ},
    owner::Owner,
    record_log::{LogEnds, LogFiles},
    row_file::{self, Flushes, Header, Lookup, MISSING, Missed, ReadFrom, RowFile, RowsWriter, Written, newest_slot},
    row_key::{GROUP_SLOTS, RowKey, groups},
    rows::Recoder,
    timeline,
    window::Window,
    window_key::{WindowKey, expires_at, waits_for, window_slots},
};

/// The points of a store.
#[derive(Debug)]
pub(crate) struct Points {
    dir: PathBuf,
    /// The store, and its openings.
    identity: RwLock<Identity>,
    pub(crate) shared: Arc<Shared>,
    windows: RwLock<BTreeMap<WindowKey, Arc<Window>>>,
    /// Bytes of rows in memory, of all windows.
    unsynced: AtomicI64,
    /// Shared by writers while they append rows to windows; held by a flush while it takes those of all windows.
    appending: RwLock<()>,
    /// Held while rows are written to files. Taken before `appending` and `commits`.
    flushing: Mutex<()>,
    /// Held while the manifest is written, and by what must see files and manifest agree.
    commits: Mutex<Commits>,
    /// Drafts of this process, so that each has a name of its own.
    drafts: AtomicU64,
    /// Another process may take the folder.
    owner: Owner,
    /// Whether the openings of the store may lack some.
    is_unsure: bool,
}

impl Points {
    /// Finds what is in the folder with the manifest that was read, and writes that if it has to say something else. Openings that the
    /// identity may lack (`is_unsure`) or lacks are those of the files.
    pub(crate) fn open(
        dir: &Path,
        shared: Arc<Shared>,
        (mut identity, owner): (Identity, Owner),
        is_unsure: bool,
        manifest: Option<ReadManifest>,
    ) -> Result<Points, StoreError> {
        let Found { windows, commits, openings } = opening::find(&shared, dir, (&identity, is_unsure), manifest)?;
        timeline::with_rows(&mut identity.chain, openings);
        let points = Points {
            dir: dir.to_owned(),
            identity: RwLock::new(identity),
            shared,
            windows: RwLock::new(windows),
            unsynced: AtomicI64::new(0),
            appending: RwLock::default(),
            flushing: Mutex::default(),
            commits: Mutex::new(commits),
            drafts: AtomicU64::new(0),
            owner,
            is_unsure,
        };
        let mut commits = points.commits.lock();
        if commits.is_behind()
            && let Err(error) = points.commit(&mut commits)
        {
            // Every sync retries.
            tracing::error!(%error, "cannot write the manifest of the store; points stay in the journal until it can be written");
        }
        drop(commits);
        Ok(points)
    }

    /// The openings of the store, oldest first.
    pub(crate) fn openings(&self) -> Vec<Incarnation> {
        self.identity.read().chain.clone()
    }

    /// The store was opened: files from now on are written by this opening.
    pub(crate) fn set_identity(&self, identity: Identity) {
        *self.identity.write() = identity;
    }

    /// All windows, in the order of their tables and times.
    pub(crate) fn windows(&self) -> Vec<Arc<Window>> {
        self.windows.read().values().cloned().collect()
    }

    fn window(&self, key: WindowKey) -> Option<Arc<Window>> {
        self.windows.read().get(&key).cloned()
    }

    fn window_or_new(&self, key: WindowKey) -> Arc<Window> {
        if let Some(window) = self.window(key) {
            return window;
        }
        let mut windows = self.windows.write();
        windows.entry(key).or_insert_with(|| Arc::new(Window::new(&self.dir, key))).clone()
    }

    /// Bytes of rows in memory.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced.load(Relaxed).max(0) as u64
    }

    /// Lays runs over what is stored, in memory.
    pub(crate) fn write(&self, runs: &[Run], recoder: &mut Recoder) {
        let mut segments = Vec::new();
        let mut rows: BTreeMap<WindowKey, Vec<(RowKey, std::ops::Range<usize>, Slot)>> = BTreeMap::new();
        for run in runs {
            let slots = window_slots(run.table.stage);
            for (group, place) in groups(run.first_slot, run.values.len()) {
                let first = run.first_slot + place.start as u32;
                let counts = if run.counts.is_empty() { &[] } else { &run.counts[place.clone()] };
                let start = segments.len();
                let offset = (first - group * GROUP_SLOTS) as usize;
                let last = first + (place.len() as u32 - 1);
                recoder.append(offset, &run.values[place], counts, &mut segments);
                if start < segments.len() {
                    let key = RowKey { group, metric: run.metric };
                    rows.entry((run.table, first / slots)).or_default().push((key, start..segments.len(), last));
                }
            }
        }
        let now = self.shared.clock.instant();
        let _appending = self.appending.read();
        for (key, rows) in rows {
            let newest = rows.iter().map(|(_, _, last)| *last).max().unwrap_or(0);
            let rows = rows.into_iter().map(|(key, bytes, _)| (key, &segments[bytes]));
            let grown = self.window_or_new(key).append(rows, newest, now, recoder);
            self.unsynced.fetch_add(grown, Relaxed);
        }
    }

    /// Lays a stored row over what is there, in memory. For a conversion of an older folder.
    pub(crate) fn restore(&self, window: WindowKey, key: RowKey, row: &[u8]) {
        let now = self.shared.clock.instant();
        let rows = std::iter::once((key, row));
        let grown = self.window_or_new(window).append(rows, newest_slot(key, row), now, &mut Recoder::default());
        self.unsynced.fetch_add(grown, Relaxed);
    }

    /// Reads slots. Each answer is at the place of its fetch. `is_cancelled` ends the work early.
    pub(crate) fn fetch(
        &self,
        fetches: &[&Fetch],
        from: ReadFrom,
        recoder: &mut Recoder,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Vec<Cells>, Missed> {
        let mut answers = vec![Cells::default(); fetches.len()];
        let mut wanted = wanted(fetches);
        // Those of coarser steps first: a point of a coarser step that is replaced is among the finer ones before. Where that happens
        // between two windows, the answer has it in both places, and never the replacement alone.
        wanted.sort_unstable_by_key(|wanted| (Reverse(wanted.window), wanted.key, wanted.fetch));
        for of_window in wanted.chunk_by(|a, b| a.window == b.window) {
            let Some(window) = self.window(of_window[0].window) else { continue };
            let keys: Vec<RowKey> = of_window.iter().map(|wanted| wanted.key).collect();
            let is_aggregated = window.is_aggregated();
            let mut beneath = Beneath::default();
            window.rows(&keys, from, |place, found| {
                let wanted = &of_window[place];
                let (cells, fetch) = (&mut answers[wanted.fetch], fetches[wanted.fetch]);
                let len = (fetch.end_slot - fetch.first_slot) as usize;
                let newest = match found {
                    Lookup::Row(_) if is_cancelled() => return,
                    Lookup::Row(row) => match lay_over(cells, len, wanted, row, is_aggregated, recoder) {
                        Ok(()) => return,
                        Err(damaged) => {
                            self.report_row(&window, wanted.key, &damaged);
                            Slot::MAX
                        }
                    },
                    Lookup::Lost(lost) if lost.may_have(wanted.key, wanted.first_slot()) => lost.newest,
                    Lookup::Missing { newest, is_gone } if wanted.first_slot() <= newest => {
                        // Put back, its values are below those that are written meanwhile, and above those before it.
                        cells.is_away = true;
                        cells.is_unreadable |= !is_gone;
                        newest
                    }
                    Lookup::Lost(_) | Lookup::Missing { .. } => return,
                    Lookup::Damaged(newest) => newest,
                    Lookup::Unreadable(newest) => {
                        cells.is_unreadable = true;
                        newest
                    }
                    Lookup::NotThere(newest) => {
                        (cells.is_away, cells.is_unreadable) = (true, true);
                        newest
                    }
                };
                let places = wanted.places();
                let doubted = newest.saturating_add(1).saturating_sub(wanted.first_slot()) as usize;
                cells.note_doubt_at(places.start as u32..(places.start + doubted).min(places.end) as u32);
                beneath.put_aside(place, cells, wanted, newest);
            })?;
            beneath.put_back(of_window, &mut answers);
        }
        Ok(answers)
    }

    fn report_row(&self, window: &Window, key: RowKey, damaged: &codec::Damaged) {
        self.shared.report(Damage {
            what: "row",
            file: self.shared.shown(&window.dir),
            how: format!("row {} of metric {}: {damaged}", key.group, key.metric),
            metrics: Some((key.metric, key.metric)),
            span: Some(key.span_to(key, window.key.0.stage)),
            ..Damage::default()
        });
    }

    /// Writes the rows in memory to files, those of finer steps first, then the manifest. Rows that cannot be written stay
    /// in memory, and so do those of coarser steps at their times, see [`waits_for`]. The next call writes them to another file.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let _flushing = self.flushing.lock();
        let frozen: Vec<_> = {
            // Of all windows at once: a coarse row that comes meanwhile must not be written without the finer ones under it.
            let _appending = self.appending.write();
            self.windows().into_iter().filter_map(|window| window.freeze().map(|rows| (window, rows))).collect()
        };
        let (mut failed, mut unwritten) = (None, Vec::new());
        if !frozen.is_empty() {
            let flush = self.commits.lock().begin_flush();
            for (window, rows) in frozen {
                let waits = unwritten.iter().any(|&finer| waits_for(window.key, finer));
                let written = (!waits).then(|| self.write_rows(&window, &rows, flush)).transpose();
                drop(rows);
                let change = match written {
                    Ok(Some(file)) => window.flushed(file, self.shared.clock.instant()),
                    Ok(None) => window.thaw(),
                    Err(error) => {
                        failed = failed.or(Some(error));
                        unwritten.push(window.key);
                        window.thaw()
                    }
                };
                self.unsynced.fetch_add(change, Relaxed);
            }
            self.commits.lock().end_flush();
        }
        let mut commits = self.commits.lock();
        if commits.has_news() {
            self.commit(&mut commits)?;
        }
        failed.map_or(Ok(()), Err)
    }

    fn write_rows(&self, window: &Window, rows: &Buffer, flush: u64) -> Result<RowFile, StoreError> {
        self.finish_expiry_of(window.key)?;
        let write = || {
            window.make_folder(&*self.shared.disk)?;
            let mut writer = self.writer(window, Flushes { first: flush, last: flush })?;
            rows.for_each_sorted(window.is_aggregated(), |key, row| writer.push(key, row))?;
            writer.finish()
        };
        let written: Written = write().map_err(io_error(format!("writing rows to {}", window.dir.display())))?;
        Ok(RowFile::of_written(&self.shared, written, &window.is_expired))
    }

    /// Begins a file of a window.
    pub(crate) fn writer(&self, window: &Window, flushes: Flushes) -> std::io::Result<RowsWriter<'_>> {
        let (table, number) = window.key;
        let (store, opening) = {
            let identity = self.identity.read();
            (identity.store, identity.chain.last().copied())
        };
        let header = Header { store, table, window: number, flushes };
        let draft = self.drafts.fetch_add(1, Relaxed);
        let writer = RowsWriter::create(&*self.shared.disk, &window.dir, (header, opening), draft)?;
        let is_replacing = window.files().iter().any(|file| file.header().flushes == flushes);
        Ok(if is_replacing { writer.replacing() } else { writer })
    }

    fn commit(&self, commits: &mut Commits) -> Result<(), StoreError> {
        self.owner.check()?;
        let written = commits.write(&*self.shared.disk, &self.windows());
        for Unlisted { path, damage, .. } in commits.unlisted.drain(..) {
            // One that stays is found by the next start.
            let moved_to =
                written.is_ok().then(|| self.shared.damaged_folder.move_in(&path, &damage.how).ok()).flatten();
            self.shared.report(Damage { moved_to, ..damage });
        }
        written.map_err(io_error(format!("writing the manifest in {}", self.dir.display())))
    }

    /// Remembers rows of a window that are lost, durably.
    pub(crate) fn note_lost(&self, key: WindowKey, lost: &[Lost]) -> Result<(), StoreError> {
        self.window_or_new(key).add_lost(lost);
        let mut commits = self.commits.lock();
        commits.set_behind();
        self.commit(&mut commits)
    }

    /// Files that are missing are not waited for any more: their rows are lost. That the manifest was made again is not said any more,
    /// once every file can be opened.
    pub(crate) fn give_up_missing(&self) {
        let mut commits = self.commits.lock();
        let is_whole = !self.windows().iter().any(|window| window.is_incomplete());
        if is_whole && commits.remade.take().is_some() {
            commits.set_behind();
        }
        for window in self.windows().iter().filter(|window| !window.missing().is_empty()) {
            window.give_up_missing();
            commits.set_behind();
        }
    }

    /// Puts a merged file in the place of the files that it was made of, without the rows that are `lost`. False when the
    /// window expired meanwhile.
    pub(crate) fn merged(
        &self,
        window: &Window,
        merged: &[Arc<RowFile>],
        mut writer: RowsWriter<'_>,
        lost: &[Lost],
    ) -> Result<bool, StoreError> {
        let failed = || io_error(format!("merging files in {}", window.dir.display()));
        // Before the lock: flushes do not wait for the fsync of a large file.
        writer.complete().map_err(failed())?;
        let mut commits = self.commits.lock();
        if window.is_expired() {
            return Ok(false);
        }
        if !lost.is_empty() {
            // First: a crash must not leave the merged file without what it lacks.
            window.add_lost(lost);
            commits.set_behind();
            self.commit(&mut commits)?;
        }
        let written = writer.finish().map_err(failed())?;
        window.replace(merged, RowFile::of_written(&self.shared, written, &window.is_expired));
        commits.replaced(merged.iter().cloned());
        self.commit(&mut commits)?;
        Ok(true)
    }

    /// Moves the windows to the trash whose points have all expired at `now`.
    pub(crate) fn expire(&self, now: Timestamp) -> Result<(), StoreError> {
        let _flushing = self.flushing.lock();
        let mut commits = self.commits.lock();
        let mut is_any = !commits.expired.is_empty();
        self.windows.write().retain(|&key, window| {
            let is_kept = now <= expires_at(key);
            if !is_kept {
                is_any = true;
                window.is_expired.store(true, Relaxed);
                self.unsynced.fetch_sub(window.unsynced_bytes() as i64, Relaxed);
                commits.expired.insert(key);
                commits.forget_unread(key);
            }
            is_kept
        });
        if !is_any {
            return Ok(());
        }
        // First, so that files in the trash are never missing files.
        self.commit(&mut commits)?;
        for key in commits.expired.clone() {
            self.move_to_trash(&mut commits, key)?;
        }
        self.commit(&mut commits)
    }

    fn move_to_trash(&self, commits: &mut Commits, key: WindowKey) -> Result<(), StoreError> {
        let path = self.dir.join(crate::window_key::folder(key));
        if self.shared.disk.exists(&path) {
            let moved = self.shared.trash.move_in(&path);
            moved.map_err(io_error(format!("moving {} to the trash", path.display())))?;
        }
        commits.expired.remove(&key);
        commits.set_behind();
        // Nothing waits any more for its files.
        let folder = self.shared.shown(&path);
        self.shared.damage.mend(|damage| {
            let is_until = damage.how.ends_with(UNTIL_BACK) || damage.how.ends_with(UNTIL_READ);
            (damage.how == MISSING || is_until) && Path::new(&damage.file).starts_with(&folder)
        });
        Ok(())
    }

    /// A late point may bring back a window that is on its way to the trash.
    fn finish_expiry_of(&self, key: WindowKey) -> Result<(), StoreError> {
        let mut commits = self.commits.lock();
        if commits.expired.contains(&key) {
            self.move_to_trash(&mut commits, key)?;
            self.commit(&mut commits)?;
        }
        Ok(())
    }

    /// Opens the files that could not be opened before. Returns whether some still cannot. Flushes wait while the files of
    /// a window are opened again.
    pub(crate) fn open_again(&self) -> Result<bool, StoreError> {
        let (now, store) = (self.shared.clock.instant(), self.identity.read().store);
        for window in self.windows().into_iter().filter(|window| window.is_incomplete()) {
            if window.has_unsettled(&*self.shared.disk, now) {
                continue;
            }
            // Before the locks: a disk that hangs must not stop flushes.
            if !opening::may_open(&self.shared, store, &window) {
                continue;
            }
            self.find_again(&window)?;
        }
        Ok(self.windows().iter().any(|window| window.is_incomplete()))
    }

    /// Uses the files that the start did not find, where they are there now: the list of a folder on a network disk may have
    /// lacked them, or an operator put them back.
    pub(crate) fn look_for_missing(&self) -> Result<(), StoreError> {
        let store = self.identity.read().store;
        for window in self.windows() {
            let is_back = |file: &ManifestFile| {
                let path = self.dir.join(file.path());
                let disk = &*self.shared.disk;
                // One that is being copied is not back yet. First, because all of such a file is read to open it.
                let expected = window.header_of(store, file.flushes);
                disk.exists(&path)
                    && row_file::is_whole(disk, &path, file.bytes)
                    && row_file::may_open(disk, &path, expected)
            };
            // Before the locks, as in `open_again`.
            if window.missing().iter().any(is_back) {
                self.find_again(&window)?;
            }
            window.files().iter().for_each(|file| file.look_whether_back());
        }
        Ok(())
    }

    fn find_again(&self, window: &Window) -> Result<(), StoreError> {
        let _flushing = self.flushing.lock();
        let mut commits = self.commits.lock();
        if window.is_expired() {
            return Ok(());
        }
        let Manifest { files, missing, .. } = commits.manifest(&self.windows());
        let known = files.into_iter().chain(missing).filter(|file| file.window == window.key).collect();
        let identity = self.identity.read().clone();
        let ours = (&identity, self.is_unsure);
        opening::find_again(&self.shared, &self.dir, ours, window, known, &mut commits)?;
        self.commit(&mut commits)
    }

    /// How much of the journal is stored.
    pub(crate) fn journal_mark(&self) -> Option<JournalMark> {
        self.commits.lock().journal
    }

    /// Writes into the manifest how much of the journal is stored.
    pub(crate) fn set_journal_mark(&self, mark: JournalMark) -> Result<(), StoreError> {
        let opening = self.identity.read().chain.last().map_or(0, |opening| opening.id);
        let mark = JournalMark { opening, ..mark };
        let mut commits = self.commits.lock();
        if commits.journal != Some(mark) || commits.has_news() {
            commits.journal = Some(mark);
            self.commit(&mut commits)?;
        }
        Ok(())
    }

    /// How far the manifest says that the logs were on the disk.
    pub(crate) fn log_ends(&self) -> LogEnds {
        self.commits.lock().ends
    }

    /// From now on the manifest says how far these logs are on the disk.
    pub(crate) fn follow_logs(&self, names: Option<LogFiles>, events: Option<LogFiles>) {
        self.commits.lock().follow(names, events);
    }

    /// Whether the manifest could not be written.
    pub(crate) fn is_manifest_behind(&self) -> bool {
        self.commits.lock().is_behind()
    }

    /// The highest metric that a row was ever of.
    pub(crate) fn highest_metric(&self) -> Option<MetricId> {
        self.commits.lock().highest_metric()
    }

    /// Whether the start found files that are newer than the manifest.
    pub(crate) fn has_newer_rows(&self) -> bool {
        self.commits.lock().has_newer()
    }

    /// The time of the newest slot that is stored.
    pub(crate) fn newest_point(&self) -> Option<Timestamp> {
        let windows = self.windows.read();
        windows.values().filter_map(|window| Some(window.key.0.stage.time(window.newest()?))).max()
    }

    /// The files that are in use, as the manifest has them.
    pub(crate) fn files(&self) -> Vec<ManifestFile> {
        let windows = self.windows();
        self.commits.lock().manifest(&windows).files
    }

    /// The size of the points.
    pub(crate) fn usage(&self) -> Usage {
        let windows = self.windows.read();
        let mut tables: Vec<Table> = windows.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        Usage {
            disk_bytes: windows.values().map(|window| window.disk_bytes()).sum(),
            memory_bytes: self.unsynced_bytes(),
            tables: tables.len() as u64,
        }
    }
}
