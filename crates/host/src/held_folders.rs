//! Folders that a process keeps using by their paths, and that an operator may move away or remove meanwhile.
//!
//! Files are found by paths. If the data folder is renamed and a restored one takes its place, the next flush would write
//! into the restored folder, and remove the journal that it came with. So a held folder stays open, and every call on a path in it
//! first compares the folder at the path with the open one. A folder that another process took is not written to any more.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, RwLock},
};

use crate::{DirEntry, Disk, DiskFile, Open, SettledSyncs};

/// The machine's file system, except that calls fail on paths in a held folder once another folder, or none, is at its path.
/// A clone shares the folders.
#[derive(Debug, Clone)]
pub struct HeldFolders {
    disk: Arc<dyn Disk>,
    held: Arc<RwLock<Vec<Held>>>,
    /// A folder that is not written to any more, and why.
    refused: Arc<OnceLock<(PathBuf, String)>>,
}

#[derive(Debug)]
struct Held {
    path: PathBuf,
    /// Device and number of the folder.
    id: (u64, u64),
    /// As long as it is open, no other folder gets its number.
    _folder: File,
}

impl HeldFolders {
    /// Holds no folder yet.
    pub fn new(disk: Arc<dyn Disk>) -> HeldFolders {
        HeldFolders { disk, held: Arc::default(), refused: Arc::default() }
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        let held = self.held.read().expect("no holder panics");
        for folder in held.iter().filter(|folder| path.starts_with(&folder.path)) {
            let is_same = match fs::metadata(&folder.path) {
                Ok(found) => (found.dev(), found.ino()) == folder.id,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            };
            if !is_same {
                return Err(io::Error::other(format!(
                    "the folder {} was moved away or removed while the program uses it; stop the program, put the folder back, \
                     and start it again",
                    folder.path.display()
                )));
            }
        }
        Ok(())
    }
}

impl HeldFolders {
    /// As [`HeldFolders::check`], of a call that writes.
    fn check_write(&self, path: &Path) -> io::Result<()> {
        self.check_refused(path)?;
        self.check(path)
    }

    /// One load where nothing is refused: each record of the journal asks.
    fn check_refused(&self, path: &Path) -> io::Result<()> {
        match self.refused.get() {
            Some((folder, why)) if path.starts_with(folder) => Err(io::Error::other(why.clone())),
            _ => Ok(()),
        }
    }
}

impl Disk for HeldFolders {
    fn refuse_writes(&self, path: &Path, why: &str) {
        let _ = self.refused.set((path.to_owned(), why.to_owned()));
    }

    fn settle_syncs(&self, data: &Path) -> io::Result<SettledSyncs> {
        self.check_write(data)?;
        self.disk.settle_syncs(data)
    }

    fn hold(&self, path: &Path) -> io::Result<()> {
        let folder = File::open(path)?;
        let found = folder.metadata()?;
        self.held.write().expect("no holder panics").push(Held {
            path: path.to_owned(),
            id: (found.dev(), found.ino()),
            _folder: folder,
        });
        Ok(())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        match how {
            Open::Read => self.check(path)?,
            Open::Create | Open::CreateNew | Open::ReadWrite => self.check_write(path)?,
        }
        let file = self.disk.open(path, how)?;
        Ok(match how {
            Open::Read => file,
            Open::Create | Open::CreateNew | Open::ReadWrite => {
                Box::new(HeldFile { file, path: path.into(), folders: self.clone() })
            }
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check_write(path)?;
        self.disk.create_dir_all(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        self.disk.make_private(path)
    }

    fn is_readable_by_others(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_readable_by_others(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.check(path)?;
        self.disk.read_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_write(from)?;
        self.check_write(to)?;
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check_write(path)?;
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check_write(path)?;
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.disk.sync_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(from)?;
        self.check_refused(to)?;
        self.disk.hard_link(from, to)
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool> {
        self.check(one)?;
        self.check(other)?;
        self.disk.is_same_file(one, other)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }

    fn capacity(&self, path: &Path) -> io::Result<u64> {
        self.disk.capacity(path)
    }

    fn is_there(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_there(path)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonicalize(path)
    }
}

/// An open file that is written. A sync says whether it is still where it was.
#[derive(Debug)]
struct HeldFile {
    file: Box<dyn DiskFile>,
    path: Box<Path>,
    folders: HeldFolders,
}

impl Read for HeldFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Write for HeldFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.folders.check_refused(&self.path)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for HeldFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl DiskFile for HeldFile {
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()> {
        self.folders.check_refused(&self.path)?;
        self.file.write_shared(bytes)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn forget_cached(&self, offset: u64, len: u64) {
        self.file.forget_cached(offset, len);
    }

    fn data_from(&self, offset: u64) -> u64 {
        self.file.data_from(offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.folders.check_write(&self.path)?;
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.folders.check_write(&self.path)?;
        self.file.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.folders.check_refused(&self.path)?;
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SystemDisk, replace_file};

    #[test]
    fn nothing_is_written_to_a_folder_whose_writes_are_refused_and_it_is_read() {
        let data = tempfile::tempdir().unwrap();
        let disk = HeldFolders::new(Arc::new(SystemDisk));
        disk.hold(data.path()).unwrap();
        let (a, b) = (data.path().join("a"), data.path().join("b"));
        let file = disk.open(&a, Open::CreateNew).unwrap();
        file.write_shared(b"1").unwrap();
        disk.refuse_writes(data.path(), "another process uses it");
        for result in [
            file.write_shared(b"2"),
            file.sync_data(),
            file.set_len(0),
            disk.open(&b, Open::Create).map(drop),
            disk.rename(&a, &b),
            disk.remove_file(&a),
            disk.hard_link(&a, &b),
        ] {
            assert_eq!(result.unwrap_err().to_string(), "another process uses it");
        }
        assert_eq!(disk.read(&a).unwrap(), b"1");
        assert_eq!(disk.read_dir(data.path()).unwrap().len(), 1);
    }

    #[test]
    fn nothing_is_written_to_a_folder_that_took_the_place_of_a_held_one() {
        let above = tempfile::tempdir().unwrap();
        let (data, old) = (above.path().join("data"), above.path().join("old"));
        fs::create_dir(&data).unwrap();
        let disk = HeldFolders::new(Arc::new(SystemDisk));
        disk.hold(&data).unwrap();
        let file = disk.open(&data.join("open"), Open::CreateNew).unwrap();
        file.sync_data().unwrap();
        replace_file(&disk, &data.join("a"), b"1").unwrap();

        fs::rename(&data, &old).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), "2").unwrap();
        let error = replace_file(&disk, &data.join("a"), b"3").unwrap_err().to_string();
        assert!(error.contains("was moved away or removed"), "{error}");
        assert!(disk.remove_file(&data.join("a")).is_err() && disk.read(&data.join("a")).is_err());
        assert!(file.sync_data().is_err(), "a record in it is not promised");
        assert_eq!(fs::read_to_string(data.join("a")).unwrap(), "2");
        replace_file(&disk, &above.path().join("data.toml"), b"4").unwrap();

        fs::remove_dir_all(&data).unwrap();
        assert!(disk.create_dir_all(&data.join("store")).is_err() && !data.exists());
        fs::rename(&old, &data).unwrap();
        file.sync_data().unwrap();
        assert_eq!(disk.read(&data.join("a")).unwrap(), b"1", "it is back");
    }
}
