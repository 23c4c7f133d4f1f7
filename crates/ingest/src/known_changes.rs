//! Changes of policy that the journal has and the store too: points before them came under an older policy than the one
//! that the store names.

use std::collections::HashMap;

use metadata::{PolicyId, PolicySpan, Registry};
use metric::{MetricId, Timestamp};

use crate::{
    policy_table::{JournalPolicyIds, Policies},
    read_patience::ReadPatience,
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
    pub(crate) fn find(
        (folder, patience): (&Folder, &ReadPatience),
        planned: &[Planned],
        registry: &Registry,
        policies: &Policies,
    ) -> KnownChanges {
        let mut known = KnownChanges::default();
        let Some(last_change) = registry.last_policy_change() else { return known };
        let (mut ids, mut named) = (JournalPolicyIds::new(), HashMap::new());
        'journal: for planned in planned.iter() {
            // A segment that cannot be read is reported by the replay.
            let Ok(read) = patience.read_segment(folder, &planned.segment) else { continue };
            for (_, record) in wal::records(planned.part(&read.bytes)) {
                match record {
                    Record::Policy { id, policy } => _ = ids.insert(id, policies.intern(&policy)),
                    Record::Metrics { now, metrics } => note(now, &metrics, &ids, registry, &mut named),
                    // Everything behind it came later.
                    Record::Points { now, .. } if last_change < now.low() => break 'journal,
                    Record::Points { .. } | Record::Segment { .. } => {}
                }
            }
        }
        let place = |(metric, named): (MetricId, Named)| {
            let history = registry.policies(metric).filter(|history| history.len() > 1)?;
            Some((metric, named.place(&history)))
        };
        known.places.extend(named.into_iter().filter_map(place));
        known
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
        let Some(history) = registry.policies(metric) else { return false };
        let is_known = history.get(*place + 1).is_some_and(|next| next.policy == policy);
        // One that the history does not have comes behind all that it has, and so do those that follow: the caller adds it, and it
        // must not pass for a later change to the same policy.
        *place = if is_known { *place + 1 } else { history.len() };
        is_known
    }
}

/// What the journal names first for a metric.
struct Named {
    now: Timestamp,
    /// The policies that it names within that second, no two of a row the same.
    policies: Vec<PolicyId>,
}

impl Named {
    /// The place in the history of the policy in force before this. The store has all that came before the journal's
    /// first record; the latest it may lack.
    fn place(&self, history: &[PolicySpan]) -> usize {
        let before = history.iter().rposition(|span| span.since < self.now).unwrap_or(0);
        let in_second = history[before + 1..].iter().take_while(|span| span.since == self.now).count();
        let same_second = &history[before..=before + in_second];
        let is_end = |count: &usize| {
            let known = same_second[same_second.len() - count..].iter().map(|span| span.policy);
            known.eq(self.policies[..*count].iter().copied())
        };
        // As many of its changes as the store can have; it was in force all this second where it has them all.
        let most = same_second.len().min(self.policies.len());
        let known = (1..=most).rev().find(is_end).unwrap_or(0);
        if known == 0 && in_second == 0 {
            // The clock went back before that change: the store has it at the time of the one before.
            let later =
                history.iter().skip(1).position(|span| span.policy == self.policies[0] && self.now < span.since);
            return later.unwrap_or(history.len() - 1);
        }
        before + (in_second - known.min(in_second))
    }
}

/// Takes note of the policies that the journal names for each metric within the second of the first one.
fn note(
    now: Timestamp,
    metrics: &[(MetricId, u16, &str)],
    ids: &JournalPolicyIds,
    registry: &Registry,
    named: &mut HashMap<MetricId, Named>,
) {
    for &(_, policy, name) in metrics {
        let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
        let (Some(metric), Some(&policy)) = (metric, ids.get(&policy)) else { continue };
        let named = named.entry(metric).or_insert_with(|| Named { now, policies: Vec::new() });
        if named.now == now && named.policies.last() != Some(&policy) {
            named.policies.push(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of what the journal names at second 10, in a history of these changes.
    fn place(history: &[(Timestamp, PolicyId)], policies: &[PolicyId]) -> usize {
        let history: Vec<PolicySpan> = history.iter().map(|&(since, policy)| PolicySpan { since, policy }).collect();
        Named { now: 10, policies: policies.to_vec() }.place(&history)
    }

    #[test]
    fn points_before_a_change_have_the_policy_that_was_in_force() {
        assert_eq!(place(&[(0, 0), (10, 1)], &[1]), 0, "the store has the change");
        assert_eq!(place(&[(0, 0), (5, 1)], &[0]), 1, "the store does not have it");
        assert_eq!(place(&[(0, 0), (20, 1)], &[0]), 0, "a name, and a change later");
        assert_eq!(place(&[(0, 0), (10, 1)], &[0, 1]), 0, "a name, and a change in that second");
        assert_eq!(place(&[(0, 0), (12, 1)], &[1]), 0, "the clock had gone back");
    }

    #[test]
    fn a_change_that_the_replay_added_does_not_pass_for_a_later_one() {
        let registry = Registry::new();
        let policy = |retention: &str| metric::Policy { retention: retention.parse().unwrap(), ..Default::default() };
        let [first, second] = ["60*1s", "60*10s"].map(|retention| registry.intern(&policy(retention)));
        let metric = registry.write().create(registry.hash(b"a"), "a", first, 1);
        registry.set_policy(metric, second, 10);
        let mut known = KnownChanges { places: HashMap::from([(metric, 0)]) };
        assert!(known.take(metric, second, &registry));
        // The store does not have these.
        for (policy, now) in [(first, 11), (second, 12), (first, 13), (second, 14)] {
            assert!(!known.take(metric, policy, &registry), "{now}");
            registry.set_policy(metric, policy, now);
        }
    }

    #[test]
    fn changes_of_one_second_have_times_of_their_own() {
        // The first was stored and is not in the journal any more. As three of one second, what is left looks like the first two.
        assert_eq!(place(&[(0, 0), (9, 1)], &[0]), 1, "the store has the first");
        assert_eq!(place(&[(0, 0), (9, 1), (10, 0)], &[0]), 1, "the first two");
        assert_eq!(place(&[(0, 0), (9, 1), (10, 0), (11, 1)], &[0]), 1, "all");
    }

    #[test]
    fn of_several_changes_in_one_second_that_earlier_programs_gave_one_time_the_latest_are_those_of_the_journal() {
        assert_eq!(place(&[(0, 0), (10, 1)], &[0]), 1, "a change back that the store does not have");
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2)], &[1]), 2, "another that it does not have");
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2), (10, 1)], &[1]), 2, "it has that");
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2), (10, 1)], &[2, 1]), 1);
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2), (10, 1)], &[2, 1, 0]), 1, "and not the last");
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2), (20, 0)], &[1, 2]), 0);
        assert_eq!(place(&[(0, 0), (10, 1), (10, 2), (20, 0)], &[2]), 1);
    }
}
