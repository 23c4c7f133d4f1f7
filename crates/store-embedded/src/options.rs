//! The settings of a store.

use std::{path::PathBuf, time::Duration};

use host::Host;
use store::DamageLog;

/// How many events there may be. Beyond, new ones are refused with [`StoreError::Full`](store::StoreError::Full).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimits {
    /// Events in all.
    pub events: u64,
    /// Bytes of their texts, and 24 of each.
    pub bytes: u64,
}

impl Default for EventLimits {
    fn default() -> EventLimits {
        EventLimits { events: u64::MAX, bytes: u64::MAX }
    }
}

/// Settings of the embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Bytes of memory for blocks that were read.
    pub cache_bytes: u64,
    /// Bytes of rows in memory beyond which they are written to files at once.
    pub unsynced_bytes: u64,
    /// Bytes of the disk that merges leave free: below it they wait.
    pub reserve_bytes: u64,
    /// Whether a thread merges files. Without it [`EmbeddedDriver::settle`](crate::EmbeddedDriver::settle) does, when it
    /// is called.
    pub merges: bool,
    /// Bounds of the events.
    pub events: EventLimits,
    /// How long an opening tries again to read names that the disk does not return.
    pub read_patience: Duration,
    /// Whether an opening goes on without names that cannot be read, if it can read others. Their metrics are then without a
    /// name, and get other ids. For a repair.
    pub leaves_out_unread_names: bool,
    /// Whether an opening fails while the list of the files of rows cannot be read, in place of making it again. For a repair.
    pub needs_manifest: bool,
    /// The data folder, which gets `damaged/` and `trash/`; the store's own if none is given.
    pub data: Option<PathBuf>,
    /// Time, files and random numbers.
    pub host: Host,
    /// Where damage is reported.
    pub damage: DamageLog,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            cache_bytes: 64 << 20,
            unsynced_bytes: 48 << 20,
            reserve_bytes: 0,
            merges: true,
            events: EventLimits::default(),
            read_patience: Duration::ZERO,
            leaves_out_unread_names: false,
            needs_manifest: false,
            data: None,
            host: Host::system(),
            damage: DamageLog::new(),
        }
    }
}
