//! Segments that a start reported as missing, or that a restored backup lacked, and that come back: the store counts their numbers as stored by then, and has
//! none of their points. They are put back as segments are that could not be read.

use std::{
    io,
    ops::{Range, RangeInclusive},
    path::Path,
};

use store::Damage;

use super::{
    chain::is_of_a_copy,
    damage::{JournalDamage, UNREAD_SEGMENT},
    header::SegmentHeader,
    lengths::header_bytes,
    missing_notes::{GONE, MISSING, PREFIX, RETURNED, is_gone, missing, name_of_missing, noted, noted_bytes, numbers},
    segment::{Folder, Segment},
};

/// A shorter file has no record: it is what is left of a segment that has lost its contents.
const LEAST_BYTES: u64 = 32;

impl JournalDamage {
    /// The numbers of segments that starts reported as missing, and that did not come back.
    ///
    /// # Errors
    /// Where `damaged/` cannot be listed: then each may be missing.
    pub(crate) fn missing(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        let kept = self.folder.kept()?;
        Ok(kept.iter().filter_map(|entry| missing(&entry.name.to_string_lossy())).collect())
    }

    /// As [`JournalDamage::missing`], and those that a restored backup lacked: nothing waits for them.
    ///
    /// # Errors
    /// As [`JournalDamage::missing`].
    pub(crate) fn noted(&self) -> io::Result<Vec<RangeInclusive<u64>>> {
        let kept = self.folder.kept()?;
        Ok(kept.iter().filter_map(|entry| noted(&entry.name.to_string_lossy())).collect())
    }

    /// Moves a segment that was missing to `damaged/` where the store counts it as stored: its points are put back from there.
    pub(super) fn keep_returned(&self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        let why = match self.is_missing(segment.number)? {
            true => "an earlier start, or the backup that this folder was restored from, missed it",
            false if self.cut_short()?.contains_key(&segment.number) => "an earlier start found it without its end",
            false => "the start did not find it",
        };
        self.keep_to_put_back(
            folder,
            segment,
            format!("{why}, and it is back: its points are put back within a minute"),
        )
    }

    /// As [`JournalDamage::keep_returned`], of a segment that had so many bytes when it was read, and has more.
    pub(super) fn keep_grown(&self, folder: &Folder, segment: &Segment, read: u64) -> io::Result<()> {
        let how = format!(
            "it had {read} bytes when the start read it, and has {}: the points behind them are put back within a minute",
            segment.bytes
        );
        self.keep_to_put_back(folder, segment, how)
    }

    /// As [`JournalDamage::keep_returned`], of a segment that another process wrote while this one ran.
    pub(super) fn keep_of_another(&self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        let how = "another process wrote it while this one ran, on a file system that does not keep locks: its points are put back \
                   within a minute; see that one server alone has the data folder";
        self.keep_to_put_back(folder, segment, how.to_owned())
    }

    fn keep_to_put_back(&self, folder: &Folder, segment: &Segment, mut how: String) -> io::Result<()> {
        if folder.has_nothing(segment) {
            return self.move_without_records(segment);
        }
        let header = folder.header_of(segment);
        if let Some(header) = header.as_ref().filter(|header| header.is_misnamed(segment.number)) {
            // Put back in this place, its points would count as later than those of the segments between.
            self.move_misnamed(segment, header.segment);
            return Ok(());
        }
        let store = header.as_ref().map_or(0, |header| header.identity.store);
        if self.ours.get().is_some_and(|ours| store != 0 && ours.store != 0 && store != ours.store) {
            self.move_foreign(segment);
            return Ok(());
        }
        self.begin_noting();
        let kept = self.folder.keep_file(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        let is_kept = moved_to.is_some();
        let file = moved_to.as_deref().and_then(|kept| kept.strip_prefix("damaged/"));
        let kept_at = file.map(|file| self.folder.path().join(file));
        self.report(Damage { moved_to, ..self.damage(UNREAD_SEGMENT, &segment.path, how, segment.bytes as usize) });
        if is_kept {
            folder.remove(segment)?;
            let kept = Segment { path: kept_at.unwrap_or_else(|| segment.path.clone()), ..segment.clone() };
            self.note_returned(folder, &kept, header.as_ref());
        } else if !self.is_missing(segment.number)? && !folder.is_put_aside(segment) {
            // Under its name the next start would take it for one that is stored. It moves this one to `damaged/`, and puts its points back. One that
            // is noted as missing waits for the next flush.
            folder.put_aside(segment)?;
            self.is_put_aside(segment);
        }
        Ok(())
    }

    /// Whether a copy of the store wrote a segment with this header.
    fn is_of_a_copy(&self, header: Option<&SegmentHeader>) -> bool {
        header.zip(self.ours.get()).is_some_and(|(header, ours)| is_of_a_copy(header, ours))
    }

    /// Moves a file here that has the number of a segment, and none of its points.
    fn move_without_records(&self, segment: &Segment) -> io::Result<()> {
        let mut how = "it has no header and no record: no point in it is put back".to_owned();
        let kept = self.folder.move_in(&segment.path, &how);
        let moved_to = self.or_stays(&[segment], kept, &mut how);
        self.report(Damage { moved_to, ..self.damage(UNREAD_SEGMENT, &segment.path, how, segment.bytes as usize) });
        Ok(())
    }

    /// A segment that was missing is there again, with this header: the note names the others, if there are any. No segment between it and the
    /// one with records before it, which the header says, has points, and none of them is missing. Of one whose whole records end before those that it
    /// had the rest is missing still, and so is ours where one of a copy, or another one, is in its place.
    pub(super) fn note_returned(&self, folder: &Folder, segment: &Segment, header: Option<&SegmentHeader>) {
        let number = segment.number;
        let is_another = header.is_some_and(|header| header.is_misnamed(number));
        if is_another || self.is_of_a_copy(header) {
            return;
        }
        let noted = self.take_from_notes(folder, segment, header).and_then(|()| self.end_cut_notes_of(folder, segment));
        if let Err(error) = noted {
            tracing::warn!(%error, number, "cannot rename the note of a missing segment that is back");
        }
    }

    fn take_from_notes(&self, folder: &Folder, segment: &Segment, header: Option<&SegmentHeader>) -> io::Result<()> {
        // One that is missing had records.
        let least = header.map_or(0, |header| header_bytes(header) + 1);
        let mut whole = None;
        for entry in self.folder.kept()? {
            let Some(name) = entry.name.to_str() else { continue };
            let Some(noted) = noted(name).filter(|noted| noted.contains(&segment.number)) else { continue };
            let is_last = *noted.end() == segment.number;
            let known = if is_last { noted_bytes(name) } else { folder.said_of(segment.number)? };
            let bytes = *whole.get_or_insert_with(|| folder.whole_bytes(segment));
            if bytes < known.max(least) {
                let file = segment.path.display();
                tracing::warn!(
                    %file, bytes, known,
                    "a segment of the journal that was missing is back, and its whole records end before those that it had: they are \
                     read; the rest is reported as missing until it is put back, or the note in the folder damaged is removed"
                );
                continue;
            }
            self.take_from_note(name, &noted, (segment.number, header))?;
        }
        Ok(())
    }

    fn take_from_note(
        &self,
        name: &str,
        noted: &RangeInclusive<u64>,
        (number, header): (u64, Option<&SegmentHeader>),
    ) -> io::Result<()> {
        let previous = header.and_then(|header| header.previous);
        let end = previous.map_or(number, |previous| number.min(previous.saturating_add(1)));
        let (before, behind) = (*noted.start()..end, number + 1..*noted.end() + 1);
        let (_, rest) = name.split_once(MISSING).unwrap_or_default();
        let prefix = if name.starts_with(PREFIX) { PREFIX } else { "" };
        let named =
            |left: &Range<u64>, rest: &str| format!("{prefix}{}{MISSING}{rest}", numbers(left.start, left.end - 1));
        // The bytes that a note says are those of the last one that it names. The header knows those of the one before.
        let is_before = previous.is_some_and(|previous| previous + 1 == before.end);
        let bytes = header.and_then(|header| header.previous_whole).filter(|_| is_before).unwrap_or(0);
        let of_others = rest.split_once('@').map_or(rest.to_owned(), |(_, behind)| format!("{bytes}@{behind}"));
        let to = match (before.is_empty(), behind.is_empty()) {
            (true, true) => format!("{name}{RETURNED}"),
            (false, true) => named(&before, &of_others),
            (true, false) => named(&behind, rest),
            (false, false) => {
                let note = Path::new("journal").join(name_of_missing(behind.start, behind.end - 1));
                let kept =
                    self.folder.keep_note_of(&note, noted_bytes(name), "it is missing; one before it is back")?;
                if is_gone(name) {
                    let kept = kept.rsplit('/').next().unwrap_or_default();
                    self.folder.rename(kept, &format!("{kept}{GONE}"), "nothing waits for it")?;
                }
                named(&before, &of_others)
            }
        };
        self.folder.rename(name, &to, "a segment is back")?;
        let kept = format!("damaged/{name}");
        self.log.mend(|damage| damage.moved_to.as_deref() == Some(&*kept));
        Ok(())
    }

    /// Whether a file that is about to be removed is a segment that was missing.
    pub(super) fn has_returned(&self, folder: &Folder, segment: &Segment) -> io::Result<bool> {
        if self.is_replayed(segment.number) {
            return Ok(false);
        }
        let may_be = LEAST_BYTES <= segment.bytes && self.is_missing(segment.number)? && !folder.has_nothing(segment);
        Ok(may_be && !self.is_of_a_copy(folder.header_of(segment).as_ref()))
    }

    /// Whether a file is a segment that a start missed, or has the end that a start did not find.
    pub(super) fn is_waited_for(&self, segment: &Segment) -> io::Result<bool> {
        let is_longer = |there: &u64| *there < segment.bytes;
        Ok(self.is_missing(segment.number)? || self.cut_short()?.get(&segment.number).is_some_and(is_longer))
    }

    /// Whether a start reported this number as missing, or a restored backup lacked it.
    pub(super) fn is_missing(&self, number: u64) -> io::Result<bool> {
        Ok(self.noted()?.iter().any(|noted| noted.contains(&number)))
    }

    /// Reports a segment that the store counts as stored, and that may have been missing: what earlier starts noted cannot be
    /// read. It stays where it is.
    pub(super) fn report_perhaps_returned(&self, segment: &Segment, error: &io::Error) {
        let how = format!(
            "it may have been missing at an earlier start, but the folder damaged cannot be listed ({error}); it stays, its points \
             are in no answer unless they were stored before, and a flush or the next start that can list the folder puts them back"
        );
        self.report(self.damage(UNREAD_SEGMENT, &segment.path, how, segment.bytes as usize));
    }
}
