//! The folder: which process uses it.

use std::{io, path::Path};

use host::{Disk, DiskFile, Open};
use store::StoreError;

pub(crate) fn io_error(what: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { what, source }
}

/// Creates the folder if it is missing, and locks it. The lock lasts as long as the file; the system
/// releases it when the process dies, however it dies.
pub fn open(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskFile>, StoreError> {
    disk.create_dir_all(dir).map_err(io_error(format!("making the folder {}", dir.display())))?;
    // Without this a power cut loses the folder with everything in it.
    if let Some(above) = dir.parent() {
        disk.sync_dir(above).map_err(io_error(format!("syncing the folder {}", above.display())))?;
    }
    let path = dir.join("lock");
    let lock = disk.open(&path, Open::ReadWrite).map_err(io_error(format!("opening {}", path.display())))?;
    if !lock.try_lock().map_err(io_error(format!("locking {}", path.display())))? {
        return Err(StoreError::Unavailable(format!(
            "another process uses the folder {}; stop it, or choose another data folder",
            dir.display()
        )));
    }
    Ok(lock)
}
