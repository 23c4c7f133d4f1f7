//! The journal: every accepted point is here first, on disk, until the store has it. A write-ahead log.
//!
//! A journal is a folder of segments of records. Appending is a `write(2)`: a killed process loses nothing, a lost
//! machine at most what was appended since the last fsync.
//!
//! ```text
//! journal ┬ gate      shared by appends until their points are in memory, exclusive for a change between two records
//!         ├ writer    the current segment
//!         ├ names     of metrics and policies that the next append writes
//!         └ fsync     what is on the disk
//! ```
//!
//! Nothing here knows where points go afterwards.

mod cut;
mod fsync;
mod journal;
mod loose_segment;
mod names;
mod record;
mod segment;
mod writer;

pub use cut::without_damage;
pub(crate) use journal::{Appended, Exclusive, Journal, JournalSize, Journalled, NamesOnDisk};
pub(crate) use loose_segment::{LoosePoints, loose_segment};
pub(crate) use record::RECORD_POINTS;
pub use record::{Points, Record, RecordWriter, Records, Replayed, ResolvedPoint, records, replay};
pub(crate) use segment::{Folder, Segment};
