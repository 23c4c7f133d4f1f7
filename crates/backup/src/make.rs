//! A backup made of one moment that is staged as links.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use host::{Disk, replace_file};
use store_embedded::DamagedPart;

use crate::{
    error::BackupError,
    files::{below, copy, hash, link_or_copy, make_folders, sync_folders},
    manifest::{self, BackupFile, Manifest},
    verify::{Checked, check},
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
    /// New files that cannot be read in part, or at all. What can be read of them is in the backup.
    pub damaged: Vec<Checked>,
}

/// What a backup has, besides the files.
pub(crate) struct Moment {
    /// Everything accepted until then, Unix seconds.
    pub(crate) at: i64,
    pub(crate) store: u128,
    /// Checksums of the indexes of files of rows, by path.
    pub(crate) rows: HashMap<String, u32>,
}

/// Makes the next backup in `dir`, which must exist, of the files in `stage`: those of a data folder at one moment. Until
/// the last step the folder of the backup has another name. What an interrupted backup left is removed by the next, and what
/// a failed one left at once.
pub(crate) fn make(disk: &dyn Disk, stage: &Path, dir: &Path, moment: &Moment) -> Result<Made, BackupError> {
    let entries = disk.read_dir(dir).map_err(BackupError::io("reading", dir))?;
    let before = Before::of(disk, dir, moment.store)?;
    for left in entries.iter().filter(|entry| is_unfinished(entry.name.to_str())) {
        disk.remove_dir_all(&left.path)
            .map_err(BackupError::io("removing what an interrupted backup left", &left.path))?;
    }
    let last = entries.iter().filter_map(|entry| manifest::number(entry.name.to_str()?)).max().unwrap_or(0);
    let name = manifest::name(last + 1);
    let (path, draft) = (dir.join(&name), dir.join(format!("{name}.{}", manifest::UNFINISHED)));
    let made = Making { disk, stage, draft: &draft, rows: &moment.rows, before: &before }.run(path, moment);
    if made.is_err() && disk.exists(&draft) {
        // It takes up room, and the disk may be full.
        let _ = disk.remove_dir_all(&draft);
    }
    made
}

fn is_unfinished(name: Option<&str>) -> bool {
    name.and_then(|name| name.rsplit_once('.'))
        .is_some_and(|(name, ending)| ending == manifest::UNFINISHED && manifest::number(name).is_some())
}

/// The backup before, where there is one.
struct Before {
    path: PathBuf,
    files: HashMap<String, BackupFile>,
}

impl Before {
    fn of(disk: &dyn Disk, dir: &Path, store: u128) -> Result<Before, BackupError> {
        let before = manifest::all(disk, dir).ok().and_then(|mut all| all.pop());
        let read = before.and_then(|(_, path)| Some((Manifest::read(disk, &path).ok()?, path)));
        let Some((manifest, path)) = read else { return Ok(Before { path: PathBuf::new(), files: HashMap::new() }) };
        if manifest.store != manifest::store_text(store) {
            return Err(BackupError::Folder(format!(
                "{} is of the store {}, and this server has the store {}; name a folder for the backups of this server alone",
                path.display(),
                manifest.store,
                manifest::store_text(store)
            )));
        }
        Ok(Before { path, files: manifest.files.into_iter().map(|file| (file.path.clone(), file)).collect() })
    }

    /// The file with the same rows.
    fn same(&self, path: &str, bytes: u64, index_crc: Option<u32>) -> Option<&BackupFile> {
        self.files.get(path).filter(|file| file.bytes == bytes && index_crc.is_some() && file.index_crc == index_crc)
    }
}

/// A backup that is being made.
struct Making<'a> {
    disk: &'a dyn Disk,
    stage: &'a Path,
    draft: &'a Path,
    rows: &'a HashMap<String, u32>,
    before: &'a Before,
}

impl Making<'_> {
    fn run(&self, path: PathBuf, moment: &Moment) -> Result<Made, BackupError> {
        let (disk, stage, draft) = (self.disk, self.stage, self.draft);
        disk.create_dir_all(draft).map_err(BackupError::io("making", draft))?;
        let manifest = Manifest::new(moment.at, moment.store, Vec::new());
        let mut made = Made { path, manifest, linked: 0, copied_bytes: 0, damaged: Vec::new() };
        for file in below(disk, stage).map_err(BackupError::io("reading", stage))? {
            match self.add(&file, &mut made) {
                Ok(added) => made.manifest.files.push(added),
                Err(error) => self.leave_out(&file, error, &mut made)?,
            }
        }
        self.check_new(moment.store, &mut made);
        let seal = || {
            // Before the manifest: where it is, everything that it names is.
            sync_folders(disk, draft)?;
            replace_file(disk, &draft.join(manifest::FILE), made.manifest.clone().text().as_bytes())?;
            disk.rename(draft, &made.path)?;
            disk.sync_dir(made.path.parent().unwrap_or(Path::new(".")))
        };
        seal().map_err(BackupError::io("writing", &made.path))?;
        Ok(made)
    }

    /// Goes on without a file of rows that the disk cannot read: everything else is worth a backup.
    fn leave_out(&self, file: &Path, error: std::io::Error, made: &mut Made) -> Result<(), BackupError> {
        let (from, to) = (self.stage.join(file), self.draft.join(file));
        let is_of_rows = self.rows.contains_key(&*file.to_string_lossy());
        let unreadable = hash(self.disk, &from).err().filter(|_| is_of_rows);
        let Some(unreadable) = unreadable else { return Err(BackupError::io("writing", &to)(error)) };
        if self.disk.exists(&to) {
            self.disk.remove_file(&to).map_err(BackupError::io("removing", &to))?;
        }
        let how = format!("{unreadable}; the file is not in the backup");
        let faults = vec![DamagedPart::of_file("file of rows", 0, how)];
        made.damaged.push(Checked { path: file.to_owned(), bytes: 0, records: 0, cut_off: 0, faults });
        Ok(())
    }

    /// Reads the files that the backup before does not have as what they are: damage is not a reason to have no backup.
    fn check_new(&self, store: u128, made: &mut Made) {
        for file in &made.manifest.files {
            if self.before.same(&file.path, file.bytes, file.index_crc).is_none() {
                let checked = check(self.disk, self.draft, Some(store), PathBuf::from(&file.path));
                made.damaged.extend((!checked.faults.is_empty()).then_some(checked));
            }
        }
    }

    fn add(&self, file: &Path, made: &mut Made) -> std::io::Result<BackupFile> {
        let disk = self.disk;
        let path = file.to_string_lossy().into_owned();
        let index_crc = self.rows.get(&path).copied().filter(|&crc| crc != 0);
        let (from, to) = (self.stage.join(file), self.draft.join(file));
        make_folders(disk, self.draft, file)?;
        let bytes = disk.open(&from, host::Open::Read)?.len()?;
        if let Some(same) = self.before.same(&path, bytes, index_crc)
            && disk.hard_link(&self.before.path.join(file), &to).is_ok()
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
}
