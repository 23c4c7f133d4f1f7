//! The folder: which process uses it, and what the process before has left that is not on the disk.

use std::{io, path::Path};

use host::{Disk, DiskFile, Open};
use store::StoreError;

pub(crate) fn io_error(what: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { what, source }
}

/// The lock of a folder: as long as it lasts no other process uses the folder. The system releases it when the process dies,
/// however it dies.
#[derive(Debug)]
pub struct FolderLock {
    /// `None` for a reader of a folder that has no such file.
    _file: Option<Box<dyn DiskFile>>,
    /// The folder itself: the file may be removed while the process runs. `None` where the system cannot lock folders.
    _folder: Option<Box<dyn DiskFile>>,
}

/// Creates the folder if it is missing, and locks it: the file `lock`, and the folder.
pub fn open(disk: &dyn Disk, dir: &Path) -> Result<FolderLock, StoreError> {
    disk.create_dir_all(dir).map_err(io_error(format!("making the folder {}", dir.display())))?;
    // Without this a power cut loses the folder with everything in it.
    if let Some(above) = dir.parent() {
        disk.sync_dir(above).map_err(io_error(format!("syncing the folder {}", above.display())))?;
    }
    let path = dir.join("lock");
    let file = disk.open(&path, Open::ReadWrite).map_err(io_error(format!("opening {}", path.display())))?;
    let is_free = file.try_lock().map_err(io_error(format!("locking {}", path.display())))?;
    locked(disk, dir, Some(file), is_free)
}

/// Locks a folder to read it, as [`open`] does, and changes nothing: it may be on a disk that cannot be written.
pub fn open_to_read(disk: &dyn Disk, dir: &Path) -> Result<FolderLock, StoreError> {
    let path = dir.join("lock");
    let file = match disk.open(&path, Open::Read) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(format!("opening {}", path.display()))(error)),
    };
    let is_free = file.as_ref().map_or(Ok(true), |file| file.try_lock());
    let is_free = is_free.map_err(io_error(format!("locking {}", path.display())))?;
    locked(disk, dir, file, is_free)
}

fn locked(
    disk: &dyn Disk,
    dir: &Path,
    file: Option<Box<dyn DiskFile>>,
    is_free: bool,
) -> Result<FolderLock, StoreError> {
    // Earlier programs lock the file alone.
    let folder = disk.open(dir, Open::Read).and_then(|folder| Ok((folder.try_lock()?, folder)));
    match folder {
        Ok((true, folder)) if is_free => Ok(FolderLock { _file: file, _folder: Some(folder) }),
        Err(_) if is_free => Ok(FolderLock { _file: file, _folder: None }),
        _ => Err(StoreError::Unavailable(format!(
            "another process uses the folder {}; stop it, or choose another data folder",
            dir.display()
        ))),
    }
}

/// Writes files of a data folder again whose last sync failed in the process before: a sync of them now would succeed and write
/// nothing. Before anything in the folder is opened; the caller has its lock.
///
/// # Errors
/// A file cannot be written again. Nothing else was changed.
pub fn settle_syncs(disk: &dyn Disk, data: &Path) -> Result<(), StoreError> {
    let settled = disk.settle_syncs(data).map_err(io_error(format!("settling the syncs of {}", data.display())))?;
    if settled.is_all {
        tracing::warn!(
            files = settled.written.len(),
            "the last syncs of more files had failed than are noted one by one; all files of the data folder that can be listed and \
             read were written again"
        );
    }
    for file in settled.written.iter().filter(|_| !settled.is_all) {
        tracing::warn!(file = %file.display(), "the last sync of the file had failed; it was written again");
    }
    for (file, error) in settled.unread {
        tracing::error!(%error, file = %file.display(),
            "cannot read a file whose last sync failed, or the note of such files, or list a folder of them; it is used as it is, and a \
             power cut may take its last records; the next start tries again; if the disk is failing, copy the data folder to another one");
    }
    Ok(())
}
