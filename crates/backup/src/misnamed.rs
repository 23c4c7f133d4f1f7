//! Segments of the journal in each other's places, as after a restore by hand: a repair puts them right.

use std::path::Path;

use host::{DamagedFolder, Disk};
use ingest::wal::Compared;

/// Gives segments that are `exchanged` the names that their headers say, where no other file has them; all others that are misnamed go to
/// `damaged/`, as a start does it. Each is the number of its name and that of its header.
///
/// # Errors
/// Whatever the disk says. What is done then stays; a file that is away meanwhile is in `damaged/`, and its segment is missing.
pub(crate) fn put_right(
    disk: &dyn Disk,
    damaged: &DamagedFolder,
    journal: &Path,
    found: &Compared,
) -> std::io::Result<()> {
    const WHY: &str = "its header has the number of another segment; put aside by a repair";
    let path_of = |number: u64| journal.join(format!("{number:08}.journal"));
    for (name, _) in found.misnamed.iter().filter(|one| !found.exchanged.contains(one)) {
        damaged.move_in(&path_of(*name), WHY)?;
    }
    let mut left = found.exchanged.clone();
    let mut aside = Vec::new();
    loop {
        if let Some(place) = left.iter().position(|&(_, number)| !disk.exists(&path_of(number))) {
            let (name, number) = left.remove(place);
            disk.rename(&path_of(name), &path_of(number))?;
            disk.sync_dir(journal)?;
        } else if let Some(place) = aside.iter().position(|&(_, number)| !disk.exists(&path_of(number))) {
            let (kept, number): (String, u64) = aside.remove(place);
            let data = journal.parent().unwrap_or(Path::new(""));
            disk.rename(&data.join(&kept), &path_of(number))?;
            disk.sync_dir(journal)?;
            disk.sync_dir(damaged.path())?;
        } else if let Some((name, number)) = left.pop() {
            aside.push((damaged.move_in(&path_of(name), WHY)?, number));
        } else {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use host::{Host, SystemDisk};

    use super::*;

    /// The files of a journal with these, and of `damaged/`, once they are put right. Each is `NAME=HEADER`.
    fn right(files: &[(u64, u64)]) -> (Vec<String>, Vec<String>) {
        let data = tempfile::tempdir().unwrap();
        let journal = data.path().join("journal");
        std::fs::create_dir(&journal).unwrap();
        for (name, number) in files {
            std::fs::write(journal.join(format!("{name:08}.journal")), number.to_string()).unwrap();
        }
        let misnamed: Vec<(u64, u64)> = files.iter().copied().filter(|(name, number)| name != number).collect();
        let damaged = DamagedFolder::new(&Host::system(), data.path());
        // Those above 10 are of another store.
        let exchanged: Vec<(u64, u64)> = misnamed.iter().copied().filter(|(_, number)| *number <= 10).collect();
        let found = Compared { misnamed, exchanged, ..Compared::default() };
        put_right(&SystemDisk, &damaged, &journal, &found).unwrap();
        let list = |dir: &Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap);
            let files = entries.filter(|entry| entry.file_name() != "list");
            let one = |entry: std::fs::DirEntry| {
                let name = entry.file_name().into_string().unwrap();
                let name = name.trim_start_matches("journal_").trim_start_matches('0').replace(".journal", "");
                format!("{name}={}", std::fs::read_to_string(entry.path()).unwrap())
            };
            let mut all: Vec<String> = files.map(one).collect();
            all.sort();
            all
        };
        (list(&journal), list(&data.path().join("damaged")))
    }

    #[test]
    fn renamed_and_exchanged_segments_get_their_names_and_copies_go_aside() {
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        for (files, journal, damaged) in [
            (&[(5, 5), (9, 8)][..], &["5=5", "8=8"][..], &[][..]),
            (&[(7, 8), (8, 7)], &["7=7", "8=8"], &[]),
            (&[(6, 7), (7, 8), (8, 6)], &["6=6", "7=7", "8=8"], &[]),
            (&[(8, 8), (9, 8)], &["8=8"], &["9=8"]),
            (&[(8, 9), (9, 9), (7, 6)], &["6=6", "9=9"], &["8=9"]),
            (&[(7, 6), (8, 6)], &["6=6"], &["8=6"]),
            (&[(6, 8), (8, 120)], &["8=8"], &["8=120"]),
        ] {
            assert_eq!(right(files), (names(journal), names(damaged)), "{files:?}");
        }
    }
}
