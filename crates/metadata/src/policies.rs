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
pub(crate) const MAX_CHANGES: usize = 32;

/// Distinct policies beyond which policies of shared tables are rejected.
const MOST_DISTINCT: usize = 4096;

/// Points of a policy may come for so long after it ended elsewhere, seconds.
const DAY: i64 = 86_400;

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

    /// When the policy at a place ended here: since when the next one has been in force. Never for those that others had
    /// ([`Registry::learn`](crate::Registry::learn)): they may have it still.
    pub fn ended(&self, place: usize) -> Timestamp {
        let next = self.get(place + 1).filter(|_| place >= learnt(self));
        next.map_or(Timestamp::MAX, |span| span.since)
    }

    /// Without those of others whose time is not known here.
    pub fn with_times(&self) -> &[PolicySpan] {
        &self[learnt(self)..]
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

/// How many policies in front of the first one of this node are of others: each begins with the one behind it.
fn learnt(spans: &[PolicySpan]) -> usize {
    spans.windows(2).take_while(|pair| pair[1].since <= 0).count()
}

/// What others have of the policies of a metric.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere<'a> {
    /// Those before the one in force there, the oldest first.
    pub earlier: &'a [PolicySpan],
    /// The one in force there, where it is another than here.
    pub others_now: Option<PolicyId>,
    /// Since when that one is in force, Unix seconds; 0 where that is not known.
    pub since: Timestamp,
    /// Whether this node had the metric before then.
    pub is_from_before: bool,
    /// Unix seconds.
    pub now: Timestamp,
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

    /// Adds policies that others had to the history of a metric, as far as there is room. Returns whether anything is new.
    ///
    /// * Where this node has had the metric for as long as the others have the policy that is in force, and no other one, those before it are
    ///   before it here too, with their times.
    /// * Otherwise no time of theirs counts here: points of the journal go by the times of this node. They are in front of the first one, where
    ///   their tables are others than those that are known: tables are found by the retention alone. One that ended so long ago that
    ///   its points have expired is not there any more.
    pub(crate) fn learn(&mut self, (id, current): (MetricId, PolicyId), elsewhere: Elsewhere<'_>) -> bool {
        let history = self.history(id, current);
        let spans = self.learnt_of(&history, current, elsewhere);
        let is_new = spans != *history && spans.len() < MAX_CHANGES;
        if is_new {
            self.set_history(id, spans);
        }
        is_new
    }

    fn learnt_of(&self, history: &[PolicySpan], current: PolicyId, elsewhere: Elsewhere<'_>) -> Vec<PolicySpan> {
        let Elsewhere { earlier, others_now, since, is_from_before, now } = elsewhere;
        let (front, own) = history.split_at(learnt(history));
        let are_before =
            earlier.is_sorted_by_key(|span| span.since) && earlier.last().is_some_and(|last| last.since < since);
        if own.len() == 1 && others_now.is_none() && are_before && !is_from_before {
            let is_other = |span: &PolicySpan| {
                !self.have_one_table(span.policy, current) || !self.have_one_method(span.policy, current)
            };
            if !earlier.iter().any(is_other) {
                return history.to_vec();
            }
            // Those in front have times now.
            let has_time =
                |span: &PolicySpan| earlier.iter().any(|other| self.have_one_table(other.policy, span.policy));
            let mut spans: Vec<PolicySpan> = front.iter().filter(|span| !has_time(span)).copied().collect();
            let first = spans.len();
            spans.extend(earlier);
            spans[first].since = 0;
            spans.push(PolicySpan { since, policy: current });
            return spans;
        }
        let is_over = |policy: PolicyId| {
            let last = earlier.iter().rposition(|span| self.have_one_table(span.policy, policy));
            let ended = last.map(|place| earlier.get(place + 1).map_or(since, |next| next.since));
            let kept = self.get(policy).map_or(0, |policy| policy.retention.longest().duration());
            others_now.is_none_or(|others| !self.have_one_table(others, policy))
                && ended.is_some_and(|ended| 0 < ended && ended.saturating_add(kept + DAY) < now)
        };
        let mut spans: Vec<PolicySpan> = Vec::new();
        // One that is in force elsewhere has no end, also where it ended here.
        let others = earlier
            .iter()
            .map(|span| span.policy)
            .filter(|&policy| !own.iter().any(|known| self.have_one_table(known.policy, policy)));
        let others_now = others_now.filter(|&policy| !self.have_one_table(policy, current));
        let front = front.iter().map(|span| span.policy);
        for policy in others
            .chain(others_now)
            .filter(|&policy| !front.clone().any(|known| self.have_one_table(known, policy)))
            .chain(front.clone())
        {
            if !is_over(policy) && !spans.iter().any(|span| self.have_one_table(span.policy, policy)) {
                spans.push(PolicySpan { since: 0, policy });
            }
        }
        spans.extend(own);
        spans
    }

    fn have_one_table(&self, one: PolicyId, other: PolicyId) -> bool {
        let retention = |id: PolicyId| self.get(id).map(|policy| &policy.retention);
        one == other || retention(one) == retention(other)
    }

    fn have_one_method(&self, one: PolicyId, other: PolicyId) -> bool {
        let method = |id: PolicyId| self.get(id).map(|policy| policy.aggregation);
        one == other || method(one) == method(other)
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
        // One of others that this node has itself from now on ends when it ends here.
        let (front, own) = history.split_at(learnt(&history));
        let front = front.iter().filter(|span| !self.have_one_table(span.policy, new));
        let mut spans: Vec<PolicySpan> = front.chain(own).copied().collect();
        spans.push(PolicySpan { since, policy: new });
        // A policy that held for less than a second stays: points may have come in it.
        // What the oldest policy kept is gone once its longest stage has passed since it ended. When those of others ended is not known.
        let mut front = learnt(&spans);
        while front + 1 < spans.len() {
            let kept = self.get(spans[front].policy).map_or(0, |policy| policy.retention.longest().duration());
            let has_room = spans.len() <= MAX_CHANGES;
            if has_room && since <= spans[front + 1].since.saturating_add(kept) {
                break;
            }
            if !has_room && 0 < front {
                front -= 1;
                spans.remove(0);
            } else {
                spans.remove(front);
            }
        }
        // What is left may begin or end with the policy it began with, or be a single one.
        let mut own = spans.split_off(front);
        own.dedup_by_key(|span| span.policy);
        own[0].since = 0;
        spans.extend(own);
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

    /// Of a metric that was here before.
    fn elsewhere(earlier: &[PolicySpan], others_now: Option<PolicyId>, since: Timestamp) -> Elsewhere<'_> {
        Elsewhere { earlier, others_now, since, is_from_before: true, now: since }
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
        let earlier = others(&[(5, 0), (700, 1)]);
        assert!(policies.learn((METRIC, 2), Elsewhere { is_from_before: false, ..elsewhere(&earlier, None, 900) }));
        assert_eq!(spans(&policies, 2), [(0, 0), (700, 1), (900, 2)]);
        assert!(!policies.learn((METRIC, 2), elsewhere(&others(&[(5, 0), (700, 1)]), None, 900)), "they are known");
        let history = policies.history(METRIC, 2);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [700, 900, Timestamp::MAX]);
    }

    #[test]
    fn those_of_others_get_their_times_once_the_table_has_when_this_node_made_the_metric() {
        let mut policies = policies([10, 20, 30, 40]);
        assert!(policies.learn((METRIC, 2), elsewhere(&others(&[(0, 0)]), Some(1), 700)));
        assert!(policies.learn((METRIC, 2), elsewhere(&[], Some(3), 0)), "of a node that has yet others");
        assert_eq!(spans(&policies, 2), [(0, 3), (0, 0), (0, 1), (0, 2)]);
        let earlier = others(&[(0, 0), (700, 1)]);
        assert!(policies.learn((METRIC, 2), Elsewhere { is_from_before: false, ..elsewhere(&earlier, None, 900) }));
        assert_eq!(spans(&policies, 2), [(0, 3), (0, 0), (700, 1), (900, 2)]);
        let history = policies.history(METRIC, 2);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [Timestamp::MAX, 700, 900]);
    }

    #[test]
    fn a_policy_that_was_in_force_twice_is_learnt_twice() {
        let mut policies = policies([10, 20, 30, 40]);
        let earlier = others(&[(0, 0), (500, 1)]);
        assert!(policies.learn((METRIC, 0), Elsewhere { is_from_before: false, ..elsewhere(&earlier, None, 900) }));
        assert_eq!(spans(&policies, 0), [(0, 0), (500, 1), (900, 0)]);
    }

    #[test]
    fn policies_of_others_whose_time_is_not_known_are_in_front_and_stay() {
        let mut policies = policies([10, 20, 30, 40]);
        policies.change(METRIC, 0, 1, 5000);
        assert!(policies.learn((METRIC, 1), elsewhere(&others(&[(0, 0), (4000, 2)]), None, 5000)));
        assert_eq!(spans(&policies, 1), [(0, 2), (0, 0), (5000, 1)]);
        let history = policies.history(METRIC, 1);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [Timestamp::MAX, 5000, Timestamp::MAX]);
        policies.change(METRIC, 1, 3, 5600);
        assert_eq!(spans(&policies, 3), [(0, 2), (0, 0), (5000, 1), (5600, 3)]);
        // What those of this node kept since they ended has expired.
        policies.change(METRIC, 3, 1, 6801);
        assert_eq!(spans(&policies, 1), [(0, 2), (0, 3), (6801, 1)]);
        for since in (6802..).take(2 * MAX_CHANGES) {
            let current = policies.history(METRIC, 1).current();
            policies.change(METRIC, current, if current == 1 { 3 } else { 1 }, since);
        }
        let history = policies.history(METRIC, 1);
        assert_eq!(
            (history.len(), learnt(&history), history[0].since),
            (MAX_CHANGES, 0, 0),
            "there is no room for them"
        );
    }

    #[test]
    fn a_policy_that_others_have_now_is_learnt_without_an_end_whatever_was_here_before() {
        let mut policies = policies([10, 20, 30, 40]);
        assert!(policies.learn((METRIC, 0), elsewhere(&[], Some(1), 9000)));
        assert_eq!(spans(&policies, 0), [(0, 1), (0, 0)]);
        policies.change(METRIC, 0, 2, 9500);
        assert_eq!(spans(&policies, 2), [(0, 1), (0, 0), (9500, 2)]);
        // Another node goes back to one that was in force here, too.
        assert!(policies.learn((METRIC, 2), elsewhere(&others(&[(0, 0), (9500, 2)]), Some(0), 9600)));
        assert!(!policies.learn((METRIC, 2), elsewhere(&others(&[(0, 0), (9500, 2)]), Some(0), 9600)), "it is known");
        assert_eq!(spans(&policies, 2), [(0, 0), (0, 1), (0, 0), (9500, 2)]);
        let history = policies.history(METRIC, 2);
        assert_eq!([0, 1, 2].map(|place| history.ended(place)), [Timestamp::MAX, Timestamp::MAX, 9500]);
        assert_eq!((history.current(), history.next_change(77)), (2, 9501));
    }

    #[test]
    fn no_more_policies_are_learnt_than_a_history_has_room_for() {
        let mut policies = policies([10, 20, 30, 40]);
        let mut many = Vec::new();
        for minutes in 50..50 + MAX_CHANGES as u32 - 1 {
            let retention = format!("{minutes}*60s").parse().unwrap();
            many.push(PolicySpan { since: 0, policy: policies.intern(&Policy { retention, ..Policy::default() }) });
        }
        assert!(!policies.learn((METRIC, 0), elsewhere(&many, None, 0)));
        assert!(policies.learn((METRIC, 0), elsewhere(&many[1..], None, 0)));
    }

    /// Policies of one retention, whose methods are average, maximum and sum.
    fn methods() -> Policies {
        let mut policies = Policies::new();
        for aggregation in [metric::Aggregation::Average, metric::Aggregation::Max, metric::Aggregation::Sum] {
            policies.intern(&Policy { aggregation, ..Policy::default() });
        }
        policies
    }

    #[test]
    fn another_method_of_before_is_learnt_by_a_node_that_did_not_have_the_metric_then() {
        let mut policies = methods();
        let earlier = others(&[(0, 0), (500, 1)]);
        let elsewhere =
            |is_from_before| Elsewhere { earlier: &earlier, others_now: None, since: 900, is_from_before, now: 900 };
        assert!(!policies.learn((METRIC, 2), elsewhere(true)), "what it stored then may be by its own");
        assert!(policies.learn((METRIC, 2), elsewhere(false)));
        assert_eq!(spans(&policies, 2), [(0, 0), (500, 1), (900, 2)]);
        assert!(!policies.learn((METRIC, 2), elsewhere(false)), "they are known");
    }

    #[test]
    fn another_method_elsewhere_has_no_tables_of_its_own() {
        let mut policies = methods();
        assert!(!policies.learn((METRIC, 0), elsewhere(&[], Some(1), 900)));
    }

    #[test]
    fn one_of_others_ends_where_it_ends_here_and_is_gone_once_its_points_have_expired() {
        let mut policies = policies([10, 20, 30, 40]);
        assert!(policies.learn((METRIC, 0), elsewhere(&[], Some(1), 9000)));
        policies.change(METRIC, 0, 1, 9500);
        assert_eq!(spans(&policies, 1), [(0, 0), (9500, 1)]);
        // Others had one for minutes: a canary. Its points count here until they have expired.
        let (canary, earlier) = (MetricId(4), others(&[(0, 0), (9000, 3)]));
        assert!(policies.learn((canary, 0), elsewhere(&[], Some(3), 9000)));
        assert_eq!(policies.history(canary, 0).ended(0), Timestamp::MAX);
        let kept = 9300 + 40 * 60 + DAY;
        let at = |now| Elsewhere { now, ..elsewhere(&earlier, None, 9300) };
        assert!(!policies.learn((canary, 0), at(kept)));
        assert_eq!(policies.history(canary, 0)[..], *others(&[(0, 3), (0, 0)]));
        assert!(policies.learn((canary, 0), at(kept + 1)));
        assert_eq!(policies.history(canary, 0)[..], *others(&[(0, 0)]));
        assert!(!policies.learn((canary, 0), at(kept + 1)));
    }
}
