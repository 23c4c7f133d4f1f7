//! The thread that merges files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use store::StoreError;

use crate::{folder::io_error, merges::Merges, tables::Tables, tree::Tree};

/// Interval between two looks for files to merge.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks after which a tree that was not written to is merged into one: twenty seconds, and half a second more for
/// each MiB, so that a large tree that is written every few minutes is not rewritten as often.
fn quiet_looks(tree: &Tree) -> u32 {
    u32::try_from(40 + (tree.disk_bytes() >> 20)).unwrap_or(u32::MAX)
}

/// Merges files in the background. Dropping it waits for the thread, so that the folder can be opened again at once.
pub(crate) struct Compaction {
    stop: Arc<Stop>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Stops the thread when the driver is dropped.
#[derive(Default)]
struct Stop {
    is_stopped: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }
}

impl Compaction {
    /// Starts the thread.
    pub(crate) fn start(tables: Arc<Tables>, merges: Arc<Merges>) -> Result<Compaction, StoreError> {
        let stop = Arc::new(Stop::default());
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("compaction".to_owned())
            .spawn(move || compact_until_stopped(&tables, &merges, &stopped))
            .map_err(io_error("starting a thread".to_owned()))?;
        Ok(Compaction { stop, thread: Some(thread) })
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        {
            let _lock = self.stop.lock.lock();
            self.stop.is_stopped.store(true, Relaxed);
        }
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Merges files until the driver is dropped.
fn compact_until_stopped(tables: &Tables, merges: &Merges, stop: &Stop) {
    // How long each tree has been quiet; one that is gets merged fully, once.
    let mut quiet: BTreeMap<PathBuf, u32> = BTreeMap::new();
    loop {
        {
            let mut lock = stop.lock.lock();
            if !stop.is_stopped() {
                stop.changed.wait_for(&mut lock, LOOK_EVERY);
            }
        }
        if stop.is_stopped() {
            return;
        }
        merges.run(tables, &|| stop.is_stopped());
        for tree in tables.other_trees() {
            if stop.is_stopped() {
                return;
            }
            compact(tree, &mut quiet);
        }
        let is_there = |path: &Path| tables.other_trees().iter().any(|tree| tree.path() == path);
        quiet.retain(|path, _| is_there(path));
    }
}

fn compact(tree: &Tree, quiet: &mut BTreeMap<PathBuf, u32>) {
    let merged = match tree.compact() {
        Ok(merged) => merged,
        Err(error) => {
            tracing::error!(%error, "cannot merge files of the store; retrying when more are written");
            return;
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
