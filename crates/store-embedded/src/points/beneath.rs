//! Values of a fetch that may be older than ones which cannot be read.
//!
//! 1. Where a row cannot be read, what older files have of its slots is put aside.
//! 2. Rows of newer files, and those in memory, are laid over the empty slots.
//! 3. A slot that is still empty gets its value back, and the answer says that it may be outdated: it is shown, and nothing is derived
//!    from it.

use std::collections::BTreeMap;

use metric::Slot;
use store::Cells;

use super::fetch::Wanted;

/// Values that are put aside, by the place of their [`Wanted`].
#[derive(Default)]
pub(super) struct Beneath {
    rows: BTreeMap<usize, Row>,
}

/// Values and counts of a row, as many as it has slots; NaN where none is put aside. No counts of points.
struct Row {
    values: Vec<f64>,
    counts: Vec<u32>,
}

impl Beneath {
    /// A row that cannot be read may have newer values of these slots, up to `newest`.
    pub(super) fn put_aside(&mut self, place: usize, cells: &mut Cells, wanted: &Wanted, newest: Slot) {
        let places = wanted.places();
        let Some(values) = cells.values.get_mut(places.clone()) else { return };
        let counts = cells.counts.get(places).unwrap_or_default();
        let touched = (newest.saturating_add(1).saturating_sub(wanted.first_slot()) as usize).min(values.len());
        if values[..touched].iter().all(|value| value.is_nan()) {
            return;
        }
        let row = self.rows.entry(place).or_insert_with(|| {
            let (values, counts) = (vec![f64::NAN; values.len()], vec![0; counts.len()]);
            Row { values, counts }
        });
        // The counts stay: without a value they say nothing.
        for (i, value) in values[..touched].iter_mut().enumerate().filter(|(_, value)| !value.is_nan()) {
            row.values[i] = std::mem::replace(value, f64::NAN);
            if let (Some(aside), Some(count)) = (row.counts.get_mut(i), counts.get(i)) {
                *aside = *count;
            }
        }
    }

    /// Fills the slots that nothing newer has, in the answers to the fetches.
    pub(super) fn put_back(self, of_window: &[Wanted], answers: &mut [Cells]) {
        for (place, row) in self.rows {
            let wanted = &of_window[place];
            let cells = &mut answers[wanted.fetch];
            let first = wanted.places().start;
            for (i, value) in row.values.into_iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                if !cells.values[first + i].is_nan() {
                    continue;
                }
                cells.values[first + i] = value;
                if let Some(count) = row.counts.get(i) {
                    cells.counts[first + i] = *count;
                }
                cells.note_outdated((first + i) as u32);
            }
        }
    }
}
