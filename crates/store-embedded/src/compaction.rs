//! The thread that merges files.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use host::Backoff;
use parking_lot::{Condvar, Mutex};
use store::StoreError;

use crate::{folder::io_error, merges::Merges, tables::Tables};

/// Interval between two looks for files to merge.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Least interval between two looks whether the folder still belongs to this process.
const OWNER_EVERY: Duration = Duration::from_millis(400);

/// Interval between two looks for files that the start did not find.
const LOOK_FOR_MISSING_EVERY: Duration = Duration::from_secs(60);

/// Waits between attempts to open files that could not be opened.
const OPEN_AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Merges files in the background, and opens those again that could not be opened or found. Dropping it waits for the thread, so that the folder can be opened again at once.
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
    let mut rounds = Rounds::new(tables);
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
        rounds.look(tables, merges, &|| stop.is_stopped());
    }
}

/// What the thread looks after, each time.
pub(crate) struct Rounds {
    unopened: Unopened,
    missing: Missing,
    watch: OwnerWatch,
}

impl Rounds {
    pub(crate) fn new(tables: &Tables) -> Rounds {
        let now = tables.points.shared.clock.instant();
        Rounds {
            unopened: Unopened { backoff: OPEN_AGAIN, again_at: now },
            missing: Missing { again_at: now },
            watch: OwnerWatch { again_at: Cell::new(now) },
        }
    }

    /// Removes files that are no longer used, opens those that could not be opened or found, and merges until nothing is due.
    pub(crate) fn look(&mut self, tables: &Tables, merges: &Merges, is_stopped: &dyn Fn() -> bool) {
        let Rounds { unopened, missing, watch } = self;
        tables.points.shared.remove_obsolete();
        unopened.try_again(tables);
        missing.look_again(tables);
        // Also in the middle of a large merge.
        let is_stopped = || is_stopped() || watch.is_lost(tables);
        if !is_stopped() {
            tables.with_merging(&is_stopped, |with| merges.run(with));
        }
    }
}

/// Looks whether the folder still belongs to this process.
struct OwnerWatch {
    again_at: Cell<Instant>,
}

impl OwnerWatch {
    fn is_lost(&self, tables: &Tables) -> bool {
        let now = tables.points.shared.clock.instant();
        if self.again_at.get() <= now {
            self.again_at.set(now + OWNER_EVERY);
            tables.check_owner();
        }
        tables.spec.owner().lost().is_some()
    }
}

/// Files that the start did not find.
struct Missing {
    again_at: Instant,
}

impl Missing {
    fn look_again(&mut self, tables: &Tables) {
        let now = tables.points.shared.clock.instant();
        if now < self.again_at {
            return;
        }
        self.again_at = now + LOOK_FOR_MISSING_EVERY;
        if let Err(error) = tables.points.look_for_missing() {
            tracing::error!(%error, "cannot look for files of rows that were missing at the start; trying again in a minute");
        }
    }
}

/// Files that could not be opened, for instance because descriptors were short for a moment.
struct Unopened {
    backoff: Backoff,
    again_at: Instant,
}

impl Unopened {
    fn try_again(&mut self, tables: &Tables) {
        let now = tables.points.shared.clock.instant();
        if now < self.again_at {
            return;
        }
        match tables.points.open_again() {
            Ok(false) => self.backoff.reset(),
            Ok(true) => self.again_at = now + self.backoff.next_wait(),
            Err(error) => {
                tracing::error!(%error, "cannot open files of rows again; their rows are missing from answers; retrying");
                self.again_at = now + self.backoff.next_wait();
            }
        }
    }
}
