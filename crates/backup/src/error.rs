//! Why a backup cannot be made, read or restored.

use std::{io, path::Path, path::PathBuf};

use store::StoreError;

/// Why a backup cannot be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The system's error.
    #[error("{what} {path}: {error}{}", next_step(error), path = path.display())]
    Io {
        /// The attempted step.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Its answer. Part of the text, so not a source: a chain of causes would print it twice.
        error: io::Error,
    },
    /// A later version of the program wrote part of the folder.
    #[error(
        "{path} has {found}, and this program reads {reads}: a later version wrote it; nothing was changed; start the \
         version that wrote it, or restore a backup of this version into another folder",
        path = path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The versions that this program reads.
        reads: String,
    },
    /// The folder is not what it must be.
    #[error("{0}")]
    Folder(String),
}

/// What to do about an error of the system, where that is clear.
fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room on that disk, or name a folder on another one"
        }
        io::ErrorKind::FileTooLarge => "; a limit of the size of files (ulimit -f, LimitFSIZE=) must be raised",
        io::ErrorKind::PermissionDenied => "; the user that this process runs as must be able to read and write there",
        io::ErrorKind::ReadOnlyFilesystem => "; name a folder on a disk that can be written",
        _ => "",
    }
}

/// An error of a store with what to do about it, where that is clear.
pub fn with_next_step(error: StoreError) -> BackupError {
    match error {
        StoreError::Io { what, source } => BackupError::Folder(format!("{what}: {source}{}", next_step(&source))),
        error => BackupError::Folder(error.to_string()),
    }
}

impl BackupError {
    /// Names the attempted step.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
        let path = path.to_owned();
        move |error| BackupError::Io { what, path, error }
    }
}
