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

    /// Keeps a copy of damaged bytes, and reports them. Returns whether they are kept.
    pub(crate) fn bytes(&self, what: &'static str, path: &Path, offset: u64, bytes: &[u8], how: &str) -> bool {
        let how = format!("{how}, at byte {offset}");
        let moved_to = self.folder.keep_bytes(path, offset, bytes, &how).inspect_err(|error| cannot_keep(path, error));
        let is_kept = moved_to.is_ok();
        self.report(what, path, how, bytes.len() as u64, moved_to.ok());
        is_kept
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

    /// Reports names or deletions of metrics that may be lost.
    pub(crate) fn names_lost(&self, what: &'static str, folder: &Path, metrics: (MetricId, MetricId), how: &str) {
        let (file, found_at, how) = (self.shown(folder), self.host.clock.now(), how.to_owned());
        let damage = Damage { found_at, what, file, how: how.clone(), metrics: Some(metrics), ..Damage::default() };
        if self.log.report(damage) {
            tracing::error!(folder = %folder.display(), "{what} are lost: {how}");
        }
    }

    /// Reports what is known of a policy whose record is lost, and of the metrics that had it.
    pub(crate) fn policy_lost(&self, folder: &Path, metrics: impl Iterator<Item = MetricId> + Clone, how: &str) {
        let (file, found_at, how) = (self.shown(folder), self.host.clock.now(), how.to_owned());
        let metrics = metrics.clone().min().zip(metrics.max());
        let damage = Damage { found_at, what: "policy", file, how: how.clone(), metrics, ..Damage::default() };
        if self.log.report(damage) {
            tracing::error!(folder = %folder.display(), "the policy of metrics is lost: {how}");
        }
    }

    /// Reports that the log of names has no record of these ids, though rows were stored for them.
    pub(crate) fn missing_names(&self, path: &Path, first: MetricId, last: MetricId) {
        let (file, found_at) = (self.shown(path), self.host.clock.now());
        let how = format!(
            "the records of metrics {first} to {last} are missing: the end of the log was lost, or an older log is in its \
             place. Their rows stay and have no name; metrics that were deleted since may be back"
        );
        let metrics = Some((first, last));
        let damage = Damage { found_at, what: "names record", file, how: how.clone(), metrics, ..Damage::default() };
        if self.log.report(damage) {
            tracing::error!(file = %path.display(), %how, "names are lost; put the right log back, or restore a backup");
        }
    }

    /// Reports that a log has lost its end. `how` says what it had.
    pub(crate) fn log_cut(&self, what: &'static str, path: &Path, how: &str) {
        let (file, found_at) = (self.shown(path), self.host.clock.now());
        if self.log.report(Damage { found_at, what, file, how: how.to_owned(), ..Damage::default() }) {
            tracing::error!(what, file = %path.display(), %how, "put the right log back, or restore a backup");
        }
    }

    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.data).unwrap_or(path).display().to_string()
    }

    fn report(&self, what: &'static str, path: &Path, how: String, bytes: u64, moved_to: Option<String>) {
        let file = self.shown(path);
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
