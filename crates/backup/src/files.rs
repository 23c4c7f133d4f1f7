//! Files of a folder: listed, copied, hashed.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use host::{Disk, DiskFile, Open};
use sha2::{Digest as _, Sha256};

/// Bytes that are read at once.
pub(crate) const CHUNK: usize = 1 << 20;

/// Every file below a folder, by its path in it, sorted.
pub(crate) fn below(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(files_and_folders(disk, dir)?.0)
}

/// Every file, and every folder, below a folder, by its path in it, sorted.
pub(crate) fn files_and_folders(disk: &dyn Disk, dir: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut folders, mut left) = (Vec::new(), Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = left.pop() {
        for entry in disk.read_dir(&dir.join(&folder))? {
            let path = folder.join(&entry.name);
            if entry.is_dir { left.push(path) } else { files.push(path) }
        }
        folders.push(folder);
    }
    files.sort();
    folders.sort();
    Ok((files, folders))
}

/// The length and the SHA-256 of a file.
pub(crate) fn hash(disk: &dyn Disk, path: &Path) -> io::Result<(u64, String)> {
    each_chunk(disk, path, |_| Ok(()))
}

/// Copies a file and syncs the copy. Returns the length and the SHA-256 of what was read.
pub(crate) fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<(u64, String)> {
    let copy: Box<dyn DiskFile> = disk.open(to, Open::CreateNew)?;
    let hashed = each_chunk(disk, from, |bytes| copy.write_shared(bytes))?;
    copy.sync_all()?;
    Ok(hashed)
}

fn each_chunk(
    disk: &dyn Disk,
    path: &Path,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, String)> {
    let mut file = disk.open(path, Open::Read)?;
    let (mut sha, mut len, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        sha.update(&chunk[..read]);
        each(&chunk[..read])?;
        len += read as u64;
    }
    Ok((len, hex(sha)))
}

/// The checksum in hexadecimal digits.
pub(crate) fn hex(sha: Sha256) -> String {
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the folders above a file of `dir`, and puts the entries on the disk that this adds.
pub(crate) fn make_folders(disk: &dyn Disk, dir: &Path, file: &Path) -> io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    if !disk.exists(&dir.join(folder)) {
        disk.create_dir_all(&dir.join(folder))?;
    }
    Ok(())
}

/// Puts the entries of a folder and of all folders below it on the disk.
pub(crate) fn sync_folders(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        folders.extend(disk.read_dir(&folder)?.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.path));
        disk.sync_dir(&folder)?;
    }
    Ok(())
}
