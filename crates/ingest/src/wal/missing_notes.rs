//! The notes in `damaged/` that name segments which a start missed: `journal_00000003.missing+52310@1a2b3c4d`, or the first and
//! the last of several, `journal_00000003-00000005.missing+52310@1a2b3c4d`, with the bytes that the last one had at least, or 0. A note ends in `~returned` once its segment is back, and in
//! `~gone` in a backup that lacks it: nothing waits for it, and one that is found is put back all the same.

use std::{io, ops::RangeInclusive, path::Path};

use host::{Disk, retried};

pub(super) const PREFIX: &str = "journal_";
pub(super) const MISSING: &str = ".missing+";
pub(super) const RETURNED: &str = "~returned";
pub(super) const GONE: &str = "~gone";

/// The numbers that the name of a file in `damaged/` says are missing.
pub(super) fn missing(name: &str) -> Option<RangeInclusive<u64>> {
    noted(name).filter(|_| !is_gone(name))
}

/// Whether a name has one of these endings. A name that was taken got a number behind it.
pub(super) fn has_ending(name: &str, ending: &str) -> bool {
    name.split('~').skip(1).any(|part| Some(part) == ending.strip_prefix('~'))
}

/// The bytes that the last of the segments had at least, by the name of a note; 0 where it does not say.
pub(super) fn noted_bytes(name: &str) -> u64 {
    let bytes = name.split_once(MISSING).and_then(|(_, rest)| rest.split_once('@')?.0.parse().ok());
    bytes.unwrap_or(0)
}

/// Whether a note says that segments are missing for good.
pub(super) fn is_gone(name: &str) -> bool {
    name.contains(MISSING) && has_ending(name, GONE) && !has_ending(name, RETURNED)
}

/// The numbers that the name of a note says are missing, also for good.
pub(super) fn noted(name: &str) -> Option<RangeInclusive<u64>> {
    let (numbers, _) = name.strip_prefix(PREFIX).unwrap_or(name).split_once(MISSING)?;
    let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
    (!has_ending(name, RETURNED)).then(|| Some(first.parse().ok()?..=last.parse().ok()?))?
}

/// A name for missing segments: of one that of its file, of several `00000003-00000005.journal`.
pub fn name_of_missing(first: u64, last: u64) -> String {
    format!("{}.journal", numbers(first, last))
}

/// The name in `damaged/` of a note which says that segments are missing for good, and its text. `segments` is one of
/// [`missing_segments`].
pub fn note_of_gone(segments: &str) -> (String, String) {
    let numbers = segments.strip_suffix(".journal").unwrap_or(segments);
    let text = format!("{segments} was missing when the backup was made that this folder was restored from\n");
    (format!("{PREFIX}{numbers}{MISSING}0@{:08x}{GONE}", crc32fast::hash(text.as_bytes())), text)
}

/// The numbers of missing segments as in the name of a note.
pub(super) fn numbers(first: u64, last: u64) -> String {
    if first == last { format!("{first:08}") } else { format!("{first:08}-{last:08}") }
}

/// The notes in the folder `damaged` of a data folder.
///
/// # Errors
/// Where the folder is there and cannot be listed.
pub fn notes_of_missing(disk: &dyn Disk, damaged: &Path) -> io::Result<Vec<String>> {
    let entries = match retried(|| disk.read_dir(damaged)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !disk.exists(damaged) => Vec::new(),
        entries => entries?,
    };
    let mut names: Vec<String> = entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect();
    names.retain(|name| missing(name).is_some() || is_gone(name));
    names.sort();
    Ok(names)
}

/// The names of the segments that a data folder misses by the notes in its folder `damaged`, also for good, as [`name_of_missing`].
///
/// # Errors
/// As [`notes_of_missing`].
pub fn missing_segments(disk: &dyn Disk, damaged: &Path) -> io::Result<Vec<String>> {
    Ok(noted_segments(disk, damaged)?.into_iter().map(|all| name_of_missing(*all.start(), *all.end())).collect())
}

/// The numbers of segments that are missing, also for good, by the folder `damaged` of a data folder.
///
/// # Errors
/// As [`notes_of_missing`].
pub fn noted_segments(disk: &dyn Disk, damaged: &Path) -> io::Result<Vec<RangeInclusive<u64>>> {
    Ok(notes_of_missing(disk, damaged)?.iter().filter_map(|name| noted(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_segments_that_are_missing() {
        for (name, expected) in [
            ("journal_00000003.missing+0@1a2b3c4d", Some(3..=3)),
            ("00000003-00000005.missing+52310@1a2b3c4d", Some(3..=5)),
            (&note_of_gone("00000003.journal").0, None),
            ("journal_00000003.missing+0@1a2b3c4d~returned", None),
            ("journal_00000003.missing+0@1a2b3c4d~returned~1", None),
            ("journal_00000003.missing+0@1a2b3c4d~gone~1", None),
            ("journal_00000003.missing+0@1a2b3c4d~gone~returned", None),
            ("journal_00000003.missing+0@1a2b3c4d~1", Some(3..=3)),
            ("journal_00000003.journal~whole", None),
            ("store_datapoints_1-1.missing+0@1a2b3c4d", None),
        ] {
            assert_eq!(missing(name), expected, "{name}");
            assert_eq!(is_gone(name), name.contains("~gone") && !name.contains("~returned"), "{name}");
            assert_eq!(noted_bytes(name), if name.contains("+52310@") { 52_310 } else { 0 }, "{name}");
            assert_eq!(noted(name), if is_gone(name) { Some(3..=3) } else { expected }, "{name}");
        }
    }
}
