//! The policies in use, laid out for the path of a point.

use std::{collections::HashMap, sync::Arc};

use metadata::{PolicyHistory, PolicyId, Registry};
use metric::{Aggregation, Methods, Policy, Table, Timestamp};
use parking_lot::RwLock;

/// The ids that a journal gives policies are those of the process that wrote it; these are the registry's.
pub(crate) type JournalPolicyIds = HashMap<u16, PolicyId>;

/// The part of a policy that every point needs: twelve bytes that stay in the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointBounds {
    /// Seconds per slot of stage 0.
    pub(crate) resolution: u32,
    /// Seconds that stage 0 keeps.
    pub(crate) finest: u32,
    /// Seconds that the longest stage keeps.
    pub(crate) longest: u32,
}

impl PointBounds {
    fn of(policy: &Policy) -> PointBounds {
        let stages = &policy.retention;
        // A stage lasts at most u32::MAX seconds: its constructor sees to that.
        PointBounds {
            resolution: stages.finest().resolution(),
            finest: stages.finest().duration() as u32,
            longest: stages.longest().duration() as u32,
        }
    }
}

/// Every policy by its id.
#[derive(Debug, Default)]
pub(crate) struct PolicyTable {
    /// In the table of a rollup, each policy with that method alone, see [`PolicyTable::of_rollup`].
    pub(crate) all: Vec<Arc<Policy>>,
    pub(crate) bounds: Vec<PointBounds>,
    /// Whether no other process writes the store.
    pub(crate) is_alone: bool,
    /// The policies of lists, by the place of their id, with each method alone. Empty where no policy has several methods.
    alone: Arc<[Vec<Arc<Policy>>]>,
    /// The tables of the rollups that any policy has.
    rollups: Vec<(Aggregation, PolicyTable)>,
}

/// A rollup of a metric whose rows a flush makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollup {
    pub(crate) method: Aggregation,
    /// Whether it is the first one of the policy: that one has the points as well, and the tables of policies with one method.
    pub(crate) is_first: bool,
}

impl Rollup {
    /// Whether rows of a table are its own. What several rollups of a metric show in a table of another one, that one decides.
    pub(crate) fn has(self, table: Table) -> bool {
        match table.rollup {
            Some(method) => method == self.method,
            None => self.is_first,
        }
    }
}

impl PolicyTable {
    /// The policies as one rollup has them: those whose list has the method, with it alone, and the others with their first
    /// method. A metric's history in this table is that of a metric with one method, whose rows are in other tables where a
    /// policy has several.
    pub(crate) fn of_rollup(&self, method: Aggregation) -> &PolicyTable {
        self.rollups.iter().find(|(of, _)| *of == method).map_or(self, |(_, table)| table)
    }

    /// Whether any policy has several methods.
    pub(crate) fn has_rollups(&self) -> bool {
        !self.rollups.is_empty()
    }

    /// A policy of a list with each of its methods alone; a policy of one method as it is.
    pub(crate) fn each_alone(&self, id: PolicyId) -> &[Arc<Policy>] {
        let id = usize::from(id);
        let alone = self.alone.get(id).filter(|alone| !alone.is_empty());
        alone.map_or_else(|| self.all.get(id).map(std::slice::from_ref).unwrap_or_default(), Vec::as_slice)
    }

    /// The rollups whose rows a flush of points under a policy makes, the first one first: those of the policy, and those that
    /// the metric had before, whose rows follow what the policy shows.
    pub(crate) fn rollups(
        &self,
        history: Option<&PolicyHistory>,
        id: PolicyId,
    ) -> impl Iterator<Item = Rollup> + use<> {
        let Some(policy) = self.all.get(usize::from(id)) else { unreachable!("a policy of a job is in the table") };
        let first = policy.aggregation;
        let mut methods = Methods::one(first);
        if !self.rollups.is_empty() {
            let before = history.into_iter().flat_map(|history| {
                let place = history.iter().rposition(|span| span.policy == id).unwrap_or(0);
                history[..place].iter().map(|span| span.policy)
            });
            for policy in before.chain([id]).filter_map(|id| self.all.get(usize::from(id))) {
                // Without a coarse stage there are no rows but the points.
                if 0 < policy.coarse_tables() {
                    policy.rollups.iter().for_each(|method| _ = methods.add(method));
                }
            }
        }
        methods.into_iter().map(move |method| Rollup { method, is_first: method == first })
    }

    /// Of these policies, by id.
    fn of(all: Vec<Arc<Policy>>, is_alone: bool) -> PolicyTable {
        let bounds: Vec<PointBounds> = all.iter().map(|policy| PointBounds::of(policy)).collect();
        let mut methods = Methods::NONE;
        all.iter().flat_map(|policy| policy.rollups.iter()).for_each(|method| _ = methods.add(method));
        if methods.is_empty() {
            return PolicyTable { all, bounds, is_alone, ..PolicyTable::default() };
        }
        let each = |policy: &Arc<Policy>| {
            policy.rollups.iter().map(|method| Arc::new(policy.of_rollup(method))).collect::<Vec<_>>()
        };
        let alone: Arc<[Vec<Arc<Policy>>]> = all.iter().map(each).collect();
        let of_rollup = |method: Aggregation| {
            let with = |(policy, alone): (&Arc<Policy>, &Vec<Arc<Policy>>)| {
                alone.iter().find(|alone| alone.aggregation == method).or(alone.first()).unwrap_or(policy).clone()
            };
            let all = all.iter().zip(alone.iter()).map(with).collect();
            let (bounds, alone) = (bounds.clone(), alone.clone());
            (method, PolicyTable { all, bounds, is_alone, alone, rollups: Vec::new() })
        };
        let rollups = methods.iter().map(of_rollup).collect();
        PolicyTable { all, bounds, is_alone, alone, rollups }
    }

    /// From when on the first stages of all policies of this history have all points, at `now`. `Timestamp::MAX` for
    /// policies of one first step, whose counts tell, and where one may be forgotten.
    pub(crate) fn points_since(&self, history: &PolicyHistory, now: Timestamp) -> Timestamp {
        if history.len() == 1 || history.may_lack_policies() {
            return Timestamp::MAX;
        }
        let (mut step, mut shortest) = (None, i64::MAX);
        let mut is_of_many = false;
        for span in history.iter() {
            let Some(bounds) = self.bounds.get(usize::from(span.policy)) else { return Timestamp::MAX };
            is_of_many |= *step.get_or_insert(bounds.resolution) != bounds.resolution;
            shortest = shortest.min(i64::from(bounds.finest));
        }
        if is_of_many { now.saturating_sub(shortest) } else { Timestamp::MAX }
    }

    /// Before which time points may be known as coarse rows of an earlier policy alone, at `now`: they have expired from its first
    /// stage, or were too old for it. `Timestamp::MIN` for a metric of one policy.
    pub(crate) fn rows_alone_until(&self, history: &PolicyHistory, now: Timestamp) -> Timestamp {
        if history.may_lack_policies() {
            return now;
        }
        if history.len() == 1 {
            return Timestamp::MIN;
        }
        let bounds = history.iter().filter_map(|span| self.bounds.get(usize::from(span.policy)));
        bounds.map(|bounds| now.saturating_sub(i64::from(bounds.finest))).max().unwrap_or(Timestamp::MIN)
    }
}

/// The current table; replaced as a whole when a policy is added, so that readers keep theirs for a batch.
pub(crate) struct Policies {
    registry: Arc<Registry>,
    is_alone: bool,
    table: RwLock<Arc<PolicyTable>>,
}

impl Policies {
    /// The policies that the registry knows. `is_alone` says that no other process writes the store.
    pub(crate) fn new(registry: Arc<Registry>, is_alone: bool) -> Policies {
        let policies = Policies { registry, is_alone, table: RwLock::default() };
        policies.refresh();
        policies
    }

    /// Whether no other process writes the store.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    pub(crate) fn table(&self) -> Arc<PolicyTable> {
        self.table.read().clone()
    }

    /// The registry's id of a policy, which is in the table from now on.
    pub(crate) fn intern(&self, policy: &Policy) -> PolicyId {
        let id = self.registry.intern(policy);
        self.refresh();
        id
    }

    /// Takes in every policy that the registry knows.
    pub(crate) fn refresh(&self) {
        // Locked first, so that no other caller puts an older table in place of this one.
        let mut table = self.table.write();
        let count = self.registry.policy_count();
        let policy = |id| {
            let policy = self.registry.policy(id as PolicyId);
            // Tables that others share have one value a slot. A list may come from a time before them.
            let is_one = self.is_alone || policy.rollups.is_empty();
            if is_one { policy } else { Arc::new(Policy { rollups: Methods::NONE, ..(*policy).clone() }) }
        };
        let all: Vec<Arc<Policy>> = (0..count).map(policy).collect();
        *table = Arc::new(PolicyTable::of(all, self.is_alone));
    }
}
