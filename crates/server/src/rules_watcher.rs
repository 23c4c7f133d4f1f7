//! Watches carbon's folder while the program runs.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Disk;
use ingest::Ingest;
use tokio::signal::unix::{SignalKind, signal};

use crate::carbon_files::CarbonFiles;

/// Puts changed rules into force. Invalid files leave the old rules in force.
pub struct RulesWatcher {
    disk: Arc<dyn Disk>,
    dir: Option<PathBuf>,
    files: CarbonFiles,
    /// The latest read of the folder failed.
    is_unreadable: bool,
    /// Whether the current files are not in force.
    pub is_rejected: Arc<AtomicBool>,
}

impl RulesWatcher {
    /// With the files as the start read them.
    pub fn new(disk: Arc<dyn Disk>, dir: Option<PathBuf>, files: CarbonFiles) -> RulesWatcher {
        RulesWatcher { disk, dir, files, is_unreadable: false, is_rejected: Arc::default() }
    }

    /// Reads the folder at each interval and each SIGHUP, until dropped.
    pub async fn follow(mut self, ingest: Arc<Ingest>, every: Duration) {
        let mut hangups = signal(SignalKind::hangup()).expect("signals can be handled");
        loop {
            tokio::select! {
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
                _ = hangups.recv() => {}
            }
            self.reload(&ingest).await;
        }
    }

    async fn reload(&mut self, ingest: &Ingest) {
        let files = match CarbonFiles::read(&*self.disk, self.dir.as_deref()) {
            Ok(files) => files,
            Err(error) => {
                // Logged once per outage.
                if !self.is_unreadable {
                    self.is_unreadable = true;
                    self.reject(&error);
                }
                return;
            }
        };
        if files == self.files && !self.is_unreadable {
            return;
        }
        self.is_unreadable = false;
        match files.rules() {
            Ok((rules, warnings)) => {
                warnings.iter().for_each(|warning| tracing::warn!(warning, "carbon's files"));
                ingest.set_rules(rules).await;
                self.is_rejected.store(false, Relaxed);
                tracing::info!("carbon's files changed; the new rules are in force");
            }
            Err(error) => self.reject(&error),
        }
        // Kept also when invalid: logged once, and read again when it changes.
        self.files = files;
    }

    fn reject(&self, error: &anyhow::Error) {
        self.is_rejected.store(true, Relaxed);
        tracing::error!("cannot use the changed files of carbon; the old rules stay in force: {error:#}");
    }
}
