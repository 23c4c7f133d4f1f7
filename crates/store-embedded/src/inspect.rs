//! The files of a store besides its rows, read without opening it.

use std::{collections::BTreeMap, path::Path};

use host::Disk;
use metric::MetricId;

use crate::{names, record_log, spec};

pub use crate::record_log::LogReport;

/// The store that a spec names.
///
/// # Errors
/// The reason in words, when the spec cannot be read.
pub fn check_spec(disk: &dyn Disk, store: &Path) -> Result<u128, String> {
    let bytes = disk.read(&store.join("spec")).map_err(|error| error.to_string())?;
    spec::store_of(&bytes).ok_or_else(|| "its checksum is wrong, or another program wrote it".to_owned())
}

/// Reads all of a file of `names/` or `events/`.
///
/// # Errors
/// The reason in words, when the file cannot be read as one of a log at all.
pub fn check_log(disk: &dyn Disk, path: &Path, what: &'static str, store: Option<u128>) -> Result<LogReport, String> {
    record_log::check_file(disk, path, what, store, |_, _| ())
}

/// The names that the log of names has for metrics, deleted ones included. What cannot be read is left out.
pub fn names_of(disk: &dyn Disk, store: &Path) -> BTreeMap<MetricId, String> {
    let id = check_spec(disk, store).ok();
    let mut known = BTreeMap::new();
    for entry in disk.read_dir(&store.join("names")).unwrap_or_default() {
        let read = record_log::check_file(disk, &entry.path, "names record", id, |kind, payload| {
            known.extend(names::name_of(kind, payload));
        });
        if let Err(how) = read {
            tracing::debug!(how, file = %entry.path.display(), "a file of names cannot be read");
        }
    }
    known
}
