//! Quotas of branches: read from go-carbon's file at the start, and shown to operators.

use anyhow::Context;
use carbon::QuotaRule;
use host::Disk;
use ingest::BranchUse;
use serde_json::{Value, json};

use crate::settings::Settings;

/// Branches that are shown, at most: those nearest to their quotas.
const SHOWN: usize = 1000;

/// Reads the file of quotas, if the settings name one, and logs its warnings.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn read(settings: &Settings, disk: &dyn Disk) -> anyhow::Result<Vec<QuotaRule>> {
    let Some(path) = &settings.limits.quotas else { return Ok(Vec::new()) };
    let cannot = || format!("cannot use the file of quotas {} (limits.quotas)", path.display());
    let text = disk.read_to_string(path).with_context(cannot)?;
    let (rules, warnings) = carbon::read_quotas(&text)
        .map_err(|errors| anyhow::anyhow!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
        .with_context(cannot)?;
    warnings.iter().for_each(|warning| tracing::warn!(%warning, "the file of quotas"));
    Ok(rules)
}

/// The branches nearest to their quotas, the nearest first.
pub fn shown(mut used: Vec<BranchUse>) -> Vec<BranchUse> {
    let share = |used: u64, limit: Option<u64>| limit.map_or(0.0, |limit| used as f64 / limit.max(1) as f64);
    let nearness =
        |branch: &BranchUse| share(branch.metrics, branch.metrics_limit).max(share(branch.points, branch.points_limit));
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
            "metrics_beyond": branch.metrics_beyond,
            "points_this_minute": branch.points,
            "points_limit": branch.points_limit,
            "points_beyond": branch.points_beyond,
            "only_reports": branch.only_reports,
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
