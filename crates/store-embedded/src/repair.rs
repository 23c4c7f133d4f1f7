//! A store that is not in use, written again without what is damaged in it.
//!
//! 1. The spec is made again, if it is damaged.
//! 2. Every damaged file of rows is replaced by one with the blocks that can be read. A file without any goes to
//!    `damaged/`. Then the manifest names the new files.
//! 3. The store is opened: a damaged manifest is made of the files, and logs are read around their damage. Both logs are
//!    written again.
//!
//! Damaged bytes are in `damaged/`, and the manifest says what is lost with them, before a file without them is in place: a repair
//! that fails or is killed can be run again.

use std::{
    cell::RefCell,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use host::{DirEntry, Trash};
use metric::Timestamp;
use store::{Identity, StoreError};

use crate::{
    EmbeddedDriver, EmbeddedOptions,
    cache::Shared,
    commits::MANIFEST,
    damage::Reporter,
    folder::{FolderLock, io_error},
    lost::Lost,
    manifest::{Manifest, ManifestFile, not_its_place, table_of},
    merge::{MergeError, Merging},
    opening::{ReadManifest, refuse_repair},
    row_file::{self, FileReport, Flushes, Header, OpenError, RowFile, RowsWriter, check_file, is_short_of_something},
    spec::Spec,
    window_key::WindowKey,
};

/// Bytes of memory for blocks; each is read once.
const CACHE_BYTES: u64 = 1 << 20;

/// Repairs the store in `dir`, whose [lock](crate::lock) the caller holds. What is found is in the log of damage of the
/// options. Returns the files of rows that the disk does not return whole: they stay as they are.
///
/// # Errors
/// Whatever the disk says, and what keeps a server from starting, as a store of a later program. What was repaired until
/// then stays.
pub fn repair(dir: &Path, options: &EmbeddedOptions, _lock: &FolderLock) -> Result<Vec<UnreadRows>, StoreError> {
    let host = &options.host;
    let unread = {
        let data = options.data.as_deref().unwrap_or(dir);
        let spec = Spec::open(host, dir, &Reporter::new(host, &options.damage, data))?;
        let trash = Arc::new(Trash::open(host, data));
        let shared = Arc::new(Shared::new(host, data, options.damage.clone(), trash, CACHE_BYTES));
        let ours = spec.identity();
        let list = FileList::of(ReadManifest::read(&*host.disk, dir).map_err(refuse_repair)?, &ours);
        let known = match &list {
            // One that was missing may be back without its end.
            FileList::Whole(manifest) => manifest.files.iter().chain(&manifest.missing).copied().collect(),
            _ => Vec::new(),
        };
        let (list, attempt, unread) = (RefCell::new(list), host.random.bits(), RefCell::default());
        let rows = RowRepair { shared: &shared, dir, ours, known, list, attempt, unread };
        spec.raise()?;
        rows.run()?;
        rows.unread.into_inner()
    };
    let options =
        EmbeddedOptions { merges: false, leaves_out_unread_names: true, needs_manifest: true, ..options.clone() };
    EmbeddedDriver::open_locked(dir, options)?.write_logs_again()?;
    Ok(unread)
}

/// What is known of the manifest, as it is on the disk.
enum FileList {
    /// It is of this store.
    Whole(Box<Manifest>),
    /// The bytes of a damaged one of this store; none where there is none.
    Damaged(Vec<u8>),
    /// It is of another store, or nothing in it says that it is of this one.
    Other,
}

impl FileList {
    fn of(read: Option<ReadManifest>, ours: &Identity) -> FileList {
        let Some(ReadManifest { bytes, parsed }) = read else { return FileList::Damaged(Vec::new()) };
        match parsed {
            Ok(manifest) if manifest.store == ours.store => FileList::Whole(Box::new(manifest)),
            Err(_) if Manifest::salvage(&bytes, ours).is_some() => FileList::Damaged(bytes),
            _ => FileList::Other,
        }
    }
}

/// A file of rows that was replaced.
struct Replaced {
    window: WindowKey,
    flushes: Flushes,
    by: By,
}

/// What is in the place of a file of rows.
enum By {
    File(ManifestFile),
    /// Nothing: no row of it can be read, and the manifest says what is lost.
    NotedLoss,
    /// Nothing: the file cannot be opened.
    Nothing,
}

/// A file of rows that the disk does not return whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadRows {
    /// Its path in the folder of the store.
    pub path: PathBuf,
    /// What the disk says.
    pub how: String,
}

struct RowRepair<'a> {
    shared: &'a Arc<Shared>,
    dir: &'a Path,
    ours: Identity,
    /// What the manifest says of the files.
    known: Vec<ManifestFile>,
    /// Read once: a read that fails must not make it forgotten.
    list: RefCell<FileList>,
    /// Drafts have a number that no other draft has.
    attempt: u64,
    /// Files that stay as they are.
    unread: RefCell<Vec<UnreadRows>>,
}

impl RowRepair<'_> {
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, StoreError> {
        self.shared.disk.read_dir(dir).map_err(io_error(format!("listing {}", dir.display())))
    }

    fn run(&self) -> Result<(), StoreError> {
        let mut replaced = Vec::new();
        for of_table in self.list(self.dir)? {
            let Some(table) = of_table.name.to_str().and_then(table_of) else { continue };
            for of_window in self.list(&of_table.path)? {
                let Some(window) = of_window.name.to_str().and_then(|name| name.parse().ok()) else { continue };
                for file in self.list(&of_window.path)? {
                    let Some(flushes) = file.name.to_str().and_then(Flushes::of_file_name) else { continue };
                    let expected = Header { store: self.ours.store, table, window, flushes };
                    replaced.extend(self.file(&file.path, expected)?);
                }
            }
        }
        if !replaced.is_empty() {
            self.name_in_manifest(&replaced)?;
        }
        Ok(())
    }

    /// Replaces a file if part of it is damaged.
    fn file(&self, path: &Path, expected: Header) -> Result<Option<Replaced>, StoreError> {
        let is_in_place = |report: &FileReport| {
            let flushes = (expected.flushes.first, expected.flushes.last);
            (report.store, report.table, report.window, report.flushes)
                == (expected.store, expected.table, expected.window, flushes)
        };
        if check_file(&*self.shared.disk, path).is_ok_and(|report| report.damaged.is_empty() && is_in_place(&report)) {
            return Ok(None);
        }
        let failed = || io_error(format!("repairing {}", path.display()));
        let replaced = |by| Replaced { window: (expected.table, expected.window), flushes: expected.flushes, by };
        let is_expired = Arc::new(AtomicBool::new(false));
        let file = match RowFile::open(self.shared, path, expected, &is_expired) {
            Ok(mut file) if *file.header() == expected => {
                let is_it = |known: &&ManifestFile| {
                    known.window == (expected.table, expected.window) && known.flushes == expected.flushes
                };
                if let Some(known) = self.known.iter().find(is_it) {
                    file.set_bounds(known.bounds());
                }
                file
            }
            Ok(file) => {
                self.put_aside(path, expected, &not_its_place(file.header(), self.ours.store))?;
                return Ok(None);
            }
            Err(OpenError::Io(error)) => {
                self.leave(path, error)?;
                return Ok(None);
            }
            Err(OpenError::Unreadable(how)) => {
                self.put_aside(path, expected, &how)?;
                return Ok(Some(replaced(By::Nothing)));
            }
            Err(error @ OpenError::Version(_)) => {
                return Err(StoreError::Spec {
                    found: format!("{}: {error}", path.display()),
                    expected: format!("files of versions 1 to {}; repair with the later program", row_file::VERSION),
                });
            }
        };
        let written = self.write_again(Arc::new(file), path, expected)?;
        if matches!(written, Some(By::NotedLoss)) {
            let why = "no row of it can be read";
            self.shared.damaged_folder.move_in(path, why).map_err(failed())?;
        }
        Ok(written.map(replaced))
    }

    /// Leaves a file as it is that the disk does not return whole.
    ///
    /// # Errors
    /// The reason is the process or its user, and not the disk.
    fn leave(&self, path: &Path, error: io::Error) -> Result<(), StoreError> {
        if error.kind() == io::ErrorKind::PermissionDenied || is_short_of_something(&error) {
            return Err(io_error(format!("repairing {}", path.display()))(error));
        }
        tracing::error!(%error, file = %path.display(), "the disk does not return all of a file of rows; it stays as it is");
        let path = path.strip_prefix(self.dir).unwrap_or(path).to_owned();
        self.unread.borrow_mut().push(UnreadRows { path, how: error.to_string() });
        Ok(())
    }

    /// Writes the rows that can be read in place of the file; `None` where the disk does not return all of it.
    fn write_again(&self, file: Arc<RowFile>, path: &Path, header: Header) -> Result<Option<By>, StoreError> {
        let failed = || io_error(format!("repairing {}", path.display()));
        let disk = &*self.shared.disk;
        let dir = path.parent().expect("a file of rows is in a folder");
        let created = RowsWriter::create(disk, dir, (header, file.opening()), self.attempt);
        let mut writer = created.map_err(failed())?.replacing();
        let merging = Merging {
            shared: self.shared,
            is_aggregated: header.table.aggregated,
            is_last: false,
            is_deleted: &|_| false,
            is_stopped: &|| false,
            lost: RefCell::default(),
        };
        match merging.run(&[file], &mut writer) {
            Ok(()) => {}
            Err(MergeError::Unread(_, error)) => {
                self.leave(path, error)?;
                return Ok(None);
            }
            Err(MergeError::Io(error)) => return Err(failed()(error)),
            Err(MergeError::Stopped) => unreachable!("nothing stops a repair"),
        }
        let is_empty = writer.is_empty();
        if !is_empty {
            writer.complete().map_err(failed())?;
        }
        self.note_lost((header.table, header.window), &merging.lost.take())?;
        if is_empty {
            return Ok(Some(By::NotedLoss));
        }
        let written = writer.finish().map_err(failed())?;
        let written = RowFile::of_written(self.shared, written, &Arc::new(AtomicBool::new(false)));
        Ok(Some(By::File(ManifestFile::of(&written))))
    }

    /// Up to which time a file may have points whose line the manifest has lost, as far as is known: nothing else says later what
    /// it had. `None` where a line has its flushes, as that of the file that it was merged to.
    fn forgotten_until(&self, file: Header) -> Option<Timestamp> {
        let has_line = |manifest: &Manifest| {
            let mut lines = manifest.files.iter().chain(&manifest.missing);
            lines.any(|line| line.window == (file.table, file.window) && line.flushes.contains(file.flushes))
        };
        let now = self.shared.clock.now();
        match &*self.list.borrow() {
            FileList::Whole(manifest) if has_line(manifest) => None,
            FileList::Whole(manifest) if manifest.next_flush <= file.flushes.last => manifest.remade.map(|_| now),
            FileList::Whole(manifest) => manifest.remade,
            FileList::Damaged(bytes) => {
                let has_line = Manifest::salvage(bytes, &self.ours).is_some_and(|said| has_line(&said));
                (!has_line).then_some(now)
            }
            FileList::Other => Some(now),
        }
    }

    /// Puts a file aside that cannot be used. Where no line says what it had, its name does.
    fn put_aside(&self, path: &Path, header: Header, how: &str) -> Result<(), StoreError> {
        if let Some(until) = self.forgotten_until(header) {
            let window = (header.table, header.window);
            let all = Lost::all_of(window, until);
            self.note_lost(window, &[Lost { flush: header.flushes.last, ..all }])?;
        }
        let moved = self.shared.damaged_folder.move_in(path, how);
        moved.map(drop).map_err(io_error(format!("repairing {}", path.display())))
    }

    /// Writes to the manifest that rows are lost. To a damaged one it appends that: the manifest that is made again has it then.
    fn note_lost(&self, window: WindowKey, lost: &[Lost]) -> Result<(), StoreError> {
        if lost.is_empty() {
            return Ok(());
        }
        let (disk, path) = (&*self.shared.disk, self.dir.join(MANIFEST));
        let lost = lost.iter().map(|lost| (window, *lost));
        let mut list = self.list.borrow_mut();
        let (text, next) = match &*list {
            FileList::Whole(manifest) => {
                let mut manifest = manifest.clone();
                manifest.lost.extend(lost);
                (manifest.encode().into_bytes(), FileList::Whole(manifest))
            }
            damaged => {
                let before = if let FileList::Damaged(bytes) = damaged { &bytes[..] } else { &[] };
                if matches!(damaged, FileList::Other) {
                    let moved =
                        self.shared.damaged_folder.move_in(&path, "nothing in it says that it is of this store");
                    moved.map_err(io_error(format!("moving {} to damaged/", path.display())))?;
                }
                let lost = Manifest { store: self.ours.store, lost: lost.collect(), ..Manifest::default() };
                let text = [before, lost.lost_lines().as_bytes()].concat();
                (text.clone(), FileList::Damaged(text))
            }
        };
        host::replace_file(disk, &path, &text).map_err(io_error(format!("writing {}", path.display())))?;
        *list = next;
        Ok(())
    }

    /// Where the manifest is whole: otherwise the next start makes one of the files.
    fn name_in_manifest(&self, replaced: &[Replaced]) -> Result<(), StoreError> {
        let FileList::Whole(manifest) = &*self.list.borrow() else { return Ok(()) };
        let mut manifest = manifest.clone();
        for Replaced { window, flushes, by } in replaced {
            if let Some(place) =
                manifest.files.iter().position(|file| (file.window, file.flushes) == (*window, *flushes))
            {
                match by {
                    By::File(file) => manifest.files[place] = *file,
                    By::NotedLoss => drop(manifest.files.remove(place)),
                    By::Nothing => {
                        let gone = manifest.files.remove(place);
                        manifest.lost.extend(gone.lost().into_iter().map(|lost| (*window, lost)));
                    }
                }
            }
        }
        let path = self.dir.join(MANIFEST);
        let written = host::replace_file(&*self.shared.disk, &path, manifest.encode().as_bytes());
        written.map_err(io_error(format!("writing {}", path.display())))
    }
}
