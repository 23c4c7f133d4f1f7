//! Coarse rows from the stored slots around the pending points.
//!
//! 1. Lay the points over the stored slots of stage 0.
//! 2. For each coarse stage in order, roll each slot that changes up from the stage below.

use std::iter::Peekable;

use metric::{Partial, Slot};

use crate::{
    DerivedRow, ReadPlan, StagePoint,
    rollup::{CoarseStage, PendingSlot, SlotCoverage, rollup},
    rows,
};

/// A stage once it is derived.
#[derive(Debug, Default)]
pub(crate) struct DerivedStage {
    /// All known slots, stored or derived.
    stretches: Vec<Stretch>,
    /// The slots that have a new row, by slot.
    rows: Vec<(Slot, Partial)>,
    /// The touched slots whose stored row stays, sorted.
    pub(crate) kept: Vec<Slot>,
}

impl DerivedStage {
    /// What is known of a slot.
    pub(crate) fn get(&self, slot: Slot) -> Option<Partial> {
        self.stretches.iter().find_map(|stretch| stretch.get(slot))
    }

    /// Whether a slot after `slot` is known to have points.
    pub(crate) fn has_later(&self, slot: Slot) -> bool {
        self.stretches.iter().any(|stretch| stretch.has_later(slot))
    }
}

/// A dense stretch of one stage.
#[derive(Debug)]
struct Stretch {
    first_slot: Slot,
    cells: Vec<Partial>,
}

impl Stretch {
    fn get(&self, slot: Slot) -> Option<Partial> {
        self.cells.get(slot.checked_sub(self.first_slot)? as usize).copied()
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Partial> {
        self.cells.get_mut(slot.checked_sub(self.first_slot)? as usize)
    }

    fn has_later(&self, slot: Slot) -> bool {
        let Some(next) = slot.checked_add(1) else { return false };
        let skip = next.saturating_sub(self.first_slot) as usize;
        self.cells.iter().skip(skip).any(|cell| cell.count > 0)
    }
}

impl ReadPlan<'_> {
    /// The rows of all planned stages. `stored` has an entry for each need: values and counts (no counts in stage
    /// 0), both empty where nothing is stored.
    pub fn derive(&self, stored: &[(&[f64], &[u32])]) -> Vec<DerivedRow> {
        self.rows(&self.derive_stages(stored))
    }

    /// The rows of stages that this plan derived.
    pub(crate) fn rows(&self, stages: &[DerivedStage]) -> Vec<DerivedRow> {
        let mut rows = Vec::new();
        rows::push_points(self.points.of_stage(0), &mut rows);
        for (index, stage) in stages.iter().enumerate() {
            rows::push_partials(index, &stage.rows, &mut rows);
        }
        rows
    }

    /// Derives all planned stages. `stored` as for [`ReadPlan::derive`].
    pub(crate) fn derive_stages(&self, stored: &[(&[f64], &[u32])]) -> Vec<DerivedStage> {
        debug_assert_eq!(stored.len(), self.needs().len(), "one answer for each need");
        let mut finest = DerivedStage { stretches: self.stretches(0, stored), ..DerivedStage::default() };
        overlay(&mut finest.stretches, self.points.of_stage(0));
        let mut stages = Vec::with_capacity(self.stages.len());
        stages.push(finest);
        for index in 1..self.stages.len() {
            stages.push(self.derive_stage(index, &stages[index - 1], stored));
        }
        stages
    }

    fn derive_stage(&self, index: usize, below: &DerivedStage, stored: &[(&[f64], &[u32])]) -> DerivedStage {
        let (stage, retention) = (CoarseStage::of(self.policy, index), &self.policy.retention);
        let touched = &self.stages[index].touched;
        let mut stretches = self.stretches(index, stored);
        let (mut rows, mut kept) = (Vec::with_capacity(touched.len()), Vec::new());
        let complete_from = self.coverage.complete_from(index, retention);
        let mut direct = self.points.of_stage(index).iter().peekable();
        let (mut at_below, mut at) = (0, 0);
        for &slot in touched {
            let first_child = slot * stage.children;
            while at_below + 1 < below.stretches.len() && below.stretches[at_below + 1].first_slot <= first_child {
                at_below += 1;
            }
            while stretches[at].get_mut(slot).is_none() {
                at += 1;
            }
            let known = stretches[at].get_mut(slot).expect("a touched slot is in a known stretch");
            let children = below.stretches.get(at_below).map_or(&[][..], |stretch| {
                let skip = (first_child - stretch.first_slot) as usize;
                stretch.cells.get(skip..).unwrap_or_default()
            });
            let children = children.iter().take(stage.children as usize).copied();
            let (pending, coverage) = if complete_from <= retention.stages()[index].time(slot) {
                (PendingSlot { direct: point_of(&mut direct, slot), unwritten: None }, SlotCoverage::Complete)
            } else {
                let unwritten = self.coverage.unwritten(&stage, slot, self.points);
                (PendingSlot { direct: point_of(&mut direct, slot), unwritten }, SlotCoverage::Expiring(*known))
            };
            match rollup(&stage, children, pending, coverage) {
                Some(row) => {
                    *known = row;
                    if row.count > 0 {
                        rows.push((slot, row));
                    }
                }
                None => kept.push(slot),
            }
        }
        DerivedStage { stretches, rows, kept }
    }

    /// The known stretches of a stage, filled with the stored slots.
    fn stretches(&self, stage: usize, stored: &[(&[f64], &[u32])]) -> Vec<Stretch> {
        let empty = |range: &std::ops::Range<Slot>| {
            let cells = vec![Partial::NONE; range.len()];
            Stretch { first_slot: range.start, cells }
        };
        let mut stretches: Vec<Stretch> = self.stages[stage].known.iter().map(empty).collect();
        let mut at = 0;
        for (need, (values, counts)) in self.needs().iter().zip(stored).filter(|(need, _)| need.stage == stage) {
            while stretches[at].first_slot != need.slots.start {
                at += 1;
            }
            for (i, (cell, &value)) in stretches[at].cells.iter_mut().zip(*values).enumerate() {
                if !value.is_nan() {
                    *cell = Partial { value, count: counts.get(i).copied().unwrap_or(1) };
                }
            }
        }
        stretches
    }
}

/// The value of the next point, if it is of this slot.
fn point_of<'p>(points: &mut Peekable<impl Iterator<Item = &'p StagePoint>>, slot: Slot) -> Option<f64> {
    points.next_if(|point| point.slot == slot).map(|point| point.value)
}

fn overlay(stretches: &mut [Stretch], points: &[StagePoint]) {
    let mut at = 0;
    for point in points {
        while at < stretches.len() && stretches[at].get_mut(point.slot).is_none() {
            at += 1;
        }
        if let Some(cell) = stretches.get_mut(at).and_then(|stretch| stretch.get_mut(point.slot)) {
            *cell = Partial::point(point.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use metric::{Aggregation, Policy, Timestamp};

    use super::*;
    use crate::{Coverage, Need, PendingPoints, SortedPoints, Stored};

    /// So late that all finer slots have expired.
    const EXPIRED: Timestamp = 1 << 40;

    fn coverage(all_writers: Stored, now: Timestamp) -> Coverage {
        Coverage { all_writers, this_writer: Stored::Unknown, now, policy_since: 0 }
    }

    fn policy(retention: &str, aggregation: Aggregation) -> Policy {
        Policy { retention: retention.parse().unwrap(), aggregation, x_files_factor: 0.0 }
    }

    fn pending(points: &[(Slot, f64)]) -> PendingPoints {
        let mut pending = PendingPoints::default();
        for &(slot, value) in points {
            pending.push(slot, value);
        }
        pending
    }

    fn stage(rows: &[DerivedRow], index: usize) -> Vec<(Slot, f64, u32)> {
        let of_stage = rows.iter().filter(|row| row.stage == index);
        of_stage
            .flat_map(|row| {
                let counts = |i: usize| row.counts.get(i).copied().unwrap_or(1);
                let cells = row.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
                cells.map(move |(i, &value)| (row.first_slot + i as u32, value, counts(i))).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn a_new_metric_needs_nothing_stored() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(59, 1.0), (60, 2.0), (61, 3.0)]);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Nothing, EXPIRED), 2);
        assert_eq!(plan.needs(), []);
        let rows = plan.derive(&[]);
        assert_eq!(stage(&rows, 0), [(59, 1.0, 1), (60, 2.0, 1), (61, 3.0, 1)]);
        assert_eq!(stage(&rows, 1), [(0, 1.0, 1), (1, 5.0, 2)]);
        assert_eq!(stage(&rows, 2), [(0, 6.0, 3)]);
    }

    #[test]
    fn a_late_point_is_folded_with_the_stored_ones() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        let stored = Stored::Through { last: 62, horizon: None };
        let plan = ReadPlan::new(&policy, &points, coverage(stored, EXPIRED), 1);
        assert_eq!(plan.needs(), [Need { stage: 0, slots: 60..63 }, Need { stage: 1, slots: 1..2 }]);
        let rows = plan.derive(&[(&[2.0, 3.0, 4.0], &[]), (&[9.0], &[3])]);
        assert_eq!(stage(&rows, 1), [(1, 16.0, 3)]);
    }

    #[test]
    fn a_row_that_counts_more_than_its_children_is_kept() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 1);
        let rows = plan.derive(&[(&[], &[]), (&[100.0], &[60])]);
        assert_eq!(stage(&rows, 1), []);
    }

    #[test]
    fn pending_points_are_added_to_rows_whose_children_have_expired() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(70, 10.0), (71, 20.0)]);
        let points = SortedPoints::of(&[&points]);
        let through = |last| Stored::Through { last, horizon: Some(0) };
        let added = (1, 55.0, 12);
        let rolled_up = (1, 30.0, 2);
        for (this_writer, hour) in [(through(69), added), (through(70), rolled_up), (Stored::Unknown, rolled_up)] {
            let count = if hour == added { 10 } else { 1 };
            let coverage = Coverage { this_writer, ..coverage(Stored::Unknown, 4 * 3600) };
            let plan = ReadPlan::new(&policy, &points, coverage, 2);
            assert_eq!(plan.needs().len(), 3);
            let hours = [f64::NAN, 25.0];
            let rows = plan.derive(&[(&[], &[]), (&hours, &[0, count]), (&[25.0], &[count])]);
            assert_eq!(stage(&rows, 1), [hour]);
            assert_eq!(stage(&rows, 2), [(0, hour.1, hour.2)], "the hours of the day are all there");
        }
    }

    #[test]
    fn a_slot_that_writers_counted_twice_is_derived_again_until_its_children_expire() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        for (policy_since, count) in [(0, 2), (3601, 0)] {
            let coverage = Coverage { policy_since, ..coverage(Stored::Unknown, 7200) };
            let plan = ReadPlan::new(&policy, &points, coverage, 1);
            let rows = plan.derive(&[(&[1.0], &[]), (&[3.0], &[3])]);
            assert_eq!(stage(&rows, 1).iter().map(|slot| slot.2).sum::<u32>(), count, "policy since {policy_since}");
        }
    }

    #[test]
    fn a_point_too_old_for_stage_0_fills_its_coarse_slot_and_reaches_the_coarser_ones() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Average);
        let mut points = PendingPoints::default();
        points.push_coarse(1, 5, 7.0);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 2);
        assert_eq!(
            plan.needs(),
            [Need { stage: 0, slots: 300..360 }, Need { stage: 1, slots: 0..24 }, Need { stage: 2, slots: 0..1 }]
        );
        let rows = plan.derive(&[(&[], &[]), (&[], &[]), (&[], &[])]);
        assert_eq!(stage(&rows, 1), [(5, 420.0, 60)]);
        assert_eq!(stage(&rows, 2), [(0, 420.0, 60)]);
    }
}
