//! The settings of a store.

use std::sync::Arc;

use host::{Disk, SystemDisk};
use store::DamageLog;

/// Settings of the embedded store.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Bytes of memory for blocks that were read.
    pub cache_bytes: u64,
    /// Bytes of rows in memory beyond which they are written to files at once.
    pub unsynced_bytes: u64,
    /// The file system of the folder; the trees themselves go around it (see `tree.rs`).
    pub disk: Arc<dyn Disk>,
    /// Where damage in the folder is reported.
    pub damage: DamageLog,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            cache_bytes: 64 << 20,
            unsynced_bytes: 48 << 20,
            disk: Arc::new(SystemDisk),
            damage: DamageLog::new(),
        }
    }
}
