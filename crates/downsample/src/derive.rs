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

use metric::{Aggregation, Partial, Policy, ROW_POINTS, Retention, Slot, Timestamp};

use crate::{Late, Open, Own};

/// Runs closer than this are read and written as one: a few empty slots cost less than a row of their own.
const JOIN: u32 = 32;

/// What waits in memory for one metric: the points in order, and what is known of the store.
#[derive(Debug, Clone)]
pub struct Pending {
    // Sorted by stage, then slot; one entry a slot, the one written last.
    points: Vec<Late>,
    /// From this stage-0 slot on nothing is stored in any stage. Zero: nothing at all is stored.
    /// `Slot::MAX`: unknown, so the store is asked.
    unstored_from: Slot,
    /// The stage-0 points from this slot on are in no stored row; `Slot::MAX` where that cannot be told.
    unwritten_from: Slot,
}

/// Nothing waits.
impl Default for Pending {
    fn default() -> Pending {
        Pending { points: Vec::new(), unstored_from: Slot::MAX, unwritten_from: Slot::MAX }
    }
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
        Pending { points, unstored_from, unwritten_from: Slot::MAX }
    }

    /// Says that this writer has stored nothing from a stage-0 slot on, so that points from there on may be added to
    /// what rows say whose finer slots are not there any more. For readers alone: a write that is tried again may
    /// find its own first try.
    #[must_use]
    pub fn unwritten_from(self, slot: Slot) -> Pending {
        Pending { unwritten_from: slot, ..self }
    }

    /// The fold of the stage-0 points in these slots, if all of them are in no stored row.
    fn unwritten(&self, slots: Range<Slot>, method: Aggregation) -> Option<Partial> {
        let points = self.of_stage(0);
        let start = points.partition_point(|point| point.slot < slots.start);
        let end = points.partition_point(|point| point.slot < slots.end);
        let points =
            points.get(start..end).filter(|points| !points.is_empty() && self.unwritten_from <= points[0].slot)?;
        Some(points.iter().fold(Partial::NONE, |all, point| method.merge(all, Partial::point(point.value))))
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

    /// The points, if all of them are of stage 0.
    pub(crate) fn only_stage_0(&self) -> Option<&[Late]> {
        self.points.last().is_none_or(|last| last.stage == 0).then_some(&self.points)
    }

    /// The stage-0 slot after the last of these points, whatever stage they are of.
    fn end(&self, retention: &Retention) -> Slot {
        let finest = i64::from(retention.finest().resolution());
        let mut until = 0;
        for (index, stage) in retention.stages().iter().enumerate() {
            if let Some(last) = self.of_stage(index).last() {
                let end = (stage.time(last.slot) + i64::from(stage.resolution())) / finest;
                until = until.max(u32::try_from(end).unwrap_or(Slot::MAX));
            }
        }
        until
    }
}

/// When it is, and since when points come under the policy: how far back a coarse slot's finer slots are
/// all still there, so that they tell everything of it.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Unix seconds.
    pub now: Timestamp,
    /// Unix seconds; of a policy that does not hold any more, `Timestamp::MAX`.
    pub since: Timestamp,
}

/// Rows, and what is stored once they are.
#[derive(Debug)]
pub struct Made {
    /// The rows of every stage.
    pub rows: Vec<Derived>,
    /// What is to be remembered; `None` where points that are stored may come after these, or where a slot
    /// was not made of its finer slots.
    pub remembered: Option<Remembered>,
}

/// What this writer has stored once its rows are.
#[derive(Debug)]
pub struct Remembered {
    own: Own,
    /// Of each coarse stage, what the open slot comes to in all, and whether a row says it anew.
    open: Vec<(Partial, bool)>,
    method: Aggregation,
}

impl Remembered {
    /// What is stored if the rows were written as they were made.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// The open slots that have a row: stage and slot.
    pub fn open_slots<'a>(&'a self, retention: &'a Retention) -> impl Iterator<Item = (usize, Slot)> + 'a {
        let finest = retention.finest().resolution();
        let last = self.own.until().saturating_sub(1);
        let coarse = self.open.iter().zip(retention.stages().iter().skip(1)).enumerate();
        let of_rows = coarse.filter(|(_, ((_, has_row), _))| *has_row);
        of_rows.map(move |(index, (_, stage))| (index + 1, last / (stage.resolution() / finest)))
    }

    /// What is stored when the rows of the open slots, in the order of [`Remembered::open_slots`], say this.
    pub fn written(self, rows: impl Iterator<Item = Partial>) -> Option<Own> {
        let mut said = self.open;
        let mut is_whole = true;
        for (row, is) in said.iter_mut().filter(|(_, has_row)| *has_row).map(|(row, _)| row).zip(rows) {
            is_whole &= row.count == is.count && row.value.to_bits() == is.value.to_bits();
            *row = is;
        }
        if is_whole {
            return Some(self.own);
        }
        let rows: Vec<Partial> = said.into_iter().map(|(row, _)| row).collect();
        self.own.with_rows(&rows, self.method)
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
    fn get(&self, slot: Slot) -> Option<Partial> {
        self.cells.get(slot.checked_sub(self.first_slot)? as usize).copied()
    }

    /// Whether something is known after `slot`.
    fn has_later(&self, slot: Slot) -> bool {
        let skip = (slot + 1).saturating_sub(self.first_slot) as usize;
        self.cells.iter().skip(skip).any(|cell| cell.count > 0)
    }

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
    moment: Moment,
    /// The last of `needs` asks what is stored after everything else.
    asks_for_later: bool,
}

impl<'a> Derivation<'a> {
    /// Plans the stages from 0 to `last_stage`; a reader of stage 1 need not make stage 2.
    pub fn plan(policy: &'a Policy, pending: &'a Pending, last_stage: usize, moment: Moment) -> Derivation<'a> {
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
        Derivation { policy, pending, touched, known, needs, moment, asks_for_later: false }
    }

    /// Plans every stage, and to remember what is stored afterwards. `own` is what was stored before; where that is
    /// not known, or not so far ahead, it must be found out whether anything is stored after these points.
    pub fn plan_to_remember(
        policy: &'a Policy,
        pending: &'a Pending,
        own: Option<&Own>,
        moment: Moment,
    ) -> Derivation<'a> {
        let coarsest = policy.retention.stages().len() - 1;
        let mut plan = Derivation::plan(policy, pending, coarsest, moment);
        let is_known = own.is_some_and(|own| pending.end(&policy.retention) <= own.looked_until());
        if let Some(&last) = plan.touched[coarsest].last().filter(|_| coarsest > 0 && !is_known) {
            // To the end of the partition: one more to read now, and one read more in each partition.
            let first = last.saturating_add(1);
            let slots = first..(first / ROW_POINTS + 1).saturating_mul(ROW_POINTS);
            if !slots.is_empty() {
                plan.needs.push(Need { stage: coarsest, slots });
                plan.asks_for_later = true;
            }
        }
        plan
    }

    /// The stored slots that `derive` must be given, in this order.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Makes the rows, and tells what is stored once they are written. `own` is what was stored before, where
    /// that is known; `stored` as for [`Derivation::derive`].
    pub fn derive_to_remember(self, own: Option<&Own>, stored: &[(&[f64], &[u32])]) -> Made {
        let mut watch = Watch::new(&self, own, stored);
        let rows = self.make(stored, |k, slots, stretches, finer, kept| watch.see(k, slots, stretches, finer, kept));
        Made { rows, remembered: watch.remembered() }
    }

    /// Makes the rows. `stored` has an entry for each need: values and counts (counts empty in stage 0),
    /// both empty where nothing is stored.
    pub fn derive(self, stored: &[(&[f64], &[u32])]) -> Vec<Derived> {
        self.make(stored, |_, _, _, _, _| ())
    }

    /// Makes the rows; `see` is shown each stage when it is made: its index, the touched slots, what is known of
    /// it and of the one below, and the slots that were left as they are stored.
    fn make(
        &self,
        stored: &[(&[f64], &[u32])],
        mut see: impl FnMut(usize, &[Slot], &[Stretch], &[Stretch], &[Slot]),
    ) -> Vec<Derived> {
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
                let (fresh, kept) = self.fresh(k, ratio, expected, &finer, &mut stretches, method);
                runs_of_partials(k, &fresh, &mut made);
                see(k, &self.touched[k], &stretches, &finer, &kept);
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
        let needs = &self.needs[..self.needs.len() - usize::from(self.asks_for_later)];
        for (need, (values, counts)) in needs.iter().zip(stored).filter(|(need, _)| need.stage == stage) {
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

    /// The touched slots of stage `k` made anew, also put into its stretches; and those that are left as they are
    /// stored.
    fn fresh(
        &self,
        k: usize,
        ratio: u32,
        expected: u32,
        finer: &[Stretch],
        stretches: &mut [Stretch],
        method: Aggregation,
    ) -> (Vec<(Slot, Partial)>, Vec<Slot>) {
        let (mut fresh, mut kept) = (Vec::with_capacity(self.touched[k].len()), Vec::new());
        let stages = self.policy.retention.stages();
        let complete_from = self.moment.since.max(self.moment.now.saturating_sub(stages[k - 1].duration()));
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
            let is_complete = complete_from <= stages[k].time(slot);
            // The rows that are stored and what is held have nothing in common: no finer slot need tell them apart.
            let added = || {
                let points = slot.checked_mul(expected)?..slot.saturating_add(1).saturating_mul(expected);
                let held = self.pending.unwritten(points, method).filter(|_| !is_complete)?;
                Some(method.merge(*known, held))
            };
            let partial = written.or_else(added).unwrap_or_else(from_children);
            // More is stored than the finer slots still tell: they have expired, or the slot was written
            // as a whole when it was already too old for them. What is stored knows better. Where they are all
            // still there, several writers had the same stage-0 slot, and each counted it.
            if written.is_none() && known.count > partial.count && !is_complete {
                kept.push(slot);
                continue;
            }
            *known = partial;
            if partial.count > 0 {
                fresh.push((slot, partial));
            }
        }
        (fresh, kept)
    }
}

/// Follows a derivation, to tell what is stored after it: the closed children of the slots that are open then.
struct Watch {
    /// The latest stage-0 slot that anything stored reaches; `None` when that cannot be told.
    last: Option<Slot>,
    looked_until: Slot,
    was_known: bool,
    /// Stage-0 slots in a slot of each coarse stage.
    ratios: Vec<Slot>,
    before: Vec<Partial>,
    rows_before: Vec<Partial>,
    closed: Vec<Partial>,
    open: Vec<(Partial, bool)>,
    method: Aggregation,
}

impl Watch {
    fn new(plan: &Derivation<'_>, own: Option<&Own>, stored: &[(&[f64], &[u32])]) -> Watch {
        let (retention, method) = (&plan.policy.retention, plan.policy.aggregation);
        let finest = retention.finest().resolution();
        let ratios: Vec<Slot> = retention.stages().iter().skip(1).map(|stage| stage.resolution() / finest).collect();
        let end = plan.pending.end(retention).max(own.map_or(0, Own::until));
        let later = stored.last().filter(|_| plan.asks_for_later);
        let nothing_later = later.is_none_or(|(values, _)| values.iter().all(|value| value.is_nan()));
        let last = end.checked_sub(1).filter(|_| nothing_later);
        // A slot that was written as a whole is open only until the next point, but its children are not it.
        let is_open = |point: &Late| {
            point.stage > 0
                && last.zip(ratios.get(usize::from(point.stage) - 1)).is_some_and(|(last, r)| last / r == point.slot)
        };
        let last = last.filter(|_| !plan.pending.points.iter().any(is_open));
        let later = plan.needs.last().filter(|_| plan.asks_for_later);
        let looked_until = match (later, ratios.last()) {
            (Some(need), Some(ratio)) => need.slots.end.saturating_mul(*ratio),
            _ => own.map_or(0, Own::looked_until),
        };
        Watch {
            last,
            looked_until,
            was_known: own.is_some() && later.is_none(),
            before: own.map_or_else(|| vec![Partial::NONE; ratios.len()], |own| own.closed().to_vec()),
            rows_before: own.map_or_else(|| vec![Partial::NONE; ratios.len()], |own| own.rows(method)),
            closed: Vec::new(),
            open: Vec::new(),
            ratios,
            method,
        }
    }

    fn see(&mut self, k: usize, touched: &[Slot], stretches: &[Stretch], finer: &[Stretch], kept: &[Slot]) {
        let (Some(last), Some(&ratio)) = (self.last, self.ratios.get(k - 1)) else { return };
        let open = last / ratio;
        let finer_ratio = if k == 1 { 1 } else { self.ratios[k - 2] };
        let open_child = last / finer_ratio;
        let has_later = |stretches: &[Stretch], slot| stretches.iter().any(|stretch| stretch.has_later(slot));
        let is_lost = kept.binary_search(&open).is_ok()
            || !self.was_known && (has_later(stretches, open) || has_later(finer, open_child));
        if is_lost {
            self.last = None;
            return;
        }
        if touched.binary_search(&open).is_err() {
            // Nothing under it has changed, nor in the slots that are open within it.
            self.closed.push(self.before[k - 1]);
            self.open.push((self.rows_before[k - 1], false));
            return;
        }
        let full = stretches.iter().find_map(|stretch| stretch.get(open)).unwrap_or(Partial::NONE);
        let first_child = open * (ratio / finer_ratio);
        let children = (first_child..open_child).filter_map(|slot| finer.iter().find_map(|stretch| stretch.get(slot)));
        let closed =
            if k == 1 { full } else { children.fold(Partial::NONE, |all, child| self.method.merge(all, child)) };
        self.closed.push(closed);
        self.open.push((full, true));
    }

    fn remembered(self) -> Option<Remembered> {
        let last = self.last?;
        let own = Own::new(last.saturating_add(1), self.looked_until, self.closed);
        Some(Remembered { own, open: self.open, method: self.method })
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

pub(crate) fn runs_of_points(points: &[Late], made: &mut Vec<Derived>) {
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

pub(crate) fn runs_of_partials(stage: usize, partials: &[(Slot, Partial)], made: &mut Vec<Derived>) {
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

    /// So late that no finer slot is there any more.
    const MOMENT: Moment = Moment { now: 1 << 40, since: 0 };

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
        let plan = Derivation::plan(&policy, &pending, 2, MOMENT);
        assert_eq!(plan.needs(), []);
        let made = plan.derive(&[]);
        assert_eq!(stage(&made, 0), [(59, 1.0, 1), (60, 2.0, 1), (61, 3.0, 1)]);
        assert_eq!(stage(&made, 1), [(0, 1.0, 1), (1, 5.0, 2)]);
        assert_eq!(stage(&made, 2), [(0, 6.0, 3)]);
        assert_eq!(pending.end(&policy.retention), 62);
    }

    #[test]
    fn a_late_point_is_folded_with_what_is_stored() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let open = open(&[(61, 10.0)]);
        let pending = Pending::of(&[&open], 63);
        let plan = Derivation::plan(&policy, &pending, 1, MOMENT);
        assert_eq!(plan.needs(), [Need { stage: 0, slots: 60..63 }, Need { stage: 1, slots: 1..2 }]);
        let made = plan.derive(&[(&[2.0, 3.0, 4.0], &[]), (&[9.0], &[3])]);
        assert_eq!(stage(&made, 1), [(1, 16.0, 3)]);
    }

    #[test]
    fn a_slot_that_knows_more_than_its_children_is_kept() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let open = open(&[(61, 10.0)]);
        let pending = Pending::of(&[&open], Slot::MAX);
        let plan = Derivation::plan(&policy, &pending, 1, MOMENT);
        let made = plan.derive(&[(&[], &[]), (&[100.0], &[60])]);
        assert_eq!(stage(&made, 1), []);
    }

    #[test]
    fn what_is_held_is_added_to_rows_whose_children_are_gone() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Sum);
        let open = open(&[(70, 10.0), (71, 20.0)]);
        for (unwritten_from, hour) in [(70, (1, 55.0, 12)), (71, (1, 30.0, 2)), (Slot::MAX, (1, 30.0, 2))] {
            let pending = Pending::of(&[&open], Slot::MAX).unwritten_from(unwritten_from);
            let count = if unwritten_from == 70 { 10 } else { 1 };
            let moment = Moment { now: 4 * 3600, since: 0 };
            let plan = Derivation::plan(&policy, &pending, 2, moment);
            assert_eq!(plan.needs().len(), 3);
            let hours = [f64::NAN, 25.0];
            let made = plan.derive(&[(&[], &[]), (&hours, &[0, count]), (&[25.0], &[count])]);
            assert_eq!(stage(&made, 1), [hour]);
            assert_eq!(stage(&made, 2), [(0, hour.1, hour.2)], "the hours of the day are all there");
        }
    }

    #[test]
    fn a_slot_that_writers_counted_twice_is_made_anew_while_its_children_are_there() {
        let policy = policy("60*60s:48*3600s", Aggregation::Sum);
        let open = open(&[(61, 10.0)]);
        let pending = Pending::of(&[&open], Slot::MAX);
        for (since, count) in [(0, 2), (3601, 0)] {
            let plan = Derivation::plan(&policy, &pending, 1, Moment { now: 7200, since });
            let made = plan.derive(&[(&[1.0], &[]), (&[3.0], &[3])]);
            assert_eq!(stage(&made, 1).iter().map(|slot| slot.2).sum::<u32>(), count, "kept so since {since}");
        }
    }

    #[test]
    fn a_point_too_old_for_stage_0_is_written_whole_and_reaches_the_coarser() {
        let policy = policy("60*60s:48*3600s:60*86400s", Aggregation::Average);
        let mut open = Open::default();
        open.push_coarse(1, 5, 7.0);
        let pending = Pending::of(&[&open], Slot::MAX);
        let plan = Derivation::plan(&policy, &pending, 2, MOMENT);
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
