//! `backup.json`: what a backup has.

use std::path::{Path, PathBuf};

use host::Disk;
use serde::{Deserialize, Serialize};

use crate::error::BackupError;

/// The file.
pub(crate) const FILE: &str = "backup.json";

/// The newest version that this program reads. It writes version 1 of a backup that lacks nothing: earlier programs read that.
const VERSION: u32 = 2;

/// Folders of backups are `backup-000001` and following.
const PREFIX: &str = "backup-";

/// The ending of a backup's folder until the backup is complete.
pub(crate) const UNFINISHED: &str = "unfinished";

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its path in the data folder and in the backup, with `/`.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, in hex.
    pub sha256: String,
    /// Of a file of rows: the checksum of its index. Files of the same path, length and index have the same rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_crc: Option<u32>,
}

/// What a backup has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub version: u32,
    /// The program that made the backup.
    pub program: String,
    /// The moment that the backup has, Unix seconds: everything that was accepted until then.
    pub moment: i64,
    /// The store, in hex.
    pub store: String,
    /// Every file, by path.
    pub files: Vec<BackupFile>,
    /// Files of rows and segments of the journal that the store missed, or that could not be read, when the backup was made: what
    /// they had is lost to it. From version 2 on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// CRC-32 of this object without this member, as it is written.
    #[serde(default)]
    pub check: u32,
}

/// The member that every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Manifest {
    pub(crate) fn new(moment: i64, store: u128, files: Vec<BackupFile>) -> Manifest {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Manifest { version: 1, program, moment, store: store_text(store), files, lacking: Vec::new(), check: 0 }
    }

    pub(crate) fn text(mut self) -> String {
        self.version = if self.lacking.is_empty() { 1 } else { VERSION };
        self.check = 0;
        self.check = crc32fast::hash(json(&self).as_bytes());
        json(&self)
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// The folder is not a complete backup, or a newer program made it.
    pub fn read(disk: &dyn Disk, backup: &Path) -> Result<Manifest, BackupError> {
        let path = backup.join(FILE);
        let text = disk.read_to_string(&path).map_err(BackupError::io("reading", &path))?;
        let damaged = || {
            BackupError::Folder(format!(
                "{} is damaged; the files of the backup may still be good: without {FILE} a copy of it is a data folder, which \
                 plumbago verify and repair read and a server starts with. Otherwise use another backup",
                path.display()
            ))
        };
        // Of a later version only this member is known.
        let Version { version } = serde_json::from_str(&text).map_err(|_| damaged())?;
        if VERSION < version {
            let text = format!(
                "{} has version {version}, and this program reads versions 1 to {VERSION}: a later version wrote it; nothing was \
                 changed; use the version that made it, or another backup",
                path.display()
            );
            return Err(BackupError::Folder(text));
        }
        let mut manifest: Manifest = serde_json::from_str(&text).map_err(|_| damaged())?;
        let check = std::mem::take(&mut manifest.check);
        if crc32fast::hash(json(&manifest).as_bytes()) != check {
            return Err(damaged());
        }
        manifest.check = check;
        Ok(manifest)
    }
}

/// A store as the manifest names it.
pub(crate) fn store_text(store: u128) -> String {
    format!("{store:032x}")
}

fn json(manifest: &Manifest) -> String {
    let mut text = serde_json::to_string_pretty(manifest).expect("the members are plain");
    text.push('\n');
    text
}

/// The number of a folder's backup by its name.
pub(crate) fn number(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// The name of the backup with this number.
pub(crate) fn name(number: u32) -> String {
    format!("{PREFIX}{number:06}")
}

/// The backups in a folder by their numbers, oldest first, and whether each is complete. One look at each: what a call that fails hides must
/// not be there a moment later.
fn listed(disk: &dyn Disk, dir: &Path) -> Result<Vec<(u32, PathBuf, bool)>, BackupError> {
    let entries = disk.read_dir(dir).map_err(BackupError::io("reading", dir))?;
    let numbered = |entry: host::DirEntry| Some((number(entry.name.to_str()?)?, entry.path));
    let with_look = |(number, path): (u32, PathBuf)| {
        let is_complete = is_backup(disk, &path);
        (number, path, is_complete)
    };
    let mut listed: Vec<_> = entries.into_iter().filter_map(numbered).map(with_look).collect();
    listed.sort();
    Ok(listed)
}

/// The complete backups in a folder, oldest first.
pub(crate) fn all(disk: &dyn Disk, dir: &Path) -> Result<Vec<(u32, PathBuf)>, BackupError> {
    let complete = listed(disk, dir)?.into_iter().filter(|(.., is_complete)| *is_complete);
    Ok(complete.map(|(number, path, _)| (number, path)).collect())
}

/// A backup in a folder that was not completed.
pub(crate) fn unfinished(disk: &dyn Disk, dir: &Path) -> Option<PathBuf> {
    let entries = disk.read_dir(dir).unwrap_or_default().into_iter();
    let found = entries.filter(|entry| is_unfinished(entry.name.to_str())).map(|entry| entry.path);
    found.max()
}

/// Whether a name is that of a backup which was not completed.
pub(crate) fn is_unfinished(name: Option<&str>) -> bool {
    name.and_then(|name| name.rsplit_once('.'))
        .is_some_and(|(name, ending)| ending == UNFINISHED && number(name).is_some())
}

/// Also where the disk does not return the manifest: a restore must not take an older backup for the newest.
fn is_backup(disk: &dyn Disk, path: &Path) -> bool {
    disk.exists(&path.join(FILE))
}

/// The backup that a path means, and what it has.
///
/// # Errors
/// There is none, or its `backup.json` cannot be read.
pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<(PathBuf, Manifest), BackupError> {
    let backup = find(disk, path)?;
    match Manifest::read(disk, &backup) {
        Ok(manifest) => Ok((backup, manifest)),
        Err(error) => Err(BackupError::Folder(format!("{error}{}", other(disk, &backup)))),
    }
}

/// Names the newest other backup in the folder of one whose `backup.json` can be read, in parentheses, or nothing.
pub(crate) fn other(disk: &dyn Disk, backup: &Path) -> String {
    let all = backup.parent().and_then(|dir| all(disk, dir).ok()).unwrap_or_default();
    let others = all.into_iter().rev().map(|(_, path)| path).filter(|path| path != backup);
    let found = others.into_iter().find(|path| Manifest::read(disk, path).is_ok());
    found.map_or_else(String::new, |path| format!(" (the newest other one is {})", path.display()))
}

/// Refuses a folder that an interrupted backup or restore left, under whichever path.
pub(crate) fn refuse_unfinished(disk: &dyn Disk, path: &Path) -> Result<(), BackupError> {
    let is_one = |path: &Path| path.extension().is_some_and(|ending| ending == UNFINISHED);
    if is_one(path) || disk.canonicalize(path).is_ok_and(|path| is_one(&path)) {
        return Err(BackupError::Folder(format!(
            "{} is of an interrupted backup or restore, and not complete; name another one; the next backup or restore removes it",
            path.display()
        )));
    }
    Ok(())
}

/// The backup that a path means: itself, or the newest one in it.
///
/// # Errors
/// There is none.
pub fn find(disk: &dyn Disk, path: &Path) -> Result<PathBuf, BackupError> {
    refuse_unfinished(disk, path)?;
    if is_backup(disk, path) {
        return Ok(path.to_owned());
    }
    let mut listed = listed(disk, path)?;
    let newest = listed.iter().rposition(|(.., is_complete)| *is_complete);
    if let Some(newest) = newest
        && let [(_, newest, _), .., (_, later, _)] = &listed[newest..]
    {
        return Err(BackupError::Folder(format!(
            "{} has no file {FILE}: it was not completed, or lost it; the newest complete backup is {}: name that one, or remove the other",
            later.display(),
            newest.display()
        )));
    }
    newest.map(|newest| listed.swap_remove(newest).1).ok_or_else(|| {
        if disk.exists(&path.join("store")) {
            return BackupError::Folder(format!(
                "{} is a data folder, not a backup: make one with plumbago backup while its server runs",
                path.display()
            ));
        }
        BackupError::Folder(format!(
            "{} is not a backup and has none (a complete one has a file {FILE}), and not a data folder, which has a folder store",
            path.display()
        ))
    })
}
