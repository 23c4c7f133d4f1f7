//! Work that waits for a disk, on threads of its own; in a rehearsal on the thread of the node, in an order that a seed determines.

use std::{cell::RefCell, marker::PhantomData, sync::Arc};

use tokio::task::JoinHandle;

use crate::Random;

/// Most tasks of the node that go on before such work begins in place.
const MOST_TURNS: u64 = 4;

thread_local! {
    /// Where work of this thread runs in place, the random numbers of its order.
    static IN_PLACE: RefCell<Option<Arc<dyn Random>>> = const { RefCell::new(None) };
}

/// Runs work that may wait for a disk, on a thread that may wait. Called within a runtime. While [`InPlace`] holds, it runs as a
/// task of the runtime, after as many turns of the other tasks as random numbers say. The work waits for no task.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let turns = IN_PLACE.with_borrow(|random| {
        // Half of the time at once, as on a free thread.
        random.as_ref().map(|random| random.below(2 * MOST_TURNS).saturating_sub(MOST_TURNS))
    });
    let Some(turns) = turns else { return tokio::task::spawn_blocking(work) };
    tokio::spawn(async move {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        work()
    })
}

/// Whether work runs in place: a thread in the background would not be in the order of the seed.
pub fn is_in_place() -> bool {
    IN_PLACE.with_borrow(Option::is_some)
}

/// As long as this lives, [`spawn_blocking`] runs work of this thread in place.
#[derive(Debug)]
pub struct InPlace {
    before: Option<Arc<dyn Random>>,
    /// Of this thread alone.
    _thread: PhantomData<*const ()>,
}

impl InPlace {
    /// From here on, in an order that these random numbers determine.
    pub fn begin(random: Arc<dyn Random>) -> InPlace {
        InPlace { before: IN_PLACE.replace(Some(random)), _thread: PhantomData }
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        IN_PLACE.set(self.before.take());
    }
}
