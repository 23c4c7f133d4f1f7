//! A file of rows that is in use: rows by their keys, through the cache.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use host::{Backoff, DiskFile};
use metric::{MetricId, Slot};
use parking_lot::Mutex;
use store::{Damage, Incarnation};

use super::{
    file_header::Header,
    footer::Summary,
    index::{Entry, Index},
    obsolete::Obsolete,
    open::{BlockError, IndexAt, OpenError, Opened, Problem, open, read_block, read_index},
    row_block::MarkedBlock,
    writer::Written,
};
use crate::{
    cache::{Cached, Shared},
    lost::Lost,
    row_key::{GROUP_SLOTS, RowKey},
    window_key::window_slots,
};

/// The offset of an index in the cache: no block has it.
const INDEX: u64 = u64::MAX;

/// What a finding says of a file that is not in its place.
pub(crate) const MISSING: &str = "it is missing";

/// Files of this process, so that each has a number.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Where bytes may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// The cache alone: the caller must not wait.
    Cache,
    /// The cache, or the disk.
    Disk,
}

/// Why a file cannot answer now.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The bytes are not in the cache.
    NotCached,
    /// The file cannot be opened because the process has too many open files, or no memory. Nothing is known to be
    /// damaged.
    Io(PathBuf, io::Error),
}

/// Whether the process lacks something that another file would need as well.
pub(crate) fn is_short_of_something(error: &io::Error) -> bool {
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(EINTR | EAGAIN | ENOMEM | ENFILE | EMFILE))
}

/// What a file has for a key, or a window has in the place of a file.
#[derive(Clone, Copy)]
pub(crate) enum Lookup<'a> {
    /// The row.
    Row(&'a [u8]),
    /// The bytes that may have the row, with slots up to this one, are not those that were written.
    Damaged(Slot),
    /// The disk did not return the bytes that may have the row, with slots up to this one. It may later.
    Unreadable(Slot),
    /// The file, which may have the row, with slots up to this one, went from its place while it was in use. It may be put back.
    NotThere(Slot),
    /// These rows, of whose keys it is one, were left out of a merge, or lost otherwise.
    Lost(&'a Lost),
    /// A file which may have the row, with slots up to this one, is missing, or gone for good.
    Missing { newest: Slot, is_gone: bool },
}

impl Lookup<'_> {
    fn failed(error: &io::Error, newest: Slot) -> Lookup<'static> {
        match error.kind() {
            io::ErrorKind::NotFound => Lookup::NotThere(newest),
            _ => Lookup::Unreadable(newest),
        }
    }
}

/// What the manifest says of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Zero where it is not known.
    pub(crate) rows: u64,
    /// The lowest and the highest.
    pub(crate) metrics: (MetricId, MetricId),
    pub(crate) newest: Slot,
    /// The checksum of the index that the footer said; zero where it could never be read.
    pub(crate) index_crc: u32,
}

/// Waits of merges with a file that the disk does not return whole.
const UNMERGED: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(86_400));

/// A file that merges leave out for a while.
#[derive(Debug)]
struct Unmerged {
    backoff: Backoff,
    until: Option<Instant>,
}

impl Default for Unmerged {
    fn default() -> Unmerged {
        Unmerged { backoff: UNMERGED, until: None }
    }
}

/// A file of rows.
#[derive(Debug)]
pub(crate) struct RowFile {
    /// Its number in this process.
    number: u64,
    path: PathBuf,
    shared: Arc<Shared>,
    header: Header,
    seal: u32,
    len: u64,
    index_at: Option<IndexAt>,
    summary: Summary,
    opening: Option<Incarnation>,
    /// Whether reads of the footer failed when the file was opened.
    is_footer_unread: bool,
    /// Of a file without a footer, what its rows are of by the manifest.
    bounds: Option<Bounds>,
    /// Set while the file is not in its place, as far as reads found out.
    is_away: AtomicBool,
    /// Set once another file has the rows, and the manifest says so: the file is removed with its last reader.
    is_obsolete: AtomicBool,
    /// When a merge may read it again, after one that could not.
    unmerged: Mutex<Unmerged>,
    /// Set when the window of the file expires: its folder has moved, and what cannot be read is not damage.
    is_expired: Arc<AtomicBool>,
}

impl RowFile {
    /// Opens a file and reports what of it cannot be read. `expected` is its header by its path.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        path: &Path,
        expected: Header,
        is_expired: &Arc<AtomicBool>,
    ) -> Result<RowFile, OpenError> {
        let opened = open(&*shared.disk, path, Some(expected))?;
        let Opened { len, header, seal, index_at, summary, opening, problems, is_footer_unread, .. } = opened;
        let found = Written { path: path.to_owned(), header, seal, len, index_at, summary, opening };
        let mut file = RowFile::of_written(shared, found, is_expired);
        file.is_footer_unread = is_footer_unread;
        problems.iter().for_each(|problem| file.report_problem(problem));
        Ok(file)
    }

    /// A file that was written.
    pub(crate) fn of_written(shared: &Arc<Shared>, written: Written, is_expired: &Arc<AtomicBool>) -> RowFile {
        let Written { path, header, seal, len, index_at, summary, opening } = written;
        RowFile {
            number: FILES.fetch_add(1, Relaxed),
            path,
            shared: shared.clone(),
            header,
            seal,
            len,
            index_at,
            summary,
            opening,
            is_footer_unread: false,
            bounds: None,
            is_away: AtomicBool::new(false),
            is_obsolete: AtomicBool::new(false),
            unmerged: Mutex::default(),
            is_expired: is_expired.clone(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The opening of the store that wrote it; `None` where it does not say, or its footer is damaged.
    pub(crate) fn opening(&self) -> Option<Incarnation> {
        self.opening
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Of a file without a footer, what the manifest says of its rows: damage of it touches no others.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        let Bounds { rows, metrics, newest, index_crc } = bounds;
        let Summary { rows: read, metrics: (lowest, highest), newest: newest_read, .. } = self.summary;
        // Version 0.1.0 wrote those of the rows that it could read, if it could not read the footer.
        let are_of_all = read < rows || read == rows && index_crc != 0;
        // Where it is another file, the manifest says nothing of it.
        let are_its = are_of_all && metrics.0 <= lowest && highest <= metrics.1 && newest_read <= newest;
        if self.index_at.is_some() || !are_its {
            return;
        }
        self.bounds = Some(bounds);
        self.summary.first = self.summary.first.max(RowKey { metric: metrics.0, ..self.summary.first });
        let last = RowKey { group: newest / GROUP_SLOTS, metric: metrics.1 };
        self.summary.last = self.summary.last.min(last);
    }

    /// The lowest and the highest metric that the file may have had; none where that is not known.
    fn possible_metrics(&self) -> Option<(MetricId, MetricId)> {
        match self.bounds {
            Some(Bounds { metrics, .. }) => Some(metrics),
            None => self.index_at.map(|_| self.summary.metrics),
        }
    }

    /// Whether the file may have had rows of a metric.
    fn may_have_had(&self, metric: MetricId) -> bool {
        self.possible_metrics().is_none_or(|(lowest, highest)| (lowest..=highest).contains(&metric))
    }

    /// The newest slot that a row may have had: without a footer, that of the manifest, or the last of the window.
    pub(crate) fn newest_possible(&self) -> Slot {
        self.possible().newest
    }

    /// What its rows are of, those that are lost with a part of it, too. Where that is not known, the metrics are those that can be read.
    pub(crate) fn possible(&self) -> Bounds {
        let Summary { rows, metrics, newest, .. } = self.summary;
        if let Some(bounds) = self.bounds {
            return bounds;
        }
        if let Some(IndexAt { crc: index_crc, .. }) = self.index_at {
            return Bounds { rows, metrics, newest, index_crc };
        }
        let slots = window_slots(self.header.table.stage);
        let last = self.header.window.saturating_add(1).saturating_mul(slots).saturating_sub(1);
        Bounds { rows: 0, metrics, newest: last, index_crc: 0 }
    }

    /// The checksum of the index; zero where it is not known, because the footer is damaged.
    pub(crate) fn index_crc(&self) -> u32 {
        self.index_at.map_or(0, |at| at.crc)
    }

    /// Whether reads of the footer failed when the file was opened: the manifest may know more of it.
    pub(crate) fn is_footer_unread(&self) -> bool {
        self.is_footer_unread
    }

    /// Whether the file went from its place while it was in use, and was not found back so far.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Relaxed) && !self.is_expired.load(Relaxed)
    }

    /// Ends the finding of a file that went from its place, once it is back. Merges read it again.
    pub(crate) fn look_whether_back(&self) {
        // One that is being copied is not back yet.
        let is_back = || super::open::len_of(&*self.shared.disk, &self.path).is_ok_and(|len| self.len <= len);
        if self.is_away() && is_back() {
            self.is_away.store(false, Relaxed);
            *self.unmerged.lock() = Unmerged::default();
            let file = self.shared.shown(&self.path);
            self.shared.damage.mend(|damage| damage.how == MISSING && damage.file == file);
            tracing::info!(file, "a file of rows that went from its place is back");
        }
    }

    /// Whether a merge may read it: none failed to a short while ago.
    pub(crate) fn may_merge(&self, now: Instant) -> bool {
        self.unmerged.lock().until.is_none_or(|until| until <= now)
    }

    /// A merge could not read all of it: returns how long others leave it out.
    pub(crate) fn merge_later(&self, now: Instant) -> Duration {
        let mut unmerged = self.unmerged.lock();
        let wait = unmerged.backoff.next_wait();
        unmerged.until = Some(now + wait);
        wait
    }

    /// Removes the file once its last reader is done. The manifest no longer names it.
    pub(crate) fn remove_after_use(&self) {
        self.is_obsolete.store(true, Relaxed);
    }

    /// The file for a query. One that cannot be opened costs what it has, unless the reason is the process.
    fn opened(&self) -> Result<io::Result<Arc<dyn DiskFile>>, Missed> {
        match self.file() {
            Err(error) if is_short_of_something(&error) => Err(Missed::Io(self.path.clone(), error)),
            Err(_) => Ok(self.file()),
            opened => Ok(opened),
        }
    }

    fn file(&self) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.shared.file(self.number, &self.path);
        if matches!(&file, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            self.is_away.store(true, Relaxed);
        }
        file
    }

    /// The index, from the cache or the disk.
    pub(crate) fn index(&self, from: ReadFrom) -> Result<io::Result<Arc<Index>>, Missed> {
        let place = (self.number, INDEX);
        match self.shared.cached(place) {
            Some(Cached::Index(index)) => return Ok(Ok(index)),
            _ if from == ReadFrom::Cache => return Err(Missed::NotCached),
            _ => {}
        }
        let file = match self.opened()? {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        let (index, problem) = match read_index(&*file, self.seal, self.len, self.index_at) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(problem) = problem {
            self.report_problem(&problem);
        }
        let index = Arc::new(index);
        self.shared.keep(place, Cached::Index(index.clone()));
        Ok(Ok(index))
    }

    fn block(&self, entry: &Entry, from: ReadFrom) -> Result<Result<Arc<MarkedBlock>, BlockError>, Missed> {
        let place = (self.number, entry.offset);
        match self.shared.cached(place) {
            Some(Cached::Block(block)) => return Ok(Ok(block)),
            _ if from == ReadFrom::Cache => return Err(Missed::NotCached),
            _ => {}
        }
        if let Err(error) = self.opened()? {
            return Ok(Err(BlockError::Io(error)));
        }
        Ok(self.read_block(entry).map(|block| {
            let block = Arc::new(MarkedBlock::new(block));
            self.shared.keep(place, Cached::Block(block.clone()));
            block
        }))
    }

    /// Reads a block past the cache, as merges do: what they read is not what queries read.
    pub(crate) fn read_block(&self, entry: &Entry) -> Result<Vec<u8>, BlockError> {
        let file = self.file().map_err(BlockError::Io)?;
        read_block(&*file, self.seal, entry.offset, entry.len)
    }

    /// Some bytes as they are.
    pub(crate) fn raw(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file()?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Whether the file may have rows with keys between these.
    pub(crate) fn may_have(&self, first: RowKey, last: RowKey) -> bool {
        self.summary.first <= last && first <= self.summary.last
    }

    /// Calls `each` with the place of every key that the file has, or may have where it is damaged. Keys rise, and may
    /// repeat. Each block is read once.
    pub(crate) fn rows(
        &self,
        keys: &[RowKey],
        from: ReadFrom,
        mut each: impl FnMut(usize, Lookup<'_>),
    ) -> Result<(), Missed> {
        let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else { return Ok(()) };
        if !self.may_have(first, last) {
            return Ok(());
        }
        match self.rows_of_blocks(keys, from, &mut each) {
            // The folder has moved to the trash.
            Err(Missed::Io(..)) if self.is_expired.load(Relaxed) => Ok(()),
            answered => answered,
        }
    }

    fn rows_of_blocks(
        &self,
        keys: &[RowKey],
        from: ReadFrom,
        each: &mut impl FnMut(usize, Lookup<'_>),
    ) -> Result<(), Missed> {
        let index = match self.index(from)? {
            Ok(index) => index,
            Err(error) => {
                self.report_unreadable(&error);
                let maybe = |key: &RowKey| self.may_have(*key, *key) && self.may_have_had(key.metric);
                let damaged = keys.iter().enumerate().filter(|(_, key)| maybe(key));
                if !self.is_expired.load(Relaxed) {
                    let newest = self.newest_possible();
                    damaged.for_each(|(place, _)| each(place, Lookup::failed(&error, newest)));
                }
                return Ok(());
            }
        };
        let (mut next, mut before) = (0, 0);
        while next < keys.len() {
            let Some(number) = index.find(keys[next], before) else {
                next += 1;
                continue;
            };
            // The keys that only this block may have.
            let end = index
                .blocks
                .get(number + 1)
                .map_or(keys.len(), |block| next + keys[next..].partition_point(|key| *key < block.first));
            self.rows_of_block(&index, number, next, &keys[next..end], from, each)?;
            (next, before) = (end, number);
        }
        Ok(())
    }

    fn rows_of_block(
        &self,
        index: &Index,
        number: usize,
        place: usize,
        keys: &[RowKey],
        from: ReadFrom,
        each: &mut impl FnMut(usize, Lookup<'_>),
    ) -> Result<(), Missed> {
        let entry = &index.blocks[number];
        // The last block ends with the file's last key.
        if number + 1 == index.blocks.len() && keys.first().is_some_and(|key| self.summary.last < *key) {
            return Ok(());
        }
        let block = self.block(entry, from)?;
        let newest = self.newest_possible();
        let failed = match &block {
            Err(BlockError::Io(error)) => Lookup::failed(error, newest),
            _ => Lookup::Damaged(newest),
        };
        let block = block.map_err(|error| match &error {
            BlockError::Io(error) if error.kind() == io::ErrorKind::NotFound => self.report_unreadable(error),
            error => self.report_block(index, number, error),
        });
        let is_read = block.is_ok_and(|block| block.find(keys, |i, row| each(place + i, Lookup::Row(row))));
        if !is_read && !self.is_expired.load(Relaxed) {
            // What is behind the last key of the file is in none of its rows.
            let last = index.last_key(number, self.summary.last).max(entry.first);
            let in_block = keys.partition_point(|key| *key <= last);
            let touched = (0..in_block).filter(|&i| self.may_have_had(keys[i].metric));
            touched.for_each(|i| each(place + i, failed));
        }
        Ok(())
    }

    /// What is lost with a block.
    pub(crate) fn damage_of_block(&self, index: &Index, number: usize, how: &dyn std::fmt::Display) -> Damage {
        let entry = &index.blocks[number];
        let (first, last) = self.keys_of(index, number);
        Damage {
            what: "block of rows",
            file: self.shared.shown(&self.path),
            how: format!("bytes {} to {}: {how}", entry.offset, entry.offset + u64::from(entry.len)),
            bytes: u64::from(entry.len),
            metrics: first.metrics_to(last).or(self.possible_metrics()),
            span: Some(first.span_to(last, self.header.table.stage)),
            ..Damage::default()
        }
    }

    /// The rows that are lost with a block.
    pub(crate) fn lost_with_block(&self, index: &Index, number: usize) -> Vec<Lost> {
        let (first, last) = self.keys_of(index, number);
        self.lost_between(first, last)
    }

    /// The first and the last key that a block may have had. Where its header is lost with the index, the first of the window.
    fn keys_of(&self, index: &Index, number: usize) -> (RowKey, RowKey) {
        let group = self.header.window.saturating_mul(window_slots(self.header.table.stage)) / GROUP_SLOTS;
        let first = index.blocks[number].first.max(RowKey { group, metric: MetricId(0) });
        (first, index.last_key(number, self.summary.last).max(first))
    }

    /// The rows that are lost with these keys.
    pub(crate) fn lost_between(&self, first: RowKey, last: RowKey) -> Vec<Lost> {
        let lost = Lost { first, last, newest: self.newest_possible(), flush: self.header.flushes.last };
        self.possible_metrics().map_or(vec![lost], |metrics| lost.of_metrics(metrics))
    }

    fn report_block(&self, index: &Index, number: usize, error: &BlockError) {
        if !self.is_expired.load(Relaxed) {
            self.shared.report(self.damage_of_block(index, number, error));
        }
    }

    fn report_problem(&self, problem: &Problem) {
        let Problem { what, offset, bytes, how } = problem;
        let file = self.shared.shown(&self.path);
        let how = format!("bytes {offset} to {}: {how}; the rows are found without them", offset + bytes);
        self.shared.report(Damage { what, file, how, bytes: *bytes, ..Damage::default() });
    }

    fn report_unreadable(&self, error: &io::Error) {
        if !self.is_expired.load(Relaxed) {
            self.shared.report(Damage {
                what: "file of rows",
                file: self.shared.shown(&self.path),
                how: if error.kind() == io::ErrorKind::NotFound { MISSING.to_owned() } else { error.to_string() },
                bytes: self.len,
                metrics: Some(self.summary.metrics),
                span: Some(self.summary.first.span_to(self.summary.last, self.header.table.stage)),
                ..Damage::default()
            });
        }
    }
}

impl Drop for RowFile {
    fn drop(&mut self) {
        self.shared.close(self.number);
        if !self.is_obsolete.load(Relaxed) || self.is_expired.load(Relaxed) {
            return;
        }
        // This thread may be one that must not wait for the disk.
        self.shared.remove_later(Obsolete {
            path: std::mem::take(&mut self.path),
            len: self.len,
            seal: self.seal,
            has_footer: self.index_at.is_some(),
            stage: self.header.table.stage,
            summary: self.summary,
            is_expired: self.is_expired.clone(),
        });
    }
}
