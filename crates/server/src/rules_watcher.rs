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

use crate::{
    carbon_files::{CarbonFiles, over_cassandra},
    output::with_causes,
    settled::read_settled,
};

/// Puts changed rules into force. Invalid files leave the old rules in force.
pub struct RulesWatcher {
    disk: Arc<dyn Disk>,
    dir: Option<PathBuf>,
    is_over_cassandra: bool,
    state: tokio::sync::Mutex<State>,
    /// Whether the current files are not in force.
    pub is_rejected: Arc<AtomicBool>,
}

struct State {
    files: CarbonFiles,
    /// The latest read of the folder failed.
    is_unreadable: bool,
}

impl RulesWatcher {
    /// With the files as the start read them.
    pub fn new(disk: Arc<dyn Disk>, dir: Option<PathBuf>, files: CarbonFiles, is_over_cassandra: bool) -> RulesWatcher {
        let state = State { files, is_unreadable: false }.into();
        RulesWatcher { disk, dir, is_over_cassandra, state, is_rejected: Arc::default() }
    }

    /// Reads the folder at each interval and each SIGHUP, until dropped.
    pub async fn follow(self: Arc<RulesWatcher>, ingest: Arc<Ingest>, every: Duration) {
        let mut hangups = signal(SignalKind::hangup()).expect("signals can be handled");
        loop {
            let is_asked = tokio::select! {
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => false,
                _ = hangups.recv() => true,
            };
            self.reload(&ingest, is_asked).await;
        }
    }

    /// Where an operator asked, with a line in the log in any case.
    async fn reload(&self, ingest: &Ingest, is_asked: bool) {
        let mut state = self.state.lock().await;
        let read = self.read_whole(&state.files).await;
        let files = match read.and_then(|files| files.with_all_of(&state.files)) {
            Ok(files) => files,
            Err(error) => {
                // Logged once per outage.
                if !state.is_unreadable || is_asked {
                    state.is_unreadable = true;
                    self.reject(&error);
                }
                return;
            }
        };
        if files == state.files && !state.is_unreadable {
            if is_asked {
                self.log_no_change();
            }
            return;
        }
        state.is_unreadable = false;
        match files.rules() {
            Ok((rules, warnings)) => {
                warnings.iter().for_each(|warning| tracing::warn!(warning, "carbon's files"));
                let rules = if self.is_over_cassandra { over_cassandra(rules) } else { rules };
                ingest.set_rules(rules).await;
                self.is_rejected.store(false, Relaxed);
                tracing::info!("carbon's files changed; the new rules are in force");
            }
            Err(error) => self.reject(&error),
        }
        // Kept also when invalid: logged once, and read again when it changes.
        state.files = files;
    }

    /// The files when they no longer change: half of a file may end at a section's end and be valid.
    async fn read_whole(&self, current: &CarbonFiles) -> anyhow::Result<CarbonFiles> {
        read_settled(Some(current), || self.read()).await
    }

    async fn read(&self) -> anyhow::Result<CarbonFiles> {
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        tokio::task::spawn_blocking(move || CarbonFiles::read(&*disk, dir.as_deref())).await?
    }

    fn log_no_change(&self) {
        match (&self.dir, self.is_rejected.load(Relaxed)) {
            (None, _) => tracing::info!(
                "SIGHUP reads carbon's files again, but conf-dir is not set: nothing changed; settings are read by a restart"
            ),
            (Some(dir), false) => tracing::info!(
                dir = %dir.display(),
                "carbon's files have not changed; the same rules are in force; settings are read by a restart"
            ),
            (Some(dir), true) => tracing::error!(
                dir = %dir.display(),
                "carbon's files are still invalid, as the log said when they changed; the old rules stay in force"
            ),
        }
    }

    fn reject(&self, error: &anyhow::Error) {
        self.is_rejected.store(true, Relaxed);
        tracing::error!("cannot use the changed files of carbon; the old rules stay in force: {}", with_causes(error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use host::{Call, FailingDisk, SystemDisk};

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_half_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("storage-schemas.conf");
        let (old, half) = ("[all]\npattern = .*\nretentions = 10s:2h\n", "[a]\npattern = ^a\nretentions = 1s:2h\n");
        let whole = format!("{half}{old}");
        std::fs::write(&path, old).unwrap();
        let before = CarbonFiles::read(&SystemDisk, Some(dir.path())).unwrap();
        std::fs::write(&path, half).unwrap();
        // The editor goes on between the first read and the second.
        let (writes, reads, text) = (path.clone(), AtomicUsize::new(0), whole.clone());
        let disk = FailingDisk::new(Arc::new(SystemDisk), move |call, path| {
            if call == Call::Read && path == writes && reads.fetch_add(1, Relaxed) == 1 {
                std::fs::write(&writes, &text).unwrap();
            }
            None
        });
        let watcher = RulesWatcher::new(Arc::new(disk), Some(dir.path().to_owned()), before.clone(), false);
        let read = watcher.read_whole(&before).await.unwrap();
        let expected = CarbonFiles::read(&SystemDisk, Some(dir.path())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        assert_eq!(read, expected);
    }
}
