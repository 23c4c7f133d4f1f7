//! Whether a later version of the program wrote to a data folder or a backup: then nothing of it is changed.

use std::path::Path;

use host::Disk;
use store_embedded::NewerFile;

use crate::error::BackupError;

/// Versions of segments of the journal that this program reads.
const OF_JOURNAL: &str = "versions 1 and 2";

/// Refuses a data folder, or a backup of one, in which a file has a later version than this program reads. Reads the first
/// bytes of each file.
///
/// # Errors
/// [`BackupError::Newer`], and whatever the disk says to a list of a folder.
pub fn refuse_newer(disk: &dyn Disk, data: &Path) -> Result<(), BackupError> {
    let newer = |file: NewerFile| {
        let NewerFile { path, found, reads } = file;
        Err(BackupError::Newer { path, found, reads })
    };
    let store = data.join("store");
    if let Some(file) = store_embedded::newer_file(disk, &store).map_err(BackupError::io("reading", &store))? {
        return newer(file);
    }
    let journal = data.join("journal");
    let segment = ingest::wal::newer_segment(disk, &journal).map_err(BackupError::io("reading", &journal))?;
    if let Some((path, version)) = segment {
        return newer(NewerFile { path, found: format!("version {version}"), reads: OF_JOURNAL.to_owned() });
    }
    let path = data.join("clock");
    // One that cannot be read is met again, and then dealt with.
    if let Some((version, reads)) = host::newer_mark(disk, &path).unwrap_or(None) {
        return newer(NewerFile { path, found: format!("version {version}"), reads: format!("version {reads}") });
    }
    Ok(())
}
