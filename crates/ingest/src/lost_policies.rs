//! Policies whose records the metrics table has lost: what they were, before a point of their metrics is read.
//!
//! Points of the journal go to the slots of the policy under which they came. Under another one they would be lost where that has
//! other stages, so it must be known before the replay:
//!
//! 1. The journal names metrics with their policies, where they were created or changed of late.
//! 2. What the rules in force give most of its metrics it was, where the journal has that policy at all.
//! 3. It was the only one that the journal has, and neither the rules nor the table, with the retention or the methods that the
//!    rules give.
//! 4. It most likely was what the rules give.

use std::collections::HashMap;

use carbon::{Decision, Rules};
use metadata::{PolicyId, Registry};
use metric::{MetricId, Policy, Timestamp};
use store::{LostPolicy, NameStore};

use crate::{
    read_patience::ReadPatience,
    wal::{self, Folder, Planned, Record},
};

/// Finds the lost policies of `names`, and gives them to their metrics in the registry.
pub(crate) fn find(
    names: &dyn NameStore,
    (folder, patience): (&Folder, &ReadPatience),
    planned: &[Planned],
    registry: &Registry,
    rules: &Rules,
) {
    let lost = names.lost_policies();
    if lost.is_empty() {
        return;
    }
    let journal = Journalled::read((folder, patience), planned, registry);
    for lost in &lost {
        let found = journal.of_metrics(lost, registry).or_else(|| journal.of_rules(lost, registry, rules));
        if let Some((policy, how)) = found {
            names.set_lost_policy(lost.number, &policy, how);
            give(registry, lost, &policy);
        }
    }
}

/// The policies of the journal.
#[derive(Default)]
struct Journalled {
    /// All that its writers had.
    all: Vec<Policy>,
    /// Those of metrics that it names, by the moment that it says: of their creation, or of the change.
    named: HashMap<(MetricId, Timestamp), Policy>,
}

impl Journalled {
    fn read((folder, patience): (&Folder, &ReadPatience), planned: &[Planned], registry: &Registry) -> Journalled {
        let mut journal = Journalled::default();
        let mut policies = HashMap::new();
        for planned in planned {
            // A segment that cannot be read is reported by the replay.
            let Ok(read) = patience.read_segment(folder, &planned.segment) else { continue };
            // Each writer numbers policies itself, and names them all in each segment.
            policies.clear();
            for (_, record) in wal::records(planned.part(&read.bytes)) {
                match record {
                    Record::Policy { id, policy } => {
                        if !journal.all.iter().any(|known| known.is_same(&policy)) {
                            journal.all.push(policy.clone());
                        }
                        policies.insert(id, policy);
                    }
                    Record::Metrics { now, metrics } => {
                        for (_, policy, name) in metrics {
                            let metric = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
                            if let (Some(metric), Some(policy)) = (metric, policies.get(&policy)) {
                                journal.named.insert((metric, now), policy.clone());
                            }
                        }
                    }
                    Record::Points { .. } | Record::Segment { .. } => {}
                }
            }
        }
        journal
    }

    /// What a lost policy was, if the journal names a metric that had it.
    fn of_metrics(&self, lost: &LostPolicy, registry: &Registry) -> Option<(Policy, &'static str)> {
        let mut metrics = lost.metrics.iter().filter(|_| !self.named.is_empty());
        let policy = metrics.find_map(|&(metric, since)| {
            let now = if since == 0 { registry.records(&[metric]).pop()?.created_on } else { since };
            self.named.get(&(metric, now)).cloned()
        })?;
        Some((policy, "the journal names it for a metric that had it"))
    }

    /// What the rules in force give most of the metrics that had a lost policy last. Where the journal does not have that, the
    /// rules were changed before this start, and it was the only one that the journal alone has.
    fn of_rules(&self, lost: &LostPolicy, registry: &Registry, rules: &Rules) -> Option<(Policy, &'static str)> {
        // Without a section of schemas, metrics keep the policies that they have.
        let by_rules = if rules.has_schemas() { most_given(lost, registry, rules) } else { None };
        if let Some(policy) = by_rules
            && self.all.iter().any(|known| known.is_same(policy))
        {
            return Some((policy.clone(), "the rules in force give it to most of them, and the journal has it too"));
        }
        let known = (0..registry.policy_count()).map(|id| registry.policy(id as PolicyId));
        // One of them stands for what is lost.
        let known: Vec<_> = known.filter(|known| !known.is_same(&Policy::default())).collect();
        let is_known = |policy: &Policy| known.iter().any(|known| known.is_same(policy));
        let is_of_rules = |policy: &Policy| rules.policies().iter().any(|known| known.is_same(policy));
        // Of a change of the rules, most often of retentions alone or of methods alone.
        let is_near = |policy: &Policy| {
            let has_methods = |other: &Policy| {
                other.methods() == policy.methods() && other.x_files_factor.to_bits() == policy.x_files_factor.to_bits()
            };
            by_rules.is_none_or(|other| other.retention == policy.retention || has_methods(other))
        };
        let mut alone = self.all.iter().filter(|policy| !is_known(policy) && !is_of_rules(policy) && is_near(policy));
        if let (Some(policy), None) = (alone.next(), alone.next()) {
            return Some((policy.clone(), "the journal has it, and neither other metrics nor the rules in force"));
        }
        let how = "the rules in force give it to most of them; if it was another one, because the rules were changed before this \
                   start, points of the journal are lost or in wrong slots";
        by_rules.map(|policy| (policy.clone(), how))
    }
}

/// The policy that the rules give most of the metrics that a lost one is in force for.
fn most_given<'r>(lost: &LostPolicy, registry: &Registry, rules: &'r Rules) -> Option<&'r Policy> {
    let mut counts = vec![0_u32; rules.policies().len()];
    for &(metric, since) in &lost.metrics {
        let is_last = registry.policies(metric).is_some_and(|all| all.last().is_some_and(|last| last.since == since));
        if is_last && let Decision::Keep(index) = rules.decide(registry.read().name(metric)) {
            counts[index.get()] += 1;
        }
    }
    let (index, most) = counts.into_iter().enumerate().max_by_key(|&(_, count)| count)?;
    (0 < most).then(|| &rules.policies()[index])
}

/// Puts a policy in place of the default one, which stands for it in the records of its metrics.
fn give(registry: &Registry, lost: &LostPolicy, policy: &Policy) {
    for &(metric, since) in &lost.metrics {
        let mut records = registry.records(&[metric]);
        for change in records.iter_mut().flat_map(|record| &mut record.policies) {
            if change.since == since && change.policy.is_same(&Policy::default()) {
                change.policy = policy.clone();
            }
        }
        registry.restore(records);
    }
}
