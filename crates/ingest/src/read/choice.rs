//! Which stage answers a request, and which of its slots.

use std::ops::Range;

use metric::{Policy, Slot, Stage};
use store::SeriesRequest;

/// Which stage answers a request, and which of its slots.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) stage: usize,
    pub(super) slots: Range<Slot>,
}

/// The stage and slots for a request, by whisper's rules: the window is `(from, until]`, clipped to what is
/// kept and to the past; the stage is the finest that reaches back to `from`; a window within one slot is
/// answered with that slot. A coarser stage is taken when this one would have too many points.
pub(super) fn choose(policy: &Policy, request: &SeriesRequest) -> Option<Choice> {
    let (now, retention) = (request.now, &policy.retention);
    let oldest = now - retention.longest().duration();
    let (from, until) = (request.window.from(), request.window.until());
    if from > now || until < oldest {
        return None;
    }
    let (from, until) = (from.max(oldest), until.min(now));
    let finest = retention.stage_holding(from, now)?;
    let slots = |stage: Stage| {
        let first = stage.slot(from)?.checked_add(1)?;
        let end = stage.slot(until)?.checked_add(1)?;
        Some(first..if first == end { end.checked_add(1)? } else { end })
    };
    let stages = retention.stages();
    let fits = |&stage: &usize| slots(stages[stage]).is_some_and(|slots| slots.len() <= request.max_points);
    let stage = (finest..stages.len()).find(fits).unwrap_or(stages.len() - 1);
    Some(Choice { stage, slots: slots(stages[stage])? })
}

#[cfg(test)]
mod tests {
    use metric::{Timestamp, Window};

    use super::*;

    const NOW: Timestamp = 1_700_000_030;

    fn choice(from: Timestamp, until: Timestamp, max_points: usize) -> Option<(usize, Timestamp, Timestamp)> {
        let policy = Policy { retention: "60*60s:48*3600s".parse().unwrap(), ..Policy::default() };
        let request =
            SeriesRequest { metric: metric::MetricId(0), window: Window::between(from, until), now: NOW, max_points };
        let choice = choose(&policy, &request)?;
        let stage = policy.retention.stages()[choice.stage];
        Some((choice.stage, stage.time(choice.slots.start), stage.time(choice.slots.end)))
    }

    #[test]
    fn the_window_is_open_at_from_and_closed_at_until() {
        let minute = NOW - NOW % 60;
        assert_eq!(choice(minute - 600, minute - 60, 1000), Some((0, minute - 540, minute)));
        assert_eq!(choice(minute - 601, minute - 61, 1000), Some((0, minute - 600, minute - 60)));
        assert_eq!(choice(minute - 60, minute - 30, 1000), Some((0, minute, minute + 60)), "one slot at least");
    }

    #[test]
    fn nothing_is_read_from_the_future_or_from_before_the_retention() {
        assert_eq!(choice(NOW + 1, NOW + 100, 1000), None);
        assert_eq!(choice(NOW - 40 * 86400, NOW - 3 * 86400, 1000), None);
        let minute = NOW - NOW % 60;
        assert_eq!(choice(minute - 60, NOW + 1000, 1000), Some((0, minute, minute + 60)));
    }

    #[test]
    fn too_many_points_make_a_coarser_stage_answer() {
        let hour = NOW - NOW % 3600;
        assert_eq!(choice(NOW - 3000, NOW, 10).unwrap().0, 1);
        assert_eq!(choice(NOW - 3000, NOW, 1000).unwrap().0, 0);
        assert_eq!(choice(NOW - 86400, NOW, 1), Some((1, hour - 82800, hour + 3600)), "the coarsest answers whatever");
    }
}
