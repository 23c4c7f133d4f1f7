//! Which rows a fetch is in, and its slots out of them.

use std::ops::Range;

use metric::Slot;
use store::{Cells, Fetch};

use crate::{
    row_key::{GROUP_SLOTS, RowKey, groups},
    rows::Recoder,
    window_key::{WindowKey, window_slots},
};

/// Slots of a fetch that are in one row.
pub(super) struct Wanted {
    pub(super) window: WindowKey,
    pub(super) key: RowKey,
    /// The number of the fetch, and the place of the first slot in it.
    pub(super) fetch: usize,
    place: usize,
    /// The place of the first slot in the row, and how many there are.
    offset: usize,
    len: usize,
}

impl Wanted {
    /// The first of its slots.
    pub(super) fn first_slot(&self) -> Slot {
        self.key.group * GROUP_SLOTS + self.offset as u32
    }

    /// The places of its slots in the answer.
    pub(super) fn places(&self) -> Range<usize> {
        self.place..self.place + self.len
    }
}

/// The parts of fetches that are in one row each.
pub(super) fn wanted(fetches: &[&Fetch]) -> Vec<Wanted> {
    let mut wanted = Vec::with_capacity(2 * fetches.len());
    for (number, fetch) in fetches.iter().enumerate() {
        let slots = window_slots(fetch.table.stage);
        let len = fetch.end_slot.saturating_sub(fetch.first_slot) as usize;
        for (group, place) in groups(fetch.first_slot, len) {
            let first = fetch.first_slot + place.start as u32;
            wanted.push(Wanted {
                window: (fetch.table, first / slots),
                key: RowKey { group, metric: fetch.metric },
                fetch: number,
                place: place.start,
                offset: (first - group * GROUP_SLOTS) as usize,
                len: place.len(),
            });
        }
    }
    wanted
}

/// Lays the slots of a row over the answer of a fetch of `len` slots.
pub(super) fn lay_over(
    cells: &mut Cells,
    len: usize,
    wanted: &Wanted,
    row: &[u8],
    is_aggregated: bool,
    recoder: &mut Recoder,
) -> Result<(), codec::Damaged> {
    let is_first = cells.values.is_empty();
    if is_first {
        cells.values.resize(len, f64::NAN);
        cells.counts.resize(if is_aggregated { len } else { 0 }, 0);
    }
    let places = wanted.places();
    let counts = if is_aggregated { &mut cells.counts[places.clone()] } else { &mut [] };
    let slots = wanted.offset..wanted.offset + wanted.len;
    let any = recoder.read(row, slots, &mut cells.values[places], counts)?;
    if is_first && !any {
        // Not cleared: a miss keeps no memory.
        (cells.values, cells.counts) = (Vec::new(), Vec::new());
    }
    Ok(())
}
