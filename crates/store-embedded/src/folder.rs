//! The folder: which process uses it, and which program wrote it.

use std::{io, path::Path};

use host::{Disk, DiskFile, Open};
use store::StoreError;

use crate::rows::GROUP_SLOTS;

/// The layout of keys, values and folders. A change of layout changes the number.
const LAYOUT: u32 = 1;

/// The spec file of a folder that this program can use.
pub(crate) fn expected() -> String {
    format!("plumbago embedded store\nlayout {LAYOUT}\nrow codec {}\nslots per row {GROUP_SLOTS}\n", codec::VERSION)
}

pub(crate) fn io_error(what: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { what, source }
}

/// Creates the folder if it is missing, locks it, and checks its spec. The lock lasts as long as the file; the system
/// releases it when the process dies, however it dies.
pub(crate) fn open(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DiskFile>, StoreError> {
    disk.create_dir_all(dir).map_err(io_error(format!("making the folder {}", dir.display())))?;
    let path = dir.join("lock");
    let lock = disk.open(&path, Open::ReadWrite).map_err(io_error(format!("opening {}", path.display())))?;
    if !lock.try_lock().map_err(io_error(format!("locking {}", path.display())))? {
        return Err(StoreError::Unavailable(format!(
            "another process uses the folder {}; stop it, or choose another data folder",
            dir.display()
        )));
    }
    check_spec(disk, dir)?;
    Ok(lock)
}

fn check_spec(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join("spec");
    let found = match disk.read(&path) {
        Ok(found) => String::from_utf8_lossy(&found).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let written = host::replace_file(disk, &path, expected().as_bytes());
            return written.map_err(io_error(format!("writing {}", path.display())));
        }
        Err(error) => return Err(io_error(format!("reading {}", path.display()))(error)),
    };
    if found == expected() {
        return Ok(());
    }
    let one_line = |text: &str| text.trim_end().replace('\n', ", ");
    Err(StoreError::Spec {
        found: format!("in {}: {}", path.display(), one_line(&found)),
        expected: one_line(&expected()),
    })
}
