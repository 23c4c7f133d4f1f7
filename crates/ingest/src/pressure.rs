//! Back-pressure: when receivers must wait, and when they may go on; when points stay in the journal alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Bytes that a held slot counts for: its value.
pub(crate) const SLOT_BYTES: u64 = 8;

/// Closed while too much is held in memory or in the journal. Receivers ask before they accept, so their
/// sockets fill and the senders' own queues take over, as with carbon's flow control.
#[derive(Debug)]
pub(crate) struct Pressure {
    memory_limit: u64,
    journal_limit: u64,
    held_slots: AtomicU64,
    journal_bytes: AtomicU64,
    closed: AtomicBool,
    /// Whether points go to the journal alone. Changed only while nobody appends.
    parks: AtomicBool,
    /// Whether nobody waits any more, because the program stops.
    released: AtomicBool,
    opened: Notify,
    /// Wakes the flush cycle.
    pub(crate) flush: Notify,
}

impl Pressure {
    pub(crate) fn new(memory_limit: u64, journal_limit: u64) -> Pressure {
        Pressure {
            memory_limit,
            journal_limit,
            held_slots: AtomicU64::new(0),
            journal_bytes: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            parks: AtomicBool::new(false),
            released: AtomicBool::new(false),
            opened: Notify::new(),
            flush: Notify::new(),
        }
    }

    pub(crate) fn held_slots(&self) -> u64 {
        self.held_slots.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether points go to the journal alone. Asked while the journal's gate is held.
    pub(crate) fn parks(&self) -> bool {
        self.parks.load(Ordering::Acquire)
    }

    /// Points go to the journal alone from now on, or not any more. The caller has the journal's gate to itself.
    pub(crate) fn set_parks(&self, parks: bool) {
        self.parks.store(parks, Ordering::Release);
        if parks {
            self.open_if_not_full();
        }
    }

    /// Whether points may be parked: memory is full, and the journal is not.
    pub(crate) fn asks_for_parking(&self) -> bool {
        !self.parks() && self.is_memory_full() && !self.is_journal_full()
    }

    /// Whether parked points may come back: some room is left for what comes meanwhile, and it is above the half at
    /// which cycles hurry.
    pub(crate) fn has_room(&self) -> bool {
        4 * self.held_bytes() < 3 * self.memory_limit
    }

    /// Slots came. At half of a limit the flush cycle begins, at the limit receivers wait.
    pub(crate) fn grew(&self, slots: u64, journal_bytes: u64) {
        self.held_slots.fetch_add(slots, Ordering::Relaxed);
        self.journal_bytes.store(journal_bytes, Ordering::Relaxed);
        if self.is_half() {
            self.flush.notify_one();
            if self.is_full() {
                self.closed.store(true, Ordering::Release);
            }
        }
    }

    /// Slots were stored, or the journal was trimmed.
    pub(crate) fn shrank(&self, slots: u64, journal_bytes: u64) {
        self.held_slots.fetch_sub(slots, Ordering::Relaxed);
        self.journal_bytes.store(journal_bytes, Ordering::Relaxed);
        if self.is_closed() {
            self.open_if_not_full();
        }
    }

    /// Whether a flush cycle should hurry.
    pub(crate) fn is_half(&self) -> bool {
        2 * self.held_bytes() > self.memory_limit || 2 * self.journal_bytes.load(Ordering::Relaxed) > self.journal_limit
    }

    fn is_full(&self) -> bool {
        self.is_journal_full() || self.is_memory_full() && !self.parks()
    }

    fn is_memory_full(&self) -> bool {
        self.held_bytes() > self.memory_limit
    }

    fn is_journal_full(&self) -> bool {
        self.journal_bytes.load(Ordering::Relaxed) > self.journal_limit
    }

    fn held_bytes(&self) -> u64 {
        SLOT_BYTES * self.held_slots.load(Ordering::Relaxed)
    }

    /// Opens what was closed by a look that was late: between it and the closing everything was stored.
    fn open_if_not_full(&self) -> bool {
        if self.is_full() {
            return false;
        }
        self.closed.store(false, Ordering::Release);
        self.opened.notify_waiters();
        true
    }

    /// Nobody waits from now on.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Returns when points may be accepted.
    pub(crate) async fn wait(&self) {
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            // Registered before the look, so that an opening in between is not missed.
            opened.as_mut().enable();
            let is_released = self.released.load(Ordering::SeqCst);
            if is_released || !self.closed.load(Ordering::Acquire) || self.open_if_not_full() {
                return;
            }
            self.flush.notify_one();
            opened.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_what_is_stored_already() {
        let pressure = Pressure::new(8, 100);
        pressure.grew(2, 0);
        pressure.shrank(2, 0);
        // As when another thread saw it full before and closes it after.
        pressure.closed.store(true, Ordering::Release);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(5), pressure.wait()).await;
        assert!(waited.is_ok() && !pressure.is_closed());
    }

    #[tokio::test]
    async fn nobody_waits_when_the_program_stops() {
        let pressure = std::sync::Arc::new(Pressure::new(8, 100));
        pressure.grew(2, 0);
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
    async fn receivers_wait_while_it_is_full_and_no_longer() {
        let pressure = std::sync::Arc::new(Pressure::new(8, 100));
        pressure.grew(2, 0);
        assert!(pressure.is_closed());
        let waiting = tokio::spawn({
            let pressure = pressure.clone();
            async move { pressure.wait().await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        pressure.shrank(2, 0);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await;
        assert!(waited.is_ok());
    }
}
