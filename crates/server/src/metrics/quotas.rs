//! Metrics of quotas of branches, of those nearest to them.

use ::ingest::BranchUse;
use prometheus::proto::{MetricFamily, MetricType};

use super::families::{labelled, labelled_twice};

/// The families of these branches; without branches they are empty.
pub(super) fn quota_families(used: &[BranchUse]) -> [MetricFamily; 4] {
    let values = |value: fn(&BranchUse) -> Option<u64>| -> Vec<(&str, f64)> {
        used.iter().filter_map(|branch| Some((branch.branch.as_str(), value(branch)? as f64))).collect()
    };
    let beyond = used.iter().flat_map(|branch| {
        let name = branch.branch.as_str();
        [([name, "metrics"], branch.metrics_beyond as f64), ([name, "points"], branch.points_beyond as f64)]
    });
    let gauge = |name, help, values| labelled(name, help, MetricType::GAUGE, "branch", values);
    let help = "New metrics and points beyond the quota of their branch, by branch.";
    [
        gauge("plumbago_quota_metrics", "Metrics of branches with a quota.", values(|branch| Some(branch.metrics))),
        gauge("plumbago_quota_metrics_limit", "How many they may have.", values(|branch| branch.metrics_limit)),
        gauge("plumbago_quota_points_limit", "Points they may have in a minute.", values(|branch| branch.points_limit)),
        labelled_twice("plumbago_quota_beyond_total", help, MetricType::COUNTER, ["branch", "what"], beyond.collect()),
    ]
}
