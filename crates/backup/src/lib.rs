//! Backups of a data folder, and what can be said of one without starting it: verified, restored, repaired.
//!
//! A backup is a folder `backup-000001` with the files of the data folder at one moment and `backup.json`, which names
//! each with its length and SHA-256. It is complete exactly if it has that file and this name: the file is written last, into a
//! folder with another name. The next backup into the same folder links the files of rows that the one before has.

mod draft;
mod error;
mod files;
mod folder_lock;
mod pace;
mod read_once;

mod may_start;

mod node;

mod make;
mod manifest;

mod restore;
mod verify;

mod misnamed;
mod repair;
mod same_names;
mod scrub;
mod segments;

pub use error::{BackupError, with_next_step};
pub use make::Made;
pub use manifest::{BackupFile, Manifest, find};
pub use may_start::{may_start, newest_backup};
pub use node::{Node, remove_stage};
pub use repair::{Repaired, repair};
pub use restore::{Restored, restore};
pub use same_names::how as how_same_names;
pub use scrub::{FileScrub, Piece};
pub use store_embedded::DamagedPart;
pub use verify::{
    Checked, EARLIER_SPEC, EXCHANGED_SEGMENT, FOREIGN_SEGMENT, KnownLoss, Report, UNLIKE, costs, lock, lock_to_read,
    verify, verify_backup,
};
