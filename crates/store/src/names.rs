//! The metrics table of one node: which id has which name and policies.

use metric::{MetricId, Policy, Timestamp};

use crate::{DriverFuture, Identity, StoreError};

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

/// A state of a metrics table. Any write changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesMark {
    /// Which store, as in [`Identity`].
    pub store: u128,
    /// Its newest opening, as in [`Incarnation`](crate::Incarnation); 0 before the first.
    pub opening: u64,
    /// Where the table ends: the number of its last file, and that file's bytes.
    pub end: (u64, u64),
}

/// A policy whose record in a metrics table is lost: the table knows only which metrics had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPolicy {
    /// The number that the table gave it.
    pub number: u16,
    /// The metrics that had it, and since when, as in [`PolicyChange`]. The default policy stands for it in their records.
    pub metrics: Vec<(MetricId, Timestamp)>,
}

/// How much of the journal a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalMark {
    /// Segments below this number were removed when the mark was made.
    pub removed_below: u64,
    /// Every point and name of the segments below this number is stored.
    pub stored_below: u64,
    /// The newest segment that existed; it is not below `stored_below`.
    pub newest: u64,
    /// The number of the opening of the store that wrote the newest segment and made the mark; 0 where it is not known. The
    /// store fills it in.
    pub opening: u64,
}

/// Keeps the metrics table of one node. Every driver passes [`crate::conformance::names_suite`].
pub trait NameStore: Send + Sync + 'static {
    /// Which store this is, and its openings so far. The chain is empty before the first [`NameStore::begin`] of a new
    /// store.
    fn identity(&self) -> Identity;

    /// Records a new opening, and returns the identity with it. Called once, after the journal was replayed and before
    /// anything is written under the new opening. A disk that takes nothing now, as a full one, is not an error: reads need no
    /// opening, and [`NameStore::put_opening`] comes before every write.
    ///
    /// Its `first_id` is the larger of the caller's and [`NameStore::next_id`]; the caller gives out no id below it from
    /// now on.
    fn begin(&self, first_id: MetricId) -> DriverFuture<'_, Identity>;

    /// Puts the opening on the disk, if it is not there: before what refers to it, such as a segment of the journal. Blocks.
    fn put_opening(&self) -> Result<(), StoreError>;

    /// An id above every id that this store has seen: in names (deleted ones too), in rows and in openings.
    fn next_id(&self) -> MetricId;

    /// Which state the table is in: a copy of the names may stand for the table as long as this is what it was at the copy.
    /// `None` while writes wait for a sync, where the table has damage, and where a store does not tell.
    fn names_mark(&self) -> Option<NamesMark> {
        None
    }

    /// The policies whose records the table has lost, of metrics that it has.
    fn lost_policies(&self) -> Vec<LostPolicy> {
        Vec::new()
    }

    /// Says what a lost policy was, so that it is in the records of its metrics. The next
    /// [`NameStore::sync_metrics`] or [`NameStore::begin`] makes it durable. `how` says how that is known, in words for the report of the damage.
    fn set_lost_policy(&self, _number: u16, _policy: &Policy, _how: &str) {}

    /// Deletes the rows with these ids. A deleted id stays deleted: a later `put_metrics` of it has no effect, and its
    /// points are freed in time. The next `sync_metrics` makes this durable. Ids without a row count as seen, too.
    fn delete_metrics(&self, ids: Vec<MetricId>) -> DriverFuture<'_, ()>;

    /// Whether [`NameStore::delete_metrics`] had this id. False where a store does not tell.
    fn is_deleted(&self, _id: MetricId) -> bool {
        false
    }

    /// Waits, for a bounded time, until names may be written that were given before this process started: where others share the
    /// names, these may have deleted some meanwhile.
    fn names_are_current(&self) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Writes rows, each in place of the row with the same id. The next `sync_metrics` makes them durable. After an error any
    /// part of them may be written, and the caller writes all of them again.
    fn put_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()>;

    /// As [`NameStore::put_metrics`], of metrics that are in the table and have another policy now. Where others share the names,
    /// it makes none again that is gone from there: others have deleted it, which this process has yet to follow.
    fn put_changed_metrics(&self, records: Vec<MetricRecord>) -> DriverFuture<'_, ()> {
        self.put_metrics(records)
    }

    /// Reads the whole table, in any order, in batches as they come from the disk.
    fn scan_metrics<'a>(&'a self, each: &'a mut (dyn FnMut(Vec<MetricRecord>) + Send)) -> DriverFuture<'a, ()>;

    /// Makes every earlier `put_metrics` and `delete_metrics` durable. The caller trims its journal afterwards.
    fn sync_metrics(&self) -> DriverFuture<'_, ()>;

    /// How much of the journal is stored; `None` where that is not known.
    fn journal_mark(&self) -> Option<JournalMark> {
        None
    }

    /// Records durably how much of the journal is stored, after names and points were synced and before the journal is
    /// trimmed. Stores that keep nothing ignore it.
    fn set_journal_mark(&self, _mark: JournalMark) -> DriverFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
