//! The rules in force, and the policies that the journal and the policy table know.

use std::sync::Arc;

use carbon::Rules;
use metadata::{PolicyId, Registry, StaleRule, XFilesFactors};
use metric::Policy;
use parking_lot::RwLock;
use store::MetricRecord;

use crate::{policy_table::Policies, wal::Journal};

/// Rules, and the registry's id of each of their policies.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) rules: Rules,
    ids: Vec<PolicyId>,
}

impl RuleSet {
    /// The id of the rules' policy with this index.
    pub(crate) fn policy_id(&self, index: usize) -> PolicyId {
        self.ids[index]
    }
}

/// The rules in force. A metric may have a policy only once the journal and the policy table have it, and this is where
/// both get it.
pub(crate) struct ActiveRules {
    registry: Arc<Registry>,
    journal: Arc<Journal>,
    policies: Arc<Policies>,
    // Locked exclusively for every change of the policy table, so that none puts a table in place that lacks another's
    // policies.
    current: RwLock<Arc<RuleSet>>,
}

impl ActiveRules {
    pub(crate) fn new(
        rules: Rules,
        registry: Arc<Registry>,
        journal: Arc<Journal>,
        policies: Arc<Policies>,
    ) -> ActiveRules {
        let empty = RuleSet { rules: Rules::default(), ids: Vec::new() };
        let active = ActiveRules { registry, journal, policies, current: RwLock::new(Arc::new(empty)) };
        active.set(rules);
        active
    }

    pub(crate) fn current(&self) -> Arc<RuleSet> {
        self.current.read().clone()
    }

    /// Whether these rules are still the latest.
    pub(crate) fn is_current(&self, rules: &Arc<RuleSet>) -> bool {
        Arc::ptr_eq(rules, &self.current.read())
    }

    pub(crate) fn set(&self, rules: Rules) {
        let mut current = self.current.write();
        let stale = rules
            .index_rules()
            .iter()
            .cloned()
            .map(|rule| StaleRule { max_stale: rule.max_stale, matches: Box::new(move |name| rule.matches(name)) });
        self.registry.set_stale_rules(stale.collect());
        let ids = rules.policies().iter().map(|policy| self.registry.intern(policy)).collect();
        self.announce_policies(0);
        *current = Arc::new(RuleSet { rules, ids });
        self.registry.set_x_files_factors(self.x_files_factors(&current));
    }

    /// Where others write the store too, their policies do not say how this node reads. Alone, the policies are by the rules.
    fn x_files_factors(&self, rules: &Arc<RuleSet>) -> Option<XFilesFactors> {
        let is_asked = !self.policies.is_alone() && rules.rules.has_x_files_factors();
        let rules = rules.clone();
        is_asked.then(|| Arc::new(move |name: &str| rules.rules.x_files_factor(name)) as XFilesFactors)
    }

    /// Takes in the policies of metrics that other nodes created. Removes from `records` the metrics whose policies find
    /// no room, and returns how many.
    pub(crate) fn admit_policies(&self, records: &mut Vec<MetricRecord>) -> usize {
        let _policies_change = self.current.write();
        let known = self.registry.policy_count();
        let before = records.len();
        let has_room = |policy: &Policy| self.registry.try_intern(policy).is_some();
        records.retain(|record| record.policies.last().is_some_and(|change| has_room(&change.policy)));
        for record in records.iter_mut().filter(|record| 1 < record.policies.len()) {
            record.policies.retain(|change| has_room(&change.policy));
            record.policies[0].since = 0;
        }
        if known < self.registry.policy_count() {
            self.announce_policies(known);
        }
        before - records.len()
    }

    /// Makes policies known under which points came that are read again, as far as there is room.
    pub(crate) fn admit_earlier<'a>(&self, policies: impl Iterator<Item = &'a Policy>) {
        let _policies_change = self.current.write();
        let known = self.registry.policy_count();
        policies.for_each(|policy| _ = self.registry.try_intern(policy));
        if known < self.registry.policy_count() {
            self.announce_policies(known);
        }
    }

    /// Gives the journal and the table the policies from the id `known` on.
    fn announce_policies(&self, known: usize) {
        for id in known..self.registry.policy_count() {
            let id = id as PolicyId;
            self.journal.name_policy(id, &self.registry.policy(id));
        }
        self.policies.refresh();
    }
}
