//! The embedded driver: BigGraphite's logical tables in a folder of this machine. `schema/embedded.md` draws
//! every key and value to the byte.
//!
//! ```text
//! store/lock                                    held by the process that uses the folder
//! store/spec                                    which program wrote the folder, and which store it is
//! store/manifest                                the files of rows that there are
//! store/names/00000001.log                      the metrics table, and the policies it names
//! store/events/00000001.log                     the events table
//! store/datapoints_10080p_60s_0/13/3-9.rows     files of rows for each table and span of time
//! ```
//!
//! Rows and names wait in memory until a sync: the journal above replays what was not synced.
//! Nothing outside of this crate knows the bytes on the disk.
//!
//! ```
//! use metric::{MetricId, Policy};
//! use store::{MetricRecord, NameStore, PolicyChange};
//! use store_embedded::{EmbeddedDriver, EmbeddedOptions};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let folder = tempfile::tempdir().expect("a folder");
//! let driver = EmbeddedDriver::open(folder.path(), EmbeddedOptions::default())?;
//! let policies = vec![PolicyChange { since: 0, policy: Policy::default() }];
//! let record = MetricRecord { id: MetricId(0), name: "a.b".to_owned(), created_on: 1_700_000_000, policies };
//! driver.put_metrics(vec![record]).await?;
//! driver.sync_metrics().await?;
//! # Ok::<(), store::StoreError>(())
//! # }).unwrap();
//! ```

mod driver;
mod options;
mod patience;

mod status;

mod compaction;
mod merge;
mod merges;
mod tables;
mod tasks;

mod points;

mod commits;
mod manifest;
mod opening;

mod buffer;
mod window;

mod lost;
mod window_key;

mod row_file;

mod cache;
mod row_key;
mod rows;

mod damage;
mod events;
mod folder;
mod id_set;
mod layout1;
mod names;
mod owner;
mod record_log;
mod spec;
mod survey;
mod timeline;

mod give_up;
mod inspect;
mod newer;
mod repair;

#[cfg(test)]
mod rehearsal;

pub use driver::{EmbeddedDriver, Snapshot};
pub use events::EventUsage;
pub use folder::{FolderLock, open as lock, open_to_read as lock_to_read, settle_syncs};
pub use give_up::give_up_missing;
pub use id_set::IdSet;
pub use inspect::{
    LogReport, LostRows, check_log, check_spec, cut_logs, has_noted_losses, identity_at_start, identity_of,
    is_layout_1, log_file, lost_deletions, lost_names, lost_policies, lost_rows, missing_logs, missing_rows, names_of,
    of_other_timeline, remade_manifest, same_names, unlisted_rows, without_name,
};
pub use newer::{NewerFile, newer_file};
pub use options::{EmbeddedOptions, EventLimits};
pub use record_log::{CopiedLog, ONE_BIT};
pub use repair::{UnreadRows, repair};
pub use row_file::{DamagedPart, FileCheck, FileReport, check_file};
pub use status::{StoreStatus, StoredFile, read_journal_mark, read_manifest, store_of_manifest};
pub use survey::other_store;
