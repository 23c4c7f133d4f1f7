//! Merging the files of a store.
//!
//! One thread merges, the smallest merge first. A large merge takes minutes, and flushes go on meanwhile: between two of
//! its blocks, merges of at most an eighth of its bytes run that are due by then, of other windows and of the newer files of its own.
//! So a window has its files of before and [as few newer ones](crate::merge) as if no large merge ran.

use std::{
    cell::{Cell, RefCell},
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Clock;
use metric::MetricId;
use parking_lot::Mutex;
use store::StoreError;

use crate::{
    folder::io_error,
    merge::{MergeError, Merging, WindowForMerge, choose, choose_within, debt},
    points::Points,
    row_file::{Flushes, RowFile},
    window::Window,
    window_key::window_slots,
};

/// Time without a flush after which a window is quiet, and the time more for each MiB of it.
const QUIET: Duration = Duration::from_secs(20);
const QUIET_FOR_EACH_MIB: Duration = Duration::from_millis(500);

/// A merge runs in the middle of another one that has at least so many times its bytes.
const SMALLER: u64 = 8;

/// Interval between two looks for such merges, and for files that no reader uses any more.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time without merges of a window after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What merges work with.
pub(crate) struct MergeWith<'a> {
    pub(crate) points: &'a Points,
    /// Bytes of the disk that stay free.
    pub(crate) reserve_bytes: u64,
    /// Whether a metric was deleted: its rows are left out.
    pub(crate) is_deleted: &'a (dyn Fn(MetricId) -> bool + Send + Sync),
    /// Ends a merge early.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

/// Merges of a store, and their counters.
#[derive(Debug, Default)]
pub(crate) struct Merges {
    /// Held by the thread that merges.
    running: Mutex<()>,
    pub(crate) merged: AtomicU64,
    /// Those of them that ran in the middle of a larger one.
    pub(crate) merged_meanwhile: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    /// Whether a merge waits for room on the disk.
    pub(crate) is_short_of_disk: AtomicBool,
}

impl Merges {
    /// Merges files until there is nothing to merge, or until it is stopped.
    pub(crate) fn run(&self, with: &MergeWith<'_>) {
        let _running = self.running.lock();
        self.is_short_of_disk.store(false, Relaxed);
        while self.merge_one(with) {}
    }

    /// Runs the smallest merge that is due and has room. False when there is none, or when it was stopped. A window whose
    /// merge fails waits, and the others go on.
    fn merge_one(&self, with: &MergeWith<'_>) -> bool {
        for due in all_due(with.points, None) {
            if (with.is_stopped)() {
                return false;
            }
            if self.merge_due(with, due, true) {
                return true;
            }
        }
        false
    }

    /// Runs merges that are due while a larger one runs.
    fn merge_meanwhile(&self, with: &MergeWith<'_>, larger: &Larger<'_>) {
        // The larger one needs its room as well.
        let with = &MergeWith { reserve_bytes: with.reserve_bytes.saturating_add(larger.bytes), ..*with };
        while let Some(due) = all_due(with.points, Some(larger)).into_iter().next() {
            if (with.is_stopped)() || larger.bytes < due.bytes.saturating_mul(SMALLER) {
                return;
            }
            if !self.merge_due(with, due, false) {
                return;
            }
            self.merged_meanwhile.fetch_add(1, Relaxed);
        }
    }

    fn merge_due(&self, with: &MergeWith<'_>, due: Due, may_be_long: bool) -> bool {
        let Due { window, range, is_last, .. } = due;
        let now = || with.points.shared.clock.instant();
        match self.merge(with, &window, range, (is_last, may_be_long)) {
            Ok(is_merged) => return is_merged,
            Err(MergeFailed::Unread(file, error)) => {
                let wait = file.merge_later(now());
                let file = with.points.shared.shown(file.path());
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
                    tracing::error!(
                        %error,
                        file,
                        again_in_seconds = wait.as_secs(),
                        "a file of rows cannot be opened: it is not merged, and the others of its window are; put it back in its place, or \
                         let the user of the server read it"
                    );
                } else {
                    tracing::error!(
                        %error,
                        file,
                        again_in_seconds = wait.as_secs(),
                        "the disk does not return all of a file of rows: it is not merged, and the others of its window are; if the error \
                         stays, stop the server, copy the file with ddrescue, put the copy in its place, and run plumbago repair"
                    );
                }
            }
            Err(MergeFailed::Other(error)) => {
                window.merge_again_at(now() + AFTER_FAILURE);
                tracing::error!(%error, "cannot merge files of the store; answers are right, and slower; retrying");
            }
        }
        self.failed.fetch_add(1, Relaxed);
        false
    }

    /// Merges every window into one file.
    pub(crate) fn run_fully(&self, with: &MergeWith<'_>) -> Result<(), StoreError> {
        let _running = self.running.lock();
        for window in with.points.windows() {
            // The last first: a merge moves the places of later files.
            for range in window.mergeable().into_iter().rev().filter(|range| 1 < range.len()) {
                if !window.is_incomplete() {
                    self.merge(with, &window, range, (true, false)).map_err(MergeFailed::into_error)?;
                }
            }
        }
        Ok(())
    }

    /// Merges some files of a window; one that may be long lets smaller ones run. False when there was no room, or the merge was
    /// stopped.
    fn merge(
        &self,
        with: &MergeWith<'_>,
        window: &Arc<Window>,
        range: Range<usize>,
        (is_last, may_be_long): (bool, bool),
    ) -> Result<bool, MergeFailed> {
        let all = window.files();
        let files = &all[range];
        let bytes: u64 = files.iter().map(|file| file.len()).sum();
        let free = with.points.shared.disk.free_bytes(&window.dir);
        if free.is_ok_and(|free| free < bytes.saturating_add(with.reserve_bytes)) {
            self.is_short_of_disk.store(true, Relaxed);
            return Ok(false);
        }
        let larger = Larger { window, last: &files[files.len() - 1], bytes };
        let (clock, looked_at) = (&*with.points.shared.clock, Cell::new(None));
        let between = || {
            let now = clock.instant();
            let began = looked_at.get().unwrap_or(now);
            looked_at.set(Some(began));
            if LOOK_EVERY <= now.saturating_duration_since(began) {
                // What only a reader still used is room for the next merge.
                with.points.shared.remove_obsolete();
                if may_be_long {
                    self.merge_meanwhile(with, &larger);
                }
                looked_at.set(Some(clock.instant()));
            }
        };
        let merged = merge_files(with, window, files, is_last, &between);
        drop(all);
        with.points.shared.remove_obsolete();
        match merged {
            Ok(true) => {
                self.merged.fetch_add(1, Relaxed);
                self.written_bytes.fetch_add(bytes, Relaxed);
                Ok(true)
            }
            Ok(false) => Ok(false),
            // The folder has moved to the trash.
            Err(_) if window.is_expired() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn merge_files(
    with: &MergeWith<'_>,
    window: &Window,
    files: &[Arc<RowFile>],
    is_last: bool,
    between: &dyn Fn(),
) -> Result<bool, MergeFailed> {
    let points = with.points;
    let failed = || io_error(format!("merging files in {}", window.dir.display()));
    let flushes = |file: &RowFile| file.header().flushes;
    let flushes = Flushes { first: flushes(&files[0]).first, last: flushes(&files[files.len() - 1]).last };
    let mut writer = points.writer(window, flushes).map_err(failed())?;
    let merging = Merging {
        shared: &points.shared,
        is_aggregated: window.is_aggregated(),
        is_last,
        is_deleted: with.is_deleted,
        is_stopped: &|| {
            between();
            (with.is_stopped)() || window.is_expired()
        },
        lost: RefCell::default(),
    };
    match merging.run(files, &mut writer) {
        Ok(()) => Ok(points.merged(window, files, writer, &merging.lost.take())?),
        Err(MergeError::Stopped) => Ok(false),
        Err(MergeError::Unread(file, error)) => Err(MergeFailed::Unread(file, error)),
        Err(MergeError::Io(error)) => Err(failed()(error).into()),
    }
}

/// Why files could not be merged.
enum MergeFailed {
    /// The disk does not return all of this file. Others may be merged.
    Unread(Arc<RowFile>, io::Error),
    Other(StoreError),
}

impl From<StoreError> for MergeFailed {
    fn from(error: StoreError) -> MergeFailed {
        MergeFailed::Other(error)
    }
}

impl MergeFailed {
    fn into_error(self) -> StoreError {
        match self {
            MergeFailed::Unread(file, error) => io_error(format!("merging {}", file.path().display()))(error),
            MergeFailed::Other(error) => error,
        }
    }
}

/// A merge that is due.
struct Due {
    window: Arc<Window>,
    range: Range<usize>,
    is_last: bool,
    bytes: u64,
}

/// A merge that runs.
struct Larger<'a> {
    window: &'a Arc<Window>,
    /// The newest of its files.
    last: &'a Arc<RowFile>,
    bytes: u64,
}

/// The merges that are due, those of the fewest bytes first: they keep files few while a large one would run. While one runs,
/// files of its window up to its last one are left alone.
fn all_due(points: &Points, running: Option<&Larger<'_>>) -> Vec<Due> {
    let clock = &*points.shared.clock;
    let of_window = |window: Arc<Window>| {
        let running = running.filter(|running| Arc::ptr_eq(running.window, &window));
        let range = match running {
            Some(running) => {
                let files = window.files();
                let newer = files.iter().position(|file| Arc::ptr_eq(file, running.last))? + 1;
                window.mergeable_at(clock.instant()).into_iter().rev().find_map(|among| {
                    let first = newer.max(among.start);
                    let bytes: Vec<u64> = files.get(first..among.end)?.iter().map(|file| file.len()).collect();
                    let range = choose_within(&bytes, running.bytes / SMALLER)?;
                    Some(first + range.start..first + range.end)
                })?
            }
            None => {
                let ranges = window.mergeable_at(clock.instant());
                ranges.into_iter().rev().find_map(|among| due(clock, &window, among))?
            }
        };
        let bytes = window.files()[range.clone()].iter().map(|file| file.len()).sum();
        Some(Due { is_last: running.is_none() && is_past(clock, &window), window, range, bytes })
    };
    let mut due: Vec<Due> = points.windows().into_iter().filter_map(of_window).collect();
    due.sort_by_key(|due| due.bytes);
    due
}

/// Which of some files of a window are to be merged now.
fn due(clock: &dyn Clock, window: &Window, among: Range<usize>) -> Option<Range<usize>> {
    if window.is_incomplete() || !window.may_merge(clock.instant()) {
        return None;
    }
    let bytes = window.file_bytes().get(among.clone())?.to_vec();
    let mib = (bytes.iter().sum::<u64>() >> 20) as u32;
    let quiet = QUIET + QUIET_FOR_EACH_MIB * mib;
    let idle = clock.instant().saturating_duration_since(window.last_flush(clock.instant()));
    let range = choose(&WindowForMerge {
        bytes: &bytes,
        is_quiet: quiet < idle,
        is_past: is_past(clock, window),
        is_coarse: window.is_aggregated(),
    })?;
    Some(among.start + range.start..among.start + range.end)
}

/// Whether all slots of a window are past.
fn is_past(clock: &dyn Clock, window: &Window) -> bool {
    let (table, number) = window.key;
    let end = (i64::from(number) + 1) * i64::from(window_slots(table.stage)) * i64::from(table.stage.resolution());
    end < clock.now()
}

/// Bytes that merges have to write until every window is one file.
pub(crate) fn debt_of(points: &Points) -> u64 {
    let of_window = |window: &Arc<Window>| {
        let bytes = window.file_bytes();
        window.mergeable().into_iter().filter_map(|range| bytes.get(range).map(debt)).sum::<u64>()
    };
    points.windows().iter().map(of_window).sum()
}
