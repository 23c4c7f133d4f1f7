//! Which coarse slots pending points change, and which stored slots a derivation of them needs.
//!
//! Stage k is made from the partials (sum and count, extreme, latest) of stage k−1, so that a slot is exact over
//! stage-0 points and yet only the slots directly under it are read.

use std::{collections::BTreeMap, ops::Range};

use metric::{Policy, Slot, Timestamp};

use crate::{Coverage, SortedPoints, rollup::CoarseStage, rows::JOIN};

/// Stored slots that a derivation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Index of the stage.
    pub stage: usize,
    /// Which slots. Never empty.
    pub slots: Range<Slot>,
}

/// Places of stored slots that cannot be read, and of those that cannot where they are missing.
pub type Places<'a> = (&'a [Range<u32>], &'a [Range<u32>]);

/// A derivation for a reader: the slots of some stages that change, and the stored slots to fetch for them.
#[derive(Debug)]
pub struct ReadPlan<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) points: &'a SortedPoints,
    pub(crate) coverage: Coverage,
    pub(crate) stages: Vec<StagePlan>,
    needs: Vec<Need>,
    /// Stored slots that cannot be read: those without a value.
    pub(crate) damaged: Vec<Need>,
    /// Those of them that are known to be stored.
    pub(crate) known_damage: Vec<Need>,
    /// Stored slots whose value may be older than one that cannot be read.
    pub(crate) outdated: Vec<Need>,
    /// Stage and slot, and when the last finer slot begins that is known to be stored in it.
    pub(crate) latest: BTreeMap<(usize, Slot), Timestamp>,
}

/// The slots of one stage in a plan.
#[derive(Debug, Default)]
pub(crate) struct StagePlan {
    /// The slots that change, sorted. Empty in stage 0, whose slots are the points'.
    pub(crate) touched: Vec<Slot>,
    /// The stretches that must be known, sorted and disjoint.
    pub(crate) known: Vec<Range<Slot>>,
}

impl<'a> ReadPlan<'a> {
    /// Plans the stages from 0 to `last_stage`; a reader of stage 1 needs no stage 2.
    pub fn new(policy: &'a Policy, points: &'a SortedPoints, coverage: Coverage, last_stage: usize) -> ReadPlan<'a> {
        let mut stages: Vec<StagePlan> = vec![StagePlan::default()];
        for index in 1..=last_stage {
            let touched = touched(CoarseStage::of(policy, index), index, points, &stages[index - 1].touched);
            stages.push(StagePlan { touched, known: Vec::new() });
        }
        for index in 0..=last_stage {
            let mut known: Vec<Range<Slot>> = stages[index].touched.iter().map(|&slot| slot..slot + 1).collect();
            if let Some(above) = stages.get(index + 1) {
                let children = CoarseStage::of(policy, index + 1).children;
                // A slot that has a point of its own becomes that point, whatever is under it.
                let direct = points.of_stage(index + 1);
                let has_point = |slot: Slot| direct.binary_search_by_key(&slot, |point| point.slot).is_ok();
                let derived = above.touched.iter().filter(|&&slot| !has_point(slot));
                known.extend(
                    derived.map(|&slot| slot.saturating_mul(children)..slot.saturating_add(1).saturating_mul(children)),
                );
            }
            stages[index].known = joined(known);
        }
        let needs = stages.iter().enumerate().flat_map(|(index, stage)| {
            let empty_from = coverage.all_writers.stage_empty_from(index, &policy.retention).unwrap_or(Slot::MAX);
            let stored = stage.known.iter().map(move |range| range.start..range.end.min(empty_from));
            stored.filter(|slots| !slots.is_empty()).map(move |slots| Need { stage: index, slots })
        });
        let needs = needs.collect();
        ReadPlan {
            policy,
            points,
            coverage,
            stages,
            needs,
            damaged: Vec::new(),
            known_damage: Vec::new(),
            outdated: Vec::new(),
            latest: BTreeMap::new(),
        }
    }

    /// The stored slots that [`ReadPlan::derive`] must be given, in this order.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Slots that a derivation keeps in memory at once.
    pub fn cells(&self) -> usize {
        self.stages.iter().flat_map(|stage| &stage.known).map(|slots| slots.len()).sum()
    }

    /// Stored slots of the need at this place cannot be read: no row is made from what is missing there. `places` are the damaged ones, and
    /// those that are damaged if they are missing; without them, whatever is missing is.
    pub fn note_damage(&mut self, need: usize, places: Option<Places<'_>>) {
        let Need { stage, slots } = self.needs[need].clone();
        let Some((damaged, doubted)) = places else { return self.damaged.push(Need { stage, slots }) };
        let damaged = self.slots_at(need, damaged);
        self.known_damage.extend(damaged.iter().cloned());
        self.damaged.extend(damaged);
        self.damaged.extend(self.slots_at(need, doubted));
    }

    /// Stored slots of the need at this place, at these places, may have an older value than one that cannot be read: no row is made
    /// from it. Where points replace it, it does not matter.
    pub fn note_outdated(&mut self, need: usize, places: &[Range<u32>]) {
        let outdated = self.slots_at(need, places);
        self.outdated.extend(outdated);
    }

    fn slots_at(&self, need: usize, places: &[Range<u32>]) -> Vec<Need> {
        let Need { stage, slots } = &self.needs[need];
        let slot = |place: u32| slots.start.saturating_add(place).min(slots.end);
        places.iter().map(|places| Need { stage: *stage, slots: slot(places.start)..slot(places.end) }).collect()
    }

    /// Whether the stored value of a slot may be older than one that cannot be read.
    pub(crate) fn is_outdated(&self, stage: usize, slot: Slot) -> bool {
        self.outdated.iter().any(|need| need.stage == stage && need.slots.contains(&slot))
    }

    /// A slot of the need at this place has points of this time or a later one, which the finer stages of the policy may lack.
    pub fn note_latest(&mut self, need: usize, place: u32, time: Timestamp) {
        let need = &self.needs[need];
        self.latest.insert((need.stage, need.slots.start.saturating_add(place)), time);
    }
}

/// The slots of a coarse stage that change: those of its own points, and those above slots that change below.
fn touched(stage: CoarseStage, index: usize, points: &SortedPoints, below: &[Slot]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut touch = |slot: Slot| {
        if slots.last() != Some(&slot) {
            slots.push(slot);
        }
    };
    if index == 1 {
        points.of_stage(0).iter().for_each(|point| touch(point.slot / stage.children));
    } else {
        below.iter().for_each(|slot| touch(slot / stage.children));
    }
    let direct = points.of_stage(index);
    if !direct.is_empty() {
        slots.extend(direct.iter().map(|point| point.slot));
        slots.sort_unstable();
        slots.dedup();
    }
    slots
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
