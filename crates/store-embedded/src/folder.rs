//! The folder: who uses it, and what wrote it.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::Path,
};

use store::StoreError;

use crate::rows::GROUP_SLOTS;

/// The layout of keys, values and folders. Another one is another number.
const LAYOUT: u32 = 1;

/// What the spec file of a folder says that this program can use.
pub(crate) fn expected() -> String {
    format!("plumbago embedded store\nlayout {LAYOUT}\nrow codec {}\nslots per row {GROUP_SLOTS}\n", codec::VERSION)
}

pub(crate) fn io_error(what: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { what, source }
}

/// Makes the folder where it is not there, locks it, and checks who wrote it. The lock lasts as long as the
/// file; the system frees it when the process dies, however it dies.
pub(crate) fn open(dir: &Path) -> Result<File, StoreError> {
    fs::create_dir_all(dir).map_err(io_error(format!("making the folder {}", dir.display())))?;
    let path = dir.join("lock");
    let lock = File::create(&path).map_err(io_error(format!("opening {}", path.display())))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::Unavailable(format!(
                "another process uses the folder {}; stop it, or choose another data folder",
                dir.display()
            )));
        }
        Err(TryLockError::Error(source)) => return Err(io_error(format!("locking {}", path.display()))(source)),
    }
    check_spec(dir)?;
    Ok(lock)
}

fn check_spec(dir: &Path) -> Result<(), StoreError> {
    let path = dir.join("spec");
    match fs::read(&path) {
        Ok(found) => {
            let found = String::from_utf8_lossy(&found).into_owned();
            if found == expected() {
                return Ok(());
            }
            let one_line = |text: &str| text.trim_end().replace('\n', ", ");
            Err(StoreError::Spec {
                found: format!("in {}: {}", path.display(), one_line(&found)),
                expected: one_line(&expected()),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let write = || {
                let unfinished = dir.join("spec.unfinished");
                let mut file = File::create(&unfinished)?;
                file.write_all(expected().as_bytes())?;
                file.sync_all()?;
                fs::rename(&unfinished, &path)?;
                File::open(dir)?.sync_all()
            };
            write().map_err(io_error(format!("writing {}", path.display())))
        }
        Err(error) => Err(io_error(format!("reading {}", path.display()))(error)),
    }
}
