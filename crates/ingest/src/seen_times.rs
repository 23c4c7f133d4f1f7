//! When metrics have points, kept over a restart: see `metadata/src/seen/`.
//!
//! Each cycle saves the times between the sync of the store and the note of how much of the journal the store has.

use std::{io, path::PathBuf, sync::Arc};

use host::{Clock, Disk, JudgingTime, MinuteLog};
use metadata::{Registry, SEEN, SeenMark, UnstoredPoints};
use metric::MetricId;
use parking_lot::Mutex;
use store::{Identity, Store};

use crate::{memtable::Memtable, options::IngestOptions};

/// Saves when metrics have points.
pub(crate) struct SeenTimes {
    registry: Arc<Registry>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    time: Arc<JudgingTime>,
    /// Without a data folder, nothing is kept.
    path: Option<PathBuf>,
    /// The store, and its opening of this process.
    store: u128,
    opening: u64,
    /// Saves in turn: the last cycle of a stop may begin while one that was given up still writes.
    saving: Mutex<()>,
    log: MinuteLog,
}

impl SeenTimes {
    /// Reads the saved times, or notes that the metrics which are there may have points of any time until now. `before` is
    /// the store as it was before this opening. Called after the recovery of the journal, and before any row is written.
    ///
    /// `None` where others write the same tables: when their metrics have points is not known here.
    pub(crate) fn begin(
        options: &IngestOptions,
        store: &Store,
        memtable: &Arc<Memtable>,
        registry: &Arc<Registry>,
        time: &Arc<JudgingTime>,
        (before, now): (&Identity, &Identity),
    ) -> Option<SeenTimes> {
        if store.shared.is_some() {
            return None;
        }
        let opening = |identity: &Identity| identity.chain.last().map_or(0, |opening| opening.id);
        let times = SeenTimes {
            registry: registry.clone(),
            disk: options.host.disk.clone(),
            clock: options.host.clock.clone(),
            time: time.clone(),
            path: options.data_dir.as_ref().map(|data| data.join(SEEN)),
            store: now.store,
            opening: opening(now),
            saving: Mutex::default(),
            log: MinuteLog::default(),
        };
        let stored_below = store.names.journal_mark().map_or(0, |mark| mark.stored_below);
        let mark = SeenMark { store: before.store, opening: opening(before), stored_below };
        times.read(mark, store, options);
        let unstored: Arc<dyn UnstoredPoints> = memtable.clone();
        registry.seen().begin(Arc::downgrade(&unstored));
        times.save(stored_below);
        Some(times)
    }

    fn read(&self, mark: SeenMark, store: &Store, options: &IngestOptions) {
        let seen = self.registry.seen();
        let end = self.registry.read().end();
        if end == MetricId(0) {
            return seen.move_to(self.time.reached());
        }
        // What damage cost the journal may be in rows that no file of times has.
        let is_damaged = options.damage.mended() < options.damage.totals().0;
        let read = match &self.path {
            _ if is_damaged => Err("there is damage".to_owned()),
            // A flush that a kill ended, or a manifest of before that was put back.
            _ if store.points.has_newer_rows() => Err("rows are newer than the list of files".to_owned()),
            Some(path) => seen.read(&*self.disk, path, mark),
            None => Err("without a data folder nothing is kept".to_owned()),
        };
        seen.move_to(self.time.reached());
        if let Err(why) = read {
            tracing::info!(
                why,
                file = SEEN,
                "it is not known since when metrics have points, and until when: searches with times find all of them until new \
                 points tell"
            );
            let last = if is_damaged { None } else { store.points.newest_slot() };
            seen.note_unknown((0..end.0).map(MetricId), last);
        }
    }

    /// Saves the times. The store is about to note that it has all points of the segments below this number. A file that cannot be
    /// written is older than the store then, and is not used.
    pub(crate) fn save(&self, stored_below: u64) {
        let seen = self.registry.seen();
        seen.move_to(self.time.reached());
        let Some(path) = &self.path else { return };
        let _saving = self.saving.lock();
        let mark = SeenMark { store: self.store, opening: self.opening, stored_below };
        let next_id = self.registry.read().end();
        if let Err(error) = seen.save(&*self.disk, path, mark, next_id)
            && let Some(suppressed) = self.log.is_due(self.clock.instant())
        {
            report(&error, path, suppressed);
        }
    }
}

fn report(error: &io::Error, path: &std::path::Path, suppressed: u64) {
    tracing::warn!(%error, file = %path.display(), suppressed,
        "cannot save when metrics have points; after a kill, searches with times find all of them; retrying with each flush");
}
