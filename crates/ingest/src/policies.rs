//! The policies in use, laid out for the path of a point.

use std::sync::Arc;

use metadata::{PolicyId, Registry};
use metric::Policy;
use parking_lot::RwLock;

/// What the path of a point needs of a policy, and nothing else: sixteen bytes that stay in the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hot {
    /// Seconds per slot of stage 0.
    pub(crate) resolution: u32,
    /// Seconds that stage 0 keeps.
    pub(crate) finest: u32,
    /// Seconds that the longest stage keeps.
    pub(crate) longest: u32,
}

/// Every policy by its id.
#[derive(Debug, Default)]
pub(crate) struct PolicyTable {
    pub(crate) all: Vec<Arc<Policy>>,
    pub(crate) hot: Vec<Hot>,
}

/// The current table; replaced whole when a policy is added, so that readers keep theirs for a batch.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    table: RwLock<Arc<PolicyTable>>,
}

impl Policies {
    pub(crate) fn table(&self) -> Arc<PolicyTable> {
        self.table.read().clone()
    }

    /// Takes in every policy that the registry knows.
    pub(crate) fn refresh(&self, registry: &Registry) {
        let count = registry.policy_count();
        let all: Vec<Arc<Policy>> = (0..count).map(|id| registry.policy(id as PolicyId)).collect();
        let hot = all.iter().map(|policy| hot(policy)).collect();
        *self.table.write() = Arc::new(PolicyTable { all, hot });
    }
}

fn hot(policy: &Policy) -> Hot {
    let stages = &policy.retention;
    // A stage lasts at most u32::MAX seconds: its constructor sees to that.
    Hot {
        resolution: stages.finest().resolution(),
        finest: stages.finest().duration() as u32,
        longest: stages.longest().duration() as u32,
    }
}
