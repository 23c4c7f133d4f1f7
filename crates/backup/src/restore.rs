//! A data folder made of a backup.

use std::path::{Path, PathBuf};

use host::Disk;

use crate::{
    error::BackupError,
    files::{copy, make_folders, sync_folders},
    manifest::{Manifest, find},
    may_start::{RESTORING, refuse_newer},
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
/// its checksum while it is copied; until all are there, a folder that was missing has another name, and one that was
/// there, as a mount point, has them in `RESTORING`.
pub fn restore(disk: &dyn Disk, backup: &Path, data: &Path) -> Result<Restored, BackupError> {
    let backup = find(disk, backup)?;
    let manifest = Manifest::read(disk, &backup)?;
    refuse_newer(disk, &backup)?;
    let is_there = is_there(disk, data)?;
    let draft = if is_there { data.join(RESTORING) } else { draft_of(data) };
    if disk.exists(&draft) {
        disk.remove_dir_all(&draft).map_err(BackupError::io("removing what an interrupted restore left", &draft))?;
    }
    disk.create_dir_all(&draft).map_err(BackupError::io("making", &draft))?;
    if is_there {
        // Before a file of the restore is in its place: without the folder a start would take a part for all.
        disk.sync_dir(data).map_err(BackupError::io("syncing", data))?;
    }
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
        if is_there {
            return move_contents(disk, &draft, data);
        }
        disk.rename(&draft, data)?;
        let above = data.parent().filter(|above| !above.as_os_str().is_empty());
        disk.sync_dir(above.unwrap_or(Path::new(".")))
    };
    finish().map_err(BackupError::io("writing", data))?;
    Ok(Restored { backup, manifest, bytes })
}

/// Whether the folder is there. It must be empty, but for what the file system or an interrupted restore put there.
fn is_there(disk: &dyn Disk, data: &Path) -> Result<bool, BackupError> {
    let entries = match disk.read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(BackupError::io("reading", data)(error)),
    };
    if entries.iter().all(|entry| entry.name == "lost+found" || entry.name == RESTORING) {
        return Ok(true);
    }
    let what = if disk.exists(&data.join(RESTORING)) {
        "has part of an interrupted restore; empty it and restore again"
    } else {
        "is not empty; name a folder that is missing or empty, and move the old one away first"
    };
    Err(BackupError::Folder(format!("{} {what}", data.display())))
}

/// Moves what is in a folder of `data` there, and removes the folder last.
fn move_contents(disk: &dyn Disk, draft: &Path, data: &Path) -> std::io::Result<()> {
    for entry in disk.read_dir(draft)? {
        disk.rename(&entry.path, &data.join(&entry.name))?;
    }
    disk.sync_dir(data)?;
    disk.remove_dir_all(draft)?;
    disk.sync_dir(data)
}

fn draft_of(data: &Path) -> PathBuf {
    let mut draft = data.as_os_str().to_owned();
    draft.push(".unfinished");
    PathBuf::from(draft)
}
