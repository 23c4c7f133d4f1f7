//! The journal: every accepted point is here first, on disk, until the store has it. A write-ahead log.
//!
//! A journal is a folder of segments of records. Appending is a `write(2)`: a killed process loses nothing, a lost
//! machine at most what was appended since the last fsync.
//!
//! ```text
//! journal ┬ writer     the current segment; locked from an append until its points are in memory
//!         │ └ unsynced what no fsync covers, in memory: repeated in another segment after an fsync that failed
//!         ├ names      of metrics and policies that the next append writes
//!         ├ positions  how far it is written, and how far it is on the disk
//!         └ trim       which stored segments are removed
//! newest     the number of the newest segment, next to the folder
//! plan       the parts of segments that a replay reads; their reader finds records and damage in them
//! chain      which segments the store has, and which are missing
//! cut_end    which closed segments have lost their end
//! missing    what a repair does about missing ones
//! returned   what a start does about missing ones that come back, by its notes (`missing_notes`)
//! damage     what cannot be read or attributed, kept for an operator; its notes: `missing_notes`, `cut_notes`, `unwritten_notes`
//! kept       what earlier starts kept; with the deletions and the segments since, and what is not put back
//! snapshot   what a backup has of all this
//! ```
//!
//! Nothing here knows where points go afterwards.

mod chain;
mod cut;
mod cut_end;
mod cut_notes;
mod damage;
mod header;
mod journal;
mod journalled;
mod kept;
mod kept_deletions;
mod lengths;
mod loose_segment;
mod lost_contents;
mod missing;
mod missing_notes;
mod names;
mod newer;
mod newest;
mod not_put_back;
mod plan;
mod positions;
mod reader;
mod record;
mod returned;
mod returned_ends;
mod segment;
mod segment_bytes;
mod since;
mod snapshot;
mod trim;
mod unsynced;
mod unwritten_notes;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use chain::leave_out_stored;
pub use chain::{Compared, OTHER_NEWEST, check_chain, identity_of_newest};
pub use cut::without_damage;
pub use cut_end::{CutEnd, has_lost_synced, note_lengths};
pub use cut_notes::note_cut;
pub(crate) use damage::JournalDamage;
pub use header::{Repeats, SegmentHeader};
pub(crate) use journal::{Appended, Exclusive, Journal, JournalOptions, JournalSize, NamesOnDisk};
pub(crate) use journalled::{Accepted, Journalled};
pub(crate) use kept::LATE_FILE;
pub use kept::kept_losses;
pub(crate) use kept_deletions::{Deleted, KeptDeletions};
pub use kept_deletions::{LIST, repaired_list};
pub(crate) use loose_segment::{LoosePoints, loose_segment};
pub use missing::note_missing;
pub use missing_notes::{missing_segments, name_of_missing, note_of_gone, noted_segments, notes_of_missing};
pub use newer::newer_segment;
pub(crate) use newest::NewestFile;
pub use newest::{Newest, is_newest, newer_newest};
pub(crate) use not_put_back::NotPutBack;
pub(crate) use plan::{PlanError, Planned};
pub(crate) use reader::header_of;
pub use reader::{Records, Replayed, records, replay};
pub(crate) use record::{LEAST_NAME_BYTES, RECORD_POINTS};
pub use record::{Points, Record, RecordWriter, ResolvedPoint};
pub(crate) use segment::{Folder, Segment};
pub use segment_bytes::read_contents;
pub(crate) use segment_bytes::{SegmentBytes, is_damage, may_pass};
pub use snapshot::{StagedJournal, copy_what_can_be};
pub(crate) use writer::WriterIdentity;
