//! Which part of the journal is on the disk for good.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Acquire, Ordering::Release},
    },
    time::Instant,
};

use host::Clock;
use parking_lot::Mutex;

use super::writer::Writer;

/// Counts appends and those of them that an fsync covers.
#[derive(Debug)]
pub(super) struct Fsync {
    clock: Arc<dyn Clock>,
    /// Locked for the time of an fsync, so that callers who wait for one share it. Before the writer's lock.
    turn: Mutex<()>,
    appended: AtomicU64,
    synced: AtomicU64,
    last: Mutex<Instant>,
}

impl Fsync {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Fsync {
        let last = Mutex::new(clock.instant());
        Fsync { clock, turn: Mutex::new(()), appended: AtomicU64::new(0), synced: AtomicU64::new(0), last }
    }

    /// Counts an append, under the writer's lock.
    pub(super) fn count_append(&self) {
        self.appended.fetch_add(1, Release);
    }

    /// Returns when everything appended before this call is on the disk. Callers that come while one fsync runs share
    /// the next.
    pub(super) fn sync(&self, writer: &Mutex<Writer>) -> io::Result<()> {
        let wanted = self.appended.load(Acquire);
        if self.synced.load(Acquire) >= wanted {
            *self.last.lock() = self.clock.instant();
            return Ok(());
        }
        let _turn = self.turn.lock();
        if self.synced.load(Acquire) >= wanted {
            return Ok(());
        }
        let (files, reached) = {
            let writer = writer.lock();
            (writer.unsynced(), self.appended.load(Acquire))
        };
        let began = self.clock.instant();
        for file in &files {
            file.sync_data()?;
        }
        writer.lock().synced(files.len() - 1);
        self.synced.store(reached, Release);
        *self.last.lock() = began;
        Ok(())
    }

    /// Seconds since everything that was appended was last known to be on the disk.
    pub(super) fn age(&self) -> f64 {
        if self.synced.load(Acquire) >= self.appended.load(Acquire) {
            return 0.0;
        }
        self.clock.instant().saturating_duration_since(*self.last.lock()).as_secs_f64()
    }
}
