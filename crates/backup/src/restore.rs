//! A data folder made of a backup.

use std::path::{Path, PathBuf};

use host::Disk;

use crate::{
    draft::{self, Draft},
    error::BackupError,
    files::{copy, make_folders, sync_folders},
    manifest::{FILE, Manifest, all, open, other},
    may_start::{RESTORING, draft_of, refuse_newer},
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
    /// Files of rows that the backup lacks: what they had is lost, and nothing waits for it. Each start reports them, and uses one
    /// that is put back.
    pub gone: Vec<PathBuf>,
}

/// Copies a backup, or the newest one of a folder, to `data`, which must be missing or empty. Every file is compared with
/// its checksum while it is copied; until all are there, a folder that was missing has another name, and one that was
/// there, as a mount point, has them in `RESTORING`.
///
/// # Errors
/// The folder is not empty, another restore writes to it, or the backup is damaged.
pub fn restore(disk: &dyn Disk, backup: &Path, data: &Path) -> Result<Restored, BackupError> {
    // Without a slash or `/.` at the end, which no rename takes.
    let data = &data.components().collect::<PathBuf>();
    let (backup, manifest) = open(disk, backup)?;
    refuse_newer(disk, &backup)?;
    refuse_inside(disk, data)?;
    let is_there = is_there(disk, data)?;
    let draft = Draft::begin(disk, if is_there { data.join(RESTORING) } else { draft_of(data) })?;
    // Before a file of the restore is in its place: without the folder a start would take a part for all, or nothing.
    let above = if is_there { data } else { above(data) };
    disk.sync_dir(above).map_err(BackupError::io("syncing", above))?;
    if is_there {
        // Of one that was interrupted when the folder was missing.
        draft::remove(disk, &draft_of(data))?;
    }
    let copied = copy_files(disk, &backup, &manifest, draft.path());
    if copied.is_err() {
        // The files take up room.
        let _ = draft.empty(disk);
    }
    let bytes = copied?;
    let finish = || {
        let gone = store_embedded::give_up_missing(disk, &draft.path().join("store"))?;
        sync_folders(disk, draft.path())?;
        if is_there {
            return move_contents(disk, draft.path(), data).map(|()| gone);
        }
        disk.rename(draft.path(), data)?;
        disk.sync_dir(above).map(|()| gone)
    };
    let gone = finish().map_err(BackupError::io("writing", data))?;
    Ok(Restored { backup, manifest, bytes, gone })
}

/// Refuses a target in a data folder or among backups: it would be lost, copied or taken for a part of these.
fn refuse_inside(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    // A folder above that is missing is an error further on.
    let Ok(above) = disk.canonicalize(above(data)) else { return Ok(()) };
    let found = above.ancestors().find_map(|above| match () {
        () if disk.exists(&above.join(FILE)) => Some(format!("the backup {}", above.display())),
        () if disk.exists(&above.join("store/spec")) => Some(format!("the data folder {}", above.display())),
        () => None,
    });
    let among = || all(disk, &above).is_ok_and(|all| !all.is_empty());
    let found = found.or_else(|| among().then(|| format!("{}, which has backups", above.display())));
    match found {
        Some(found) => Err(BackupError::Folder(format!(
            "{} is in {found}; name a folder for the data that is in no other store's",
            data.display()
        ))),
        None => Ok(()),
    }
}

fn above(data: &Path) -> &Path {
    data.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Copies the files of a backup, and compares each with its checksum. Returns the bytes.
fn copy_files(disk: &dyn Disk, backup: &Path, manifest: &Manifest, draft: &Path) -> Result<u64, BackupError> {
    let mut bytes = 0;
    for file in &manifest.files {
        let path = Path::new(&file.path);
        if path.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(BackupError::Folder(format!("the backup names a file outside of itself: {}", file.path)));
        }
        let to = draft.join(path);
        make_folders(disk, draft, path).map_err(BackupError::io("making the folder of", &to))?;
        let from = backup.join(path);
        let (len, sha256) = copy(disk, &from, &to).map_err(BackupError::io("copying", &from))?;
        if (len, &sha256) != (file.bytes, &file.sha256) {
            return Err(BackupError::Folder(format!(
                "{} is damaged: it has {len} bytes with SHA-256 {sha256}, and {} with {} are expected. Nothing is restored; use \
                 another backup{}, or copy this one, repair the copy with plumbago repair, and restore that",
                from.display(),
                file.bytes,
                file.sha256,
                other(disk, backup)
            )));
        }
        bytes += len;
    }
    Ok(bytes)
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
