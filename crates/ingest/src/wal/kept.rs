//! What earlier starts kept of the journal in `damaged/`: each start reports it, until it is put back or removed.
//!
//! ```text
//! journal_00000002.journal~whole        its disk did not return all of it; to be read again
//! journal_00000002.journal~replayed     it was read, and its points are put back
//! journal_00000002.journal~damaged      as before, but for the damaged bytes that it has
//! journal_00000002.journal~named        as ~whole; an operator says that the names in it count, whatever was deleted since
//! journal_00000002.journal~75-older     as before, but for 75 points; see `not_put_back.rs`
//! journal_late-5-0.points~12-expired-…  late points whose coarse slots can never be derived again, 12
//! journal_00000002.journal+812@1a2b3c4d damaged bytes of a segment
//! journal_00000002.cut+812@1a2b3c4d     a note of a segment that ended at that byte, and was longer
//! journal_00000002.nameless+0@1a2b3c4d  points whose metrics nothing names
//! journal_00000002.missing+0@1a2b3c4d   a note of a segment that was missing; see `missing_notes.rs`
//! ```

use std::{collections::HashSet, io, path::Path};

use host::{DirEntry, Disk};
use store::Damage;

use super::{
    cut_notes::{CUT, is_cut},
    damage::{JournalDamage, UNREAD_SEGMENT},
    missing_notes::{RETURNED, has_ending, is_gone, missing},
    not_put_back::NotPutBack,
    segment::{Folder, Segment},
};

/// Files that are reported one by one.
const MOST_FINDINGS: usize = 64;

/// The end of the name of a file whose disk did not return all of it.
const WHOLE: &str = "~whole";

/// As [`WHOLE`], of a file whose names count though they may have been deleted since.
const NAMED: &str = "~named";

/// What the names of other files have.
const REPLAYED: &str = "~replayed";
const DAMAGED: &str = "~damaged";
const NAMELESS: &str = ".nameless+";

/// How the names of files with late points begin, in the folder of the journal.
pub(crate) const LATE_FILE: &str = "late-";

const LATE_POINTS: &str = "late points";

/// What the notes of missing segments say.
const GONE: &str = "the backup that this folder was restored from lacks it; the points in it are lost unless they were stored, or the segment \
                    is put into the folder of the journal under its name; remove the note to end this report";
const MISSED: &str = "an earlier start missed it; the points in it are lost unless they are stored, or the segment is put back into the \
                      folder of the journal under its name; remove this note to end the report";

impl Folder {
    /// The files with late points that were stored without their neighbours.
    pub(crate) fn late_files(&self) -> io::Result<Vec<Segment>> {
        let entries = match self.disk.read_dir(self.dir()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let is_late = |name: &str| name.starts_with(LATE_FILE) && name.ends_with(".points");
        let late = entries.into_iter().filter(|entry| entry.name.to_str().is_some_and(is_late));
        Ok(late.map(|entry| Segment { number: 0, path: entry.path, bytes: entry.len }).collect())
    }
}

impl Segment {
    /// Whether an operator says that its names count, though they may have been deleted since.
    pub(crate) fn is_by_name(&self) -> bool {
        self.path.to_str().is_some_and(|path| path.ends_with(NAMED))
    }
}

impl JournalDamage {
    /// Reports what earlier starts kept.
    pub(crate) fn report_kept(&self) {
        let kept = match self.folder.kept() {
            Ok(kept) => kept,
            Err(error) => {
                let how = format!(
                    "it cannot be listed ({error}): what earlier starts found damaged or missing is not reported"
                );
                return self.report(self.damage("folder of damaged files", self.folder.path(), how, 0));
            }
        };
        let known: HashSet<String> = self.log.examples().into_iter().filter_map(|damage| damage.moved_to).collect();
        let is_new = |entry: &&DirEntry| !known.contains(&format!("damaged/{}", entry.name.to_string_lossy()));
        let mut found: Vec<(String, u64, &'static str, String)> = Vec::new();
        for entry in kept.iter().filter(is_new) {
            let name = entry.name.to_string_lossy().into_owned();
            found.extend(meaning(&name).map(|(what, how)| (name, entry.len, what, how)));
        }
        found.sort();
        let more = found.split_off(found.len().min(MOST_FINDINGS));
        for (name, bytes, what, how) in found {
            let moved_to = Some(format!("damaged/{name}"));
            let damage = self.damage(what, Path::new(&name), how, bytes as usize);
            self.report(Damage { moved_to, ..damage });
        }
        if let Some((name, ..)) = more.first() {
            let bytes: u64 = more.iter().map(|(_, bytes, ..)| bytes).sum();
            let how = format!(
                "{} files of the journal in damaged/ have damage of earlier starts, from this one on",
                more.len()
            );
            self.report(self.damage("journal record", Path::new(name), how, bytes as usize));
        }
    }

    /// The segments that were not read whole, newest first.
    pub(crate) fn unread_segments(&self) -> io::Result<Vec<Segment>> {
        let mut segments = self.kept_segments(is_unread)?;
        segments.sort_by_key(|segment| std::cmp::Reverse(segment.number));
        Ok(segments)
    }

    /// The files that are part of a backup: segments that were not read whole, those with points that are not put back, and notes of lost ends.
    pub(super) fn kept_for_backups(&self) -> io::Result<Vec<Segment>> {
        self.kept_segments(|name| is_unread(name) || NotPutBack::of(name).is_some() || name.contains(CUT))
    }

    /// Points whose metrics nothing named.
    pub(crate) fn nameless_points(&self) -> io::Result<Vec<Segment>> {
        self.kept_segments(|name| name.contains(NAMELESS) && !name.contains(REPLAYED) && NotPutBack::of(name).is_none())
    }

    /// Files with points whose names the rules refused, or whose metrics may have been deleted.
    pub(crate) fn points_to_try_again(&self) -> io::Result<Vec<Segment>> {
        self.kept_segments(|name| NotPutBack::of(name).is_some_and(|left| 0 < left.refused + left.undecided))
    }

    /// Whether the folder is there.
    pub(crate) fn has_folder(&self) -> bool {
        self.folder.is_there()
    }

    /// Whether something is kept whose points may be put back: what is deleted meanwhile must be noted.
    pub(crate) fn may_put_back(&self) -> io::Result<bool> {
        let is_one = |name: &str| missing(name).is_some() || is_cut(name) || is_unread(name);
        let is_named_or_waits = |name: &str| is_one(name) || name.contains(NAMELESS) && !name.contains(REPLAYED);
        Ok(self.folder.kept()?.iter().any(|entry| is_named_or_waits(&entry.name.to_string_lossy()))
            || !self.points_to_try_again()?.is_empty())
    }

    /// Reports late points that earlier processes stored without their neighbours.
    pub(crate) fn report_late_files(&self, folder: &Folder) {
        for file in folder.late_files().unwrap_or_default() {
            self.report_late(&file.path, file.bytes);
        }
    }

    /// Reports late points that are stored without their neighbours.
    pub(crate) fn report_late(&self, file: &Path, bytes: u64) {
        let how = "stored rows could not be read: coarse slots around these late points lack them, until the rows can be read; trying \
                   again every 10 seconds";
        self.report(self.damage(LATE_POINTS, file, how.to_owned(), bytes as usize));
    }

    /// The coarse slots around late points are derived again, but for some, or for those that the file has lost: it goes to the folder for what
    /// is damaged.
    pub(crate) fn late_file_is_done(
        &self,
        folder: &Folder,
        file: &Segment,
        left: &NotPutBack,
        has_damage: bool,
    ) -> io::Result<()> {
        if let Some(ending) = left.ending() {
            let why = left.of_late_points();
            let moved = self.folder.move_in(&file.path, &why)?;
            let name = moved.rsplit('/').next().unwrap_or_default();
            self.folder.rename(name, &format!("{name}{ending}"), &why)?;
            self.report_kept();
        } else if has_damage {
            self.folder.move_in(&file.path, "some of its points cannot be read")?;
            self.report_kept();
        } else {
            folder.remove(file)?;
        }
        let name = file.path.display().to_string();
        self.log.mend(|damage| damage.what == LATE_POINTS && damage.file == name);
        Ok(())
    }

    fn kept_segments(&self, is_meant: impl Fn(&str) -> bool) -> io::Result<Vec<Segment>> {
        let segment = |entry: DirEntry| {
            let name = entry.name.to_str()?;
            let number = number(name).filter(|_| is_meant(name))?;
            Some(Segment { number, path: entry.path, bytes: entry.len })
        };
        Ok(self.folder.kept()?.into_iter().filter_map(segment).collect())
    }

    /// Ends the finding of a segment that was read, and whose points are put back, but for those that are `left`.
    pub(crate) fn was_put_back(
        &self,
        folder: &Folder,
        segment: &Segment,
        has_damage: bool,
        left: &NotPutBack,
    ) -> io::Result<()> {
        let header = folder.header_of(segment);
        let name = segment.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let to = name.split_once('~').map_or(&*name, |(name, _)| name);
        let ending = left.ending().unwrap_or_else(|| if has_damage { DAMAGED } else { REPLAYED }.to_owned());
        let why = "it was read at last, and its points are put back, as far as its name says";
        let renamed = self.folder.rename(&name, &format!("{to}{ending}"), why)?;
        let kept = format!("damaged/{name}");
        self.log.mend(|damage| damage.moved_to.as_deref() == Some(&*kept));
        // If its note could not be renamed before.
        self.note_returned(
            folder,
            &Segment { path: self.folder.path().join(&renamed), ..segment.clone() },
            header.as_ref(),
        );
        tracing::info!(file = %renamed, "a segment of the journal that could not be read was read, and its points are put back");
        self.report_kept();
        Ok(())
    }
}

/// The files in the folder `damaged` of a data folder that say that points of the journal may be lost, and how; not those of segments that were
/// missing, for which see [`notes_of_missing`](super::notes_of_missing).
///
/// # Errors
/// The folder cannot be listed.
pub fn kept_losses(disk: &dyn Disk, damaged: &Path) -> io::Result<Vec<(String, String)>> {
    let entries = match disk.read_dir(damaged) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries?,
    };
    let loss = |entry: &DirEntry| {
        let name = entry.name.to_string_lossy().into_owned();
        let how = meaning(&name).filter(|_| missing(&name).is_none() && !is_gone(&name))?.1;
        Some((name, how))
    };
    let mut losses: Vec<(String, String)> = entries.iter().filter_map(loss).collect();
    losses.sort();
    Ok(losses)
}

/// What a file in `damaged/` says about the journal, and how.
fn meaning(name: &str) -> Option<(&'static str, String)> {
    let left = NotPutBack::of(name);
    if is_late(name) {
        let how = "they cannot be derived again, and coarser slots over them may lack them; remove the file to end this report";
        return Some((LATE_POINTS, left.map_or_else(|| how.to_owned(), |left| left.of_late_points())));
    }
    if missing(name).is_some() {
        return Some((UNREAD_SEGMENT, MISSED.to_owned()));
    }
    if is_gone(name) {
        return Some((UNREAD_SEGMENT, GONE.to_owned()));
    }
    number(name)?;
    match left {
        Some(left) => Some((UNREAD_SEGMENT, left.of_segment())),
        None => fixed_meaning(name).map(|(what, how)| (what, how.to_owned())),
    }
}

fn fixed_meaning(name: &str) -> Option<(&'static str, &'static str)> {
    if name.contains(REPLAYED) || name.contains(CUT) && has_ending(name, RETURNED) {
        None
    } else if is_unread(name) {
        Some((
            UNREAD_SEGMENT,
            "an earlier start could not read all of it; the points that it missed are missing from answers until the file can be \
             read: it is read again each minute",
        ))
    } else if name.contains(DAMAGED) {
        Some((
            "journal record",
            "it has damaged bytes; its other points are put back; remove the file to end this report",
        ))
    } else if name.contains(NAMELESS) {
        Some((
            "points without a name",
            "no answer has these points of an earlier start; remove the file to end this report",
        ))
    } else if name.contains(CUT) {
        Some((
            "journal records",
            "an earlier start or a repair found that the end of the segment was missing; the points in it are lost unless they were stored; \
             remove the file to end this report",
        ))
    } else if name.contains(".journal+") {
        Some((
            "journal record",
            "damaged bytes that an earlier start or a repair found; their points are lost unless they were stored; remove the file to end \
             this report",
        ))
    } else {
        None
    }
}

/// Whether a file had late points, in the folder of the journal.
fn is_late(name: &str) -> bool {
    name.strip_prefix("journal_").unwrap_or(name).starts_with(LATE_FILE)
}

fn is_unread(name: &str) -> bool {
    name.ends_with(WHOLE) || name.ends_with(NAMED) || name.ends_with(".damaged")
}

/// The number of the segment that a file is of.
fn number(name: &str) -> Option<u64> {
    let name = name.strip_prefix("journal_").unwrap_or(name);
    let (number, _) = name.split_once('.')?;
    (8 <= number.len()).then(|| number.parse().ok())?
}
