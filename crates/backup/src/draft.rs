//! The folder that has the files of a restore until all are there. One restore at a time has it.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::Disk;

use crate::{
    error::BackupError,
    folder_lock::{self, Lock},
};

/// A folder that is locked for as long as this lives.
pub(crate) struct Draft {
    path: PathBuf,
    _lock: Lock,
}

impl Draft {
    /// Makes the folder, or takes the one of an interrupted restore and empties it.
    ///
    /// # Errors
    /// Another restore has it.
    pub(crate) fn begin(disk: &dyn Disk, path: PathBuf) -> Result<Draft, BackupError> {
        disk.create_dir_all(&path).map_err(BackupError::io("making", &path))?;
        let draft = Draft { _lock: folder_lock::of_restore(disk, &path)?, path };
        draft.empty(disk).map_err(BackupError::io("removing what an interrupted restore left", &draft.path))?;
        Ok(draft)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes everything in it. The folder stays: without it a start would make a store where one was to be restored.
    pub(crate) fn empty(&self, disk: &dyn Disk) -> io::Result<()> {
        for entry in disk.read_dir(&self.path)? {
            if entry.is_dir { disk.remove_dir_all(&entry.path)? } else { disk.remove_file(&entry.path)? }
        }
        Ok(())
    }
}

/// Removes the folder of an interrupted restore, if there is one.
///
/// # Errors
/// A restore that still runs has it.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), BackupError> {
    if disk.exists(path) {
        let _lock = folder_lock::of_restore(disk, path)?;
        disk.remove_dir_all(path).map_err(BackupError::io("removing what an interrupted restore left", path))?;
    }
    Ok(())
}
