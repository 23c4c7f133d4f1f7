//! The thread that merges files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use store::StoreError;

use crate::{folder::io_error, tables::Tables, tree::Tree};

/// Interval between two looks for files to merge.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks after which a tree that was not written to is merged into one: twenty seconds, and half a second more for
/// each MiB, so that a large tree that is written every few minutes is not rewritten as often.
fn quiet_looks(tree: &Tree) -> u32 {
    u32::try_from(40 + (tree.disk_bytes() >> 20)).unwrap_or(u32::MAX)
}

/// Merges files in the background. Dropping it waits for the merge that runs, so that the folder can be opened again
/// at once.
pub(crate) struct Compaction {
    stop: Arc<Stop>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Stops the thread when the driver is dropped.
#[derive(Default)]
struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Compaction {
    /// Starts the thread.
    pub(crate) fn start(tables: Arc<Tables>) -> Result<Compaction, StoreError> {
        let stop = Arc::new(Stop::default());
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("compaction".to_owned())
            .spawn(move || compact_until_stopped(&tables, &stopped))
            .map_err(io_error("starting a thread".to_owned()))?;
        Ok(Compaction { stop, thread: Some(thread) })
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        *self.stop.is_stopped.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Merges files until the driver is dropped.
fn compact_until_stopped(tables: &Tables, stop: &Stop) {
    // How long each tree has been quiet; one that is gets merged fully, once.
    let mut quiet: BTreeMap<PathBuf, u32> = BTreeMap::new();
    loop {
        let mut is_stopped = stop.is_stopped.lock();
        if !*is_stopped {
            stop.changed.wait_for(&mut is_stopped, LOOK_EVERY);
        }
        if *is_stopped {
            return;
        }
        drop(is_stopped);
        let trees = tables.point_trees();
        for tree in trees.iter().map(|tree| &**tree).chain(tables.other_trees()) {
            if *stop.is_stopped.lock() {
                return;
            }
            let merged = match tree.compact() {
                Ok(merged) => merged,
                Err(error) => {
                    tracing::error!(%error, "cannot merge files of the store; retrying when more are written");
                    continue;
                }
            };
            let looks = quiet.entry(tree.path().to_owned()).or_default();
            *looks = if merged || tree.unsynced_bytes() > 0 { 0 } else { looks.saturating_add(1) };
            if *looks == quiet_looks(tree)
                && let Err(error) = tree.compact_fully()
            {
                tracing::error!(%error, "cannot merge files of the store; retrying when more are written");
            }
        }
        let others = tables.other_trees();
        let is_there = |path: &Path| trees.iter().map(|tree| &**tree).chain(others).any(|tree| tree.path() == path);
        quiet.retain(|path, _| is_there(path));
    }
}
