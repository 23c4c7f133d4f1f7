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
    /// As they are read.
    pub(crate) metrics: BTreeMap<String, SharedMetric>,
    /// By bucket. No row expires.
    pub(crate) changes: BTreeMap<i64, BTreeMap<ChangeKey, Change>>,
}

/// A policy as the tables give it back.
pub(crate) fn kept(policy: &Policy) -> Policy {
    let config = config::config(policy);
    config::policy(config.iter().map(|(key, value)| (*key, value.as_str()))).expect("a policy of ours can be read")
}

impl MemoryNames {
    pub(crate) fn put(&mut self, record: &MetricRecord, now: Timestamp) {
        let mut policies = record.policies.clone();
        if let Some(known) = self.metrics.get(&record.name) {
            config::add_known(&mut policies, known, (record.created_on, now));
        }
        let Some(config) = config::config_of(&policies) else { return };
        let pairs = || config.iter().map(|(key, value)| (*key, value.as_str()));
        let (earlier, since) = config::before(pairs());
        let metric = SharedMetric {
            name: record.name.clone(),
            policy: config::policy(pairs()).expect("a policy of ours can be read"),
            since,
            earlier,
            created_on: Some(record.created_on),
            updated_on: None,
        };
        self.metrics.insert(record.name.clone(), metric);
    }

    pub(crate) fn metric(&self, name: &str) -> Option<SharedMetric> {
        self.metrics.get(name).cloned()
    }
}
