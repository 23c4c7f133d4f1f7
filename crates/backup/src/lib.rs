//! Backups of a data folder, and what can be said of one without starting it: verified, restored, repaired.
//!
//! A backup is a folder `backup-000001` with the files of the data folder at one moment and `backup.json`, which names
//! each with its length and SHA-256. It is complete exactly if that file is there: it is written last, into a folder with
//! another name. The next backup into the same folder links the files of rows that the one before has.

mod error;
mod files;

mod newer;

mod make;
mod manifest;

mod restore;
mod verify;

mod repair;
mod scrub;

pub use error::BackupError;
pub use make::{Made, make};
pub use manifest::{BackupFile, Manifest, find};
pub use newer::refuse_newer;
pub use repair::{Repaired, repair};
pub use restore::{RESTORING, Restored, restore};
pub use scrub::{Scrubbed, scrub_file};
pub use verify::{Checked, Fault, Report, lock, verify, verify_backup};
