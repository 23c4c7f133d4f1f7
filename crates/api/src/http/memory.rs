//! Budgets of memory: one for what queries read and compute, one for answers on their way to clients.
//!
//! A share takes bytes before the memory is allocated, and travels with the work until the memory is free. Work that needs
//! more waits in turn, for a limited time. Part of a budget is for small shares alone, so that cheap work does not wait
//! behind large work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::rejection::Rejection;

/// The part of a budget that is for small shares alone, and how many of the largest of these have room in it.
const PART_FOR_SMALL: usize = 8;
const SMALL_SHARES: usize = 16;

/// Bytes given back until [`MemoryBudget::returned`] resolves.
const MUCH: usize = 32 << 20;

/// Interval between two looks whether the client is gone, on a thread that waits for memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A budget. A clone shares it.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<Shared>);

struct Shared {
    what: &'static str,
    setting: &'static str,
    wait: Duration,
    /// Bytes for small shares alone, and for all others.
    small: usize,
    large: usize,
    state: Mutex<State>,
    waits: AtomicU64,
    refused: AtomicU64,
    returned: AtomicUsize,
    much_returned: Notify,
}

struct State {
    free_small: usize,
    free_large: usize,
    /// Shares with bytes of the large part.
    holders: usize,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    next: u64,
}

struct Waiting {
    number: u64,
    for_what: For,
    bytes: usize,
    granted: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// A small share.
    Small,
    /// A share that has no bytes of the large part yet.
    Begin,
    /// A share that has some. It goes before those that begin, because its end frees memory.
    Grow,
}

/// A budget of memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in all.
    pub limit: u64,
    /// How often work had to wait for memory.
    pub waits: u64,
    /// How often it got none.
    pub refused: u64,
}

impl MemoryBudget {
    /// A budget of so many bytes. Work waits for them at most for `wait`. `what` begins a message, `setting` ends it.
    pub fn new(bytes: usize, wait: Duration, what: &'static str, setting: &'static str) -> MemoryBudget {
        let small = bytes / PART_FOR_SMALL;
        let large = bytes - small;
        let state = State { free_small: small, free_large: large, holders: 0, waiting: Vec::new(), next: 0 };
        MemoryBudget(Arc::new(Shared {
            what,
            setting,
            wait,
            small,
            large,
            state: Mutex::new(state),
            waits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            returned: AtomicUsize::new(0),
            much_returned: Notify::new(),
        }))
    }

    /// A share without bytes.
    pub fn share(&self) -> MemoryShare {
        MemoryShare { budget: self.clone(), small: 0, large: 0 }
    }

    /// Waits until [`MUCH`] more is given back.
    pub async fn returned(&self) {
        self.0.much_returned.notified().await;
    }

    /// For metrics.
    pub fn usage(&self) -> MemoryUse {
        let shared = &*self.0;
        let (limit, state) = (shared.small + shared.large, shared.state.lock());
        MemoryUse {
            used: (limit - state.free_small - state.free_large) as u64,
            limit: limit as u64,
            waits: shared.waits.load(Relaxed),
            refused: shared.refused.load(Relaxed),
        }
    }
}

impl State {
    /// Takes bytes if they are free, and those before this one have theirs.
    fn take(&mut self, for_what: For, bytes: usize) -> bool {
        let none_waits = |kinds: &[For]| !self.waiting.iter().any(|other| kinds.contains(&other.for_what));
        let is_first = match for_what {
            For::Grow => true,
            For::Begin => none_waits(&[For::Begin, For::Grow]),
            For::Small => none_waits(&[For::Small]),
        };
        let free = if for_what == For::Small { &mut self.free_small } else { &mut self.free_large };
        if !is_first || *free < bytes {
            return false;
        }
        *free -= bytes;
        self.holders += usize::from(for_what == For::Begin);
        true
    }

    /// Gives free bytes to those that wait: first to all that grow, then in turn to those that begin.
    fn grant(&mut self) {
        let mut is_open = true;
        let State { waiting, free_small, free_large, holders, .. } = self;
        let mut pass = |wanted: For, free: &mut usize, in_turn: bool| {
            waiting.retain(|one| {
                if one.for_what != wanted || (in_turn && !is_open) {
                    return true;
                }
                if one.bytes > *free {
                    is_open = false;
                    return true;
                }
                *free -= one.bytes;
                *holders += usize::from(wanted == For::Begin);
                one.granted.notify_one();
                false
            });
        };
        pass(For::Grow, free_large, false);
        pass(For::Begin, free_large, true);
        is_open = true;
        waiting.retain(|one| {
            let is_granted = one.for_what == For::Small && is_open && one.bytes <= *free_small;
            if is_granted {
                *free_small -= one.bytes;
                one.granted.notify_one();
            }
            is_open &= is_granted || one.for_what != For::Small;
            !is_granted
        });
    }
}

/// The memory of an answer, shared by the parts of its body.
pub(crate) type AnswerShare = Arc<MemoryShare>;

/// Bytes of a budget that a piece of work holds. Dropping it gives them back.
pub(crate) struct MemoryShare {
    budget: MemoryBudget,
    small: usize,
    large: usize,
}

impl MemoryShare {
    /// Takes more, until the share has so many bytes in all. Waits in turn for what is not free.
    pub async fn raise(&mut self, bytes: usize) -> Result<(), Rejection> {
        let shared = self.budget.0.clone();
        let missing = bytes.saturating_sub(self.small + self.large);
        if missing == 0 {
            return Ok(());
        }
        if bytes > shared.large {
            let (given, limit) = (bytes.to_string(), shared.large);
            return Err(Rejection::TooMuch { what: shared.what, given, limit, setting: shared.setting });
        }
        let for_what = if self.large > 0 { For::Grow } else { For::Begin };
        let is_small = self.large == 0 && bytes <= shared.small / SMALL_SHARES;
        let queued = {
            let mut state = shared.state.lock();
            if state.take(for_what, missing) {
                self.large += missing;
                return Ok(());
            }
            let for_what = if is_small { For::Small } else { for_what };
            if is_small && state.take(For::Small, missing) {
                self.small += missing;
                return Ok(());
            }
            shared.waits.fetch_add(1, Relaxed);
            // No work would end if all that have memory waited for more.
            let growing = state.waiting.iter().filter(|one| one.for_what == For::Grow).count();
            if for_what == For::Grow && growing + 1 >= state.holders {
                return Err(shared.refusal());
            }
            Queued::new(&shared, &mut state, for_what, missing)
        };
        if tokio::time::timeout(shared.wait, queued.granted.notified()).await.is_err() {
            return Err(shared.refusal());
        }
        queued.keep();
        if is_small {
            self.small += missing
        } else {
            self.large += missing
        }
        Ok(())
    }

    /// The same, on a thread that may block. Stops waiting when the client is gone.
    pub fn raise_blocking(&mut self, bytes: usize, cancelled: &AtomicBool) -> Result<(), Rejection> {
        if bytes <= self.small + self.large {
            return Ok(());
        }
        let gone = async {
            while !cancelled.load(Relaxed) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                biased;
                raised = self.raise(bytes) => raised,
                () = gone => Err(Rejection::Cancelled),
            }
        })
    }

    /// Gives bytes back, until the share has so many in all.
    pub fn lower(&mut self, bytes: usize) {
        let surplus = (self.small + self.large).saturating_sub(bytes);
        let large = surplus.min(self.large);
        let small = surplus - large;
        if surplus > 0 {
            let mut state = self.budget.0.state.lock();
            state.holders -= usize::from(large > 0 && large == self.large);
            state.free_large += large;
            state.free_small += small;
            state.grant();
            drop(state);
            self.budget.0.give_back(surplus);
        }
        self.large -= large;
        self.small -= small;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.lower(0);
    }
}

impl Shared {
    /// Counts bytes that are free again.
    fn give_back(&self, bytes: usize) {
        let before = self.returned.fetch_add(bytes, Relaxed);
        if before / MUCH != before.wrapping_add(bytes) / MUCH {
            self.much_returned.notify_one();
        }
    }

    fn refusal(&self) -> Rejection {
        self.refused.fetch_add(1, Relaxed);
        Rejection::NoMemory { seconds: self.wait.as_secs_f64(), setting: self.setting }
    }
}

/// A place in the queue. Dropping it leaves the queue, or gives back what it was granted.
struct Queued {
    shared: Arc<Shared>,
    number: u64,
    for_what: For,
    bytes: usize,
    granted: Arc<Notify>,
    is_kept: bool,
}

impl Queued {
    fn new(shared: &Arc<Shared>, state: &mut State, for_what: For, bytes: usize) -> Queued {
        let (number, granted) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.waiting.push(Waiting { number, for_what, bytes, granted: granted.clone() });
        Queued { shared: shared.clone(), number, for_what, bytes, granted, is_kept: false }
    }

    /// The bytes belong to a share from now on.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut state = self.shared.state.lock();
        match state.waiting.iter().position(|one| one.number == self.number) {
            Some(place) => drop(state.waiting.remove(place)),
            None if self.for_what == For::Small => state.free_small += self.bytes,
            None => {
                state.free_large += self.bytes;
                state.holders -= usize::from(self.for_what == For::Begin);
            }
        }
        state.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget() -> MemoryBudget {
        MemoryBudget::new(64 * MIB, Duration::from_millis(50), "the bytes of the test are", "test.memory")
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn work_waits_for_memory_and_gives_up() {
        run(async {
            let budget = budget();
            let (mut first, mut second) = (budget.share(), budget.share());
            first.raise(50 * MIB).await.unwrap();
            assert_eq!(budget.usage().used, 50 * MIB as u64);
            assert!(matches!(second.raise(20 * MIB).await, Err(Rejection::NoMemory { setting: "test.memory", .. })));
            let (raised, ()) = tokio::join!(second.raise(20 * MIB), async { first.lower(10 * MIB) });
            raised.unwrap();
            assert_eq!(budget.usage().used, 30 * MIB as u64);
            drop((first, second));
            assert_eq!(budget.usage(), MemoryUse { used: 0, limit: 64 * MIB as u64, waits: 2, refused: 1 });
        });
    }

    #[test]
    fn work_that_has_memory_gets_more_before_work_that_begins() {
        run(async {
            let budget = budget();
            let (mut first, mut second, mut third) = (budget.share(), budget.share(), budget.share());
            first.raise(30 * MIB).await.unwrap();
            third.raise(10 * MIB).await.unwrap();
            let (begun, grown) = tokio::join!(second.raise(40 * MIB), async {
                first.raise(45 * MIB).await.unwrap();
                // Two that both wait for more would wait for each other.
                let (both, one) = tokio::join!(first.raise(50 * MIB), third.raise(20 * MIB));
                assert!(matches!(one, Err(Rejection::NoMemory { .. })));
                both
            });
            assert!(matches!((begun, grown), (Err(Rejection::NoMemory { .. }), Err(Rejection::NoMemory { .. }))));
            drop((first, second, third));
            assert_eq!(budget.usage().used, 0);
        });
    }

    #[test]
    fn a_small_share_does_not_wait_behind_large_ones() {
        run(async {
            let budget = budget();
            let (mut large, mut next, mut small) = (budget.share(), budget.share(), budget.share());
            large.raise(56 * MIB).await.unwrap();
            let (next, small) = tokio::join!(next.raise(10 * MIB), async {
                tokio::time::timeout(Duration::from_millis(1), small.raise(MIB / 4)).await
            });
            assert!(matches!(next, Err(Rejection::NoMemory { .. })));
            small.expect("at once").unwrap();
        });
    }

    #[test]
    fn more_than_the_whole_budget_is_refused_at_once() {
        run(async {
            let mut share = budget().share();
            assert!(matches!(share.raise(57 * MIB).await, Err(Rejection::TooMuch { setting: "test.memory", .. })));
            share.raise(56 * MIB).await.unwrap();
        });
    }

    #[test]
    fn a_thread_stops_waiting_for_a_client_that_is_gone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let budget = MemoryBudget::new(MIB, Duration::from_secs(60), "", "");
        let mut all = budget.share();
        runtime.block_on(all.raise(MIB / 8 * 7)).unwrap();
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = cancelled.clone();
        let mut share = budget.share();
        let waiting = runtime.spawn_blocking(move || share.raise_blocking(MIB / 2, &flag).unwrap_err().to_string());
        std::thread::sleep(Duration::from_millis(50));
        cancelled.store(true, Relaxed);
        let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), waiting).await });
        assert_eq!(answer.unwrap().unwrap(), Rejection::Cancelled.to_string());
    }
}
