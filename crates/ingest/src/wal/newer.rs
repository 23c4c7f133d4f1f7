//! Whether a later version of the program wrote to a journal, found before anything is changed.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use host::{Disk, Open};

use super::reader::{SEARCHED, Start, start};

/// A segment of a later version of the format, and its version. What is damaged or cannot be read is not of one: a replay
/// deals with it.
///
/// # Errors
/// Whatever the disk says to a list of the folder.
pub fn newer_segment(disk: &dyn Disk, journal: &Path) -> io::Result<Option<(PathBuf, String)>> {
    let entries = match disk.read_dir(journal) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut paths: Vec<(PathBuf, u64)> = entries.into_iter().map(|entry| (entry.path, entry.len)).collect();
    paths.sort();
    for (path, len) in paths {
        if path.extension().is_some_and(|ending| ending == "journal")
            && let Start::Newer(version) = start(&first_bytes(disk, &path, len).unwrap_or_default())
        {
            return Ok(Some((path, version)));
        }
    }
    Ok(None)
}

fn first_bytes(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<Vec<u8>> {
    let mut first = vec![0; SEARCHED.min(len as usize)];
    disk.open(path, Open::Read)?.read_exact_at(&mut first, 0)?;
    Ok(first)
}
