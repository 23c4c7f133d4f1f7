//! Changes of policy that the journal has and the store too: points before them came under an older policy than the one
//! that the store names.

use std::collections::HashMap;

use metadata::{PolicyId, Registry};
use metric::{MetricId, Timestamp};

use crate::{
    policy_table::{JournalPolicyIds, Policies},
    wal::{self, Folder, Planned, Record},
};

/// For each metric whose policy changed since the journal begins, the policy of its history under which the points are that
/// a replay reads, by place.
#[derive(Default)]
pub(crate) struct KnownChanges {
    places: HashMap<MetricId, usize>,
}

impl KnownChanges {
    /// Reads the journal for changes. Without changes of late, one record of it.
    pub(crate) fn find(folder: &Folder, planned: &[Planned], registry: &Registry, policies: &Policies) -> KnownChanges {
        let mut known = KnownChanges::default();
        let Some(last_change) = registry.last_policy_change() else { return known };
        let (mut ids, mut doubtful) = (JournalPolicyIds::new(), HashMap::new());
        'journal: for planned in planned.iter() {
            // A segment that cannot be read is reported by the replay.
            let Ok(bytes) = folder.read_patiently(&planned.segment) else { continue };
            for (_, record) in wal::records(planned.part(&bytes)) {
                match record {
                    Record::Policy { id, policy } => _ = ids.insert(id, policies.intern(&policy)),
                    Record::Metrics { now, metrics } => {
                        known.note(now, &metrics, &ids, registry, &mut doubtful);
                    }
                    // Everything behind it came later.
                    Record::Points { now, .. } if last_change < now.low() => break 'journal,
                    Record::Points { .. } | Record::Segment { .. } => {}
                }
            }
        }
        let last = |metric| registry.policies(metric).map_or(0, |history| history.len().saturating_sub(1));
        known.places.extend(doubtful.into_keys().map(|metric| (metric, last(metric))));
        known
    }

    /// Takes note of the first policy that the journal names for each metric. `doubtful` are those that may have changed
    /// within the second of a known change, with the policy of that one: without a record of it, theirs came after it.
    fn note(
        &mut self,
        now: Timestamp,
        metrics: &[(MetricId, u16, &str)],
        ids: &JournalPolicyIds,
        registry: &Registry,
        doubtful: &mut HashMap<MetricId, PolicyId>,
    ) {
        for &(_, policy, name) in metrics {
            let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
            let (Some(metric), Some(&policy)) = (metric, ids.get(&policy)) else { continue };
            if self.places.contains_key(&metric) {
                if doubtful.get(&metric) == Some(&policy) {
                    doubtful.remove(&metric);
                }
                continue;
            }
            let Some(history) = registry.policies(metric).filter(|history| history.len() > 1) else { continue };
            let in_force = history.iter().rposition(|span| span.since < now);
            let same = in_force.filter(|&place| history.get(place).is_some_and(|span| span.policy == policy));
            // It was in force all this second, or until a change within it.
            let next = same.and_then(|place| history.get(place + 1)).filter(|next| next.since == now);
            if let Some(next) = next {
                doubtful.insert(metric, next.policy);
            }
            // The points before a change came under the policy before it.
            let before = || history.iter().skip(1).position(|span| span.policy == policy && now <= span.since);
            // A change that the store does not have came after all that it has.
            self.places.insert(metric, same.or_else(before).unwrap_or(history.len() - 1));
        }
    }

    /// The policies under which the first points of the journal came.
    pub(crate) fn first_policies(&self, registry: &Registry) -> Vec<(MetricId, PolicyId)> {
        let first =
            |(&metric, &place): (&MetricId, &usize)| Some((metric, registry.policies(metric)?.get(place)?.policy));
        self.places.iter().filter_map(first).collect()
    }

    /// The metrics.
    pub(crate) fn metrics(&self) -> Vec<MetricId> {
        self.places.keys().copied().collect()
    }

    /// Takes note of a change in the journal. Returns whether the history has it.
    pub(crate) fn take(&mut self, metric: MetricId, policy: PolicyId, registry: &Registry) -> bool {
        let Some(place) = self.places.get_mut(&metric) else { return false };
        let is_known = registry
            .policies(metric)
            .is_some_and(|history| history.get(*place + 1).is_some_and(|next| next.policy == policy));
        *place += usize::from(is_known);
        is_known
    }
}
