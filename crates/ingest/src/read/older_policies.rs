//! The part of a window from before a change of policy: it is in the stages of the older policy.

use std::{ops::Range, sync::Arc};

use metric::{Partial, Policy, Slot, Timestamp};
use store::Cells;

use super::reading::Reading;
use crate::policy_table::PolicyTable;

/// A part of an answer that an older policy's stage has.
pub(super) struct OlderPart {
    /// The reading that it belongs to, by place.
    pub(super) reading: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) stage: usize,
    pub(super) slots: Range<Slot>,
}

impl OlderPart {
    /// Whether its slots are points rather than aggregates.
    fn has_points(&self) -> bool {
        self.stage == 0
    }
}

/// The parts of a window that older policies kept, in tables that the current policy's stage does not read anyway.
pub(super) fn older_parts(place: usize, reading: &Reading, table: &PolicyTable) -> Vec<OlderPart> {
    let stage = reading.stage();
    let from = stage.time(reading.choice.slots.start);
    let until = stage.time(reading.choice.slots.end);
    let (mut parts, mut coarser) = (Vec::new(), Vec::new());
    // The latest first: its slots over a change have the points of those before it.
    for spans in reading.history.windows(2).rev() {
        let (began, ended) = (spans[0].since, spans[1].since);
        let Some(policy) = table.all.get(usize::from(spans[0].policy)) else { continue };
        // Late points of that time may have come after the change, under the newer policy; so the older one
        // is asked for its whole time, and only fills what the newer one leaves empty.
        let (from, until) = (from.max(began - policy.retention.longest().duration()), until.min(ended + 1));
        if from >= until {
            continue;
        }
        // All of its stages are read, first the one whose step is nearest below the answer's: which of them held the
        // time when the policy changed depends on the age at that moment.
        let stages = policy.retention.stages();
        // Slots in this very table are read anyway, and those that are empty there are empty.
        if (0..stages.len()).any(|index| policy.retention.table(index) == reading.table()) {
            continue;
        }
        let best = stages.iter().rposition(|older| older.resolution() <= stage.resolution()).unwrap_or(0);
        let order = std::iter::once(best).chain((0..stages.len()).filter(|&other| other != best));
        for index in order {
            let older = stages[index];
            let (Some(first), Some(last)) = (older.slot(from), older.slot(until - 1)) else { continue };
            let part = OlderPart { reading: place, policy: policy.clone(), stage: index, slots: first..last + 1 };
            if part.has_points() || older.resolution() <= stage.resolution() {
                parts.push(part);
            } else {
                coarser.push((older.resolution(), part));
            }
        }
    }
    // A table that several policies share has the points of all: aggregates come behind everything finer.
    coarser.sort_by_key(|&(resolution, _)| resolution);
    parts.extend(coarser.into_iter().map(|(_, part)| part));
    parts
}

/// Fills empty values from what an older policy's stage had: a point of a coarser step at its own time, an aggregate of a
/// coarser step where its whole slot is empty, the values of a finer step aggregated by the older policy's method.
pub(super) fn fill_from_older(reading: &Reading, part: &OlderPart, cells: &Cells, values: &mut [f64]) {
    let (older, stage) = (part.policy.retention.stages()[part.stage], reading.stage());
    let finest = part.policy.retention.finest().resolution();
    let method = part.policy.aggregation;
    let x_files_factor = part.policy.x_files_factor;
    let expected = older.resolution() / finest;
    let place_of = |time: Timestamp| {
        let slot = stage.slot(time)?.checked_sub(reading.choice.slots.start)?;
        (usize::try_from(slot).ok()? < values.len()).then_some(slot as usize)
    };
    let mut folded: Option<(usize, Partial)> = None;
    let mut fills: Vec<(usize, f64)> = Vec::new();
    let span = if part.has_points() { 1 } else { (older.resolution() / stage.resolution()).max(1) as usize };
    let wanted = (stage.resolution() / finest).max(1);
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        let Some(place) = place_of(older.time(part.slots.start + i as u32)) else { continue };
        if older.resolution() >= stage.resolution() {
            fills.push((place, method.finish(partial, expected, x_files_factor)));
            continue;
        }
        folded = match folded {
            Some((at, all)) if at == place => Some((at, method.merge(all, partial))),
            other => {
                fills.extend(other.map(|(at, all)| (at, method.finish(all, wanted, x_files_factor))));
                Some((place, partial))
            }
        };
    }
    fills.extend(folded.map(|(at, all)| (at, method.finish(all, wanted, x_files_factor))));
    for (place, value) in fills {
        let end = values.len().min(place + span);
        if values[place..end].iter().all(|value| value.is_nan()) {
            values[place] = value;
        }
    }
}
