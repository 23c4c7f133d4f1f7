//! The folder of the journal's segments: `00000001.journal` and on. Only the last one grows.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, DiskFile, Open, read_checked};
use store::LAST_NUMBER;

use super::{
    header::SegmentHeader,
    reader::{Start, records, start},
    record::{Record, segment_start},
};

/// A call that the system interrupts is made again, so often.
const INTERRUPTIONS: usize = 100;

/// Numbers that a new segment tries: failed attempts may have left files that cannot be removed.
const NUMBERS: u64 = 1000;

/// A longer segment has records.
pub(super) const EMPTY_BYTES: u64 = 2048;

/// The ending of a segment that is stored and stays for its damaged bytes.
const DAMAGED: &str = "damaged";

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

/// Bytes that a disk must take before a journal that failed counts as working: more than a usual batch has.
const PROBE_BYTES: usize = 4 << 20;

/// Bytes of one write of them.
const PROBE_PIECE: usize = 64 << 10;

/// The folder, on its disk.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(super) disk: Arc<dyn Disk>,
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
        uninterrupted(|| self.disk.create_dir_all(&self.dir))?;
        match self.dir.parent() {
            Some(parent) => uninterrupted(|| self.disk.sync_dir(parent)),
            None => Ok(()),
        }
    }

    /// The segments, oldest first; none where there is no folder. Other files are left alone.
    pub(crate) fn segments(&self) -> io::Result<Vec<Segment>> {
        let mut segments = self.numbered()?;
        segments.retain(|segment| self.is_one(segment));
        Ok(segments)
    }

    /// Files with numbers that no segment has, or in a spelling that none has, as of copies (`7.journal`).
    pub(super) fn strays(&self) -> io::Result<Vec<Segment>> {
        let mut strays = self.numbered()?;
        strays.retain(|stray| !self.is_one(stray));
        Ok(strays)
    }

    fn is_one(&self, segment: &Segment) -> bool {
        segment.number <= LAST_NUMBER && segment.path == self.path_of(segment.number)
    }

    fn numbered(&self) -> io::Result<Vec<Segment>> {
        let entries = match uninterrupted(|| self.disk.read_dir(&self.dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let segment = |entry: host::DirEntry| {
            let number = entry.name.to_str()?.strip_suffix(".journal")?.parse().ok()?;
            let bytes = length(&*self.disk, &entry);
            Some(Segment { number, path: entry.path, bytes })
        };
        let mut segments: Vec<Segment> = entries.into_iter().filter_map(segment).collect();
        segments.sort_by_key(|segment| segment.number);
        Ok(segments)
    }

    /// Writes as much as a large batch has to a file of its own, and removes it.
    pub(super) fn try_to_write(&self) -> io::Result<()> {
        let path = self.dir.join("probe");
        let written = self.disk.open(&path, Open::Create).and_then(|mut file| {
            (0..PROBE_BYTES / PROBE_PIECE).try_for_each(|_| file.write_all(&[0; PROBE_PIECE]))?;
            file.sync_data()
        });
        // Also what a full disk has of it.
        let removed = self.disk.remove_file(&path);
        written.and(removed)
    }

    /// Reads the first bytes of a segment, and again while they do not begin as one.
    pub(super) fn read_first(&self, segment: &Segment, bytes: usize) -> io::Result<Vec<u8>> {
        let mut first = vec![0; bytes.min(segment.bytes as usize)];
        let file = uninterrupted(|| self.disk.open(&segment.path, Open::Read))?;
        let is_known = |bytes: &[u8]| if start(bytes) == Start::Damaged { Err(()) } else { Ok(()) };
        // What is wrong still is damage, and the caller sees it.
        let _ = uninterrupted(|| read_checked(&*file, &mut first, 0, is_known))?;
        Ok(first)
    }

    /// Begins a segment with this number, or with a later one where a file is in the way. The folder's entry for it is
    /// on the disk when this returns. Returns also the length of its header.
    pub(super) fn create(&self, mut header: SegmentHeader) -> io::Result<NewSegment> {
        let first = header.segment;
        loop {
            let path = self.path_of(header.segment);
            let file = match uninterrupted(|| self.disk.open(&path, Open::CreateNew)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && header.segment < first + NUMBERS => {
                    header.segment += 1;
                    continue;
                }
                file => file?,
            };
            let start = segment_start(&header);
            // A segment that a later one or the store refers to has its header after a power failure.
            let begun = file.write_shared(&start).and_then(|()| file.sync_data());
            let begun = begun.and_then(|()| uninterrupted(|| self.disk.sync_dir(&self.dir)));
            if let Err(error) = begun {
                // If this fails too, the next attempt takes the next number, and a start removes the empty file.
                let _ = self.disk.remove_file(&path);
                return Err(error);
            }
            return Ok(NewSegment { number: header.segment, file: file.into(), length: start.len() as u64 });
        }
    }

    /// Where a segment of this number is.
    pub(crate) fn path_of(&self, number: u64) -> PathBuf {
        path_of(&self.dir, number)
    }

    /// Removes a segment, for good: after a power failure no segment that was removed is there again while a later one
    /// is not. Replaying the earlier one alone would bring back values that were overwritten.
    pub(super) fn remove(&self, segment: &Segment) -> io::Result<()> {
        match uninterrupted(|| self.disk.remove_file(&segment.path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        uninterrupted(|| self.disk.sync_dir(&self.dir))
    }

    /// Removes segments without a record. One that is there again after a power failure has none either.
    pub(super) fn remove_empty(&self, segments: &[Segment]) -> io::Result<()> {
        for segment in segments {
            match uninterrupted(|| self.disk.remove_file(&segment.path)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if segments.is_empty() { Ok(()) } else { self.sync_entries() }
    }

    /// Gives a segment with damaged bytes a name under which it is not one. Returns its path. That needs no room.
    pub(super) fn put_aside(&self, segment: &Segment) -> io::Result<PathBuf> {
        let aside = renamed(&segment.path);
        uninterrupted(|| self.disk.rename(&segment.path, &aside))?;
        self.sync_entries()?;
        Ok(aside)
    }

    /// Whether another file has the name that [`Folder::put_aside`] gives.
    pub(super) fn is_put_aside(&self, segment: &Segment) -> bool {
        self.disk.exists(&renamed(&segment.path))
    }

    /// What [`Folder::put_aside`] has left.
    pub(super) fn put_aside_before(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match uninterrupted(|| self.disk.read_dir(&self.dir)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == DAMAGED));
        files.sort();
        Ok(files)
    }

    pub(super) fn remove_number(&self, number: u64) -> io::Result<()> {
        self.disk.remove_file(&self.path_of(number))
    }

    /// Whether a segment has nothing but its header, or the beginning of it.
    pub(super) fn is_without_records(&self, segment: &Segment) -> bool {
        if EMPTY_BYTES < segment.bytes {
            return false;
        }
        let Ok(bytes) = self.read(segment) else { return false };
        let mut records = records(&bytes);
        let is_header = records.by_ref().all(|(_, record)| matches!(record, Record::Segment { .. }));
        let damage = records.damage.len() - usize::from(records.torn_tail().is_some());
        is_header && damage == 0
    }

    /// The end of the last whole record of a segment; 0 where it cannot be read.
    pub(crate) fn whole_bytes(&self, segment: &Segment) -> u64 {
        let read = self.read(segment);
        read.map_or(0, |bytes| records(&bytes).last().map_or(0, |(place, _)| place.end as u64))
    }

    /// Puts a segment that this process did not write on the disk. Where its fsync fails, its pages count as lost: it is
    /// written to another file that takes its place.
    pub(crate) fn sync(&self, segment: &Segment) -> io::Result<()> {
        let file = uninterrupted(|| self.disk.open(&segment.path, Open::Read))?;
        if file.sync_all().is_ok() {
            return Ok(());
        }
        drop(file);
        let bytes = self.read(segment)?;
        host::replace_file(&*self.disk, &segment.path, &bytes)
    }

    /// Puts the folder's entries on the disk.
    pub(crate) fn sync_entries(&self) -> io::Result<()> {
        uninterrupted(|| self.disk.sync_dir(&self.dir))
    }
}

/// Where a segment of this number is, in a folder.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.journal"))
}

/// The path of a segment that stays for its damaged bytes.
pub(super) fn renamed(segment: &Path) -> PathBuf {
    segment.with_extension(DAMAGED)
}

/// A segment that was begun.
#[derive(Debug)]
pub(super) struct NewSegment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn DiskFile>,
    /// Bytes of its header.
    pub(super) length: u64,
}

/// Makes a call again that the system interrupted.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..INTERRUPTIONS {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
    call()
}

/// How long a file of a folder is. The list of a folder on a network disk may have a length of before, for as long as nothing
/// opens the file: with it an intact segment would count as cut, or as one without a record, which a start removes.
pub(super) fn length(disk: &dyn Disk, entry: &host::DirEntry) -> u64 {
    let opened = uninterrupted(|| disk.open(&entry.path, Open::Read)?.len());
    // One that cannot be opened is met again by who reads it.
    opened.unwrap_or(entry.len)
}
