//! Names that several programs share: what a store of many writers knows of metrics beside their points.
//!
//! A [`crate::Driver`] answers by a node's own ids. The catalogue speaks of names alone, because the
//! tables it stands for have no ids: other nodes, and other programs, write them too.

use metric::{Policy, Timestamp};

use crate::DriverFuture;

/// A metric as the shared tables have it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedMetric {
    /// Canonical name.
    pub name: String,
    /// How its points are kept now.
    pub policy: Policy,
    /// Unix seconds; `None` where the tables do not say.
    pub created_on: Option<Timestamp>,
    /// Unix seconds at which some writer last said that points come; `None` where the tables do not say.
    pub updated_on: Option<Timestamp>,
}

/// How far a scan has come, for people.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScanProgress {
    /// Rows read so far.
    pub rows: u64,
    /// Share of the token ring that is read, 0 to 1.
    pub part: f64,
}

/// What is called with each batch of a scan.
pub type EachBatch<'a> = &'a mut (dyn FnMut(Vec<SharedMetric>, ScanProgress) + Send);

/// A name that a glob found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedNode {
    /// Canonical path of a metric or directory.
    pub path: String,
    /// Whether it is a metric.
    pub is_leaf: bool,
    /// Whether it is a directory; a path may be both.
    pub is_branch: bool,
}

/// The shared tables of names.
pub trait Catalogue: Send + Sync + 'static {
    /// Reads every metric, in any order, from many token ranges at once. A metric whose rows are not whole
    /// (no id, no config) is left out and counted by the driver.
    fn scan<'a>(&'a self, each: EachBatch<'a>) -> DriverFuture<'a, ()>;

    /// The metrics with exactly these names; those that the tables do not have are left out.
    fn lookup(&self, names: Vec<String>) -> DriverFuture<'_, Vec<SharedMetric>>;

    /// Says that points came for these metrics (`updated_on` becomes now). Called rarely for each.
    fn touch(&self, names: Vec<String>) -> DriverFuture<'_, ()>;

    /// Says that these metrics were read (`read_on` becomes now). A sample of the reads.
    fn touch_read(&self, names: Vec<String>) -> DriverFuture<'_, ()>;

    /// What a glob finds, sorted by path, each path once: metrics and directories. Answered by the tables'
    /// own indexes. More than `limit` rows are an error that says so, never a cut answer.
    fn find(&self, pattern: &str, limit: usize) -> DriverFuture<'_, Vec<SharedNode>>;
}
