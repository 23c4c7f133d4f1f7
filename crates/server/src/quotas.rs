//! Quotas of branches: read from go-carbon's file, at the start and when it changes, and shown to operators.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use carbon::{QuotaRule, Warning};
use host::Disk;
use ingest::{BranchUse, Ingest};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{settings::Settings, settled};

/// Branches that are shown, at most: those nearest to their quotas.
const SHOWN: usize = 1000;

/// Stands for the text that the start read, if that had quotas: a file that was emptied since is noticed.
const AT_START: &str = "as the start read it";

/// Reads the file of quotas, if the settings name one, and returns its warnings, too.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn read(settings: &Settings, disk: &dyn Disk) -> anyhow::Result<(Vec<QuotaRule>, Vec<Warning>)> {
    let Some(path) = &settings.limits.quotas else { return Ok(Default::default()) };
    let cannot = || format!("cannot use the file of quotas {} (limits.quotas)", path.display());
    parse(&disk.read_to_string(path).with_context(cannot)?).with_context(cannot)
}

/// The same, with its warnings in the log.
///
/// # Errors
/// As [`read`].
pub fn read_and_warn(settings: &Settings, disk: &dyn Disk) -> anyhow::Result<Vec<QuotaRule>> {
    Ok(warned(read(settings, disk)?))
}

fn parse(text: &str) -> anyhow::Result<(Vec<QuotaRule>, Vec<Warning>)> {
    carbon::read_quotas(text)
        .map_err(|errors| anyhow::anyhow!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

fn warned((rules, warnings): (Vec<QuotaRule>, Vec<Warning>)) -> Vec<QuotaRule> {
    warnings.iter().for_each(|warning| tracing::warn!(%warning, "the file of quotas"));
    rules
}

/// Puts a changed file of quotas into force. An invalid or missing one leaves the old quotas in force.
pub struct QuotaWatcher {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    ingest: Arc<Ingest>,
    // As it was read last; `Err` with the reason if that failed. None before the first read.
    last: tokio::sync::Mutex<Option<Result<String, String>>>,
    /// The text in force.
    current: Mutex<Option<String>>,
}

impl QuotaWatcher {
    /// Of the file that the start has read.
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf, ingest: Arc<Ingest>) -> QuotaWatcher {
        let current = ingest.has_quotas().then(|| AT_START.to_owned());
        QuotaWatcher { disk, path, ingest, last: tokio::sync::Mutex::default(), current: Mutex::new(current) }
    }

    /// Reads the file at each interval and each SIGHUP, until dropped.
    pub async fn follow(self: Arc<QuotaWatcher>, every: Duration) {
        let mut hangups = signal(SignalKind::hangup()).expect("signals can be handled");
        loop {
            self.clone().reload().await;
            tokio::select! {
                () = tokio::time::sleep(every.max(Duration::from_millis(100))) => {}
                _ = hangups.recv() => {}
            }
        }
    }

    async fn reload(self: Arc<QuotaWatcher>) {
        let mut last = self.last.lock().await;
        let current = self.current.lock().clone();
        let read = settled::read(&self.disk, &self.path, current.as_deref()).await;
        if last.as_ref() == Some(&read) {
            return;
        }
        // The file may have changed since the start read it, before this runs for the first time.
        let is_first = last.is_none();
        match read.as_deref().map_err(|error| anyhow::anyhow!(error.to_owned())).and_then(parse).map(warned) {
            Ok(rules) => {
                let (quotas, ingest) = (rules.len(), self.ingest.clone());
                let set = tokio::task::spawn_blocking(move || ingest.set_quotas(rules)).await;
                *self.current.lock() = read.clone().ok();
                if set.is_ok() && !is_first {
                    tracing::info!(quotas, "the file of quotas changed; the new quotas are in force");
                }
            }
            Err(error) => tracing::error!(file = %self.path.display(),
                "cannot use the changed file of quotas; the old quotas stay in force: {error:#}"),
        }
        // Kept also when invalid: logged once, and read again when it changes.
        *last = Some(read);
    }
}

/// The branches nearest to their quotas, the nearest first.
pub fn shown(mut used: Vec<BranchUse>) -> Vec<BranchUse> {
    let share = |used: u64, limit: Option<u64>| limit.map_or(0.0, |limit| used as f64 / limit.max(1) as f64);
    let nearness = |branch: &BranchUse| {
        let of_names =
            share(branch.metrics, branch.metrics_limit).max(share(branch.namespaces, branch.namespaces_limit));
        of_names.max(share(branch.points, branch.points_limit))
    };
    used.sort_by(|a, b| nearness(b).total_cmp(&nearness(a)));
    used.truncate(SHOWN);
    used
}

/// The table of `/admin/status`.
pub fn table(used: Vec<BranchUse>) -> Value {
    let row = |branch: BranchUse| {
        json!({
            "branch": branch.branch,
            "quota": branch.pattern,
            "metrics": branch.metrics,
            "metrics_limit": branch.metrics_limit,
            "namespaces": branch.namespaces,
            "namespaces_limit": branch.namespaces_limit,
            "metrics_beyond": branch.metrics_beyond,
            "points_this_minute": branch.points,
            "points_limit": branch.points_limit,
            "points_beyond": branch.points_beyond,
            "only_reports": branch.only_reports,
            "shut": branch.is_shut,
        })
    };
    shown(used).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_nearest_to_its_quota_is_first() {
        let branch = |name: &str, metrics, points| BranchUse {
            branch: name.to_owned(),
            metrics,
            metrics_limit: Some(10),
            points,
            points_limit: Some(100),
            ..BranchUse::default()
        };
        let order: Vec<String> = shown(vec![branch("a", 1, 0), branch("b", 2, 90), branch("c", 8, 0)])
            .into_iter()
            .map(|branch| branch.branch)
            .collect();
        assert_eq!(order, ["b", "c", "a"]);
        assert_eq!(table(vec![branch("a", 1, 0)])[0]["metrics_limit"], 10);
    }
}
