//! Policies, each distinct one kept once, and the policies that each metric had over time.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use metric::{MetricId, Policy, Timestamp};

/// The id of a distinct policy in a registry. Configuration makes a few dozen.
pub type PolicyId = u16;

/// The xFilesFactor that rules give a canonical name, from 0 to 1.
pub type XFilesFactors = Arc<dyn Fn(&str) -> Option<f64> + Send + Sync>;

/// Policies that one metric remembers, at most. Beyond, the oldest is forgotten, and with it the way to
/// what it left in stages that no later policy has.
const MAX_CHANGES: usize = 32;

/// Distinct policies beyond which policies of shared tables are rejected.
const MOST_DISTINCT: usize = 4096;

/// Distinct histories beyond which unused ones are dropped.
const FIRST_SHARED_LIMIT: usize = 1024;

/// A policy and when it began to hold for a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicySpan {
    /// Unix seconds; 0 for a metric's first policy. No two of a metric have the same: of several changes within a second, each
    /// later one is a second later, so that the journal can say which of them a record follows.
    pub since: Timestamp,
    /// The policy.
    pub policy: PolicyId,
}

/// Every policy that a metric was kept by, oldest first; never empty. The last one holds now.
///
/// Nearly every metric has one, and that one is kept inline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyHistory(Inner);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Inner {
    One([PolicySpan; 1]),
    Many(Arc<[PolicySpan]>),
}

impl PolicyHistory {
    /// A single policy, from the beginning.
    pub(crate) fn one(policy: PolicyId) -> PolicyHistory {
        PolicyHistory(Inner::One([PolicySpan { since: 0, policy }]))
    }

    /// The policy that holds now.
    pub fn current(&self) -> PolicyId {
        self.last().expect("a history has a policy").policy
    }

    /// When a change that is made now begins to hold in this history: after all others of it.
    pub fn next_change(&self, now: Timestamp) -> Timestamp {
        self.last().map_or(now, |last| now.max(last.since + 1))
    }

    /// When the policy at a place ended: since when the next one has been in force, or never. Those that others had
    /// ([`Registry::learn`](crate::Registry::learn)) are in front and begin with the first one: they may last until that one ended.
    pub fn ended(&self, place: usize) -> Timestamp {
        let next = if 0 < self[place].since { place + 1 } else { self.partition_point(|span| span.since <= 0) };
        self.get(next).map_or(Timestamp::MAX, |span| span.since)
    }

    /// Whether older policies may be forgotten whose points are still stored.
    pub fn may_lack_policies(&self) -> bool {
        MAX_CHANGES <= self.len()
    }
}

/// The spans, oldest first.
impl Deref for PolicyHistory {
    type Target = [PolicySpan];

    fn deref(&self) -> &[PolicySpan] {
        match &self.0 {
            Inner::One(one) => one,
            Inner::Many(many) => many,
        }
    }
}

/// Distinct policies by id, and the histories of the few metrics that had more than one.
pub(crate) struct Policies {
    distinct: Vec<Arc<Policy>>,
    histories: HashMap<MetricId, Arc<[PolicySpan]>>,
    // A new schema file changes many metrics in the same second, and in the same way: each history is
    // kept once. Unused ones are dropped when there are too many.
    shared: HashSet<Arc<[PolicySpan]>>,
    shared_limit: usize,
}

impl Policies {
    pub(crate) fn new() -> Policies {
        Policies {
            distinct: Vec::new(),
            histories: HashMap::new(),
            shared: HashSet::new(),
            shared_limit: FIRST_SHARED_LIMIT,
        }
    }

    /// As `intern`, for a policy of shared tables: `None` when it is new and there are [`MOST_DISTINCT`].
    pub(crate) fn try_intern(&mut self, policy: &Policy) -> Option<PolicyId> {
        match self.known(policy) {
            None if self.distinct.len() >= MOST_DISTINCT => None,
            _ => Some(self.intern(policy)),
        }
    }

    /// The id of a policy, which is given one when it is new.
    ///
    /// # Panics
    /// At 65,536 distinct policies, more than a schema file has rules.
    pub(crate) fn intern(&mut self, policy: &Policy) -> PolicyId {
        let id = self.known(policy).unwrap_or_else(|| {
            self.distinct.push(Arc::new(policy.clone()));
            self.distinct.len() - 1
        });
        PolicyId::try_from(id).expect("schema files have fewer than 65,536 distinct policies")
    }

    fn known(&self, policy: &Policy) -> Option<usize> {
        // A few dozen most often, and asked for once a new metric's rule, so a scan is quick enough.
        self.distinct.iter().position(|known| known.is_same(policy))
    }

    /// The policy with this id, if any has it.
    pub(crate) fn get(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        self.distinct.get(usize::from(id))
    }

    /// All of them, in the order of their ids.
    pub(crate) fn distinct(&self) -> &[Arc<Policy>] {
        &self.distinct
    }

    /// The history of a metric whose policy now is `current`.
    pub(crate) fn history(&self, id: MetricId, current: PolicyId) -> PolicyHistory {
        match self.histories.get(&id) {
            Some(spans) => PolicyHistory(Inner::Many(spans.clone())),
            None => PolicyHistory::one(current),
        }
    }

    /// The longest step of the policy in force, where a metric had others before.
    pub(crate) fn step_of_changed(&self, id: MetricId) -> Option<u32> {
        let current = self.histories.get(&id)?.last()?.policy;
        Some(self.get(current)?.retention.longest().resolution())
    }

    /// Histories longer than one, in no order.
    pub(crate) fn histories(&self) -> impl ExactSizeIterator<Item = (MetricId, &[PolicySpan])> {
        self.histories.iter().map(|(&id, spans)| (id, &**spans))
    }

    /// Replaces the history of a metric. A history of one is not kept: the metric's own policy says it.
    pub(crate) fn set_history(&mut self, id: MetricId, spans: Vec<PolicySpan>) {
        if spans.len() <= 1 {
            self.histories.remove(&id);
            return;
        }
        let shared = match self.shared.get(&*spans) {
            Some(shared) => shared.clone(),
            None => {
                if self.shared.len() >= self.shared_limit {
                    self.shared.retain(|spans| Arc::strong_count(spans) > 1);
                    self.shared_limit = FIRST_SHARED_LIMIT.max(self.shared.len() * 2);
                }
                let spans: Arc<[PolicySpan]> = spans.into();
                self.shared.insert(spans.clone());
                spans
            }
        };
        self.histories.insert(id, shared);
    }

    /// Adds policies that others had to the history of a metric, as far as there is room. Where the metric had this one alone, they are before
    /// it; otherwise no time of theirs is known here, and they begin with the first one. Returns whether any is new.
    pub(crate) fn learn(&mut self, id: MetricId, current: PolicyId, others: &[PolicySpan], since: Timestamp) -> bool {
        let history = self.history(id, current);
        let is_new = |span: &&PolicySpan| !history.iter().any(|known| known.policy == span.policy);
        let mut spans: Vec<PolicySpan> = others.iter().filter(is_new).copied().collect();
        if spans.is_empty() || MAX_CHANGES <= spans.len() + history.len() {
            return false;
        }
        if history.len() == 1 && others.last().is_some_and(|last| last.since < since) {
            spans.push(PolicySpan { since, policy: current });
            spans[0].since = 0;
        } else {
            spans.iter_mut().for_each(|span| span.since = 0);
            spans.extend(history.iter());
        }
        self.set_history(id, spans);
        true
    }

    /// Forgets the history of a removed metric.
    pub(crate) fn forget(&mut self, id: MetricId) {
        self.histories.remove(&id);
        if self.histories.capacity() > 4 * self.histories.len() + 64 {
            self.histories.shrink_to(self.histories.len() * 2);
        }
    }

    /// Adds a change from `old`, which held until now, to `new`.
    pub(crate) fn change(&mut self, id: MetricId, old: PolicyId, new: PolicyId, since: Timestamp) {
        let history = self.history(id, old);
        // A clock that went back must not put the spans out of order.
        let since = history.next_change(since);
        let mut spans = history.to_vec();
        spans.push(PolicySpan { since, policy: new });
        // A policy that held for less than a second stays: points may have come in it.
        // What the oldest policy kept is gone once its longest stage has passed since it ended.
        while spans.len() > 1 {
            let kept = self.get(spans[0].policy).map_or(0, |policy| policy.retention.longest().duration());
            // One that others had ended with the first one at the latest.
            let ended = spans[1..].iter().map(|span| span.since).find(|next| spans[0].since < *next).unwrap_or(since);
            if spans.len() <= MAX_CHANGES && since <= ended.saturating_add(kept) {
                break;
            }
            spans.remove(0);
        }
        // What is left may begin or end with the policy it began with, or be a single one.
        spans.dedup_by_key(|span| span.policy);
        spans[0].since = 0;
        self.set_history(id, spans);
    }

    /// Bytes held, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.histories.capacity() * 32 + self.shared.len() * 96 + self.distinct.len() * 128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: MetricId = MetricId(3);

    fn spans(policies: &Policies, current: PolicyId) -> Vec<(Timestamp, PolicyId)> {
        policies.history(METRIC, current).iter().map(|span| (span.since, span.policy)).collect()
    }

    fn others(all: &[(Timestamp, PolicyId)]) -> Vec<PolicySpan> {
        all.iter().map(|&(since, policy)| PolicySpan { since, policy }).collect()
    }

    /// Each keeps points for so many minutes.
    fn policies(minutes: [u32; 4]) -> Policies {
        let mut policies = Policies::new();
        for count in minutes {
            let retention = format!("{count}*60s").parse().unwrap();
            policies.intern(&Policy { retention, ..Policy::default() });
        }
        policies
    }

    #[test]
    fn a_metric_of_one_policy_learns_those_before_it_with_their_times() {
        let mut policies = policies([10, 20, 30, 40]);
        assert!(policies.learn(METRIC, 2, &others(&[(5, 0), (700, 1)]), 900));
        assert_eq!(spans(&policies, 2), [(0, 0), (700, 1), (900, 2)]);
        assert!(!policies.learn(METRIC, 2, &others(&[(5, 0), (700, 1)]), 900), "they are known");
        let history = policies.history(METRIC, 2);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [700, 900, Timestamp::MAX]);
    }

    #[test]
    fn policies_of_others_whose_time_is_not_known_are_in_front_and_last_as_long_as_the_first_one() {
        let mut policies = policies([10, 20, 30, 40]);
        policies.change(METRIC, 0, 1, 5000);
        assert!(policies.learn(METRIC, 1, &others(&[(0, 0), (4000, 2)]), 5000));
        assert_eq!(spans(&policies, 1), [(0, 2), (0, 0), (5000, 1)]);
        let history = policies.history(METRIC, 1);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [5000, 5000, Timestamp::MAX]);
        // They go when what they kept since the end of the first one has expired.
        policies.change(METRIC, 1, 3, 5000 + 600);
        assert_eq!(spans(&policies, 3), [(0, 2), (0, 0), (5000, 1), (5600, 3)]);
        // So does the second one, which kept less than the third.
        policies.change(METRIC, 3, 1, 5000 + 1801);
        assert_eq!(spans(&policies, 1), [(0, 3), (6801, 1)]);
    }

    #[test]
    fn another_policy_in_force_on_other_nodes_is_learnt_without_an_end() {
        let mut policies = policies([10, 20, 30, 40]);
        assert!(policies.learn(METRIC, 0, &others(&[(9000, 1)]), 0));
        assert_eq!(spans(&policies, 0), [(0, 1), (0, 0)]);
        let history = policies.history(METRIC, 0);
        assert_eq!((history.ended(0), history.current()), (Timestamp::MAX, 0));
        assert_eq!(history.next_change(77), 77);
    }

    #[test]
    fn no_more_policies_are_learnt_than_a_history_has_room_for() {
        let mut policies = policies([10, 20, 30, 40]);
        let many: Vec<PolicySpan> =
            (1..MAX_CHANGES as PolicyId).map(|policy| PolicySpan { since: 0, policy }).collect();
        assert!(!policies.learn(METRIC, 0, &many, 0));
        assert!(policies.learn(METRIC, 0, &many[1..], 0));
    }
}
