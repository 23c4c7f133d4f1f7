//! The size of a folder.

use std::{collections::HashSet, io::ErrorKind, os::unix::fs::MetadataExt, path::Path};

use serde::Serialize;

use crate::Error;

/// Bytes of everything in a folder, the folder itself included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    /// Blocks allocated by the file system.
    pub(crate) allocated: u64,
    /// The sum of the files' lengths.
    pub(crate) apparent: u64,
    pub(crate) files: u64,
}

impl Disk {
    /// Reads the folder while the server may be writing: a file that vanishes meanwhile does not count. A file with
    /// several names counts once.
    pub(crate) fn of(folder: &Path) -> Result<Disk, Error> {
        let failed = |source| Error::Disk { folder: folder.display().to_string(), source };
        let mut disk = Disk::default();
        let mut seen = HashSet::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            let entries = match std::fs::read_dir(&next) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound && next != folder => continue,
                Err(error) => return Err(failed(error)),
            };
            // A folder takes blocks, but is not long.
            disk.allocated += std::fs::metadata(&next).map_or(0, |found| found.blocks() * 512);
            for entry in entries {
                let entry = entry.map_err(failed)?;
                let Ok(found) = entry.metadata() else { continue };
                if found.is_dir() {
                    folders.push(entry.path());
                } else if seen.insert((found.dev(), found.ino())) {
                    disk.allocated += found.blocks() * 512;
                    disk.apparent += found.len();
                    disk.files += 1;
                }
            }
        }
        Ok(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_inner_folders_count_and_two_names_of_one_file_count_once() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::create_dir(folder.path().join("inner")).expect("a folder can be made");
        std::fs::write(folder.path().join("inner/a"), [1; 10_000]).expect("a file can be written");
        std::fs::write(folder.path().join("b"), [1; 500]).expect("a file can be written");
        std::fs::hard_link(folder.path().join("b"), folder.path().join("c")).expect("a link can be made");
        let disk = Disk::of(folder.path()).expect("the folder is there");
        assert_eq!((disk.apparent, disk.files), (10_500, 2));
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        assert!(matches!(Disk::of(&folder.path().join("none")), Err(Error::Disk { .. })));
    }
}
