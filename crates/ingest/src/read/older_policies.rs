//! The part of a window from before a change of policy that only coarser aggregates have.
//!
//! What finer slots of older policies have is filled in where it is read (`older_cells.rs`).

use std::{ops::Range, sync::Arc};

use metric::{Partial, Policy, Slot, Timestamp};
use store::{Cells, FetchedSeries};

use super::reading::{Reading, Unread};
use crate::{
    policy_table::PolicyTable,
    shared_rows::{SharedRows, has_table},
};

/// A part of an answer that an older policy's stage has, in coarser steps.
pub(super) struct OlderPart {
    /// The reading that it belongs to, by place.
    pub(super) reading: usize,
    pub(super) policy: Arc<Policy>,
    pub(super) stage: usize,
    pub(super) slots: Range<Slot>,
    rows: Arc<SharedRows>,
}

impl OlderPart {
    /// Until when slots are filled where some finer ones could not be read: what would be there may be finer. What cannot be read
    /// now comes back; what is damaged may stay so until it expires, and leaves out no more than its policy keeps.
    /// `reached` is how far the store has come.
    pub(super) fn until(&self, unread: Unread, reached: Timestamp) -> Timestamp {
        let finer = self.stage.checked_sub(1).map(|finer| self.policy.retention.stages()[finer].duration());
        match unread {
            Unread { is_for_now: true, .. } => Timestamp::MIN,
            Unread { is_damaged: true, .. } => finer.map_or(Timestamp::MAX, |kept| reached - kept),
            Unread { is_damaged: false, is_for_now: false } => Timestamp::MAX,
        }
    }
}

/// The parts of a window that older policies kept in coarser aggregates, the finest first; in tables that the current
/// policy's stage does not read anyway.
pub(super) fn coarser_parts(place: usize, reading: &Reading, table: &PolicyTable) -> Vec<OlderPart> {
    let stage = reading.stage();
    let from = stage.time(reading.choice.slots.start);
    let until = stage.time(reading.choice.slots.end);
    let rows = Arc::new(SharedRows::of(&reading.history, table));
    let mut parts = Vec::new();
    // The latest first.
    for spans in reading.history.windows(2).rev() {
        let (began, ended) = (spans[0].since, spans[1].since);
        let Some(policy) = table.all.get(usize::from(spans[0].policy)) else { continue };
        // Late points of that time may have come after the change, under the newer policy; so the older one
        // is asked for its whole time, and only fills what the newer one leaves empty.
        let (from, until) = (from.max(began - policy.retention.longest().duration()), until.min(ended + 1));
        // Slots in this very table are read anyway, and those that are empty there are empty.
        if until <= from || has_table(policy, reading.table()) {
            continue;
        }
        let stages = policy.retention.stages().iter().enumerate().skip(1);
        for (index, of) in stages.filter(|(_, of)| stage.resolution() < of.resolution()) {
            let (Some(first), Some(last)) = (of.slot(from), of.slot(until - 1)) else { continue };
            let (slots, policy, rows) = (first..last + 1, policy.clone(), rows.clone());
            parts.push((of.resolution(), OlderPart { reading: place, policy, stage: index, slots, rows }));
        }
    }
    // A table that several policies share has the points of all.
    parts.sort_by_key(|&(resolution, _)| resolution);
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Fills empty values before `until` with aggregates of a coarser step, at the beginning of a slot that is empty as a whole.
pub(super) fn fill_from_coarser(
    reading: &Reading,
    part: &OlderPart,
    until: Timestamp,
    mut cells: Cells,
    answer: &mut FetchedSeries,
) {
    let policy = &part.policy;
    let values = &mut answer.values;
    let (older, stage) = (policy.retention.stages()[part.stage], reading.stage());
    part.rows.read(policy.table(part.stage), part.slots.start, &mut cells, policy);
    let expected = older.resolution() / policy.retention.finest().resolution();
    let place_of = |time: Timestamp| {
        let slot = stage.slot(time)?.checked_sub(reading.choice.slots.start)?;
        (usize::try_from(slot).ok()? < values.len()).then_some(slot as usize)
    };
    let mut fills: Vec<(usize, f64)> = Vec::new();
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        let time = older.time(part.slots.start + i as u32);
        let Some(place) = place_of(time).filter(|_| time < until) else { continue };
        fills.push((place, policy.aggregation.finish(partial, expected, reading.x_files_factor(policy))));
    }
    let span = (older.resolution() / stage.resolution()).max(1) as usize;
    for (place, value) in fills {
        let end = values.len().min(place + span);
        if values[place..end].iter().all(|value| value.is_nan()) {
            values[place] = value;
            let made_by = std::iter::once(policy.aggregation).chain(cells.earlier);
            made_by.filter(|&of| of != answer.aggregation).for_each(|method| _ = answer.earlier.add(method));
        }
    }
}
