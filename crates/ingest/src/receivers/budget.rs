//! Memory for what receivers have read and not accepted yet: one budget for all connections and bodies.
//!
//! A connection takes bytes from the budget before it allocates them, and gives them back when it frees them. When the
//! budget is spent:
//!
//! 1. Connections that need bytes wait for them, in the order in which they ask.
//! 2. Connections that hold memory and no unread bytes give it back.
//! 3. If that does not help, the largest connection whose sender has paused in the middle of a message is closed. If no
//!    sender has paused and all wait for memory, that is the largest of all.
//!
//! A decoder that needs much memory of its own for one frame takes it from one half of the budget, after others like it, so
//! that connections with usual messages do not wait behind it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bytes of a unit of the budget.
const UNIT: usize = 1 << 10;

/// Memory of a decoder for one frame that is large, from here on.
const LARGE_BYTES: usize = 1 << 20;

/// Interval between two searches for memory while connections wait for it.
const SEARCH: Duration = Duration::from_millis(100);

/// How long a sender must have paused, or waited for memory, before its connection may be closed.
const PAUSED: Duration = Duration::from_secs(1);

/// The budget. A clone shares it.
#[derive(Debug, Clone)]
pub struct ReceiveBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    began: Instant,
    units: usize,
    free: Arc<Semaphore>,
    /// Those of the half for large frames.
    free_for_large: Arc<Semaphore>,
    holders: Mutex<Holders>,
    waits: AtomicU64,
    closed: AtomicU64,
}

#[derive(Debug, Default)]
struct Holders {
    next: u64,
    all: HashMap<u64, Arc<Holder>>,
    searched: Option<Instant>,
}

/// What the budget knows of a connection.
#[derive(Debug, Default)]
struct Holder {
    units: AtomicUsize,
    /// A [`Stage`].
    stage: AtomicU8,
    /// When the stage began, in milliseconds since the budget was made.
    since: AtomicU64,
    /// Units that a blocked connection waits for.
    wanted: AtomicUsize,
    must_close: AtomicBool,
    asked: Notify,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Decoding, or waiting for the pipeline: it frees memory by itself.
    Busy,
    /// Waiting for bytes, and holding none.
    Empty,
    /// Waiting for the rest of a message.
    Partial,
    /// Waiting for memory.
    Blocked,
}

/// The connection must end, so that others get memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("closed because the memory of receivers is spent; receive.memory raises it")]
pub struct OutOfMemory;

/// The budget at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUse {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in all.
    pub limit: u64,
    /// How often a connection had to wait for memory.
    pub waits: u64,
    /// Connections and bodies that were closed, so that others got memory.
    pub closed: u64,
}

impl ReceiveBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64, clock: Arc<dyn Clock>) -> ReceiveBudget {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(UNIT).clamp(1, u32::MAX as usize);
        ReceiveBudget(Arc::new(Shared {
            began: clock.instant(),
            clock,
            units,
            free: Arc::new(Semaphore::new(units)),
            free_for_large: Arc::new(Semaphore::new(units / 2)),
            holders: Mutex::default(),
            waits: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }))
    }

    /// The part of one connection or body; nothing yet.
    pub fn share(&self) -> BudgetShare {
        let holder = Arc::<Holder>::default();
        let mut holders = self.0.holders.lock();
        let id = holders.next;
        holders.next += 1;
        holders.all.insert(id, holder.clone());
        BudgetShare { budget: self.clone(), id, holder, permit: None, large: None }
    }

    /// For metrics.
    pub fn usage(&self) -> BudgetUse {
        let Shared { units, free, waits, closed, .. } = &*self.0;
        let used = (units - free.available_permits().min(*units)) * UNIT;
        let (waits, closed) = (waits.load(Relaxed), closed.load(Relaxed));
        BudgetUse { used: used as u64, limit: (units * UNIT) as u64, waits, closed }
    }

    fn millis(&self) -> u64 {
        self.0.clock.instant().saturating_duration_since(self.0.began).as_millis() as u64
    }

    /// Asks for memory back, at most once per interval: from empty connections, or else from the largest that stands.
    fn search(&self) {
        let now = self.0.clock.instant();
        let mut holders = self.0.holders.lock();
        if holders.searched.is_some_and(|last| now.saturating_duration_since(last) < SEARCH) {
            return;
        }
        holders.searched = Some(now);
        if !release_empty(&holders) {
            self.close_one(&holders);
        }
    }

    fn close_one(&self, holders: &Holders) {
        let now = self.millis();
        let stands = |holder: &Holder, stage| {
            holder.stage.load(SeqCst) == stage as u8
                && PAUSED.as_millis() as u64 <= now.saturating_sub(holder.since.load(Relaxed))
                && 0 < holder.units.load(Relaxed)
        };
        let largest = |stage| {
            let standing = holders.all.values().filter(|holder| stands(holder, stage));
            standing.max_by_key(|holder| holder.units.load(Relaxed))
        };
        let frees_itself =
            |holder: &Holder| holder.stage.load(SeqCst) == Stage::Busy as u8 && 0 < holder.units.load(Relaxed);
        let victim = largest(Stage::Partial)
            .or_else(|| if holders.all.values().any(|h| frees_itself(h)) { None } else { largest(Stage::Blocked) });
        let Some(victim) = victim else { return };
        if victim.must_close.swap(true, SeqCst) {
            return;
        }
        let closed = self.0.closed.fetch_add(1, Relaxed) + 1;
        // Logged ever more rarely: senders that are closed come again at once.
        if closed.is_power_of_two() {
            tracing::warn!(
                closed,
                held_bytes = victim.units.load(Relaxed) * UNIT,
                limit = self.0.units * UNIT,
                "closed a connection in the middle of a message, because the memory of receivers is spent; receive.memory raises it"
            );
        }
        victim.asked.notify_one();
    }
}

/// Asks empty connections for what the blocked ones want. Returns whether there is anything to get.
fn release_empty(holders: &Holders) -> bool {
    let (mut wanted, mut empty) = (0, Vec::new());
    for holder in holders.all.values() {
        match holder.stage.load(SeqCst) {
            stage if stage == Stage::Blocked as u8 => wanted += holder.wanted.load(Relaxed),
            stage if stage == Stage::Empty as u8 && 0 < holder.units.load(Relaxed) => empty.push(holder),
            _ => {}
        }
    }
    empty.sort_by_key(|holder| std::cmp::Reverse(holder.units.load(Relaxed)));
    let mut asked = 0;
    for holder in &empty {
        if wanted <= asked {
            break;
        }
        asked += holder.units.load(Relaxed);
        holder.asked.notify_one();
    }
    0 < asked
}

/// What one connection or body has of the budget. Dropping it gives it back.
#[derive(Debug)]
pub struct BudgetShare {
    budget: ReceiveBudget,
    id: u64,
    holder: Arc<Holder>,
    permit: Option<OwnedSemaphorePermit>,
    /// Its part of the half for large frames.
    large: Option<OwnedSemaphorePermit>,
}

/// What the budget asks of a connection that waits for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// To free its memory.
    Release,
    /// To end.
    Close,
}

impl BudgetShare {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.units() * UNIT
    }

    fn units(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Raises the share to this many bytes if there is room; never waits.
    pub fn try_raise(&mut self, bytes: usize) -> bool {
        let Some(more) = self.lacking(bytes) else { return true };
        let Ok(units) = u32::try_from(more) else { return false };
        let permit = self.budget.0.free.clone().try_acquire_many_owned(units);
        permit.map(|permit| self.add(permit)).is_ok()
    }

    /// Raises the share to this many bytes; waits for room.
    ///
    /// # Errors
    /// There is no room, and this connection was chosen to end, or asks for more than the whole budget.
    pub async fn raise(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        if self.try_raise(bytes) {
            return Ok(());
        }
        let Shared { units, free, closed, .. } = &*self.budget.0;
        if bytes.div_ceil(UNIT) > *units {
            closed.fetch_add(1, Relaxed);
            return Err(OutOfMemory);
        }
        let more = self.lacking(bytes).unwrap_or(0);
        self.holder.wanted.store(more, Relaxed);
        let permit = self.wait_for(free.clone(), more, || self.budget.search()).await?;
        self.add(permit);
        Ok(())
    }

    async fn wait_for(
        &self,
        free: Arc<Semaphore>,
        units: usize,
        search: impl Fn(),
    ) -> Result<OwnedSemaphorePermit, OutOfMemory> {
        self.budget.0.waits.fetch_add(1, Relaxed);
        self.enter(Stage::Blocked);
        let acquire = free.acquire_many_owned(u32::try_from(units).expect("at most the whole budget"));
        search();
        let got = {
            tokio::pin!(acquire);
            loop {
                tokio::select! {
                    permit = &mut acquire => break Ok(permit.expect("the semaphore is never closed")),
                    () = self.holder.asked.notified() => {
                        if self.holder.must_close.load(SeqCst) {
                            break Err(OutOfMemory);
                        }
                    }
                    () = tokio::time::sleep(SEARCH) => search(),
                }
            }
        };
        self.enter(Stage::Busy);
        got
    }

    /// Whether the budget can ever hold so many bytes, and so many more for a decoder.
    pub(super) fn can_hold(&self, bytes: usize, decoder: usize) -> bool {
        let units = self.budget.0.units;
        (bytes + decoder).div_ceil(UNIT) <= units && (decoder <= LARGE_BYTES || decoder.div_ceil(UNIT) <= units / 2)
    }

    /// As `try_raise`, to this many bytes and so many more for a decoder.
    pub(super) fn try_raise_for_decoder(&mut self, bytes: usize, decoder: usize) -> bool {
        if LARGE_BYTES < decoder {
            let held = self.large.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            if let more @ 1.. = decoder.div_ceil(UNIT).saturating_sub(held) {
                let Ok(units) = u32::try_from(more) else { return false };
                let Ok(permit) = self.budget.0.free_for_large.clone().try_acquire_many_owned(units) else {
                    return false;
                };
                match &mut self.large {
                    Some(held) => held.merge(permit),
                    None => self.large = Some(permit),
                }
            }
        }
        self.try_raise(bytes + decoder)
    }

    /// As `raise`, to this many bytes, which it holds, and so many more for a decoder, which can be held.
    ///
    /// # Errors
    /// This connection was chosen to end.
    pub(super) async fn raise_for_decoder(&mut self, bytes: usize, decoder: usize) -> Result<(), OutOfMemory> {
        self.large = None;
        if LARGE_BYTES < decoder {
            self.holder.wanted.store(0, Relaxed);
            let free = self.budget.0.free_for_large.clone();
            // This asks no other connection for memory: one that has this half ends by itself.
            self.large = Some(self.wait_for(free, decoder.div_ceil(UNIT), || {}).await?);
        }
        self.raise(bytes + decoder).await
    }

    /// Gives back the part of the half for large frames, whose owner has freed it.
    pub(super) fn end_large(&mut self) {
        self.large = None;
    }

    /// Lowers the share to this many bytes, whose owner has freed the rest.
    pub fn lower(&mut self, bytes: usize) {
        let keep = bytes.div_ceil(UNIT);
        match &mut self.permit {
            Some(permit) if keep < permit.num_permits() => {
                if keep == 0 {
                    self.permit = None;
                } else {
                    drop(permit.split(permit.num_permits() - keep));
                }
                self.holder.units.store(keep, Relaxed);
            }
            _ => {}
        }
    }

    /// Waits for the sender in the middle of a message.
    ///
    /// # Errors
    /// This share was chosen to end, so that others get memory.
    pub async fn unless_closed<T>(&self, sender: impl Future<Output = T>) -> Result<T, OutOfMemory> {
        self.enter(Stage::Partial);
        tokio::pin!(sender);
        let sent = loop {
            tokio::select! {
                sent = &mut sender => break Ok(sent),
                asked = self.asked() => if asked == Asked::Close { break Err(OutOfMemory) },
            }
        };
        self.enter(Stage::Busy);
        sent
    }

    /// Notes what the connection does from now on.
    pub(super) fn enter(&self, stage: Stage) {
        self.holder.since.store(self.budget.millis(), Relaxed);
        self.holder.stage.store(stage as u8, SeqCst);
    }

    /// Returns when the budget wants memory back.
    pub(super) async fn asked(&self) -> Asked {
        self.holder.asked.notified().await;
        if self.holder.must_close.load(SeqCst) { Asked::Close } else { Asked::Release }
    }

    /// Units that are missing for this many bytes.
    fn lacking(&self, bytes: usize) -> Option<usize> {
        bytes.div_ceil(UNIT).checked_sub(self.units()).filter(|&more| 0 < more)
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        self.holder.units.store(self.units(), Relaxed);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.holders.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use host::SystemClock;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn budget(units: usize) -> ReceiveBudget {
        ReceiveBudget::new((units * UNIT) as u64, Arc::new(SystemClock))
    }

    #[tokio::test]
    async fn bytes_are_given_back_when_a_share_shrinks_or_ends() {
        let budget = budget(8);
        let mut first = budget.share();
        assert!(first.try_raise(6 * UNIT) && !first.try_raise(9 * UNIT));
        let mut second = budget.share();
        assert!(!second.try_raise(3 * UNIT));
        first.lower(UNIT + 1);
        assert_eq!((first.bytes(), budget.usage().used), (2 * UNIT, 2 * UNIT as u64));
        assert!(second.try_raise(6 * UNIT));
        drop((first, second));
        assert_eq!(budget.usage().used, 0);
    }

    #[tokio::test]
    async fn one_that_waits_gets_what_an_empty_connection_gives_back() {
        let budget = budget(8);
        let mut idle = budget.share();
        assert!(idle.try_raise(8 * UNIT));
        idle.enter(Stage::Empty);
        let mut waiting = budget.share();
        let gives = async {
            assert_eq!(idle.asked().await, Asked::Release);
            idle.lower(0);
        };
        let (raised, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting.raise(4 * UNIT), gives) })
            .await
            .expect("there is room");
        assert!(raised.is_ok() && budget.usage().closed == 0);
    }

    #[tokio::test]
    async fn the_largest_that_stands_in_a_message_is_closed_and_counted() {
        let budget = budget(8);
        let (mut small, mut large, mut waiting) = (budget.share(), budget.share(), budget.share());
        assert!(small.try_raise(2 * UNIT) && large.try_raise(6 * UNIT));
        small.enter(Stage::Partial);
        large.enter(Stage::Partial);
        let ends = async {
            assert_eq!(large.asked().await, Asked::Close);
            drop(large);
        };
        let (raised, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(waiting.raise(4 * UNIT), ends) })
            .await
            .expect("there is room");
        assert!(raised.is_ok() && budget.usage().closed == 1 && small.bytes() == 2 * UNIT);
    }

    #[tokio::test]
    async fn connections_that_all_wait_for_each_other_do_not_wait_for_ever() {
        let budget = budget(8);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.try_raise(5 * UNIT) && second.try_raise(3 * UNIT));
        let large = async {
            let raised = first.raise(8 * UNIT).await;
            drop(first);
            raised
        };
        let (large, small) = tokio::time::timeout(PATIENCE, async { tokio::join!(large, second.raise(6 * UNIT)) })
            .await
            .expect("one gives way");
        assert!(large.is_err() && small.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_closed_while_a_connection_is_busy_and_will_free_memory_itself() {
        let budget = budget(8);
        let (mut busy, mut blocked) = (budget.share(), budget.share());
        assert!(busy.try_raise(5 * UNIT) && blocked.try_raise(3 * UNIT));
        let waited = tokio::time::timeout(3 * PAUSED, blocked.raise(4 * UNIT)).await;
        assert!(waited.is_err() && budget.usage().closed == 0);
    }
}
