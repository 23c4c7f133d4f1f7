//! The files of a log as readers have them: records by their places, copies, and whether they still are where they were.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, DiskFile, Open, read_checked, retried};
use parking_lot::RwLock;
use store::StoreError;

use super::{
    draft::file_name,
    frame::{FRAME, Seal},
    place::{LogEnd, Place},
    walk::{Part, walk},
};
use crate::folder::io_error;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Bytes that a disk returns, or does not.
const PAGE: usize = 4096;

/// A file of a log that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedLog {
    /// The copy.
    pub path: PathBuf,
    /// Zeros in it, in place of bytes that the disk does not return now.
    pub unread: u64,
}

/// A file that can be read, and the length up to which it counts.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) seal: Seal,
    pub(super) len: u64,
    /// Bytes that it has at most, as far as this process knows: any, once a write of it has failed.
    pub(super) most: u64,
    /// Whether a sync of it failed at the start, or its last bytes are damaged: fewer records may be on the disk.
    pub(super) is_unsure: bool,
}

/// The files of a log, for readers. A clone is the same files.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogFiles(pub(super) Arc<RwLock<BTreeMap<u64, LogFile>>>);

impl LogFiles {
    /// Kind and payload of a record. `None` if it is damaged, or was replaced.
    pub(crate) fn read(&self, place: Place) -> io::Result<Option<(u8, Vec<u8>)>> {
        let Some(LogFile { file, seal, .. }) = self.0.read().get(&place.file).cloned() else { return Ok(None) };
        let mut bytes = vec![0; FRAME + place.len as usize];
        let open =
            |bytes: &[u8]| seal.open(place.offset, bytes).map(|(kind, payload)| (kind, payload.to_vec())).ok_or(());
        if let Ok(record) = read_checked(&*file, &mut bytes, place.offset, open)? {
            return Ok(Some(record));
        }
        let corrected = seal.corrected(place.offset, &bytes).filter(|record| record.len() == bytes.len());
        Ok(corrected.and_then(|record| open(&record).ok()))
    }

    /// Calls `each` with every record, in order. Damage is passed over: the caller knows how many records count.
    ///
    /// # Errors
    /// That some bytes could not be read, after `each` had the records of the others.
    pub(crate) fn scan(&self, mut each: impl FnMut(Place, u8, &[u8])) -> io::Result<()> {
        let mut unread = 0;
        let files: Vec<(u64, LogFile)> = self.0.read().iter().map(|(n, file)| (*n, file.clone())).collect();
        for (number, LogFile { file, seal, len, .. }) in files {
            walk(&*file, len, &seal, |part| match part {
                Part::Record(offset, kind, payload) | Part::Corrected(offset, _, kind, payload) => {
                    each(Place { file: number, offset, len: payload.len() as u32 }, kind, payload);
                }
                Part::Unread(_, bytes) => unread += bytes,
                Part::Damaged(..) | Part::Zeros(..) | Part::Torn(_) => {}
            });
        }
        if unread == 0 { Ok(()) } else { Err(io::Error::other(format!("{unread} bytes cannot be read"))) }
    }

    /// The place up to which the log is on the disk; `None` while that is not known.
    pub(crate) fn end(&self) -> Option<LogEnd> {
        let files = self.0.read();
        let (number, file) = files.last_key_value().filter(|(_, file)| !file.is_unsure)?;
        Some(LogEnd { file: *number, bytes: file.len })
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.read().values().map(|file| file.len).sum()
    }

    /// Copies the files into a folder, each up to the length that is on the disk, and syncs them. The folder must be there. What
    /// the disk does not return is zeros.
    ///
    /// # Errors
    /// The copies cannot be written.
    pub(super) fn copy_into(&self, disk: &dyn Disk, into: &Path) -> Result<Vec<CopiedLog>, StoreError> {
        let files: Vec<(u64, LogFile)> = self.0.read().iter().map(|(n, file)| (*n, file.clone())).collect();
        let mut copied = Vec::new();
        for (number, LogFile { file, len, .. }) in files {
            copied.push(copy_file(disk, Some(&*file), len, into.join(file_name(number)))?);
        }
        disk.sync_dir(into).map_err(io_error(format!("syncing {}", into.display())))?;
        Ok(copied)
    }

    /// Whether the files are where they were, in `dir`: one that was removed or replaced takes records that no start finds.
    pub(crate) fn check_places(&self, dir: &Path) -> Result<(), StoreError> {
        for (number, LogFile { file, .. }) in self.0.read().iter() {
            let path = dir.join(file_name(*number));
            let failed = || io_error(format!("writing {}", path.display()));
            if !file.is_at(&path).map_err(failed())? {
                return Err(failed()(io::Error::other(
                    "the file was moved away, removed or replaced while the program uses it; stop the program, put the file back, \
                     and start it again",
                )));
            }
        }
        Ok(())
    }
}

/// Copies a file that could not be read when its log was opened, and perhaps can be now.
pub(super) fn copy_unread(disk: &dyn Disk, path: &Path, len: u64, into: &Path) -> Result<CopiedLog, StoreError> {
    let to = into.join(path.file_name().expect("a file of the log has a name"));
    let file = retried(|| disk.open(path, Open::Read)).ok();
    copy_file(disk, file.as_deref(), len, to)
}

/// Copies so many bytes of a file, with zeros in place of what cannot be read, and syncs the copy.
fn copy_file(disk: &dyn Disk, file: Option<&dyn DiskFile>, len: u64, path: PathBuf) -> Result<CopiedLog, StoreError> {
    let copy = || -> io::Result<u64> {
        let mut copy = disk.open(&path, Open::Create)?;
        let (mut offset, mut bytes, mut unread) = (0, Vec::new(), 0);
        while offset < len {
            bytes.resize(COPY_BYTES.min((len - offset) as usize), 0);
            bytes.fill(0);
            unread += file.map_or(bytes.len() as u64, |file| read_what_can_be(file, &mut bytes, offset));
            copy.write_all(&bytes)?;
            offset += bytes.len() as u64;
        }
        copy.sync_all()?;
        Ok(unread)
    };
    let unread = copy().map_err(io_error(format!("copying a log to {}", path.display())))?;
    Ok(CopiedLog { path, unread })
}

/// Reads bytes of a file, with zeros in place of pages that the disk does not return. Returns how many bytes those are.
fn read_what_can_be(file: &dyn DiskFile, bytes: &mut [u8], offset: u64) -> u64 {
    if retried(|| file.read_exact_at(bytes, offset)).is_ok() {
        return 0;
    }
    let mut unread = 0;
    // Chunks begin at a page of the file.
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        if retried(|| file.read_exact_at(page, offset + (number * PAGE) as u64)).is_err() {
            page.fill(0);
            unread += page.len() as u64;
        }
    }
    unread
}
