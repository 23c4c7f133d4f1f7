//! The file system.

use std::{
    ffi::OsString,
    fmt::Debug,
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    num::NonZeroU64,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// For reading; it must exist.
    Read,
    /// For writing from the start; made if absent, emptied if present.
    Create,
    /// For writing at the end; it must not exist yet.
    CreateNew,
    /// For reading and writing where it exists or not, contents kept.
    ReadWrite,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name within the directory.
    pub name: OsString,
    /// Directory and name.
    pub path: PathBuf,
    /// Whether it is a directory itself.
    pub is_dir: bool,
    /// Bytes, of a file.
    pub len: u64,
    /// When it was last written to, Unix seconds, where the disk keeps that.
    pub modified: Option<i64>,
}

/// An open file. Dropping it closes it.
pub trait DiskFile: Read + Write + Seek + Debug + Send + Sync + 'static {
    /// Appends or writes at the cursor through a shared reference, as `&File` does.
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()>;
    /// Fills `bytes` from an offset; the cursor stays.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Asks the system to forget what it has of these bytes in memory, so that the next read comes from the disk. A hint.
    fn forget_cached(&self, _offset: u64, _len: u64) {}
    /// An offset from here on before which all bytes are zeros that take no room on the disk; the length where only such
    /// follow. A file system that cannot tell returns the offset.
    fn data_from(&self, offset: u64) -> u64 {
        offset
    }
    /// Puts the contents on the disk, and what of the metadata is needed to read them.
    fn sync_data(&self) -> io::Result<()>;
    /// Puts contents and metadata on the disk.
    fn sync_all(&self) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Whether this file is still what is at a path. A file system that cannot tell says yes.
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
    /// Takes the file's exclusive lock; false where another process has it. Closing the file gives it back.
    fn try_lock(&self) -> io::Result<bool>;
}

/// What became of the files whose last sync had failed.
#[derive(Debug, Default)]
pub struct SettledSyncs {
    /// Whether these are all files of the folder, because too many syncs had failed.
    pub is_all: bool,
    /// Those that were written again, and are on the disk.
    pub written: Vec<PathBuf>,
    /// Those that cannot be read whole, or folders that cannot be listed, and why. They stay as they are, and noted.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// A file system. Errors are the system's own; callers say what they were doing.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// From now on calls on paths in this directory may fail once another directory, or none, is at its path.
    fn hold(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Writes files in this data folder again whose last sync failed, in a process before this one, and notes those whose sync
    /// fails from now on. The caller has the folder's lock, and has opened nothing in it to write. A file system that keeps no
    /// note has nothing to write again.
    ///
    /// # Errors
    /// A file cannot be written again. All stay noted.
    fn settle_syncs(&self, _data: &Path) -> io::Result<SettledSyncs> {
        Ok(SettledSyncs::default())
    }
    /// From now on calls that write below this directory may fail, for this reason: another process uses it.
    fn refuse_writes(&self, _path: &Path, _why: &str) {}
    /// Makes a directory and those above it.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Takes all rights on a directory from everyone but its owner.
    fn make_private(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Whether users other than its owner and those of its group may read a file.
    fn is_readable_by_others(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// Lists a directory, in no order.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Gives a file another name, replacing what has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything below it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Puts a directory's entries on the disk: what was created, renamed or removed in it.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must not exist yet. Both are the same bytes; removing one leaves the other.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Whether two names are links to one file.
    ///
    /// # Errors
    /// Whatever the system says, as where one is not there.
    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool>;
    /// Bytes that a process without privileges may still write to the file system of a path.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Bytes of the file system of a path, used and free.
    fn capacity(&self, path: &Path) -> io::Result<u64> {
        self.free_bytes(path)
    }
    /// Whether something is there.
    ///
    /// # Errors
    /// Whatever the system says, but that nothing is there.
    fn is_there(&self, path: &Path) -> io::Result<bool>;
    /// Whether something is there, or may be: an error counts as yes. What the disk cannot show for a moment must not be
    /// taken for gone.
    fn exists(&self, path: &Path) -> bool {
        self.is_there(path).unwrap_or(true)
    }
    /// The absolute path without symbolic links.
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf>;

    /// The whole contents of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_whole(&mut *self.open(path, Open::Read)?, u64::MAX)
    }

    /// The whole contents of a file that holds text.
    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        String::from_utf8(self.read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Reads a file from its cursor to its end, or so many bytes.
///
/// # Errors
/// Whatever the disk says, or that it returned fewer bytes than the file has: that is a read that failed, and not the end of
/// the data.
pub fn read_whole(file: &mut dyn DiskFile, most: u64) -> io::Result<Vec<u8>> {
    let (at, len) = (file.stream_position()?, file.len()?);
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let expected = len.saturating_sub(at).min(most);
    if (bytes.len() as u64) < expected { Err(early_end(bytes.len() as u64, expected)) } else { Ok(bytes) }
}

/// A read that ended before the end of its file, as of a network disk that does not say that it failed.
pub(crate) fn early_end(read: u64, expected: u64) -> io::Error {
    io::Error::other(format!("the disk returned {read} bytes of {expected}"))
}

/// What a read of so many bytes from an offset on means that met the end of the file: that the file is shorter, or that the
/// disk did not return the rest of it.
pub(crate) fn judge_end(error: io::Error, file: &dyn DiskFile, offset: u64, bytes: usize) -> io::Error {
    let end = offset.saturating_add(bytes as u64);
    let is_early = error.kind() == io::ErrorKind::UnexpectedEof && file.len().is_ok_and(|len| end <= len);
    if is_early { early_end(0, bytes as u64) } else { error }
}

/// Replaces a file so that a crash leaves the old contents or the new ones, and that the new ones are on the disk
/// afterwards: written to `PATH.new`, synced, renamed, and the directory synced.
pub fn replace_file(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    replace_file_with(disk, path, |file| file.write_all(contents))
}

/// As [`replace_file`], for contents that `write` writes piece by piece. After an error the old contents stay.
pub fn replace_file_with(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&mut dyn DiskFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    replace_by_draft(disk, path, Path::new(&draft), write)
}

/// As [`replace_file_with`], with a draft of another name in the same directory.
pub(crate) fn replace_by_draft(
    disk: &dyn Disk,
    path: &Path,
    draft: &Path,
    write: impl FnOnce(&mut dyn DiskFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = disk.open(draft, Open::Create)?;
    write(&mut *file)?;
    file.sync_all()?;
    disk.rename(draft, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// The machine's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl DiskFile for File {
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset).map_err(|error| judge_end(error, self, offset, bytes.len()))
    }

    fn forget_cached(&self, offset: u64, len: u64) {
        // No length is all that follows. A system that does not know the call reads from its memory.
        let len = NonZeroU64::new(len).filter(|len| len.get() <= i64::MAX as u64);
        let _ = rustix::fs::fadvise(self, offset, len, rustix::fs::Advice::DontNeed);
    }

    fn data_from(&self, offset: u64) -> u64 {
        // Through a descriptor of its own, because a seek would move the cursor of those who write.
        let Ok(file) = File::open(format!("/proc/self/fd/{}", self.as_raw_fd())) else { return offset };
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(found) => found,
            Err(rustix::io::Errno::NXIO) => DiskFile::len(self).map_or(offset, |len| len.max(offset)),
            Err(_) => offset,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let ours = self.metadata()?;
        match fs::metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        match File::try_lock(self) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Disk for SystemDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut options = fs::OpenOptions::new();
        match how {
            Open::Read => options.read(true),
            Open::Create => options.write(true).create(true).truncate(true),
            Open::CreateNew => options.append(true).create_new(true),
            Open::ReadWrite => options.read(true).write(true).create(true).truncate(false),
        };
        Ok(Box::new(options.open(path)?))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    fn is_readable_by_others(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o004 != 0)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        list(path, fs::DirEntry::metadata)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // "" is how Path says "here".
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool> {
        let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        Ok(id(one)? == id(other)?)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn capacity(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    fn is_there(&self, path: &Path) -> io::Result<bool> {
        // Nothing is under a file, and nothing has a name that is too long.
        let is_impossible =
            |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::NAMETOOLONG));
        match path.try_exists() {
            Err(error) if is_impossible(&error) => Ok(false),
            result => result,
        }
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }
}

/// Lists of a directory from which entries disappear while they are read, before the last one counts.
const MOST_LISTS: u32 = 3;

/// Lists a directory. An entry that is listed and not found was removed since, and is not in another list; or a disk of the
/// network said so once of one that is there.
fn list(path: &Path, look: impl Fn(&fs::DirEntry) -> io::Result<fs::Metadata>) -> io::Result<Vec<DirEntry>> {
    let mut lists = 1;
    loop {
        let (mut entries, mut are_gone) = (Vec::new(), false);
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let mut metadata = match look(&entry) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    are_gone = true;
                    continue;
                }
                metadata => metadata?,
            };
            if metadata.is_symlink() {
                // What is read is what it leads to. One that leads nowhere is as long as its own text.
                metadata = fs::metadata(entry.path()).unwrap_or(metadata);
            }
            entries.push(DirEntry {
                name: entry.file_name(),
                path: entry.path(),
                is_dir: metadata.is_dir(),
                len: metadata.len(),
                modified: Some(metadata.mtime()),
            });
        }
        if !are_gone || lists == MOST_LISTS {
            return Ok(entries);
        }
        lists += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("writer");
        for text in ["1", "22"] {
            replace_file(&SystemDisk, &path, text.as_bytes()).unwrap();
            assert_eq!(SystemDisk.read_to_string(&path).unwrap(), text);
        }
        let names: Vec<_> = SystemDisk.read_dir(dir.path()).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["writer"]);
    }

    #[test]
    fn an_entry_that_is_not_found_once_is_listed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        ["one", "two"].iter().for_each(|name| fs::write(dir.path().join(name), name).unwrap());
        let names = |failing: u32| {
            let left = std::cell::Cell::new(failing);
            let listed = list(dir.path(), |entry| {
                if entry.file_name() == "one" && 0 < left.get() {
                    left.set(left.get() - 1);
                    return Err(io::ErrorKind::NotFound.into());
                }
                entry.metadata()
            });
            let mut names: Vec<_> = listed.unwrap().into_iter().map(|entry| entry.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(0), ["one", "two"]);
        assert_eq!(names(2), ["one", "two"]);
        assert_eq!(names(3), ["two"], "removed");
    }

    #[test]
    fn a_link_is_listed_as_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), [0; 5000]).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["file", "folder", "nothing"] {
            std::os::unix::fs::symlink(path(name), path(&format!("to-{name}"))).unwrap();
        }
        let listed = SystemDisk.read_dir(dir.path()).unwrap();
        let of = |name: &str| listed.iter().find(|entry| entry.name == name).map(|entry| (entry.is_dir, entry.len));
        assert_eq!((of("to-file"), of("file")), (Some((false, 5000)), Some((false, 5000))));
        assert!(of("to-folder").unwrap().0 && !of("to-nothing").unwrap().0);
    }

    #[test]
    fn a_private_folder_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        SystemDisk.make_private(dir.path()).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn a_file_says_whether_others_may_read_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, others_may) in [(0o600, false), (0o640, false), (0o644, true), (0o004, true)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(SystemDisk.is_readable_by_others(file.path()).unwrap(), others_may, "{mode:o}");
        }
    }

    #[test]
    fn zeros_without_room_on_the_disk_are_skipped_and_no_cursor_moves() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = SystemDisk.open(&dir.path().join("a"), Open::ReadWrite).unwrap();
        file.write_all(b"abc").unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!((file.data_from(0), file.data_from(1 << 20), file.data_from(1 << 41)), (0, 1 << 40, 1 << 41));
        let far = SystemDisk.open(&dir.path().join("a"), Open::ReadWrite).unwrap();
        file.write_all(b"d").unwrap();
        let mut bytes = [0; 4];
        far.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"abcd");
    }

    #[test]
    fn a_file_knows_whether_another_took_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        let file = SystemDisk.open(&path, Open::ReadWrite).unwrap();
        assert!(file.is_at(&path).unwrap());
        fs::rename(&path, &other).unwrap();
        assert!(!file.is_at(&path).unwrap() && file.is_at(&other).unwrap());
        fs::write(&path, "").unwrap();
        assert!(!file.is_at(&path).unwrap());
    }

    #[test]
    fn what_the_system_cannot_show_counts_as_there() {
        let dir = tempfile::tempdir().unwrap();
        let (file, circle) = (dir.path().join("a"), dir.path().join("circle"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        assert!(SystemDisk.is_there(&circle).is_err() && SystemDisk.exists(&circle));
        for (path, is_there) in [
            (file.clone(), true),
            (dir.path().join("b"), false),
            (file.join("under a file"), false),
            (dir.path().join("a".repeat(300)), false),
        ] {
            assert_eq!(SystemDisk.is_there(&path).unwrap(), is_there, "{}", path.display());
            assert_eq!(SystemDisk.exists(&path), is_there, "{}", path.display());
        }
    }

    #[test]
    fn a_lock_is_held_until_its_file_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = SystemDisk.open(&path, Open::ReadWrite).unwrap();
        assert!(first.try_lock().unwrap());
        let second = SystemDisk.open(&path, Open::ReadWrite).unwrap();
        assert!(!second.try_lock().unwrap());
        drop(first);
        assert!(second.try_lock().unwrap());
    }
}
