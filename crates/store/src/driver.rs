//! The trait every driver implements, and the rows that cross it.

use std::{future::Future, pin::Pin};

use metric::{Aggregation, MetricId, Policy, Slot, Table, Timestamp};

/// What a driver's asynchronous calls return.
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Consecutive slots of one metric in one table, to be written.
///
/// A slot whose value is NaN is left as it is stored. Writing the same run twice is the same as writing
/// it once; the last write of a slot wins.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The metric's id in this node's registry: the embedded store's key.
    pub metric: MetricId,
    /// The metric's canonical name, from which Cassandra's key is made.
    pub name: String,
    /// Where it goes.
    pub table: Table,
    /// Slot of `values[0]`.
    pub first_slot: Slot,
    /// Points in a stage-0 table; [`metric::Partial`] values in an aggregated one. NaN is absent.
    pub values: Vec<f64>,
    /// Partial counts, as many as values, in an aggregated table; empty in a stage-0 table.
    pub counts: Vec<u32>,
    /// How the metric's points are aggregated: what the values of an aggregated table are.
    pub aggregation: Aggregation,
}

/// Which slots of one metric in one table to read.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// The metric's id in this node's registry.
    pub metric: MetricId,
    /// The metric's canonical name.
    pub name: String,
    /// Where to read.
    pub table: Table,
    /// First slot.
    pub first_slot: Slot,
    /// The slot after the last; `first_slot <= end_slot`.
    pub end_slot: Slot,
    /// How rows that several writers left for one slot are merged.
    pub aggregation: Aggregation,
}

/// What is stored in the slots of a [`Fetch`], dense from its first slot to its last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cells {
    /// One value a slot, NaN where nothing is stored. Empty when no slot of the whole fetch is stored,
    /// so that a miss allocates nothing.
    pub values: Vec<f64>,
    /// Partial counts beside the values in an aggregated table; empty in a stage-0 table and on a miss.
    pub counts: Vec<u32>,
}

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
    /// Every policy it was kept by, oldest first; never empty. The last one holds now.
    pub policies: Vec<PolicyChange>,
}

/// What a driver keeps, for metrics and for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk (embedded) or zero where the driver cannot know.
    pub disk_bytes: u64,
    /// Bytes of memory held for writes that are not on disk yet.
    pub memory_bytes: u64,
    /// Datapoints tables that exist.
    pub tables: u64,
}

/// Why a driver could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the network failed. Trying again may help.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and to what.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is stored contradicts itself; trying again does not help.
    #[error("{what} is damaged: {how}")]
    Damaged {
        /// Which table, row or file.
        what: String,
        /// What was found and what was expected.
        how: String,
    },
    /// The store was written by a program that keeps it in another way.
    #[error("the store says {found}, this program expects {expected}")]
    Spec {
        /// What the spec table holds.
        found: String,
        /// What it should hold.
        expected: String,
    },
    /// What is asked cannot be answered within the caller's bounds, or at all; asking it again does not help. For the
    /// user who asked.
    #[error("{0}")]
    Refused(String),
    /// The store is not there, or not yet.
    #[error("{0}")]
    Unavailable(String),
}

/// What holds the tables. Every driver passes [`crate::conformance`].
///
/// Calls are batches, so that one virtual call is paid for thousands of points. None of them may block
/// the thread that polls its future for longer than a disk seek.
pub trait Driver: Send + Sync + 'static {
    /// Writes runs. On `Ok` they are readable by `fetch`; they are durable after the next `sync`. On an
    /// error any part of them may be written, and the caller writes all of them again.
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()>;

    /// Takes what slots of aggregated tables come to in all (derived from every stored point, whoever wrote
    /// it, and from what is held), and returns what this writer's rows must say, so that the rows of all
    /// writers together come to that; the caller writes it next. One run for each, in their order, with the
    /// same slots. Where another writer's rows say what is no longer so (an extreme that was overwritten),
    /// they are corrected on the way.
    ///
    /// A store with one writer has no other rows and returns the runs as they are.
    fn own_part(&self, wholes: Vec<Run>) -> DriverFuture<'_, Vec<Run>>;

    /// Whether this process alone writes these tables. Then nothing is stored where it has stored nothing, and
    /// readers need not ask; where others write too, they must.
    fn is_alone(&self) -> bool {
        false
    }

    /// Reads, concurrently where that helps; the answers are in the order of the fetches. Dropping the
    /// future stops the work.
    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>>;

    /// Makes every earlier `write` and `put_metrics` durable. The journal is trimmed behind this.
    fn sync(&self) -> DriverFuture<'_, ()>;

    /// Frees what no stage keeps any more at `now` (Unix seconds). Rows may stay readable for a while
    /// after they expire: readers clip to the retention.
    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()>;

    /// Writes rows of the metrics table, replacing those with the same id.
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()>;

    /// Reads the whole metrics table, in any order, in batches as they come from the disk or the network.
    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()>;

    /// What is kept.
    fn usage(&self) -> Usage;
}
