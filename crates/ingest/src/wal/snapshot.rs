//! What a backup has of the journal: the segments before a moment, and everything that a start needs to put points back that could not
//! be read, or to derive coarse slots again.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{Disk, Open, link_or_copy, retried};

use super::{
    damage::JournalDamage,
    kept_deletions::LIST,
    segment::{Folder, Segment},
    segment_bytes::{is_damage, read_what_can_be},
};

/// Bytes of a file that cannot be read at all, at most: zeros are in their place.
const LONGEST: u64 = 256 << 20;

/// Files of the journal where a backup takes them from. Links are whole, whatever their disk returns: who reads them sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedJournal {
    /// Files that were copied, as a link was refused, and how many bytes of each could not be read: zeros are in their place.
    pub unread: Vec<(PathBuf, u64)>,
    /// Files that had to be copied and cannot be opened. They are not there.
    pub lacking: Vec<PathBuf>,
}

impl StagedJournal {
    pub(crate) fn add(&mut self, more: StagedJournal) {
        self.unread.extend(more.unread);
        self.lacking.extend(more.lacking);
    }
}

impl Folder {
    /// Links the segments before number `end`, files with late points, and stored segments that are kept since one could not be
    /// read whole into a folder of the same file system. The list of deletions grows where it is: it is copied.
    pub(crate) fn link_before(&self, end: u64, into: &Path) -> io::Result<StagedJournal> {
        self.disk.create_dir_all(into)?;
        let mut segments = self.segments()?;
        segments.retain(|segment| segment.number < end);
        let others = [self.late_files()?, self.since()?].concat();
        let paths = segments.into_iter().chain(others).map(|segment| segment.path);
        let (mut copied, mut staged) = (0, StagedJournal::default());
        for path in paths.chain(self.put_aside_before()?) {
            copied += u64::from(self.link(&path, into, &mut staged)?);
        }
        if 0 < copied {
            tracing::warn!(
                files = copied,
                folder = %self.dir().display(),
                "files of the journal cannot be linked, as on another file system than the rest of the data folder; a backup copies them, \
                 which takes their room in the data folder until it ends; keep the data folder on one file system"
            );
        }
        let list = self.dir().join(LIST);
        if self.disk.exists(&list) {
            let bytes = retried(|| self.disk.read(&list))?;
            host::replace_file(&*self.disk, &into.join(LIST), &bytes)?;
        }
        self.disk.sync_dir(into)?;
        Ok(staged)
    }

    /// Returns whether it had to be copied. Where its disk does not return all of it then, `staged` says so.
    fn link(&self, path: &Path, into: &Path, staged: &mut StagedJournal) -> io::Result<bool> {
        let to = into.join(path.file_name().expect("a file has a name"));
        let failed = match link_or_copy(&*self.disk, path, &to) {
            Err(failed) if failed.is_unread && is_damage(&failed.error) => failed.error,
            linked => return Ok(linked?),
        };
        tracing::warn!(error = %failed, file = %path.display(), "a file of the journal cannot be read whole for a backup, which gets what can be read");
        if retried(|| self.disk.open(path, Open::Read)).is_err_and(|error| is_damage(&error)) {
            staged.lacking.push(to);
            return Ok(false);
        }
        let unread = copy_what_can_be(&*self.disk, path, &to)?;
        staged.unread.extend((0 < unread).then_some((to, unread)));
        Ok(true)
    }
}

/// Copies what the disk returns of a segment now, with zeros in place of the rest, and syncs the copy. Returns how many bytes are
/// zeros. A file that cannot be read at all is zeros: that a segment was there is worth a report, too.
///
/// # Errors
/// The file cannot be opened, or the copy cannot be written.
pub fn copy_what_can_be(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<u64> {
    let (bytes, unread) = match read_what_can_be(disk, from) {
        Ok(read) => read,
        Err(error) => {
            let len = disk.open(from, Open::Read).and_then(|file| file.len()).map_err(|_| error)?.min(LONGEST);
            (vec![0; len as usize], len)
        }
    };
    let copy = disk.open(to, Open::CreateNew)?;
    copy.write_shared(&bytes)?;
    copy.sync_all()?;
    Ok(unread)
}

impl JournalDamage {
    /// Links the segments that could not be read whole, and those with points that are not put back, from the folder of damaged bytes
    /// into a folder.
    pub(crate) fn link_unread(&self, folder: &Folder, into: &Path) -> io::Result<StagedJournal> {
        let (kept, mut staged): (Vec<Segment>, _) = (self.kept_for_backups()?, StagedJournal::default());
        if kept.is_empty() {
            return Ok(staged);
        }
        folder.disk.create_dir_all(into)?;
        kept.iter().try_for_each(|segment| folder.link(&segment.path, into, &mut staged).map(drop))?;
        folder.disk.sync_dir(into)?;
        Ok(staged)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, sync::Arc};

    use host::{Host, SystemDisk};

    use super::*;

    fn names(dir: PathBuf) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_backup_has_late_points_and_what_waits_for_segments_that_could_not_be_read() {
        let data = tempfile::tempdir().unwrap();
        let (journal, damaged) = (data.path().join("journal"), data.path().join("damaged"));
        let in_journal = [
            "00000002.journal",
            "00000003.journal",
            "00000001.since",
            "00000000.damaged",
            "deleted",
            "late-5-0.points",
            "probe",
        ];
        let in_damaged = [
            "journal_00000001.journal~whole",
            "journal_00000002.journal~3-older",
            "journal_00000004.journal~3-older-4-expired-100-200",
            "journal_00000005.journal~4-expired-100-200",
            "journal_00000001.journal~replayed",
            "list",
            "manifest",
        ];
        for (dir, names) in [(&journal, &in_journal[..]), (&damaged, &in_damaged[..])] {
            fs::create_dir(dir).unwrap();
            names.iter().for_each(|name| fs::write(dir.join(name), name).unwrap());
        }
        let folder = Folder::new(Arc::new(SystemDisk), &journal);
        let into = data.path().join("into");
        folder.link_before(3, &into.join("journal")).unwrap();
        JournalDamage::in_folder(&Host::system(), data.path()).link_unread(&folder, &into.join("damaged")).unwrap();
        let expected = ["00000000.damaged", "00000001.since", "00000002.journal", "deleted", "late-5-0.points"];
        assert_eq!(names(into.join("journal")), expected);
        assert_eq!(names(into.join("damaged")), in_damaged[..4]);
        fs::write(journal.join("deleted"), "more").unwrap();
        assert_eq!(fs::read(into.join("journal/deleted")).unwrap(), b"deleted");
    }
}
