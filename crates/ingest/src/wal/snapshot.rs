//! What a backup has of the journal: the segments before a moment, and everything that a start needs to put points back that could not
//! be read, or to derive coarse slots again.

use std::{io, path::Path};

use host::{link_or_copy, retried};

use super::{
    damage::JournalDamage,
    kept_deletions::LIST,
    segment::{Folder, Segment},
};

impl Folder {
    /// Links the segments before number `end`, files with late points, and stored segments that are kept since one could not be
    /// read whole into a folder of the same file system. The list of deletions grows where it is: it is copied.
    pub(crate) fn link_before(&self, end: u64, into: &Path) -> io::Result<()> {
        self.disk.create_dir_all(into)?;
        let mut segments = self.segments()?;
        segments.retain(|segment| segment.number < end);
        let others = [self.late_files()?, self.since()?].concat();
        let paths = segments.into_iter().chain(others).map(|segment| segment.path);
        let mut copied = 0;
        for path in paths.chain(self.put_aside_before()?) {
            copied += u64::from(self.link(&path, into)?);
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
        self.disk.sync_dir(into)
    }

    /// Returns whether it had to be copied.
    fn link(&self, path: &Path, into: &Path) -> io::Result<bool> {
        link_or_copy(&*self.disk, path, &into.join(path.file_name().expect("a file has a name")))
    }
}

impl JournalDamage {
    /// Links the segments that could not be read whole, and those with points that are not put back, from the folder of damaged bytes
    /// into a folder.
    pub(crate) fn link_unread(&self, folder: &Folder, into: &Path) -> io::Result<()> {
        let kept: Vec<Segment> = self.kept_for_backups()?;
        if kept.is_empty() {
            return Ok(());
        }
        folder.disk.create_dir_all(into)?;
        kept.iter().try_for_each(|segment| folder.link(&segment.path, into).map(drop))?;
        folder.disk.sync_dir(into)
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
