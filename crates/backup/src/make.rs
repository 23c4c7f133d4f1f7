//! A backup made of one moment that is staged as links.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, replace_file};
use ingest::wal::copy_what_can_be;
use store_embedded::DamagedPart;

use crate::{
    error::BackupError,
    files::{below, copy, hash, make_folders, sync_folders},
    folder_lock,
    manifest::{self, BackupFile, Manifest},
    pace::Pace,
    read_once::read_rows,
    segments,
    verify::{Checked, Report, SEGMENT, check, compare_parts, log_of},
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
    /// Files that cannot be read in part, or at all. What can be read of them is in the backup.
    pub damaged: Vec<Checked>,
    /// Files of the backup before, by whole path, that are not what was written there. This backup has them from the data
    /// folder.
    pub damaged_before: Vec<Checked>,
}

/// What a backup has, besides the files.
pub(crate) struct Moment {
    /// Everything accepted until then, Unix seconds.
    pub(crate) at: i64,
    pub(crate) store: u128,
    /// Checksums of the indexes of files of rows, by path.
    pub(crate) rows: HashMap<String, u32>,
    /// Files of rows and segments of the journal that the node misses, by path.
    pub(crate) missing: Vec<PathBuf>,
    /// Files of logs and of the journal that the disk did not return whole when they were copied, and how many bytes of each are zeros.
    pub(crate) unread: Vec<(PathBuf, u64)>,
}

/// Makes the next backup in `dir`, which must exist, of the files in `stage`: those of a data folder at one moment. Until
/// the last step the folder of the backup has another name. One backup at a time is made in a folder, of whichever server. What an interrupted backup left is removed by the next, and what
/// a failed one left at once.
pub(crate) fn make(
    disk: &dyn Disk,
    stage: &Path,
    dir: &Path,
    moment: &Moment,
    pace: &Arc<Pace>,
) -> Result<Made, BackupError> {
    let _lock = folder_lock::of_backups(disk, dir)?;
    let entries = disk.read_dir(dir).map_err(BackupError::io("reading", dir))?;
    let before = Before::of(disk, dir, moment.store)?;
    for left in entries.iter().filter(|entry| manifest::is_unfinished(entry.name.to_str())) {
        disk.remove_dir_all(&left.path)
            .map_err(BackupError::io("removing what an interrupted backup left", &left.path))?;
    }
    let last = entries.iter().filter_map(|entry| manifest::number(entry.name.to_str()?)).max().unwrap_or(0);
    let name = manifest::name(last + 1);
    let (path, draft) = (dir.join(&name), dir.join(format!("{name}.{}", manifest::UNFINISHED)));
    let made = Making { disk, stage, draft: &draft, moment, before: &before, pace, torn: RefCell::default() }.run(path);
    if made.is_err() && disk.exists(&draft) {
        // It takes up room, and the disk may be full.
        let _ = disk.remove_dir_all(&draft);
    }
    made
}

/// The newest backup before whose `backup.json` can be read, where there is one.
struct Before {
    path: PathBuf,
    files: HashMap<String, BackupFile>,
    /// Later ones.
    unreadable: Vec<Checked>,
}

impl Before {
    fn of(disk: &dyn Disk, dir: &Path, store: u128) -> Result<Before, BackupError> {
        let mut before = Before { path: PathBuf::new(), files: HashMap::new(), unreadable: Vec::new() };
        let mut all = manifest::all(disk, dir).unwrap_or_default();
        let (manifest, path) = loop {
            let Some((_, path)) = all.pop() else { return Ok(before) };
            match Manifest::read(disk, &path) {
                Ok(manifest) => break (manifest, path),
                Err(error) => before.unreadable.push(unlike(path.join(manifest::FILE), 0, error.to_string())),
            }
        };
        if manifest.store != manifest::store_text(store) {
            return Err(BackupError::Folder(format!(
                "{} is of the store {}, and this server has the store {}; name a folder for the backups of this server alone",
                path.display(),
                manifest.store,
                manifest::store_text(store)
            )));
        }
        before.path = path;
        before.files = manifest.files.into_iter().map(|file| (file.path.clone(), file)).collect();
        Ok(before)
    }

    /// The file that may have the same rows.
    fn like(&self, path: &str, bytes: u64, index_crc: Option<u32>) -> Option<&BackupFile> {
        self.files.get(path).filter(|file| file.bytes == bytes && index_crc.is_some() && file.index_crc == index_crc)
    }

    /// Reads a file: `backup.json` says what was written, and not what a disk has made of it since.
    fn compare(&self, disk: &dyn Disk, file: &BackupFile) -> Result<(), Checked> {
        let path = self.path.join(&file.path);
        match hash(disk, &path) {
            Ok((bytes, sha256)) if (bytes, &sha256) == (file.bytes, &file.sha256) => Ok(()),
            Ok((bytes, _)) if bytes != file.bytes => {
                Err(unlike(path, bytes, format!("{} bytes are expected", file.bytes)))
            }
            Ok((bytes, _)) => Err(unlike(path, bytes, "its SHA-256 is not that of backup.json".to_owned())),
            Err(error) => Err(unlike(path, 0, error.to_string())),
        }
    }
}

fn unlike(path: PathBuf, bytes: u64, how: String) -> Checked {
    Checked { path, bytes, faults: vec![DamagedPart::of_file("file of a backup", bytes, how)], ..Checked::default() }
}

/// A backup that is being made.
struct Making<'a> {
    disk: &'a dyn Disk,
    stage: &'a Path,
    draft: &'a Path,
    moment: &'a Moment,
    before: &'a Before,
    pace: &'a Arc<Pace>,
    /// Segments that end like a write that a crash cut off.
    torn: RefCell<Vec<Checked>>,
}

impl Making<'_> {
    fn run(&self, path: PathBuf) -> Result<Made, BackupError> {
        let (disk, stage, draft) = (self.disk, self.stage, self.draft);
        disk.create_dir_all(draft).map_err(BackupError::io("making", draft))?;
        let manifest = Manifest::new(self.moment.at, self.moment.store, Vec::new());
        let damaged_before = self.before.unreadable.clone();
        let mut made = Made { path, manifest, linked: 0, copied_bytes: 0, damaged: Vec::new(), damaged_before };
        let staged = below(disk, stage).map_err(BackupError::io("reading", stage))?;
        let mut failed = Vec::new();
        for file in &staged {
            match self.add(file, &mut made) {
                Ok(added) => made.manifest.files.push(added),
                Err(error) if self.is_of_rows(file) || segments::is_one(file) => {
                    tracing::warn!(%error, file = %file.display(), "a file cannot be put into the backup; trying again at its end");
                    failed.push(file);
                }
                Err(error) => return Err(BackupError::io("writing", &self.draft.join(file))(error)),
            }
        }
        // Reads that fail for a moment cost nothing.
        for file in failed {
            self.remove_part(file)?;
            match self.add(file, &mut made) {
                Ok(added) => made.manifest.files.push(added),
                Err(error) if self.is_of_rows(file) => self.leave_out(file, error, &mut made)?,
                Err(error) => {
                    let added = self.add_part(file, error, &mut made)?;
                    made.manifest.files.push(added);
                }
            }
        }
        let staged: BTreeSet<PathBuf> = staged.into_iter().collect();
        let rows = self.moment.rows.keys().map(PathBuf::from).filter(|path| !staged.contains(path));
        let missing: BTreeSet<PathBuf> = rows.chain(self.moment.missing.iter().cloned()).collect();
        for path in missing {
            let is_segment = segments::has_number(&path);
            if is_segment {
                let (note, text) = segments::note_of_gone(&path);
                made.manifest.files.push(self.write_note(&note, &text)?);
            }
            let what = if segments::is_one(&path) { SEGMENT } else { "file of rows" };
            let faults =
                vec![DamagedPart::of_file(what, 0, "it is missing or cannot be read, and the backup lacks it")];
            made.damaged.push(Checked { path, faults, ..Checked::default() });
        }
        self.report_unread(&mut made)?;
        let has = |path: &str| made.manifest.files.iter().any(|file| file.path == path);
        let lacking = made.damaged.iter().map(|file| file.path.to_string_lossy().into_owned());
        made.manifest.lacking = lacking.filter(|path| !has(path)).collect::<BTreeSet<_>>().into_iter().collect();
        made.manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.compare(&mut made)?;
        self.check_files(&made.manifest)?;
        let seal = || {
            // Before the manifest: where it is, everything that it names is.
            sync_folders(disk, draft)?;
            replace_file(disk, &draft.join(manifest::FILE), made.manifest.clone().text().as_bytes())?;
            disk.rename(draft, &made.path)?;
            let folder = made.path.parent().unwrap_or(Path::new("."));
            disk.sync_dir(folder)?;
            // Who made the folder for the backups may not have synced that; it need not be one that this process may read.
            match folder.parent().map_or(Ok(()), |above| disk.sync_dir(above)) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
                _ => Ok(()),
            }
        };
        seal().map_err(BackupError::io("writing", &made.path))?;
        Ok(made)
    }

    /// Reports what only a comparison of files shows: logs and segments that have lost their end, or whose others are missing.
    fn compare(&self, made: &mut Made) -> Result<(), BackupError> {
        let mut report = Report { files: self.torn.take(), ..Report::default() };
        compare_parts(self.disk, self.draft, self.moment.store, &mut report)?;
        let lacking = |path: &Path| made.manifest.lacking.iter().any(|one| segments::first_of(Path::new(one)) == path);
        for found in report.files.into_iter().filter(|found| !found.faults.is_empty() && !lacking(&found.path)) {
            // What is wrong with its bytes, or with a file of its folder, is said.
            if !made.damaged.iter().any(|file| file.path.starts_with(&found.path)) {
                made.damaged.push(found);
            }
        }
        Ok(())
    }

    /// Where folders cannot be locked, another server may have taken this backup for an interrupted one.
    ///
    /// # Errors
    /// A file is missing, or is not of the length that was written.
    fn check_files(&self, manifest: &Manifest) -> Result<(), BackupError> {
        for file in &manifest.files {
            let path = self.draft.join(&file.path);
            let bytes = self.disk.open(&path, host::Open::Read).and_then(|there| there.len());
            let bytes = bytes.map_err(BackupError::io("looking once more at what was written to", &path))?;
            if bytes != file.bytes {
                return Err(BackupError::Folder(format!(
                    "{} has {bytes} bytes, and {} were written to it: another program writes to this folder; name a folder for the backups of this server alone",
                    path.display(),
                    file.bytes
                )));
            }
        }
        Ok(())
    }

    /// Goes on without a file of rows that the disk cannot read: everything else is worth a backup.
    fn leave_out(&self, file: &Path, error: io::Error, made: &mut Made) -> Result<(), BackupError> {
        let (from, to) = (self.stage.join(file), self.draft.join(file));
        let Err(unreadable) = hash(self.disk, &from) else { return Err(BackupError::io("writing", &to)(error)) };
        self.remove_part(file)?;
        let how = format!("{unreadable}; the file is not in the backup");
        let faults = vec![DamagedPart::of_file("file of rows", 0, how)];
        made.damaged.push(Checked { path: file.to_owned(), faults, ..Checked::default() });
        Ok(())
    }

    /// Goes on with what the disk returns of a segment of the journal.
    fn add_part(&self, file: &Path, error: io::Error, made: &mut Made) -> Result<BackupFile, BackupError> {
        let (from, to) = (self.stage.join(file), self.draft.join(file));
        self.remove_part(file)?;
        let failed = BackupError::io("writing", &to);
        if hash(self.disk, &from).is_ok() {
            // It cannot be written, or could not be read for a moment again.
            return self.add(file, made).map_err(|_| failed(error));
        }
        let copied = copy_what_can_be(self.disk, &from, &to).and_then(|unread| Ok((unread, hash(self.disk, &to)?)));
        let (unread, (bytes, sha256)) = copied.map_err(failed)?;
        made.copied_bytes += bytes;
        let checked = check(self.disk, self.draft, Some(self.moment.store), file.to_owned());
        made.damaged.extend((!checked.faults.is_empty()).then_some(checked));
        self.report_zeros(file, unread, &format!("{error}; {}", segments::UNREAD), made)?;
        let path = file.to_string_lossy().into_owned();
        Ok(BackupFile { path, bytes, sha256, index_crc: None })
    }

    /// Reports a segment that has zeros in the place of so many bytes, once it was checked.
    fn report_zeros(&self, file: &Path, unread: u64, how: &str, made: &mut Made) -> Result<(), BackupError> {
        let part = DamagedPart::of_file(SEGMENT, unread, how.to_owned());
        match made.damaged.iter_mut().find(|checked| checked.path == file) {
            Some(checked) => checked.faults.push(part),
            None => {
                // A start takes zeros at the end for a write that was cut off.
                made.manifest.files.push(self.note_unread(file, unread)?);
                made.damaged.push(Checked { path: file.to_owned(), faults: vec![part], ..Checked::default() });
            }
        }
        Ok(())
    }

    /// Has each start of the restored store report the segment.
    fn note_unread(&self, file: &Path, unread: u64) -> Result<BackupFile, BackupError> {
        let (note, text) = segments::note(file, unread);
        self.write_note(&note, &text)
    }

    fn write_note(&self, note: &Path, text: &str) -> Result<BackupFile, BackupError> {
        let to = self.draft.join(note);
        let written = make_folders(self.disk, self.draft, note)
            .and_then(|()| replace_file(self.disk, &to, text.as_bytes()))
            .and_then(|()| hash(self.disk, &to));
        let (bytes, sha256) = written.map_err(BackupError::io("writing", &to))?;
        Ok(BackupFile { path: note.to_string_lossy().into_owned(), bytes, sha256, index_crc: None })
    }

    /// Reports the logs and segments that could not be read whole when they were copied, also where the zeros look like the end of a
    /// write.
    fn report_unread(&self, made: &mut Made) -> Result<(), BackupError> {
        for (path, bytes) in &self.moment.unread {
            if segments::is_one(path) {
                self.report_zeros(path, *bytes, segments::UNREAD, made)?;
                continue;
            }
            let how = "the disk does not return them now, and zeros are in their place in the backup: a restored store reports it";
            let part = DamagedPart::of_file(log_of(path).unwrap_or("log"), *bytes, how);
            match made.damaged.iter_mut().find(|file| file.path == *path) {
                Some(file) => file.faults.push(part),
                None => made.damaged.push(Checked { path: path.clone(), faults: vec![part], ..Checked::default() }),
            }
        }
        Ok(())
    }

    fn is_of_rows(&self, file: &Path) -> bool {
        self.moment.rows.contains_key(&*file.to_string_lossy())
    }

    /// Removes what is there of a file that could not be put into the backup.
    fn remove_part(&self, file: &Path) -> Result<(), BackupError> {
        let to = self.draft.join(file);
        if self.disk.exists(&to) {
            self.disk.remove_file(&to).map_err(BackupError::io("removing", &to))?;
        }
        Ok(())
    }

    /// Links a file of rows of the backup before, if that still is what was written.
    fn link_before(&self, same: &BackupFile, to: &Path, made: &mut Made) -> bool {
        let compared = self.before.compare(self.disk, same);
        self.pace.took(same.bytes);
        if let Err(damaged) = compared {
            made.damaged_before.push(damaged);
            return false;
        }
        self.disk.hard_link(&self.before.path.join(&same.path), to).is_ok()
    }

    fn add(&self, file: &Path, made: &mut Made) -> io::Result<BackupFile> {
        let disk = self.disk;
        let path = file.to_string_lossy().into_owned();
        let index_crc = self.moment.rows.get(&path).copied().filter(|&crc| crc != 0);
        let (from, to) = (self.stage.join(file), self.draft.join(file));
        make_folders(disk, self.draft, file)?;
        let bytes = disk.open(&from, host::Open::Read)?.len()?;
        if let Some(like) = self.before.like(&path, bytes, index_crc) {
            // Of another time line it may have other values: after a restore the numbers of flushes come again.
            let read = read_rows(disk, &from, None, self.pace)?;
            if read.sha256 == like.sha256 && self.link_before(like, &to, made) {
                let checked = Checked::of_rows(file.to_owned(), read.bytes, read.report);
                made.damaged.extend((!checked.faults.is_empty()).then_some(checked));
                made.linked += 1;
                return Ok(like.clone());
            }
        }
        let (bytes, sha256, checked) = match index_crc {
            Some(_) => self.add_rows(file, &from, &to, made)?,
            None => {
                let (bytes, sha256) = copy(disk, &from, &to)?;
                self.pace.took(bytes);
                made.copied_bytes += bytes;
                (bytes, sha256, check(disk, self.draft, Some(self.moment.store), file.to_owned()))
            }
        };
        if 0 < checked.cut_off && checked.faults.is_empty() {
            self.torn.borrow_mut().push(checked.clone());
        }
        // As what it is: damage is not a reason to have no backup.
        made.damaged.extend((!checked.faults.is_empty()).then_some(checked));
        Ok(BackupFile { path, bytes, sha256, index_crc })
    }

    /// Links a file of rows, or copies it where the folders are on different file systems. Only files of rows never change: a
    /// link to another would change with it.
    fn add_rows(&self, file: &Path, from: &Path, to: &Path, made: &mut Made) -> io::Result<(u64, String, Checked)> {
        let read = match self.disk.hard_link(from, to) {
            Ok(()) => {
                let read = read_rows(self.disk, to, None, self.pace)?;
                made.linked += 1;
                read
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {
                let read = read_rows(self.disk, from, Some(to), self.pace)?;
                made.copied_bytes += read.bytes;
                read
            }
        };
        Ok((read.bytes, read.sha256, Checked::of_rows(file.to_owned(), read.bytes, read.report)))
    }
}
