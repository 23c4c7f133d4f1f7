//! Locks of folders: one restore at a time writes to a data folder, and one backup at a time to a folder of backups.

use std::path::Path;

use host::{Disk, DiskFile, Open};

use crate::error::BackupError;

/// Held until it is dropped. `None` where the system cannot lock folders.
pub(crate) type Lock = Option<Box<dyn DiskFile>>;

/// # Errors
/// Another restore has the folder.
pub(crate) fn of_restore(disk: &dyn Disk, path: &Path) -> Result<Lock, BackupError> {
    lock(disk, path).map_err(|Held| {
        BackupError::Folder(format!(
            "another restore writes to {}; wait until it has ended, or restore to another folder",
            path.display()
        ))
    })
}

/// # Errors
/// A backup, perhaps of another server, is being made there: it would be taken for what an interrupted one left, and both
/// would have the same number.
pub(crate) fn of_backups(disk: &dyn Disk, path: &Path) -> Result<Lock, BackupError> {
    lock(disk, path).map_err(|Held| {
        BackupError::Folder(format!(
            "another backup is being made in {}; wait until it has ended, and name a folder for the backups of each server alone",
            path.display()
        ))
    })
}

struct Held;

fn lock(disk: &dyn Disk, path: &Path) -> Result<Lock, Held> {
    match disk.open(path, Open::Read).and_then(|folder| Ok((folder.try_lock()?, folder))) {
        Ok((true, folder)) => Ok(Some(folder)),
        Ok((false, _)) => Err(Held),
        Err(_) => Ok(None),
    }
}
