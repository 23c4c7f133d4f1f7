//! What a store says about itself, for operators and for backups.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use host::{Disk, read_file_checked};
use metric::MetricId;
use store::JournalMark;

use crate::{
    commits::MANIFEST,
    manifest::{self, Manifest, ManifestError, ManifestFile},
    merges::{Merges, debt_of},
    points::Points,
    window::Window,
};

/// A file of rows that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its path in the folder of the store.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// The checksum of its index, which depends on the lengths and keys of all blocks; zero where it is not known.
    pub index_crc: u32,
    /// Rows.
    pub rows: u64,
}

impl StoredFile {
    pub(crate) fn of(file: &ManifestFile) -> StoredFile {
        let ManifestFile { bytes, index_crc, rows, .. } = *file;
        StoredFile { path: file.path(), bytes, index_crc, rows }
    }
}

/// The files of rows that the manifest of a store names, without opening it.
///
/// # Errors
/// Why the manifest cannot be read, in words.
pub fn read_manifest(disk: &dyn Disk, store: &Path) -> Result<Vec<StoredFile>, String> {
    let bytes = read_bytes(disk, store).map_err(|error| error.to_string())?;
    match Manifest::parse(&bytes) {
        Ok(manifest) => Ok(manifest.files.iter().map(StoredFile::of).collect()),
        Err(ManifestError::Damaged(how)) => Err(how),
        Err(ManifestError::Version(version)) => Err(format!("a newer program wrote it: version {version}")),
    }
}

/// The store that a manifest is of. `None` where it cannot be read.
pub fn store_of_manifest(disk: &dyn Disk, store: &Path) -> Option<u128> {
    manifest_of(disk, store).map(|manifest| manifest.store)
}

/// How much of the journal the manifest of a store says is stored, without opening it. `None` where it does not say.
pub fn read_journal_mark(disk: &dyn Disk, store: &Path) -> Option<JournalMark> {
    manifest_of(disk, store)?.journal
}

/// As [`metrics_below`] of the manifest of a store; above all where it cannot be read.
pub(crate) fn stored_below(disk: &dyn Disk, store: &Path) -> MetricId {
    match read_bytes(disk, store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => MetricId(0),
        bytes => {
            let manifest = bytes.ok().and_then(|bytes| Manifest::parse(&bytes).ok());
            manifest.map_or(MetricId::NONE, |manifest| metrics_below(&manifest))
        }
    }
}

/// Above every metric that a manifest knows rows of.
pub(crate) fn metrics_below(manifest: &Manifest) -> MetricId {
    let of_files = manifest.files.iter().map(|file| file.metrics.1.0.saturating_add(1)).max();
    MetricId(manifest.metrics_below.max(of_files.unwrap_or(0)))
}

/// The manifest of a store, where it can be read.
pub(crate) fn manifest_of(disk: &dyn Disk, store: &Path) -> Option<Manifest> {
    Manifest::parse(&read_bytes(disk, store).ok()?).ok()
}

fn read_bytes(disk: &dyn Disk, store: &Path) -> io::Result<Vec<u8>> {
    read_file_checked(disk, &store.join(MANIFEST), manifest::LONGEST, |bytes| Manifest::parse(bytes).is_ok())
}

/// The state of the files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// Files of rows.
    pub files: u64,
    /// Files of rows that the manifest has and that are not there, as a start or a read found: their rows are missing from answers.
    pub missing_files: u64,
    /// The most files that a window has: the reads of one row.
    pub most_files: u64,
    /// Bytes that merges still have to write.
    pub merge_debt_bytes: u64,
    /// Merges since the start.
    pub merges: u64,
    /// Those of them that ran in the middle of a larger one, and kept the files of windows few.
    pub merges_meanwhile: u64,
    /// Bytes that merges have read since the start.
    pub merged_bytes: u64,
    /// Merges that failed since the start.
    pub merges_failed: u64,
    /// Whether merges wait because they would leave less of the disk free than the reserve.
    pub is_short_of_disk: bool,
    /// Bytes of damaged blocks and rows that merges copied to `damaged/` since the start.
    pub quarantined_bytes: u64,
    /// Bytes of rows that are in memory alone.
    pub unsynced_bytes: u64,
    /// The age of the oldest row that is in memory alone.
    pub oldest_unsynced: Option<Duration>,
    /// Whether the manifest could not be written and the next sync retries.
    pub is_manifest_behind: bool,
}

fn missing_files(window: &Window) -> u64 {
    let went = window.files().iter().filter(|file| file.is_away()).count();
    (window.missing().len() + went) as u64
}

pub(crate) fn status(points: &Points, merges: &Merges) -> StoreStatus {
    let windows = points.windows();
    let now = points.shared.clock.instant();
    let oldest = windows.iter().filter_map(|window| window.oldest_unsynced()).min();
    let files = || windows.iter().map(|window| window.files().len() as u64);
    StoreStatus {
        files: files().sum(),
        missing_files: windows.iter().map(|window| missing_files(window)).sum(),
        most_files: files().max().unwrap_or(0),
        merge_debt_bytes: debt_of(points),
        merges: merges.merged.load(Relaxed),
        merges_meanwhile: merges.merged_meanwhile.load(Relaxed),
        merged_bytes: merges.written_bytes.load(Relaxed),
        merges_failed: merges.failed.load(Relaxed),
        is_short_of_disk: merges.is_short_of_disk.load(Relaxed),
        quarantined_bytes: points.shared.quarantined_bytes.load(Relaxed),
        unsynced_bytes: points.unsynced_bytes(),
        oldest_unsynced: oldest.map(|oldest| now.saturating_duration_since(oldest)),
        is_manifest_behind: points.is_manifest_behind(),
    }
}
