//! A store that was restored of a backup which lacks files of rows: they are gone, and nothing waits for them.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, replace_file};

use crate::{
    commits::MANIFEST,
    manifest::{Manifest, ManifestFile},
    status::manifest_of,
};

/// Notes in the manifest of a store that is not in use which of its files of rows are not there. Each start reports them, reads of
/// what they had say that it is damaged, and one that is put back is used; but points need not wait for one. Returns their
/// paths in the store's folder. A manifest that cannot be read stays as it is: a start makes one of the files that are there.
///
/// # Errors
/// Whatever the disk says to the new manifest.
pub fn give_up_missing(disk: &dyn Disk, store: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(manifest) = manifest_of(disk, store) else { return Ok(Vec::new()) };
    let is_there = |file: &ManifestFile| disk.exists(&store.join(file.path()));
    let (files, gone): (Vec<_>, Vec<_>) = manifest.files.iter().copied().partition(is_there);
    let gone = gone.into_iter().chain(manifest.missing.iter().copied());
    let missing: Vec<ManifestFile> = gone.map(|file| ManifestFile { is_gone: !is_there(&file), ..file }).collect();
    let gone = missing.iter().filter(|file| file.is_gone).map(ManifestFile::path).collect();
    let given_up = Manifest { files, missing, ..manifest.clone() };
    if given_up != manifest {
        replace_file(disk, &store.join(MANIFEST), given_up.encode().as_bytes())?;
    }
    Ok(gone)
}
