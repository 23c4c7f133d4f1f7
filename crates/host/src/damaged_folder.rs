//! The folder `damaged/`: files and bytes that could not be read as what they should be. The program deletes nothing
//! in it.
//!
//! ```text
//! damaged/store_names_00000001.log               a file that was moved here; ~1, ~2, … where the name is taken
//! damaged/journal_00000001.journal~whole         a file that its disk does not return whole now, or with many damaged places; a link.
//!                                                Another one of that name has ~1~whole, ~2~whole, …
//! damaged/store_names_00000001.log+8192@1a2b3c4d bytes that were copied from this offset of a file, and their CRC-32
//! damaged/list                                   a line for each: when, name, bytes, why
//! ```

use std::{
    collections::HashMap,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Clock, DirEntry, Disk, Host, Open, replace_file, retried};

/// Lines of `list` are not added beyond this size; the files still are.
const LONGEST_LIST: u64 = 4 << 20;

/// Places of one file that are copied. Each costs an fsync; with more, the whole file is kept, as a link.
const MOST_PLACES: u32 = 64;

/// Keeps what is damaged, in `damaged/` of the data folder. A clone is the same folder.
#[derive(Debug, Clone)]
pub struct DamagedFolder {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    data: PathBuf,
    dir: PathBuf,
    /// Copies of places of each file, since the start.
    copied: Arc<Mutex<HashMap<PathBuf, u32>>>,
}

impl DamagedFolder {
    /// The folder of a data folder; made when something is put in it.
    pub fn new(host: &Host, data: &Path) -> DamagedFolder {
        DamagedFolder {
            disk: host.disk.clone(),
            clock: host.clock.clone(),
            data: data.to_owned(),
            dir: data.join("damaged"),
            copied: Arc::default(),
        }
    }

    /// Moves a file or folder of the data folder here, durably. Returns its name relative to the data folder.
    pub fn move_in(&self, path: &Path, why: &str) -> io::Result<String> {
        self.make()?;
        let flat = self.flat_name(path);
        let mut name = flat.clone();
        for copy in 1.. {
            if !retried(|| self.disk.is_there(&self.dir.join(&name)))? {
                break;
            }
            name = format!("{flat}~{copy}");
        }
        self.disk.rename(path, &self.dir.join(&name))?;
        self.disk.sync_dir(&self.dir)?;
        self.disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        self.note(&name, None, why);
        Ok(format!("damaged/{name}"))
    }

    /// Keeps a file of the data folder as it is when its name goes: as another link to it, without reading it. The same file
    /// is kept once. Returns the name of the link relative to the data folder.
    pub fn keep_file(&self, path: &Path, why: &str) -> io::Result<String> {
        self.make()?;
        let flat = self.flat_name(path);
        let mut name = format!("{flat}~whole");
        for copy in 1.. {
            let kept = self.dir.join(&name);
            if !retried(|| self.disk.is_there(&kept))? {
                self.disk.hard_link(path, &kept)?;
                self.disk.sync_dir(&self.dir)?;
                self.note(&name, None, why);
                break;
            }
            if self.disk.is_same_file(path, &kept)? {
                break;
            }
            name = format!("{flat}~{copy}~whole");
        }
        Ok(format!("damaged/{name}"))
    }

    /// Keeps a copy of the bytes at an offset of a file, durably. The same bytes are kept once, also when the next start
    /// finds them again. Of a file with very many such places the whole is kept instead, as a link. Returns the name of the
    /// copy or link relative to the data folder.
    pub fn keep_bytes(&self, path: &Path, offset: u64, bytes: &[u8], why: &str) -> io::Result<String> {
        self.make()?;
        let name = format!("{}+{offset}@{:08x}", self.flat_name(path), crc32fast::hash(bytes));
        let kept = self.dir.join(&name);
        if self.disk.exists(&kept) {
            return Ok(format!("damaged/{name}"));
        }
        if !self.has_whole_of_another(path)
            && self.has_many_places(path)
            && let Ok(link) = self.keep_file(path, "many places of it are damaged; the whole file is kept")
        {
            return Ok(link);
        }
        replace_file(&*self.disk, &kept, bytes)?;
        self.note(&name, Some(bytes.len()), why);
        Ok(format!("damaged/{name}"))
    }

    /// Keeps what is lost with a file that is not there, in words. Returns the name of the note relative to the data folder.
    pub fn keep_note(&self, path: &Path, what: &str) -> io::Result<String> {
        self.keep_note_of(path, 0, what)
    }

    /// As [`DamagedFolder::keep_note`], with the bytes that the file had at least, which the name of the note says.
    pub fn keep_note_of(&self, path: &Path, bytes: u64, what: &str) -> io::Result<String> {
        let note = path.with_extension("missing");
        self.keep_bytes(&note, bytes, format!("{}: {what}\n", self.flat_name(path)).as_bytes(), what)
    }

    /// Whether the whole file that is kept under the name of this one is another, as from before a repair wrote it again.
    fn has_whole_of_another(&self, path: &Path) -> bool {
        let kept = self.dir.join(format!("{}~whole", self.flat_name(path)));
        self.disk.is_same_file(path, &kept).is_ok_and(|is_same| !is_same)
    }

    /// Counts a place of a file. Returns whether it has more than are copied, since this start or an earlier one.
    fn has_many_places(&self, path: &Path) -> bool {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        let places = copied.entry(path.to_owned()).or_default();
        *places += 1;
        MOST_PLACES < *places || self.disk.exists(&self.dir.join(format!("{}~whole", self.flat_name(path))))
    }

    /// Files and folders that are kept, and the bytes of the files.
    pub fn usage(&self) -> io::Result<(u64, u64)> {
        let kept = self.kept()?;
        Ok((kept.len() as u64, kept.iter().map(|entry| entry.len).sum()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Whether it is there: it is made with the first file in it.
    pub fn is_there(&self) -> bool {
        self.disk.exists(&self.dir)
    }

    /// The files and folders that are kept, but for the list.
    pub fn kept(&self) -> io::Result<Vec<DirEntry>> {
        match retried(|| self.disk.read_dir(&self.dir)) {
            // One that is there and cannot be found when it is listed may have anything.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_there() => Ok(Vec::new()),
            entries => Ok(entries?.into_iter().filter(|entry| entry.name != "list").collect()),
        }
    }

    /// Gives a file that is kept another name, durably. Returns it.
    pub fn rename(&self, name: &str, to: &str, why: &str) -> io::Result<String> {
        let mut free = to.to_owned();
        for copy in 1.. {
            if !retried(|| self.disk.is_there(&self.dir.join(&free)))? {
                break;
            }
            free = format!("{to}~{copy}");
        }
        self.disk.rename(&self.dir.join(name), &self.dir.join(&free))?;
        self.disk.sync_dir(&self.dir)?;
        self.note(&free, None, why);
        Ok(free)
    }

    fn make(&self) -> io::Result<()> {
        if self.disk.exists(&self.dir) {
            return Ok(());
        }
        self.disk.create_dir_all(&self.dir)?;
        self.disk.sync_dir(&self.data)
    }

    /// `store/names/1.log` of the data folder as `store_names_1.log`.
    fn flat_name(&self, path: &Path) -> String {
        flat_name(path.strip_prefix(&self.data).unwrap_or(path))
    }

    /// Adds a line to `list`. The bytes are safe without it, so that an error is not one of the caller's.
    fn note(&self, name: &str, bytes: Option<usize>, why: &str) {
        let bytes = bytes.map_or_else(|| "moved".to_owned(), |bytes| format!("{bytes} bytes"));
        let line = format!("{} {name}: {bytes}: {}\n", self.clock.now(), why.replace('\n', " "));
        let add = || -> io::Result<()> {
            let mut list = self.disk.open(&self.dir.join("list"), Open::ReadWrite)?;
            if list.seek(SeekFrom::End(0))? < LONGEST_LIST {
                list.write_all(line.as_bytes())?;
            }
            Ok(())
        };
        let _ = add();
    }
}

/// A path as one name.
pub(crate) fn flat_name(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    // Names end at 255 bytes, and others are added.
    let mut name: String = parts.join("_").chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    while name.len() > 180 {
        name.pop();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_bytes_are_kept_under_names_of_their_own() {
        let data = tempfile::tempdir().unwrap();
        let host = Host::system();
        let folder = DamagedFolder::new(&host, data.path());
        assert_eq!(folder.usage().unwrap(), (0, 0));
        let path = data.path().join("store/names/1.log");
        host.disk.create_dir_all(path.parent().unwrap()).unwrap();
        for (contents, name) in [("one", "damaged/store_names_1.log"), ("two", "damaged/store_names_1.log~1")] {
            replace_file(&*host.disk, &path, contents.as_bytes()).unwrap();
            assert_eq!(folder.move_in(&path, "a test says so").unwrap(), name);
            assert_eq!(host.disk.read_to_string(&data.path().join(name)).unwrap(), contents);
            assert!(!host.disk.exists(&path));
        }
        let copy = folder.keep_bytes(&path, 4096, b"xyz", "it is damaged").unwrap();
        assert_eq!(folder.keep_bytes(&path, 4096, b"xyz", "it is damaged").unwrap(), copy);
        assert_ne!(folder.keep_bytes(&path, 4096, b"xy", "it is damaged").unwrap(), copy);
        assert_eq!(host.disk.read(&data.path().join(copy)).unwrap(), b"xyz");
        replace_file(&*host.disk, &path, b"whole").unwrap();
        let link = folder.keep_file(&path, "it cannot be read").unwrap();
        assert_eq!(
            (&*link, folder.keep_file(&path, "nor now").unwrap()),
            ("damaged/store_names_1.log~whole", link.clone())
        );
        host.disk.remove_file(&path).unwrap();
        assert_eq!(host.disk.read(&data.path().join(link)).unwrap(), b"whole");
        assert_eq!(folder.usage().unwrap(), (5, 16));
        let list = host.disk.read_to_string(&data.path().join("damaged/list")).unwrap();
        assert_eq!(list.lines().count(), 5, "{list}");
    }

    #[test]
    fn a_file_with_many_damaged_places_is_kept_whole() {
        let data = tempfile::tempdir().unwrap();
        let host = Host::system();
        let path = data.path().join("1.log");
        replace_file(&*host.disk, &path, &[7; 4096]).unwrap();
        for start in 0..2 {
            let folder = DamagedFolder::new(&host, data.path());
            let kept: Vec<_> =
                (0..1000).map(|at| folder.keep_bytes(&path, at, &[7], "it is damaged").unwrap()).collect();
            let whole = kept.iter().filter(|name| *name == "damaged/1.log~whole").count();
            assert_eq!((whole, folder.usage().unwrap().0), (1000 - 64, 65), "start {start}");
        }
        assert_eq!(host.disk.read_to_string(&data.path().join("damaged/list")).unwrap().lines().count(), 65);
        // A repair writes the file again without its damage, and that is damaged later.
        replace_file(&*host.disk, &path, &[8; 4000]).unwrap();
        let folder = DamagedFolder::new(&host, data.path());
        let kept = folder.keep_bytes(&path, 0, &[8], "it is damaged").unwrap();
        assert_eq!((host.disk.read(&data.path().join(kept)).unwrap(), folder.usage().unwrap().0), (vec![8], 66));
        // A path without a file cannot be linked: its bytes are copied.
        let folder = DamagedFolder::new(&host, data.path());
        (0..100).for_each(|at| drop(folder.keep_bytes(&data.path().join("none"), at, &[7], "it is damaged").unwrap()));
        assert_eq!(folder.usage().unwrap().0, 166);
    }
}
