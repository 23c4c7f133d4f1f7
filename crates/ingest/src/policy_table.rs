//! The policies in use, laid out for the path of a point.

use std::{collections::HashMap, sync::Arc};

use metadata::{PolicyHistory, PolicyId, Registry};
use metric::{Policy, Timestamp};
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
    pub(crate) all: Vec<Arc<Policy>>,
    pub(crate) bounds: Vec<PointBounds>,
    /// Whether no other process writes the store.
    pub(crate) is_alone: bool,
}

impl PolicyTable {
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
        let all: Vec<Arc<Policy>> = (0..count).map(|id| self.registry.policy(id as PolicyId)).collect();
        let bounds = all.iter().map(|policy| PointBounds::of(policy)).collect();
        *table = Arc::new(PolicyTable { all, bounds, is_alone: self.is_alone });
    }
}
