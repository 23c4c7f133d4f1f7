//! Between following changes and reading all names: who follows asks for a read, and a read hides nothing that came meanwhile.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Names that are remembered while all are read, at most: of more none is hidden.
const MOST_CREATED: usize = 1 << 20;

/// What both share.
#[derive(Default)]
pub(crate) struct Rescan {
    asked: Notify,
    /// Whether a read is asked for: the one that is running is to end soon.
    is_asked: Arc<AtomicBool>,
    /// Hashes of the names that other nodes created since the read that is running began.
    created: Mutex<Option<HashSet<u64>>>,
}

impl Rescan {
    /// Asks for a read of all names, as soon as the current one has ended.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Relaxed);
        self.asked.notify_one();
    }

    /// Whether one is asked for.
    pub(crate) fn is_asked(&self) -> &Arc<AtomicBool> {
        &self.is_asked
    }

    /// Waits until one is asked for.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
        self.is_asked.store(false, Relaxed);
    }

    /// A read begins.
    pub(crate) fn begin(&self) {
        *self.created.lock() = Some(HashSet::new());
    }

    /// Names are about to be shown that other nodes created, by their hashes.
    pub(crate) fn created(&self, names: impl Iterator<Item = u64>) {
        if let Some(created) = &mut *self.created.lock() {
            created.extend(names.take(MOST_CREATED.saturating_sub(created.len())));
        }
    }

    /// Whether a name was created since the read began, or may have been: that it was missing before tells nothing.
    pub(crate) fn was_created(&self, name: u64) -> bool {
        let created = self.created.lock();
        created.as_ref().is_some_and(|created| MOST_CREATED <= created.len() || created.contains(&name))
    }

    /// The read has ended.
    pub(crate) fn end(&self) {
        *self.created.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_names_than_are_remembered_none_is_hidden() {
        let rescan = Rescan::default();
        rescan.created([1].into_iter());
        assert!(!rescan.was_created(1), "no read is running");
        rescan.begin();
        rescan.created([1, 2].into_iter());
        assert!(rescan.was_created(2) && !rescan.was_created(3));
        for from in (0..=MOST_CREATED as u64).step_by(1 << 16) {
            rescan.created(from..from + (1 << 16));
        }
        assert!(rescan.was_created(u64::MAX));
        assert!(rescan.created.lock().as_ref().unwrap().len() <= MOST_CREATED);
        rescan.end();
        assert!(!rescan.was_created(2));
    }
}
