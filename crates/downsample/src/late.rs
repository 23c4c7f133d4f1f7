//! A coarse row that counts points which its finer slots do not have, once some of these finer slots change.
//!
//! The finer slots of its other points have expired, or never were: the points came for the whole slot, or under an earlier policy
//! whose coarser slots are all that is left of them. They are known as the row alone, so what changes is added to it:
//!
//! 1. A finer slot that had no point adds one. Whether the row counts a point of that time is not known.
//! 2. A finer slot that had a point is replaced: its old value leaves the sums. From an extreme it cannot be taken.
//! 3. The latest value is that of the last finer slot, if this is the one that changes.

use metric::{Aggregation, Partial, Slot};

/// A finer slot that changes.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Of the finer stage.
    pub slot: Slot,
    /// What is stored; [`Partial::NONE`] where nothing is.
    pub before: Partial,
    /// What it becomes.
    pub after: Partial,
}

impl Change {
    /// Whether a point is the same as before: it came again, or its row could not be written when it was stored.
    fn is_none(&self) -> bool {
        self.before.count == self.after.count && self.before.value.to_bits() == self.after.value.to_bits()
    }
}

/// What finer slots counted that count `all` after the changes.
pub fn counted_before(all: Partial, changes: &[Change]) -> u32 {
    let sum = |count: fn(&Change) -> u32| changes.iter().map(|change| u64::from(count(change))).sum::<u64>();
    let before = (u64::from(all.count) + sum(|change| change.before.count)).saturating_sub(sum(|of| of.after.count));
    u32::try_from(before).unwrap_or(u32::MAX)
}

/// The row after changes of its finer slots, in the order of time; `None` where it stays. `last` is the last finer slot that has
/// points, after the changes.
pub fn with_changes(method: Aggregation, row: Partial, changes: &[Change], last: Option<Slot>) -> Option<Partial> {
    let mut all = row;
    let mut is_any = false;
    for change in changes.iter().filter(|change| !change.is_none()) {
        let (before, after) = (change.before, change.after);
        let old = if 0 < before.count { before.value } else { 0.0 };
        let value = match method {
            Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero => all.value + (after.value - old),
            Aggregation::Last if last == Some(change.slot) => after.value,
            Aggregation::Last => all.value,
            Aggregation::Max | Aggregation::Min | Aggregation::AbsMax | Aggregation::AbsMin => {
                method.merge(all, after).value
            }
        };
        let count = (u64::from(all.count) + u64::from(after.count)).saturating_sub(u64::from(before.count)).max(1);
        // Infinite values have no difference.
        let value = if value.is_nan() { all.value } else { value };
        all = Partial { value, count: u32::try_from(count).unwrap_or(u32::MAX) };
        is_any = true;
    }
    is_any.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(slot: Slot, before: Option<f64>, after: f64) -> Change {
        Change { slot, before: before.map_or(Partial::NONE, Partial::point), after: Partial::point(after) }
    }

    #[test]
    fn a_late_point_is_added_to_points_that_only_the_row_knows() {
        let row = Partial { value: 12.0, count: 3 };
        for (method, late, value) in [
            (Aggregation::Sum, -2.0, 10.0),
            (Aggregation::Average, -2.0, 10.0),
            (Aggregation::AvgZero, -2.0, 10.0),
            (Aggregation::Max, 13.0, 13.0),
            (Aggregation::Max, -2.0, 12.0),
            (Aggregation::Min, -2.0, -2.0),
            (Aggregation::AbsMax, -13.0, -13.0),
            (Aggregation::AbsMin, -2.0, -2.0),
            (Aggregation::Last, -2.0, -2.0),
        ] {
            let all = with_changes(method, row, &[change(7, None, late)], Some(7)).unwrap();
            assert_eq!(all, Partial { value, count: 4 }, "{method}");
        }
    }

    #[test]
    fn a_point_that_replaces_one_of_a_finer_slot_counts_once() {
        let row = Partial { value: 12.0, count: 3 };
        let all = |method| with_changes(method, row, &[change(7, Some(5.0), 6.0)], Some(8)).unwrap();
        assert_eq!(all(Aggregation::Sum), Partial { value: 13.0, count: 3 });
        assert_eq!(all(Aggregation::Max), Partial { value: 12.0, count: 3 });
        assert_eq!(all(Aggregation::Last), Partial { value: 12.0, count: 3 }, "a later slot has a point");
        assert_eq!(with_changes(Aggregation::Sum, row, &[change(7, Some(5.0), 5.0)], Some(7)), None, "it came again");
    }

    #[test]
    fn an_infinite_value_that_is_replaced_makes_no_row_vanish() {
        let row = Partial { value: f64::INFINITY, count: 3 };
        let all = with_changes(Aggregation::Sum, row, &[change(7, Some(f64::INFINITY), 6.0)], None).unwrap();
        assert_eq!(all, row);
    }

    #[test]
    fn what_finer_slots_counted_before_follows_from_their_changes() {
        let changes = [change(7, None, 6.0), change(8, Some(1.0), 6.0)];
        assert_eq!(counted_before(Partial { value: 0.0, count: 5 }, &changes), 4);
    }
}
