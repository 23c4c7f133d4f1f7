//! Points: a table for each stage of each retention, and the rows that cross into it.

use metric::{Aggregation, Methods, MetricId, Slot, Table, Timestamp};

use crate::DriverFuture;

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
    /// The table to write to.
    pub table: Table,
    /// Slot of `values[0]`.
    pub first_slot: Slot,
    /// Points in a stage-0 table; [`metric::Partial`] values in an aggregated one. NaN is absent.
    pub values: Vec<f64>,
    /// Partial counts, as many as values, in an aggregated table; empty in a stage-0 table.
    pub counts: Vec<u32>,
    /// The metric's aggregation method, which says what the values of an aggregated table mean.
    pub aggregation: Aggregation,
}

/// Slots of one metric in one table, to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// The metric's id in this node's registry.
    pub metric: MetricId,
    /// The metric's canonical name.
    pub name: String,
    /// The table to read.
    pub table: Table,
    /// First slot.
    pub first_slot: Slot,
    /// The slot after the last; `first_slot <= end_slot`.
    pub end_slot: Slot,
    /// Merges the rows that several writers left for one slot.
    pub aggregation: Aggregation,
}

/// The stored slots of a [`Fetch`], dense from its first slot to its last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cells {
    /// One value a slot, NaN where none is stored. Empty when the store has no slot of the whole fetch,
    /// so that a miss allocates nothing.
    pub values: Vec<f64>,
    /// A partial count for each value in an aggregated table; empty in a stage-0 table and on a miss.
    pub counts: Vec<u32>,
    /// Whether stored slots of the fetch could not be read because their bytes are damaged. They are NaN here. The driver
    /// has reported the damage. Nothing may be derived from such cells and stored in place of what is stored.
    pub is_damaged: bool,
    /// Whether a read failed, and may work later: the bytes are not known to be wrong. `is_damaged` is true as well.
    pub is_unreadable: bool,
    /// Whether a file with slots of the fetch is missing, and may be put back before a later start: reading again before does not
    /// help. `is_unreadable` is true as well, unless the file counts as lost: points need not wait for it then.
    pub is_away: bool,
    /// Set by readers of a metric with several policies: methods other than that of the fetch whose values are among these, or in
    /// them. Drivers leave it empty.
    pub earlier: Methods,
    /// The places of the slots that `earlier` is about, with the methods of each, in no order; a place may be there several times.
    pub earlier_at: Vec<(u32, Methods)>,
    /// Set by readers of a metric with several policies, of coarse slots by `last`: the places of slots, and when the last finer
    /// slot of it begins that any policy has stored. Unix seconds. Drivers leave it empty.
    pub latest_at: Vec<(u32, Timestamp)>,
}

impl Cells {
    /// Notes that the value at this place is one of another method, or has it in it.
    pub fn note_earlier(&mut self, place: usize, method: Aggregation) {
        self.earlier.add(method);
        let place = place as u32;
        match self.earlier_at.last_mut().filter(|(last, _)| *last == place) {
            Some((_, methods)) => _ = methods.add(method),
            None => self.earlier_at.push((place, Methods::one(method))),
        }
    }
}

/// The size of a store, for metrics and for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk (embedded) or zero where the driver cannot know.
    pub disk_bytes: u64,
    /// Bytes of memory held for writes that are not on disk yet.
    pub memory_bytes: u64,
    /// Datapoints tables that exist.
    pub tables: u64,
}

/// Keeps points. Every driver passes [`crate::conformance::points_suite`].
///
/// Calls are batches: thousands of points pay for one virtual call. No call blocks the thread that polls its
/// future for longer than a disk seek.
pub trait PointStore: Send + Sync + 'static {
    /// Writes runs. After `Ok`, `fetch` returns them; the next `sync` makes them durable. After an error any part
    /// of them may be written, and the caller writes all of them again.
    fn write(&self, runs: Vec<Run>) -> DriverFuture<'_, ()>;

    /// Reads, concurrently where that helps; the answers are in the order of the fetches. Dropping the
    /// future stops the work.
    fn fetch(&self, fetches: Vec<Fetch>) -> DriverFuture<'_, Vec<Cells>>;

    /// Makes every earlier `write` durable. The caller trims its journal afterwards.
    fn sync(&self) -> DriverFuture<'_, ()>;

    /// Frees points older than their stage keeps at `now` (Unix seconds). Expired rows may stay readable for a
    /// while: readers clip to the retention.
    fn expire(&self, now: Timestamp) -> DriverFuture<'_, ()>;

    /// Slots of each stage that stay readable at least behind those that the stage keeps. 0 promises nothing.
    fn slots_kept_longer(&self) -> u32 {
        0
    }

    /// A time behind which no stored slot begins, Unix seconds; `None` where that is not known.
    fn newest_slot(&self) -> Option<Timestamp> {
        None
    }

    /// Whether the start found rows that its own list of rows did not have: of a flush that was ended by a kill, or because an
    /// earlier list was put back.
    fn has_newer_rows(&self) -> bool {
        false
    }

    /// The size of the store.
    fn usage(&self) -> Usage;
}
