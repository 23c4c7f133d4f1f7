//! One read of the manifest, for everything that an opening or a repair takes from it: another read may fail.

use std::{io, path::Path};

use host::{Disk, read_file_checked};
use store::StoreError;

use crate::{
    commits::MANIFEST,
    manifest::{self, Manifest, ManifestError},
};

/// The bytes of the manifest; `None` if there is none.
///
/// # Errors
/// They cannot be read now.
pub(crate) fn read_manifest(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let path = dir.join(MANIFEST);
    match read_file_checked(disk, &path, manifest::LONGEST, |bytes| Manifest::parse(bytes).is_ok()) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io { what: format!("reading {}", path.display()), source }),
    }
}

/// What a repair says that cannot read the manifest now: without it, what earlier damage has cost would be forgotten.
pub(crate) fn refuse_repair(error: StoreError) -> StoreError {
    match error {
        StoreError::Io { .. } => StoreError::Unavailable(format!(
            "{error}; only this file says what earlier damage has cost, so the repair ends here: run it again; if the disk never returns \
             the file, start the server once, which puts it aside after a minute and makes another one"
        )),
        error => error,
    }
}

/// A manifest that is there.
pub(crate) struct ReadManifest {
    /// None of one that cannot be read now.
    pub(crate) bytes: Vec<u8>,
    /// What it says, or why it cannot be used.
    pub(crate) parsed: Result<Manifest, String>,
}

impl ReadManifest {
    /// Reads the manifest; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read now, or a later program wrote it.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<ReadManifest>, StoreError> {
        let Some(bytes) = read_manifest(disk, dir)? else { return Ok(None) };
        match Manifest::parse(&bytes) {
            Ok(manifest) => Ok(Some(ReadManifest { bytes, parsed: Ok(manifest) })),
            Err(ManifestError::Damaged(how)) => Ok(Some(ReadManifest { bytes, parsed: Err(how) })),
            Err(ManifestError::Version(version)) => Err(StoreError::Spec {
                found: format!("in {}: version {version} of the manifest", dir.join(MANIFEST).display()),
                expected: format!("versions 1 to {}; start the later program that wrote it", manifest::VERSION),
            }),
        }
    }

    /// One that the disk does not return.
    pub(crate) fn unread(error: &StoreError) -> ReadManifest {
        ReadManifest { bytes: Vec::new(), parsed: Err(error.to_string()) }
    }

    /// What it says, where it is whole and of this store.
    pub(crate) fn of_store(&self, store: u128) -> Option<&Manifest> {
        self.parsed.as_ref().ok().filter(|manifest| manifest.store == store)
    }
}
