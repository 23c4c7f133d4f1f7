//! Rows that are on their way to the store, laid over what the store answers.

use std::collections::HashMap;

use metric::{MetricId, Slot, Table};
use store::{Cells, Fetch, Run};

/// Rows that the store is about to have, by metric.
#[derive(Default)]
pub(crate) struct ComingRows {
    metrics: HashMap<MetricId, Vec<Coming>>,
}

enum Coming {
    Row(Run),
    /// The stored slot lacks points, and what it will be is not known.
    Doubtful(Table, Slot),
}

impl ComingRows {
    /// Adds rows; of equal slots the last one added wins.
    pub(crate) fn add(&mut self, rows: impl IntoIterator<Item = Run>) {
        for row in rows {
            self.metrics.entry(row.metric).or_default().push(Coming::Row(row));
        }
    }

    /// Adds a slot that has no answer.
    pub(crate) fn add_doubtful(&mut self, metric: MetricId, table: Table, slot: Slot) {
        self.metrics.entry(metric).or_default().push(Coming::Doubtful(table, slot));
    }

    /// Makes `cells`, what the store answers to `fetch`, what it will answer.
    pub(crate) fn lay_over(&self, fetch: &Fetch, cells: &mut Cells) {
        for coming in self.metrics.get(&fetch.metric).into_iter().flatten() {
            match coming {
                Coming::Row(row) if row.table == fetch.table => lay_row(row, fetch, cells),
                Coming::Doubtful(table, slot) if *table == fetch.table => {
                    let place = slot.checked_sub(fetch.first_slot);
                    if let Some(value) = place.and_then(|place| cells.values.get_mut(place as usize)) {
                        *value = f64::NAN;
                    }
                }
                Coming::Row(_) | Coming::Doubtful(..) => {}
            }
        }
    }
}

fn lay_row(row: &Run, fetch: &Fetch, cells: &mut Cells) {
    let from = row.first_slot.max(fetch.first_slot);
    let until = row.first_slot.saturating_add(row.values.len() as u32).min(fetch.end_slot);
    if until <= from {
        return;
    }
    let len = (until - fetch.first_slot) as usize;
    if cells.values.len() < len {
        cells.values.resize(len, f64::NAN);
    }
    if fetch.table.aggregated && cells.counts.len() < cells.values.len() {
        cells.counts.resize(cells.values.len(), 0);
    }
    for slot in from..until {
        let (place, of_row) = ((slot - fetch.first_slot) as usize, (slot - row.first_slot) as usize);
        if row.values[of_row].is_nan() {
            continue;
        }
        cells.values[place] = row.values[of_row];
        cells.note_newest(place as u32);
        if fetch.table.aggregated {
            cells.counts[place] = row.counts.get(of_row).copied().unwrap_or(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use metric::{Aggregation, Stage};

    use super::*;

    #[test]
    fn rows_are_laid_over_the_part_of_an_answer_that_they_meet() {
        let table = |aggregated| Table { stage: Stage::new(10, 100).unwrap(), aggregated, rollup: None };
        let (metric, aggregation) = (MetricId(3), Aggregation::Sum);
        let fetch = Fetch { metric, name: "m".into(), table: table(true), first_slot: 10, end_slot: 14, aggregation };
        let row = |first_slot, value: f64| Run {
            metric,
            name: "m".into(),
            table: table(true),
            first_slot,
            values: vec![value, f64::NAN, value],
            counts: vec![2, 0, 2],
            aggregation,
        };
        let mut coming = ComingRows::default();
        coming.add([row(8, 1.0), row(9, 2.0), row(13, 3.0), Run { table: table(false), ..row(10, 9.0) }]);
        let mut cells = Cells::default();
        coming.lay_over(&fetch, &mut cells);
        assert_eq!((&cells.values[..2], &cells.counts[..]), (&[1.0, 2.0][..], &[2, 2, 0, 2][..]));
        assert!(cells.values[2].is_nan() && cells.values[3] == 3.0);
        coming.add_doubtful(metric, table(true), 11);
        coming.lay_over(&fetch, &mut cells);
        assert!(cells.values[0] == 1.0 && cells.values[1].is_nan());
    }
}
