//! Progress and errors of a flush, for its caller.

use std::{io, time::Duration};

/// How far everything is written out, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlushProgress {
    /// Metrics of the current flush cycle; zero between two.
    pub metrics: u64,
    /// How many of those are written out.
    pub metrics_done: u64,
    /// Slots of points in memory, those of flush jobs included.
    pub held_slots: u64,
    /// Points that are in the journal alone and have to be read back first.
    pub parked_points: u64,
    /// Points that the store has taken and that may not be on its disk. The journal has them.
    pub unsynced_points: u64,
    /// Whether the store takes no points at present, or does not get them to its disk.
    pub store_failing: bool,
    /// Callers that wait for a flush.
    pub waiting: u32,
}

/// Why not everything was written out. Nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The store takes nothing.
    #[error(
        "{why}{} {held_points} points are in memory and {parked_points} are in the journal alone{}; all are safe in the journal \
         and are written when the store accepts them", end_of(why), taken(*unsynced_points)
    )]
    Store {
        /// Message of the store, or of the connection to it.
        why: String,
        /// Slots of points in memory.
        held_points: u64,
        /// Points that cannot be read before the store has taken others.
        parked_points: u64,
        /// Points that the store has taken and that may not be on its disk.
        unsynced_points: u64,
    },
    /// The journal cannot begin a segment, or delete one.
    #[error("cannot use the journal: {0}")]
    Journal(io::Error),
    /// The journal's disk puts nothing away.
    #[error(
        "the disk of the journal has put nothing away for {} s; accepted points are in the journal, but those since its \
         last fsync are lost if the machine stops before its disk has written them",
        patience.as_secs()
    )]
    JournalStuck {
        /// How long the disk was waited for.
        patience: Duration,
    },
}

/// What stands behind a reason. One of several lines ends with a statement that is to be copied.
fn end_of(why: &str) -> &'static str {
    if why.contains('\n') { "\n" } else { ";" }
}

fn taken(unsynced: u64) -> String {
    match unsynced {
        0 => String::new(),
        points => format!(", and {points} that the store has taken are perhaps not on its disk"),
    }
}
