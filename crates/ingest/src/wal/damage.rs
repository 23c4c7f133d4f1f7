//! Bytes of the journal that cannot be used, kept for an operator and reported.
//!
//! They go to the folder `damaged`. While that takes nothing, the file of their segment stays: once its points are stored,
//! as `NUMBER.damaged` in the journal's folder, which needs no room. The next start tries to move it.

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
};

#[cfg(test)]
use host::Host;
use host::{Clock, DamagedFolder, Now, utc};
use metric::Timestamp;
use parking_lot::Mutex;
use store::{Damage, DamageLog, Identity};

use super::{
    header::SegmentHeader,
    kept_deletions::{KeptDeletions, LIST},
    missing_notes::name_of_missing,
    record::{ResolvedPoint, push_points, segment_start},
    segment::{Folder, Segment, renamed},
    segment_bytes::SegmentBytes,
    unwritten_notes::UnwrittenNote,
};

/// Points that a read of the journal did not find again.
const NOT_READ_BACK: &str = "journal points";

/// The folder for what is damaged, and the log of it.
#[derive(Clone)]
pub(crate) struct JournalDamage {
    pub(super) folder: DamagedFolder,
    clock: Arc<dyn Clock>,
    pub(super) log: DamageLog,
    /// What is deleted while segments are kept that were not read whole.
    pub(super) deletions: Option<Arc<KeptDeletions>>,
    /// Segments whose damaged bytes are nowhere else. At most as many as a start finds.
    only_copies: Arc<Mutex<BTreeSet<u64>>>,
    /// Whose the journal is, once a start has compared it.
    pub(super) ours: Arc<OnceLock<Identity>>,
    /// Segments that the start replays in their places.
    replayed: Arc<Mutex<BTreeSet<u64>>>,
    /// Notes that the disk did not take: one for each finding, and there are no more of these than segments.
    pub(super) unwritten: Arc<Mutex<Vec<UnwrittenNote>>>,
    /// Points that were reported as not found when the journal was read back.
    not_read_back: Arc<Mutex<u64>>,
}

impl JournalDamage {
    pub(crate) fn new(folder: DamagedFolder, clock: Arc<dyn Clock>, log: DamageLog) -> JournalDamage {
        JournalDamage {
            folder,
            clock,
            log,
            deletions: None,
            only_copies: Arc::default(),
            ours: Arc::default(),
            replayed: Arc::default(),
            unwritten: Arc::default(),
            not_read_back: Arc::default(),
        }
    }

    /// Whose the journal is.
    pub(super) fn set_ours(&self, ours: &Identity) {
        // A process opens one store.
        let _ = self.ours.set(ours.clone());
    }

    /// The segments that a start replays in their places: what they have is read.
    pub(super) fn set_replayed(&self, numbers: BTreeSet<u64>) {
        *self.replayed.lock() = numbers;
    }

    pub(super) fn is_replayed(&self, number: u64) -> bool {
        self.replayed.lock().contains(&number)
    }

    /// Writes a note. Returns its name relative to the data folder; `None` where the disk does not take it: then it is written later.
    pub(super) fn note_or_later(&self, note: UnwrittenNote) -> Option<String> {
        match note.write(&self.folder) {
            Ok(kept) => Some(kept),
            Err(error) => {
                tracing::warn!(%error, "cannot note in the folder damaged what the journal has lost; the next flush tries again");
                self.unwritten.lock().push(note);
                None
            }
        }
    }

    /// Writes the notes that the disk did not take before.
    pub(super) fn write_notes(&self) {
        let notes = std::mem::take(&mut *self.unwritten.lock());
        for note in notes {
            self.note_or_later(note);
        }
    }

    /// Notes that the list of deletions lacks some, where that waits for the disk: the segments that have them go now.
    pub(super) fn note_lacks(&self) {
        if let Some(deletions) = &self.deletions {
            deletions.note_lacks();
        }
    }

    /// With a list of deletions.
    pub(crate) fn noting(self, deletions: Arc<KeptDeletions>) -> JournalDamage {
        JournalDamage { deletions: Some(deletions), ..self }
    }

    /// Of a journal alone, in a test.
    #[cfg(test)]
    pub(super) fn in_folder(host: &Host, dir: &Path) -> JournalDamage {
        JournalDamage::new(DamagedFolder::new(host, dir), host.clock.clone(), DamageLog::new())
    }

    /// As [`JournalDamage::remove`], of a segment that another process wrote, which may have been missing. Returns whether it is
    /// gone: it stays as long as that cannot be known.
    pub(super) fn remove_read(&self, folder: &Folder, segment: &Segment) -> io::Result<bool> {
        match if self.has_only_copy_in(segment) { Ok(false) } else { self.has_returned(folder, segment) } {
            Ok(true) => self.keep_returned(folder, segment)?,
            Ok(false) => self.remove(folder, segment)?,
            Err(error) => {
                tracing::warn!(
                    file = %segment.path.display(), %error,
                    "cannot list the folder damaged, which says whether this segment was missing; it stays, and the next flush tries again"
                );
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether damaged bytes of a segment are nowhere but in its file.
    pub(super) fn has_only_copy_in(&self, segment: &Segment) -> bool {
        self.only_copies.lock().contains(&segment.number)
    }

    /// Removes a segment whose points are stored, for good. A file with the only copy of damaged bytes goes to the folder
    /// for what is damaged, or is renamed.
    pub(super) fn remove(&self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        if !self.has_only_copy_in(segment) {
            let is_asked_for = self.deletions.as_ref().is_some_and(|deletions| deletions.is_noting());
            return if is_asked_for { folder.keep_since(segment) } else { folder.remove(segment) };
        }
        if let Some(header) = folder.header_of(segment).filter(|header| header.is_misnamed(segment.number)) {
            self.move_misnamed(segment, header.segment);
            return Ok(());
        }
        match self.folder.keep_file(&segment.path, "it has damaged bytes that could not be copied at the start") {
            Ok(_) => folder.remove(segment)?,
            Err(error) => {
                let kept = folder.put_aside(segment)?;
                tracing::warn!(
                    file = %segment.path.display(), kept = %kept.display(), %error,
                    "cannot put a damaged segment of the journal into the folder damaged; renamed it; the next start tries again"
                );
            }
        }
        self.only_copies.lock().remove(&segment.number);
        Ok(())
    }

    /// The only copy of what is damaged in a segment has another name.
    pub(super) fn is_put_aside(&self, segment: &Segment) {
        self.only_copies.lock().remove(&segment.number);
    }

    /// Reports files with names that no segment has, and leaves them alone.
    pub(crate) fn report_strays(&self, folder: &Folder) -> io::Result<()> {
        for stray in folder.strays()? {
            let how = "no segment has such a name; the file is left alone, and its points are in no answer".to_owned();
            self.report(self.damage("stray file", &stray.path, how, stray.bytes as usize));
        }
        Ok(())
    }

    /// Moves the files here for which there was no room before.
    pub(crate) fn move_renamed(&self, folder: &Folder) -> io::Result<()> {
        for file in folder.put_aside_before()? {
            let why = "it was damaged, and there was no room for its bytes before";
            let kept = self.folder.move_in(&file, why);
            let how = match &kept {
                Ok(_) => why.to_owned(),
                Err(error) => format!("{why}; there is none now: {error}"),
            };
            self.report(Damage { moved_to: kept.ok(), ..self.damage("journal segment", &file, how, 0) });
        }
        Ok(())
    }

    /// Where damaged bytes are. If they could not be put there, the files of their segments stay, and `how` says so.
    pub(super) fn or_stays(&self, segments: &[&Segment], kept: io::Result<String>, how: &mut String) -> Option<String> {
        let error = match kept {
            Ok(kept) => return Some(kept),
            Err(error) => error,
        };
        self.only_copies.lock().extend(segments.iter().map(|segment| segment.number));
        let name = segments.first().map(|first| renamed(&first.path).display().to_string()).unwrap_or_default();
        how.push_str(&format!(
            "; the bytes cannot be put into the folder damaged ({error}): the file stays, and is renamed to {name} when its \
             points are stored; make room on the disk"
        ));
        None
    }

    /// Copies a part of a segment that is not a record. `accepted` is when the points of the records around it were
    /// accepted.
    pub(crate) fn keep_damage(
        &self,
        segment: &Segment,
        bytes: &[u8],
        at: &Range<usize>,
        accepted: (Option<Timestamp>, Option<Timestamp>),
    ) {
        let when = accepted_when(accepted);
        let mut how = format!(
            "no whole record in the bytes from {} to {}; their points, of any metric, are lost unless they are stored; they were \
             accepted {when}",
            at.start, at.end,
        );
        let kept = self.folder.keep_bytes(&segment.path, at.start as u64, bytes, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        self.report(Damage { moved_to, ..self.damage("journal record", &segment.path, how, bytes.len()) });
    }

    /// Keeps a segment whose disk does not return all of it, as a link to the whole file.
    pub(crate) fn keep_unread(&self, segment: &Segment, read: &SegmentBytes) {
        let Some((first, last)) = read.unread.first().zip(read.unread.last()) else { return };
        let bytes: u64 = read.unread.iter().map(|part| part.end - part.start).sum();
        let mut how = format!(
            "{bytes} of the bytes from {} to {} cannot be read; the points in them are missing, the others are replayed",
            first.start, last.end
        );
        self.begin_noting();
        let kept = self.folder.keep_file(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        self.report(Damage { moved_to, ..self.damage(UNREAD_SEGMENT, &segment.path, how, bytes as usize) });
    }

    /// Keeps a segment whose disk returns nothing.
    pub(crate) fn keep_all_unread(&self, segment: &Segment, why: &io::Error) {
        let mut how = format!("it cannot be read: {why}; the points in it are missing");
        self.begin_noting();
        let kept = self.folder.keep_file(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        self.report(Damage { moved_to, ..self.damage(UNREAD_SEGMENT, &segment.path, how, segment.bytes as usize) });
    }

    /// Deletions are remembered while points are parked: one of their segments may be missing.
    pub(crate) fn set_parked(&self, are_parked: bool) {
        if let Some(deletions) = &self.deletions {
            if are_parked { deletions.remember() } else { deletions.forget() }
        }
    }

    /// Goes on with the list of deletions if earlier starts kept something whose points may be put back, and reports a list that
    /// is damaged.
    pub(crate) fn go_on_noting(&self, folder: &Folder) {
        let Some(deletions) = &self.deletions else { return };
        if let Err(error) = deletions.cut_torn_end() {
            tracing::warn!(%error, "cannot read the list of deletions next to the journal");
        }
        // If that is not known, something may be kept.
        if self.may_put_back().unwrap_or(true)
            && let Err(error) = deletions.go_on()
        {
            tracing::warn!(%error, "cannot make the list of deletions next to the journal");
        }
        if deletions.read().is_ok_and(|deleted| deleted.is_damaged) {
            self.report_deletions(folder);
        }
    }

    /// Reports that the list of deletions is damaged.
    pub(crate) fn report_deletions(&self, folder: &Folder) {
        let how = "it has bytes that are not records: points of segments that could not be read, or were missing, are put back only where \
                   their metrics exist; others wait, and are reported once their segments are read";
        let file = folder.dir().join(LIST);
        if !self.log.examples().iter().any(|damage| damage.what == DELETIONS) {
            self.report(self.damage(DELETIONS, &file, how.to_owned(), 0));
        }
    }

    /// Deletions are noted from here on: points of what is deleted must not be put back.
    pub(super) fn begin_noting(&self) {
        if let Some(Err(error)) = self.deletions.as_ref().map(|deletions| deletions.begin()) {
            tracing::warn!(%error, "cannot make the list of deletions next to the journal");
        }
    }

    /// Moves a segment here that the store has had for long: it came from a copy, and its values may have been
    /// overwritten since.
    pub(crate) fn move_stale(&self, segment: &Segment, stored_below: u64) {
        let mut how =
            format!("the store has all segments below {stored_below}; this one came back, and is not replayed");
        let kept = self.folder.move_in(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        let damage = self.damage("stale journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to, ..damage });
    }

    /// Moves a file here whose header says another number than its name.
    pub(crate) fn move_misnamed(&self, segment: &Segment, number: u64) {
        let mut how = format!(
            "it says that it is segment {number}: it is a copy, or was renamed; it is not replayed, because its points may be older \
             than those of the segments before its place; if segment {number} is missing, stop, and put this file back as \
             {number:08}.journal"
        );
        let kept = self.folder.move_in(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        let damage = self.damage("misnamed journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to, ..damage });
    }

    /// Moves a file of another store here, which came while the process runs: a start refuses it.
    pub(super) fn move_foreign(&self, segment: &Segment) {
        let mut how = "it is of another store: none of its points is put back, and nothing says that the segment of this store is back".to_owned();
        let kept = self.folder.move_in(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        let damage = self.damage("foreign journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to, ..damage });
    }

    /// Reports segments that should be there. `first` and `last` are paths that they would have; the last had so many bytes at least.
    pub(crate) fn report_missing(&self, first: &Path, last: &Path, bytes: u64) {
        let to = if first == last { String::new() } else { format!(", or one up to {}", last.display()) };
        let how = format!(
            "it is missing{to}; the points in it are lost, unless they are stored; or the store next to the journal is of an earlier \
             time: restore both of one time"
        );
        // The next start knows nothing of it, and a flush of this process counts its number as stored.
        self.begin_noting();
        let number = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()?.parse().ok()).unwrap_or_default();
        self.replayed.lock().retain(|one| !(number(first)..=number(last)).contains(one));
        let note = first.with_file_name(name_of_missing(number(first), number(last)));
        let moved_to = self.note_or_later(UnwrittenNote::Missing { note, bytes, how: how.clone() });
        self.report(Damage { moved_to, ..self.damage("journal segment", first, how, 0) });
    }

    /// Reports that the file which names the newest segment is damaged.
    pub(super) fn report_newest(&self, file: &Path, error: &io::Error) {
        let how = format!(
            "{error}; without it, a start may not notice that the newest segment of the journal is missing; it is written again with the \
             next point"
        );
        self.report(self.damage("newest journal segment", file, how, 0));
    }

    /// Reports a segment that is not what it was while its points waited in it, when it had so many bytes.
    pub(crate) fn report_changed(&self, segment: &Segment, bytes: u64, how: String) {
        let how = format!("{how}; points that waited in it for room in memory are lost");
        self.begin_noting();
        self.replayed.lock().remove(&segment.number);
        let note = UnwrittenNote::Missing { note: segment.path.clone(), bytes, how: how.clone() };
        let moved_to = self.note_or_later(note);
        let damage = self.damage("journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to, ..damage });
    }

    /// Reports points that waited in the journal for room in memory, and never came back.
    pub(crate) fn report_not_read_back(&self, folder: &Path, points: u64) {
        let how = format!(
            "{points} points that waited in the journal for room in memory were not found there again; they are lost, unless a segment of \
             the journal is reported and comes back"
        );
        *self.not_read_back.lock() += points;
        self.report(self.damage(NOT_READ_BACK, folder, how, 0));
    }

    /// Takes note of the points of a segment that is back. Ends the report of those that were not read back, once there are as many.
    pub(crate) fn found_again(&self, points: u64) {
        let mut missing = self.not_read_back.lock();
        let was_missing = 0 < *missing;
        *missing = missing.saturating_sub(points);
        if was_missing && *missing == 0 {
            self.log.mend(|damage| damage.what == NOT_READ_BACK);
        }
    }

    /// Reports a segment that a copy of the store wrote which went on elsewhere.
    pub(crate) fn report_other(&self, segment: &Segment) {
        let how = "it is of another timeline of this store, as from before a restore; its points go to the names that it gives, and \
                   the segment of this store that may have been here is missing"
            .to_owned();
        self.report(self.damage("journal segment", &segment.path, how, segment.bytes as usize));
    }

    /// Keeps points that no metric is known for, as a segment of their own. Each comes with the time at which it was
    /// accepted; they are in some of these segments.
    pub(crate) fn keep_nameless(
        &self,
        segments: &[&Segment],
        header: Option<&SegmentHeader>,
        points: &[(Now, ResolvedPoint)],
    ) {
        let metrics = ends(points.iter().map(|(_, point)| point.metric));
        let (Some(metrics), Some(first)) = (metrics, segments.first()) else { return };
        let mut bytes = header.map_or_else(Vec::new, segment_start);
        for batch in points.chunk_by(|(a, _), (b, _)| a == b) {
            let now = batch[0].0;
            let points: Vec<ResolvedPoint> = batch.iter().map(|&(_, point)| point).collect();
            push_points(&mut bytes, now, &points);
        }
        let times = ends(points.iter().map(|(_, point)| i64::from(point.time)));
        let (from, last) = times.unwrap_or_default();
        let mut how = format!(
            "{} points from {} to {} of metrics that nothing names (ids {} to {}): no answer has them",
            points.len(),
            utc(from),
            utc(last),
            metrics.0,
            metrics.1
        );
        let kept = self.folder.keep_bytes(&first.path.with_extension("nameless"), 0, &bytes, &how);
        let moved_to = self.or_stays(segments, kept, &mut how);
        self.report(Damage {
            moved_to,
            metrics: Some(metrics),
            span: times.map(|(from, last)| (from, last + 1)),
            ..self.damage("points without a name", &first.path, how, bytes.len())
        });
    }

    pub(super) fn damage(&self, what: &'static str, file: &Path, how: String, bytes: usize) -> Damage {
        let file = file.display().to_string();
        Damage { found_at: self.clock.now(), what, file, how, bytes: bytes as u64, ..Damage::default() }
    }

    pub(super) fn report(&self, damage: Damage) {
        let Damage { what, file, how, bytes, moved_to, .. } = damage.clone();
        if self.log.report(damage) {
            tracing::error!(file, bytes, kept = moved_to, "damage in the journal: {what}: {how}");
        }
    }
}

/// A segment whose disk did not return all of it.
pub(super) const UNREAD_SEGMENT: &str = "journal segment";

/// What reports call the list of deletions.
const DELETIONS: &str = "list of deletions";

/// When records between others were accepted, in words.
pub(super) fn accepted_when(around: (Option<Timestamp>, Option<Timestamp>)) -> String {
    match around {
        (Some(after), Some(before)) => format!("between {} and {}", utc(after), utc(before)),
        (Some(after), None) => format!("at {} or later", utc(after)),
        (None, Some(before)) => format!("at {} or earlier", utc(before)),
        (None, None) => "at a time that no other record of the segment tells".to_owned(),
    }
}

/// The lowest and the highest.
fn ends<T: Ord + Copy>(all: impl Iterator<Item = T>) -> Option<(T, T)> {
    all.fold(None, |ends, one| match ends {
        None => Some((one, one)),
        Some((low, high)) => Some((low.min(one), high.max(one))),
    })
}
