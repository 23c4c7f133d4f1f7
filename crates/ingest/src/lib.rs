//! From decoded points to the store: names are resolved, points journalled, stored in memory, and written out.
//!
//! Owners, each with its state and its lock; an arrow goes to the owners that one hands points to.
//!
//! ```text
//! receivers ──► accept ──┬──► wal        one append a batch
//!               batch    ├──► memtable   one slot store a point
//!               resolve  └──► spill      the journal alone, while memory is full and the store takes nothing
//!
//!              memtable ──► flush ──► driver      jobs, coarse stages, rows; the journal is trimmed behind them
//!       wal ──► read back ──► memtable            spilled points, when there is room again
//!       wal ──► recovery ──► memtable             at the start
//!       damaged/ ──► put back ──► wal, memtable   segments that could not be read then
//!              memtable, driver ──► read          stored rows, with the points in memory laid over them
//! ```
//!
//! A batch of some thousand points pays for every lock, system call and allocation; a point pays for a
//! name lookup and two stores. Nothing here knows queries, HTTP or which driver is below.
//!
//! The modules are in the order in which a point meets them.

pub mod receivers;

mod accept;
mod active_rules;
mod registration;

pub mod wal;

mod back_pressure;
mod coming_rows;
mod memtable;
mod mirrored_rows;
mod older_cells;
mod older_fill;
mod policy_table;
mod shared_rows;
mod spill;
mod spilled_deletions;
mod wait_time;

mod deleted_ids;
mod journal_ids;
mod known_changes;
mod lost_policies;
mod replay_progress;

mod deletion;
mod flush;
mod followed_policies;
mod owed_records;
mod policy_changes;
mod read_patience;
mod recovered;
mod recovery;
mod replay;
mod seen_times;

mod heads;
mod read;

mod put_back;

mod backoff;
mod call_health;
mod counters;
mod long_work;
mod no_panic;
mod outage_log;
mod protocol;
mod stats;
mod store_health;
mod supervisor;

mod idle;
mod ingest;
mod opening;
mod options;

pub use accept::{
    Acceptor, BATCH_POINTS, Batch, BranchUse, ListenerGate, NameLimits, PrefixLimit, PrefixRule, RejectExample,
    Restrictions, Sync, Tally, TokenGate, TokenHash,
};
pub use counters::Histogram;
pub use deletion::DeletionError;
pub use flush::{FlushError, FlushProgress};
pub use followed_policies::is_kept_otherwise;
pub use heads::{AskedHeads, Head, HeadRequest, HeadRun, HeadSource, PeerHeads, STORE, TooManyPoints};
pub use idle::{IdleMetrics, Pass};
pub use ingest::Ingest;
pub use options::{IngestError, IngestOptions};
pub use protocol::Protocol;
pub use recovered::Restored;
pub use registration::Turn;
pub use stats::{Counter, CounterValue, CountersSnapshot};
pub use store_health::StoreHealth;
pub use supervisor::{Supervisor, TaskHealth};
