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
    /// Calls that wait for the disk at present, and those that have ended.
    working: AtomicU64,
    ended: AtomicU64,
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
            working: AtomicU64::new(0),
            ended: AtomicU64::new(0),
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

    /// Counts a call that waits for the disk, until the answer is dropped.
    pub(super) fn work(&self) -> Work<'_> {
        self.working.fetch_add(1, Release);
        Work(self)
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

    /// Returns when the disk was waited for, and has answered nothing and synced nothing for this long after the call.
    pub(super) async fn stuck_for(&self, patience: Duration) {
        let progress = || (self.synced.load(Acquire), self.ended.load(Acquire));
        let (mut before, mut since) = (progress(), self.clock.instant());
        loop {
            tokio::time::sleep(POLL.min(patience)).await;
            let (now, at) = (progress(), self.clock.instant());
            let is_idle = !self.is_waiting.load(Acquire) && self.working.load(Acquire) == 0;
            // A call that fails has ended, too; an fsync counts until one succeeds.
            let has_moved = if self.is_waiting.load(Acquire) { now.0 != before.0 } else { now != before };
            if is_idle || has_moved {
                (before, since) = (now, at);
            } else if patience <= at.saturating_duration_since(since) {
                return;
            }
        }
    }
}

/// A call that waits for the disk.
pub(super) struct Work<'a>(&'a Positions);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Release);
        self.0.ended.fetch_add(1, Release);
    }
}
