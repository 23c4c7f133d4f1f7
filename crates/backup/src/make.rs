//! A backup made of one moment that is staged as links.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use host::{Disk, replace_file};

use crate::{
    error::BackupError,
    files::{below, copy, hash, link_or_copy, make_folders, sync_folders},
    manifest::{self, BackupFile, Manifest},
};

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its folder.
    pub path: PathBuf,
    /// What it has.
    pub manifest: Manifest,
    /// Files that are links to those of the data folder or of the backup before.
    pub linked: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// Makes the next backup in `dir`, which must exist, of the files in `stage`: those of a data folder at one moment.
/// `rows` has the checksums of the indexes of files of rows, by path. Until the last step the folder of the backup has
/// another name; what an interrupted backup left is removed by the next.
pub fn make(
    disk: &dyn Disk,
    stage: &Path,
    dir: &Path,
    moment: i64,
    store: u128,
    rows: &HashMap<String, u32>,
) -> Result<Made, BackupError> {
    let entries = disk.read_dir(dir).map_err(BackupError::io("reading", dir))?;
    for left in entries.iter().filter(|entry| is_unfinished(entry.name.to_str())) {
        disk.remove_dir_all(&left.path)
            .map_err(BackupError::io("removing what an interrupted backup left", &left.path))?;
    }
    let last = entries.iter().filter_map(|entry| manifest::number(entry.name.to_str()?)).max().unwrap_or(0);
    let before = Before::of(disk, dir);
    let name = manifest::name(last + 1);
    let (path, draft) = (dir.join(&name), dir.join(format!("{name}.unfinished")));
    disk.create_dir_all(&draft).map_err(BackupError::io("making", &draft))?;
    let mut made =
        Made { path: path.clone(), manifest: Manifest::new(moment, store, Vec::new()), linked: 0, copied_bytes: 0 };
    let mut files = Vec::new();
    for file in below(disk, stage).map_err(BackupError::io("reading", stage))? {
        let added = add(disk, stage, &draft, &file, rows, &before, &mut made);
        files.push(added.map_err(BackupError::io("writing", &draft.join(&file)))?);
    }
    made.manifest.files = files;
    let seal = || {
        replace_file(disk, &draft.join(manifest::FILE), made.manifest.clone().text().as_bytes())?;
        sync_folders(disk, &draft)?;
        disk.rename(&draft, &path)?;
        disk.sync_dir(dir)
    };
    seal().map_err(BackupError::io("writing", &path))?;
    Ok(made)
}

fn is_unfinished(name: Option<&str>) -> bool {
    name.and_then(|name| name.strip_suffix(".unfinished")).is_some_and(|name| manifest::number(name).is_some())
}

/// The backup before, where there is one.
struct Before {
    path: PathBuf,
    files: HashMap<String, BackupFile>,
}

impl Before {
    fn of(disk: &dyn Disk, dir: &Path) -> Before {
        let before = manifest::all(disk, dir).ok().and_then(|mut all| all.pop());
        let read = before.and_then(|(_, path)| Some((Manifest::read(disk, &path).ok()?, path)));
        let (files, path) = read.map_or_else(Default::default, |(manifest, path)| (manifest.files, path));
        Before { path, files: files.into_iter().map(|file| (file.path.clone(), file)).collect() }
    }

    /// The file with the same rows.
    fn same(&self, path: &str, bytes: u64, index_crc: Option<u32>) -> Option<&BackupFile> {
        self.files.get(path).filter(|file| file.bytes == bytes && index_crc.is_some() && file.index_crc == index_crc)
    }
}

fn add(
    disk: &dyn Disk,
    stage: &Path,
    draft: &Path,
    file: &Path,
    rows: &HashMap<String, u32>,
    before: &Before,
    made: &mut Made,
) -> std::io::Result<BackupFile> {
    let path = file.to_string_lossy().into_owned();
    let index_crc = rows.get(&path).copied().filter(|&crc| crc != 0);
    let (from, to) = (stage.join(file), draft.join(file));
    make_folders(disk, draft, file)?;
    let bytes = disk.open(&from, host::Open::Read)?.len()?;
    if let Some(same) = before.same(&path, bytes, index_crc)
        && disk.hard_link(&before.path.join(file), &to).is_ok()
    {
        made.linked += 1;
        return Ok(same.clone());
    }
    // Only files of rows never change: a link to another would change with it.
    let is_link = index_crc.is_some() && link_or_copy(disk, &from, &to)?;
    let (bytes, sha256) = if index_crc.is_some() { hash(disk, &to)? } else { copy(disk, &from, &to)? };
    if is_link {
        made.linked += 1;
    } else {
        made.copied_bytes += bytes;
    }
    Ok(BackupFile { path, bytes, sha256, index_crc })
}
