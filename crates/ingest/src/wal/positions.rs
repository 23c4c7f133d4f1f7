//! How far the journal is written, and how far it is on the disk: numbers that every thread may read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release},
    },
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

/// Poll interval of a caller who waits for the disk with a time limit.
const POLL: Duration = Duration::from_millis(20);

/// Bytes of records since the journal was opened: appended, and covered by an fsync.
#[derive(Debug)]
pub(super) struct Positions {
    clock: Arc<dyn Clock>,
    segment: AtomicU64,
    length: AtomicU64,
    appended: AtomicU64,
    synced: AtomicU64,
    /// Whether an fsync was begun, and none has succeeded since.
    is_waiting: AtomicBool,
    /// When the last fsync that succeeded began, or nothing was left to sync.
    last: Mutex<Instant>,
}

impl Positions {
    pub(super) fn new(clock: Arc<dyn Clock>, segment: u64, length: u64) -> Positions {
        let last = Mutex::new(clock.instant());
        Positions {
            clock,
            segment: AtomicU64::new(segment),
            length: AtomicU64::new(length),
            appended: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            is_waiting: AtomicBool::new(false),
            last,
        }
    }

    /// The number of the current segment and its length.
    pub(super) fn current(&self) -> (u64, u64) {
        (self.segment.load(Acquire), self.length.load(Acquire))
    }

    /// The end of what is appended.
    pub(super) fn end(&self) -> u64 {
        self.appended.load(Acquire)
    }

    /// Sets how far the journal is written.
    pub(super) fn appended(&self, segment: u64, length: u64, appended: u64) {
        if self.synced.load(Acquire) == self.appended.load(Relaxed) {
            *self.last.lock() = self.clock.instant();
        }
        self.segment.store(segment, Release);
        self.length.store(length, Release);
        self.appended.store(appended, Release);
    }

    /// An fsync begins.
    pub(super) fn syncing(&self) {
        self.is_waiting.store(true, Release);
    }

    /// Sets how far the journal is on the disk, by an fsync that began at this time.
    pub(super) fn synced(&self, synced: u64, began: Instant) {
        self.synced.fetch_max(synced, Release);
        self.is_waiting.store(false, Release);
        *self.last.lock() = began;
    }

    pub(super) fn is_synced(&self, end: u64) -> bool {
        self.synced.load(Acquire) >= end
    }

    /// Bytes that are appended and not synced.
    pub(super) fn unsynced(&self) -> u64 {
        self.appended.load(Acquire).saturating_sub(self.synced.load(Acquire))
    }

    /// The time since everything that was appended was last known to be on the disk.
    pub(super) fn age(&self) -> Duration {
        match self.unsynced() {
            0 => Duration::ZERO,
            _ => self.clock.instant().saturating_duration_since(*self.last.lock()),
        }
    }

    /// Returns when an fsync was begun, and nothing was synced for this long after the call.
    pub(super) async fn stuck_for(&self, patience: Duration) {
        let (mut synced, mut since) = (self.synced.load(Acquire), self.clock.instant());
        loop {
            tokio::time::sleep(POLL.min(patience)).await;
            let (now, at) = (self.synced.load(Acquire), self.clock.instant());
            if now != synced || !self.is_waiting.load(Acquire) {
                (synced, since) = (now, at);
            } else if patience <= at.saturating_duration_since(since) {
                return;
            }
        }
    }
}
