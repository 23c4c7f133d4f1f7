//! The registry: ids, names and policies of metrics.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;
use metric::{MetricId, Policy, Timestamp};
use parking_lot::{Mutex, RwLock};

use crate::{
    name_order::NameOrder,
    names::{Names, NamesMut, Table},
    policies::{Elsewhere, MAX_CHANGES, Policies, PolicyHistory, PolicyId, PolicySpan, XFilesFactors},
    saved_tags::SavedTags,
    seen::Seen,
    stale::StaleRules,
    tag_index::{NamesFile, TagIndex},
};

/// Metrics whose times are widened under one lock.
const WIDENED_TOGETHER: usize = 4096;

/// Every metric this node knows.
///
/// Ids begin at 0, persist in the metrics table and are never reused, not even after a removal. Any thread may call any method. A
/// thread must drop the guard of [`Registry::read`] or [`Registry::write`] before it calls other methods than
/// [`Registry::hash`], [`Registry::intern`], [`Registry::policy`] and [`Registry::policy_count`]: a second read lock
/// waits behind a waiting writer, which waits for the first.
pub struct Registry {
    seed: RandomState,
    pub(crate) names: RwLock<Table>,
    // Locked after `names`: a holder of names may read policies.
    pub(crate) policies: RwLock<Policies>,
    // Locked to change the segments. The value is the number of names at the last call of `compact`.
    pub(crate) compacting: Mutex<usize>,
    // Questions and `compact` report changes to it. Locked before `names`, and not while a holder of these waits.
    pub(crate) tags: RwLock<TagIndex>,
    // Locked only to look, or to exchange it.
    pub(crate) order: Mutex<Arc<NameOrder>>,
    // For the first update of the tag index. Locked after `tags`, and for no longer than it takes to look.
    pub(crate) saved_tags: Mutex<Option<(SavedTags, NamesFile)>>,
    // Has a lock of its own, which is taken last.
    seen: Seen,
    // When metrics are stale; none without rules. Locked only to look, or to exchange it.
    pub(crate) stale: RwLock<Option<Arc<StaleRules>>>,
    // As the one above.
    pub(crate) x_files_factors: RwLock<Option<XFilesFactors>>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Registry {
        Registry::of(Table::new(), Policies::new())
    }

    pub(crate) fn of(table: Table, policies: Policies) -> Registry {
        Registry {
            seed: RandomState::default(),
            policies: RwLock::new(policies),
            names: RwLock::new(table),
            compacting: Mutex::new(0),
            tags: RwLock::new(TagIndex::new()),
            order: Mutex::default(),
            saved_tags: Mutex::new(None),
            seen: Seen::new(),
            stale: RwLock::new(None),
            x_files_factors: RwLock::new(None),
        }
    }

    /// The hash of a name, which [`Names::find`] and [`NamesMut::create`] take. The seed differs in
    /// every process, so that no sender can choose names that collide.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(name);
        hasher.finish()
    }

    /// Shared access to the names, for a batch of points.
    #[inline]
    pub fn read(&self) -> Names<'_> {
        Names { table: self.names.read() }
    }

    /// Exclusive access to the names, for a batch of new metrics.
    pub fn write(&self) -> NamesMut<'_> {
        NamesMut { table: self.names.write() }
    }

    /// The id of a policy, which is given one when it is new. Ids hold for the life of the process
    /// and in what [`Registry::save`] writes, not in the metrics table.
    pub fn intern(&self, policy: &Policy) -> PolicyId {
        self.policies.write().intern(policy)
    }

    /// As [`Registry::intern`], for a policy of shared tables: `None` when it is new and there are 4,096 already, far
    /// more than an operator configures.
    pub fn try_intern(&self, policy: &Policy) -> Option<PolicyId> {
        self.policies.write().try_intern(policy)
    }

    /// The policy with an id that [`Registry::intern`] gave.
    ///
    /// # Panics
    /// When no policy has the id.
    pub fn policy(&self, id: PolicyId) -> Arc<Policy> {
        self.policies.read().get(id).expect("a policy id comes from intern").clone()
    }

    /// Whether a policy has several aggregation methods.
    pub fn has_rollups(&self) -> bool {
        self.policies.read().distinct().iter().any(|policy| !policy.rollups.is_empty())
    }

    /// How many distinct policies there are: their ids are 0 to this.
    pub fn policy_count(&self) -> usize {
        self.policies.read().distinct().len()
    }

    /// From `since` (Unix seconds) on, a metric is kept by another policy. Nothing happens when it already
    /// is, or when no metric has the id.
    pub fn set_policy(&self, id: MetricId, policy: PolicyId, since: Timestamp) {
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        let Some(old) = table.record(id).map(|record| record.policy) else { return };
        if old == policy {
            return;
        }
        let place = *table.places.get(id).expect("its record was found there");
        table.arena.set_policy(place, policy);
        policies.change(id, old, policy, since);
    }

    /// Every policy a metric was kept by, oldest first, or `None` when no metric has the id.
    pub fn policies(&self, id: MetricId) -> Option<PolicyHistory> {
        let table = self.names.read();
        let current = table.record(id)?.policy;
        Some(self.policies.read().history(id, current))
    }

    /// Adds policies to the history of a metric that others had for it. Points may be stored under them. Returns whether any is new.
    pub fn learn(&self, id: MetricId, elsewhere: Elsewhere<'_>) -> bool {
        let table = self.names.read();
        let mut policies = self.policies.write();
        table.record(id).is_some_and(|record| policies.learn((id, record.policy), elsewhere))
    }

    /// Replaces the history of a metric by one that ends with the policy in force. Returns whether it did.
    pub fn set_history(&self, id: MetricId, spans: Vec<PolicySpan>) -> bool {
        let table = self.names.read();
        let mut policies = self.policies.write();
        let current = table.record(id).map(|record| record.policy);
        let is_right = current.is_some() && spans.last().map(|last| last.policy) == current;
        let is_right = is_right && spans[0].since == 0 && spans.is_sorted_by_key(|span| span.since);
        let is_right = is_right && spans.len() <= MAX_CHANGES;
        if is_right {
            policies.set_history(id, spans);
        }
        is_right
    }

    /// Of some metrics, those that had other policies before, each with the longest step of the policy in force, seconds.
    pub fn steps_of_changed(&self, ids: impl Iterator<Item = MetricId>) -> HashMap<MetricId, u32> {
        let policies = self.policies.read();
        if policies.histories().len() == 0 {
            return HashMap::new();
        }
        ids.filter_map(|id| Some((id, policies.step_of_changed(id)?))).collect()
    }

    /// Metrics have other policies than before, in whose slots their points are drawn from now on: their first and last times
    /// are noted as those of these slots. Holds a lock for some thousand metrics at a time.
    pub fn widen_seen(&self, metrics: &[MetricId], now: Timestamp) {
        for together in metrics.chunks(WIDENED_TOGETHER) {
            let steps: Vec<(MetricId, u32)> = {
                let (names, policies) = (self.names.read(), self.policies.read());
                let step =
                    |&id: &MetricId| Some(policies.get(names.record(id)?.policy)?.retention.longest().resolution());
                together.iter().filter_map(|id| Some((*id, step(id)?))).collect()
            };
            self.seen().widen(&steps, now);
        }
    }

    /// When a policy of any metric changed last, Unix seconds.
    pub fn last_policy_change(&self) -> Option<Timestamp> {
        let policies = self.policies.read();
        policies.histories().filter_map(|(_, spans)| Some(spans.last()?.since)).max()
    }

    /// New metrics get this id or a higher one: those below have been seen somewhere.
    pub fn never_give_below(&self, id: MetricId) {
        self.names.write().places.extend_to(id);
    }

    /// Metrics known, tagged ones included.
    pub fn len(&self) -> usize {
        self.names.read().names
    }

    /// Whether no metric is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When metrics have points.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let stale = self.stale.read().as_ref().map_or(0, |rules| rules.memory_bytes());
        let order = self.order.lock().memory_bytes();
        let others = self.policies.read().memory_bytes() + self.seen.memory_bytes() + stale + order;
        let table = self.names.read();
        others + table.memory_bytes()
    }
}
