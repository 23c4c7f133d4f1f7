//! The row of one coarse slot, from the slots of the stage below, its *children*.
//!
//! Both ways to a coarse row call [`rollup`], so that both give the same bits.

use std::ops::Range;

use metric::{Aggregation, Partial, Policy, SATURATED_COUNT, Slot};

/// A stage after the first, and how its slots divide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoarseStage {
    pub(crate) method: Aggregation,
    /// Children in a slot.
    pub(crate) children: u32,
    /// Stage-0 slots in a slot.
    pub(crate) points: u32,
}

impl CoarseStage {
    /// The stage with this index, from 1.
    pub(crate) fn of(policy: &Policy, index: usize) -> CoarseStage {
        let stages = policy.retention.stages();
        let resolution = stages[index].resolution();
        CoarseStage {
            method: policy.aggregation,
            children: resolution / stages[index - 1].resolution(),
            points: resolution / stages[0].resolution(),
        }
    }

    /// The stage-0 slots in a slot, where a [`Slot`] can number them.
    pub(crate) fn points_of(&self, slot: Slot) -> Option<Range<Slot>> {
        Some(slot.checked_mul(self.points)?..slot.saturating_add(1).saturating_mul(self.points))
    }
}

/// Pending points of a coarse slot, other than through its children.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PendingSlot {
    /// A point that was too old for the stages below.
    pub(crate) direct: Option<f64>,
    /// The fold of the slot's stage-0 points, if no stored row counts any of them.
    pub(crate) unwritten: Option<Partial>,
}

/// How much of a coarse slot its children show.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SlotCoverage {
    /// Everything after this fold of earlier children.
    After(Partial),
    /// Everything.
    Complete,
    /// Some children may have expired; this is the stored row.
    Expiring(Partial),
    /// The same, where the count of the stored row stands for any larger one, as those of its children may.
    ExpiringSaturated(Partial),
}

impl SlotCoverage {
    /// Some children may have expired. `is_alone` says that the tables keep counts of any size.
    pub(crate) fn expiring(row: Partial, is_alone: bool) -> SlotCoverage {
        match row.count {
            SATURATED_COUNT if !is_alone => SlotCoverage::ExpiringSaturated(row),
            _ => SlotCoverage::Expiring(row),
        }
    }
}

/// The row of one coarse slot; `None` leaves the stored row as it is. `children` are in the order of time.
#[inline]
pub(crate) fn rollup<I: Iterator<Item = Partial>>(
    stage: &CoarseStage,
    children: I,
    pending: PendingSlot,
    coverage: SlotCoverage,
) -> Option<Partial> {
    if let Some(value) = pending.direct {
        return Some(stage.method.whole(value, stage.points));
    }
    let fold = |earlier, children: I| children.fold(earlier, |all, child| stage.method.merge(all, child));
    match coverage {
        SlotCoverage::After(earlier) => Some(fold(earlier, children)),
        SlotCoverage::Complete => Some(fold(Partial::NONE, children)),
        SlotCoverage::Expiring(row) => match pending.unwritten {
            // The row and the points have no slot in common: no child is needed to tell them apart. Where all children
            // are there, their fold has the bits that a flush stores.
            Some(points) => {
                let all = fold(Partial::NONE, children);
                let is_all = row.count.saturating_add(points.count) <= all.count;
                Some(if is_all { all } else { with_points(stage.method, row, points) })
            }
            // A row that counts more than its children has more points: the children have expired, or a point was
            // written to the slot directly. (In a complete slot, several writers counted one child.)
            None => {
                let (all, is_full) = fold_full(stage, children);
                // A row to which late points were added may count more than its slot has.
                (row.count <= all.count || is_full).then_some(all)
            }
        },
        SlotCoverage::ExpiringSaturated(row) => rollup_saturated(stage, children, pending.unwritten, row),
    }
}

/// As [`rollup`], where it is not known what the stored row counts: only where all children are full, none has expired.
fn rollup_saturated(
    stage: &CoarseStage,
    children: impl Iterator<Item = Partial>,
    unwritten: Option<Partial>,
    row: Partial,
) -> Option<Partial> {
    let (all, is_full) = fold_full(stage, children);
    if is_full { Some(all) } else { unwritten.map(|points| with_points(stage.method, row, points)) }
}

/// The fold of children, and whether all of them have all their points.
pub(crate) fn fold_full(stage: &CoarseStage, children: impl Iterator<Item = Partial>) -> (Partial, bool) {
    let most_of_child = (stage.points / stage.children).min(SATURATED_COUNT);
    let mut counted = 0;
    let all = children.fold(Partial::NONE, |all, child| {
        counted += u64::from(child.count.min(most_of_child));
        stage.method.merge(all, child)
    });
    (all, counted == u64::from(most_of_child) * u64::from(stage.children))
}

/// A stored row with later points that it does not count. A count that stands for more than itself goes on doing so, and a
/// mean stays the same mean.
pub(crate) fn with_points(method: Aggregation, row: Partial, points: Partial) -> Partial {
    let all = method.merge(row, points);
    if row.count != SATURATED_COUNT {
        return all;
    }
    let is_mean = method == Aggregation::Average;
    let value = if is_mean { all.value / f64::from(all.count) * f64::from(SATURATED_COUNT) } else { all.value };
    Partial { value, count: SATURATED_COUNT }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: CoarseStage = CoarseStage { method: Aggregation::Sum, children: 3, points: 6 };

    fn partial(value: f64, count: u32) -> Partial {
        Partial { value, count }
    }

    fn of(children: &[Partial], pending: PendingSlot, coverage: SlotCoverage) -> Option<Partial> {
        rollup(&STAGE, children.iter().copied(), pending, coverage)
    }

    #[test]
    fn children_continue_the_fold_of_earlier_ones() {
        let (a, b, c) = (partial(0.1, 1), partial(0.2, 1), partial(0.3, 2));
        let all = of(&[a, b, c], PendingSlot::default(), SlotCoverage::Complete);
        let earlier = of(&[a, b], PendingSlot::default(), SlotCoverage::Complete).unwrap();
        assert_eq!(of(&[c], PendingSlot::default(), SlotCoverage::After(earlier)), all);
    }

    #[test]
    fn a_row_that_counts_more_than_its_children_stays_unless_all_children_are_there() {
        let (children, row) = ([partial(1.0, 1)], partial(9.0, 3));
        assert_eq!(of(&children, PendingSlot::default(), SlotCoverage::Expiring(row)), None);
        assert_eq!(of(&children, PendingSlot::default(), SlotCoverage::Complete), Some(children[0]));
        let pending = PendingSlot { unwritten: Some(children[0]), ..PendingSlot::default() };
        assert_eq!(of(&children, pending, SlotCoverage::Expiring(row)), Some(partial(10.0, 4)));
    }

    #[test]
    fn a_saturated_row_stays_unless_all_children_are_full() {
        let stage = CoarseStage { method: Aggregation::Sum, children: 2, points: 86_400 };
        let row = partial(50_000.0, SATURATED_COUNT);
        let of = |children: [Partial; 2], pending| {
            rollup(&stage, children.into_iter(), pending, SlotCoverage::expiring(row, false))
        };
        let full = partial(43_200.0, 43_200);
        let saturated = partial(43_200.0, SATURATED_COUNT);
        let rest = partial(5.0, 5);
        assert_eq!(of([full, rest], PendingSlot::default()), None, "of 50,000 points 6,795 have expired");
        assert_eq!(of([full, full], PendingSlot::default()), Some(partial(86_400.0, 86_400)));
        assert_eq!(of([saturated, full], PendingSlot::default()).map(|all| all.value), Some(86_400.0));
        let pending = PendingSlot { unwritten: Some(rest), ..PendingSlot::default() };
        assert_eq!(of([full, rest], pending), Some(partial(50_005.0, SATURATED_COUNT)));
        // Tables that keep counts of any size have counted so many.
        let exact = rollup(&stage, [full, rest].into_iter(), PendingSlot::default(), SlotCoverage::expiring(row, true));
        assert_eq!(exact, Some(partial(43_205.0, 43_205)));
    }

    #[test]
    fn points_added_to_a_saturated_row_leave_it_complete() {
        let (row, points) = (partial(2.0 * f64::from(SATURATED_COUNT), SATURATED_COUNT), partial(20.0, 10));
        for (method, shown) in [(Aggregation::Average, 2.0), (Aggregation::Sum, 65_554.0), (Aggregation::Last, 20.0)] {
            let all = with_points(method, row, points);
            assert_eq!(method.finish(all, 86_400, 0.9), shown, "{method}");
        }
        assert_eq!(with_points(Aggregation::Sum, partial(1.0, 9), partial(2.0, 1)), partial(3.0, 10));
    }

    #[test]
    fn a_point_of_the_slot_itself_stands_for_all_of_it() {
        let pending = PendingSlot { direct: Some(7.0), ..PendingSlot::default() };
        assert_eq!(of(&[partial(1.0, 1)], pending, SlotCoverage::Complete), Some(partial(7.0, 6)));
    }
}
