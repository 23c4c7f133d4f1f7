//! Whether a later version of the program wrote to a folder, found before anything in it is changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, Open, read_file_checked, retried};

use crate::{
    commits::MANIFEST,
    manifest::{self, Manifest, ManifestError, table_of},
    record_log, row_file, spec,
};

/// A file of a later version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewerFile {
    /// The file.
    pub path: PathBuf,
    /// Its version, in words.
    pub found: String,
    /// The versions that this program reads, in words.
    pub reads: String,
}

/// The first file of a store that a later version wrote. What is damaged or cannot be read is not of one: opening the store
/// deals with it.
///
/// # Errors
/// The folder that cannot be listed, or the folder of a window, the log or the file of rows that this user may not read, and what the
/// disk says.
pub fn newer_file(disk: &dyn Disk, store: &Path) -> Result<Option<NewerFile>, (PathBuf, io::Error)> {
    let list = |dir: &Path| list(disk, dir).map_err(|error| (dir.to_owned(), error));
    let of = |path: &Path, found: String, reads: String| Some(NewerFile { path: path.to_owned(), found, reads });
    let path = store.join("spec");
    if let Some((found, reads)) = read_to(disk, &path, spec::LONGEST).and_then(|bytes| spec::newer(&bytes)) {
        return Ok(of(&path, found, reads));
    }
    let path = store.join(MANIFEST);
    let parsed = read_to(disk, &path, manifest::LONGEST).map(|bytes| Manifest::parse(&bytes));
    if let Some(Err(ManifestError::Version(version))) = parsed {
        return Ok(of(&path, format!("version {version}"), format!("versions 1 to {}", manifest::VERSION)));
    }
    for log in ["names", "events"] {
        for entry in list(&store.join(log))? {
            if let Some(version) = first_bytes(disk, &entry)?.and_then(|bytes| record_log::newer(&bytes)) {
                return Ok(of(&entry, format!("version {version}"), format!("version {}", record_log::VERSION)));
            }
        }
    }
    for of_table in list(store)? {
        if of_table.file_name().and_then(|name| name.to_str()).is_none_or(|name| table_of(name).is_none()) {
            continue;
        }
        for of_window in list(&of_table)? {
            let entries = match list(&of_window) {
                Err((_, error)) if error.kind() != io::ErrorKind::PermissionDenied => continue,
                entries => entries?,
            };
            for entry in entries {
                if let Some(version) = first_bytes(disk, &entry)?.and_then(|bytes| row_file::newer(&bytes)) {
                    let reads = format!("versions 1 to {}", row_file::VERSION);
                    return Ok(of(&entry, format!("version {version}"), reads));
                }
            }
        }
    }
    Ok(None)
}

/// The bytes of a file that has at most so many; `None` where it has more, is not there, or cannot be read.
pub(crate) fn read_to(disk: &dyn Disk, path: &Path, longest: u64) -> Option<Vec<u8>> {
    let bytes = read_file_checked(disk, path, longest + 1, |_| true).ok()?;
    (bytes.len() as u64 <= longest).then_some(bytes)
}

/// What a folder has, sorted; nothing where there is none.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    match retried(|| disk.read_dir(dir)) {
        Ok(mut entries) => {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries.into_iter().map(|entry| entry.path).collect())
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The first bytes of a file of rows or of a log; `None` for other files, and where the disk does not return them.
///
/// # Errors
/// This user may not read the file: it is not damaged, and nothing passes by itself.
fn first_bytes(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, (PathBuf, io::Error)> {
    if path.extension().is_none_or(|ending| ending != "rows" && ending != "log") {
        return Ok(None);
    }
    let read = || {
        let mut bytes = vec![0; record_log::HEADER.max(row_file::HEADER)];
        let file = retried(|| disk.open(path, Open::Read))?;
        bytes.truncate(file.len()?.try_into().unwrap_or(usize::MAX));
        retried(|| file.read_exact_at(&mut bytes, 0))?;
        Ok(bytes)
    };
    match read() {
        Err(error) if io::Error::kind(&error) == io::ErrorKind::PermissionDenied => Err((path.to_owned(), error)),
        read => Ok(read.ok()),
    }
}
