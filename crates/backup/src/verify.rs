//! Every checksum of a data folder or of a backup, read without starting anything.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use host::{Disk, NotedFiles};
use ingest::wal::{OTHER_NEWEST, check_chain, has_lost_synced, read_contents};
use metadata::Registry;
use metric::{MetricId, Timestamp};
use store::{Identity, LAST_NUMBER, StoreError};
use store_embedded::{
    DamagedPart, FileReport, FolderLock, IdSet, ONE_BIT, StoredFile, check_file, check_log, check_spec, cut_logs,
    identity_at_start, is_layout_1, lost_deletions, lost_names, lost_policies, lost_rows, missing_logs, missing_rows,
    of_other_timeline, other_store, read_journal_mark, read_manifest, remade_manifest, store_of_manifest,
    unlisted_rows, without_name,
};

use crate::{
    error::{BackupError, with_next_step},
    files::{files_and_folders, hash},
    manifest::{self, Manifest},
    may_start::{refuse_newer, refuse_other_kinds},
    same_names, segments,
};

/// Whether points, names or events may be missing without these bytes. The rest is made again of other files.
pub fn costs(part: &DamagedPart) -> bool {
    let is_corrected = part.how == ONE_BIT;
    part.how == NO_MANIFEST
        || !is_corrected
            && !matches!(
                part.what,
                "spec"
                    | "manifest"
                    | "clock"
                    | "saved names"
                    | "header of a log"
                    | "header of a file of rows"
                    | "footer of a file of rows"
                    | "index of a file of rows"
                    | STALE_SEGMENT
                    | EXCHANGED_SEGMENT
                    | STRAY
                    | UNLISTED
            )
}

/// What is wrong without a manifest. It is made again of the files that are there, and a repair says only here that others may be lost.
const NO_MANIFEST: &str = "is missing; whether files of rows, or segments of the journal, are missing is not known";

/// A file with a name that no file of the store has. A start leaves it alone.
pub(crate) const STRAY: &str = "stray file";

/// A file of rows that the manifest does not have.
pub(crate) const UNLISTED: &str = "file of rows that is not in the manifest";

/// A segment of the journal that is missing, or has lost its contents.
pub(crate) const SEGMENT: &str = "journal segment";

/// What is wrong with a segment without contents.
pub(crate) const EMPTIED: &str = "it has lost its contents";

/// Bytes of a segment that are not a record, and why that matters.
const RECORD: &str = "journal record";
const NOT_WHOLE: &str = "the bytes are not whole records; the points of them may be of any metric";

/// A segment that has lost its end.
pub(crate) const CUT_SEGMENT: &str = "journal records";

/// A segment whose points are stored, and may have been overwritten since.
pub(crate) const STALE_SEGMENT: &str = "stale journal segment";

/// A segment under the name of another one: a repair gives it its own.
pub const EXCHANGED_SEGMENT: &str = "journal segment under another name";

/// A spec from before openings that wrote rows: a start refuses it.
pub const EARLIER_SPEC: &str = "spec of an earlier time";

/// A segment that a start refuses: its ids are those of other metrics.
pub const FOREIGN_SEGMENT: &str = "journal segment of another store";

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Its path in the folder.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Rows or records that can be read.
    pub records: u64,
    /// Bytes at its end that a write left which a crash cut off. They are not damage: nothing of them was promised.
    pub cut_off: u64,
    /// What cannot be read.
    pub faults: Vec<DamagedPart>,
    /// The metrics of its rows.
    pub(crate) metrics: IdSet,
    /// Why a file of rows does not belong in its place.
    pub(crate) misplaced: Option<String>,
}

impl Checked {
    /// A file of rows that was read.
    pub(crate) fn of_rows(path: PathBuf, bytes: u64, read: Result<FileReport, String>) -> Checked {
        let mut checked = Checked { path, bytes, ..Checked::default() };
        match read {
            Ok(report) => {
                checked.records = report.rows;
                checked.metrics = report.metrics;
                checked.faults.extend(report.damaged);
            }
            Err(how) => checked.faults.push(DamagedPart::of_file("file of rows", bytes, how)),
        }
        checked
    }

    fn missing(path: PathBuf, what: &'static str, bytes: u64, how: &str) -> Checked {
        let faults = vec![DamagedPart::of_file(what, bytes, how)];
        Checked { path, faults, ..Checked::default() }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Every file, by path.
    pub files: Vec<Checked>,
    /// What earlier damage cost, and what is not to be read any more.
    pub known_losses: Vec<KnownLoss>,
    /// Files whose last sync failed: the next start writes them again.
    pub written_again: NotedFiles,
}

/// What is lost since an earlier damage, though every byte can be read now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLoss {
    /// The file or folder that it is in.
    pub file: PathBuf,
    /// What is lost.
    pub how: String,
    /// First and last of the metrics that may be touched.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be touched, Unix seconds.
    pub span: Option<(Timestamp, Timestamp)>,
}

impl Report {
    /// Whether everything can be read.
    pub fn is_good(&self) -> bool {
        self.files.iter().all(|file| file.faults.is_empty())
    }

    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Each kind of file with its files, bytes, and what cannot be read of them.
    pub fn kinds(&self) -> BTreeMap<&'static str, [u64; 3]> {
        let mut kinds = BTreeMap::new();
        for file in &self.files {
            let [files, bytes, faults] = kinds.entry(kind(&file.path)).or_insert([0; 3]);
            *files += 1;
            *bytes += file.bytes;
            *faults += file.faults.len() as u64;
        }
        kinds
    }

    /// Whether earlier damage cost something that is still known of.
    pub fn has_known_losses(&self) -> bool {
        !self.known_losses.is_empty()
    }

    fn add(&mut self, path: PathBuf, part: DamagedPart) {
        match self.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.faults.push(part),
            None => self.files.push(Checked { path, faults: vec![part], ..Checked::default() }),
        }
    }

    /// Files with the end of a write that a crash cut off.
    pub fn cut_off(&self) -> impl Iterator<Item = &Checked> {
        self.files.iter().filter(|file| 0 < file.cut_off)
    }

    /// Files with what of them cannot be read.
    pub fn faults(&self) -> impl Iterator<Item = (&Checked, &DamagedPart)> {
        self.files.iter().flat_map(|file| file.faults.iter().map(move |fault| (file, fault)))
    }
}

/// What a file is by its path.
fn kind(path: &Path) -> &'static str {
    let text = path.to_string_lossy();
    match &*text {
        _ if text.ends_with(".rows") => "rows",
        _ if text.starts_with("journal/") => "journal",
        _ if text.starts_with("store/names/") => "names",
        _ if text.starts_with("store/events/") => "events",
        "store/manifest" => "manifest",
        "store/spec" => "spec",
        "names" => "saved names",
        "clock" => "clock",
        _ => "other",
    }
}

/// Locks a data folder that no process may use meanwhile.
///
/// # Errors
/// Another process uses it, or there is no store.
pub fn lock(disk: &dyn Disk, data: &Path) -> Result<FolderLock, BackupError> {
    let store = store_of_folder(disk, data)?;
    store_embedded::lock(disk, &store).map_err(with_next_step)
}

/// As [`lock`], for a process that changes nothing in the folder.
///
/// # Errors
/// As there.
pub fn lock_to_read(disk: &dyn Disk, data: &Path) -> Result<FolderLock, BackupError> {
    let store = store_of_folder(disk, data)?;
    store_embedded::lock_to_read(disk, &store).map_err(|error| match error {
        StoreError::Unavailable(held) => {
            BackupError::Folder(format!("{held}; a running server reads its files itself: see damage in /admin/status"))
        }
        error => with_next_step(error),
    })
}

fn store_of_folder(disk: &dyn Disk, data: &Path) -> Result<PathBuf, BackupError> {
    let store = data.join("store");
    // A folder without permission to read it is not a folder without a store.
    disk.read_dir(data).map_err(BackupError::io("reading", data))?;
    if !disk.exists(&store) {
        let text = format!("{} is not a data folder: it has no folder store", data.display());
        return Err(BackupError::Folder(text));
    }
    Ok(store)
}

/// What of a file of a backup differs from `backup.json`. The bytes, where there are any, are kept by a repair.
pub const UNLIKE: &str = "file of a backup";

/// Whether a file of a data folder is part of what it stores. The note of failed syncs is not.
pub(crate) fn is_part(path: &Path) -> bool {
    let first = path.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
    !matches!(first, "damaged" | "trash" | host::NOTE_OF_SYNCS)
        && !first.starts_with('.')
        && path.file_name() != Some("lock".as_ref())
}

/// Refuses a data folder in which a folder has the name of a file.
pub(crate) fn refuse_folders(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    let (_, folders) = files_and_folders(disk, data).map_err(BackupError::io("reading", data))?;
    let Some(path) = folders.into_iter().find(|path| is_part(path) && is_name_of_file(path)) else { return Ok(()) };
    let text =
        format!("{} is a folder and must be a file; nothing was changed: move it elsewhere", data.join(path).display());
    Err(BackupError::Folder(text))
}

/// Refuses a data folder whose store a start converts.
pub(crate) fn refuse_layout_1(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    if is_layout_1(disk, &data.join("store")) {
        return Err(BackupError::Folder(format!(
            "{} has layout 1, which this program converts at its first start and cannot verify or repair; nothing was \
             changed; start the server once, or use the version that wrote it",
            data.display()
        )));
    }
    Ok(())
}

/// Reads all of a data folder, except `damaged/` and `trash/`, and changes nothing. The caller has the [`lock`].
pub fn verify(disk: &dyn Disk, data: &Path) -> Result<Report, BackupError> {
    refuse_other_kinds(disk, data)?;
    refuse_newer(disk, data)?;
    refuse_layout_1(disk, data)?;
    let mut report = Report::default();
    let named = check_spec(disk, &data.join("store")).ok();
    let foreign = named.and_then(|named| other_store(disk, &data.join("store"), named));
    let store = foreign.or(named);
    let (files, folders) = files_and_folders(disk, data).map_err(BackupError::io("reading", data))?;
    for path in files.into_iter().filter(|path| is_part(path)) {
        report.files.push(check(disk, data, store, path));
    }
    let mut is_journal_read = true;
    for path in folders.into_iter().filter(|path| is_part(path) && is_name_of_file(path)) {
        is_journal_read &= !path.starts_with("journal");
        let how = "it is a folder and must be a file; move it elsewhere";
        report.add(path, DamagedPart::of_file(FOLDER, 0, how));
    }
    match NotedFiles::read(disk, data) {
        Ok(NotedFiles::Some(mut paths)) => {
            paths.retain(|path| disk.exists(&data.join(path)));
            report.written_again = NotedFiles::Some(paths);
        }
        Ok(all) => report.written_again = all,
        Err(error) => {
            report.add(PathBuf::from(host::NOTE_OF_SYNCS), DamagedPart::of_file("file", 0, error.to_string()));
        }
    }
    compare_with_manifest(disk, data, store, &mut report);
    // Where the spec is of another store, damaged or missing, a start makes it again, and compares the journal with that.
    if is_journal_read && let Some(identity) = identity_for_journal(disk, data) {
        let compared = compare_with_journal(disk, data, &identity, &mut report);
        compared.map_err(BackupError::io("reading", &data.join("journal")))?;
    }
    match foreign {
        Some(ours) => {
            let how = format!("it is of another store than the files next to it, which are of the store {ours:032x}");
            report.add(PathBuf::from("store/spec"), DamagedPart::of_file("spec", 0, how));
        }
        None => {
            let found =
                find_other_timelines(disk, data, &mut report).and_then(|()| find_unlisted(disk, data, &mut report));
            found.map_err(BackupError::io("reading", &data.join("store")))?;
        }
    }
    add_misplaced(disk, &data.join("store"), &mut report);
    compare_logs(disk, data, store, &mut report)?;
    let spec = PathBuf::from("store/spec");
    find_known_losses(disk, &data.join("store"), &mut report);
    if let Some((how, metrics)) = same_names::find(disk, &data.join("store")) {
        let file = PathBuf::from(LOGS[0].0);
        report.known_losses.push(KnownLoss { file, how, metrics: Some(metrics), span: None });
    }
    let damaged = data.join("damaged");
    let notes = ingest::wal::notes_of_missing(disk, &damaged).map_err(BackupError::io("listing", &damaged))?;
    for note in notes {
        let how = "a segment of the journal was missing: its points are lost unless they are stored, or it is put back; remove the \
                   note to end this"
            .to_owned();
        report.known_losses.push(KnownLoss { file: Path::new("damaged").join(note), how, metrics: None, span: None });
    }
    let kept = ingest::wal::kept_losses(disk, &damaged).map_err(BackupError::io("listing", &damaged))?;
    for (name, how) in kept {
        report.known_losses.push(KnownLoss { file: Path::new("damaged").join(name), how, metrics: None, span: None });
    }
    if !disk.exists(&data.join(&spec)) && report.files.iter().any(|file| file.path.starts_with("store")) {
        report.files.push(Checked::missing(spec, "spec", 0, "is missing"));
    }
    Ok(report)
}

/// Looks for what the journal and the logs of a finished backup lack, each compared with the other files.
pub(crate) fn compare_parts(
    disk: &dyn Disk,
    backup: &Path,
    store: u128,
    report: &mut Report,
) -> Result<(), BackupError> {
    if let Some(identity) = identity_for_journal(disk, backup) {
        let compared = compare_with_journal(disk, backup, &identity, report);
        compared.map_err(BackupError::io("reading", &backup.join("journal")))?;
    }
    compare_logs(disk, backup, Some(store), report)
}

/// Looks for files of logs that others name, and for logs that have lost their end.
fn compare_logs(disk: &dyn Disk, data: &Path, store: Option<u128>, report: &mut Report) -> Result<(), BackupError> {
    for (log, what) in LOGS {
        let dir = data.join(log);
        let missing = missing_logs(disk, &dir, store).map_err(BackupError::io("reading", &dir))?;
        for (path, bytes) in missing {
            let path = path.strip_prefix(data).unwrap_or(&path).to_owned();
            report.files.push(Checked::missing(path, what, bytes, "is missing: a later file names it"));
        }
    }
    for (first, last) in lost_names(disk, &data.join("store")) {
        let how = "the end of the log is missing: rows of later metrics are stored, and nothing names them";
        let part = DamagedPart { metrics: Some((first, last)), ..DamagedPart::of_file("names record", 0, how) };
        report.add(PathBuf::from(LOGS[0].0), part);
    }
    for (folder, how) in cut_logs(disk, &data.join("store")) {
        let what = if folder == "names" { "names record" } else { "event" };
        report.add(Path::new("store").join(folder), DamagedPart::of_file(what, 0, how));
    }
    Ok(())
}

/// Looks for files of a timeline of the store that was given up: the ids in them are of other metrics.
fn find_other_timelines(disk: &dyn Disk, data: &Path, report: &mut Report) -> io::Result<()> {
    for (path, how) in of_other_timeline(disk, &data.join("store"))? {
        let path = path.strip_prefix(data).unwrap_or(&path).to_owned();
        let what = match () {
            () if path.starts_with(LOGS[0].0) => "log of names",
            () if path.ends_with("spec") => EARLIER_SPEC,
            () => "file of rows",
        };
        report.add(path, DamagedPart::of_file(what, 0, how));
    }
    Ok(())
}

/// Looks for files of rows that the manifest does not have.
fn find_unlisted(disk: &dyn Disk, data: &Path, report: &mut Report) -> io::Result<()> {
    for (path, how) in unlisted_rows(disk, &data.join("store"))? {
        let path = path.strip_prefix(data).unwrap_or(&path).to_owned();
        let is_damaged = report.files.iter().any(|file| file.path == path && !file.faults.is_empty());
        if !is_damaged {
            report.add(path, DamagedPart::of_file(UNLISTED, 0, how));
        }
    }
    Ok(())
}

/// Adds the files of rows that do not belong in their places: a start puts them aside. Where the manifest has a file in such a place,
/// that one is lost.
fn add_misplaced(disk: &dyn Disk, store: &Path, report: &mut Report) {
    let listed = read_manifest(disk, store).ok();
    for file in &mut report.files {
        let is_said = file.faults.iter().any(|fault| fault.what == UNLISTED);
        let Some(how) = file.misplaced.take().filter(|_| !is_said) else { continue };
        let is_it = |listed: &StoredFile| file.path.strip_prefix("store").is_ok_and(|path| path == listed.path);
        let is_listed = listed.as_ref().is_none_or(|listed| listed.iter().any(is_it));
        let what = if is_listed { "file of rows" } else { UNLISTED };
        file.faults.push(DamagedPart::of_file(what, file.bytes, format!("{how}; a start puts it aside")));
    }
}

/// Looks for what earlier damage cost: rows that the manifest says are lost, and rows whose metric has no name any more.
fn find_known_losses(disk: &dyn Disk, store: &Path, report: &mut Report) {
    for lost in lost_rows(disk, store) {
        let how = match lost.is_file {
            true => {
                "a start did not find this file of rows; put back, it is used; a repair gives it up; reads of what it had say that they \
                 are damaged"
            }
            false => "earlier damage cost rows here; reads of them say so until they expire",
        };
        let (file, how) = (Path::new("store").join(lost.path), how.to_owned());
        report.known_losses.push(KnownLoss { file, how, metrics: lost.metrics, span: Some(lost.span) });
    }
    if let Some(how) = remade_manifest(disk, store) {
        let file = Path::new("store").join("manifest");
        report.known_losses.push(KnownLoss { file, how, metrics: None, span: None });
    }
    let mut stored = IdSet::default();
    for file in &mut report.files {
        stored.extend(&std::mem::take(&mut file.metrics));
    }
    for (how, metrics) in lost_policies(disk, store) {
        add_lost_by_names(report, "policy", how, metrics);
    }
    for (how, metrics) in lost_deletions(disk, store) {
        add_lost_by_names(report, "deletions", how, metrics);
    }
    // What a log that cannot be read would name is not known.
    let Some(nameless) = without_name(disk, store, &stored) else { return };
    if let Some(ends) = nameless.iter().next().zip(nameless.iter().last()) {
        let how = format!(
            "{} metrics have rows and no name, because damage cost their names: they are gone from all answers, and their rows \
             stay until they expire",
            nameless.iter().count()
        );
        add_lost_by_names(report, "names", how, ends);
    }
}

/// Adds what the log of names lacks: to its faults where it has some, and otherwise to what earlier damage cost.
fn add_lost_by_names(report: &mut Report, what: &'static str, how: String, ends: (MetricId, MetricId)) {
    let file = PathBuf::from(LOGS[0].0);
    let is_damaged = |one: &&mut Checked| one.path.starts_with(&file) && !one.faults.is_empty();
    match report.files.iter_mut().find(is_damaged) {
        Some(log) => log.faults.push(DamagedPart { metrics: Some(ends), ..DamagedPart::of_file(what, 0, how) }),
        None => report.known_losses.push(KnownLoss { file, how, metrics: Some(ends), span: None }),
    }
}

/// Reads all of a backup: each file against its checksum, and as part of a data folder.
pub fn verify_backup(disk: &dyn Disk, backup: &Path) -> Result<(Manifest, Report), BackupError> {
    let (backup, manifest) = manifest::open(disk, backup)?;
    let mut report = verify(disk, &backup)?;
    compare_with_backup(disk, &backup, &manifest, &mut report);
    Ok((manifest, report))
}

/// Each file of a backup must be what its `backup.json` says.
pub(crate) fn compare_with_backup(disk: &dyn Disk, backup: &Path, manifest: &Manifest, report: &mut Report) {
    report.files.retain(|file| file.path != Path::new(manifest::FILE));
    for lacking in manifest.lacking.iter().map(Path::new).filter(|path| !disk.exists(&backup.join(path))) {
        let files = report.files.len();
        let path = segments::first_of(lacking);
        report.files.retain(|file| file.path != path);
        if report.files.len() < files {
            let how = "the backup lacks it, as it says: a restore gives up what it had".to_owned();
            let loss = KnownLoss { file: lacking.to_owned(), how, metrics: None, span: None };
            report.known_losses.push(loss);
        }
    }
    for expected in &manifest.files {
        let path = PathBuf::from(&expected.path);
        let fault = match hash(disk, &backup.join(&path)) {
            Ok((bytes, sha256)) if (bytes, &sha256) == (expected.bytes, &expected.sha256) => None,
            Ok((bytes, _)) if bytes != expected.bytes => {
                Some(DamagedPart::of_file(UNLIKE, bytes, format!("{} bytes are expected", expected.bytes)))
            }
            Ok((bytes, _)) => Some(DamagedPart::of_file(UNLIKE, bytes, "its SHA-256 is not that of backup.json")),
            Err(error) => Some(DamagedPart::of_file(UNLIKE, 0, error.to_string())),
        };
        let Some(fault) = fault else { continue };
        report.add(path, fault);
    }
}

/// The logs of records in a data folder, and what a record is.
const LOGS: [(&str, &str); 2] = [("store/names", "names record"), ("store/events", "event")];

/// What a record of a log's file is.
pub(crate) fn log_of(path: &Path) -> Option<&'static str> {
    LOGS.iter().find(|(log, _)| path.starts_with(log)).map(|(_, what)| *what)
}

/// Reads a file as what it is by its path. `store` is that of the spec.
pub(crate) fn check(disk: &dyn Disk, data: &Path, store: Option<u128>, path: PathBuf) -> Checked {
    let mut checked = Checked { path, ..Checked::default() };
    let full = data.join(&checked.path);
    let text = checked.path.to_string_lossy().into_owned();
    let read = match () {
        () if is_stray(&checked.path) => read_whole(disk, &full, &mut checked).map(|()| {
            let how = "no file of the store has such a number; it is not used";
            checked.faults.push(DamagedPart::of_file(STRAY, checked.bytes, how));
        }),
        () if text.ends_with(".rows") => check_rows(disk, &full, store, &mut checked),
        () if text.starts_with("journal/") && RECORDS.iter().any(|end| text.ends_with(end)) => {
            check_journal(disk, &full, &mut checked)
        }
        () if text.ends_with(".log")
            && let Some(what) = log_of(&checked.path) =>
        {
            check_records(disk, &full, what, store, &mut checked)
        }
        () if text == "store/spec" => check_store(disk, data, &mut checked),
        () if text == "names" => check_saved_names(disk, &full, &mut checked),
        () if text == "clock" => check_clock(disk, &full, &mut checked),
        () if text == "segments" => check_newest(disk, &full, &mut checked),
        () if text == "journal/deleted" => check_deletions(disk, &full, &mut checked),
        () => read_whole(disk, &full, &mut checked),
    };
    if let Err(error) = read {
        checked.faults.push(DamagedPart::of_file("file", checked.bytes, error.to_string()));
    }
    checked
}

/// How files of records in the journal's folder end: segments, those that stay while an older one waits, and late points.
const RECORDS: [&str; 3] = [".journal", ".since", LATE_POINTS];

/// These are named once they are whole: no process was killed in the middle of one.
const LATE_POINTS: &str = ".points";

/// Whether a file has the name of a segment, of a file of a log or of one of rows, but for the number.
fn is_stray(path: &Path) -> bool {
    let is_ours = path.extension().is_some_and(|end| end == "journal" || end == "log" || end == "rows");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    is_ours && stem.split('-').any(|number| number.parse::<u64>().is_ok_and(|number| LAST_NUMBER < number))
}

/// A folder that has the name of a file.
const FOLDER: &str = "folder";

/// Whether only a file of the store or of the journal may have this name.
fn is_name_of_file(path: &Path) -> bool {
    let text = path.to_string_lossy();
    match path.iter().next().and_then(|first| first.to_str()) {
        Some("store") => {
            text.ends_with(".rows") || text.ends_with(".log") || text == "store/spec" || text == "store/manifest"
        }
        Some("journal") => RECORDS.iter().any(|end| text.ends_with(end)) || text == "journal/deleted",
        _ => false,
    }
}

fn check_rows(disk: &dyn Disk, path: &Path, store: Option<u128>, checked: &mut Checked) -> io::Result<()> {
    let bytes = disk.open(path, host::Open::Read)?.len()?;
    let read = check_file(disk, path);
    let in_store = checked.path.strip_prefix("store").ok();
    let misplaced = read.as_ref().ok().zip(in_store).and_then(|(report, path)| report.misplaced(store, path));
    *checked = Checked { misplaced, ..Checked::of_rows(std::mem::take(&mut checked.path), bytes, read) };
    Ok(())
}

fn check_journal(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    checked.bytes = disk.open(path, host::Open::Read)?.len()?;
    let bytes = read_contents(disk, path)?;
    let mut found = ingest::wal::records(&bytes);
    found.by_ref().for_each(drop);
    checked.records = found.replayed.records;
    let torn = found.torn_tail().filter(|_| !checked.path.to_string_lossy().ends_with(LATE_POINTS));
    checked.cut_off = torn.as_ref().map_or(0, |torn| torn.len() as u64);
    for place in found.damage.iter().filter(|&place| torn.as_ref() != Some(place)) {
        let (offset, bytes) = (place.start as u64, place.len() as u64);
        checked.faults.push(DamagedPart { offset, ..DamagedPart::of_file(RECORD, bytes, NOT_WHOLE) });
    }
    Ok(())
}

/// The list of what is deleted while segments are missing or not read.
fn check_deletions(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    checked.bytes = disk.open(path, host::Open::Read)?.len()?;
    let bytes = disk.read(path)?;
    let mut found = ingest::wal::records(&bytes);
    found.by_ref().for_each(drop);
    checked.records = found.replayed.records;
    let torn = found.torn_tail();
    for place in found.damage.iter().filter(|&place| torn.as_ref() != Some(place)) {
        let (offset, bytes) = (place.start as u64, place.len() as u64);
        let how = "the bytes are not whole records; points of segments that come back are put back only where their metrics exist, and \
                   the others are kept and reported";
        checked.faults.push(DamagedPart { offset, ..DamagedPart::of_file("list of deletions", bytes, how) });
    }
    Ok(())
}

fn check_records(
    disk: &dyn Disk,
    path: &Path,
    what: &'static str,
    store: Option<u128>,
    checked: &mut Checked,
) -> io::Result<()> {
    checked.bytes = disk.open(path, host::Open::Read)?.len()?;
    match check_log(disk, path, what, store) {
        Ok(report) => {
            checked.records = report.records;
            checked.cut_off = report.cut_off;
            checked.faults.extend(report.damaged);
        }
        Err(how) => checked.faults.push(DamagedPart::of_file("log", checked.bytes, how)),
    }
    Ok(())
}

fn check_store(disk: &dyn Disk, data: &Path, checked: &mut Checked) -> io::Result<()> {
    let store = data.join("store");
    read_whole(disk, &store.join("spec"), checked)?;
    if let Err(how) = check_spec(disk, &store) {
        checked.faults.push(DamagedPart::of_file("spec", checked.bytes, how));
    }
    Ok(())
}

fn check_saved_names(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    read_whole(disk, path, checked)?;
    if let Err(how) = Registry::open(disk, path) {
        checked.faults.push(DamagedPart::of_file("saved names", checked.bytes, how.to_string()));
    }
    Ok(())
}

fn check_clock(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    read_whole(disk, path, checked)?;
    if !host::is_mark(disk, path)? {
        checked.faults.push(DamagedPart::of_file("clock", checked.bytes, "its checksum is wrong"));
    }
    Ok(())
}

fn check_newest(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    read_whole(disk, path, checked)?;
    if !ingest::wal::is_newest(disk, path)? {
        let how =
            "its checksum is wrong; whether the newest segment of the journal is missing, or its end, is not known";
        checked.faults.push(DamagedPart::of_file("newest journal segment", checked.bytes, how));
    }
    Ok(())
}

fn read_whole(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    checked.bytes = hash(disk, path)?.0;
    Ok(())
}

/// The path of a segment of the journal in the data folder.
fn segment(number: u64) -> PathBuf {
    PathBuf::from(format!("journal/{number:08}.journal"))
}

/// The store that owns the journal, and its openings: those of the spec, or where that is of another store, damaged or missing, those that
/// the journal itself knows.
pub(crate) fn identity_for_journal(disk: &dyn Disk, data: &Path) -> Option<Identity> {
    let store = data.join("store");
    let named = identity_at_start(disk, &store);
    // No store has the number 0.
    let foreign = other_store(disk, &store, named.as_ref().map_or(0, |named| named.store));
    match (named, foreign) {
        (Some(named), None) => Some(named),
        (_, foreign) => {
            let of_journal = ingest::wal::identity_of_newest(disk, &data.join("journal"), foreign);
            of_journal.or(foreign.map(|store| Identity { store, ..Identity::default() }))
        }
    }
}

/// Adds segments of the journal that belong to other stores, by their numbers.
fn add_foreign(foreign: impl IntoIterator<Item = (u64, u128)>, ours: u128, report: &mut Report) {
    for (number, theirs) in foreign {
        let how = format!(
            "it belongs to the store {theirs:032x}, and this folder has the store {ours:032x}; a start refuses it: move it to the \
             folder that it came from"
        );
        report.add(segment(number), DamagedPart::of_file(FOREIGN_SEGMENT, 0, how));
    }
}

/// Looks for segments of the journal that the store or another segment knows, and for those that came back.
fn compare_with_journal(disk: &dyn Disk, data: &Path, identity: &Identity, report: &mut Report) -> io::Result<()> {
    let found = check_chain(disk, &data.join("journal"), read_journal_mark(disk, &data.join("store")), identity)?;
    if found.has_other_newest {
        let how =
            format!("{OTHER_NEWEST}; whether the newest segment of the journal is missing, or its end, is not known");
        let path = PathBuf::from("segments");
        let bytes = report.files.iter().find(|file| file.path == path).map_or(0, |file| file.bytes);
        report.add(path, DamagedPart::of_file("newest journal segment", bytes, how));
    }
    for (first, last) in found.missing {
        let how = if first == last {
            "is missing".to_owned()
        } else {
            format!("is missing, and so may be all others up to {}", segment(last).display())
        };
        report.add(segment(first), DamagedPart::of_file(SEGMENT, 0, how));
    }
    for cut in found.cut {
        let (path, how) = (segment(cut.segment), cut.how(disk, &data.join("journal")));
        // What is left of its last record is not the end of a write that a crash cut off.
        if let Some(file) = report.files.iter_mut().find(|file| file.path == path) {
            file.cut_off = 0;
        }
        report.add(path, DamagedPart { offset: cut.there, ..DamagedPart::of_file(CUT_SEGMENT, cut.missing(), how) });
    }
    for (number, synced) in found.synced {
        let path = segment(number);
        let torn = |file: &&mut Checked| 0 < file.cut_off && file.path == path;
        let Some(file) = report.files.iter_mut().find(torn) else { continue };
        let offset = file.bytes - file.cut_off;
        if has_lost_synced(&(offset as usize..file.bytes as usize), synced) {
            let bytes = std::mem::take(&mut file.cut_off);
            file.faults.push(DamagedPart { offset, ..DamagedPart::of_file(RECORD, bytes, NOT_WHOLE) });
        }
    }
    for number in found.emptied {
        let path = segment(number);
        // Its zeros are not the end of a write.
        if let Some(file) = report.files.iter_mut().find(|file| file.path == path) {
            file.cut_off = 0;
        }
        report.add(path, DamagedPart::of_file(SEGMENT, 0, EMPTIED));
    }
    for number in found.other {
        let how = "it is of another timeline of this store, as from before a restore; a start takes its points by the names that it \
                   gives";
        report.add(segment(number), DamagedPart::of_file(SEGMENT, 0, how));
    }
    for (number, header) in found.misnamed {
        let is_exchanged = found.exchanged.contains(&(number, header));
        let (what, way) = match is_exchanged {
            true => {
                (EXCHANGED_SEGMENT, "it was renamed; a repair gives it that name, and a start puts it aside".to_owned())
            }
            false => {
                let way = "it is a copy, or was renamed; a start puts it aside; if segment";
                (SEGMENT, format!("{way} {header} is missing, give it that name"))
            }
        };
        let how = format!("it says that it is segment {header}: {way}");
        report.add(segment(number), DamagedPart::of_file(what, 0, how));
    }
    add_foreign(found.foreign, identity.store, report);
    for number in found.returned {
        let how = "an earlier start reported it as missing, and it is back; a start puts its points back";
        report.add(segment(number), DamagedPart::of_file(SEGMENT, 0, how));
    }
    for number in found.stale {
        let how = "the store has its points already, and may have newer values; a start puts it aside";
        report.add(segment(number), DamagedPart::of_file(STALE_SEGMENT, 0, how));
    }
    Ok(())
}

/// The manifest of the files of rows says which there must be.
fn compare_with_manifest(disk: &dyn Disk, data: &Path, ours: Option<u128>, report: &mut Report) {
    let store = data.join("store");
    let manifest = Path::new("store/manifest").to_owned();
    if !disk.exists(&data.join(&manifest)) {
        // A start writes it before the first file of rows.
        let is_of_store =
            |file: &Checked| file.path.starts_with("store") && file.path.extension().is_some_and(|end| end == "rows");
        if report.files.iter().any(is_of_store) {
            report.files.push(Checked::missing(manifest, "manifest", 0, NO_MANIFEST));
        }
        return;
    }
    let other = ours.and_then(|ours| store_of_manifest(disk, &store).filter(|other| *other != ours));
    let missing = match other {
        Some(other) => {
            Err(format!("it is of the store {other:032x}; a start makes it again of the files that are there"))
        }
        None => missing_rows(disk, &store),
    };
    match missing {
        Ok(files) => {
            for file in files {
                let how = "is in the manifest, but missing";
                let path = Path::new("store").join(&file.path);
                report.files.push(Checked::missing(path, "file of rows", file.bytes, how));
            }
        }
        Err(how) => {
            if let Some(file) = report.files.iter_mut().find(|file| file.path == manifest) {
                file.faults.push(DamagedPart::of_file("manifest", file.bytes, how));
            }
        }
    }
}
