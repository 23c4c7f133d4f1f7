//! Damage in a file of the store: kept in `damaged/`, reported, and logged once.

use std::path::{Path, PathBuf};

use host::{DamagedFolder, Host};
use metric::MetricId;
use store::{Damage, DamageLog};

/// Keeps and reports what is damaged. A clone shares everything.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    host: Host,
    log: DamageLog,
    folder: DamagedFolder,
    data: PathBuf,
}

impl Reporter {
    /// `data` is the folder that gets `damaged/`.
    pub(crate) fn new(host: &Host, log: &DamageLog, data: &Path) -> Reporter {
        Reporter { host: host.clone(), log: log.clone(), folder: DamagedFolder::new(host, data), data: data.to_owned() }
    }

    /// Keeps a copy of damaged bytes, and reports them.
    pub(crate) fn bytes(&self, what: &'static str, path: &Path, offset: u64, bytes: &[u8], how: &str) {
        let how = format!("{how}, at byte {offset}");
        let moved_to = self.folder.keep_bytes(path, offset, bytes, &how).inspect_err(|error| cannot_keep(path, error));
        self.report(what, path, how, bytes.len() as u64, moved_to.ok());
    }

    /// Moves a file aside, and reports it. Returns whether it is gone from its place.
    pub(crate) fn file(&self, what: &'static str, path: &Path, bytes: u64, how: &str) -> bool {
        let moved_to = self.folder.move_in(path, how).inspect_err(|error| cannot_keep(path, error));
        let is_moved = moved_to.is_ok();
        self.report(what, path, how.to_owned(), bytes, moved_to.ok());
        is_moved
    }

    /// Reports damage without bytes to keep.
    pub(crate) fn missing(&self, what: &'static str, path: &Path, how: &str) {
        self.report(what, path, how.to_owned(), 0, None);
    }

    /// Reports metrics that may have lost their names.
    pub(crate) fn names_lost(&self, folder: &Path, metrics: (MetricId, MetricId), how: &str) {
        let file = folder.strip_prefix(&self.data).unwrap_or(folder).display().to_string();
        let (found_at, how) = (self.host.clock.now(), how.to_owned());
        let damage =
            Damage { found_at, what: "names", file, how: how.clone(), metrics: Some(metrics), ..Damage::default() };
        if self.log.report(damage) {
            tracing::error!(folder = %folder.display(), "names are lost: {how}");
        }
    }

    fn report(&self, what: &'static str, path: &Path, how: String, bytes: u64, moved_to: Option<String>) {
        let file = path.strip_prefix(&self.data).unwrap_or(path).display().to_string();
        let kept = moved_to.clone().unwrap_or_default();
        let found_at = self.host.clock.now();
        let damage = Damage { found_at, what, file, how: how.clone(), bytes, moved_to, ..Damage::default() };
        if self.log.report(damage) {
            tracing::error!(what, file = %path.display(), %how, bytes, kept, "the store is damaged; everything else is served");
        }
    }
}

fn cannot_keep(path: &Path, error: &std::io::Error) {
    tracing::error!(%error, file = %path.display(), "cannot keep damaged bytes in the folder damaged; they stay where they are");
}
