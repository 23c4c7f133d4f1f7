//! Bytes of the journal that cannot be used, kept for an operator and reported.

use std::{io, ops::Range, path::Path, sync::Arc};

use host::{Clock, DamagedFolder, Now, utc};
use metric::Timestamp;
use store::{Damage, DamageLog};

use super::{
    header::SegmentHeader,
    record::{ResolvedPoint, push_points, segment_start},
    segment::Segment,
    segment_bytes::SegmentBytes,
};

/// The folder for what is damaged, and the log of it.
#[derive(Clone)]
pub(crate) struct JournalDamage {
    folder: DamagedFolder,
    clock: Arc<dyn Clock>,
    log: DamageLog,
}

impl JournalDamage {
    pub(crate) fn new(folder: DamagedFolder, clock: Arc<dyn Clock>, log: DamageLog) -> JournalDamage {
        JournalDamage { folder, clock, log }
    }

    /// Copies a part of a segment that is not a record. `accepted` is when the points of the records around it were
    /// accepted.
    pub(crate) fn keep_damage(
        &self,
        segment: &Segment,
        bytes: &[u8],
        at: &Range<usize>,
        accepted: (Option<Timestamp>, Option<Timestamp>),
    ) -> io::Result<()> {
        let when = match accepted {
            (Some(after), Some(before)) => format!("between {} and {}", utc(after), utc(before)),
            (Some(after), None) => format!("at {} or later", utc(after)),
            (None, Some(before)) => format!("at {} or earlier", utc(before)),
            (None, None) => "at a time that no other record of the segment tells".to_owned(),
        };
        let how = format!(
            "no whole record in the bytes from {} to {}; their points, of any metric, are lost unless they are stored; they were \
             accepted {when}",
            at.start, at.end,
        );
        let kept = self.folder.keep_bytes(&segment.path, at.start as u64, bytes, &how);
        let kept = kept.map_err(|error| cannot_keep(segment, &error))?;
        self.report(Damage { moved_to: Some(kept), ..self.damage("journal record", &segment.path, how, bytes.len()) });
        Ok(())
    }

    /// Keeps a segment whose disk does not return all of it, as a link to the whole file.
    pub(crate) fn keep_unread(&self, segment: &Segment, read: &SegmentBytes) -> io::Result<()> {
        let Some((first, last)) = read.unread.first().zip(read.unread.last()) else { return Ok(()) };
        let bytes: u64 = read.unread.iter().map(|part| part.end - part.start).sum();
        let how = format!(
            "{bytes} of the bytes from {} to {} cannot be read; the points in them are missing, the others are replayed",
            first.start, last.end
        );
        let kept = self.folder.keep_file(&segment.path, &how)?;
        let damage = self.damage("journal segment", &segment.path, how, bytes as usize);
        self.report(Damage { moved_to: Some(kept), ..damage });
        Ok(())
    }

    /// Moves a segment here that the store has had for long: it came from a copy, and its values may have been
    /// overwritten since.
    pub(crate) fn move_stale(&self, segment: &Segment, stored_below: u64) -> io::Result<()> {
        let how = format!("the store has all segments below {stored_below}; this one came back, and is not replayed");
        let kept = self.folder.move_in(&segment.path, &how)?;
        let damage = self.damage("stale journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to: Some(kept), ..damage });
        Ok(())
    }

    /// Reports segments that should be there. `first` and `last` are paths that they would have.
    pub(crate) fn report_missing(&self, first: &Path, last: &Path) {
        let to = if first == last { String::new() } else { format!(", or one up to {}", last.display()) };
        let how = format!(
            "it is missing{to}; the points in it are lost, unless they are stored; or the store next to the journal is of an earlier \
             time: restore both of one time"
        );
        self.report(self.damage("journal segment", first, how, 0));
    }

    /// Reports a segment that should have records, or at least a header.
    pub(crate) fn report_emptied(&self, segment: &Segment) {
        let how = "it has no header and no record; the points in it are lost".to_owned();
        self.report(self.damage("journal segment", &segment.path, how, segment.bytes as usize));
    }

    /// Moves a segment here that cannot be read.
    pub(crate) fn move_segment(&self, segment: &Segment, why: &io::Error) -> io::Result<()> {
        let how = format!("it cannot be read: {why}");
        let kept = self.folder.move_in(&segment.path, &how)?;
        let damage = self.damage("journal segment", &segment.path, how, segment.bytes as usize);
        self.report(Damage { moved_to: Some(kept), ..damage });
        Ok(())
    }

    /// Keeps points that no metric is known for, as a segment of their own. Each comes with the time at which it was
    /// accepted; `first` is the first segment of those that they are in.
    pub(crate) fn keep_nameless(
        &self,
        first: &Segment,
        header: Option<&SegmentHeader>,
        points: &[(Now, ResolvedPoint)],
    ) -> io::Result<()> {
        let Some(metrics) = ends(points.iter().map(|(_, point)| point.metric)) else { return Ok(()) };
        let mut bytes = header.map_or_else(Vec::new, segment_start);
        for batch in points.chunk_by(|(a, _), (b, _)| a == b) {
            let now = batch[0].0;
            let points: Vec<ResolvedPoint> = batch.iter().map(|&(_, point)| point).collect();
            push_points(&mut bytes, now, &points);
        }
        let times = ends(points.iter().map(|(_, point)| i64::from(point.time)));
        let (from, last) = times.unwrap_or_default();
        let how = format!(
            "{} points from {} to {} of metrics that nothing names (ids {} to {}): no answer has them",
            points.len(),
            utc(from),
            utc(last),
            metrics.0,
            metrics.1
        );
        let kept = self.folder.keep_bytes(&first.path.with_extension("nameless"), 0, &bytes, &how);
        let kept = kept.map_err(|error| cannot_keep(first, &error))?;
        self.report(Damage {
            moved_to: Some(kept),
            metrics: Some(metrics),
            span: times.map(|(from, last)| (from, last + 1)),
            ..self.damage("points without a name", &first.path, how, bytes.len())
        });
        Ok(())
    }

    fn damage(&self, what: &'static str, file: &Path, how: String, bytes: usize) -> Damage {
        let file = file.display().to_string();
        Damage { found_at: self.clock.now(), what, file, how, bytes: bytes as u64, ..Damage::default() }
    }

    fn report(&self, damage: Damage) {
        let Damage { what, file, how, bytes, moved_to, .. } = damage.clone();
        if self.log.report(damage) {
            tracing::error!(file, bytes, kept = moved_to, "damage in the journal: {what}: {how}");
        }
    }
}

/// The lowest and the highest.
fn ends<T: Ord + Copy>(all: impl Iterator<Item = T>) -> Option<(T, T)> {
    all.fold(None, |ends, one| match ends {
        None => Some((one, one)),
        Some((low, high)) => Some((low.min(one), high.max(one))),
    })
}

/// Nothing is replayed without a copy of what is left out: the next flush removes the segment.
fn cannot_keep(segment: &Segment, error: &io::Error) -> io::Error {
    let path = segment.path.display();
    io::Error::new(
        error.kind(),
        format!(
            "{path} is damaged, and its damaged bytes cannot be copied to the folder damaged: {error}; make room on the disk, and start again"
        ),
    )
}
