//! The embedded driver: BigGraphite's logical tables in a folder of this machine. `schema/embedded.md` draws
//! every key and value to the byte.
//!
//! ```text
//! store/lock                                    held by the process that uses the folder
//! store/spec                                    what wrote the folder, in words
//! store/metrics/                                the metrics table, and the policies it names
//! store/events/                                 the events table
//! store/datapoints_10080p_60s_0/13/             one tree for each table and span of time
//! ```
//!
//! The trees come from an LSM library, without a log: the journal above replays what was not synced.
//! Nothing outside of this crate knows the bytes on the disk.

mod compaction;
mod driver;
mod events;
mod folder;
mod metrics;
mod options;
mod rows;
mod tables;
mod tasks;
mod tree;

pub use driver::EmbeddedDriver;
pub use options::EmbeddedOptions;
