//! What the manifest will say: numbers of flushes, windows that expire, and files that can go once it is written.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::Disk;
use metric::{MetricId, Timestamp};
use store::{Damage, JournalMark};

use crate::{
    manifest::{Manifest, ManifestFile},
    record_log::{LogEnd, LogEnds, LogFiles},
    row_file::{Flushes, RowFile},
    window::Window,
    window_key::WindowKey,
};

/// The name of the manifest in the folder of a store.
pub(crate) const MANIFEST: &str = "manifest";

/// A file that cannot be used, and that the manifest does not have because it was made again.
#[derive(Debug)]
pub(crate) struct Unlisted {
    pub(crate) window: WindowKey,
    pub(crate) flushes: Flushes,
    pub(crate) path: PathBuf,
    pub(crate) damage: Damage,
}

/// The state that the manifest keeps besides the files of windows.
#[derive(Debug)]
pub(crate) struct Commits {
    path: PathBuf,
    pub(crate) store: u128,
    next_flush: u64,
    /// The number of the manifest that a start found.
    found_next: u64,
    /// The flushes of files that are newer than the manifest that the start found, and how many files those are.
    newer: (BTreeSet<u64>, u64),
    /// Whether files in use have flushes that the manifest which the start found does not know.
    has_newer: bool,
    /// A flush under way: after a crash its files are newer than the manifest.
    flushing: Option<u64>,
    metrics_below: u32,
    /// When the manifest was made again of the files.
    pub(crate) remade: Option<Timestamp>,
    pub(crate) journal: Option<JournalMark>,
    /// What the manifest on the disk says of the ends of the logs.
    pub(crate) ends: LogEnds,
    /// The logs of names and events, once what they have lost is noted in them.
    logs: [Option<LogFiles>; 2],
    /// Windows that are not used any more and whose folders are not in the trash yet.
    pub(crate) expired: BTreeSet<WindowKey>,
    /// Files that the disk did not return at the start. The next start may read them.
    pub(crate) unreadable: Vec<ManifestFile>,
    /// What the manifest says of files whose footer could not be read at the start.
    pub(crate) unread: Vec<ManifestFile>,
    /// Files whose rows are in a merged one: removed once the manifest says so.
    obsolete: Vec<Arc<RowFile>>,
    /// Files that cannot be used and whose lines the manifest may have lost: put aside once the manifest says what they had.
    pub(crate) unlisted: Vec<Unlisted>,
    /// Whether the manifest on the disk says something else.
    is_behind: bool,
}

/// Above the flushes of all files that a manifest names. One that is missing may be put back: its number is not given again.
pub(crate) fn above_all_files(manifest: &Manifest) -> u64 {
    let files = manifest.files.iter().chain(&manifest.missing);
    files.map(|file| file.flushes.last + 1).max().unwrap_or(0)
}

impl Commits {
    /// As a manifest has it; without files, which belong to windows.
    pub(crate) fn of(dir: &Path, store: u128, manifest: &Manifest) -> Commits {
        Commits {
            path: dir.join(MANIFEST),
            store,
            next_flush: manifest.next_flush.max(1).max(above_all_files(manifest)),
            found_next: manifest.next_flush,
            newer: Default::default(),
            has_newer: false,
            flushing: None,
            metrics_below: manifest.metrics_below,
            remade: manifest.remade,
            journal: manifest.journal,
            ends: manifest.ends,
            logs: [None, None],
            expired: manifest.expired.clone(),
            unreadable: Vec::new(),
            unread: Vec::new(),
            obsolete: Vec::new(),
            unlisted: Vec::new(),
            is_behind: false,
        }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether a flush has something to write, as the ends of logs that have grown.
    pub(crate) fn has_news(&self) -> bool {
        self.is_behind || self.ends_now() != self.ends
    }

    /// From now on the manifest says how far these logs are on the disk. Without one it says what it said.
    pub(crate) fn follow(&mut self, names: Option<LogFiles>, events: Option<LogFiles>) {
        self.logs = [names, events];
    }

    /// Everything up to these places is on the disk.
    fn ends_now(&self) -> LogEnds {
        let now = |log: &Option<LogFiles>, known: Option<LogEnd>| log.as_ref().and_then(LogFiles::end).or(known);
        LogEnds { names: now(&self.logs[0], self.ends.names), events: now(&self.logs[1], self.ends.events) }
    }

    /// The manifest on the disk is not right any more.
    pub(crate) fn set_behind(&mut self) {
        self.is_behind = true;
    }

    /// Flushes from this number on were newer than the manifest that the start found.
    pub(crate) fn next_flush_of_manifest(&self) -> u64 {
        self.found_next
    }

    /// All flushes until now have this number or an earlier one.
    pub(crate) fn last_flush(&self) -> u64 {
        self.next_flush - 1
    }

    /// A file with this flush exists: the next one is later.
    pub(crate) fn note_flush(&mut self, flush: u64) {
        self.next_flush = self.next_flush.max(flush + 1);
    }

    /// Numbers of flushes that a damaged manifest says were given are not given again.
    pub(crate) fn note_given(&mut self, salvaged: &Manifest) {
        self.next_flush = self.next_flush.max(salvaged.next_flush).max(above_all_files(salvaged));
    }

    /// Up to which time a file without a line may have points: it is from before the manifest was made again, or newer than the manifest.
    pub(crate) fn unlisted_until(&self, flushes: Flushes, now: Timestamp) -> Timestamp {
        self.remade.filter(|_| flushes.last < self.found_next).unwrap_or(now)
    }

    /// Whether a file is to be put aside once the manifest says what it had.
    pub(crate) fn is_unlisted(&self, window: WindowKey, flushes: Flushes) -> bool {
        self.unlisted.iter().any(|file| (file.window, file.flushes) == (window, flushes))
    }

    /// A file with flushes that the manifest does not know is in use, perhaps as the merge of others that it knows.
    pub(crate) fn note_has_newer(&mut self) {
        self.has_newer = true;
    }

    /// A file is in use that is newer than the manifest that the start found.
    pub(crate) fn note_newer(&mut self, flush: u64) {
        self.newer.0.insert(flush);
        self.newer.1 += 1;
    }

    /// Whether files are in use that are newer than the manifest that the start found.
    pub(crate) fn has_newer(&self) -> bool {
        self.has_newer
    }

    /// Says so where the files are of several flushes: a crash leaves those of one, unless the manifest could not be written.
    pub(crate) fn log_newer(&self) {
        let (flushes, files) = &self.newer;
        if let (Some(first), Some(last)) = (flushes.first(), flushes.last())
            && first < last
        {
            tracing::warn!(
                files,
                first_flush = first,
                last_flush = last,
                manifest_next = self.found_next,
                "files of rows of several flushes are newer than the manifest, and are used; if a folder of a table or the manifest was \
                 copied here, the files are of different times: restore all of one backup"
            );
        }
    }

    /// A number that no flush had.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        let number = self.next_flush;
        self.next_flush += 1;
        self.flushing = Some(number);
        number
    }

    /// All files of the flush are on the disk, or gone.
    pub(crate) fn end_flush(&mut self) {
        self.flushing = None;
        self.is_behind = true;
    }

    /// What the disk did not return of a window that expires is not waited for.
    pub(crate) fn forget_unread(&mut self, key: WindowKey) {
        self.unreadable.retain(|file| file.window != key);
        self.unread.retain(|file| file.window != key);
    }

    /// Files that a merge has replaced.
    pub(crate) fn replaced(&mut self, files: impl IntoIterator<Item = Arc<RowFile>>) {
        self.obsolete.extend(files);
        self.is_behind = true;
    }

    /// The highest metric that a row was ever of.
    pub(crate) fn highest_metric(&self) -> Option<MetricId> {
        self.metrics_below.checked_sub(1).map(MetricId)
    }

    pub(crate) fn note_metric(&mut self, metric: MetricId) {
        self.metrics_below = self.metrics_below.max(metric.0.saturating_add(1));
    }

    /// What the manifest says of a file: what it said, where the footer could not be read.
    fn line_of(&self, file: &RowFile) -> ManifestFile {
        let line = ManifestFile::of(file);
        let is_same = |known: &&ManifestFile| {
            (known.window, known.flushes, known.bytes) == (line.window, line.flushes, line.bytes)
        };
        let known = self.unread.iter().find(is_same).filter(|_| file.is_footer_unread());
        known.copied().unwrap_or(line)
    }

    /// What the manifest has to say.
    pub(crate) fn manifest(&mut self, windows: &[Arc<Window>]) -> Manifest {
        let mut files = self.unreadable.clone();
        for window in windows {
            files.extend(window.files().iter().map(|file| self.line_of(file)));
        }
        let highest = files.iter().filter(|file| file.has_metrics()).map(|file| file.metrics.1).max();
        if let Some(highest) = highest {
            self.note_metric(highest);
        }
        files.sort_unstable_by_key(|file| (file.window, file.flushes));
        Manifest {
            store: self.store,
            next_flush: self.flushing.unwrap_or(self.next_flush),
            metrics_below: self.metrics_below,
            remade: self.remade,
            journal: self.journal,
            ends: self.ends_now(),
            files,
            expired: self.expired.clone(),
            lost: windows
                .iter()
                .flat_map(|window| window.lost().iter().map(|lost| (window.key, *lost)).collect::<Vec<_>>())
                .collect(),
            missing: windows.iter().flat_map(|window| window.missing().to_vec()).collect(),
        }
    }

    /// Writes the manifest; after an error the next commit does. Files that it names no longer are removed.
    pub(crate) fn write(&mut self, disk: &dyn Disk, windows: &[Arc<Window>]) -> io::Result<()> {
        let manifest = self.manifest(windows);
        let text = manifest.encode();
        if let Err(error) = host::replace_file(disk, &self.path, text.as_bytes()) {
            self.is_behind = true;
            return Err(error);
        }
        (self.is_behind, self.ends) = (self.flushing.is_some(), manifest.ends);
        self.obsolete.drain(..).for_each(|file| file.remove_after_use());
        Ok(())
    }
}
