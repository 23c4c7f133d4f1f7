//! The thread that merges files.

use std::{
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

/// Waits between attempts to open files that could not be opened.
const OPEN_AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Merges files in the background, and opens those again that could not be opened. Dropping it waits for the thread, so that the folder can be opened again at once.
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
    let mut unopened = Unopened { backoff: OPEN_AGAIN, again_at: tables.points.shared.clock.instant() };
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
        unopened.try_again(tables);
        tables.with_merging(&|| stop.is_stopped(), |with| merges.run(with));
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
