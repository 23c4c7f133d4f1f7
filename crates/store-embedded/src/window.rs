//! A window: all rows of one table for one span of time, in memory and in files.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

use host::{Disk, retried};
use metric::Slot;
use parking_lot::{Mutex, RwLock};

use crate::{
    buffer::Buffer,
    lost::{self, Lost},
    manifest::ManifestFile,
    row_file::{self, Flushes, Header, Lookup, Missed, ReadFrom, RowFile},
    row_key::RowKey,
    rows::Recoder,
    window_key::{WindowKey, folder},
};

#[derive(Debug, Default)]
struct State {
    /// Rows since the last flush began.
    active: Buffer,
    /// Rows that a flush is writing; older than the active ones.
    frozen: Option<Arc<Buffer>>,
    /// In the order of their flushes.
    files: Arc<Vec<Arc<RowFile>>>,
    last_flush: Option<Instant>,
    /// No merge before this time, after one that failed.
    merge_again_at: Option<Instant>,
    /// Rows that were lost; the manifest keeps them.
    lost: Arc<Vec<Lost>>,
    /// Files that a start did not find, in the order of their flushes; the manifest keeps them, too.
    missing: Arc<Vec<ManifestFile>>,
    /// When the oldest row came that is in memory alone.
    oldest_unsynced: Option<Instant>,
}

/// A window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) key: WindowKey,
    pub(crate) dir: PathBuf,
    /// Set when the window expires, with every file of it.
    pub(crate) is_expired: Arc<AtomicBool>,
    /// Set while a file cannot be opened that the start found: a merge of its neighbours would take its place.
    is_incomplete: AtomicBool,
    /// Files that are not in use because they are shorter than they were: until their lengths stay the same.
    short: Mutex<BTreeMap<PathBuf, Short>>,
    /// Whether the folder is on the disk for good.
    has_folder: AtomicBool,
    state: RwLock<State>,
}

/// A file that is shorter than it was.
#[derive(Debug)]
struct Short {
    /// Its bytes when it is whole.
    whole: u64,
    /// Its bytes now, and since when.
    len: u64,
    since: Instant,
}

impl Short {
    /// Whether it may be growing still, or its length be one of before.
    fn is_unsettled(&mut self, len: u64, now: Instant) -> bool {
        if len != self.len {
            (self.len, self.since) = (len, now);
        }
        len < self.whole && now.duration_since(self.since) < SETTLED_AFTER
    }
}

/// How long a file that is shorter than it was has had one length before it is used. A network disk gives the length of before for a
/// minute at most.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

impl Window {
    pub(crate) fn new(store: &Path, key: WindowKey) -> Window {
        Window {
            key,
            dir: store.join(folder(key)),
            is_expired: Arc::default(),
            is_incomplete: AtomicBool::new(false),
            short: Mutex::default(),
            has_folder: AtomicBool::new(false),
            state: RwLock::default(),
        }
    }

    /// Whether a file that has this length now, and had `whole` bytes, may be growing still, or its length be one of before.
    pub(crate) fn is_unsettled(&self, path: &Path, len: u64, whole: u64, now: Instant) -> bool {
        let mut short = self.short.lock();
        let file = short.entry(path.to_owned()).or_insert(Short { whole, len, since: now });
        file.is_unsettled(len, now)
    }

    /// Whether one of the files that were found short is unsettled, see [`Window::is_unsettled`].
    pub(crate) fn has_unsettled(&self, disk: &dyn Disk, now: Instant) -> bool {
        let mut is_any = false;
        self.short.lock().retain(|path, file| match retried(|| row_file::len_of(disk, path)) {
            Ok(len) => {
                is_any |= file.is_unsettled(len, now);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            // It may grow meanwhile: its minute begins again. Other files of the window need not wait for it.
            Err(_) => {
                file.since = now;
                true
            }
        });
        is_any
    }

    /// Whether a file of it cannot be opened. It may be opened later.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Acquire)
    }

    /// The header of a file that is in the place of these flushes.
    pub(crate) fn header_of(&self, store: u128, flushes: Flushes) -> Header {
        let (table, window) = self.key;
        Header { store, table, window, flushes }
    }

    /// The folder is on the disk for good.
    pub(crate) fn has_folder(&self) {
        self.has_folder.store(true, Relaxed);
    }

    /// Makes the folder, and puts it and those above it on the disk.
    pub(crate) fn make_folder(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.has_folder.load(Relaxed) {
            return Ok(());
        }
        disk.create_dir_all(&self.dir)?;
        // A file is only as durable as the folders that it is in.
        for above in self.dir.ancestors().skip(1).take(2) {
            disk.sync_dir(above)?;
        }
        self.has_folder();
        Ok(())
    }

    pub(crate) fn is_aggregated(&self) -> bool {
        self.key.0.aggregated
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired.load(Relaxed)
    }

    /// Appends segments to rows in memory, and returns by how many bytes these change.
    pub(crate) fn append<'a>(
        &self,
        segments: impl Iterator<Item = (RowKey, &'a [u8])>,
        newest: Slot,
        now: Instant,
        recoder: &mut Recoder,
    ) -> i64 {
        let mut state = self.state.write();
        state.oldest_unsynced.get_or_insert(now);
        let active = &mut state.active;
        let before = active.bytes();
        active.note_newest(newest);
        segments.for_each(|(key, segment)| active.append(key, segment, self.key.0.aggregated, recoder));
        // A row that is coded again may shrink.
        active.bytes() as i64 - before as i64
    }

    /// Bytes of rows in memory.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let state = self.state.read();
        state.active.bytes() + state.frozen.as_ref().map_or(0, |frozen| frozen.bytes())
    }

    /// The rows to be flushed. They stay readable until [`Window::flushed`] or [`Window::thaw`].
    pub(crate) fn freeze(&self) -> Option<Arc<Buffer>> {
        let mut state = self.state.write();
        debug_assert!(state.frozen.is_none(), "one flush at a time, and each ends");
        if state.active.is_empty() {
            return None;
        }
        let frozen = Arc::new(std::mem::take(&mut state.active));
        state.frozen = Some(frozen.clone());
        Some(frozen)
    }

    /// The frozen rows are in this file. Returns by how many bytes those in memory change.
    pub(crate) fn flushed(&self, file: RowFile, now: Instant) -> i64 {
        let mut state = self.state.write();
        let bytes = state.frozen.take().map_or(0, |frozen| frozen.bytes() as i64);
        state.last_flush = Some(now);
        if state.active.is_empty() {
            state.oldest_unsynced = None;
        }
        let mut files = (*state.files).clone();
        files.push(Arc::new(file));
        state.files = Arc::new(files);
        -bytes
    }

    /// The frozen rows could not be written: they are in memory as before. Returns by how many bytes those change.
    pub(crate) fn thaw(&self) -> i64 {
        let mut state = self.state.write();
        let Some(frozen) = state.frozen.take() else { return 0 };
        let before = (frozen.bytes() + state.active.bytes()) as i64;
        let newer = std::mem::take(&mut state.active);
        let mut rows = Arc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        rows.lay_over(newer, self.is_aggregated());
        state.active = rows;
        state.active.bytes() as i64 - before
    }

    /// Files in the order of their flushes.
    pub(crate) fn files(&self) -> Arc<Vec<Arc<RowFile>>> {
        self.state.read().files.clone()
    }

    /// Sets the files that were found, and those that are missing, at once: between the two a reader would take the points of a file
    /// that is back for points that never were.
    pub(crate) fn set_files(&self, files: Vec<Arc<RowFile>>, missing: Option<Vec<ManifestFile>>, is_incomplete: bool) {
        self.short.lock().retain(|path, _| files.iter().all(|file| file.path() != path));
        let mut state = self.state.write();
        state.files = Arc::new(files);
        if let Some(missing) = missing {
            state.missing = in_order(missing);
        }
        drop(state);
        // Behind the files: a reader that sees a complete window sees all of them.
        self.is_incomplete.store(is_incomplete, Release);
    }

    /// Rows that were lost for good.
    pub(crate) fn lost(&self) -> Arc<Vec<Lost>> {
        self.state.read().lost.clone()
    }

    /// A start found rows that were lost when this flush was the last one.
    pub(crate) fn lost_until(&self, flush: u64) {
        let mut state = self.state.write();
        let dated = |lost: &Lost| Lost { flush: lost.flush.min(flush), ..*lost };
        state.lost = Arc::new(state.lost.iter().map(dated).collect());
    }

    /// Files that a start did not find.
    pub(crate) fn missing(&self) -> Arc<Vec<ManifestFile>> {
        self.state.read().missing.clone()
    }

    /// Sets the files that are missing.
    pub(crate) fn set_missing(&self, missing: Vec<ManifestFile>) {
        self.state.write().missing = in_order(missing);
    }

    /// What the missing files had is lost, also where they come back.
    pub(crate) fn give_up_missing(&self) {
        let missing = std::mem::take(&mut self.state.write().missing);
        self.add_lost(&missing.iter().flat_map(ManifestFile::lost).collect::<Vec<_>>());
    }

    /// Ranges of files that may be merged: no file is missing between two of them.
    pub(crate) fn mergeable(&self) -> Vec<Range<usize>> {
        let state = self.state.read();
        let place = |missing: &ManifestFile| {
            state.files.partition_point(|file| file.header().flushes.first < missing.flushes.first)
        };
        let mut places: Vec<usize> = state.missing.iter().map(place).collect();
        places.push(state.files.len());
        let mut first = 0;
        places
            .into_iter()
            .map(|end| std::mem::replace(&mut first, end)..end)
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// As [`Window::mergeable`], between files that the disk did not return to a merge a short while ago.
    pub(crate) fn mergeable_at(&self, now: Instant) -> Vec<Range<usize>> {
        let files = self.files();
        let mut ranges = Vec::new();
        for range in self.mergeable() {
            let mut first = range.start;
            for place in range.clone().filter(|place| files.get(*place).is_some_and(|file| !file.may_merge(now))) {
                ranges.push(first..place);
                first = place + 1;
            }
            ranges.push(first..range.end);
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// Remembers rows that were lost, until the window expires.
    pub(crate) fn add_lost(&self, lost: &[Lost]) {
        let mut state = self.state.write();
        let mut all = (*state.lost).clone();
        lost::add(&mut all, lost);
        state.lost = Arc::new(all);
    }

    /// Whether a merge may begin: none failed a short while ago.
    pub(crate) fn may_merge(&self, now: Instant) -> bool {
        self.state.read().merge_again_at.is_none_or(|at| at <= now)
    }

    /// No merge begins before this time.
    pub(crate) fn merge_again_at(&self, at: Instant) {
        self.state.write().merge_again_at = Some(at);
    }

    /// Puts a merged file in the place of those that it was made of, which are next to each other.
    pub(crate) fn replace(&self, merged: &[Arc<RowFile>], by: RowFile) {
        let mut state = self.state.write();
        let mut files = (*state.files).clone();
        let place = files.iter().position(|file| Arc::ptr_eq(file, &merged[0]));
        let place = place.expect("one merge at a time, and only merges remove files");
        files.splice(place..place + merged.len(), [Arc::new(by)]);
        state.files = Arc::new(files);
    }

    /// Bytes of each file, in the order of their flushes.
    pub(crate) fn file_bytes(&self) -> Vec<u64> {
        self.files().iter().map(|file| file.len()).collect()
    }

    /// When the last flush wrote to it; `now` if none did since the start, and from then on.
    pub(crate) fn last_flush(&self, now: Instant) -> Instant {
        *self.state.write().last_flush.get_or_insert(now)
    }

    /// Bytes of files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.files().iter().map(|file| file.len()).sum()
    }

    /// When the oldest row came that is in memory alone.
    pub(crate) fn oldest_unsynced(&self) -> Option<Instant> {
        self.state.read().oldest_unsynced
    }

    /// The newest slot that any row has.
    pub(crate) fn newest(&self) -> Option<Slot> {
        let state = self.state.read();
        let in_files = state.files.iter().filter(|file| 0 < file.summary().rows).map(|file| file.summary().newest);
        in_files.chain(state.active.newest()).chain(state.frozen.as_ref().and_then(|frozen| frozen.newest())).max()
    }

    /// Calls `each` with the place of every key and each row that it has, oldest first, and with what is lost or cannot be read between
    /// them. Keys rise, and may repeat.
    pub(crate) fn rows(
        &self,
        keys: &[RowKey],
        from: ReadFrom,
        mut each: impl FnMut(usize, Lookup<'_>),
    ) -> Result<(), Missed> {
        // Before the files: a reader that sees a complete window sees all of them.
        let is_incomplete = self.is_incomplete();
        let (mut copied, mut places) = (Vec::new(), Vec::new());
        let (files, frozen, lost, missing) = {
            let state = self.state.read();
            if !state.active.is_empty() {
                for (place, key) in keys.iter().enumerate() {
                    if let Some(row) = state.active.get(*key) {
                        copied.extend_from_slice(row);
                        places.push((place, copied.len()));
                    }
                }
            }
            (state.files.clone(), state.frozen.clone(), state.lost.clone(), state.missing.clone())
        };
        let mut gaps = Gaps::of(&lost, &missing);
        for file in files.iter() {
            gaps.before(file.header().flushes.first, keys, &mut each);
            file.rows(keys, from, &mut each)?;
        }
        gaps.before(u64::MAX, keys, &mut each);
        if is_incomplete {
            // Where the flushes of the files are that cannot be opened is not asked.
            (0..keys.len()).for_each(|place| each(place, Lookup::Unreadable(Slot::MAX)));
        }
        if let Some(frozen) = frozen {
            for (place, key) in keys.iter().enumerate() {
                if let Some(row) = frozen.get(*key) {
                    each(place, Lookup::Row(row));
                }
            }
        }
        let mut start = 0;
        for (place, end) in places {
            each(place, Lookup::Row(&copied[start..end]));
            start = end;
        }
        Ok(())
    }
}

fn in_order(mut missing: Vec<ManifestFile>) -> Arc<Vec<ManifestFile>> {
    missing.sort_unstable_by_key(|file| file.flushes);
    Arc::new(missing)
}

/// What a window has no rows of, in the order of flushes: rows of files whose first flush is later are newer.
struct Gaps<'a> {
    all: Vec<(u64, Gap<'a>)>,
    next: usize,
}

#[derive(Clone, Copy)]
enum Gap<'a> {
    Lost(&'a Lost),
    Missing(&'a ManifestFile),
}

impl<'a> Gaps<'a> {
    fn of(lost: &'a [Lost], missing: &'a [ManifestFile]) -> Gaps<'a> {
        let lost = lost.iter().map(|lost| (lost.flush, Gap::Lost(lost)));
        let missing = missing.iter().map(|file| (file.flushes.last, Gap::Missing(file)));
        let mut all: Vec<_> = lost.chain(missing).collect();
        all.sort_by_key(|(flush, _)| *flush);
        Gaps { all, next: 0 }
    }

    /// Calls `each` with the keys of what is not newer than rows of a file whose first flush this is.
    fn before(&mut self, flush: u64, keys: &[RowKey], each: &mut impl FnMut(usize, Lookup<'_>)) {
        while let Some((_, gap)) = self.all.get(self.next).filter(|(last, _)| *last < flush || flush == u64::MAX) {
            self.next += 1;
            match *gap {
                Gap::Lost(lost) => {
                    let first = keys.partition_point(|key| *key < lost.first);
                    let end = keys.partition_point(|key| *key <= lost.last);
                    (first..end).for_each(|place| each(place, Lookup::Lost(lost)));
                }
                Gap::Missing(file) => {
                    let (first, last) = file.groups();
                    let (first, end) =
                        (keys.partition_point(|key| key.group < first), keys.partition_point(|key| key.group <= last));
                    let lookup = Lookup::Missing { newest: file.newest, is_gone: file.is_gone };
                    let touched = (first..end).filter(|&place| file.may_have_had(keys[place].metric));
                    touched.for_each(|place| each(place, lookup));
                }
            }
        }
    }
}
