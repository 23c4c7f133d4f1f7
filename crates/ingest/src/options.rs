//! Settings of the pipeline, and why it cannot begin.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use host::{Host, JudgingTime};
use store::{DamageLog, StoreError};

use crate::accept::{NameLimits, Sync};

/// Settings of the pipeline.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Clock, and disk of the journal.
    pub host: Host,
    /// The time by which points are judged; without one, it is the clock's as of the start.
    pub time: Option<Arc<JudgingTime>>,
    /// Folder of the journal.
    pub journal_dir: PathBuf,
    /// When it is synced.
    pub sync: Sync,
    /// Bytes of journal at which receivers wait; at half of it everything is written out early.
    pub journal_limit_bytes: u64,
    /// Bytes of points in memory at which receivers wait; at half of it everything is written out early.
    pub memory_limit_bytes: u64,
    /// How long points wait in memory at most. Longer means fuller rows and less work; it also means a
    /// larger journal and a longer replay.
    pub flush_after: Duration,
    /// Limits on metrics.
    pub name_limits: NameLimits,
    /// Where damage of the journal is reported.
    pub damage: DamageLog,
    /// The data folder, in whose `damaged/` bytes of the journal are kept that cannot be used; without one, the journal's
    /// folder.
    pub data_dir: Option<PathBuf>,
    /// How long a start reads a segment of the journal again whose disk does not return all of it. After that, it goes on
    /// without these pages.
    pub read_patience: Duration,
}

impl Default for IngestOptions {
    fn default() -> IngestOptions {
        IngestOptions {
            host: Host::system(),
            time: None,
            journal_dir: PathBuf::from("data/journal"),
            sync: Sync::Every(Duration::from_secs(1)),
            journal_limit_bytes: 4 << 30,
            memory_limit_bytes: 1 << 30,
            flush_after: Duration::from_secs(3600),
            name_limits: NameLimits::default(),
            damage: DamageLog::new(),
            data_dir: None,
            read_patience: Duration::ZERO,
        }
    }
}

/// Why ingestion could not begin.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The journal's folder.
    #[error("cannot use the journal in {dir}: {source}")]
    Journal {
        /// The folder.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The journal has a segment of a later version of the format.
    #[error(
        "the journal segment {file} has version {version} of its format, and this program reads versions 1 and 2; \
         nothing was changed; start the later version of the program that wrote it"
    )]
    NewerJournal {
        /// The segment.
        file: PathBuf,
        /// Its version.
        version: String,
    },
    /// The disk does not return a segment of the journal.
    #[error(
        "cannot read the journal segment {file}: {source}; without it, points that were accepted would be lost, or come under \
         other names, so the journal was left as it is; start again when the disk can be read, or move the file away to start without its \
         points"
    )]
    UnreadableJournal {
        /// The segment.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The journal was written with another store.
    #[error(
        "the journal in {dir} belongs to the store {theirs:032x}, and the store next to it is {ours:032x}; replaying it \
         could give points to other metrics, so the journal was left as it is; put the store and the journal of one data folder \
         together, or move the journal's folder away to start without its points"
    )]
    OtherStore {
        /// The folder of the journal.
        dir: PathBuf,
        /// The store of the journal.
        theirs: u128,
        /// The store next to it.
        ours: u128,
    },
    /// The driver.
    #[error(transparent)]
    Store(#[from] StoreError),
}
