//! A file of rows read once: checked as what it is while its bytes go, in order, to a checksum and to a copy.
//!
//! A check reads the ends of a file first, and then block after block. Bytes that come in the order of the file are passed on at
//! once; the others are read again at the end, which is the index at most where the file is whole.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use host::{Disk, DiskFile, Open};
use sha2::{Digest as _, Sha256};
use store_embedded::{FileCheck, FileReport};

use crate::{
    files::{CHUNK, hex},
    pace::Pace,
};

/// A file that was read.
pub(crate) struct ReadRows {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// What it has as a file of rows, or why it is not one.
    pub(crate) report: Result<FileReport, String>,
}

/// Reads a file of rows, and copies it to `copy` if there is one.
///
/// # Errors
/// The disk cannot read all of it, or cannot write the copy.
pub(crate) fn read_rows(disk: &dyn Disk, path: &Path, copy: Option<&Path>, pace: &Arc<Pace>) -> io::Result<ReadRows> {
    let copy = copy.map(|to| disk.open(to, Open::CreateNew)).transpose()?;
    let file = disk.open(path, Open::Read)?;
    let bytes = file.len()?;
    let passed = Passed { until: 0, sha: Sha256::new(), copy, failed: None };
    let file = Arc::new(Passing { file, passed: Mutex::new(passed), pace: pace.clone() });
    let report = FileCheck::of(Box::new(Shared(file.clone()))).map(FileCheck::finish);
    let mut chunk = vec![0; CHUNK];
    loop {
        let until = file.passed().until;
        let next = (bytes.saturating_sub(until)).min(CHUNK as u64) as usize;
        if next == 0 {
            break;
        }
        file.read_exact_at(&mut chunk[..next], until)?;
        if let Some(failed) = file.passed().failed.take() {
            return Err(failed);
        }
    }
    let mut passed = file.passed();
    if let Some(failed) = passed.failed.take() {
        return Err(failed);
    }
    if let Some(copy) = &passed.copy {
        copy.sync_all()?;
    }
    Ok(ReadRows { bytes, sha256: hex(std::mem::take(&mut passed.sha)), report })
}

/// What was passed on.
struct Passed {
    /// Up to this byte of the file.
    until: u64,
    sha: Sha256,
    copy: Option<Box<dyn DiskFile>>,
    /// Why the copy cannot be written. The reader of the file must not take that for damage of the file.
    failed: Option<io::Error>,
}

impl Passed {
    fn pass(&mut self, bytes: &[u8], offset: u64) {
        let Some(known) = self.until.checked_sub(offset) else { return };
        let Some(new) = bytes.get(known as usize..).filter(|new| !new.is_empty() && self.failed.is_none()) else {
            return;
        };
        self.sha.update(new);
        self.failed = self.copy.as_ref().and_then(|copy| copy.write_shared(new).err());
        self.until += new.len() as u64;
    }
}

/// A file whose bytes are passed on.
struct Passing {
    file: Box<dyn DiskFile>,
    passed: Mutex<Passed>,
    pace: Arc<Pace>,
}

impl Passing {
    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)?;
        self.passed().pass(bytes, offset);
        self.pace.took(bytes.len() as u64);
        Ok(())
    }
}

/// A [`Passing`] that a check has, too. Only reads at an offset are asked of it.
struct Shared(Arc<Passing>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.file.fmt(f)
    }
}

fn reads_only() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this file is read at offsets only")
}

impl DiskFile for Shared {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn write_shared(&self, _: &[u8]) -> io::Result<()> {
        Err(reads_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(reads_only())
    }

    fn sync_all(&self) -> io::Result<()> {
        Err(reads_only())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(reads_only())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(reads_only())
    }
}

impl Read for Shared {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(reads_only())
    }
}

impl Write for Shared {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(reads_only())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Shared {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(reads_only())
    }
}

#[cfg(test)]
mod tests {
    use host::SimulatedDisk;

    use super::*;
    use crate::files::hash;

    #[test]
    fn bytes_in_any_order_are_passed_on_in_the_order_of_the_file() {
        let mut passed = Passed { until: 0, sha: Sha256::new(), copy: None, failed: None };
        passed.pass(b"jk", 9);
        passed.pass(b"abc", 0);
        passed.pass(b"ij", 8);
        passed.pass(b"bcdef", 1);
        passed.pass(b"def", 3);
        passed.pass(b"ghijk", 6);
        assert_eq!((passed.until, hex(passed.sha)), (11, hex(Sha256::new().chain_update(b"abcdefghijk"))));
    }

    #[test]
    fn what_is_not_a_file_of_rows_is_read_and_copied_all_the_same() {
        let disk = SimulatedDisk::new();
        let (from, to) = (Path::new("1-1.rows"), Path::new("copy"));
        let write = |bytes: &[u8]| disk.open(from, Open::Create).and_then(|file| file.write_shared(bytes)).unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        write(&bytes);
        let read = read_rows(&disk, from, Some(to), &Pace::without_limit()).unwrap();
        assert!(read.report.is_err());
        assert_eq!((read.bytes, read.sha256), hash(&disk, from).unwrap());
        assert!(disk.read(to).unwrap() == bytes);
        write(b"");
        let empty = read_rows(&disk, from, None, &Pace::without_limit()).unwrap();
        assert_eq!((empty.bytes, empty.sha256), hash(&disk, from).unwrap());
    }
}
