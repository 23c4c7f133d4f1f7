//! Coarse slots from the finer slots under them.
//!
//! 1. [`Pending::of`] puts what waits in memory in order: by stage and slot, the last write of each.
//! 2. [`Derivation::plan`] finds the slots of every coarser stage that these points touch, and which
//!    stored slots must be known to make them anew ([`Derivation::needs`]).
//! 3. [`Derivation::derive`] takes the stored slots and gives the rows of every stage.
//!
//! Stage k is made from the partials (sum and count, extreme, latest) of stage k−1, so that a slot is
//! exact over stage-0 points and yet only the slots directly under it are read.

use std::ops::Range;

use metric::{Aggregation, Partial, Policy, Retention, Slot};

use crate::{Late, Open};

/// Runs closer than this are read and written as one: a few empty slots cost less than a row of their own.
const JOIN: u32 = 32;

/// What waits in memory for one metric: the points in order, and what is known of the store.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    // Sorted by stage, then slot; one entry a slot, the one written last.
    points: Vec<Late>,
    /// From this stage-0 slot on nothing is stored in any stage. Zero: nothing at all is stored.
    /// `Slot::MAX`: unknown, so the store is asked.
    unstored_from: Slot,
}

impl Pending {
    /// The points of one metric, the earlier accepted first where there is more than one [`Open`].
    pub fn of(opens: &[&Open], unstored_from: Slot) -> Pending {
        let mut points = Vec::with_capacity(opens.iter().map(|open| open.run().1.len() + open.late().len()).sum());
        let mut in_order = true;
        for open in opens {
            // Late points first: a slot of the run was written after a late point of the same slot.
            in_order &= open.late().is_empty() && points.is_empty();
            points.extend_from_slice(open.late());
            let (first_slot, run) = open.run();
            for (i, &value) in run.iter().enumerate() {
                if !value.is_nan() {
                    points.push(Late { slot: first_slot + i as u32, stage: 0, value });
                }
            }
        }
        if !in_order {
            // Stable, so that of equal slots the last written comes last.
            points.sort_by_key(|point| (point.stage, point.slot));
            points.reverse();
            points.dedup_by_key(|point| (point.stage, point.slot));
            points.reverse();
        }
        Pending { points, unstored_from }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The points of one stage, by slot.
    pub fn of_stage(&self, stage: usize) -> &[Late] {
        let start = self.points.partition_point(|point| usize::from(point.stage) < stage);
        let end = self.points.partition_point(|point| usize::from(point.stage) <= stage);
        &self.points[start..end]
    }

    /// The stage-0 slot from which nothing is stored once these points are.
    pub fn stored_until(&self, retention: &Retention) -> Slot {
        let finest = i64::from(retention.finest().resolution());
        let mut until = self.unstored_from;
        for (index, stage) in retention.stages().iter().enumerate() {
            if let Some(last) = self.of_stage(index).last() {
                let end = (stage.time(last.slot) + i64::from(stage.resolution())) / finest;
                until = until.max(u32::try_from(end).unwrap_or(Slot::MAX));
            }
        }
        until
    }
}

/// Stored slots that must be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Index of the stage.
    pub stage: usize,
    /// Which slots. Never empty.
    pub slots: Range<Slot>,
}

/// Consecutive slots of one stage, made from what waits and what is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// Index of the stage.
    pub stage: usize,
    /// Slot of `values[0]`.
    pub first_slot: Slot,
    /// Points of stage 0, partial values of a coarser stage; NaN where nothing is said.
    pub values: Vec<f64>,
    /// Partial counts beside the values; empty in stage 0.
    pub counts: Vec<u32>,
}

/// A dense stretch of one stage.
#[derive(Debug)]
struct Stretch {
    first_slot: Slot,
    cells: Vec<Partial>,
}

impl Stretch {
    fn get_mut(&mut self, slot: Slot) -> Option<&mut Partial> {
        self.cells.get_mut(slot.checked_sub(self.first_slot)? as usize)
    }
}

/// The work of making coarse slots, planned.
#[derive(Debug)]
pub struct Derivation<'a> {
    policy: &'a Policy,
    pending: &'a Pending,
    /// Of each stage, the slots that change, sorted. Stage 0 is in `pending`.
    touched: Vec<Vec<Slot>>,
    /// Of each stage, the stretches that must be known, sorted and apart.
    known: Vec<Vec<Range<Slot>>>,
    needs: Vec<Need>,
}

impl<'a> Derivation<'a> {
    /// Plans the stages from 0 to `last_stage`; a reader of stage 1 need not make stage 2.
    pub fn plan(policy: &'a Policy, pending: &'a Pending, last_stage: usize) -> Derivation<'a> {
        let stages = &policy.retention.stages()[..=last_stage];
        let mut touched: Vec<Vec<Slot>> = vec![Vec::new()];
        for k in 1..stages.len() {
            let ratio = stages[k].resolution() / stages[k - 1].resolution();
            let mut slots: Vec<Slot> = Vec::new();
            let mut touch = |slot: Slot| {
                if slots.last() != Some(&slot) {
                    slots.push(slot);
                }
            };
            if k == 1 {
                pending.of_stage(0).iter().for_each(|point| touch(point.slot / ratio));
            } else {
                touched[k - 1].iter().for_each(|slot| touch(slot / ratio));
            }
            let direct = pending.of_stage(k);
            if !direct.is_empty() {
                slots.extend(direct.iter().map(|point| point.slot));
                slots.sort_unstable();
                slots.dedup();
            }
            touched.push(slots);
        }

        let mut known = Vec::with_capacity(stages.len());
        for k in 0..stages.len() {
            let mut ranges: Vec<Range<Slot>> = touched[k].iter().map(|&slot| slot..slot + 1).collect();
            if let Some(coarser) = touched.get(k + 1) {
                let ratio = stages[k + 1].resolution() / stages[k].resolution();
                ranges.extend(coarser.iter().map(|&slot| slot * ratio..(slot + 1).saturating_mul(ratio)));
            }
            known.push(joined(ranges));
        }

        let mut needs = Vec::new();
        for (k, ranges) in known.iter().enumerate() {
            let unstored_from = unstored_from(stages[0].resolution(), stages[k].resolution(), pending.unstored_from);
            for range in ranges {
                let slots = range.start..range.end.min(unstored_from);
                if !slots.is_empty() {
                    needs.push(Need { stage: k, slots });
                }
            }
        }
        Derivation { policy, pending, touched, known, needs }
    }

    /// The stored slots that `derive` must be given, in this order.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Makes the rows. `stored` has an entry for each need: values and counts (counts empty in stage 0),
    /// both empty where nothing is stored.
    pub fn derive(self, stored: &[(&[f64], &[u32])]) -> Vec<Derived> {
        debug_assert_eq!(stored.len(), self.needs.len(), "one answer for each need");
        let stages = self.policy.retention.stages();
        let method = self.policy.aggregation;
        let mut made = Vec::new();
        runs_of_points(self.pending.of_stage(0), &mut made);

        let mut finer: Vec<Stretch> = Vec::new();
        for k in 0..self.touched.len() {
            let mut stretches = self.stretches(k, stored);
            if k == 0 {
                overlay(&mut stretches, self.pending.of_stage(0));
            } else {
                let ratio = stages[k].resolution() / stages[k - 1].resolution();
                let expected = stages[k].resolution() / stages[0].resolution();
                let fresh = self.fresh(k, ratio, expected, &finer, &mut stretches, method);
                runs_of_partials(k, &fresh, &mut made);
            }
            finer = stretches;
        }
        made
    }

    /// What is known of a stage: the stretches, filled from what is stored.
    fn stretches(&self, stage: usize, stored: &[(&[f64], &[u32])]) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = self.known[stage]
            .iter()
            .map(|range| Stretch { first_slot: range.start, cells: vec![Partial::NONE; range.len()] })
            .collect();
        let mut at = 0;
        for (need, (values, counts)) in self.needs.iter().zip(stored).filter(|(need, _)| need.stage == stage) {
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

    /// The touched slots of stage `k` made anew, also put into its stretches.
    fn fresh(
        &self,
        k: usize,
        ratio: u32,
        expected: u32,
        finer: &[Stretch],
        stretches: &mut [Stretch],
        method: Aggregation,
    ) -> Vec<(Slot, Partial)> {
        let mut fresh = Vec::with_capacity(self.touched[k].len());
        let mut direct = self.pending.of_stage(k).iter().peekable();
        let (mut at_finer, mut at) = (0, 0);
        for &slot in &self.touched[k] {
            let first_child = slot * ratio;
            while at_finer + 1 < finer.len() && finer[at_finer + 1].first_slot <= first_child {
                at_finer += 1;
            }
            while stretches[at].get_mut(slot).is_none() {
                at += 1;
            }
            let written = direct.next_if(|point| point.slot == slot).map(|point| method.whole(point.value, expected));
            let known = stretches[at].get_mut(slot).expect("a touched slot is in a known stretch");
            let from_children = || {
                let Some(stretch) = finer.get(at_finer) else { return Partial::NONE };
                let skip = (first_child - stretch.first_slot) as usize;
                let children = stretch.cells.iter().skip(skip).take(ratio as usize);
                children.fold(Partial::NONE, |all, &child| method.merge(all, child))
            };
            let partial = written.unwrap_or_else(from_children);
            // More is stored than the finer slots still tell: they have expired, or the slot was written
            // as a whole when it was already too old for them. What is stored knows better.
            if written.is_none() && known.count > partial.count {
                continue;
            }
            *known = partial;
            if partial.count > 0 {
                fresh.push((slot, partial));
            }
        }
        fresh
    }
}

/// Sorts ranges and joins those that touch or nearly do.
fn joined(mut ranges: Vec<Range<Slot>>) -> Vec<Range<Slot>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<Slot>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(JOIN) => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The slot of a coarser stage from which nothing is stored, when nothing is from `slot` of stage 0 on.
fn unstored_from(finest: u32, resolution: u32, slot: Slot) -> Slot {
    if slot == Slot::MAX {
        return Slot::MAX;
    }
    u32::try_from((u64::from(slot) * u64::from(finest)).div_ceil(u64::from(resolution))).unwrap_or(Slot::MAX)
}

fn overlay(stretches: &mut [Stretch], points: &[Late]) {
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

fn runs_of_points(points: &[Late], made: &mut Vec<Derived>) {
    let mut run: Option<Derived> = None;
    for point in points {
        match &mut run {
            Some(open) if point.slot - open.first_slot < open.values.len() as u32 + JOIN => {
                open.values.resize((point.slot - open.first_slot) as usize, f64::NAN);
                open.values.push(point.value);
            }
            _ => {
                let fresh = Derived { stage: 0, first_slot: point.slot, values: vec![point.value], counts: Vec::new() };
                made.extend(run.replace(fresh));
            }
        }
    }
    made.extend(run);
}

fn runs_of_partials(stage: usize, partials: &[(Slot, Partial)], made: &mut Vec<Derived>) {
    let mut run: Option<Derived> = None;
    for &(slot, partial) in partials {
        match &mut run {
            Some(open) if slot - open.first_slot < open.values.len() as u32 + JOIN => {
                let len = (slot - open.first_slot) as usize;
                open.values.resize(len, f64::NAN);
                open.counts.resize(len, 0);
                open.values.push(partial.value);
                open.counts.push(partial.count);
            }
            _ => {
                let (values, counts) = (vec![partial.value], vec![partial.count]);
                made.extend(run.replace(Derived { stage, first_slot: slot, values, counts }));
            }
        }
    }
    made.extend(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(retention: &str, aggregation: Aggregation) -> Policy {
        Policy { retention: retention.parse().unwrap(), aggregation, x_files_factor: 0.0 }
    }

    fn open(points: &[(Slot, f64)]) -> Open {
        let mut open = Open::default();
        for &(slot, value) in points {
            open.push(slot, value);
        }
        open
    }

    fn stage(derived: &[Derived], index: usize) -> Vec<(Slot, f64, u32)> {
        let of = derived.iter().filter(|run| run.stage == index);
        of.flat_map(|run| {
            let counts = |i: usize| run.counts.get(i).copied().unwrap_or(1);
            let cells = run.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
            cells.map(move |(i, &value)| (run.first_slot + i as u32, value, counts(i))).collect::<Vec<_>>()
        })
        .collect()
    }

    #[test]
    fn a_new_metric_needs_nothing_stored() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let open = open(&[(59, 1.0), (60, 2.0), (61, 3.0)]);
        let pending = Pending::of(&[&open], 0);
        let plan = Derivation::plan(&policy, &pending, 2);
        assert_eq!(plan.needs(), []);
        let made = plan.derive(&[]);
        assert_eq!(stage(&made, 0), [(59, 1.0, 1), (60, 2.0, 1), (61, 3.0, 1)]);
        assert_eq!(stage(&made, 1), [(0, 1.0, 1), (1, 5.0, 2)]);
        assert_eq!(stage(&made, 2), [(0, 6.0, 3)]);
        assert_eq!(pending.stored_until(&policy.retention), 62);
    }

    #[test]
    fn a_late_point_is_folded_with_what_is_stored() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let open = open(&[(61, 10.0)]);
        let pending = Pending::of(&[&open], 63);
        let plan = Derivation::plan(&policy, &pending, 1);
        assert_eq!(plan.needs(), [Need { stage: 0, slots: 60..63 }, Need { stage: 1, slots: 1..2 }]);
        let made = plan.derive(&[(&[2.0, 3.0, 4.0], &[]), (&[9.0], &[3])]);
        assert_eq!(stage(&made, 1), [(1, 16.0, 3)]);
    }

    #[test]
    fn a_slot_that_knows_more_than_its_children_is_kept() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let open = open(&[(61, 10.0)]);
        let pending = Pending::of(&[&open], Slot::MAX);
        let plan = Derivation::plan(&policy, &pending, 1);
        let made = plan.derive(&[(&[], &[]), (&[100.0], &[60])]);
        assert_eq!(stage(&made, 1), []);
    }

    #[test]
    fn a_point_too_old_for_stage_0_is_written_whole_and_reaches_the_coarser() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Average);
        let mut open = Open::default();
        open.push_coarse(1, 5, 7.0);
        let pending = Pending::of(&[&open], Slot::MAX);
        let plan = Derivation::plan(&policy, &pending, 2);
        assert_eq!(
            plan.needs(),
            [Need { stage: 0, slots: 300..360 }, Need { stage: 1, slots: 0..24 }, Need { stage: 2, slots: 0..1 }]
        );
        let made = plan.derive(&[(&[], &[]), (&[], &[]), (&[], &[])]);
        assert_eq!(stage(&made, 1), [(5, 420.0, 60)]);
        assert_eq!(stage(&made, 2), [(0, 420.0, 60)]);
    }

    #[test]
    fn the_last_write_of_a_slot_wins() {
        let earlier = open(&[(5, 1.0), (6, 1.0)]);
        let mut later = open(&[(100, 9.0), (101, 9.0), (102, 9.0), (103, 9.0), (104, 9.0)]);
        later.push(6, 2.0);
        later.push(6, 3.0);
        let pending = Pending::of(&[&earlier, &later], 0);
        let points: Vec<_> = pending.of_stage(0).iter().map(|p| (p.slot, p.value)).collect();
        assert_eq!(points[..3], [(5, 1.0), (6, 3.0), (100, 9.0)]);
        assert_eq!(points.len(), 7);
    }
}
