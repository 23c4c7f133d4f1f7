//! Rows: consecutive slots of one stage, as a driver stores them.

use metric::{Partial, Slot};

use crate::StagePoint;

/// Slots closer than this share a row, and a read: a few empty slots cost less than a row of their own.
pub(crate) const JOIN: u32 = 32;

/// Consecutive slots of one stage.
#[derive(Debug, Clone, PartialEq)]
pub struct DerivedRow {
    /// Index of the stage.
    pub stage: usize,
    /// Slot of `values[0]`.
    pub first_slot: Slot,
    /// Points of stage 0, partial values of a coarser stage; NaN in slots that the row leaves alone.
    pub values: Vec<f64>,
    /// A count for each value; empty in stage 0.
    pub counts: Vec<u32>,
}

impl DerivedRow {
    /// Where `slot` goes in this row, if it is close enough behind its end.
    fn place(&self, slot: Slot) -> Option<usize> {
        (slot - self.first_slot < self.values.len() as u32 + JOIN).then_some((slot - self.first_slot) as usize)
    }
}

/// Appends the rows of stage-0 points, sorted by slot.
pub(crate) fn push_points(points: &[StagePoint], rows: &mut Vec<DerivedRow>) {
    for together in points.chunk_by(|one, next| next.slot - one.slot <= JOIN) {
        let (first_slot, end) = (together[0].slot, together[together.len() - 1].slot);
        let mut values = Vec::with_capacity((end - first_slot) as usize + 1);
        for point in together {
            values.resize((point.slot - first_slot) as usize, f64::NAN);
            values.push(point.value);
        }
        rows.push(DerivedRow { stage: 0, first_slot, values, counts: Vec::new() });
    }
}

/// Appends the rows of a coarse stage's slots, sorted by slot.
pub(crate) fn push_partials(stage: usize, partials: &[(Slot, Partial)], rows: &mut Vec<DerivedRow>) {
    let mut last: Option<DerivedRow> = None;
    for &(slot, partial) in partials {
        match last.as_mut().and_then(|row| Some((row.place(slot)?, row))) {
            Some((place, row)) => {
                row.values.resize(place, f64::NAN);
                row.counts.resize(place, 0);
                row.values.push(partial.value);
                row.counts.push(partial.count);
            }
            None => {
                let (values, counts) = (vec![partial.value], vec![partial.count]);
                rows.extend(last.replace(DerivedRow { stage, first_slot: slot, values, counts }));
            }
        }
    }
    rows.extend(last);
}
