//! The part of a window from before a change of policy that only coarser aggregates have.
//!
//! What finer slots of older policies have is filled in where it is read (`older_cells.rs`).

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use metric::{Methods, Partial, Policy, Slot, Timestamp};
use store::{Cells, CoarserSlots};

use super::reading::{Answer, Reading, Unread};
use crate::{
    older_cells::may_come_until,
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
    let history = &reading.history;
    for before in (0..history.len() - 1).rev() {
        let (began, ended) = (history[before].since, history.ended(before));
        let Some(policy) = table.all.get(usize::from(history[before].policy)) else { continue };
        // Late points of that time may have come after the change, under the newer policy; so the older one
        // is asked for its whole time, and only fills what the newer one leaves empty.
        let (from, until) =
            (from.max(began - policy.retention.longest().duration()), until.min(may_come_until(ended, table.is_alone)));
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

/// Fills empty values before `until` with aggregates of a coarser step, each in the slot in which it begins, where all slots are empty
/// that it has a part of. The xFilesFactor in force holds for them as for all that is shown, and a slot that has too few points hides
/// what is coarser.
pub(super) fn fill_from_coarser(
    reading: &Reading,
    part: &OlderPart,
    until: Timestamp,
    mut cells: Cells,
    answer: &mut Answer,
) {
    let Answer { series, withheld, .. } = answer;
    let policy = &part.policy;
    let (older, stage) = (policy.retention.stages()[part.stage], reading.stage());
    part.rows.read(policy.table(part.stage), part.slots.start, &mut cells, policy);
    let earlier = earlier_by_place(&cells);
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let time = older.time(part.slots.start + i as u32);
        let slot =
            stage.slot(time).filter(|_| time < until).and_then(|slot| slot.checked_sub(reading.choice.slots.start));
        let Some(place) = slot.map(|slot| slot as usize).filter(|place| *place < series.values.len()) else { continue };
        // Steps need not divide: the last slot may have a part of the aggregate.
        let last = stage.slot(time + i64::from(older.resolution()) - 1).unwrap_or(Slot::MAX);
        let end = series.values.len().min((last - reading.choice.slots.start) as usize + 1);
        let is_empty = series.values[place..end].iter().all(|value| value.is_nan());
        if !is_empty || withheld.range(place..end).next().is_some() {
            continue;
        }
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        let shown = reading.shown(partial, policy, older, time);
        if shown.is_nan() {
            withheld.insert(place);
            continue;
        }
        series.values[place] = shown;
        let earlier = earlier.get(&i).into_iter().flat_map(Methods::iter);
        for method in std::iter::once(policy.aggregation).chain(earlier) {
            let slots = CoarserSlots { retention: policy.retention.clone(), stage: part.stage, method };
            if !series.coarser.contains(&slots) {
                series.coarser.push(slots);
            }
        }
    }
}

/// Other methods than that of the cells whose values are among these, by place.
fn earlier_by_place(cells: &Cells) -> BTreeMap<usize, Methods> {
    let mut earlier: BTreeMap<usize, Methods> = BTreeMap::new();
    for (place, methods) in &cells.earlier_at {
        let all = earlier.entry(*place as usize).or_insert(Methods::NONE);
        methods.iter().for_each(|method| _ = all.add(method));
    }
    earlier
}
