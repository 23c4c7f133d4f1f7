//! From decoded points to the store: names are resolved, points journalled, held, and written out.
//!
//! ```text
//! receivers → Batch → Ingest::accept ─ names to numbers (registry)
//!                                    ├ journal: one append a batch
//!                                    └ held: one slot store a point
//!                                    │ (parked: the journal alone, while memory is full and the store takes nothing)
//!                     flush cycle ───── held → coarse stages → driver; the journal is trimmed behind it
//!                     reader ────────── stored rows, with what is held laid over them
//! ```
//!
//! A batch of some thousand points pays for every lock, system call and allocation; a point pays for a
//! name lookup and two stores. Nothing here knows queries, HTTP or which driver is below.

mod accept;
mod batch;
mod counters;
mod flush;
mod health;
mod held;
pub mod journal;
mod listing;
mod outage;
mod owns;
mod parked;
mod policies;
mod pressure;
mod reader;
pub mod receivers;
mod rejects;
mod replay;

pub use accept::{Ingest, IngestError, IngestOptions, Sync};
pub use batch::{BATCH_POINTS, Batch};
pub use counters::{CountersSnapshot, Histogram, Protocol};
pub use flush::{FlushError, FlushProgress};
pub use rejects::RejectExample;
pub use replay::Restored;
