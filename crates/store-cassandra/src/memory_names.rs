//! The tables of names in memory, and the log of names that came and went.

use std::collections::BTreeMap;

use metric::{Policy, Timestamp};
use store::{MetricRecord, SharedMetric};

use crate::{
    names::config,
    peers::{Change, ChangeKey},
};

/// The tables of names, and the log.
#[derive(Debug, Default)]
pub(crate) struct MemoryNames {
    /// Policy, and when it was created.
    pub(crate) metrics: BTreeMap<String, (Policy, Timestamp)>,
    /// By bucket. No row expires.
    pub(crate) changes: BTreeMap<i64, BTreeMap<ChangeKey, Change>>,
}

/// A policy as the tables give it back.
pub(crate) fn kept(policy: &Policy) -> Policy {
    let config = config::config(policy);
    config::policy(config.iter().map(|(key, value)| (*key, value.as_str()))).expect("a policy of ours can be read")
}

impl MemoryNames {
    pub(crate) fn put(&mut self, record: &MetricRecord) {
        let Some(change) = record.policies.last() else { return };
        self.metrics.insert(record.name.clone(), (kept(&change.policy), record.created_on));
    }

    pub(crate) fn metric(&self, name: &str) -> Option<SharedMetric> {
        let (policy, created_on) = self.metrics.get(name)?;
        let policy = policy.clone();
        Some(SharedMetric { name: name.to_owned(), policy, created_on: Some(*created_on), updated_on: None })
    }
}
