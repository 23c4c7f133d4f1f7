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
use store::StoreError;

use crate::{
    EmbeddedDriver, EmbeddedOptions,
    cache::Shared,
    commits::MANIFEST,
    damage::Reporter,
    folder::{FolderLock, io_error},
    lost::Lost,
    manifest::{Manifest, ManifestFile, not_its_place, table_of},
    merge::{MergeError, Merging},
    row_file::{self, FileReport, Flushes, Header, OpenError, RowFile, RowsWriter, check_file},
    spec::Spec,
    status::{manifest_of, read_bytes},
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
        let trash = Trash::open(host, data).map_err(io_error(format!("reading {}", data.join("trash").display())))?;
        let shared = Arc::new(Shared::new(host, data, options.damage.clone(), Arc::new(trash), CACHE_BYTES));
        let known = manifest_of(&*host.disk, dir).map_or_else(Vec::new, |manifest| manifest.files);
        let (store, attempt) = (spec.identity().store, host.random.bits());
        let rows = RowRepair { shared: &shared, dir, store, known, attempt, unread: RefCell::default() };
        spec.raise()?;
        rows.run()?;
        rows.unread.into_inner()
    };
    let options = EmbeddedOptions { merges: false, leaves_out_unread_names: true, ..options.clone() };
    EmbeddedDriver::open_locked(dir, options)?.write_logs_again()?;
    Ok(unread)
}

/// A file of rows that was replaced.
struct Replaced {
    window: WindowKey,
    flushes: Flushes,
    /// The file in its place; none where no row could be read.
    by: Option<ManifestFile>,
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
    store: u128,
    /// What the manifest says of the files.
    known: Vec<ManifestFile>,
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
                    let expected = Header { store: self.store, table, window, flushes };
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
                self.shared.damaged_folder.move_in(path, &not_its_place(file.header(), self.store)).map_err(failed())?;
                return Ok(None);
            }
            Err(OpenError::Io(error)) => {
                self.leave(path, &error);
                return Ok(None);
            }
            Err(OpenError::Unreadable(how)) => {
                self.shared.damaged_folder.move_in(path, &how).map_err(failed())?;
                return Ok(Some(replaced(None)));
            }
            Err(error @ OpenError::Version(_)) => {
                return Err(StoreError::Spec {
                    found: format!("{}: {error}", path.display()),
                    expected: format!("files of versions 1 to {}; repair with the later program", row_file::VERSION),
                });
            }
        };
        let Some(written) = self.write_again(Arc::new(file), path, expected)? else { return Ok(None) };
        if written.is_none() {
            let why = "no row of it can be read";
            self.shared.damaged_folder.move_in(path, why).map_err(failed())?;
        }
        Ok(Some(replaced(written)))
    }

    /// Leaves a file as it is that the disk does not return whole.
    fn leave(&self, path: &Path, error: &io::Error) {
        tracing::error!(%error, file = %path.display(), "the disk does not return all of a file of rows; it stays as it is");
        let path = path.strip_prefix(self.dir).unwrap_or(path).to_owned();
        self.unread.borrow_mut().push(UnreadRows { path, how: error.to_string() });
    }

    /// Writes the rows that can be read in place of the file; no file if there are none, and `None` where the disk does not
    /// return all of it.
    fn write_again(
        &self,
        file: Arc<RowFile>,
        path: &Path,
        header: Header,
    ) -> Result<Option<Option<ManifestFile>>, StoreError> {
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
                self.leave(path, &error);
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
            return Ok(Some(None));
        }
        let written = writer.finish().map_err(failed())?;
        let written = RowFile::of_written(self.shared, written, &Arc::new(AtomicBool::new(false)));
        Ok(Some(Some(ManifestFile::of(&written))))
    }

    /// Writes to the manifest that rows are lost. To one that cannot be read it appends that: the manifest that is made again has it then.
    fn note_lost(&self, window: WindowKey, lost: &[Lost]) -> Result<(), StoreError> {
        if lost.is_empty() {
            return Ok(());
        }
        let (disk, path) = (&*self.shared.disk, self.dir.join(MANIFEST));
        let lost = lost.iter().map(|lost| (window, *lost));
        let text = match manifest_of(disk, self.dir) {
            Some(mut manifest) if manifest.store == self.store => {
                manifest.lost.extend(lost);
                manifest.encode().into_bytes()
            }
            manifest => {
                let damaged = manifest.is_none().then(|| read_bytes(disk, self.dir).ok()).flatten();
                if damaged.is_none() && disk.exists(&path) {
                    let moved = self.shared.damaged_folder.move_in(&path, "it is of another store, or cannot be read");
                    moved.map_err(io_error(format!("moving {} to damaged/", path.display())))?;
                }
                let lost = Manifest { store: self.store, lost: lost.collect(), ..Manifest::default() };
                [damaged.unwrap_or_default(), lost.lost_lines().into_bytes()].concat()
            }
        };
        host::replace_file(disk, &path, &text).map_err(io_error(format!("writing {}", path.display())))
    }

    /// Where the manifest can be read: otherwise the next start makes one of the files.
    fn name_in_manifest(&self, replaced: &[Replaced]) -> Result<(), StoreError> {
        let (disk, path) = (&*self.shared.disk, self.dir.join(MANIFEST));
        let Some(mut manifest) = manifest_of(disk, self.dir) else {
            return Ok(());
        };
        for Replaced { window, flushes, by } in replaced {
            if let Some(place) =
                manifest.files.iter().position(|file| (file.window, file.flushes) == (*window, *flushes))
            {
                match by {
                    Some(file) => manifest.files[place] = *file,
                    None => {
                        let gone = manifest.files.remove(place);
                        manifest.lost.extend(gone.lost().into_iter().map(|lost| (*window, lost)));
                    }
                }
            }
        }
        let written = host::replace_file(disk, &path, manifest.encode().as_bytes());
        written.map_err(io_error(format!("writing {}", path.display())))
    }
}
