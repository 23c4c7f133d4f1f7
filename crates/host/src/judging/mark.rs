//! `data/clock`: how far the time had come when this folder was last in use, as text with a checksum.
//!
//! ```text
//! plumbago clock 1
//! reached 1795315200
//! crc32 1c291ca3
//! ```
//!
//! `reached` is in Unix seconds; `crc32` covers the lines before it.

use std::{io, path::Path};

use crate::{
    Disk,
    disk::replace_file,
    read_file_checked,
    sealed_text::{seal_lines, sealed_lines},
};

/// The first line up to the version.
const MAGIC: &str = "plumbago clock ";

/// The version that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

/// Bytes of the file, at most.
const LONGEST: u64 = 4096;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    /// The latest time by which points were judged, Unix seconds.
    pub(super) reached: i64,
}

/// What a folder has in place of a mark.
#[derive(Debug)]
pub(super) enum Found {
    Mark(Mark),
    /// No file: a new folder, or one of a program without it.
    Nothing,
    /// The text of the file is not a mark.
    Damaged,
    /// A newer program wrote it.
    Newer(u32),
}

impl Mark {
    /// Reads the file.
    pub(super) fn read(disk: &dyn Disk, path: &Path) -> io::Result<Found> {
        let read = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(parse);
        let bytes = match read_file_checked(disk, path, LONGEST, |bytes| read(bytes).is_some()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            // As damaged: the node works without it.
            Err(_) => return Ok(Found::Damaged),
            Ok(bytes) => bytes,
        };
        Ok(read(&bytes).unwrap_or(Found::Damaged))
    }

    /// Replaces the file, and returns when it is on the disk.
    pub(super) fn write(self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        replace_file(disk, path, self.text().as_bytes())
    }

    fn text(self) -> String {
        seal_lines(&format!("{MAGIC}{VERSION}\nreached {}\n", self.reached))
    }
}

fn parse(text: &str) -> Option<Found> {
    // The checksum first: a version with a flipped bit is damage, not a newer program.
    let mut lines = sealed_lines(text)?.lines();
    let version = lines.next()?.strip_prefix(MAGIC)?.parse().ok()?;
    if VERSION < version {
        return Some(Found::Newer(version));
    }
    let reached = lines.next()?.strip_prefix("reached ")?.parse().ok()?;
    Some(Found::Mark(Mark { reached }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mark = Mark { reached: 1_795_315_200 };
        assert!(matches!(parse(&mark.text()), Some(Found::Mark(read)) if read == mark), "{}", mark.text());
    }

    #[test]
    fn a_changed_or_missing_byte_is_damage_and_never_another_time() {
        let text = Mark { reached: 1_795_315_200 }.text();
        for place in 0..text.len() {
            assert!(parse(&text[..place]).is_none_or(|_| place == text.len() - 1), "cut at {place}");
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let read = std::str::from_utf8(&bytes).ok().and_then(parse);
                let is_same = matches!(read, Some(Found::Mark(Mark { reached: 1_795_315_200 })));
                assert!(read.is_none() || is_same, "bit {bit} of byte {place}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_recognised() {
        let lines = "plumbago clock 2\nepoch 3\n";
        let text = format!("{lines}crc32 {:08x}\n", crc32fast::hash(lines.as_bytes()));
        assert!(matches!(parse(&text), Some(Found::Newer(2))));
    }
}
