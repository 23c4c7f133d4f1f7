//! Back-pressure: when receivers wait, when they continue, and when points stay in the journal alone.

use std::{
    iter::Sum,
    ops::Add,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use downsample::{Growth, PendingPoints};
use host::Clock;
use tokio::sync::Notify;

use crate::{
    wait_time::{Wait, WaitTime},
    wal::{Appended, Exclusive, JournalSize},
};

/// Points in memory: what an operator sees of them, and what the limit is compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Slots of points.
    pub(crate) slots: u64,
    /// Bytes, those reserved for later points included.
    pub(crate) bytes: u64,
}

impl From<Growth> for Held {
    fn from(growth: Growth) -> Held {
        Held { slots: u64::from(growth.slots), bytes: u64::from(growth.bytes) }
    }
}

impl From<&PendingPoints> for Held {
    fn from(points: &PendingPoints) -> Held {
        Held { slots: points.slots() as u64, bytes: points.bytes() as u64 }
    }
}

impl Add for Held {
    type Output = Held;

    fn add(self, more: Held) -> Held {
        Held { slots: self.slots + more.slots, bytes: self.bytes + more.bytes }
    }
}

impl Sum for Held {
    fn sum<I: Iterator<Item = Held>>(all: I) -> Held {
        all.fold(Held::default(), Held::add)
    }
}

/// Closed while too much is in memory or in the journal. Receivers ask before they accept, so their sockets fill and
/// the senders' own queues take over, as with carbon's flow control.
#[derive(Debug)]
pub(crate) struct BackPressure {
    memory_limit: u64,
    journal_limit: u64,
    journal: Arc<JournalSize>,
    /// Slots of points in memory, those of flush jobs included.
    slots: AtomicU64,
    /// Their bytes.
    bytes: AtomicU64,
    is_closed: AtomicBool,
    /// Whether points stay in the journal alone.
    is_spilling: AtomicBool,
    /// Whether the disk has less free than is kept for merges.
    is_disk_short: AtomicBool,
    /// Whether receivers no longer wait, because the program stops.
    is_released: AtomicBool,
    opened: Notify,
    flush: Notify,
    waits: WaitTime,
}

impl BackPressure {
    pub(crate) fn new(
        memory_limit: u64,
        journal_limit: u64,
        journal: Arc<JournalSize>,
        clock: Arc<dyn Clock>,
    ) -> BackPressure {
        BackPressure {
            memory_limit,
            journal_limit,
            journal,
            slots: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_spilling: AtomicBool::new(false),
            is_disk_short: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            opened: Notify::new(),
            flush: Notify::new(),
            waits: WaitTime::new(clock),
        }
    }

    pub(crate) fn journal_limit(&self) -> u64 {
        self.journal_limit
    }

    /// Slots of points in memory.
    pub(crate) fn slots(&self) -> u64 {
        self.slots.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// What receivers wait for; `None` while they do not wait.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        if !self.is_closed() || !self.is_full() {
            return None;
        }
        if self.is_disk_short.load(Ordering::Relaxed) {
            return Some("the disk reserve (data.reserve) is reached: too little of the disk is free");
        }
        Some(match (self.is_memory_full(), self.is_journal_full()) {
            (_, true) => "the journal is full (ingest.journal_limit), because the store takes too little",
            _ => "the memory for points is full (ingest.memory_limit), because the store takes too little",
        })
    }

    /// Closes while the disk has less free than is kept for merges.
    pub(crate) fn set_disk_short(&self, is_short: bool) {
        let was_short = self.is_disk_short.swap(is_short, Ordering::SeqCst);
        if is_short {
            self.is_closed.store(true, Ordering::Release);
            if !was_short {
                // What is in memory makes room in the journal.
                self.flush.notify_one();
            }
        } else if was_short {
            self.open_again();
        }
    }

    /// Whether these points stay in the journal alone. The answer holds while `appended` lives.
    pub(crate) fn spills(&self, appended: &Appended<'_>) -> bool {
        let _while_it_lives = appended;
        self.is_spilling()
    }

    /// Whether points stay in the journal alone, at this moment.
    pub(crate) fn is_spilling(&self) -> bool {
        self.is_spilling.load(Ordering::Acquire)
    }

    /// From now on points stay in the journal alone, or no longer.
    pub(crate) fn set_spilling(&self, spilling: bool, exclusive: &Exclusive<'_>) {
        let _while_it_lives = exclusive;
        self.is_spilling.store(spilling, Ordering::Release);
        if spilling {
            self.open_if_not_full();
        }
    }

    /// Whether there is a reason to spill: memory is full, and the journal is not.
    pub(crate) fn asks_to_spill(&self) -> bool {
        !self.is_spilling() && self.is_memory_full() && !self.is_journal_full()
    }

    /// Whether spilled points may come back: there is room for what comes meanwhile, and above the half at which
    /// cycles hurry.
    pub(crate) fn has_room(&self) -> bool {
        4 * self.memory_bytes() < 3 * self.memory_limit
    }

    /// Whether memory and journal have room for late points that wait.
    pub(crate) fn may_hold_late(&self) -> bool {
        let is_disk_short = self.is_disk_short.load(Ordering::Relaxed);
        !is_disk_short && self.has_room() && 4 * self.journal.bytes() < 3 * self.journal_limit
    }

    /// Counts new points in memory or the journal. At half of a limit the flush cycle begins, at the limit
    /// receivers wait.
    pub(crate) fn added(&self, more: Held) {
        self.slots.fetch_add(more.slots, Ordering::Relaxed);
        self.bytes.fetch_add(more.bytes, Ordering::Relaxed);
        if self.is_half_full() {
            self.flush.notify_one();
            if self.is_full() {
                self.is_closed.store(true, Ordering::Release);
            }
        }
    }

    /// Counts points that are stored now.
    pub(crate) fn stored(&self, points: Held) {
        self.slots.fetch_sub(points.slots, Ordering::Relaxed);
        self.bytes.fetch_sub(points.bytes, Ordering::Relaxed);
        self.open_again();
    }

    /// Releases receivers if the journal was trimmed enough.
    pub(crate) fn trimmed(&self) {
        self.open_again();
    }

    fn open_again(&self) {
        if self.is_closed() {
            self.open_if_not_full();
        }
    }

    /// Whether a flush cycle should hurry.
    pub(crate) fn is_half_full(&self) -> bool {
        self.is_disk_short.load(Ordering::Relaxed)
            || 2 * self.memory_bytes() > self.memory_limit
            || 2 * self.journal.bytes() > self.journal_limit
    }

    fn is_full(&self) -> bool {
        self.is_disk_short.load(Ordering::Relaxed)
            || self.is_journal_full()
            || self.is_memory_full() && !self.is_spilling()
    }

    fn is_memory_full(&self) -> bool {
        self.memory_bytes() > self.memory_limit
    }

    fn is_journal_full(&self) -> bool {
        self.journal.bytes() > self.journal_limit
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Opens, also where another thread closed late: everything may be stored between its look and its closing.
    fn open_if_not_full(&self) -> bool {
        if self.is_full() {
            return false;
        }
        self.is_closed.store(false, Ordering::Release);
        self.opened.notify_waiters();
        true
    }

    /// Ends every wait, now and later.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Returns when points may be accepted.
    pub(crate) async fn wait(&self) {
        let _wait = self.waits.begin();
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            // Registered before the look, so that an opening in between is not missed.
            opened.as_mut().enable();
            let is_released = self.is_released.load(Ordering::SeqCst);
            if is_released || !self.is_closed.load(Ordering::Acquire) || self.open_if_not_full() {
                return;
            }
            self.flush.notify_one();
            opened.await;
        }
    }

    /// Counts the time until the answer is dropped as a wait, for a receiver that waits for the journal's disk.
    pub(crate) fn count_wait(&self) -> Wait<'_> {
        self.waits.begin()
    }

    /// Seconds that receivers waited, all connections together, those that wait now included.
    pub(crate) fn waited_seconds(&self) -> f64 {
        self.waits.so_far().as_secs_f64()
    }

    /// Asks for a flush cycle.
    pub(crate) fn ask_for_flush(&self) {
        self.flush.notify_one();
    }

    /// Returns when a flush cycle is asked for.
    pub(crate) async fn flush_asked_for(&self) {
        self.flush.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use host::SystemClock;

    use super::*;

    const TWO: Held = Held { slots: 2, bytes: 16 };

    fn back_pressure(memory_limit: u64) -> Arc<BackPressure> {
        Arc::new(BackPressure::new(memory_limit, 100, Arc::default(), Arc::new(SystemClock)))
    }

    #[tokio::test]
    async fn a_wait_ends_at_once_when_everything_is_stored_already() {
        let pressure = back_pressure(8);
        pressure.added(TWO);
        pressure.stored(TWO);
        // As when another thread saw it full before and closes it after.
        pressure.is_closed.store(true, Ordering::Release);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(5), pressure.wait()).await;
        assert!(waited.is_ok() && !pressure.is_closed());
    }

    #[tokio::test]
    async fn waits_end_when_the_program_stops() {
        let pressure = back_pressure(8);
        pressure.added(TWO);
        let waiting = tokio::spawn({
            let pressure = pressure.clone();
            async move { pressure.wait().await }
        });
        tokio::task::yield_now().await;
        pressure.release();
        let waited = tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await;
        assert!(waited.is_ok() && pressure.is_closed());
        assert!(tokio::time::timeout(std::time::Duration::from_secs(5), pressure.wait()).await.is_ok());
    }

    #[tokio::test]
    async fn receivers_wait_while_memory_is_full_and_no_longer() {
        let pressure = back_pressure(8);
        pressure.added(TWO);
        assert!(pressure.is_closed());
        let waiting = tokio::spawn({
            let pressure = pressure.clone();
            async move { pressure.wait().await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        pressure.stored(TWO);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await;
        assert!(waited.is_ok());
    }
}
