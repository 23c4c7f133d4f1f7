//! What a start finds: the manifest against the files that are there.
//!
//! 1. A damaged manifest is put aside, and another made of the files, with what it still says of missing ones. Each start says so until a
//!    repair: which files were missing is not known.
//! 2. Drafts are removed. Windows on their way to the trash are moved there.
//! 3. A file is in use when the manifest has it, when its flush is newer than the manifest, or when it is the merge of
//!    files that the manifest has. One whose flushes are all in another file is left from a merge, and goes.
//! 4. A file that the manifest has and that is missing is reported; so is a file that neither of these explains.
//! 5. The manifest keeps the line of a missing file, and nothing is merged over its flushes: when it comes back it is in use again.
//! 6. A file that cannot be used goes to `damaged/`. Where the manifest may have lost its line, all of its window up to now is lost with
//!    it, and the manifest says so first.

mod read;
mod reports;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{DirEntry, retried};
use store::{Damage, Identity, Incarnation, StoreError};

use self::reports::{Reports, span};
pub(crate) use self::{
    read::{ReadManifest, read_manifest, refuse_repair},
    reports::{UNTIL_BACK, UNTIL_READ, remade_text},
};
use crate::{
    cache::Shared,
    commits::{Commits, MANIFEST, Unlisted},
    lost::{self, Lost},
    manifest::{self, Manifest, ManifestFile, not_its_place, table_of},
    row_file::{self, Flushes, MISSING, OpenError, RowFile},
    timeline,
    window::Window,
    window_key::{WindowKey, folder},
};

/// The windows that are there, and what the manifest says besides them.
pub(crate) struct Found {
    pub(crate) windows: BTreeMap<WindowKey, Arc<Window>>,
    pub(crate) commits: Commits,
    /// The openings that wrote the files, where those of the store are not known.
    pub(crate) openings: Vec<Incarnation>,
}

impl Found {
    /// A window, also one without a folder.
    fn window(&mut self, dir: &Path, key: WindowKey) -> &Window {
        self.windows.entry(key).or_insert_with(|| Arc::new(Window::new(dir, key)))
    }
}

/// Finds the windows of the store in `dir`, with the manifest that was read. With its identity goes whether that may lack openings.
pub(crate) fn find(
    shared: &Arc<Shared>,
    dir: &Path,
    (ours, is_unsure): (&Identity, bool),
    manifest: Option<ReadManifest>,
) -> Result<Found, StoreError> {
    let opening = Opening { shared, dir, ours, is_unsure, is_again: false };
    let (manifest, salvaged) = manifest.map_or((None, None), |read| opening.manifest(read));
    let known = manifest.clone().unwrap_or_default();
    let commits = Commits::of(dir, ours.store, &known);
    let mut found = Found { windows: BTreeMap::new(), commits, openings: Vec::new() };
    if manifest.is_none() {
        found.commits.remade = Some(shared.clock.now());
    }
    opening.finish_expiry(&mut found.commits);
    let mut files_of: BTreeMap<WindowKey, Vec<ManifestFile>> = BTreeMap::new();
    let is_kept = |file: &&ManifestFile| !known.expired.contains(&file.window);
    let missed: Vec<ManifestFile> = known.missing.iter().filter(is_kept).copied().collect();
    for file in known.files.iter().chain(&missed) {
        files_of.entry(file.window).or_default().push(*file);
    }
    let found_before: Vec<(WindowKey, Lost)> =
        known.lost.iter().filter(|(window, _)| !known.expired.contains(window)).copied().collect();
    for entry in opening.list(dir)? {
        let Some(table) = entry.name.to_str().and_then(table_of) else { continue };
        opening.sync(&entry.path);
        for entry in opening.list(&entry.path)? {
            let Some(number) = entry.name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let key = (table, number);
            if !found.commits.expired.contains(&key) {
                let known = files_of.remove(&key).unwrap_or_default();
                let window = Window::new(dir, key);
                for (_, lost) in found_before.iter().filter(|(window, _)| *window == key) {
                    window.add_lost(&[*lost]);
                }
                window.set_missing(missed.iter().filter(|file| file.window == key).copied().collect());
                opening.fill(&window, manifest.is_some().then_some(&known), &mut found.commits)?;
                found.windows.insert(key, Arc::new(window));
            }
        }
    }
    opening.sync(dir);
    for (key, files) in files_of {
        for file in &files {
            opening.miss(file, &missed, &mut found.commits);
        }
        found.window(dir, key).set_missing(files);
    }
    opening.add_lost(found_before, &mut found);
    let was_damaged = salvaged.is_some();
    opening.keep_salvaged(&salvaged.unwrap_or_default(), &mut found);
    found.windows.values().for_each(|window| opening.give_up_unlisted(window, &mut found.commits));
    let last_flush = found.commits.last_flush();
    found.windows.values().for_each(|window| window.lost_until(last_flush));
    if manifest.is_none() && !found.windows.is_empty() {
        opening.reports().no_manifest();
    }
    if manifest.is_none() && !was_damaged && found.windows.is_empty() {
        // Of a new store, nothing can be missing.
        found.commits.remade = None;
    }
    if let Some(at) = known.remade {
        opening.reports().remade(at);
    }
    found.commits.log_newer();
    if manifest.is_none() {
        found.commits.set_behind();
    }
    if ours.chain.is_empty() || is_unsure {
        let openings = found
            .windows
            .values()
            .flat_map(|window| window.files().iter().filter_map(|file| file.opening()).collect::<Vec<_>>());
        found.openings = openings.collect();
    }
    Ok(found)
}

/// Whether a file of a window can be opened that is not in use. Reads all of those, without any lock, but for missing ones that are back
/// without their ends: these are not used.
pub(crate) fn may_open(shared: &Arc<Shared>, store: u128, window: &Window) -> bool {
    let disk = &*shared.disk;
    let flushes_of = |entry: &DirEntry| entry.name.to_str().and_then(Flushes::of_file_name);
    let Ok(entries) = retried(|| disk.read_dir(&window.dir)) else { return false };
    let (files, missing) = (window.files(), window.missing());
    let is_waiting = |entry: &&DirEntry| {
        let Some(flushes) = flushes_of(entry) else { return false };
        let is_used = files.iter().any(|file| file.header().flushes == flushes);
        let is_whole = |file: &ManifestFile| row_file::is_whole(disk, &entry.path, file.bytes);
        !is_used && missing.iter().filter(|file| file.flushes == flushes).all(is_whole)
    };
    let waiting: Vec<&DirEntry> = entries.iter().filter(is_waiting).collect();
    let may_open = |entry: &&DirEntry| {
        let expected = flushes_of(entry).map(|flushes| window.header_of(store, flushes));
        expected.is_some_and(|expected| row_file::may_open(disk, &entry.path, expected))
    };
    // One that is gone is found missing.
    waiting.is_empty() || waiting.iter().any(may_open)
}

/// Finds the files of a window again, after some could not be opened; `known` are those that the manifest has. No
/// flush and no merge writes to the window meanwhile.
pub(crate) fn find_again(
    shared: &Arc<Shared>,
    dir: &Path,
    (ours, is_unsure): (&Identity, bool),
    window: &Window,
    known: Vec<ManifestFile>,
    commits: &mut Commits,
) -> Result<(), StoreError> {
    let opening = Opening { shared, dir, ours, is_unsure, is_again: true };
    opening.list(&window.dir)?;
    let before = std::mem::take(&mut commits.unreadable);
    let (of_window, others) = before.into_iter().partition::<Vec<_>, _>(|file| file.window == window.key);
    commits.unreadable = others;
    let filled = opening.fill(window, Some(&known), commits);
    // Also after an error: the next manifest says it.
    opening.give_up_unlisted(window, commits);
    let waiting = match filled {
        Ok(waiting) => waiting,
        Err(error) => {
            commits.unreadable.extend(of_window);
            return Err(error);
        }
    };
    let (folder, waiting) =
        (shared.shown(&window.dir), waiting.iter().map(|path| shared.shown(path)).collect::<Vec<_>>());
    let used: Vec<String> = window.files().iter().map(|file| shared.shown(file.path())).collect();
    shared.damage.mend(|damage| {
        let was_unread = damage.how.ends_with(UNTIL_READ) && Path::new(&damage.file).starts_with(&folder);
        let was_missing = (damage.how == MISSING || damage.how.ends_with(UNTIL_BACK)) && used.contains(&damage.file);
        was_missing || was_unread && !waiting.contains(&damage.file)
    });
    tracing::info!(folder, still_waiting = waiting.len(), "tried files of rows again that could not be opened");
    Ok(())
}

struct Opening<'a> {
    shared: &'a Arc<Shared>,
    dir: &'a Path,
    /// The store, and its openings.
    ours: &'a Identity,
    /// Whether some of the openings may be missing.
    is_unsure: bool,
    /// Whether a start looked for the files before, and reported those that are missing.
    is_again: bool,
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let what = format!("{doing} {}", path.display());
    move |source| StoreError::Io { what, source }
}

impl Opening<'_> {
    fn reports(&self) -> Reports<'_> {
        Reports { shared: self.shared, dir: self.dir }
    }

    /// Puts the names of a folder on the disk. Where that fails the journal still has the points of files that a crash may
    /// take, until a flush has synced the folder.
    fn sync(&self, dir: &Path) {
        if let Err(error) = retried(|| self.shared.disk.sync_dir(dir)) {
            self.shared.report(Damage {
                what: "folder",
                file: self.shared.shown(dir),
                how: format!("it cannot be synced: {error}"),
                ..Damage::default()
            });
        }
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, StoreError> {
        let mut entries = retried(|| self.shared.disk.read_dir(dir)).map_err(failed("listing", dir))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What a damaged manifest said of files that are not there, and of rows that were lost, goes into the one that is made again.
    fn keep_salvaged(&self, salvaged: &Manifest, found: &mut Found) {
        found.commits.note_given(salvaged);
        let mut missing: BTreeMap<WindowKey, Vec<ManifestFile>> = BTreeMap::new();
        for file in &salvaged.missing {
            let files = found.windows.get(&file.window).map(|window| window.files()).unwrap_or_default();
            let is_there = files.iter().any(|other| other.header().flushes.contains(file.flushes));
            let is_put_aside = found.commits.is_unlisted(file.window, file.flushes);
            if !is_there && (is_put_aside || !self.shared.disk.exists(&self.dir.join(file.path()))) {
                self.reports().missing(file);
                missing.entry(file.window).or_default().push(*file);
            }
        }
        for (key, files) in missing {
            found.window(self.dir, key).set_missing(files);
        }
        self.add_lost(salvaged.lost.clone(), found);
    }

    /// Adds what a manifest says of lost rows, and reports it.
    fn add_lost(&self, mut all: Vec<(WindowKey, Lost)>, found: &mut Found) {
        all.sort_unstable();
        for of_window in all.chunk_by(|(one, _), (other, _)| one == other) {
            let (window, lost) = (of_window[0].0, of_window.iter().map(|(_, lost)| *lost).collect::<Vec<_>>());
            found.window(self.dir, window).add_lost(&lost);
            lost::parts(&lost).iter().for_each(|part| self.reports().lost(window, part));
        }
    }

    /// The manifest; `None` where it cannot be used. With what a damaged one still says.
    fn manifest(&self, read: ReadManifest) -> (Option<Manifest>, Option<Manifest>) {
        let path = self.dir.join(MANIFEST);
        let (how, bytes) = match read.parsed {
            Ok(manifest) if manifest.store == self.ours.store => return (Some(manifest), None),
            Ok(manifest) => (format!("it is of the store {:032x}", manifest.store), read.bytes),
            Err(how) => (how, read.bytes),
        };
        let damaged = &self.shared.damaged_folder;
        let moved_to = match bytes.len() as u64 {
            // What cannot be read now may be read by an operator; what is longer than a manifest takes no more room than it has.
            0 | manifest::LONGEST => damaged.move_in(&path, &how).ok(),
            _ => damaged.keep_bytes(&path, 0, &bytes, &how).ok(),
        };
        self.shared.report(Damage {
            what: "manifest",
            file: self.shared.shown(&path),
            how: format!("{how}; it is made again of the files that are there"),
            bytes: bytes.len() as u64,
            moved_to,
            ..Damage::default()
        });
        (None, Some(Manifest::salvage(&bytes, self.ours).unwrap_or_default()))
    }

    /// Moves the folders to the trash that a crash left.
    fn finish_expiry(&self, commits: &mut Commits) {
        for key in commits.expired.clone() {
            let path = self.dir.join(folder(key));
            if !self.shared.disk.exists(&path) {
                commits.expired.remove(&key);
                commits.set_behind();
                continue;
            }
            match self.shared.trash.move_in(&path) {
                Ok(_) => {
                    commits.expired.remove(&key);
                    commits.set_behind();
                }
                Err(error) => {
                    tracing::warn!(%error, folder = %path.display(), "cannot move expired rows to the trash; retrying at the next expiry");
                }
            }
        }
    }

    /// Finds the files of a window; `known` are those that the manifest has, if there is one. Files in use stay in use: the disk may
    /// not return them now, and reads of them say so. Returns the other files that the disk does not return now, or the folder.
    fn fill(
        &self,
        window: &Window,
        known: Option<&Vec<ManifestFile>>,
        commits: &mut Commits,
    ) -> Result<Vec<PathBuf>, StoreError> {
        let (mut files, mut waiting): (Vec<Arc<RowFile>>, _) = (Vec::new(), Vec::new());
        let used = window.files();
        let in_use = |flushes: Flushes| used.iter().find(|file| file.header().flushes == flushes);
        let entries = match (self.list(&window.dir), known) {
            (Ok(entries), _) => entries,
            (Err(error), None) => return Err(error),
            (Err(error), Some(known)) => {
                self.reports().unlisted(window, known, &error);
                let missing = window.missing();
                missing.iter().for_each(|file| self.miss(file, &missing, commits));
                let is_unread = |file: &&ManifestFile| !missing.contains(file) && in_use(file.flushes).is_none();
                commits.unreadable.extend(known.iter().filter(is_unread));
                self.add(window, used.to_vec(), None, true);
                return Ok(vec![window.dir.clone()]);
            }
        };
        for entry in entries {
            let Some(name) = entry.name.to_str() else { continue };
            if name.ends_with(".draft") {
                if let Err(error) = self.shared.disk.remove_file(&entry.path) {
                    tracing::warn!(%error, file = %entry.path.display(), "cannot remove an unfinished file; it takes up space until the next start");
                }
            } else if let Some(flushes) = Flushes::of_file_name(name) {
                commits.note_flush(flushes.last);
                if let Some(file) = in_use(flushes) {
                    files.push(file.clone());
                    continue;
                }
                let file = known.and_then(|known| known.iter().find(|file| file.flushes == flushes));
                match self.open(window, flushes, &entry, file, commits)? {
                    Some(Ok(file)) => files.push(Arc::new(file)),
                    Some(Err(Waits)) => waiting.push(entry.path),
                    None => {}
                }
            } else if name.ends_with(".rows") && !self.is_again {
                self.shared.report(Damage {
                    what: "stray file",
                    file: self.shared.shown(&entry.path),
                    how: "its name is not one of a file of rows; it is left alone".to_owned(),
                    bytes: entry.len,
                    ..Damage::default()
                });
            }
        }
        let next_flush = commits.next_flush_of_manifest();
        let (kept, left): (Vec<_>, Vec<_>) = {
            let all: Vec<Flushes> = files.iter().map(|file| file.header().flushes).collect();
            let is_left = |flushes: Flushes| all.iter().any(|other| *other != flushes && other.contains(flushes));
            files.into_iter().partition(|file| !is_left(file.header().flushes))
        };
        for file in left {
            // Files may be missing that a manifest which was made again does not have: their neighbours were merged.
            let is_known = |known: &Vec<ManifestFile>| known.iter().any(|known| known.flushes == file.header().flushes);
            let may_be_back = commits.remade.is_some() && known.is_some_and(|known| !is_known(known));
            if !window.lost().is_empty() || may_be_back {
                self.reports().put_aside_returned(&file);
                continue;
            }
            // Not removed: what its merge could not read may still be there.
            if let Err(error) = self.shared.trash.move_in(file.path()) {
                tracing::warn!(%error, file = %file.path().display(), "cannot move a merged file to the trash; it takes up space until the next start");
            }
        }
        let Some(known) = known else {
            self.add(window, kept, None, !waiting.is_empty());
            return Ok(waiting);
        };
        let missed = window.missing();
        for file in &kept {
            let flushes = file.header().flushes;
            let is_known = known.iter().any(|known| flushes.contains(known.flushes));
            let is_new = next_flush <= flushes.last;
            if is_new {
                commits.note_has_newer();
            }
            if is_new || !known.iter().any(|known| known.flushes == flushes) {
                commits.set_behind();
            }
            if missed.iter().any(|missed| missed.flushes == flushes) {
                tracing::info!(file = %file.path().display(), "a file of rows that was missing is back, and is used");
                commits.set_behind();
            }
            // A crash leaves only files of the last opening that the manifest does not have.
            let is_of_last =
                file.opening().is_none_or(|opening| self.ours.chain.last().is_none_or(|last| last.id == opening.id));
            if !(is_known || is_new && is_of_last) {
                self.reports().stray(file);
            } else if !is_known {
                commits.note_newer(flushes.last);
            }
        }
        let is_there = |file: &&ManifestFile| kept.iter().any(|kept| kept.header().flushes.contains(file.flushes));
        let mut missing = Vec::new();
        for file in known.iter().filter(|file| !is_there(file)) {
            // A merged file that cannot be read now has the rows of its sources, which stood in for it.
            let may_return = |other: &ManifestFile| other.window == file.window && other.flushes.contains(file.flushes);
            if commits.unreadable.iter().any(may_return) {
                commits.set_behind();
            } else {
                self.miss(file, &missed, commits);
                missing.push(*file);
            }
        }
        let is_covered =
            |file: &&ManifestFile| is_there(file) && kept.iter().all(|kept| kept.header().flushes != file.flushes);
        window.add_lost(&missed.iter().filter(is_covered).flat_map(ManifestFile::lost).collect::<Vec<_>>());
        self.add(window, kept, Some(missing), !waiting.is_empty());
        Ok(waiting)
    }

    /// A file is not there, or not used. Those that a start `missed` before are reported by each.
    fn miss(&self, file: &ManifestFile, missed: &[ManifestFile], commits: &mut Commits) {
        if missed.contains(file) {
            if !self.is_again {
                self.reports().still_missing(file);
            }
            return;
        }
        commits.set_behind();
        if !self.shared.disk.exists(&self.dir.join(file.path())) {
            self.reports().missing(file);
        }
    }

    fn add(
        &self,
        window: &Window,
        mut files: Vec<Arc<RowFile>>,
        missing: Option<Vec<ManifestFile>>,
        is_incomplete: bool,
    ) {
        files.sort_by_key(|file| file.header().flushes);
        // Files of a process that was killed may not be in their folder for good yet.
        self.sync(&window.dir);
        window.set_files(files, missing, is_incomplete);
        window.has_folder();
    }

    /// Opens a file, or puts it aside; [`Waits`] where the disk does not return it now. One without its end waits until it is whole or
    /// has not grown for a minute: a network disk may give its length of before, or it is being copied. One that was missing is used
    /// only whole.
    fn open(
        &self,
        window: &Window,
        flushes: Flushes,
        entry: &DirEntry,
        known: Option<&ManifestFile>,
        commits: &mut Commits,
    ) -> Result<Option<Result<RowFile, Waits>>, StoreError> {
        let expected = window.header_of(self.ours.store, flushes);
        let damage = |how: String, moved_to: Option<String>| Damage {
            what: "file of rows",
            file: self.shared.shown(&entry.path),
            how,
            bytes: entry.len,
            moved_to,
            metrics: known.and_then(ManifestFile::known_metrics),
            span: Some(span(window.key)),
            ..Damage::default()
        };
        let report = |how: String, moved_to: Option<String>| self.shared.report(damage(how, moved_to));
        // Where the manifest was made again, it may have lost the line of the file.
        let may_be_unlisted = known.is_none() && commits.remade.is_some();
        let put_aside = |how: String, commits: &mut Commits| {
            if may_be_unlisted {
                let (window, path) = (window.key, entry.path.clone());
                commits.unlisted.push(Unlisted { window, flushes, path, damage: damage(how, None) });
                commits.set_behind();
            } else {
                let moved_to = self.shared.damaged_folder.move_in(&entry.path, &how);
                report(how, moved_to.ok());
            }
        };
        let open = || {
            let mut file = RowFile::open(self.shared, &entry.path, expected, &window.is_expired)?;
            if let Some(known) = known {
                file.set_bounds(known.bounds());
            }
            Ok(file)
        };
        // The next look may find it.
        let wait = |how: String, commits: &mut Commits| {
            report(format!("{how}; {UNTIL_READ}"), None);
            commits.unreadable.extend(known);
            Ok(Some(Err(Waits)))
        };
        let wait_for_disk = |error: io::Error, commits: &mut Commits| {
            if may_be_unlisted {
                let until = commits.unlisted_until(flushes, self.shared.clock.now());
                commits.unreadable.push(ManifestFile::of_name(window.key, flushes, entry.len, until));
                commits.set_behind();
            }
            wait(error.to_string(), commits)
        };
        if let Some(known) = known {
            let disk = &*self.shared.disk;
            let cut = row_file::cut_len(disk, &entry.path, known.bytes);
            if window.missing().contains(known) && !matches!(cut, Ok(None)) {
                if !self.is_again {
                    let error = cut.err();
                    tracing::warn!(?error, file = %entry.path.display(), "a file of rows that was missing is shorter than it was, or cannot be opened; it is used once it is whole, or after plumbago repair");
                }
                return Ok(None);
            }
            let cut = match cut {
                Ok(cut) => cut,
                Err(error) => return wait_for_disk(error, commits),
            };
            // That no block is lost is seen only where all are read. Later, flushes wait meanwhile, and such a file waits as the others do.
            let now = self.shared.clock.instant();
            if let Some(len) = cut
                && (self.is_again || row_file::lacks_blocks(disk, &entry.path, expected))
                && window.is_unsettled(&entry.path, len, known.bytes, now)
            {
                return wait("it is shorter than it was".to_owned(), commits);
            }
        }
        let is_unreadable = |opened: &Result<RowFile, OpenError>| matches!(opened, Err(OpenError::Unreadable(_)));
        let mut opened = open();
        if is_unreadable(&opened) {
            // The length is right now.
            opened = open();
        }
        match opened {
            Ok(file) if *file.header() != expected => {
                let how = not_its_place(file.header(), self.ours.store);
                drop(file);
                put_aside(how, commits);
                commits.set_behind();
                Ok(None)
            }
            Ok(file) if let Some(how) = self.timeline_fault(&file, known) => {
                drop(file);
                put_aside(how, commits);
                commits.set_behind();
                Ok(None)
            }
            Ok(file) => {
                let differs = |known: &ManifestFile| {
                    known.bytes != file.len()
                        || ![0, file.index_crc()].contains(&known.index_crc) && file.index_crc() != 0
                };
                if known.is_some_and(differs) {
                    report("it is not the file that the manifest has".to_owned(), None);
                    commits.set_behind();
                }
                if file.is_footer_unread() {
                    commits.unread.extend(known);
                }
                Ok(Some(Ok(file)))
            }
            Err(OpenError::Io(error)) => wait_for_disk(error, commits),
            Err(OpenError::Unreadable(how)) => {
                put_aside(how, commits);
                Ok(None)
            }
            Err(error @ OpenError::Version(_)) => Err(StoreError::Spec {
                found: format!("{}: {error}", entry.path.display()),
                expected: format!("files of versions 1 to {}; start the later program", row_file::VERSION),
            }),
        }
    }

    /// What files of a window had that cannot be used and that no line names is lost: their names say the window and the flushes.
    fn give_up_unlisted(&self, window: &Window, commits: &mut Commits) {
        let (files, missing) = (window.files(), window.missing());
        let of_window = commits.unlisted.iter().filter(|file| file.window == window.key);
        for Unlisted { flushes, .. } in of_window {
            let is_known = files.iter().any(|file| file.header().flushes.contains(*flushes))
                || missing.iter().any(|file| file.flushes.contains(*flushes));
            if !is_known {
                // At each start that finds it, the same: points since then are not in it.
                let until = commits.unlisted_until(*flushes, self.shared.clock.now());
                let all = Lost::all_of(window.key, until);
                window.add_lost(&[Lost { flush: flushes.last, ..all }]);
            }
        }
    }

    /// Why a file is not of this timeline; `known` is what the manifest says of it.
    fn timeline_fault(&self, file: &RowFile, known: Option<&ManifestFile>) -> Option<String> {
        let is_another = |known: &&ManifestFile| {
            file.opening().is_some_and(|opening| known.opening != 0 && known.opening != opening.id)
        };
        let is_the_one = |known: &ManifestFile| file.opening().is_some_and(|opening| opening.id == known.opening);
        if self.is_unsure && known.is_some_and(is_the_one) {
            return None;
        }
        let fault = timeline::fault_of(&self.ours.chain, file).or_else(|| {
            let known = known.filter(is_another)?;
            Some(format!("it is not the file that the manifest has, which the opening {:016x} wrote", known.opening))
        })?;
        Some(format!(
            "{fault}; it is not used: put the file of this folder in its place, if there is one, or restore a backup"
        ))
    }
}

/// The disk does not return a file now.
struct Waits;
