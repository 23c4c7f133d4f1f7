//! `segments` in the data folder: the newest segment of the journal that may have a record, and how much of it is on the disk
//! at least. It is next to the journal's folder, so that a start also misses a segment that no other segment knows, a folder
//! that is away, and the end of the newest segment.
//!
//! ```text
//! plumbago segments 1
//! newest 7 83ab0f1577c29d04
//! synced 52310
//! crc32 61ba3173
//! ```
//!
//! 1. A segment is made: its name and its header are on the disk.
//! 2. Before its first record, the file says its number, and the opening of the store that writes it.
//! 3. Some seconds after an fsync, and at a stop, it says up to where whole records were on the disk. Earlier programs do not
//!    write that line, and do not read it.
//!
//! Whatever call a process dies at, the segment is there if the file says so; if the file does not, it has no record. So a
//! segment that was begun and never written to is not missed, and one that is missed had records.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Disk, read_file_checked, replace_file, retried, seal_lines, sealed_lines};
use parking_lot::Mutex;
use store::LAST_NUMBER;

use super::{damage::JournalDamage, segment::uninterrupted};

/// The name of the file.
const FILE: &str = "segments";

/// The first line up to the version.
const MAGIC: &str = "plumbago segments ";

/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The line about what is on the disk, up to the bytes.
const SYNCED: &str = "synced ";

/// Bytes of the file, at most.
const LONGEST: u64 = 4096;

/// The newest segment that may have a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// Its number.
    pub number: u64,
    /// The opening of the store that wrote it; 0 where a store has none.
    pub opening: u64,
    /// Up to where it has whole records that are on the disk, bytes; 0 where that is not known.
    pub synced: u64,
}

/// What the text of a file says.
#[derive(Debug, PartialEq, Eq)]
enum Text {
    Newest(Newest),
    /// A newer program wrote it.
    Newer(u32),
}

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct NewestFile {
    disk: Arc<dyn Disk>,
    /// `None` for a journal without a data folder.
    path: Option<PathBuf>,
    /// What this process wrote last. One writes at a time.
    said: Arc<Mutex<Option<Newest>>>,
}

impl NewestFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, data: Option<&Path>) -> NewestFile {
        NewestFile { disk, path: data.map(|data| data.join(FILE)), said: Arc::default() }
    }

    /// What it says; `None` where there is none. A damaged one is reported, and counts as none: the store and the segments
    /// say nearly the same.
    pub(crate) fn read(&self, damage: &JournalDamage) -> io::Result<Option<Newest>> {
        let Some(path) = &self.path else { return Ok(None) };
        match read(&*self.disk, path) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                damage.report_newest(path, &error);
                Ok(None)
            }
            newest => newest,
        }
    }

    /// Its disk does not return it: it counts as none, and is written again.
    pub(crate) fn report_unread(&self, damage: &JournalDamage, error: &io::Error) {
        if let Some(path) = &self.path {
            damage.report_newest(path, error);
        }
    }

    /// Says which it is from here on. It is on the disk when this returns.
    pub(super) fn write(&self, newest: Newest) -> io::Result<()> {
        let mut said = self.said.lock();
        *said = None;
        self.replace(newest)?;
        *said = Some(newest);
        Ok(())
    }

    /// Says how much of the newest is on the disk, where it is the newest still, and more of it than was said.
    pub(super) fn write_synced(&self, newest: Newest) -> io::Result<()> {
        let mut said = self.said.lock();
        let is_more = |said: &Newest| {
            Newest { synced: 0, ..*said } == Newest { synced: 0, ..newest } && said.synced < newest.synced
        };
        if said.as_ref().is_some_and(is_more) {
            self.replace(newest)?;
            *said = Some(newest);
        }
        Ok(())
    }

    fn replace(&self, newest: Newest) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let written = uninterrupted(|| replace_file(&*self.disk, path, text(newest).as_bytes()));
        written.map_err(|error| io::Error::new(error.kind(), format!("writing {}: {error}", path.display())))
    }

    /// Whether it may say this number, after a [`NewestFile::write`] that failed.
    pub(super) fn may_say(&self, number: u64) -> bool {
        let Some(path) = &self.path else { return false };
        read(&*self.disk, path).map_or(true, |newest| newest.is_some_and(|newest| newest.number == number))
    }
}

/// The file next to a journal's folder.
pub(super) fn path_next_to(journal: &Path) -> PathBuf {
    journal.with_file_name(FILE)
}

/// What the file next to a journal's folder says. `None` where there is none, and where it says nothing.
pub(super) fn newest_of(disk: &dyn Disk, journal: &Path) -> Option<Newest> {
    read(disk, &path_next_to(journal)).ok().flatten()
}

/// The file of a data folder, and its version, where a newer program wrote it.
pub fn newer_newest(disk: &dyn Disk, data: &Path) -> Option<(PathBuf, u32)> {
    let path = data.join(FILE);
    match text_of(disk, &path).ok().flatten()? {
        Text::Newer(version) => Some((path, version)),
        Text::Newest(_) => None,
    }
}

/// Whether a file is as the program writes it.
///
/// # Errors
/// Whatever the disk says.
pub fn is_newest(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match text_of(disk, path) {
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(false),
        found => Ok(found?.is_some()),
    }
}

fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Newest>> {
    match text_of(disk, path)? {
        Some(Text::Newest(newest)) => Ok(Some(newest)),
        Some(Text::Newer(version)) => {
            Err(io::Error::other(format!("it has version {version}, and this program reads version {VERSION}")))
        }
        None => Ok(None),
    }
}

fn text_of(disk: &dyn Disk, path: &Path) -> io::Result<Option<Text>> {
    let parsed = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(parse);
    match retried(|| read_file_checked(disk, path, LONGEST, |bytes| parsed(bytes).is_some())) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => {
            parsed(&bytes).map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "its checksum is wrong"))
        }
    }
}

fn text(Newest { number, opening, synced }: Newest) -> String {
    let synced = if synced == 0 { String::new() } else { format!("{SYNCED}{synced}\n") };
    seal_lines(&format!("{MAGIC}{VERSION}\nnewest {number} {opening:016x}\n{synced}"))
}

fn parse(text: &str) -> Option<Text> {
    // The checksum first: a version with a flipped bit is damage, not a newer program.
    let mut lines = sealed_lines(text)?.lines();
    let version = lines.next()?.strip_prefix(MAGIC)?.parse().ok()?;
    if VERSION < version {
        return Some(Text::Newer(version));
    }
    let (number, opening) = lines.next()?.strip_prefix("newest ")?.split_once(' ')?;
    // A segment behind it has a number, too.
    let number = number.parse().ok().filter(|&number| number < LAST_NUMBER)?;
    let opening = u64::from_str_radix(opening, 16).ok()?;
    let synced = lines.find_map(|line| line.strip_prefix(SYNCED)).map_or(Some(0), |bytes| bytes.parse().ok())?;
    Some(Text::Newest(Newest { number, opening, synced }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Newest = Newest { number: 7, opening: 0x83ab_0f15_77c2_9d04, synced: 0 };

    #[test]
    fn what_is_written_is_read_and_a_changed_or_missing_byte_is_damage() {
        for newest in [NEWEST, Newest { synced: 52_310, ..NEWEST }] {
            let text = text(newest);
            assert_eq!(parse(&text), Some(Text::Newest(newest)), "{text}");
            for place in 0..text.len() {
                assert!(parse(&text[..place]).is_none_or(|_| place == text.len() - 1), "cut at {place}");
                for bit in 0..7 {
                    let mut bytes = text.clone().into_bytes();
                    bytes[place] ^= 1 << bit;
                    let read = std::str::from_utf8(&bytes).ok().and_then(parse);
                    assert!(read.is_none_or(|read| read == Text::Newest(newest)), "bit {bit} of byte {place}");
                }
            }
        }
    }

    #[test]
    fn a_line_that_a_later_program_adds_is_passed_over_and_one_of_an_earlier_program_may_lack() {
        let lines = |more: &str| seal_lines(&format!("plumbago segments 1\nnewest 7 83ab0f1577c29d04\n{more}"));
        assert_eq!(parse(&lines("")), Some(Text::Newest(NEWEST)));
        let synced = Newest { synced: 9, ..NEWEST };
        assert_eq!(parse(&lines("more 1 2\nsynced 9\nand more\n")), Some(Text::Newest(synced)));
        assert_eq!(parse(&lines("synced -9\n")), None);
    }

    #[test]
    fn a_note_of_what_is_on_the_disk_never_replaces_a_later_segment() {
        let dir = tempfile::tempdir().unwrap();
        let file = NewestFile::new(Arc::new(host::SystemDisk), Some(dir.path()));
        let said = || read(&host::SystemDisk, &dir.path().join(FILE)).unwrap();
        file.write_synced(Newest { synced: 10, ..NEWEST }).unwrap();
        assert_eq!(said(), None, "nothing was written before");
        file.write(NEWEST).unwrap();
        for (synced, expected) in [(10, 10), (20, 20), (15, 20)] {
            file.write_synced(Newest { synced, ..NEWEST }).unwrap();
            assert_eq!(said(), Some(Newest { synced: expected, ..NEWEST }));
        }
        let next = Newest { number: 8, ..NEWEST };
        file.write(next).unwrap();
        file.write_synced(Newest { synced: 30, ..NEWEST }).unwrap();
        assert_eq!(said(), Some(next));
    }

    #[test]
    fn a_newer_version_is_recognised() {
        let lines = "plumbago segments 2\nall 3\n";
        let text = format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()));
        assert_eq!(parse(&text), Some(Text::Newer(2)));
    }
}
