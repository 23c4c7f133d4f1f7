//! Merging the files of a store, one merge at a time.

use std::{
    cell::RefCell,
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
    merge::{MergeError, Merging, WindowForMerge, choose, debt},
    points::Points,
    row_file::{Flushes, RowFile},
    window::Window,
    window_key::window_slots,
};

/// Time without a flush after which a window is quiet, and the time more for each MiB of it.
const QUIET: Duration = Duration::from_secs(20);
const QUIET_FOR_EACH_MIB: Duration = Duration::from_millis(500);

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
    /// Held by the merge that runs.
    running: Mutex<()>,
    pub(crate) merged: AtomicU64,
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
        for Due { window, range, is_last, .. } in all_due(with.points) {
            if (with.is_stopped)() {
                return false;
            }
            match self.merge(with, &window, range, is_last) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    self.failed.fetch_add(1, Relaxed);
                    window.merge_again_at(with.points.shared.clock.instant() + AFTER_FAILURE);
                    tracing::error!(%error, "cannot merge files of the store; answers are right, and slower; retrying");
                }
            }
        }
        false
    }

    /// Merges every window into one file.
    pub(crate) fn run_fully(&self, with: &MergeWith<'_>) -> Result<(), StoreError> {
        let _running = self.running.lock();
        for window in with.points.windows() {
            let files = window.files().len();
            if files > 1 && !window.is_incomplete() {
                self.merge(with, &window, 0..files, true)?;
            }
        }
        Ok(())
    }

    /// Merges some files of a window. False when there was no room, or the merge was stopped.
    fn merge(
        &self,
        with: &MergeWith<'_>,
        window: &Window,
        range: Range<usize>,
        is_last: bool,
    ) -> Result<bool, StoreError> {
        let files = window.files();
        let files = &files[range];
        let bytes: u64 = files.iter().map(|file| file.len()).sum();
        let free = with.points.shared.disk.free_bytes(&window.dir);
        if free.is_ok_and(|free| free < bytes.saturating_add(with.reserve_bytes)) {
            self.is_short_of_disk.store(true, Relaxed);
            return Ok(false);
        }
        match merge_files(with, window, files, is_last) {
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
) -> Result<bool, StoreError> {
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
        is_stopped: &|| (with.is_stopped)() || window.is_expired(),
        lost: RefCell::default(),
    };
    match merging.run(files, &mut writer) {
        Ok(()) => points.merged(window, files, writer, &merging.lost.take()),
        Err(MergeError::Stopped) => Ok(false),
        Err(MergeError::Io(error)) => Err(failed()(error)),
    }
}

/// A merge that is due.
struct Due {
    window: Arc<Window>,
    range: Range<usize>,
    is_last: bool,
    bytes: u64,
}

/// The merges that are due, those of the fewest bytes first: they keep files few while a large one would run.
fn all_due(points: &Points) -> Vec<Due> {
    let clock = &*points.shared.clock;
    let of_window = |window: Arc<Window>| {
        let range = due(clock, &window)?;
        let bytes = window.files()[range.clone()].iter().map(|file| file.len()).sum();
        Some(Due { is_last: is_past(clock, &window), window, range, bytes })
    };
    let mut due: Vec<Due> = points.windows().into_iter().filter_map(of_window).collect();
    due.sort_by_key(|due| due.bytes);
    due
}

/// The files of a window that are to be merged now.
fn due(clock: &dyn Clock, window: &Window) -> Option<Range<usize>> {
    if window.is_incomplete() || !window.may_merge(clock.instant()) {
        return None;
    }
    let bytes = window.file_bytes();
    let mib = (bytes.iter().sum::<u64>() >> 20) as u32;
    let quiet = QUIET + QUIET_FOR_EACH_MIB * mib;
    let idle = clock.instant().saturating_duration_since(window.last_flush(clock.instant()));
    choose(&WindowForMerge {
        bytes: &bytes,
        is_quiet: quiet < idle,
        is_past: is_past(clock, window),
        is_coarse: window.is_aggregated(),
    })
}

/// Whether all slots of a window are past.
fn is_past(clock: &dyn Clock, window: &Window) -> bool {
    let (table, number) = window.key;
    let end = (i64::from(number) + 1) * i64::from(window_slots(table.stage)) * i64::from(table.stage.resolution());
    end < clock.now()
}

/// Bytes that merges have to write until every window is one file.
pub(crate) fn debt_of(points: &Points) -> u64 {
    points.windows().iter().map(|window| debt(&window.file_bytes())).sum()
}
