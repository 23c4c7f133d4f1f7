//! The notes in `damaged/` of segments that have lost their end: `journal_00000003.cut+498@e17c7637`, with the bytes that were there. A note ends
//! in `~returned` once all of its segment is back.

use std::{collections::BTreeMap, io, path::Path};

use host::{DamagedFolder, Disk};

use super::missing_notes::{PREFIX, RETURNED, has_ending};

/// What the name of the note of a segment that has lost its end has.
pub(super) const CUT: &str = ".cut+";

/// What is before the end of the whole records, where there is something behind them.
const WHOLE: &str = "; whole records ended at ";

/// Notes in `damaged/` that a segment has lost its end, durably: it had `there` of the `synced` bytes, in which whole records ended at `whole`. The
/// same is noted once. Returns the name of the note relative to the data folder.
///
/// # Errors
/// Whatever the disk says.
pub fn note_cut(
    damaged: &DamagedFolder,
    segment: &Path,
    there: u64,
    (synced, whole): (u64, u64),
) -> io::Result<String> {
    let mut text = format!(
        "{there} of the {synced} bytes that were on the disk were there; the points in the others are lost unless they are stored"
    );
    if whole < synced {
        text.push_str(&format!("{WHOLE}{whole}, where a write was cut off"));
    }
    let number = segment.file_stem().unwrap_or_default().to_string_lossy();
    // Later headers may say less than the file of the newest did.
    let noted = format!("{PREFIX}{number}{CUT}{there}@");
    let names = damaged.kept()?.into_iter().map(|entry| entry.name.to_string_lossy().into_owned());
    if let Some(name) = names.into_iter().find(|name| name.starts_with(&noted) && !has_ending(name, RETURNED)) {
        return Ok(format!("damaged/{name}"));
    }
    let note = segment.with_extension(CUT.trim_matches(['.', '+']));
    damaged.keep_bytes(&note, there, format!("{text}\n").as_bytes(), &text)
}

/// The segment and the bytes that a note names, unless it has ended.
pub(super) fn noted(name: &str) -> Option<(u64, u64)> {
    let (number, rest) = name.strip_prefix(PREFIX)?.split_once(CUT)?;
    let there = rest.split_once('@')?.0;
    Some((number.parse().ok()?, there.parse().ok()?)).filter(|_| !has_ending(name, RETURNED))
}

/// Whether this is the name of a note that has not ended.
pub(super) fn is_cut(name: &str) -> bool {
    noted(name).is_some()
}

/// The segments that have lost their end, by the names of notes, and how many bytes were there at most.
pub(super) fn cut_short<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<u64, u64> {
    let mut cut = BTreeMap::new();
    for (number, there) in names.filter_map(noted) {
        let most: &mut u64 = cut.entry(number).or_default();
        *most = there.max(*most);
    }
    cut
}

/// As [`cut_short`], of the folder `damaged` of a data folder that no process uses.
///
/// # Errors
/// The folder cannot be listed.
pub(super) fn cut_short_in(disk: &dyn Disk, damaged: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let entries = match disk.read_dir(damaged) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?,
    };
    Ok(cut_short(entries.iter().filter_map(|entry| entry.name.to_str())))
}

/// Up to where the whole records must be there for the note to end, by its text.
pub(super) fn needed_of(text: &str) -> Option<u64> {
    let synced = text.split_once(" of the ")?.1.split_once(' ')?.0.parse().ok()?;
    let whole = text.split_once(WHOLE).and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok());
    Some(whole.unwrap_or(synced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_which_segment_had_how_many_bytes_and_how_many_it_should_have() {
        let names =
            ["journal_00000003.cut+498@e17c7637", "journal_00000003.cut+32@0a0b0c0d~1", "journal_00000012.cut+7@1"];
        let others = [
            "journal_00000004.cut+498@e17c7637~returned",
            "journal_00000005.missing+498@e17c7637",
            "list",
            "x.cut+1@2",
        ];
        assert_eq!(cut_short(names.into_iter().chain(others)), BTreeMap::from([(3, 498), (12, 7)]));
        let host = host::Host::system();
        let data = tempfile::tempdir().unwrap();
        let damaged = DamagedFolder::new(&host, data.path());
        let noted = |number: u64, whole| {
            let segment = data.path().join(format!("journal/{number:08}.journal"));
            let note = note_cut(&damaged, &segment, 498, (1498, whole)).unwrap();
            needed_of(&std::fs::read_to_string(data.path().join(note)).unwrap())
        };
        assert_eq!((noted(3, 1498), noted(4, 1490)), (Some(1498), Some(1490)));
        assert_eq!(cut_short_in(&*host.disk, damaged.path()).unwrap(), BTreeMap::from([(3, 498), (4, 498)]));
        assert_eq!((needed_of(""), needed_of("a of the b c")), (None, None));
    }
}
