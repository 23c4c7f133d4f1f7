//! What damage has cost the metrics table. It is noted in the log, so that each start and `plumbago verify` say it until a
//! repair, also once the log was written again without the damaged bytes.

use metric::MetricId;

use super::record::{LOST, MOST_RUNS, decode_runs, encode_runs};
use crate::{id_set::IdSet, record_log::Records};

/// The first byte of a note: runs of ids that may have lost their names.
const NAMES: u8 = 1;
/// As [`NAMES`]: metrics below an id may have been deleted, which a lost record said. The run begins at 0.
const DELETIONS: u8 = 2;
/// As [`NAMES`]: ids whose names have a later metric, so that they were deleted.
const SUCCEEDED: u8 = 3;

/// What is lost, as far as that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Ids that were given, and have neither a name nor a deletion.
    pub(super) nameless: IdSet,
    /// Metrics with ids below it may have been deleted, and are there. 0 where no deletion is lost.
    pub(super) deleted_below: u32,
    /// Metrics that were deleted, because a later one has the name. They are in no answer, and their rows stay.
    pub(super) succeeded: IdSet,
}

impl Losses {
    pub(crate) fn is_none(&self) -> bool {
        self.nameless.highest().or(self.succeeded.highest()).is_none() && self.deleted_below == 0
    }

    /// Metrics that were deleted, because a later one has the name.
    pub(crate) fn succeeded(&self) -> &IdSet {
        &self.succeeded
    }

    /// Those of deletions alone.
    pub(crate) fn of_deletions(self) -> Losses {
        Losses { nameless: IdSet::default(), ..self }
    }

    /// Those that others do not have.
    pub(super) fn without(mut self, others: &Losses) -> Losses {
        others.nameless.iter().for_each(|id| _ = self.nameless.remove(id));
        others.succeeded.iter().for_each(|id| _ = self.succeeded.remove(id));
        if self.deleted_below <= others.deleted_below {
            self.deleted_below = 0;
        }
        self
    }

    /// Adds others.
    pub(super) fn extend(&mut self, more: &Losses) {
        self.nameless.extend(&more.nameless);
        self.succeeded.extend(&more.succeeded);
        self.deleted_below = self.deleted_below.max(more.deleted_below);
    }

    /// The records that note them.
    pub(super) fn records(&self) -> Records {
        let mut records = Records::default();
        let mut note = |what: u8, runs: &[(MetricId, u32)]| {
            for runs in runs.chunks(MOST_RUNS - 1) {
                records.push_with(LOST, |payload| {
                    payload.push(what);
                    payload.extend_from_slice(&encode_runs(runs));
                });
            }
        };
        note(NAMES, &self.nameless.runs());
        if 0 < self.deleted_below {
            note(DELETIONS, &[(MetricId(0), self.deleted_below)]);
        }
        note(SUCCEEDED, &self.succeeded.runs());
        records
    }

    /// Adds what a record of kind [`LOST`] notes. A later program may note more.
    pub(super) fn take(&mut self, payload: &[u8]) {
        let Some((&what, runs)) = payload.split_first() else { return };
        for (first, count) in decode_runs(runs) {
            let end = first.0.saturating_add(count);
            let ids = (first.0..end).map(MetricId);
            match what {
                NAMES => ids.for_each(|id| _ = self.nameless.insert(id)),
                DELETIONS => self.deleted_below = self.deleted_below.max(end),
                SUCCEEDED => ids.for_each(|id| _ = self.succeeded.insert(id)),
                _ => {}
            }
        }
    }

    /// Ends what is known since: those that have a name again or are deleted.
    pub(crate) fn settle(&mut self, known: &IdSet, deleted: &IdSet) {
        let done: Vec<MetricId> =
            self.nameless.iter().filter(|&id| known.contains(id) || deleted.contains(id)).collect();
        done.into_iter().for_each(|id| _ = self.nameless.remove(id));
        let done: Vec<MetricId> = self.succeeded.iter().filter(|&id| deleted.contains(id)).collect();
        done.into_iter().for_each(|id| _ = self.succeeded.remove(id));
    }

    /// What is lost, what that costs, for operators, and the first and last of the metrics. `names` are some of those that were deleted.
    pub(crate) fn texts(&self, names: &[String]) -> Vec<(&'static str, String, (MetricId, MetricId))> {
        let mut texts = Vec::new();
        let ends = |set: &IdSet| set.iter().next().zip(set.highest());
        if let Some((first, last)) = ends(&self.nameless) {
            let how = format!(
                "at most {} metrics have lost their names (ids {first} to {last}): these metrics are gone from all answers, unless \
                 the journal still names them; their rows stay until they expire",
                self.nameless.iter().count()
            );
            texts.push(("names", how, (first, last)));
        }
        if let Some(last) = self.deleted_below.checked_sub(1) {
            let how = format!(
                "a record of deletions may be lost: metrics with ids up to {last} that were deleted may be back, with the points that \
                 they had; delete again what should be gone"
            );
            texts.push(("deletions", how, (MetricId(0), MetricId(last))));
        }
        if let Some((first, last)) = ends(&self.succeeded) {
            let count = self.succeeded.iter().count();
            let more = if names.len() < count { ", …" } else { "" };
            let how = format!(
                "the deletions of {count} metrics are lost (ids {first} to {last}): the names {}{more} have later metrics, which are \
                 shown; the points of the deleted ones are in no answer, and stay until they expire or until a repair",
                names.join(", ")
            );
            texts.push(("deletions", how, (first, last)));
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let mut losses = Losses { deleted_below: 7, ..Losses::default() };
        // More runs than a record has.
        (0..3000).for_each(|n| _ = losses.nameless.insert(MetricId(2 * n)));
        losses.succeeded.insert(MetricId(3));
        let (records, mut read) = (losses.records(), Losses::default());
        for (kind, payload) in records.iter() {
            assert_eq!(kind, LOST);
            read.take(payload);
        }
        assert_eq!(read, losses);
        assert_eq!(losses.texts(&["a.b".to_owned()]).len(), 3);
        let mut deleted = IdSet::default();
        deleted.extend(&losses.nameless);
        losses.settle(&IdSet::default(), &deleted);
        assert_eq!((losses.nameless.highest(), losses.succeeded.highest()), (None, Some(MetricId(3))));
        assert!(Losses::default().is_none() && Losses::default().records().bytes() == 0);
    }
}
