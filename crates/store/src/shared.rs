//! Tables that several programs write: what their drivers offer, and no other driver needs to know.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use metric::{MetricId, Policy, Retention, Timestamp};

use crate::{
    DriverFuture, MetricRecord, PolicyChange, StoreError,
    points::{Fetch, Run},
};

/// Points that other processes write too.
///
/// A slot of an aggregated table then has a row for each writer, and readers merge them. Readers and the flush also
/// ask such a store for slots that this process never wrote.
pub trait SharedPoints: Send + Sync + 'static {
    /// Subtracts what other writers stored: from slots with all writers' total to slots with this writer's partials.
    ///
    /// `totals` are runs of aggregated tables. Each answer has the slots of its total, in the same order; the caller
    /// writes it next, and the rows of all writers then aggregate to the total. A row of another writer that would
    /// contradict the total (an extreme that was overwritten) is corrected first.
    fn writer_partials(&self, totals: Vec<Run>) -> DriverFuture<'_, OwnRows>;

    /// Who else writes the same tables, as far as this process has seen since its start.
    fn other_writers(&self) -> OtherWriters {
        OtherWriters::default()
    }

    /// Of each fetch of an aggregated table, whether other writers have rows there. The default does not know, and says that they
    /// have.
    fn have_others(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<bool>> {
        Box::pin(ready(Ok(vec![true; fetches.len()])))
    }

    /// Whether others keep a metric, or kept it before, by other retentions than this one, as far as the shared tables say: then its coarse
    /// rows may count points that are in tables which this process does not read.
    fn has_other_retentions<'a>(&'a self, name: &'a str, retention: &'a Retention) -> DriverFuture<'a, bool> {
        let _ = (name, retention);
        Box::pin(ready(Ok(false)))
    }

    /// When a deletion that begins now is, Unix seconds, as the other processes will compare it with when they made metrics. Metrics that
    /// are made from now on are of later seconds.
    fn deletion_time(&self) -> Timestamp {
        0
    }

    /// Deletes the names and points of metrics for all processes, durably, as of [`SharedPoints::deletion_time`] before their names were
    /// removed here. What others write afterwards stays. After an error any part may be deleted, and the caller may delete all of
    /// them again.
    ///
    /// # Errors
    /// Also of an empty list, when nothing can be deleted now.
    fn delete_metrics(&self, metrics: Vec<MetricRecord>, at: Timestamp) -> DriverFuture<'_, ()> {
        let _ = (metrics, at);
        Box::pin(ready(Err(StoreError::Rejected("this store does not delete for others".to_owned()))))
    }

    /// A deletion for all processes failed after the names were removed here: they may be in the tables. Called after an error of
    /// [`SharedPoints::delete_metrics`], and where it was not called because of another one.
    fn deletion_failed(&self) {}

    /// Another process deleted these metrics, and its row in the log of changes has this time, microseconds since 1970: what this process
    /// writes of them from now on is later than all that the deletion hides.
    fn deleted_elsewhere(&self, names: &[String], logged: i64) {
        let _ = (names, logged);
    }

    /// Waits until other processes that run know of the deletions so far, for a bounded time: a point that is sent to one of
    /// them afterwards is of a new metric.
    fn deletions_are_known(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Before points are written: waits until this process knows what others deleted until a moment ago, for a bounded time. Points of
    /// before a deletion that are written after it would come back with their name.
    fn deletions_are_followed(&self) -> DriverFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }
}

/// What is left to this writer of slots of all writers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnRows {
    /// A run for each total.
    pub runs: Vec<Run>,
    /// Metrics whose rows of other writers were corrected. These may write what they had before over it.
    pub corrected: Vec<MetricId>,
}

impl From<Vec<Run>> for OwnRows {
    fn from(runs: Vec<Run>) -> OwnRows {
        OwnRows { runs, corrected: Vec::new() }
    }
}

/// Other processes that write the same tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtherWriters {
    /// Whether there are any: the latest value of a coarse slot may be another's at any time.
    pub are_there: bool,
    /// Whether some receive the same points as this one, and keep aggregates of their own: what this process missed while it was
    /// down, they have.
    pub have_same_points: bool,
}

/// A metric as the shared tables have it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedMetric {
    /// Canonical name.
    pub name: String,
    /// The policy that holds now.
    pub policy: Policy,
    /// Since when it holds, Unix seconds; 0 for the first.
    pub since: Timestamp,
    /// Those before it, as far as the tables say.
    pub earlier: Vec<PolicyChange>,
    /// Unix seconds; `None` where the tables do not say.
    pub created_on: Option<Timestamp>,
    /// Unix seconds at which a writer last reported points; `None` where the tables do not say.
    pub updated_on: Option<Timestamp>,
}

/// The progress of a scan, for people.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScanProgress {
    /// Rows read so far.
    pub rows: u64,
    /// Share of the token ring that is read, 0 to 1.
    pub part: f64,
}

/// How fast a scan is read.
#[derive(Debug, Clone, Default)]
pub struct ScanPace {
    /// The time over which it is spread. Zero: as fast as the tables are read.
    pub over: Duration,
    /// Set while a caller waits for it: the rest is read as fast as the tables are.
    pub is_hurried: Arc<AtomicBool>,
}

impl ScanPace {
    /// How long this part, 0 to 1, waits so long after the scan began.
    pub fn wait(&self, part: f64, since: Duration) -> Duration {
        if self.is_hurried.load(Relaxed) { Duration::ZERO } else { self.over.mul_f64(part).saturating_sub(since) }
    }
}

/// Receives each batch of a scan.
pub type EachBatch<'a> = &'a mut (dyn FnMut(Vec<SharedMetric>, ScanProgress) + Send);

/// A name that a glob found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedNode {
    /// Canonical path of a metric or directory.
    pub path: String,
    /// Whether the path is a metric.
    pub is_leaf: bool,
    /// Whether the path is a directory; a path may be both.
    pub is_branch: bool,
}

/// Names that other processes write too. The tables have no ids: those are each node's own
/// ([`NameStore`](crate::NameStore)).
pub trait SharedNames: Send + Sync + 'static {
    /// Reads every metric, in any order, from many token ranges at once. The driver leaves out, and counts, a metric
    /// whose rows are incomplete (no id, no config).
    fn scan<'a>(&'a self, pace: ScanPace, each: EachBatch<'a>) -> DriverFuture<'a, ()>;

    /// Reads the metrics with exactly these names; names that the tables lack are left out.
    fn lookup(&self, names: Vec<String>) -> DriverFuture<'_, Vec<SharedMetric>>;

    /// Reports that points came for these metrics: sets `updated_on` to now. Called rarely for each.
    fn mark_updated(&self, names: Vec<String>) -> DriverFuture<'_, ()>;

    /// Reports that these metrics were read: sets `read_on` to now. Called for a sample of the reads.
    fn mark_read(&self, names: Vec<String>) -> DriverFuture<'_, ()>;

    /// The metrics and directories that a glob matches, sorted by path, each path once, by the tables' own indexes.
    ///
    /// # Errors
    /// [`Rejected`](crate::StoreError::Rejected) beyond `limit` rows; the answer is never cut short.
    fn find(&self, pattern: &str, limit: usize) -> DriverFuture<'_, Vec<SharedNode>>;
}
