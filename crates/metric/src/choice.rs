//! Which stage answers a read, and with which of its slots.
//!
//! The rules are those of whisper 1.1.10 (`file_fetch` and `__archive_fetch` in `whisper.py`), and one of ours: a
//! coarser stage answers where this one has too many points.

use std::ops::Range;

use crate::{Retention, Slot, Stage, Timestamp, Window};

/// A stage, and a run of its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageChoice {
    /// Index of the stage.
    pub stage: usize,
    /// The slots. Never empty.
    pub slots: Range<Slot>,
}

impl Retention {
    /// The stage and the slots that answer a read at `now`, or `None` for a window in the future or before everything
    /// kept.
    ///
    /// 1. The window is taken as `(from, until]`, and cut to the retention and to the past.
    /// 2. The stage is the finest that reaches back to `from`. With more than `max_points` in the window, it is the
    ///    next coarser one that has fewer, or else the coarsest.
    /// 3. A window within one slot is answered with the slot after it.
    pub fn choose(&self, window: Window, now: Timestamp, max_points: usize) -> Option<StageChoice> {
        let oldest = now - self.longest().duration();
        if window.from() > now || window.until() < oldest {
            return None;
        }
        let (from, until) = (window.from().max(oldest), window.until().min(now));
        let slots = |stage: Stage| {
            let first = stage.slot(from)?.checked_add(1)?;
            let end = stage.slot(until)?.checked_add(1)?;
            Some(first..if first == end { end.checked_add(1)? } else { end })
        };
        let stages = self.stages();
        let has_few_points = |&stage: &usize| slots(stages[stage]).is_some_and(|slots| slots.len() <= max_points);
        let finest = self.stage_holding(from, now)?;
        let stage = (finest..stages.len()).find(has_few_points).unwrap_or(stages.len() - 1);
        Some(StageChoice { stage, slots: slots(stages[stage])? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = 1_700_000_030;
    const MINUTE: Timestamp = NOW - NOW % 60;
    const HOUR: Timestamp = NOW - NOW % 3600;

    /// Index of the stage, and the times of the first slot and the end.
    fn choice(from: Timestamp, until: Timestamp, max_points: usize) -> Option<(usize, Timestamp, Timestamp)> {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let choice = retention.choose(Window::between(from, until), NOW, max_points)?;
        let stage = retention.stages()[choice.stage];
        Some((choice.stage, stage.time(choice.slots.start), stage.time(choice.slots.end)))
    }

    #[test]
    fn the_window_is_open_at_from_and_closed_at_until() {
        assert_eq!(choice(MINUTE - 600, MINUTE - 60, 1000), Some((0, MINUTE - 540, MINUTE)));
        assert_eq!(choice(MINUTE - 601, MINUTE - 61, 1000), Some((0, MINUTE - 600, MINUTE - 60)));
        assert_eq!(choice(MINUTE - 60, MINUTE - 30, 1000), Some((0, MINUTE, MINUTE + 60)), "one slot at least");
    }

    #[test]
    fn a_window_in_the_future_or_before_the_retention_has_no_answer() {
        assert_eq!(choice(NOW + 1, NOW + 100, 1000), None);
        assert_eq!(choice(NOW - 40 * 86400, NOW - 3 * 86400, 1000), None);
        assert_eq!(choice(MINUTE - 60, NOW + 1000, 1000), Some((0, MINUTE, MINUTE + 60)));
    }

    #[test]
    fn a_coarser_stage_answers_where_this_one_has_too_many_points() {
        assert_eq!(choice(NOW - 3000, NOW, 10).unwrap().0, 1);
        assert_eq!(choice(NOW - 3000, NOW, 1000).unwrap().0, 0);
        assert_eq!(choice(NOW - 86400, NOW, 1), Some((1, HOUR - 82800, HOUR + 3600)), "the coarsest in any case");
    }
}
