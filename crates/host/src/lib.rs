//! What the program needs of the machine: the time, files and random numbers.
//!
//! One [`Host`] is made in `main` and handed down to everything that needs it. Tests hand down one whose clock they
//! move ([`ManualClock`]), whose file system fails where they say ([`FailingDisk`]) or is in memory and knows what a power
//! cut leaves ([`SimulatedDisk`]), and whose random numbers come from a seed ([`SeededRandom`]). No other crate calls `SystemTime::now`, `Instant::now` or `std::fs`; a test of the
//! workspace holds that true.

mod backoff;
mod blocking;
mod clock;
mod damaged_folder;
mod descriptors;
mod disk;
mod excerpt;
mod failing;
mod held_folders;
mod judging;
mod link;
mod minute_log;
mod noted_syncs;
mod private;
mod random;
mod retried;
mod sealed_text;
mod simulated;
mod trash;
mod utc;

use std::sync::Arc;

pub use backoff::Backoff;
pub use blocking::{InPlace, is_in_place, spawn_blocking};
pub use clock::{Clock, ManualClock, SystemClock};
pub use damaged_folder::DamagedFolder;
pub use descriptors::{open_files_limit, raise_open_files};
pub use disk::{DirEntry, Disk, DiskFile, Open, SettledSyncs, SystemDisk, read_whole, replace_file, replace_file_with};
pub use excerpt::Excerpt;
pub use failing::{Call, FailingDisk};
pub use held_folders::HeldFolders;
pub use judging::{Absence, Candidate, ClockDoubt, JudgingTime, Now, SteadyClock, TOLERANCE, is_mark, newer_mark};
pub use link::{NotLinked, is_link_refused, link_or_copy};
pub use minute_log::MinuteLog;
pub use noted_syncs::{NOTE as NOTE_OF_SYNCS, NotedFiles, NotedSyncs};
pub use private::make_new_files_private;
pub use random::{Random, SeededRandom, SystemRandom};
pub use retried::{read_checked, read_file_checked, retried};
pub use sealed_text::{seal_lines, sealed_lines};
pub use simulated::{Fault, FaultPlan, SimulatedDisk};
pub use trash::{Trash, TrashEntry};
pub use utc::utc;

/// Time, files and random numbers. A clone shares them.
#[derive(Debug, Clone)]
pub struct Host {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
}

impl Host {
    /// The machine itself.
    pub fn system() -> Host {
        Host { clock: Arc::new(SystemClock), disk: Arc::new(SystemDisk), random: Arc::new(SystemRandom) }
    }
}

impl Default for Host {
    fn default() -> Host {
        Host::system()
    }
}
