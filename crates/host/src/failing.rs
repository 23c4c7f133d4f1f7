//! A file system that fails where a test says.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::{DirEntry, Disk, DiskFile, Open, SettledSyncs, disk::judge_end};

/// What is about to be done to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A file is opened or made.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file or directory is put on the disk.
    Sync,
    /// A file is cut or extended.
    SetLen,
    /// A directory is made.
    CreateDir,
    /// A directory is listed.
    ReadDir,
    /// A file is renamed, or gets a second name.
    Rename,
    /// A file or directory is removed.
    Remove,
}

/// Changes bytes that were read.
type Change = dyn Fn(&Path, &mut [u8]) + Send + Sync;

/// Changes the length of a file.
type ChangeLength = dyn Fn(&Path, u64) -> u64 + Send + Sync;

/// What is there, and that the disk does not find.
type Hidden = dyn Fn(Call, &Path) -> bool + Send + Sync;

/// Where reads of a file end, before its length.
type EarlyEnd = dyn Fn(&Path) -> Option<u64> + Send + Sync;

type Fault = dyn Fn(Call, &Path) -> Option<io::Error> + Send + Sync;

/// Another disk, except that each call first asks whether it fails.
#[derive(Clone)]
pub struct FailingDisk {
    disk: Arc<dyn Disk>,
    fault: Arc<Fault>,
    bad_sector: Option<(&'static str, Range<u64>, Arc<AtomicBool>)>,
    change: Option<Arc<Change>>,
    change_length: Option<Arc<ChangeLength>>,
    change_listed: Option<Arc<ChangeLength>>,
    early_end: Option<Arc<EarlyEnd>>,
    hidden: Option<Arc<Hidden>>,
    grants_locks: bool,
}

impl FailingDisk {
    /// `fault` is shown every call and its path before it is made; an error it returns is the call's answer.
    pub fn new(
        disk: Arc<dyn Disk>,
        fault: impl Fn(Call, &Path) -> Option<io::Error> + Send + Sync + 'static,
    ) -> FailingDisk {
        FailingDisk {
            disk,
            fault: Arc::new(fault),
            bad_sector: None,
            change: None,
            change_length: None,
            change_listed: None,
            early_end: None,
            hidden: None,
            grants_locks: false,
        }
    }

    /// `change` is shown the bytes of every read, and may change them: the disk is right, and the way from it is not.
    pub fn with_changed_reads(self, change: impl Fn(&Path, &mut [u8]) + Send + Sync + 'static) -> FailingDisk {
        FailingDisk { change: Some(Arc::new(change)), ..self }
    }

    /// `change` is shown the length of an open file, and says which length the call gives: a network disk may have one of before.
    pub fn with_changed_lengths(self, change: impl Fn(&Path, u64) -> u64 + Send + Sync + 'static) -> FailingDisk {
        FailingDisk { change_length: Some(Arc::new(change)), ..self }
    }

    /// `change` is shown the length of each file in the list of a folder, and says which length the list has.
    pub fn with_changed_lists(self, change: impl Fn(&Path, u64) -> u64 + Send + Sync + 'static) -> FailingDisk {
        FailingDisk { change_listed: Some(Arc::new(change)), ..self }
    }

    /// `end` is shown the path of every read, and may say behind which byte it returns nothing, without an error, though the file
    /// is longer.
    pub fn with_early_ends(self, end: impl Fn(&Path) -> Option<u64> + Send + Sync + 'static) -> FailingDisk {
        FailingDisk { early_end: Some(Arc::new(end)), ..self }
    }

    /// What `is_hidden` is left out of lists of its folder ([`Call::ReadDir`]), or is not found under its path ([`Call::Open`]), though
    /// it is there, as on a network disk.
    pub fn with_hidden(self, is_hidden: impl Fn(Call, &Path) -> bool + Send + Sync + 'static) -> FailingDisk {
        FailingDisk { hidden: Some(Arc::new(is_hidden)), ..self }
    }

    /// Every lock is granted, also one that another file has, as on some file systems of the network.
    pub fn granting_locks(self) -> FailingDisk {
        FailingDisk { grants_locks: true, ..self }
    }

    /// Reads at an offset fail where they touch these bytes of files whose paths end with `path`.
    pub fn with_bad_sector(self, path: &'static str, bytes: Range<u64>) -> FailingDisk {
        self.with_sector_bad_while(path, bytes, Arc::new(AtomicBool::new(true)))
    }

    /// As [`FailingDisk::with_bad_sector`], while `is_bad`.
    pub fn with_sector_bad_while(self, path: &'static str, bytes: Range<u64>, is_bad: Arc<AtomicBool>) -> FailingDisk {
        FailingDisk { bad_sector: Some((path, bytes, is_bad)), ..self }
    }

    fn check(&self, call: Call, path: &Path) -> io::Result<()> {
        (self.fault)(call, path).map_or(Ok(()), Err)
    }

    fn is_hidden(&self, from: Call, path: &Path) -> bool {
        self.hidden.as_ref().is_some_and(|is_hidden| is_hidden(from, path))
    }

    fn change(&self, path: &Path, bytes: &mut [u8]) {
        if let Some(change) = &self.change {
            change(path, bytes);
        }
    }
}

impl fmt::Debug for FailingDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FailingDisk").field(&self.disk).finish()
    }
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.check(Call::Open, path)?;
        if matches!(how, Open::Read | Open::ReadWrite) && self.is_hidden(Call::Open, path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = self.disk.open(path, how)?;
        Ok(Box::new(FailingFile { file, path: path.into(), disk: self.clone() }))
    }

    fn hold(&self, path: &Path) -> io::Result<()> {
        self.disk.hold(path)
    }

    fn settle_syncs(&self, data: &Path) -> io::Result<SettledSyncs> {
        self.disk.settle_syncs(data)
    }

    fn refuse_writes(&self, path: &Path, why: &str) {
        self.disk.refuse_writes(path, why);
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(Call::CreateDir, path)?;
        self.disk.create_dir_all(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        self.disk.make_private(path)
    }

    fn is_readable_by_others(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_readable_by_others(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.check(Call::ReadDir, path)?;
        let mut entries = self.disk.read_dir(path)?;
        entries.retain(|entry| !self.is_hidden(Call::ReadDir, &entry.path));
        if let Some(change) = &self.change_listed {
            entries.iter_mut().for_each(|entry| entry.len = change(&entry.path, entry.len));
        }
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Rename, from)?;
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check(Call::Remove, path)?;
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(Call::Remove, path)?;
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check(Call::Sync, path)?;
        self.disk.sync_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Rename, from)?;
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
        Ok(self.disk.is_there(path)? && !self.is_hidden(Call::Open, path))
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonicalize(path)
    }
}

#[derive(Debug)]
struct FailingFile {
    file: Box<dyn DiskFile>,
    path: Box<Path>,
    disk: FailingDisk,
}

impl FailingFile {
    fn early_end(&self) -> Option<u64> {
        self.disk.early_end.as_ref().and_then(|end| end(&self.path))
    }

    fn check_sector(&self, offset: u64, bytes: usize) -> io::Result<()> {
        match &self.disk.bad_sector {
            Some((path, bad, is_bad))
                if is_bad.load(Relaxed)
                    && self.path.ends_with(path)
                    && offset < bad.end
                    && bad.start < offset + bytes as u64 =>
            {
                Err(io::Error::other("a bad sector"))
            }
            _ => Ok(()),
        }
    }
}

impl Read for FailingFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.disk.check(Call::Read, &self.path)?;
        let offset = self.file.stream_position()?;
        self.check_sector(offset, bytes.len())?;
        let most = self.early_end().map_or(bytes.len() as u64, |end| end.saturating_sub(offset));
        let most = bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let read = self.file.read(&mut bytes[..most])?;
        self.disk.change(&self.path, &mut bytes[..read]);
        Ok(read)
    }
}

impl Write for FailingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.check(Call::Write, &self.path)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for FailingFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl DiskFile for FailingFile {
    fn write_shared(&self, bytes: &[u8]) -> io::Result<()> {
        self.disk.check(Call::Write, &self.path)?;
        self.file.write_shared(bytes)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.check(Call::Read, &self.path)?;
        self.check_sector(offset, bytes.len())?;
        if self.early_end().is_some_and(|end| end < offset + bytes.len() as u64) {
            return Err(judge_end(io::ErrorKind::UnexpectedEof.into(), &*self.file, offset, bytes.len()));
        }
        self.file.read_exact_at(bytes, offset)?;
        self.disk.change(&self.path, bytes);
        Ok(())
    }

    fn forget_cached(&self, offset: u64, len: u64) {
        self.file.forget_cached(offset, len);
    }

    fn data_from(&self, offset: u64) -> u64 {
        self.file.data_from(offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.check(Call::Sync, &self.path)?;
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.check(Call::Sync, &self.path)?;
        self.file.sync_all()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.check(Call::SetLen, &self.path)?;
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        let len = self.file.len()?;
        Ok(self.disk.change_length.as_ref().map_or(len, |change| change(&self.path, len)))
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn try_lock(&self) -> io::Result<bool> {
        if self.disk.grants_locks { Ok(true) } else { self.file.try_lock() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::{SystemDisk, replace_file};

    #[test]
    fn a_read_that_ends_before_the_end_of_its_file_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let disk = FailingDisk::new(Arc::new(SystemDisk), |_, _| None).with_early_ends(|_| Some(4));
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(disk.read(&path).map(drop)), io::ErrorKind::Other);
        assert_eq!(kind(disk.read_to_string(&path).map(drop)), io::ErrorKind::Other);
        assert_eq!(kind(crate::read_file_checked(&disk, &path, 100, |_| true).map(drop)), io::ErrorKind::Other);
        assert_eq!(crate::read_file_checked(&disk, &path, 3, |_| true).unwrap(), b"012");
        let file = disk.open(&path, Open::Read).unwrap();
        assert_eq!(kind(file.read_exact_at(&mut [0; 5], 0)), io::ErrorKind::Other);
        assert_eq!(kind(file.read_exact_at(&mut [0; 5], 8)), io::ErrorKind::UnexpectedEof, "it is shorter");
        file.read_exact_at(&mut [0; 4], 0).unwrap();
        let whole = SystemDisk.open(&path, Open::Read).unwrap();
        assert_eq!(kind(whole.read_exact_at(&mut [0; 5], 8)), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_replaced_file_keeps_its_old_contents_whichever_call_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("writer");
        replace_file(&SystemDisk, &path, b"old").unwrap();
        // Open, write, sync and rename come before the new contents are in place.
        for failing in 0..4 {
            let calls = AtomicUsize::new(0);
            let disk = FailingDisk::new(Arc::new(SystemDisk), move |_, _| {
                (calls.fetch_add(1, Relaxed) == failing).then(|| io::Error::other("injected"))
            });
            let error = replace_file(&disk, &path, b"new").unwrap_err();
            assert_eq!(error.to_string(), "injected");
            assert_eq!(SystemDisk.read(&path).unwrap(), b"old", "call {failing}");
        }
    }
}
