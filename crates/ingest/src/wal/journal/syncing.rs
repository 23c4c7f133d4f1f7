//! Fsyncs of the open journal: callers share them, and what one fails for is repeated in another segment.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use store::StoreError;

use super::{Journal, NamesOnDisk};
use crate::backoff::JOURNAL_RETRY;

/// The interval at which the file of the newest segment gets how much of it is on the disk: two fsyncs of a small file.
const NOTE_EVERY: Duration = Duration::from_secs(5);

impl Journal {
    /// Returns when everything appended before this call is on the disk. Callers that come while one fsync runs share
    /// the next. Counts and logs a failure. Blocks.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let wanted = self.positions.end();
        let _turn = match self.positions.is_synced(wanted) {
            true => return Ok(()),
            false => self.turn.lock(),
        };
        if self.positions.is_synced(wanted) {
            return Ok(());
        }
        let began = self.host.clock.instant();
        self.positions.syncing();
        let to_sync = self.writer.lock().to_sync();
        let Some(to_sync) = to_sync else { return self.repeat_unsynced() };
        let synced = to_sync.files.iter().try_for_each(|file| file.sync_data());
        if let Err(error) = synced.and_then(|()| self.look_for_segment()) {
            self.writer.lock().sync_failed();
            self.failed(
                &error,
                "cannot sync the journal to the disk; writing what is not on the disk to another segment",
            );
            return self.repeat_unsynced();
        }
        let synced = self.writer.lock().synced(&to_sync);
        self.positions.synced(synced, began);
        self.counters.syncs.observe(self.host.clock.instant().saturating_duration_since(began));
        Ok(())
    }

    /// A segment that was deleted or moved away takes appends and fsyncs, and no start finds it. The current one is never
    /// trimmed.
    fn look_for_segment(&self) -> io::Result<()> {
        let path = self.folder.path_of(self.writer.lock().segment());
        if self.host.disk.exists(&path) {
            return Ok(());
        }
        let how = format!("{} is gone: it was deleted or moved away, or its disk was unmounted", path.display());
        Err(io::Error::new(io::ErrorKind::NotFound, how))
    }

    /// Puts what a failed fsync left open on the disk elsewhere. The caller has the turn.
    fn repeat_unsynced(&self) -> io::Result<()> {
        let began = self.host.clock.instant();
        let mut writer = self.writer.lock();
        // An append may have done it.
        let repeated = if writer.to_sync().is_none() { writer.repeat_unsynced(&self.names) } else { Ok(()) };
        self.note(&mut writer);
        match repeated {
            Ok(()) => {
                self.positions.synced(writer.appended() - writer.unsynced_bytes(), began);
                drop(writer);
                self.counters.repeated.fetch_add(1, Relaxed);
                self.works();
                Ok(())
            }
            Err(error) => {
                drop(writer);
                self.failed(&error, "cannot put the journal on the disk; accepting no points; a power failure can lose the last ones; retrying");
                Err(error)
            }
        }
    }

    /// Waits for an fsync that covers everything appended so far, however often it fails first.
    pub(crate) async fn synced(self: &Arc<Journal>) -> NamesOnDisk {
        let wanted = self.positions.end();
        while !self.positions.is_synced(wanted) {
            // One thread waits for the disk, whatever the number of callers.
            let turn = self.async_turn.lock().await;
            if self.positions.is_synced(wanted) {
                break;
            }
            let synced = self.elsewhere(|journal| journal.sync()).await;
            drop(turn);
            if !matches!(synced, Ok(Ok(()))) {
                tokio::time::sleep(JOURNAL_RETRY).await;
            }
        }
        NamesOnDisk(())
    }

    /// Appends the names and changes of policies that are not in the journal, and waits until they are on its disk, however often that fails first.
    pub(crate) async fn changes_synced(self: &Arc<Journal>) -> Result<(), StoreError> {
        let failed = |source| StoreError::Io { what: "writing changes of policies to the journal".to_owned(), source };
        self.append_names().await.map_err(failed)?;
        self.synced().await;
        Ok(())
    }

    /// Syncs at this interval, until the task is aborted.
    pub(crate) async fn sync_every(self: Arc<Journal>, interval: Duration) {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.is_failing() {
                let _ = self.elsewhere(Journal::probe).await;
            }
            if !self.positions.is_synced(self.positions.end()) {
                let _turn = self.async_turn.lock().await;
                // A failure is counted and logged there; the next tick is the next attempt.
                let _ = self.elsewhere(|journal| journal.sync()).await;
            }
        }
    }

    /// Notes how much of the journal is on the disk, every few seconds until the task is aborted.
    pub(crate) async fn note_synced_every(self: Arc<Journal>) {
        loop {
            tokio::time::sleep(NOTE_EVERY).await;
            self.note_synced_elsewhere().await;
        }
    }

    /// As [`Journal::note_synced`], on a thread that may wait for the disk. No call counts as waiting for it meanwhile: everything is on the
    /// disk, noted or not.
    async fn note_synced_elsewhere(self: &Arc<Journal>) {
        let journal = self.clone();
        let _ = host::spawn_blocking(move || journal.note_synced()).await;
    }

    /// As [`Journal::note_synced`], before the process ends. Waits for no longer than this.
    pub(crate) async fn note_synced_at_end(self: &Arc<Journal>, patience: Duration) {
        if tokio::time::timeout(patience, self.note_synced_elsewhere()).await.is_err() {
            tracing::warn!("the disk does not take the note of how much of the journal is on it; ending without it");
        }
    }

    /// Lets the file of the newest segment say how much of it is on the disk. Without it, an end that its file system loses looks
    /// like a write that a crash cut off. Blocks.
    pub(in crate::wal) fn note_synced(&self) {
        let newest = self.writer.lock().newest_synced();
        match newest.map(|(file, newest)| file.write_synced(newest)) {
            Some(Err(error)) if !self.is_note_failing.swap(true, Relaxed) => tracing::warn!(
                %error,
                "cannot note how much of the journal is on the disk; a start may not notice that its end is missing; trying again"
            ),
            Some(Ok(())) => self.is_note_failing.store(false, Relaxed),
            _ => {}
        }
    }

    /// While the journal cannot be written, senders may stay away: tries whether a batch would fit, and begins a segment, so
    /// that the failure ends without them.
    fn probe(&self) {
        let tried = self.folder().try_to_write();
        if tried.and_then(|()| self.exclusive().begin_again()).is_ok() {
            self.works();
        }
    }
}
