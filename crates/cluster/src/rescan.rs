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

/// What both share.
#[derive(Default)]
pub(crate) struct Rescan {
    asked: Notify,
    /// Whether a read is asked for: the one that is running is to end soon.
    is_asked: Arc<AtomicBool>,
    /// Names that other nodes created since the read that is running began.
    created: Mutex<Option<HashSet<String>>>,
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

    /// Names are about to be shown that other nodes created.
    pub(crate) fn created<'a>(&self, names: impl Iterator<Item = &'a str>) {
        if let Some(created) = &mut *self.created.lock() {
            created.extend(names.map(str::to_owned));
        }
    }

    /// Whether a name was created since the read began: that it was missing before tells nothing.
    pub(crate) fn was_created(&self, name: &str) -> bool {
        self.created.lock().as_ref().is_some_and(|created| created.contains(name))
    }

    /// The read has ended.
    pub(crate) fn end(&self) {
        *self.created.lock() = None;
    }
}
