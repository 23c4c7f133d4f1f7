//! Budgets of memory: one for what queries read and compute, one for answers on their way to clients.
//!
//! A share takes bytes before the memory is allocated, and travels with the work until the memory is free. Work that needs
//! more waits in turn, for a limited time. Part of a budget is for small shares alone, so that cheap work does not wait
//! behind large work. Memory is by client: of those that wait, the one with the fewest bytes comes first, and none has all.
//! Bodies that are still coming give way to others.

mod state;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::state::{For, Sizes, State, Wish};
use super::{client::Client, rejection::Rejection};

/// The part of a budget that is for small shares alone, and how many of the largest of these have room in it.
const PART_FOR_SMALL: usize = 8;
const SMALL_SHARES: usize = 16;

/// Bytes given back until [`MemoryBudget::returned`] resolves.
const MUCH: usize = 32 << 20;

/// Interval between two looks whether the client is gone, on a thread that waits for memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Interval between two looks for bodies that may give way.
const MAKE_ROOM_EVERY: Duration = Duration::from_millis(50);

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
    /// A budget of so many bytes for all clients. Work waits for them at most for `wait`. `what` begins a message, `setting`
    /// ends it.
    pub fn new(bytes: usize, wait: Duration, what: &'static str, setting: &'static str) -> MemoryBudget {
        MemoryBudget::of(bytes, wait, what, setting, true)
    }

    /// The same for one client, which may have all of it.
    pub fn of_one(bytes: usize, wait: Duration, what: &'static str, setting: &'static str) -> MemoryBudget {
        MemoryBudget::of(bytes, wait, what, setting, false)
    }

    fn of(bytes: usize, wait: Duration, what: &'static str, setting: &'static str, is_shared: bool) -> MemoryBudget {
        let small = bytes / PART_FOR_SMALL;
        let large = bytes - small;
        MemoryBudget(Arc::new(Shared {
            what,
            setting,
            wait,
            small,
            large,
            state: Mutex::new(State::new(Sizes { small, large, is_shared })),
            waits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            returned: AtomicUsize::new(0),
            much_returned: Notify::new(),
        }))
    }

    /// A share of a client without bytes.
    pub fn share(&self, client: &Client) -> MemoryShare {
        self.share_of(client, None)
    }

    /// A share for the body of a request while it is coming. Until [`MemoryShare::is_whole`] others may ask for its memory:
    /// then `leave` is notified.
    pub fn body(&self, client: &Client, leave: &Arc<Notify>) -> MemoryShare {
        let body = self.0.state.lock().body_begins(client.clone(), leave.clone());
        self.share_of(client, Some(body))
    }

    fn share_of(&self, client: &Client, body: Option<u64>) -> MemoryShare {
        MemoryShare { budget: self.clone(), client: client.clone(), small: 0, large: 0, body }
    }

    /// Waits until [`MUCH`] more is given back.
    pub async fn returned(&self) {
        self.0.much_returned.notified().await;
    }

    /// For metrics.
    pub fn usage(&self) -> MemoryUse {
        let shared = &*self.0;
        let limit = shared.small + shared.large;
        MemoryUse {
            used: (limit - shared.state.lock().free()) as u64,
            limit: limit as u64,
            waits: shared.waits.load(Relaxed),
            refused: shared.refused.load(Relaxed),
        }
    }
}

/// The memory of an answer, shared by the parts of its body.
pub(crate) type AnswerShare = Arc<MemoryShare>;

/// Bytes of a budget that a piece of work holds. Dropping it gives them back.
pub(crate) struct MemoryShare {
    budget: MemoryBudget,
    client: Client,
    small: usize,
    large: usize,
    /// The body that is still coming.
    body: Option<u64>,
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
        let wish = |for_what, has| Wish { client: self.client.clone(), for_what, bytes: missing, has };
        let for_what = match self.body {
            Some(number) => For::Body(number),
            None if self.large > 0 => For::Grow,
            None => For::Begin,
        };
        let is_small = for_what == For::Begin && bytes <= shared.small / SMALL_SHARES;
        let queued = {
            let mut state = shared.state.lock();
            let mut wanted = wish(for_what, self.large);
            if state.take(&wanted) {
                self.large += missing;
                return Ok(());
            }
            if is_small {
                wanted = wish(For::Small, self.small);
                if state.take(&wanted) {
                    self.small += missing;
                    return Ok(());
                }
            }
            shared.waits.fetch_add(1, Relaxed);
            // No work would end if all that have memory waited for more.
            if for_what == For::Grow && state.growing() + 1 >= state.holders {
                return Err(shared.refusal(Duration::ZERO));
            }
            Queued::new(&shared, &mut state, wanted)
        };
        let begun = tokio::time::Instant::now();
        if !queued.is_granted().await {
            return Err(shared.refusal(begun.elapsed()));
        }
        queued.keep();
        if is_small {
            self.small += missing
        } else {
            self.large += missing
        }
        Ok(())
    }

    /// The same without a wait. Returns whether the share has so many bytes now.
    pub fn try_raise(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.small + self.large);
        let for_what = if self.large > 0 { For::Grow } else { For::Begin };
        let wish = Wish { client: self.client.clone(), for_what, bytes: missing, has: self.large };
        let is_raised = missing == 0 || self.body.is_none() && self.budget.0.state.lock().take(&wish);
        if is_raised {
            self.large += missing;
        }
        is_raised
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
        if surplus == 0 {
            return;
        }
        let large = surplus.min(self.large);
        let small = surplus - large;
        let is_last = large > 0 && large == self.large;
        self.budget.0.state.lock().take_back(&self.client, self.body, (small, large), is_last);
        self.budget.0.give_back(surplus);
        self.large -= large;
        self.small -= small;
    }

    /// The body has come: what the share has belongs to the work that follows.
    pub fn is_whole(&mut self) {
        if let Some(body) = self.body.take() {
            self.budget.0.state.lock().body_ends(body);
        }
    }

    /// The rejection of a body that gives its memory back.
    pub fn gives_way(&self) -> Rejection {
        let shared = &*self.budget.0;
        shared.refused.fetch_add(1, Relaxed);
        Rejection::GaveWay { setting: shared.setting }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.lower(0);
        self.is_whole();
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

    fn refusal(&self, waited: Duration) -> Rejection {
        self.refused.fetch_add(1, Relaxed);
        Rejection::NoMemory { seconds: waited.as_secs_f64(), setting: self.setting }
    }
}

/// A place in the queue. Dropping it leaves the queue, or gives back what it was granted.
struct Queued {
    shared: Arc<Shared>,
    number: u64,
    wish: Wish,
    granted: Arc<Notify>,
    is_kept: bool,
}

impl Queued {
    fn new(shared: &Arc<Shared>, state: &mut State, wish: Wish) -> Queued {
        let number = state.number();
        let granted = state.wait(number, wish.clone());
        Queued { shared: shared.clone(), number, wish, granted, is_kept: false }
    }

    /// Waits for the bytes, and sees to it that others make room; false when they do not come in time.
    async fn is_granted(&self) -> bool {
        let last = tokio::time::Instant::now() + self.shared.wait;
        loop {
            self.shared.state.lock().make_room(self.number);
            let next = last.min(tokio::time::Instant::now() + MAKE_ROOM_EVERY);
            if tokio::time::timeout_at(next, self.granted.notified()).await.is_ok() {
                return true;
            }
            if last <= tokio::time::Instant::now() {
                return false;
            }
        }
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
        if state.leave(self.number) {
            // Others may have waited behind it.
            state.grant();
            return;
        }
        let Wish { client, for_what, bytes, has } = &self.wish;
        let (body, parts, is_last) = match *for_what {
            For::Small => (None, (*bytes, 0), false),
            For::Begin | For::Grow => (None, (0, *bytes), *has == 0),
            For::Body(number) => (Some(number), (0, *bytes), *has == 0),
        };
        state.take_back(client, body, parts, is_last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget() -> MemoryBudget {
        MemoryBudget::new(64 * MIB, Duration::from_millis(50), "the bytes of the test are", "test.memory")
    }

    fn client() -> Client {
        named("a")
    }

    fn named(name: &str) -> Client {
        Client::Named(name.to_owned())
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn work_waits_for_memory_and_gives_up() {
        run(async {
            let budget = budget();
            let (mut first, mut second) = (budget.share(&client()), budget.share(&client()));
            first.raise(50 * MIB).await.unwrap();
            assert_eq!(budget.usage().used, 50 * MIB as u64);
            let refused = second.raise(20 * MIB).await.unwrap_err().to_string();
            assert!(refused.starts_with("the server's memory for this was spent for 0."), "{refused}");
            assert!(refused.ends_with("or raise test.memory"), "{refused}");
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
            let (mut first, mut second, mut third) =
                (budget.share(&client()), budget.share(&client()), budget.share(&client()));
            first.raise(30 * MIB).await.unwrap();
            third.raise(10 * MIB).await.unwrap();
            let (begun, grown) = tokio::join!(second.raise(40 * MIB), async {
                first.raise(45 * MIB).await.unwrap();
                // Two that both wait for more would wait for each other.
                let (both, one) = tokio::join!(first.raise(50 * MIB), third.raise(20 * MIB));
                let one = one.unwrap_err().to_string();
                assert!(one.contains("memory for this is spent, and all work that has some waits for more"), "{one}");
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
            let (mut large, mut next, mut small) =
                (budget.share(&client()), budget.share(&client()), budget.share(&client()));
            large.raise(56 * MIB).await.unwrap();
            let (next, small) = tokio::join!(next.raise(10 * MIB), async {
                tokio::time::timeout(Duration::from_millis(1), small.raise(MIB / 4)).await
            });
            assert!(matches!(next, Err(Rejection::NoMemory { .. })));
            small.expect("at once").unwrap();
        });
    }

    #[test]
    fn the_client_with_the_fewest_bytes_is_next_and_none_has_all() {
        run(async {
            let budget = budget();
            let [mut first, mut second, mut third] = [(); 3].map(|()| budget.share(&client()));
            let mut other = budget.share(&named("b"));
            first.raise(30 * MIB).await.unwrap();
            second.raise(12 * MIB).await.unwrap();
            // Three quarters of 56 MiB.
            assert!(matches!(third.raise(4 * MIB).await, Err(Rejection::NoMemory { .. })));
            let (own, other, ()) = tokio::join!(third.raise(14 * MIB), other.raise(20 * MIB), async {
                second.lower(0);
            });
            other.unwrap();
            assert!(matches!(own, Err(Rejection::NoMemory { .. })), "behind the other");
            drop((first, second));
            third.raise(36 * MIB).await.unwrap();
        });
    }

    #[test]
    fn bodies_that_are_coming_give_way_and_no_client_has_much_for_them() {
        let budget = MemoryBudget::new(64 * MIB, Duration::from_secs(5), "", "");
        run(async {
            let leave = [(); 4].map(|()| Arc::<Notify>::default());
            let mut bodies = ["a", "b", "c", "d"].map(named).into_iter().zip(&leave);
            let mut bodies =
                [(); 4].map(|()| bodies.next().map(|(client, leave)| budget.body(&client, leave)).unwrap());
            for body in &mut bodies {
                body.raise(13 * MIB).await.unwrap();
            }
            let mut second = budget.body(&named("a"), &leave[0]);
            let own_part = tokio::time::timeout(Duration::from_millis(100), second.raise(2 * MIB)).await;
            assert!(own_part.is_err(), "a quarter is for bodies of one client");
            bodies[3].is_whole();
            let mut work = budget.share(&named("e"));
            let (raised, ()) = tokio::join!(work.raise(16 * MIB), async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let asks = |leave: &Arc<Notify>| is_ready(leave.notified());
                assert!(!leave.iter().any(asks), "they have just begun");
                tokio::time::sleep(Duration::from_millis(400)).await;
                let mut given = 0;
                for (body, leave) in bodies.iter_mut().zip(&leave) {
                    if asks(leave) {
                        body.lower(0);
                        given += 1;
                    }
                }
                assert_eq!(given, 1, "as many as are needed");
            });
            raised.unwrap();
            drop((bodies, work, second));
            assert_eq!(budget.usage().used, 0);
        });
    }

    fn is_ready(wait: impl Future<Output = ()>) -> bool {
        std::pin::pin!(wait).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn more_than_the_whole_budget_is_refused_at_once() {
        run(async {
            let mut share = budget().share(&client());
            assert!(matches!(share.raise(57 * MIB).await, Err(Rejection::TooMuch { setting: "test.memory", .. })));
            share.raise(56 * MIB).await.unwrap();
        });
    }

    #[test]
    fn a_thread_stops_waiting_for_a_client_that_is_gone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let budget = MemoryBudget::new(MIB, Duration::from_secs(60), "", "");
        let mut all = budget.share(&client());
        runtime.block_on(all.raise(MIB / 8 * 7)).unwrap();
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = cancelled.clone();
        let mut share = budget.share(&client());
        let waiting = runtime.spawn_blocking(move || share.raise_blocking(MIB / 2, &flag).unwrap_err().to_string());
        std::thread::sleep(Duration::from_millis(50));
        cancelled.store(true, Relaxed);
        let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), waiting).await });
        assert_eq!(answer.unwrap().unwrap(), Rejection::Cancelled.to_string());
    }
}
