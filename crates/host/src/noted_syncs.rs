//! Files whose last sync failed, noted for the process that comes next.
//!
//! After a sync that failed, Linux marks the pages clean: they can be read, are not on the disk, and the next sync succeeds
//! without writing them. The process that met the failure does not use the file again. The next one on the same kernel
//! cannot see that anything happened, so:
//!
//! 1. The path of a file whose sync fails goes into the file `unsynced` of the data folder, one path a line, relative to the
//!    folder. The note is not synced: the next process on this kernel reads it as it was written, and after a power cut
//!    what can be read of the files is what the disk has.
//! 2. A start writes each of these files again, before it opens anything else: a synced copy takes its place.
//! 3. Then it empties the note. A path that stays there costs one more copy at a later start, and nothing else.
//!
//! The note is opened at the start and filled up with empty lines, so that a disk that takes no new file or block any more
//! can still take a path. Where it takes none, the path waits in memory, and each later sync tries again.
//!
//! At [`MOST`] files, or [`LONG`] bytes of paths, the note becomes one line for all files of the folder, in the place of its first
//! path: it needs no room. The next start writes every file of the folder again then, however long that takes.
//!
//! Folders are not noted: file systems with a journal either have their entries or fail altogether.

use std::{
    collections::BTreeSet,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{
    DirEntry, Disk, DiskFile, Open, SettledSyncs,
    disk::{early_end, read_whole, replace_by_draft},
    retried::retried,
};

/// The note, in the data folder.
pub const NOTE: &str = "unsynced";

/// Bytes of a note without a path: room that the disk has given.
const ROOM: usize = 4096;

/// Bytes of a note at which it is written without the files that are gone, and of paths that are noted.
const LONG: u64 = 1 << 20;

/// Files that are noted. A disk that fails leaves a few: what cannot be synced is removed, written again, or the last of its
/// kind. Beyond, all files of the folder are.
const MOST: usize = 20_000;

/// The line of a note for all files of the folder. No file has this path.
const ALL: &str = "/";

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// Another disk, with a note of the files whose last sync failed. A clone shares the note.
#[derive(Debug, Clone)]
pub struct NotedSyncs {
    disk: Arc<dyn Disk>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    note: Mutex<Note>,
    /// Whether paths are not in the file yet.
    is_behind: AtomicBool,
}

#[derive(Debug, Default)]
struct Note {
    /// The data folder. Before a start has settled its syncs, nothing is noted.
    data: Option<PathBuf>,
    /// The open note, and bytes of it that have paths.
    file: Option<Box<dyn DiskFile>>,
    end: u64,
    /// Files whose last sync failed, relative to the data folder.
    noted: BTreeSet<PathBuf>,
    /// Bytes of their lines.
    bytes: u64,
    /// Whether these are too many: any file of the folder may be one.
    is_all: bool,
    /// Whether the file says so.
    is_all_written: bool,
    /// Those that are not in the file yet.
    behind: Vec<PathBuf>,
}

impl NotedSyncs {
    /// Notes nothing before [`Disk::settle_syncs`].
    pub fn new(disk: Arc<dyn Disk>) -> NotedSyncs {
        NotedSyncs { disk, shared: Arc::default() }
    }

    fn note(&self) -> MutexGuard<'_, Note> {
        self.shared.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sync of this file failed.
    fn failed(&self, path: &Path) {
        let mut note = self.note();
        let Some(path) = note.relative(path) else { return };
        note.add(path);
        self.catch_up(&mut note);
    }

    /// Writes the paths that are not in the file yet.
    fn catch_up(&self, note: &mut Note) {
        let is_behind = note.is_behind() && note.write_behind(&*self.disk).is_err();
        self.shared.is_behind.store(is_behind, Relaxed);
    }

    /// Passes the result of a sync on.
    fn synced(&self, path: &Path, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.failed(path);
        } else if self.shared.is_behind.load(Relaxed) {
            self.catch_up(&mut self.note());
        }
        result
    }
}

impl Note {
    /// The path of a file of the data folder in it.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix(self.data.as_ref()?).ok()?;
        (relative != Path::new(NOTE)).then(|| relative.to_owned())
    }

    /// Notes a file, or all of them once these are too many, or its path is not a line of text.
    fn add(&mut self, path: PathBuf) {
        if self.is_all || self.noted.contains(&path) {
            return;
        }
        let bytes = self.bytes + line_bytes(&path);
        let is_line = path.to_str().is_some_and(|text| !text.contains('\n'));
        if is_line && self.noted.len() < MOST && bytes <= LONG {
            self.noted.insert(path.clone());
            self.behind.push(path);
            self.bytes = bytes;
            return;
        }
        self.is_all = true;
        self.noted.clear();
        self.behind.clear();
    }

    /// Notes a file no more. Returns whether it was noted.
    fn remove(&mut self, path: &Path) -> bool {
        let was_noted = self.noted.remove(path);
        self.bytes -= if was_noted { line_bytes(path) } else { 0 };
        was_noted
    }

    /// Whether a file of the data folder is noted.
    fn has(&self, path: &Path) -> bool {
        self.is_all || self.noted.contains(path)
    }

    fn is_behind(&self) -> bool {
        !self.behind.is_empty() || self.is_all && !self.is_all_written
    }

    fn write_behind(&mut self, disk: &dyn Disk) -> io::Result<()> {
        let Some(path) = self.data.as_ref().map(|data| data.join(NOTE)) else { return Ok(()) };
        let added = lines(&self.behind);
        // Paths of files that are gone are left out. Where that does not work, the note is longer for a while.
        if !self.is_all && LONG < self.end + added.len() as u64 && self.write_shorter(disk, &path).is_ok() {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(disk.open(&path, Open::ReadWrite)?);
        }
        let file = self.file.as_mut().expect("it was opened");
        if self.is_all {
            // What follows is read as paths, and does no harm.
            file.seek(SeekFrom::Start(0))?;
            file.write_all(format!("{ALL}\n").as_bytes())?;
            self.is_all_written = true;
            return Ok(());
        }
        if LONGEST < self.end + added.len() as u64 {
            // A start would not read so much.
            self.is_all = true;
            self.behind.clear();
            return self.write_behind(disk);
        }
        file.seek(SeekFrom::Start(self.end))?;
        file.write_all(added.as_bytes())?;
        self.end += added.len() as u64;
        self.behind.clear();
        Ok(())
    }

    fn write_shorter(&mut self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let (draft, text) = (path.with_extension("new"), lines(&self.noted));
        let mut file = disk.open(&draft, Open::Create)?;
        file.write_all(text.as_bytes())?;
        disk.rename(&draft, path)?;
        (self.file, self.end) = (Some(file), text.len() as u64);
        self.behind.clear();
        Ok(())
    }

    /// Opens the note, and reads what is in it.
    fn open(&mut self, disk: &dyn Disk, data: &Path) -> io::Result<NotedFiles> {
        *self = Note { data: Some(data.to_owned()), ..Note::default() };
        let path = data.join(NOTE);
        let is_new = !disk.exists(&path);
        let mut file = match retried(|| disk.open(&path, Open::ReadWrite)) {
            // A full disk, or one that is read only, takes no file. The next failed sync tries again.
            Err(_) if is_new => return Ok(NotedFiles::default()),
            opened => opened?,
        };
        let read = retried(|| {
            file.seek(SeekFrom::Start(0))?;
            read_whole(&mut *file, LONGEST)
        });
        (self.end, self.file) = (file.len()?, Some(file));
        let noted = parse(&read?, self.end);
        if noted.is_empty() && self.end == ROOM as u64 {
            self.end = 0;
        }
        Ok(noted)
    }

    /// The note has these paths and no other from now on, or all files. Where that fails, it has them besides others.
    fn keep(&mut self, left: BTreeSet<PathBuf>, is_all: bool) {
        self.noted.clear();
        (self.bytes, self.is_all, self.is_all_written) = (0, is_all, false);
        left.into_iter().for_each(|path| self.add(path));
        self.behind.clear();
        let mut text = if self.is_all { format!("{ALL}\n") } else { lines(&self.noted) };
        let end = text.len() as u64;
        let Some(file) = self.file.as_mut() else { return };
        let len = file.len().unwrap_or(self.end);
        if self.end == 0 && end == 0 && len == ROOM as u64 {
            return;
        }
        // Over the old ones first: a kill may leave some of them.
        text.extend(std::iter::repeat_n('\n', (len as usize).max(ROOM).saturating_sub(text.len())));
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes()));
        self.is_all_written = self.is_all && written.is_ok();
        self.end = if written.is_ok() { end } else { text.len() as u64 };
        if ROOM < text.len() {
            // Empty lines more, where it fails.
            let _ = file.set_len(end.max(ROOM as u64));
        }
    }
}

/// Bytes of a note that are read.
const LONGEST: u64 = 2 * LONG;

/// The files that a note has, which is so long.
fn parse(bytes: &[u8], len: u64) -> NotedFiles {
    let text = String::from_utf8_lossy(bytes);
    if LONGEST < len || text.lines().next() == Some(ALL) {
        return NotedFiles::All;
    }
    let is_below = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    // A power cut may leave zeros: the note is not synced.
    let paths = text.lines().filter(|line| !line.is_empty() && !line.contains('\0')).map(PathBuf::from);
    NotedFiles::Some(paths.filter(|path| is_below(path)).collect())
}

/// Files of a data folder that the next start writes again, because their last sync failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotedFiles {
    /// These, by their paths in the folder. Some may be gone.
    Some(BTreeSet<PathBuf>),
    /// All files of the folder: too many are concerned.
    All,
}

impl Default for NotedFiles {
    fn default() -> NotedFiles {
        NotedFiles::Some(BTreeSet::new())
    }
}

impl NotedFiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self, NotedFiles::Some(paths) if paths.is_empty())
    }

    /// Those that the note of a data folder has, which stays as it is.
    pub fn read(disk: &dyn Disk, data: &Path) -> io::Result<NotedFiles> {
        let mut file = match retried(|| disk.open(&data.join(NOTE), Open::Read)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NotedFiles::default()),
            opened => opened?,
        };
        let read = retried(|| {
            file.seek(SeekFrom::Start(0))?;
            read_whole(&mut *file, LONGEST)
        });
        Ok(parse(&read?, file.len()?))
    }

    /// Their paths in the folder, and the folders that cannot be listed.
    fn paths(self, disk: &dyn Disk, data: &Path) -> (BTreeSet<PathBuf>, Vec<(PathBuf, io::Error)>) {
        match self {
            NotedFiles::Some(paths) => (paths, Vec::new()),
            NotedFiles::All => all_files(disk, data),
        }
    }
}

/// The files of a data folder that something may depend on, and the folders that cannot be listed. A lock is in use, and empty.
fn all_files(disk: &dyn Disk, data: &Path) -> (BTreeSet<PathBuf>, Vec<(PathBuf, io::Error)>) {
    let (mut files, mut folders, mut unlisted) = (BTreeSet::new(), vec![PathBuf::new()], Vec::new());
    while let Some(folder) = folders.pop() {
        let dir = if folder.as_os_str().is_empty() { data.to_owned() } else { data.join(&folder) };
        let entries = match retried(|| disk.read_dir(&dir)) {
            Ok(entries) => entries,
            Err(error) => {
                unlisted.push((dir, error));
                continue;
            }
        };
        for entry in entries {
            let path = folder.join(&entry.name);
            match entry.is_dir {
                true if path == Path::new("trash") => {}
                true => folders.push(path),
                false if path == Path::new(NOTE) || entry.name == "lock" => {}
                false => _ = files.insert(path),
            }
        }
    }
    (files, unlisted)
}

fn line_bytes(path: &Path) -> u64 {
    path.as_os_str().len() as u64 + 1
}

fn lines<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> String {
    paths.into_iter().map(|path| format!("{}\n", path.display())).collect()
}

/// Why a file is not written again.
enum Unwritten {
    /// It cannot be read.
    Source(io::Error),
    /// Its copy cannot be written.
    Copy(io::Error),
}

/// Puts a synced copy of a file in its place. Returns whether the file is there.
fn write_again(disk: &dyn Disk, path: &Path) -> Result<bool, Unwritten> {
    // Logs of the store know a draft of this name. A draft itself is not used without being written again.
    let draft = path.with_extension("new");
    if draft == path {
        return Ok(false);
    }
    let mut source = match retried(|| disk.open(path, Open::Read)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(Unwritten::Source)?,
    };
    let mut unread = None;
    let replaced = replace_by_draft(disk, path, &draft, |copy| {
        let (mut bytes, mut copied) = (vec![0; CHUNK], 0);
        let read = loop {
            match source.read(&mut bytes) {
                Ok(0) => break source.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
                Ok(read) => {
                    copy.write_all(&bytes[..read])?;
                    copied += read as u64;
                }
            }
        };
        let whole = read.and_then(|len| if copied < len { Err(early_end(copied, len)) } else { Ok(()) });
        whole.map_err(|error| {
            unread = Some(error);
            io::Error::other("the file cannot be read")
        })
    });
    if let Err(error) = replaced {
        let _ = disk.remove_file(&draft);
        return Err(unread.map_or(Unwritten::Copy(error), Unwritten::Source));
    }
    Ok(true)
}

impl Disk for NotedSyncs {
    fn settle_syncs(&self, data: &Path) -> io::Result<SettledSyncs> {
        let mut note = self.note();
        let mut settled = SettledSyncs::default();
        let noted = match note.open(&*self.disk, data) {
            Ok(noted) => noted,
            Err(error) => {
                settled.unread.push((data.join(NOTE), error));
                return Ok(settled);
            }
        };
        settled.is_all = noted == NotedFiles::All;
        let (paths, unlisted) = noted.paths(&*self.disk, data);
        let mut left = BTreeSet::new();
        for relative in paths {
            let path = data.join(&relative);
            match write_again(&*self.disk, &path) {
                Ok(true) => settled.written.push(path),
                Ok(false) => {}
                Err(Unwritten::Source(error)) => {
                    settled.unread.push((path, error));
                    left.insert(relative);
                }
                Err(Unwritten::Copy(error)) => {
                    let text = format!("writing {} again, whose last sync failed: {error}", path.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        // What is in a folder that cannot be listed is not known: the next start tries all again.
        note.keep(left, !unlisted.is_empty());
        settled.unread.extend(unlisted);
        Ok(settled)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.open(path, how)?;
        Ok(Box::new(NotedFile { file, path: path.into(), disk: self.clone() }))
    }

    fn hold(&self, path: &Path) -> io::Result<()> {
        self.disk.hold(path)
    }

    fn refuse_writes(&self, path: &Path, why: &str) {
        self.disk.refuse_writes(path, why);
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        self.disk.make_private(path)
    }

    fn is_readable_by_others(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_readable_by_others(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.read_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)?;
        let mut note = self.note();
        let (from, to) = (note.relative(from), note.relative(to));
        let was_noted = from.is_some_and(|from| note.remove(&from));
        let Some(to) = to else { return Ok(()) };
        if was_noted {
            note.add(to);
            self.catch_up(&mut note);
        } else {
            note.remove(&to);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)?;
        let mut note = self.note();
        if let Some(path) = note.relative(path) {
            note.remove(&path);
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let note = self.note();
        if note.relative(from).is_some_and(|from| note.has(&from)) {
            // A copy has its bytes, and a link may lose them.
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the last sync of the file failed"));
        }
        drop(note);
        self.disk.hard_link(from, to)
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool> {
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

#[derive(Debug)]
struct NotedFile {
    file: Box<dyn DiskFile>,
    path: Box<Path>,
    disk: NotedSyncs,
}

impl Read for NotedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Write for NotedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for NotedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl DiskFile for NotedFile {
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()> {
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
        self.disk.synced(&self.path, self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.synced(&self.path, self.file.sync_all())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
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
    use crate::{Call, FailingDisk, Fault, FaultPlan, SeededRandom, SimulatedDisk};

    fn path(name: &str) -> PathBuf {
        Path::new("/data").join(name)
    }

    fn machine() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir_all(Path::new("/data/store")).unwrap();
        ["/", "/data"].iter().for_each(|folder| disk.sync_dir(Path::new(folder)).unwrap());
        disk
    }

    /// A process that has settled its syncs, and the files that it wrote again.
    fn start(machine: &SimulatedDisk) -> (NotedSyncs, Vec<PathBuf>) {
        let disk = NotedSyncs::new(Arc::new(machine.clone()));
        let settled = disk.settle_syncs(Path::new("/data")).unwrap();
        assert!(settled.unread.is_empty(), "{settled:?}");
        (disk, settled.written)
    }

    /// Calls of these kinds fail from now on.
    fn fail(machine: &SimulatedDisk, kinds: &[Call]) {
        let plan = FaultPlan { kinds: kinds.to_vec(), at: 0, times: u64::MAX, fault: Fault::EIO };
        machine.set_plan(Some(plan));
    }

    fn disk_folders(machine: &SimulatedDisk, folders: &[&str]) {
        folders.iter().for_each(|folder| machine.create_dir_all(Path::new(folder)).unwrap());
    }

    fn write(disk: &NotedSyncs, name: &str, text: &[u8]) -> io::Result<()> {
        let file = disk.open(&path(name), Open::CreateNew)?;
        disk.sync_dir(path(name).parent().unwrap()).unwrap_or_default();
        file.write_shared(text)?;
        file.sync_data()
    }

    /// What each of many power cuts leaves of a file.
    fn after_power_cuts(machine: &SimulatedDisk, name: &str) -> BTreeSet<String> {
        let left = |seed| machine.crash(&SeededRandom::new(seed)).read_to_string(&path(name)).unwrap();
        (0..100).map(left).collect()
    }

    /// Writes a file whose sync fails, and kills the process.
    fn fail_and_kill() -> SimulatedDisk {
        let machine = machine();
        let (disk, _) = start(&machine);
        write(&disk, "store/a", b"").unwrap();
        let file = disk.open(&path("store/a"), Open::ReadWrite).unwrap();
        file.write_shared(b"ab").unwrap();
        fail(&machine, &[Call::Sync]);
        file.sync_data().unwrap_err();
        machine.set_plan(None);
        machine.kill()
    }

    #[test]
    fn what_a_failed_sync_left_is_on_the_disk_after_the_next_start() {
        let machine = fail_and_kill();
        assert!(after_power_cuts(&machine, "store/a").contains(""), "a sync of it would not help");
        assert_eq!(machine.read(&path(NOTE)).unwrap()[..8], *b"store/a\n");
        assert_eq!(start(&machine).1, [path("store/a")]);
        assert_eq!(after_power_cuts(&machine, "store/a"), BTreeSet::from(["ab".to_owned()]));
        assert_eq!(machine.read(&path(NOTE)).unwrap(), [b'\n'; ROOM]);
        assert_eq!(machine.files(Path::new("/data")).len(), 2, "no draft stays");
        assert_eq!(start(&machine.kill()).1, Vec::<PathBuf>::new(), "it is noted no more");
    }

    #[test]
    fn zeros_that_a_power_cut_left_in_the_note_name_no_file() {
        let machine = machine();
        let file = machine.open(&path(NOTE), Open::CreateNew).unwrap();
        file.write_shared(&[0; ROOM]).unwrap();
        assert_eq!(start(&machine).1, Vec::<PathBuf>::new());
    }

    #[test]
    fn a_start_that_cannot_write_a_noted_file_again_is_refused_and_the_next_one_does() {
        for kind in [Call::Open, Call::Write, Call::Sync, Call::Rename] {
            let mut machine = fail_and_kill();
            for at in 0..2 {
                let plan = FaultPlan { kinds: vec![kind], at, times: u64::MAX, fault: Fault::ENOSPC };
                machine.set_plan(Some(plan));
                let settled = NotedSyncs::new(Arc::new(machine.clone())).settle_syncs(Path::new("/data"));
                let is_done = settled.is_ok_and(|settled| !settled.written.is_empty());
                machine.set_plan(None);
                machine = machine.kill();
                if !is_done {
                    assert_eq!(start(&machine).1, [path("store/a")], "{kind:?} {at}");
                }
                assert_eq!(after_power_cuts(&machine, "store/a"), BTreeSet::from(["ab".to_owned()]), "{kind:?} {at}");
                machine = fail_and_kill();
            }
        }
    }

    #[test]
    fn a_noted_file_that_cannot_be_read_stays_as_it_is_and_noted() {
        let machine = fail_and_kill();
        machine.spoil(&path("store/a"), 1..2, u64::MAX).unwrap();
        let disk = NotedSyncs::new(Arc::new(machine.clone()));
        let settled = disk.settle_syncs(Path::new("/data")).unwrap();
        assert!(settled.written.is_empty() && settled.unread.iter().map(|(path, _)| path).eq([&path("store/a")]));
        assert_eq!(machine.files(Path::new("/data")).len(), 2, "no draft stays");
        machine.heal();
        assert_eq!(start(&machine.kill()).1, [path("store/a")]);
    }

    #[test]
    fn a_disk_that_takes_no_new_file_takes_the_note_and_one_that_takes_no_write_takes_it_later() {
        let machine = machine();
        let (disk, _) = start(&machine);
        write(&disk, "a", b"1").unwrap();
        let file = disk.open(&path("a"), Open::ReadWrite).unwrap();
        fail(&machine, &[Call::Sync, Call::Open, Call::SetLen, Call::Rename]);
        file.sync_data().unwrap_err();
        assert_eq!(start(&machine.kill()).1, [path("a")]);
        machine.set_plan(None);

        write(&disk, "later", b"1").unwrap();
        let file = disk.open(&path("later"), Open::ReadWrite).unwrap();
        fail(&machine, &[Call::Sync, Call::Write]);
        file.sync_data().unwrap_err();
        assert_eq!(start(&machine.kill()).1, [path("a")], "what remains: the note took nothing");
        machine.set_plan(None);
        write(&disk, "c", b"1").unwrap();
        assert_eq!(start(&machine.kill()).1, [path("a"), path("later")]);
    }

    #[test]
    fn a_note_follows_renames_leaves_out_what_is_gone_and_touches_nothing_outside() {
        let machine = machine();
        let (disk, _) = start(&machine);
        for name in ["a", "b", "c"] {
            fail(&machine, &[Call::Sync]);
            write(&disk, name, name.as_bytes()).unwrap_err();
            machine.set_plan(None);
        }
        disk.rename(&path("a"), &path("d")).unwrap();
        disk.remove_file(&path("b")).unwrap();
        let linked = disk.hard_link(&path("c"), &path("e"));
        assert!(linked.is_err_and(|error| crate::is_link_refused(&error)), "a copy is right");
        crate::link_or_copy(&disk, &path("c"), &path("e")).unwrap();
        let outside = Path::new("/outside");
        machine.open(outside, Open::Create).unwrap().write_shared(b"1").unwrap();
        let note = machine.read_to_string(&path(NOTE)).unwrap();
        let text = format!("../outside\n/outside\n{}", note.trim_end());
        machine.open(&path(NOTE), Open::Create).unwrap().write_shared(text.as_bytes()).unwrap();
        assert_eq!(start(&machine.kill()).1, [path("c"), path("d")]);
    }

    #[test]
    fn a_note_that_is_long_is_written_again_without_what_is_gone() {
        let machine = machine();
        let (disk, _) = start(&machine);
        write(&disk, "stays", b"1").unwrap();
        fail(&machine, &[Call::Sync]);
        disk.open(&path("stays"), Open::Read).unwrap().sync_all().unwrap_err();
        let name = "n".repeat(200);
        for number in 0..2 * LONG / 200 {
            let gone = format!("{name}{number}");
            write(&disk, &gone, b"").unwrap_err();
            disk.remove_file(&path(&gone)).unwrap();
        }
        machine.set_plan(None);
        assert!(machine.read(&path(NOTE)).unwrap().len() as u64 <= LONG);
        assert_eq!(start(&machine.kill()).1, [path("stays")]);
    }

    #[test]
    fn too_many_files_are_noted_as_all_of_the_folder_also_on_a_disk_that_is_full() {
        // By their number, and by the bytes of their paths.
        for (files, name) in [(MOST, ""), (LONG as usize / 200, &*"n".repeat(200))] {
            let machine = machine();
            disk_folders(&machine, &["/data/trash", "/data/store/deep"]);
            let (disk, _) = start(&machine);
            for name in ["store/deep/early", "store/lock", "trash/gone"] {
                write(&disk, name, b"1").unwrap();
            }
            let early = disk.open(&path("store/deep/early"), Open::ReadWrite).unwrap();
            fail(&machine, &[Call::Sync, Call::Open, Call::Rename, Call::SetLen]);
            let failing =
                |number: usize| disk.synced(&path(&format!("{name}{number}")), Err(io::Error::other("a test")));
            (0..files).for_each(|number| _ = failing(number));
            assert!(!disk.note().is_all || !name.is_empty());
            early.sync_all().unwrap_err();
            assert!(disk.note().is_all);
            let linked = disk.hard_link(&path("store/lock"), &path("e"));
            assert!(linked.is_err_and(|error| crate::is_link_refused(&error)), "any file may be one of them");
            machine.set_plan(None);
            let machine = machine.kill();
            assert_eq!(NotedFiles::read(&machine, Path::new("/data")).unwrap(), NotedFiles::All);
            let disk = NotedSyncs::new(Arc::new(machine.clone()));
            let settled = disk.settle_syncs(Path::new("/data")).unwrap();
            assert!(settled.is_all);
            assert_eq!(settled.written, [path("store/deep/early")], "neither locks nor what is thrown away");
            assert_eq!(NotedFiles::read(&machine, Path::new("/data")).unwrap(), NotedFiles::default());
            assert_eq!(start(&machine.kill()).1, Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn a_folder_that_cannot_be_listed_keeps_all_files_noted_and_the_others_are_written_again() {
        let machine = machine();
        disk_folders(&machine, &["/data/store/deep"]);
        machine.open(&path(NOTE), Open::Create).unwrap().write_shared(format!("{ALL}\n").as_bytes()).unwrap();
        for name in ["store/a", "store/deep/b"] {
            machine.open(&path(name), Open::CreateNew).unwrap().write_shared(b"1").unwrap();
        }
        let broken = FailingDisk::new(Arc::new(machine.clone()), |call, path| {
            (call == Call::ReadDir && path.ends_with("deep")).then(|| io::Error::from_raw_os_error(5))
        });
        let settled = NotedSyncs::new(Arc::new(broken)).settle_syncs(Path::new("/data")).unwrap();
        assert!(settled.unread.iter().map(|(path, _)| path).eq([&path("store/deep")]), "{settled:?}");
        assert_eq!(settled.written, [path("store/a")]);
        let machine = machine.kill();
        assert_eq!(NotedFiles::read(&machine, Path::new("/data")).unwrap(), NotedFiles::All);
        assert_eq!(start(&machine).1, [path("store/a"), path("store/deep/b")]);
        assert_eq!(NotedFiles::read(&machine, Path::new("/data")).unwrap(), NotedFiles::default());
    }

    #[test]
    fn a_start_that_cannot_write_all_files_again_leaves_all_of_them_noted() {
        let machine = machine();
        let note = machine.open(&path(NOTE), Open::Create).unwrap();
        note.write_shared(format!("{ALL}\nore/a\n").as_bytes()).unwrap();
        for name in ["store/a", "store/b"] {
            machine.open(&path(name), Open::CreateNew).unwrap().write_shared(b"1").unwrap();
        }
        machine.set_plan(Some(FaultPlan { kinds: vec![Call::Rename], at: 1, times: 1, fault: Fault::ENOSPC }));
        let disk = NotedSyncs::new(Arc::new(machine.clone()));
        disk.settle_syncs(Path::new("/data")).unwrap_err();
        machine.set_plan(None);
        assert_eq!(start(&machine.kill()).1, [path("store/a"), path("store/b")]);
    }
}
