//! Slots of one policy, filled from stored slots of others.

use metric::{Partial, Policy, Slot, Table};
use store::Cells;

use crate::shared_rows::{converted, has_table};

/// Slots to fill.
pub(crate) struct Target<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) table: Table,
    pub(crate) first_slot: Slot,
    pub(crate) len: usize,
}

/// Stored slots of another policy's stage.
pub(crate) struct Source<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) table: Table,
    pub(crate) first_slot: Slot,
    pub(crate) len: usize,
    /// What is stored.
    pub(crate) stored: Cells,
    /// The same with absent slots filled from the sources behind this one; empty where none was.
    pub(crate) filled: Cells,
}

impl Target<'_> {
    /// The slot of the target in which a slot of a source begins, by their places.
    fn place(&self, source: &Source<'_>, place: usize) -> Option<usize> {
        let time = source.table.stage.time(source.first_slot + place as u32);
        let slot = self.table.stage.slot(time)?.checked_sub(self.first_slot)? as usize;
        (slot < self.len).then_some(slot)
    }
}

/// Fills the sources from those behind them: what a policy showed while it was in force. Sources are in the order of their
/// policies, the latest first.
pub(crate) fn fill_sources(sources: &mut [Source<'_>]) {
    for place in (0..sources.len()).rev() {
        let (before, behind) = sources.split_at_mut(place + 1);
        let source = &mut before[place];
        let behind = behind.iter().filter(|other| !std::ptr::eq(other.policy, source.policy));
        let table = source.table;
        if behind.clone().next().is_none() {
            continue;
        }
        let len = source.len;
        let target = Target { policy: source.policy, table, first_slot: source.first_slot, len };
        let mut cells = source.stored.clone();
        fill(&target, &mut cells, behind, |other| has_table(other, table));
        source.filled = cells;
    }
}

/// Fills the absent slots of `cells` from sources, the first that has a slot, but for policies to leave out.
pub(crate) fn fill<'s, 'p: 's>(
    target: &Target<'_>,
    cells: &mut Cells,
    sources: impl Iterator<Item = &'s Source<'p>> + Clone,
    is_left_out: impl Fn(&Policy) -> bool,
) {
    let step = target.table.stage.resolution();
    let is_finer = |source: &&Source<'_>| source.table.stage.resolution() <= step;
    let sources = sources.filter(|source| !is_left_out(source.policy));
    for source in sources.clone().filter(is_finer) {
        let from = if source.filled.values.is_empty() { &source.stored } else { &source.filled };
        fill_from(target, cells, source, from);
    }
    // A point of a coarser step is a point at its own time, where no finer one is known; what that policy showed of finer
    // ones is not. The finest first: a slot of the others may have the fold of finer points in place of a point.
    let is_point = |source: &&Source<'_>| !is_finer(source) && !source.table.aggregated;
    let mut points: Vec<&Source<'_>> = sources.filter(is_point).collect();
    points.sort_by_key(|source| source.table.stage.resolution());
    for source in points {
        fill_from(target, cells, source, &source.stored);
    }
}

fn fill_from(target: &Target<'_>, cells: &mut Cells, source: &Source<'_>, from: &Cells) {
    cells.is_damaged |= from.is_damaged;
    cells.is_unreadable |= from.is_unreadable;
    cells.is_away |= from.is_away;
    let mut fills = fills(target, source, from);
    if !std::ptr::eq(from, &source.stored) {
        // A slot that this policy has nothing of is left to the next one.
        let own = places_of_stored(target, source);
        fills.retain(|(place, _)| own.binary_search(place).is_ok());
    }
    if fills.is_empty() {
        return;
    }
    let is_aggregated = target.table.aggregated;
    cells.values.resize(target.len, f64::NAN);
    cells.counts.resize(if is_aggregated { target.len } else { 0 }, 0);
    for (place, partial) in fills {
        if cells.values.get(place).is_some_and(|value| value.is_nan()) {
            cells.values[place] = partial.value;
            if is_aggregated {
                cells.counts[place] = partial.count;
            }
        }
    }
}

/// The slots of the target in which a source has stored slots, by place.
fn places_of_stored(target: &Target<'_>, source: &Source<'_>) -> Vec<usize> {
    let values = source.stored.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let mut places: Vec<usize> = values.filter_map(|(i, _)| target.place(source, i)).collect();
    places.dedup();
    places
}

/// The slots of the target that a source has, by place.
fn fills(target: &Target<'_>, source: &Source<'_>, cells: &Cells) -> Vec<(usize, Partial)> {
    let stage = target.table.stage;
    let mut fills: Vec<(usize, Partial)> = Vec::new();
    for (i, &value) in cells.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let Some(place) = target.place(source, i) else { continue };
        let partial = Partial { value, count: cells.counts.get(i).copied().unwrap_or(1) };
        match fills.last_mut().filter(|(last, _)| *last == place) {
            Some((_, all)) => *all = source.policy.aggregation.merge(*all, partial),
            None => fills.push((place, partial)),
        }
    }
    fills.retain(|(_, partial)| 0 < partial.count);
    for (_, partial) in &mut fills {
        *partial = converted(*partial, source.policy, target.policy, stage);
    }
    fills
}
