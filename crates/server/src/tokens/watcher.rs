//! Watches the file of tokens while the program runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use host::Disk;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::bearers::Bearers;
use crate::settled;

/// Puts changed tokens into force. An invalid file leaves the old ones in force.
pub struct TokenWatcher {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bearers: Arc<Bearers>,
    // As it was read last; `Err` with the reason if that failed.
    last: tokio::sync::Mutex<Result<String, String>>,
    /// The text in force.
    current: Mutex<String>,
}

impl TokenWatcher {
    /// With the file as the start read it.
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf, text: String, bearers: Arc<Bearers>) -> TokenWatcher {
        TokenWatcher { disk, path, bearers, last: Ok(text.clone()).into(), current: text.into() }
    }

    /// Reads the file at each interval and each SIGHUP, until dropped.
    pub async fn follow(self: Arc<TokenWatcher>, every: Duration) {
        let mut hangups = signal(SignalKind::hangup()).expect("signals can be handled");
        loop {
            tokio::select! {
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
                _ = hangups.recv() => {}
            }
            self.reload().await;
        }
    }

    async fn reload(&self) {
        let current = self.current.lock().clone();
        let read = settled::read(&self.disk, &self.path, Some(&current)).await;
        let mut last = self.last.lock().await;
        if *last == read {
            return;
        }
        match read.as_deref().map_err(Clone::clone).and_then(|text| self.bearers.replace(text)) {
            Ok(tokens) => {
                tracing::info!(tokens, "the file of tokens changed; the new tokens are in force");
                *self.current.lock() = read.clone().unwrap_or_default();
            }
            Err(error) => tracing::error!(file = %self.path.display(),
                "cannot use the changed file of tokens; the old tokens stay in force: {error}"),
        }
        // Kept also when invalid: logged once, and read again when it changes.
        *last = read;
    }
}
