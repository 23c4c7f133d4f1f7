//! Memory for what receivers have read and not accepted yet: one budget for all connections and bodies.
//!
//! A connection takes bytes from the budget before it allocates them, and gives them back when it frees them. When the
//! budget is spent:
//!
//! 1. Connections that need bytes wait for them, in the order in which they ask.
//! 2. Connections that hold memory and no unread bytes give it back.
//! 3. If that does not help, the largest connections whose senders have paused in the middle of a message are closed, as many
//!    as give what others wait for. If none has paused, that is the largest whose message has gone on for a while; if all wait
//!    for memory, the largest of all.
//!
//! An eighth of a large budget is for connections that have little, as senders of lines: they do not wait behind long
//! messages.
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

/// Bytes up to which a connection may take from the part for those that have little.
const LITTLE_BYTES: usize = 64 << 10;

/// A smaller budget has no such part.
const LEAST_WITH_PART: usize = 4 << 20;

/// Interval between two searches for memory while connections wait for it.
const SEARCH: Duration = Duration::from_millis(100);

/// How long a sender must have paused, or waited for memory, before its connection may be closed.
const PAUSED: Duration = Duration::from_secs(1);

/// How long a message may go on while others wait for memory, if no sender has paused.
const LONG_MESSAGE: Duration = Duration::from_secs(2);

/// The budget. A clone shares it.
#[derive(Debug, Clone)]
pub struct ReceiveBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    began: Instant,
    /// In all; the next two are parts of them.
    units: usize,
    free: Arc<Semaphore>,
    /// For connections that have little.
    free_for_little: Arc<Semaphore>,
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
    /// When the message began that is not complete.
    message_since: AtomicU64,
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
        let little = units - most_of_one(units);
        ReceiveBudget(Arc::new(Shared {
            began: clock.instant(),
            clock,
            units,
            free: Arc::new(Semaphore::new(units - little)),
            free_for_little: Arc::new(Semaphore::new(little)),
            free_for_large: Arc::new(Semaphore::new(units / 2)),
            holders: Mutex::default(),
            waits: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }))
    }

    /// The part of one connection or body; nothing yet.
    pub fn share(&self) -> BudgetShare {
        let holder = Arc::<Holder>::default();
        holder.message_since.store(self.millis(), Relaxed);
        let mut holders = self.0.holders.lock();
        let id = holders.next;
        holders.next += 1;
        holders.all.insert(id, holder.clone());
        BudgetShare { budget: self.clone(), id, holder, permit: None, little: None, large: None }
    }

    /// For metrics.
    pub fn usage(&self) -> BudgetUse {
        let Shared { units, free, free_for_little, waits, closed, .. } = &*self.0;
        let free = free.available_permits() + free_for_little.available_permits();
        let used = (units - free.min(*units)) * UNIT;
        let (waits, closed) = (waits.load(Relaxed), closed.load(Relaxed));
        BudgetUse { used: used as u64, limit: (units * UNIT) as u64, waits, closed }
    }

    /// Units that one connection can have: all but the part for those that have little.
    fn most_of_one(&self) -> usize {
        most_of_one(self.0.units)
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
            self.close_some(&holders);
        }
    }

    fn close_some(&self, holders: &Holders) {
        let now = self.millis();
        let is_in = |holder: &Holder, stage| holder.stage.load(SeqCst) == stage as u8;
        let is_since =
            |since: &AtomicU64, time: Duration| time.as_millis() as u64 <= now.saturating_sub(since.load(Relaxed));
        let holding = || holders.all.values().filter(|holder| 0 < holder.units.load(Relaxed));
        let standing = |stage| holding().filter(move |holder| is_in(holder, stage) && is_since(&holder.since, PAUSED));
        let mut paused: Vec<&Arc<Holder>> = standing(Stage::Partial).collect();
        if paused.is_empty() {
            // Senders that never pause, and never end their messages.
            let slow = holding()
                .filter(|holder| is_in(holder, Stage::Partial) && is_since(&holder.message_since, LONG_MESSAGE));
            paused.extend(largest(slow));
        }
        if paused.is_empty() && !holding().any(|holder| is_in(holder, Stage::Busy)) {
            paused.extend(largest(standing(Stage::Blocked)));
        }
        paused.sort_by_key(|holder| std::cmp::Reverse(holder.units.load(Relaxed)));
        let wanted = wanted(holders);
        let mut given = 0;
        for victim in paused {
            if given == 0 || given < wanted {
                given += victim.units.load(Relaxed);
                self.close(victim);
            }
        }
    }

    fn close(&self, victim: &Holder) {
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

/// Of a budget of so many units.
fn most_of_one(units: usize) -> usize {
    if LEAST_WITH_PART <= units * UNIT { units - units / 8 } else { units }
}

fn largest<'a>(holders: impl Iterator<Item = &'a Arc<Holder>>) -> Option<&'a Arc<Holder>> {
    holders.max_by_key(|holder| holder.units.load(Relaxed))
}

/// Units that blocked connections wait for.
fn wanted(holders: &Holders) -> usize {
    let blocked = holders.all.values().filter(|holder| holder.stage.load(SeqCst) == Stage::Blocked as u8);
    blocked.map(|holder| holder.wanted.load(Relaxed)).sum()
}

/// Asks empty connections for what the blocked ones want. Returns whether there is anything to get.
fn release_empty(holders: &Holders) -> bool {
    let wanted = wanted(holders);
    let is_empty = |holder: &Holder| holder.stage.load(SeqCst) == Stage::Empty as u8;
    let mut empty: Vec<_> =
        holders.all.values().filter(|holder| is_empty(holder) && 0 < holder.units.load(Relaxed)).collect();
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
    /// What it has of the part for connections that have little.
    little: Option<OwnedSemaphorePermit>,
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
        let units =
            |permit: &Option<OwnedSemaphorePermit>| permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        units(&self.permit) + units(&self.little)
    }

    /// Raises the share to this many bytes if there is room; never waits.
    pub fn try_raise(&mut self, bytes: usize) -> bool {
        let Some(more) = self.lacking(bytes) else { return true };
        let Ok(units) = u32::try_from(more) else { return false };
        let Shared { free, free_for_little, .. } = &*self.budget.0;
        if let Ok(permit) = free.clone().try_acquire_many_owned(units) {
            self.add(permit);
            return true;
        }
        let permit = free_for_little.clone().try_acquire_many_owned(units).ok().filter(|_| bytes <= LITTLE_BYTES);
        permit.map(|permit| self.add_little(permit)).is_some()
    }

    /// Raises the share to this many bytes; waits for room.
    ///
    /// # Errors
    /// There is no room, and this connection was chosen to end, or asks for more than the whole budget.
    pub async fn raise(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        if self.try_raise(bytes) {
            return Ok(());
        }
        let Shared { free, free_for_little, closed, .. } = &*self.budget.0;
        if bytes.div_ceil(UNIT) > self.budget.most_of_one() {
            closed.fetch_add(1, Relaxed);
            return Err(OutOfMemory);
        }
        let more = self.lacking(bytes).unwrap_or(0);
        self.holder.wanted.store(more, Relaxed);
        if bytes <= LITTLE_BYTES && self.budget.most_of_one() < self.budget.0.units {
            let either = async {
                tokio::select! {
                    permit = acquire(free, more) => (permit, None),
                    permit = acquire(free_for_little, more) => (None, permit),
                }
            };
            let (permit, little) = self.wait_for(either, || self.budget.search()).await?;
            permit.into_iter().for_each(|permit| self.add(permit));
            little.into_iter().for_each(|permit| self.add_little(permit));
        } else {
            let permit = self.wait_for(acquire(free, more), || self.budget.search()).await?;
            permit.into_iter().for_each(|permit| self.add(permit));
        }
        Ok(())
    }

    async fn wait_for<T>(&self, acquire: impl Future<Output = T>, search: impl Fn()) -> Result<T, OutOfMemory> {
        self.budget.0.waits.fetch_add(1, Relaxed);
        self.enter(Stage::Blocked);
        search();
        let got = {
            tokio::pin!(acquire);
            loop {
                tokio::select! {
                    permit = &mut acquire => break Ok(permit),
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
        let units = self.budget.most_of_one();
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
            let free = &self.budget.0.free_for_large;
            // This asks no other connection for memory: one that has this half ends by itself.
            self.large = self.wait_for(acquire(free, decoder.div_ceil(UNIT)), || {}).await?;
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
        // The part for those that have little first.
        let little = keep_of(
            &mut self.little,
            keep.saturating_sub(self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)),
        );
        keep_of(&mut self.permit, keep - little.min(keep));
        self.holder.units.store(self.units(), Relaxed);
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

    /// Notes that a message was complete, or that none has begun.
    pub(super) fn end_message(&self) {
        self.holder.message_since.store(self.budget.millis(), Relaxed);
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

    fn add_little(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.little {
            Some(held) => held.merge(permit),
            None => self.little = Some(permit),
        }
        self.holder.units.store(self.units(), Relaxed);
    }
}

/// Waits for so many units. Never `None`.
async fn acquire(free: &Arc<Semaphore>, units: usize) -> Option<OwnedSemaphorePermit> {
    let units = u32::try_from(units).expect("at most the whole budget");
    Some(free.clone().acquire_many_owned(units).await.expect("the semaphore is never closed"))
}

/// Gives back all but so many units. Returns those that are left.
fn keep_of(permit: &mut Option<OwnedSemaphorePermit>, keep: usize) -> usize {
    let Some(held) = permit else { return 0 };
    let units = held.num_permits();
    if keep == 0 {
        *permit = None;
    } else if keep < units {
        drop(held.split(units - keep));
    }
    keep.min(units)
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.holders.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
