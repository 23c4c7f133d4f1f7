//! Every checksum of a data folder or of a backup, read without starting anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use host::{Disk, DiskFile};
use metadata::Registry;
use metric::{MetricId, Timestamp};
use store_embedded::{DamagedPart, check_file, check_log, check_spec, read_manifest};

use crate::{
    error::BackupError,
    files::{below, hash},
    manifest::{self, Manifest},
    newer::refuse_newer,
};

/// Something that cannot be read as what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of thing.
    pub what: &'static str,
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What was found instead.
    pub how: String,
    /// First and last of the metrics that may be touched, by id, where that is known.
    pub metrics: Option<(MetricId, MetricId)>,
    /// From and until of the points that may be touched, Unix seconds, where that is known.
    pub span: Option<(Timestamp, Timestamp)>,
}

impl Fault {
    /// Whether points, names or events may be missing without these bytes. The rest is made again of other files.
    pub fn costs(&self) -> bool {
        !matches!(
            self.what,
            "spec"
                | "manifest"
                | "clock"
                | "saved names"
                | "header of a log"
                | "header of a file of rows"
                | "footer of a file of rows"
                | "index of a file of rows"
        )
    }

    fn of_file(what: &'static str, bytes: u64, how: impl Into<String>) -> Fault {
        Fault { what, offset: 0, bytes, how: how.into(), metrics: None, span: None }
    }
}

impl From<DamagedPart> for Fault {
    fn from(part: DamagedPart) -> Fault {
        let DamagedPart { what, offset, bytes, how, metrics, span } = part;
        Fault { what, offset, bytes, how, metrics, span }
    }
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its path in the folder.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Rows or records that can be read.
    pub records: u64,
    /// What cannot.
    pub faults: Vec<Fault>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Every file, by path.
    pub files: Vec<Checked>,
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

    /// Files with what of them cannot be read.
    pub fn faults(&self) -> impl Iterator<Item = (&Checked, &Fault)> {
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
pub fn lock(disk: &dyn Disk, data: &Path) -> Result<Box<dyn DiskFile>, BackupError> {
    let store = data.join("store");
    if !disk.exists(&store) {
        let text = format!("{} is not a data folder: it has no folder store", data.display());
        return Err(BackupError::Folder(text));
    }
    store_embedded::lock(disk, &store).map_err(|error| BackupError::Folder(error.to_string()))
}

/// Reads all of a data folder, except `damaged/` and `trash/`, and changes nothing. The caller has the [`lock`].
pub fn verify(disk: &dyn Disk, data: &Path) -> Result<Report, BackupError> {
    refuse_newer(disk, data)?;
    let mut report = Report::default();
    let store = check_spec(disk, &data.join("store")).ok();
    for path in below(disk, data).map_err(BackupError::io("reading", data))? {
        let first = path.iter().next().and_then(|first| first.to_str()).unwrap_or_default();
        if !matches!(first, "damaged" | "trash") && !first.starts_with('.') && path.file_name() != Some("lock".as_ref())
        {
            report.files.push(check(disk, data, store, path));
        }
    }
    compare_with_manifest(disk, data, &mut report);
    let spec = PathBuf::from("store/spec");
    if !disk.exists(&data.join(&spec)) && report.files.iter().any(|file| file.path.starts_with("store")) {
        let fault = Fault::of_file("spec", 0, "is missing");
        report.files.push(Checked { path: spec, bytes: 0, records: 0, faults: vec![fault] });
    }
    Ok(report)
}

/// Reads all of a backup: each file against its checksum, and as part of a data folder.
pub fn verify_backup(disk: &dyn Disk, backup: &Path) -> Result<(Manifest, Report), BackupError> {
    let backup = manifest::find(disk, backup)?;
    let manifest = Manifest::read(disk, &backup)?;
    let mut report = verify(disk, &backup)?;
    report.files.retain(|file| file.path != Path::new(manifest::FILE));
    for expected in &manifest.files {
        let path = PathBuf::from(&expected.path);
        let fault = match hash(disk, &backup.join(&path)) {
            Ok((bytes, sha256)) if (bytes, &sha256) == (expected.bytes, &expected.sha256) => None,
            Ok((bytes, _)) if bytes != expected.bytes => {
                Some(Fault::of_file("file", bytes, format!("{} bytes are expected", expected.bytes)))
            }
            Ok((bytes, _)) => Some(Fault::of_file("file", bytes, "its SHA-256 is not that of backup.json")),
            Err(error) => Some(Fault::of_file("file", 0, error.to_string())),
        };
        let Some(fault) = fault else { continue };
        match report.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.faults.push(fault),
            None => report.files.push(Checked { path, bytes: 0, records: 0, faults: vec![fault] }),
        }
    }
    Ok((manifest, report))
}

/// Reads a file as what it is by its path. `store` is that of the spec.
fn check(disk: &dyn Disk, data: &Path, store: Option<u128>, path: PathBuf) -> Checked {
    let mut checked = Checked { bytes: 0, records: 0, faults: Vec::new(), path };
    let full = data.join(&checked.path);
    let text = checked.path.to_string_lossy().into_owned();
    let read = match () {
        () if text.ends_with(".rows") => check_rows(disk, &full, &mut checked),
        () if text.starts_with("journal/") && text.ends_with(".journal") => check_journal(disk, &full, &mut checked),
        () if text.starts_with("store/names/") && text.ends_with(".log") => {
            check_records(disk, &full, "names record", store, &mut checked)
        }
        () if text.starts_with("store/events/") && text.ends_with(".log") => {
            check_records(disk, &full, "event", store, &mut checked)
        }
        () if text == "store/spec" => check_store(disk, data, &mut checked),
        () if text == "names" => check_saved_names(disk, &full, &mut checked),
        () if text == "clock" => check_clock(disk, &full, &mut checked),
        () => read_whole(disk, &full, &mut checked),
    };
    if let Err(error) = read {
        checked.faults.push(Fault::of_file("file", checked.bytes, error.to_string()));
    }
    checked
}

fn check_rows(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    checked.bytes = disk.open(path, host::Open::Read)?.len()?;
    match check_file(disk, path) {
        Ok(report) => {
            checked.records = report.rows;
            checked.faults.extend(report.damaged.into_iter().map(Fault::from));
        }
        Err(how) => checked.faults.push(Fault::of_file("file of rows", checked.bytes, how)),
    }
    Ok(())
}

fn check_journal(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    let bytes = disk.read(path)?;
    checked.bytes = bytes.len() as u64;
    let found = ingest::wal::replay(&bytes, |_| ());
    checked.records = found.records;
    if 0 < found.damaged_bytes {
        let how = "not whole records. At the end of the last segment this is normal after a crash";
        checked.faults.push(Fault::of_file("journal record", found.damaged_bytes, how));
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
            checked.faults.extend(report.damaged.into_iter().map(Fault::from));
        }
        Err(how) => checked.faults.push(Fault::of_file("log", checked.bytes, how)),
    }
    Ok(())
}

fn check_store(disk: &dyn Disk, data: &Path, checked: &mut Checked) -> io::Result<()> {
    let store = data.join("store");
    read_whole(disk, &store.join("spec"), checked)?;
    if let Err(how) = check_spec(disk, &store) {
        checked.faults.push(Fault::of_file("spec", checked.bytes, how));
    }
    Ok(())
}

fn check_saved_names(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    read_whole(disk, path, checked)?;
    if let Err(how) = Registry::open(disk, path) {
        checked.faults.push(Fault::of_file("saved names", checked.bytes, how.to_string()));
    }
    Ok(())
}

fn check_clock(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    read_whole(disk, path, checked)?;
    if !host::is_mark(disk, path)? {
        checked.faults.push(Fault::of_file("clock", checked.bytes, "its checksum is wrong"));
    }
    Ok(())
}

fn read_whole(disk: &dyn Disk, path: &Path, checked: &mut Checked) -> io::Result<()> {
    checked.bytes = hash(disk, path)?.0;
    Ok(())
}

/// The manifest of the files of rows says which there must be.
fn compare_with_manifest(disk: &dyn Disk, data: &Path, report: &mut Report) {
    let store = data.join("store");
    let manifest = Path::new("store/manifest").to_owned();
    if !disk.exists(&data.join(&manifest)) {
        return;
    }
    match read_manifest(disk, &store) {
        Ok(files) => {
            let there: BTreeSet<PathBuf> = report.files.iter().map(|file| file.path.clone()).collect();
            for file in files {
                let path = Path::new("store").join(&file.path);
                if !there.contains(&path) {
                    let fault = Fault::of_file("file of rows", file.bytes, "is in the manifest, but missing");
                    report.files.push(Checked { path, bytes: 0, records: 0, faults: vec![fault] });
                }
            }
        }
        Err(how) => {
            if let Some(file) = report.files.iter_mut().find(|file| file.path == manifest) {
                file.faults.push(Fault::of_file("manifest", file.bytes, how));
            }
        }
    }
}
