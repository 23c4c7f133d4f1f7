//! `data/clock`: how far the time had come when this folder was last in use, as text with a checksum.
//!
//! ```text
//! plumbago clock 1
//! reached 1795315200
//! absent 1795200000 1795310000
//! crc32 1c291ca3
//! ```
//!
//! Times are in Unix seconds; `crc32` covers the lines before it. A line `absent` for each [`Absence`]; programs that do not know them leave
//! them out.

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

/// Absences that are kept, at most: of more the shortest is forgotten.
const MOST_ABSENCES: usize = 16;

/// A time in which no process ran with this folder, Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence {
    /// When one ended: exactly where it stopped cleanly; one that was killed may have run a little longer.
    pub from: i64,
    /// When the next one began to work; [`Absence::OPEN`] where that is not known.
    pub until: i64,
}

impl Absence {
    /// The end of an absence after which the clock has been in doubt all the time.
    pub const OPEN: i64 = u32::MAX as i64;

    /// Whether it includes a time. What others did in the second in which a process ended may have come after that.
    pub fn has(self, time: i64) -> bool {
        self.from <= time && time < self.until
    }
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mark {
    /// The latest time by which points were judged, Unix seconds.
    pub(super) reached: i64,
    /// In which others may have done what is not noted here yet, the oldest first.
    pub(super) absences: Vec<Absence>,
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
    pub(super) fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        replace_file(disk, path, self.text().as_bytes())
    }

    /// Adds an absence behind the others, also one of no length. The others ended while a clock may have been wrong, but not after the process of
    /// this mark, unless that did not learn by its end when it had begun: then it is taken for a part of the absence.
    pub(super) fn add_absence(&mut self, mut absence: Absence) {
        if let Some(last) = self.absences.pop_if(|last| self.reached < last.until) {
            absence.from = last.from.min(absence.from);
        }
        for before in &mut self.absences {
            before.until = before.until.min(self.reached);
        }
        self.absences.retain(|absence| absence.from < absence.until);
        while MOST_ABSENCES <= self.absences.len() {
            let shortest = (0..self.absences.len()).min_by_key(|&at| self.absences[at].until - self.absences[at].from);
            shortest.map(|at| self.absences.remove(at));
        }
        self.absences.push(absence);
    }

    fn text(&self) -> String {
        let absences: String =
            self.absences.iter().map(|Absence { from, until }| format!("absent {from} {until}\n")).collect();
        seal_lines(&format!("{MAGIC}{VERSION}\nreached {}\n{absences}", self.reached))
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
    let absences = lines.map_while(|line| line.strip_prefix("absent ")).filter_map(|line| {
        let (from, until) = line.split_once(' ')?;
        Some(Absence { from: from.parse().ok()?, until: until.parse().ok()? })
    });
    Some(Found::Mark(Mark { reached, absences: absences.take(MOST_ABSENCES).collect() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut mark = Mark { reached: 1_795_315_200, absences: Vec::new() };
        for from in [1_795_200_000, 1_795_315_200] {
            assert!(matches!(parse(&mark.text()), Some(Found::Mark(read)) if read == mark), "{}", mark.text());
            mark.add_absence(Absence { from, until: from + 100 });
        }
        assert!(matches!(parse(&mark.text()), Some(Found::Mark(read)) if read == mark), "{}", mark.text());
        assert_eq!(mark.absences.len(), 2);
    }

    #[test]
    fn absences_end_before_the_mark_and_of_too_many_the_shortest_is_forgotten() {
        let mut mark = Mark {
            reached: 1000,
            absences: vec![Absence { from: 500, until: 9000 }, Absence { from: 600, until: 90 }],
        };
        mark.add_absence(Absence { from: 1000, until: 1007 });
        let night = Absence { from: 500, until: 1000 };
        assert_eq!(mark.absences, [night, Absence { from: 1000, until: 1007 }], "a clock was ahead, one was behind");
        for until in [1070, Absence::OPEN] {
            let mut open = Mark { reached: 1060, absences: vec![night, Absence { from: 1000, until }] };
            open.add_absence(Absence { from: 1060, until: 5000 });
            assert_eq!(
                open.absences,
                [night, Absence { from: 1000, until: 5000 }],
                "when its process began was not known"
            );
        }
        for start in 1..40 {
            mark.reached = 1000 + 10 * start;
            mark.add_absence(Absence { from: mark.reached, until: mark.reached + 1 + start % 3 });
        }
        assert_eq!((mark.absences.len(), mark.absences[0]), (MOST_ABSENCES, night));
        // The newest one always stays.
        mark.reached += 10;
        let none = Absence { from: mark.reached, until: mark.reached };
        mark.add_absence(none);
        assert_eq!((mark.absences.len(), mark.absences.last()), (MOST_ABSENCES, Some(&none)));
        assert!([499, 1000].iter().all(|&time| !night.has(time)) && night.has(500));
    }

    #[test]
    fn a_changed_or_missing_byte_is_damage_and_never_another_time() {
        let text = Mark { reached: 1_795_315_200, absences: vec![Absence { from: 5, until: 77 }] }.text();
        for place in 0..text.len() {
            assert!(parse(&text[..place]).is_none_or(|_| place == text.len() - 1), "cut at {place}");
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let read = std::str::from_utf8(&bytes).ok().and_then(parse);
                let is_same = matches!(read, Some(Found::Mark(Mark { reached: 1_795_315_200, .. })));
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
