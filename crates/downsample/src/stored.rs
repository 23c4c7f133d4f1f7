//! How far the rows in the store reach, as far as this is known without a read.

use metric::{Retention, Slot, Timestamp};

use crate::{SortedPoints, rollup::CoarseStage};

/// The extent of a metric's rows in the store, in stage-0 slots, over all stages; of one writer or of all writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stored {
    /// Nothing is known: only a read shows it.
    #[default]
    Unknown,
    /// There are no rows.
    Nothing,
    /// Rows reach through `last`; the slots after it, up to `horizon`, have no row.
    Through {
        /// The last stage-0 slot that a row covers.
        last: Slot,
        /// From here on rows are possible again, of points from the future. `None`: there are none after `last`.
        horizon: Option<Slot>,
    },
}

impl Stored {
    /// The first slot after everything stored before the horizon. `None` where that is not known.
    pub fn end(self) -> Option<Slot> {
        match self {
            Stored::Unknown => None,
            Stored::Nothing => Some(0),
            Stored::Through { last, .. } => last.checked_add(1),
        }
    }

    /// The slot from which on there are no rows at all. `None` where that is not known.
    pub fn empty_from(self) -> Option<Slot> {
        self.end().filter(|_| !matches!(self, Stored::Through { horizon: Some(_), .. }))
    }

    /// The last slot that a row covers.
    pub(crate) fn last(self) -> Option<Slot> {
        match self {
            Stored::Through { last, .. } => Some(last),
            Stored::Unknown | Stored::Nothing => None,
        }
    }

    /// Whether the slots from the end through `slot` have no row.
    pub(crate) fn is_known_through(self, slot: Slot) -> bool {
        match self {
            Stored::Unknown => false,
            Stored::Nothing | Stored::Through { horizon: None, .. } => true,
            Stored::Through { horizon: Some(horizon), .. } => slot < horizon,
        }
    }

    /// [`Stored::empty_from`] in slots of the stage with this index, rounded up.
    pub(crate) fn stage_empty_from(self, stage: usize, retention: &Retention) -> Option<Slot> {
        let (finest, resolution) = (retention.finest().resolution(), retention.stages()[stage].resolution());
        u32::try_from((u64::from(self.empty_from()?) * u64::from(finest)).div_ceil(u64::from(resolution))).ok()
    }
}

/// What a plan may take for granted about the store.
#[derive(Debug, Clone, Copy)]
pub struct Coverage {
    /// The rows of all writers: slots after them need no read.
    pub all_writers: Stored,
    /// The rows of this writer. Points after them may be added to a stored row whose finer slots have expired.
    /// For reads only; a write sets `Unknown`, because a retry may find the rows of its own first attempt.
    pub this_writer: Stored,
    /// Unix seconds.
    pub now: Timestamp,
    /// Since when the metric has its policy, in Unix seconds; `Timestamp::MAX` for an earlier policy.
    pub policy_since: Timestamp,
    /// Whether this is the only writer. No row counts a point twice then, so a row that counts more than its finer
    /// slots hold is right: they have expired, or were lost to damage.
    pub is_alone: bool,
    /// From when on the first stages of all policies that the metric had have all of its points, whatever the rows of a
    /// single writer count; `Timestamp::MAX` where only the counts tell. Unix seconds.
    pub points_since: Timestamp,
    /// Before this time, points of earlier policies may be known as coarse rows alone: their first stages were shorter.
    /// `Timestamp::MIN` where the metric had one policy. Unix seconds.
    pub rows_alone_until: Timestamp,
}

impl Coverage {
    /// The time from which on the slots of this coarse stage certainly have all their finer slots, whatever the stored
    /// row counts.
    pub(crate) fn complete_from(&self, stage: usize, retention: &Retention) -> Timestamp {
        if self.is_alone {
            return self.points_since;
        }
        self.policy_since.max(self.kept_since(stage, retention))
    }

    /// From when on the slots of the stage below are kept.
    pub(crate) fn kept_since(&self, stage: usize, retention: &Retention) -> Timestamp {
        self.now.saturating_sub(retention.stages()[stage - 1].duration())
    }

    /// The fold of a coarse slot's stage-0 points, if this writer's rows have none of them.
    pub(crate) fn unwritten(&self, stage: &CoarseStage, slot: Slot, points: &SortedPoints) -> Option<metric::Partial> {
        let (end, slots) = (self.this_writer.end()?, stage.points_of(slot)?);
        // From the horizon on this writer may have stored some of them.
        let is_known = self.this_writer.is_known_through(slots.end.saturating_sub(1));
        let (first, all) = points.fold(slots, stage.method)?;
        (is_known && end <= first).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_known_further_than_the_emptiness_after_it() {
        let within = Stored::Through { last: 9, horizon: Some(50) };
        let all = Stored::Through { last: 9, horizon: None };
        assert_eq!(
            [Stored::Unknown, Stored::Nothing, within, all].map(Stored::end),
            [None, Some(0), Some(10), Some(10)]
        );
        assert_eq!(
            [Stored::Unknown, Stored::Nothing, within, all].map(Stored::empty_from),
            [None, Some(0), None, Some(10)]
        );
        assert_eq!([49, 50].map(|slot| within.is_known_through(slot)), [true, false]);
        assert_eq!(Stored::Through { last: Slot::MAX, horizon: None }.end(), None);
    }

    #[test]
    fn a_coarse_slot_is_empty_when_all_its_finer_slots_are() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let stored = |last| Stored::Through { last, horizon: None };
        assert_eq!([58, 59, 60].map(|last| stored(last).stage_empty_from(1, &retention)), [Some(1), Some(1), Some(2)]);
        assert_eq!(Stored::Unknown.stage_empty_from(1, &retention), None);
    }
}
