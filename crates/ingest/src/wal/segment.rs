//! The folder of the journal's segments: `00000001.journal` and on. Only the last one grows.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, DiskFile, Open};

use super::record::MAGIC;

/// A segment on disk.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Its place in the order.
    pub(crate) number: u64,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its length in bytes.
    pub(crate) bytes: u64,
}

/// The folder, on its disk.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Folder {
    /// A folder that may not exist yet.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Folder {
        Folder { disk, dir: dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the folder and those above it. Its own name is on the disk when this returns.
    pub(super) fn make(&self) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        self.dir.parent().map_or(Ok(()), |above| self.disk.sync_dir(above))
    }

    /// The segments, oldest first; none where there is no folder. Other files are left alone.
    pub(crate) fn segments(&self) -> io::Result<Vec<Segment>> {
        let entries = match self.disk.read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let segment = |entry: host::DirEntry| {
            let number = entry.name.to_str()?.strip_suffix(".journal")?.parse().ok()?;
            Some(Segment { number, path: entry.path, bytes: entry.len })
        };
        let mut segments: Vec<Segment> = entries.into_iter().filter_map(segment).collect();
        segments.sort_by_key(|segment| segment.number);
        Ok(segments)
    }

    /// Reads a complete segment; segments are bounded in size.
    pub(crate) fn read(&self, segment: &Segment) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(segment.bytes as usize);
        self.disk.open(&segment.path, Open::Read)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Begins a segment. The folder's entry for it is on the disk when this returns.
    pub(super) fn create(&self, number: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.dir.join(format!("{number:08}.journal"));
        let file = self.disk.open(&path, Open::CreateNew)?;
        let begun = file.write_shared(MAGIC).and_then(|()| self.disk.sync_dir(&self.dir));
        if let Err(error) = begun {
            // Otherwise the next attempt would find a segment of this number.
            let _ = self.disk.remove_file(&path);
            return Err(error);
        }
        Ok(file.into())
    }

    /// Links the segments before number `end` into a folder of the same file system.
    pub(crate) fn link_before(&self, end: u64, into: &Path) -> io::Result<()> {
        self.disk.create_dir_all(into)?;
        for segment in self.segments()?.iter().filter(|segment| segment.number < end) {
            let name = segment.path.file_name().expect("a segment has a name");
            self.disk.hard_link(&segment.path, &into.join(name))?;
        }
        self.disk.sync_dir(into)
    }

    pub(super) fn remove(&self, segment: &Segment) -> io::Result<()> {
        self.disk.remove_file(&segment.path)
    }
}
