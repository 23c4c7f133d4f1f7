//! Two file systems: that of the backups, and that of everything else. No link goes from one to the other.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{DirEntry, Disk, DiskFile, Open, SimulatedDisk};

use crate::node::BACKUPS;

#[derive(Debug, Clone)]
pub struct TwoDisks {
    pub data: SimulatedDisk,
    pub backups: SimulatedDisk,
}

/// `EXDEV`.
const OTHER_DEVICE: i32 = 18;

impl TwoDisks {
    fn of(&self, path: &Path) -> &SimulatedDisk {
        if path.starts_with(BACKUPS) { &self.backups } else { &self.data }
    }

    fn both(&self, from: &Path, to: &Path) -> io::Result<&SimulatedDisk> {
        if from.starts_with(BACKUPS) == to.starts_with(BACKUPS) {
            Ok(self.of(from))
        } else {
            Err(io::Error::from_raw_os_error(OTHER_DEVICE))
        }
    }
}

impl Disk for TwoDisks {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.of(path).open(path, how)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.of(path).create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.of(path).read_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.both(from, to)?.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.of(path).remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.of(path).remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.of(path).sync_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.both(from, to)?.hard_link(from, to)
    }

    fn is_same_file(&self, one: &Path, other: &Path) -> io::Result<bool> {
        self.both(one, other)?.is_same_file(one, other)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.of(path).free_bytes(path)
    }

    fn is_there(&self, path: &Path) -> io::Result<bool> {
        self.of(path).is_there(path)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.of(path).canonicalize(path)
    }
}
