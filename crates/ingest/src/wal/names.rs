//! Names that the journal does not hold yet.

use metric::{MetricId, Policy, Timestamp};

use super::record::{MetricsWriter, push_policy};

/// Metrics and policies that exist and may not be in the current segment. The next append writes them before its own
/// record, so that no point is in the journal before its metric, and no metric before its policy.
#[derive(Debug, Default)]
pub(super) struct UnwrittenNames {
    metrics: MetricsWriter,
    /// Every policy there is. Each segment names them again, so that any suffix of the journal can be replayed alone.
    policies: Vec<(u16, Policy)>,
}

impl UnwrittenNames {
    pub(super) fn name_policy(&mut self, id: u16, policy: &Policy) {
        if self.policies.iter().all(|(known, _)| *known != id) {
            self.policies.push((id, policy.clone()));
        }
    }

    pub(super) fn name_metric(&mut self, metric: MetricId, policy: u16, name: &str, now: Timestamp) {
        self.metrics.push(metric, policy, name, now);
    }

    /// Records of the policies from the `named`th on; returns how many there are in all.
    pub(super) fn policies(&self, named: usize, records: &mut Vec<u8>) -> usize {
        for (id, policy) in self.policies.iter().skip(named) {
            push_policy(records, *id, policy);
        }
        self.policies.len()
    }

    /// Records of the metrics, which the caller writes from now on.
    pub(super) fn take_metrics(&mut self) -> Vec<u8> {
        self.metrics.take()
    }
}
