//! Coarse rows from the stored slots around the pending points.
//!
//! 1. Lay the points over the stored slots of stage 0.
//! 2. For each coarse stage in order, roll each slot that changes up from the stage below.

use std::iter::Peekable;

use metric::{Partial, Slot};

use crate::{
    Change, DerivedRow, Need, ReadPlan, StagePoint, counted_before,
    late::with_changes,
    rollup::{CoarseStage, PendingSlot, SlotCoverage, fold_full, rollup, with_points},
    rows,
};

/// A stage once it is derived.
#[derive(Debug, Default)]
pub(crate) struct DerivedStage {
    /// All known slots, stored or derived.
    stretches: Vec<Stretch>,
    /// The slots that have a new row, by slot.
    rows: Vec<(Slot, Partial)>,
    /// The slots that change, by slot.
    changes: Vec<Change>,
    /// The touched slots that are not made of their finer slots alone, sorted: their stored row stays, or has points besides.
    pub(crate) kept: Vec<Slot>,
    /// The kept slots whose finer slots are damaged, sorted.
    pub(crate) doubtful: Vec<Slot>,
}

/// The rows of a reader's derivation.
#[derive(Debug, Default)]
pub struct ReadRows {
    /// The rows of all planned stages.
    pub rows: Vec<DerivedRow>,
    /// Stage and slot where finer slots are damaged, so that the points in memory make no answer.
    pub doubtful: Vec<(usize, Slot)>,
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

    fn end(&self) -> Slot {
        self.first_slot.saturating_add(self.cells.len() as u32)
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
    pub fn derive(&self, stored: &[(&[f64], &[u32])]) -> ReadRows {
        let stages = self.derive_stages(stored);
        let of_stage = |(index, stage): (usize, &DerivedStage)| {
            stage.doubtful.iter().map(|&slot| (index, slot)).collect::<Vec<_>>()
        };
        ReadRows { rows: self.rows(&stages), doubtful: stages.iter().enumerate().flat_map(of_stage).collect() }
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
        finest.changes = overlay(&mut finest.stretches, self.points.of_stage(0));
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
        let mut derived = DerivedStage { rows: Vec::with_capacity(touched.len()), ..DerivedStage::default() };
        let complete_from = self.coverage.complete_from(index, retention);
        let mut direct = self.points.of_stage(index).iter().peekable();
        let (mut at_below, mut at, mut at_change) = (0, 0, 0);
        let (kept_since, finer) = (self.coverage.kept_since(index, retention), retention.stages()[index - 1]);
        let kept_from = finer
            .slot(kept_since.max(0))
            .map_or(Slot::MAX, |slot| if finer.time(slot) < kept_since { slot.saturating_add(1) } else { slot });
        for &slot in touched {
            let first_child = slot.saturating_mul(stage.children);
            while at_below + 1 < below.stretches.len() && below.stretches[at_below + 1].first_slot <= first_child {
                at_below += 1;
            }
            while stretches[at].get_mut(slot).is_none() {
                at += 1;
            }
            let known = stretches[at].get_mut(slot).expect("a touched slot is in a known stretch");
            // A slot with a point of its own has no known children, and needs none.
            let children = below.stretches.get(at_below).map_or(&[][..], |stretch| {
                let skip = first_child.checked_sub(stretch.first_slot);
                skip.and_then(|skip| stretch.cells.get(skip as usize..)).unwrap_or_default()
            });
            let children = &children[..children.len().min(stage.children as usize)];
            // A finer slot that has expired may have had its point, which a journal brings once more.
            let all_changes = changes_of(&stage, slot, &below.changes, &mut at_change);
            let changes = &all_changes[all_changes.partition_point(|change| change.slot < kept_from)..];
            let is_damaged = |damaged: &[Need]| {
                known.count == 0 && damaged.iter().any(|need| need.stage == index && need.slots.contains(&slot))
            };
            let is_outdated = self.is_outdated(index, slot);
            let is_unknown = is_outdated || is_damaged(&self.damaged);
            // Of a single writer, a slot has nothing besides finer slots that have all of their points.
            let is_full = || self.coverage.is_alone && fold_full(&stage, children.iter().copied()).1;
            let is_complete = complete_from <= retention.stages()[index].time(slot) || is_unknown && is_full();
            let unwritten = if is_complete { None } else { self.coverage.unwritten(&stage, slot, self.points) };
            let pending = PendingSlot { direct: point_of(&mut direct, slot), unwritten };
            // Of other writers' parts, which nothing else tells.
            let is_doubtful = is_damaged(&self.known_damage)
                || pending.direct.is_none()
                    && (self.has_damage(index - 1, first_child, children, below) || !is_complete && is_unknown);
            let row = if is_doubtful {
                // What is stored is right, unless it is outdated, and so are points that no row counts yet.
                let unwritten = unwritten.filter(|_| known.count > 0 && !is_outdated);
                unwritten.map(|points| with_points(stage.method, *known, points))
            } else {
                let coverage = match is_complete {
                    true => SlotCoverage::Complete,
                    false => SlotCoverage::expiring(*known, self.coverage.is_alone),
                };
                match (coverage, pending) {
                    (SlotCoverage::Expiring(_), PendingSlot { direct: None, unwritten: None })
                        if self.has_points_of_its_own(index, slot, *known, children, changes) =>
                    {
                        // Not made of its finer slots: a writer cannot go on from these.
                        derived.kept.push(slot);
                        if changes.iter().any(|change| self.is_outdated(index - 1, change.slot)) {
                            // What the row counts of a slot that changes is not known.
                            derived.doubtful.push(slot);
                            continue;
                        }
                        let last = children.iter().rposition(|child| 0 < child.count);
                        let latest = self.latest.get(&(index, slot)).copied().unwrap_or(i64::MIN);
                        let last = last.map(|place| first_child + place as u32);
                        let last = last.filter(|last| latest < finer.time(last.saturating_add(1)));
                        match with_changes(stage.method, *known, changes, last) {
                            Some(row) => Some(row),
                            None => continue,
                        }
                    }
                    _ => {
                        let row = rollup(&stage, children.iter().copied(), pending, coverage);
                        let is_kept = row.is_none() && unwritten.is_none() && self.coverage.is_alone;
                        if is_kept { all_of_finer(&stage, *known, children, all_changes) } else { row }
                    }
                }
            };
            match row {
                Some(row) => {
                    derived.changes.push(Change { slot, before: *known, after: row });
                    *known = row;
                    if row.count > 0 {
                        derived.rows.push((slot, row));
                    }
                }
                None => {
                    derived.kept.push(slot);
                    if is_doubtful {
                        derived.doubtful.push(slot);
                    }
                }
            }
        }
        DerivedStage { stretches, ..derived }
    }

    /// Whether a stored row counts points that its finer slots do not have, and did not have before they changed. Where all finer
    /// slots have points they are all that the slot has.
    fn has_points_of_its_own(
        &self,
        index: usize,
        slot: Slot,
        row: Partial,
        children: &[Partial],
        changes: &[Change],
    ) -> bool {
        let (stage, retention) = (CoarseStage::of(self.policy, index), &self.policy.retention);
        if self.coverage.rows_alone_until <= retention.stages()[index].time(slot) {
            // A row may be ahead of its finer slots where a disk or a node failed between the two.
            return false;
        }
        let (all, is_full) = fold_full(&stage, children.iter().copied());
        !is_full && !changes.is_empty() && counted_before(all, changes) < row.count
    }

    /// Whether one of these slots, from `first` on, could not be read, or depends on such a slot.
    fn has_damage(&self, stage: usize, first: Slot, cells: &[Partial], derived: &DerivedStage) -> bool {
        let end = first.saturating_add(cells.len() as u32);
        let is_in = |slot: &Slot| (first..end).contains(slot);
        let within = |need: &Need| need.slots.start.max(first)..need.slots.end.min(end);
        let is_changed = |slot| derived.changes.binary_search_by_key(&slot, |change| change.slot).is_ok();
        derived.doubtful.iter().any(is_in)
            || self.outdated.iter().any(|need| need.stage == stage && within(need).any(|slot| !is_changed(slot)))
            || self
                .damaged
                .iter()
                .any(|need| need.stage == stage && within(need).any(|slot| cells[(slot - first) as usize].count == 0))
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

/// What finer slots make, where a stored row counted no more than they did before they changed. A point for the whole of a finer
/// slot counts fewer than what it replaces, where points of a later policy were added to that.
fn all_of_finer(stage: &CoarseStage, row: Partial, children: &[Partial], changes: &[Change]) -> Option<Partial> {
    let (all, _) = fold_full(stage, children.iter().copied());
    (!changes.is_empty() && row.count <= counted_before(all, changes)).then_some(all)
}

/// The value of the next point, if it is of this slot.
fn point_of<'p>(points: &mut Peekable<impl Iterator<Item = &'p StagePoint>>, slot: Slot) -> Option<f64> {
    points.next_if(|point| point.slot == slot).map(|point| point.value)
}

/// The changes under a slot. `at` is where those of the slots before it end.
fn changes_of<'c>(stage: &CoarseStage, slot: Slot, all: &'c [Change], at: &mut usize) -> &'c [Change] {
    let (first, end) = (slot.saturating_mul(stage.children), slot.saturating_add(1).saturating_mul(stage.children));
    let rest = &all[*at..];
    let rest = &rest[rest.iter().take_while(|change| change.slot < first).count()..];
    let of_slot = rest.iter().take_while(|change| change.slot < end).count();
    *at = all.len() - rest.len() + of_slot;
    &rest[..of_slot]
}

/// Lays points over stored slots of stage 0. Returns the slots that change.
fn overlay(stretches: &mut [Stretch], points: &[StagePoint]) -> Vec<Change> {
    let (mut at, mut changes) = (0, Vec::with_capacity(points.len()));
    for point in points {
        // A point under a slot that has a point of its own is in no stretch.
        while stretches.get(at).is_some_and(|stretch| stretch.end() <= point.slot) {
            at += 1;
        }
        if let Some(cell) = stretches.get_mut(at).and_then(|stretch| stretch.get_mut(point.slot)) {
            let after = Partial::point(point.value);
            changes.push(Change { slot: point.slot, before: *cell, after });
            *cell = after;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use metric::{Aggregation, Policy, Timestamp};

    use super::*;
    use crate::{Coverage, Need, PendingPoints, SortedPoints, Stored};

    /// So late that all finer slots have expired.
    const EXPIRED: Timestamp = 1 << 40;

    fn coverage(all_writers: Stored, now: Timestamp) -> Coverage {
        Coverage {
            all_writers,
            this_writer: Stored::Unknown,
            now,
            policy_since: 0,
            is_alone: false,
            points_since: Timestamp::MAX,
            rows_alone_until: Timestamp::MIN,
        }
    }

    fn policy(retention: &str, aggregation: Aggregation) -> Policy {
        Policy { retention: retention.parse().unwrap(), aggregation, x_files_factor: 0.0, ..Policy::default() }
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
        let rows = plan.derive(&[]).rows;
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
        let rows = plan.derive(&[(&[2.0, 3.0, 4.0], &[]), (&[9.0], &[3])]).rows;
        assert_eq!(stage(&rows, 1), [(1, 16.0, 3)]);
    }

    #[test]
    fn a_point_under_a_slot_with_a_point_of_its_own_keeps_no_later_one_from_its_slot() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let mut points = pending(&[(61, 10.0), (3000, 5.0)]);
        points.push_coarse(1, 1, 7.0);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Nothing, 0), 1);
        let rows = plan.derive(&[]).rows;
        assert_eq!(stage(&rows, 1), [(1, 7.0, 60), (50, 5.0, 1)]);
    }

    #[test]
    fn a_row_that_counts_more_than_its_children_is_kept() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 1);
        let rows = plan.derive(&[(&[], &[]), (&[100.0], &[60])]).rows;
        assert_eq!(stage(&rows, 1), []);
    }

    #[test]
    fn a_point_for_a_whole_slot_that_counts_fewer_than_what_it_replaces_is_in_the_rows_above() {
        let policy = policy("60*1s:60*10s:60*60s", Aggregation::Max);
        let mut points = PendingPoints::default();
        points.push_coarse(1, 6, -64.0);
        let points = SortedPoints::of(&[&points]);
        let coverage = Coverage { is_alone: true, ..coverage(Stored::Unknown, EXPIRED) };
        let plan = ReadPlan::new(&policy, &points, coverage, 2);
        let ten = [(6, 84.0, 11), (7, 67.0, 10)];
        let rows = |minute: u32| {
            let stored: Vec<(Vec<f64>, Vec<u32>)> = plan
                .needs()
                .iter()
                .map(|need| match need.stage {
                    2 => (vec![84.0], vec![minute]),
                    _ => {
                        let cell =
                            |slot: Slot| ten.iter().find(|cell| cell.0 == slot).copied().unwrap_or((0, f64::NAN, 0));
                        need.slots.clone().map(|slot| (cell(slot).1, cell(slot).2)).unzip()
                    }
                })
                .collect();
            let stored: Vec<_> = stored.iter().map(|(values, counts)| (&values[..], &counts[..])).collect();
            stage(&plan.derive(&stored).rows, 2)
        };
        assert_eq!(rows(21), [(1, 67.0, 20)]);
        assert_eq!(rows(22), [], "it counts a point that has expired");
    }

    #[test]
    fn pending_points_are_added_to_rows_whose_children_have_expired() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(70, 10.0), (71, 20.0)]);
        let points = SortedPoints::of(&[&points]);
        let through = |last, horizon| Stored::Through { last, horizon };
        let added = (1, 55.0, 12);
        let rolled_up = (1, 30.0, 2);
        for (this_writer, hour) in [
            (through(69, None), added),
            (through(69, Some(120)), added),
            // This writer may have stored them.
            (through(69, Some(119)), rolled_up),
            (through(70, None), rolled_up),
            (Stored::Unknown, rolled_up),
        ] {
            let count = if hour == added { 10 } else { 1 };
            let coverage = Coverage { this_writer, ..coverage(Stored::Unknown, 4 * 3600) };
            let plan = ReadPlan::new(&policy, &points, coverage, 2);
            assert_eq!(plan.needs().len(), 3);
            let hours = [f64::NAN, 25.0];
            let rows = plan.derive(&[(&[], &[]), (&hours, &[0, count]), (&[25.0], &[count])]).rows;
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
            let rows = plan.derive(&[(&[1.0], &[]), (&[3.0], &[3])]).rows;
            assert_eq!(stage(&rows, 1).iter().map(|slot| slot.2).sum::<u32>(), count, "policy since {policy_since}");
        }
    }

    #[test]
    fn no_row_is_made_from_damaged_slots_and_those_above_stay() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(61, 10.0), (130, 1.0)]);
        let points = SortedPoints::of(&[&points]);
        let mut plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 2);
        let hours = |plan: &ReadPlan<'_>| plan.needs().iter().position(|need| need.stage == 1).unwrap();
        plan.note_damage(0, None);
        // Of the first hour, minute 62 is there; of the second one everything.
        let mut minutes = vec![f64::NAN; 120];
        minutes[2] = 2.0;
        (60..120).for_each(|minute| minutes[minute] = 1.0);
        let mut cells: Vec<(&[f64], &[u32])> = vec![(&[], &[]); plan.needs().len()];
        cells[0] = (&minutes, &[]);
        let (values, counts) = ([f64::NAN, 2.0, 60.0], [0, 1, 60]);
        cells[hours(&plan)] = (&values, &counts);
        let derived = plan.derive(&cells);
        assert_eq!(stage(&derived.rows, 1), [(2, 60.0, 60)]);
        assert_eq!(stage(&derived.rows, 2), []);
        assert_eq!(derived.doubtful, [(1, 1), (2, 0)]);
        // Minutes of the first hour alone may be damaged: the second one is made of those that are there.
        let mut plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 2);
        plan.note_damage(0, Some((&[], std::slice::from_ref(&(0..60)))));
        let mut half: Vec<f64> = minutes.clone();
        half[100..].fill(f64::NAN);
        cells[0] = (&half, &[]);
        cells[hours(&plan)] = (&values[..1], &counts[..1]);
        let derived = plan.derive(&cells);
        assert_eq!((stage(&derived.rows, 1), derived.doubtful), (vec![(2, 40.0, 40)], vec![(1, 1), (2, 0)]));
        cells[0] = (&minutes, &[]);
        // Points that no row counts yet are added to the row.
        let this_writer = Stored::Through { last: 60, horizon: None };
        let coverage = Coverage { this_writer, ..coverage(Stored::Unknown, EXPIRED) };
        let mut plan = ReadPlan::new(&policy, &points, coverage, 1);
        plan.note_damage(0, None);
        let derived = plan.derive(&[cells[0], (&values[1..], &counts[1..])]);
        assert_eq!(stage(&derived.rows, 1)[0], (1, 12.0, 2));
    }

    #[test]
    fn where_it_is_known_which_slots_are_damaged_the_absent_ones_are_only_absent() {
        let policy = policy("1440*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(61, 10.0), (130, 1.0)]);
        let points = SortedPoints::of(&[&points]);
        let derived = |places: std::ops::Range<u32>| {
            let mut plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, 3 * 3600), 1);
            assert_eq!(plan.needs()[0], Need { stage: 0, slots: 60..180 });
            plan.note_damage(0, Some((&[0..0, places], &[])));
            let mut cells: Vec<(&[f64], &[u32])> = vec![(&[], &[]); plan.needs().len()];
            let (hours, counts) = ([501.0, f64::NAN], [6, 0]);
            cells[1] = (&hours, &counts);
            let derived = plan.derive(&cells);
            (stage(&derived.rows, 1), derived.doubtful)
        };
        let all = vec![(1, 10.0, 1), (2, 1.0, 1)];
        assert_eq!(derived(0..0), (all.clone(), vec![]));
        assert_eq!(derived(4..6), (vec![(2, 1.0, 1)], vec![(1, 1)]));
        assert_eq!(derived(59..61), (vec![], vec![(1, 1), (1, 2)]));
        // The new point replaces the slot that cannot be read.
        assert_eq!(derived(1..2), (all, vec![]));
    }

    #[test]
    fn nothing_is_made_from_a_value_that_may_be_older_than_one_that_cannot_be_read() {
        let policy = policy("1440*60s:48*3600s:60*86400s", Aggregation::Sum);
        let points = pending(&[(61, 10.0), (130, 1.0)]);
        let points = SortedPoints::of(&[&points]);
        let derived = |places: std::ops::Range<u32>, of_hours: std::ops::Range<u32>| {
            let mut plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, 3 * 3600), 2);
            let hours = plan.needs().iter().position(|need| need.stage == 1).unwrap();
            assert_eq!((plan.needs()[0].slots.clone(), plan.needs()[hours].slots.clone()), (60..180, 0..24));
            plan.note_outdated(0, &[0..0, places]);
            plan.note_outdated(hours, &[0..0, of_hours]);
            let mut cells: Vec<(&[f64], &[u32])> = vec![(&[], &[]); plan.needs().len()];
            let minutes = [2.0; 120];
            cells[0] = (&minutes, &[]);
            let (stored, counts) = ([500.0; 24], [60; 24]);
            cells[hours] = (&stored, &counts);
            let derived = plan.derive(&cells);
            ([stage(&derived.rows, 1), stage(&derived.rows, 2)], derived.doubtful)
        };
        let (first, second) = ((1, 128.0, 60), (2, 119.0, 60));
        let day = vec![(0, 22.0 * 500.0 + 128.0 + 119.0, 24 * 60)];
        assert_eq!(derived(0..0, 0..0), ([vec![first, second], day.clone()], vec![]));
        assert_eq!(derived(4..6, 0..0), ([vec![second], vec![]], vec![(1, 1), (2, 0)]));
        assert_eq!(derived(59..61, 0..0).1, [(1, 1), (1, 2), (2, 0)]);
        // The new point replaces the value that may be older.
        assert_eq!(derived(1..2, 0..0), ([vec![first, second], day.clone()], vec![]));
        // So does an hour that is made of its minutes; another hour of the day is not.
        assert_eq!(derived(0..0, 1..3), ([vec![first, second], day], vec![]));
        assert_eq!(derived(0..0, 3..4), ([vec![first, second], vec![]], vec![(2, 0)]));
    }

    #[test]
    fn a_stored_row_that_may_be_older_than_one_that_cannot_be_read_gets_no_points() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(70, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        for (is_outdated, rows) in [(false, vec![(1, 35.0, 11)]), (true, vec![])] {
            let this_writer = Stored::Through { last: 69, horizon: None };
            let coverage = Coverage { this_writer, ..coverage(Stored::Unknown, EXPIRED) };
            let mut plan = ReadPlan::new(&policy, &points, coverage, 1);
            let hours = plan.needs().len() - 1;
            plan.note_damage(0, None);
            plan.note_outdated(hours, &[0..0, 0..u32::from(is_outdated)]);
            let mut cells: Vec<(&[f64], &[u32])> = vec![(&[], &[]); plan.needs().len()];
            cells[hours] = (&[25.0], &[10]);
            let derived = plan.derive(&cells);
            assert_eq!(stage(&derived.rows, 1), rows);
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_or_may_be_older_is_made_again_of_finer_slots_that_have_all_points() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        for is_outdated in [false, true] {
            for (absent, rows) in [(60, vec![(1, 69.0, 60)]), (7, vec![])] {
                let coverage = Coverage { is_alone: true, ..coverage(Stored::Unknown, EXPIRED) };
                let mut plan = ReadPlan::new(&policy, &points, coverage, 1);
                let mut minutes = [1.0; 61];
                minutes[absent] = f64::NAN;
                let of_hour: (&[f64], &[u32]) = if is_outdated { (&[100.0], &[70]) } else { (&[], &[]) };
                match is_outdated {
                    true => plan.note_outdated(1, &[0..0, 0..1]),
                    false => plan.note_damage(1, None),
                }
                let derived = plan.derive(&[(&minutes[..60], &[]), of_hour]);
                assert_eq!(stage(&derived.rows, 1), rows, "{is_outdated}");
            }
        }
    }

    #[test]
    fn a_point_that_replaces_one_that_may_be_older_is_not_taken_from_a_row_with_points_of_its_own() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(100, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        for (is_outdated, rows) in [(false, vec![(1, 108.0, 50)]), (true, vec![])] {
            let coverage = Coverage { is_alone: true, rows_alone_until: EXPIRED, ..coverage(Stored::Unknown, 8000) };
            let mut plan = ReadPlan::new(&policy, &points, coverage, 1);
            let mut minutes = [f64::NAN; 60];
            (minutes[40], minutes[41]) = (2.0, 1.0);
            plan.note_outdated(0, &[0..0, if is_outdated { 40..41 } else { 0..0 }]);
            let derived = plan.derive(&[(&minutes, &[]), (&[100.0], &[50])]);
            assert_eq!(stage(&derived.rows, 1), rows);
            assert_eq!(derived.doubtful.len(), usize::from(is_outdated));
        }
    }

    #[test]
    fn a_damaged_coarse_slot_stays_as_it_is_also_where_all_finer_slots_are_known() {
        let policy = policy("1440*60s:48*3600s:60*86400s", Aggregation::Sum);
        let mut points = pending(&[(61, 10.0), (130, 1.0)]);
        let derived = |points: &PendingPoints, places: std::ops::Range<u32>| {
            let points = SortedPoints::of(&[points]);
            let mut plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, 3 * 3600), 2);
            let hours = plan.needs().iter().position(|need| need.stage == 1).unwrap();
            assert_eq!(plan.needs()[hours].slots, 0..24);
            plan.note_damage(hours, Some((&[0..0, places], &[])));
            let derived = plan.derive(&vec![(&[][..], &[][..]); plan.needs().len()]);
            ([stage(&derived.rows, 1), stage(&derived.rows, 2)], derived.doubtful)
        };
        let day = vec![(0, 11.0, 2)];
        assert_eq!(derived(&points, 0..0), ([vec![(1, 10.0, 1), (2, 1.0, 1)], day], vec![]));
        // The day is made of the hour.
        assert_eq!(derived(&points, 1..2), ([vec![(2, 1.0, 1)], vec![]], vec![(1, 1), (2, 0)]));
        assert_eq!(derived(&points, 9..10).1, [(2, 0)]);
        // Nor does a point of the slot itself stand for what other writers have there.
        points.push_coarse(1, 5, 7.0);
        assert_eq!(derived(&points, 5..6).1, [(1, 5), (2, 0)]);
    }

    #[test]
    fn of_a_single_writer_a_row_that_counts_more_is_right_at_any_time() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let points = pending(&[(61, 10.0)]);
        let points = SortedPoints::of(&[&points]);
        for (is_alone, rows) in [(true, vec![]), (false, vec![(1, 11.0, 2)])] {
            let coverage = Coverage { is_alone, ..coverage(Stored::Unknown, 7200) };
            let plan = ReadPlan::new(&policy, &points, coverage, 1);
            assert_eq!(stage(&plan.derive(&[(&[1.0], &[]), (&[3.0], &[3])]).rows, 1), rows);
        }
    }

    #[test]
    fn a_point_too_old_for_stage_0_fills_its_coarse_slot_and_reaches_the_coarser_ones() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Average);
        let mut points = PendingPoints::default();
        points.push_coarse(1, 5, 7.0);
        let points = SortedPoints::of(&[&points]);
        let plan = ReadPlan::new(&policy, &points, coverage(Stored::Unknown, EXPIRED), 2);
        // What is under the slot does not matter any more.
        assert_eq!(plan.needs(), [Need { stage: 1, slots: 0..24 }, Need { stage: 2, slots: 0..1 }]);
        let rows = plan.derive(&[(&[], &[]), (&[], &[])]).rows;
        assert_eq!(stage(&rows, 1), [(5, 420.0, 60)]);
        assert_eq!(stage(&rows, 2), [(0, 420.0, 60)]);
    }
}
