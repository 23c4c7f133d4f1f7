//! Whether a data folder may be used: not while a restore into it is incomplete, and not if a later version of the program
//! wrote to it. Then nothing of it is changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, Open};
use store_embedded::NewerFile;

use crate::{error::BackupError, manifest};

/// The folder in an existing data folder that has the files of a restore until all are there.
pub(crate) const RESTORING: &str = ".restoring";

/// Files of a data folder that a start reads, and whose loss it would report.
const FILES: [&str; 11] = [
    "clock",
    "names",
    "names-read",
    "rechecks",
    "seen",
    "segments",
    "unsynced",
    "write-clock",
    "writer",
    "store/spec",
    "store/manifest",
];

/// Folders of a data folder.
const FOLDERS: [&str; 6] = ["journal", "store", "store/names", "store/events", "damaged", "trash"];

/// Versions of segments of the journal that this program reads.
const OF_JOURNAL: &str = "versions 1 and 2";

/// Whether a server may open a data folder.
///
/// # Errors
/// It is a backup, a restore into it was interrupted, a later version wrote part of it, or this user may not read a file of it.
pub fn may_start(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    manifest::refuse_unfinished(disk, data)?;
    if disk.exists(&data.join(manifest::FILE)) {
        return Err(BackupError::Folder(format!(
            "{data} is a backup ({file} is there), which a server would change: restore it into an empty folder, `plumbago restore {data} \
             FOLDER`, and start there; where {data} is a copy that need not stay one, remove {file} from it",
            data = data.display(),
            file = manifest::FILE,
        )));
    }
    let has_store = disk.exists(&data.join("store"));
    if let Some(newest) = newest_backup(disk, data).or_else(|| manifest::unfinished(disk, data)).filter(|_| !has_store)
    {
        return Err(BackupError::Folder(format!(
            "{} has backups, such as {}: a server there would make a store next to them; name another data folder",
            data.display(),
            newest.display()
        )));
    }
    let restoring = data.join(RESTORING);
    if disk.exists(&restoring) {
        return Err(BackupError::Folder(format!(
            "{} is there: a restore into this folder was interrupted; empty the folder and restore again",
            restoring.display()
        )));
    }
    let draft = draft_of(data);
    if disk.exists(&draft) && !disk.exists(&data.join("store")) {
        return Err(BackupError::Folder(format!(
            "{} is there, and {} has no store: a restore to this folder was interrupted; restore again, or remove the first \
             folder to start without points",
            draft.display(),
            data.display()
        )));
    }
    refuse_forbidden(disk, data)?;
    refuse_other_kinds(disk, data)?;
    refuse_newer(disk, data)
}

/// Refuses a data folder in which a folder is in the place of a file, or a file in the place of a folder: a start cannot go on without
/// these, and cannot move what an operator has put there.
///
/// # Errors
/// There is such a one.
pub(crate) fn refuse_other_kinds(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    let wrong = |path: &Path, is: &str, must_be: &str| {
        let text = format!("{} is {is} and must be {must_be}; nothing was changed: move it away", path.display());
        Err(BackupError::Folder(text))
    };
    for path in FILES.map(|file| data.join(file)) {
        if disk.exists(&path) && disk.read_dir(&path).is_ok() {
            return wrong(&path, "a folder", "a file");
        }
    }
    for path in FOLDERS.map(|folder| data.join(folder)) {
        if matches!(disk.read_dir(&path), Err(error) if error.kind() == io::ErrorKind::NotADirectory) {
            return wrong(&path, "not a folder", "one");
        }
    }
    Ok(())
}

/// The newest complete backup in a folder: it is one of backups, and no data folder.
pub fn newest_backup(disk: &dyn Disk, folder: &Path) -> Option<PathBuf> {
    manifest::all(disk, folder).ok()?.pop().map(|(_, path)| path)
}

/// Refuses a data folder in which another user's process wrote last: what may not be read is not damaged.
///
/// # Errors
/// There is such a file.
pub(crate) fn refuse_forbidden(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    let in_journal = disk.read_dir(&data.join("journal")).unwrap_or_default().into_iter().filter(|entry| !entry.is_dir);
    for path in FILES.map(|file| data.join(file)).into_iter().chain(in_journal.map(|entry| entry.path)) {
        if let Err(error) = disk.open(&path, Open::Read)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(BackupError::io("opening", &path)(error));
        }
    }
    let lock = data.join("store/lock");
    // It is written to.
    match disk.exists(&lock).then(|| disk.open(&lock, Open::ReadWrite)) {
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(BackupError::io("opening", &lock)(error))
        }
        _ => Ok(()),
    }
}

/// The folder next to a missing data folder that has the files of a restore until all are there.
pub(crate) fn draft_of(data: &Path) -> PathBuf {
    // Without a slash or `/.` at the end.
    let mut draft = data.components().collect::<PathBuf>().into_os_string();
    draft.push(".unfinished");
    PathBuf::from(draft)
}

/// Refuses a data folder, or a backup of one, in which a file has a later version than this program reads. Reads the first
/// bytes of each file.
///
/// # Errors
/// [`BackupError::Newer`], and whatever the disk says to a list of a folder.
pub(crate) fn refuse_newer(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    let newer = |file: NewerFile| {
        let NewerFile { path, found, reads } = file;
        Err(BackupError::Newer { path, found, reads })
    };
    let store = data.join("store");
    let found = store_embedded::newer_file(disk, &store);
    if let Some(file) = found.map_err(|(path, error)| BackupError::io("reading", &path)(error))? {
        return newer(file);
    }
    let journal = data.join("journal");
    let segment = ingest::wal::newer_segment(disk, &journal).map_err(BackupError::io("reading", &journal))?;
    if let Some((path, version)) = segment {
        return newer(NewerFile { path, found: format!("version {version}"), reads: OF_JOURNAL.to_owned() });
    }
    if let Some((path, version)) = ingest::wal::newer_newest(disk, data) {
        return newer(NewerFile { path, found: format!("version {version}"), reads: "version 1".to_owned() });
    }
    let path = data.join("clock");
    // One that cannot be read is met again, and then dealt with.
    if let Some((version, reads)) = host::newer_mark(disk, &path).unwrap_or(None) {
        return newer(NewerFile { path, found: format!("version {version}"), reads: format!("version {reads}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    use host::{Call, FailingDisk, SimulatedDisk, SystemDisk};

    use super::*;

    #[test]
    fn a_backup_is_not_a_data_folder() {
        let disk = SimulatedDisk::new();
        disk.create_dir_all(Path::new("/backups/backup-000001/store")).unwrap();
        let start = || may_start(&disk, Path::new("/backups/backup-000001")).map_err(|error| error.to_string());
        assert!(start().is_ok());
        disk.open(Path::new("/backups/backup-000001/backup.json"), Open::Create).unwrap();
        let error = start().unwrap_err();
        assert!(error.contains("`plumbago restore /backups/backup-000001 FOLDER`"), "{error}");
        disk.create_dir_all(Path::new("/backups/backup-000002.unfinished/store")).unwrap();
        let error = may_start(&disk, Path::new("/backups/backup-000002.unfinished")).unwrap_err().to_string();
        assert!(error.contains("is of an interrupted backup or restore"), "{error}");
        let start = || may_start(&disk, Path::new("/backups")).map_err(|error| error.to_string());
        let error = start().unwrap_err();
        assert!(error.starts_with("/backups has backups, such as /backups/backup-000001"), "{error}");
        disk.create_dir_all(Path::new("/backups/store")).unwrap();
        assert!(start().is_ok(), "it has points already");
        disk.create_dir_all(Path::new("/first/backup-000001.unfinished/store")).unwrap();
        let error = may_start(&disk, Path::new("/first")).unwrap_err().to_string();
        assert!(error.starts_with("/first has backups, such as /first/backup-000001.unfinished"), "{error}");
        disk.open(Path::new("/first/backup-000001.unfinished/backup.json"), Open::Create).unwrap();
        let error = may_start(&disk, Path::new("/first/backup-000001.unfinished")).unwrap_err().to_string();
        assert!(
            error.contains("is of an interrupted backup or restore"),
            "restore takes it no more than a start: {error}"
        );
    }

    #[test]
    fn a_file_or_folder_that_the_user_may_not_read_refuses_the_start_and_says_which_it_is() {
        let disk = SimulatedDisk::new();
        let window = "/data/store/datapoints_10080p_60s_0/14166";
        disk.create_dir_all(Path::new(window)).unwrap();
        disk.create_dir_all(Path::new("/data/store/names")).unwrap();
        disk.create_dir_all(Path::new("/data/journal")).unwrap();
        let rows = format!("{window}/1-1.rows");
        let files = ["/data/store/lock", "/data/store/names/00000001.log", "/data/journal/00000001.journal", &rows];
        files.iter().for_each(|file| drop(disk.open(Path::new(file), Open::Create).unwrap()));
        may_start(&disk, Path::new("/data")).unwrap();
        for (denied, call) in files.map(|file| (file, Call::Open)).into_iter().chain([(window, Call::ReadDir)]) {
            let denied = denied.to_owned();
            let path = denied.clone();
            let disk = FailingDisk::new(Arc::new(disk.clone()), move |is, at| {
                (is == call && at == Path::new(&path)).then(|| io::ErrorKind::PermissionDenied.into())
            });
            let error = may_start(&disk, Path::new("/data")).unwrap_err().to_string();
            assert!(error.contains(&format!("{denied}: ")), "{denied}: {error}");
            assert!(error.contains("must be able to read and write there"), "{denied}: {error}");
        }
    }

    #[test]
    fn the_folder_of_a_window_that_the_disk_does_not_list_refuses_no_start() {
        let (disk, window) = (SimulatedDisk::new(), "/data/store/datapoints_10080p_60s_0/14166");
        disk.create_dir_all(Path::new(window)).unwrap();
        disk.create_dir_all(Path::new("/data/store/names")).unwrap();
        let bad = FailingDisk::new(Arc::new(disk.clone()), move |call, at| {
            (call == Call::ReadDir && at == Path::new(window)).then(|| io::Error::other("a bad sector"))
        });
        may_start(&bad, Path::new("/data")).unwrap();
        // Nor does an error that passes, of any folder.
        for failing in 0..8 {
            let calls = AtomicU32::new(0);
            let passing = FailingDisk::new(Arc::new(disk.clone()), move |call, at| {
                let is_due =
                    call == Call::ReadDir && at.starts_with("/data/store") && calls.fetch_add(1, Relaxed) == failing;
                is_due.then(|| io::ErrorKind::Interrupted.into())
            });
            may_start(&passing, Path::new("/data")).unwrap_or_else(|error| panic!("{failing}: {error}"));
        }
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_or_a_file_in_the_place_of_a_folder_is_refused_by_name() {
        for (place, is_folder) in [("segments", true), ("store/spec", true), ("damaged", false), ("journal", false)] {
            let data = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(data.path().join("store")).unwrap();
            may_start(&SystemDisk, data.path()).unwrap();
            let path = data.path().join(place);
            let made = if is_folder { std::fs::create_dir(&path) } else { std::fs::write(&path, "text") };
            made.unwrap();
            let error = may_start(&SystemDisk, data.path()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} is ", path.display())) && error.contains("move it away"), "{error}");
        }
    }

    #[test]
    fn an_unfinished_folder_is_refused_under_a_path_that_does_not_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let (unfinished, link) = (folder.path().join("data.unfinished"), folder.path().join("link"));
        std::fs::create_dir_all(unfinished.join("store")).unwrap();
        std::os::unix::fs::symlink(&unfinished, &link).unwrap();
        for path in [unfinished.join("."), link] {
            let error = may_start(&SystemDisk, &path).unwrap_err().to_string();
            assert!(error.contains("is of an interrupted backup or restore"), "{error}");
        }
    }

    #[test]
    fn an_interrupted_restore_refuses_its_folder_in_every_spelling() {
        let disk = SimulatedDisk::new();
        disk.create_dir_all(Path::new("/of/data.unfinished")).unwrap();
        for data in ["/of/data", "/of/data/", "/of/data/.", "/of//./data/"] {
            let error = may_start(&disk, Path::new(data)).map_err(|error| error.to_string());
            assert!(error.is_err_and(|error| error.contains("restore again")), "{data}");
        }
        assert!(may_start(&disk, Path::new("/of/other/")).is_ok());
    }
}
