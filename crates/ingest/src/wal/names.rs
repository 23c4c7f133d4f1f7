//! Names that the journal does not hold yet.

use metric::{MetricId, Policy, Timestamp};

use super::record::MetricsWriter;

/// Metrics and policies that exist and are not in the current segment. The next append writes them before its own
/// record, so that no point is in the journal before its metric, and no metric before its policy.
#[derive(Debug, Default)]
pub(super) struct UnwrittenNames {
    pub(super) metrics: MetricsWriter,
    pub(super) policies: Vec<(u16, Policy)>,
    /// Every policy there is. Each segment names them again, so that any suffix of the journal can be replayed alone.
    all_policies: Vec<(u16, Policy)>,
}

impl UnwrittenNames {
    pub(super) fn name_policy(&mut self, id: u16, policy: &Policy) {
        if self.all_policies.iter().all(|(known, _)| *known != id) {
            self.all_policies.push((id, policy.clone()));
            self.policies.push((id, policy.clone()));
        }
    }

    pub(super) fn name_metric(&mut self, metric: MetricId, policy: u16, name: &str, now: Timestamp) {
        self.metrics.push(metric, policy, name, now);
    }

    /// A new segment names no policy yet.
    pub(super) fn begin_segment(&mut self) {
        self.policies.clone_from(&self.all_policies);
    }
}
