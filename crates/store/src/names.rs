//! The metrics table of one node: which id has which name and policies.

use metric::{MetricId, Policy, Timestamp};

use crate::DriverFuture;

/// A policy and when it began to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyChange {
    /// Unix seconds from which points were kept by this policy; 0 for the first.
    pub since: Timestamp,
    /// The policy.
    pub policy: Policy,
}

/// A row of the metrics table.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRecord {
    /// The metric's id in this node's registry.
    pub id: MetricId,
    /// Canonical name, tags included.
    pub name: String,
    /// Unix seconds.
    pub created_on: Timestamp,
    /// Every policy the metric was kept by, oldest first; never empty. The last one holds now.
    pub policies: Vec<PolicyChange>,
}

/// Keeps the metrics table of one node. Every driver passes [`crate::conformance::names_suite`].
pub trait NameStore: Send + Sync + 'static {
    /// Writes rows, each in place of the row with the same id. The next `sync_metrics` makes them durable. After an error any
    /// part of them may be written, and the caller writes all of them again.
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()>;

    /// Reads the whole table, in any order, in batches as they come from the disk.
    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()>;

    /// Makes every earlier `put_metrics` durable. The caller trims its journal afterwards.
    fn sync_metrics(&self) -> DriverFuture<'_, ()>;
}
