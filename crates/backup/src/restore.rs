//! A data folder made of a backup.

use std::path::{Path, PathBuf};

use host::Disk;

use crate::{
    error::BackupError,
    files::{copy, make_folders, sync_folders},
    manifest::{Manifest, find},
};

/// A backup that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The backup.
    pub backup: PathBuf,
    /// What it has.
    pub manifest: Manifest,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// Copies a backup, or the newest one of a folder, to `data`, which must be missing or empty. Every file is compared with
/// its checksum while it is copied; until all are there, the folder is not named `data`.
pub fn restore(disk: &dyn Disk, backup: &Path, data: &Path) -> Result<Restored, BackupError> {
    let backup = find(disk, backup)?;
    let manifest = Manifest::read(disk, &backup)?;
    match disk.read_dir(data) {
        Ok(entries) if !entries.is_empty() => {
            return Err(BackupError::Folder(format!(
                "{} is not empty; name a folder that is missing or empty, and move the old one away first",
                data.display()
            )));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(BackupError::io("reading", data)(error)),
    }
    let draft = draft_of(data);
    if disk.exists(&draft) {
        disk.remove_dir_all(&draft).map_err(BackupError::io("removing what an interrupted restore left", &draft))?;
    }
    disk.create_dir_all(&draft).map_err(BackupError::io("making", &draft))?;
    let mut bytes = 0;
    for file in &manifest.files {
        let path = Path::new(&file.path);
        if path.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(BackupError::Folder(format!("the backup names a file outside of itself: {}", file.path)));
        }
        let to = draft.join(path);
        make_folders(disk, &draft, path).map_err(BackupError::io("making the folder of", &to))?;
        let from = backup.join(path);
        let (len, sha256) = copy(disk, &from, &to).map_err(BackupError::io("copying", &from))?;
        if (len, &sha256) != (file.bytes, &file.sha256) {
            return Err(BackupError::Folder(format!(
                "{} is damaged: it has {len} bytes with SHA-256 {sha256}, and {} with {} are expected. Nothing is restored; use \
                 another backup, or copy this one and repair the copy",
                from.display(),
                file.bytes,
                file.sha256
            )));
        }
        bytes += len;
    }
    let finish = || {
        sync_folders(disk, &draft)?;
        if disk.exists(data) {
            disk.remove_dir_all(data)?;
        }
        disk.rename(&draft, data)?;
        disk.sync_dir(data.parent().unwrap_or(Path::new(".")))
    };
    finish().map_err(BackupError::io("writing", data))?;
    Ok(Restored { backup, manifest, bytes })
}

fn draft_of(data: &Path) -> PathBuf {
    let mut draft = data.as_os_str().to_owned();
    draft.push(".unfinished");
    PathBuf::from(draft)
}
