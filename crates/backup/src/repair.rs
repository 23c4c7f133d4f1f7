//! A data folder that is not in use, written again without what is damaged in it.
//!
//! The folder is locked from the beginning to the end.
//!
//! 1. Everything is read, as by verifying: what cannot be read is not kept.
//! 2. Damaged bytes of the journal are cut out. A damaged clock and damaged saved names go to `damaged/`.
//! 3. The store is repaired, and everything is read again.
//!
//! All damaged bytes are in `damaged/` afterwards.

use std::{collections::BTreeMap, path::Path};

use host::{DamagedFolder, Host};
use metric::MetricId;
use store_embedded::EmbeddedOptions;

use crate::{
    error::BackupError,
    verify::{Report, SEGMENT, STALE_SEGMENT, lock, verify},
};

/// What a repair has found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// What could not be read before.
    pub before: Report,
    /// The same afterwards. `None` if nothing was to be repaired, or only a report was asked for.
    pub after: Option<Report>,
    /// The names that the log of names has.
    pub names: BTreeMap<MetricId, String>,
}

/// Repairs a data folder, or with `dry_run` only says what would not be kept.
///
/// # Errors
/// Another process uses the folder, the disk fails, or part of the folder is of a later program.
pub fn repair(host: &Host, data: &Path, dry_run: bool) -> Result<Repaired, BackupError> {
    let disk = &*host.disk;
    let store = data.join("store");
    let in_use = lock(disk, data)?;
    let before = verify(disk, data)?;
    let is_named = before.faults().any(|(_, fault)| fault.metrics.is_some());
    let names = if is_named { store_embedded::names_of(disk, &store) } else { BTreeMap::new() };
    if dry_run || before.is_good() {
        return Ok(Repaired { before, after: None, names });
    }
    let damaged = DamagedFolder::new(host, data);
    for file in before.files.iter().filter(|file| !file.faults.is_empty()) {
        let path = data.join(&file.path);
        let text = file.path.to_string_lossy();
        let done = match &*text {
            "clock" | "names" => damaged.move_in(&path, "it is damaged; put aside by a repair").map(drop),
            _ if file.faults.iter().any(|fault| fault.what == STALE_SEGMENT) => {
                damaged.move_in(&path, "the store has its points already; put aside by a repair").map(drop)
            }
            // The rest of the journal is as good as before.
            _ if file.faults.iter().any(|fault| fault.what == SEGMENT) => Ok(()),
            _ if text.starts_with("journal/") => cut(host, &damaged, &path),
            _ => Ok(()),
        };
        done.map_err(BackupError::io("repairing", &path))?;
    }
    let options = EmbeddedOptions { data: Some(data.to_owned()), host: host.clone(), ..EmbeddedOptions::default() };
    store_embedded::repair(&store, &options, &*in_use).map_err(|error| BackupError::Folder(error.to_string()))?;
    let mut after = verify(disk, data)?;
    // They are gone, as `before` says, and the next start says it once more.
    after.files.iter_mut().for_each(|file| file.faults.retain(|fault| fault.what != SEGMENT));
    Ok(Repaired { before, after: Some(after), names })
}

/// Cuts the damaged bytes out of a segment of the journal, and keeps them.
fn cut(host: &Host, damaged: &DamagedFolder, path: &Path) -> std::io::Result<()> {
    let bytes = host.disk.read(path)?;
    let (kept, cut) = ingest::wal::without_damage(&bytes);
    for part in cut {
        damaged.keep_bytes(
            path,
            part.start as u64,
            &bytes[part],
            "not a record of the journal; cut out by a repair",
        )?;
    }
    host::replace_file(&*host.disk, path, &kept)
}
