//! What is stored of a partition, put into the cells of a fetch: rows, packed runs, or both. Pure.
//!
//! [`crate::read`] reads it from Cassandra, [`crate::in_memory`] from the tables of a rehearsal.

use std::ops::Range;

use codec::Codec;
use metric::Table;
use store::{Cells, Fetch};
use uuid::Uuid;

use crate::{
    damaged_runs::DamagedRun,
    merge::{Row, merge},
    packed_wire::PackedCell,
    rows::Part,
    undecodable::Undecodable,
    unpack::{Hidden, OpenRuns},
    wire::{PartialRow, PointRow},
};

/// What is stored of a partition: its rows in the order of their keys, and its runs.
pub(crate) trait Stored {
    /// The id of its metric.
    fn metric(&self) -> Uuid;

    fn has_rows(&self) -> bool;

    /// Whether it has packed runs. Its rows have the times of their writes then.
    fn has_runs(&self) -> bool;

    /// The rows of a stage-0 table.
    fn points(&self) -> impl Iterator<Item = Result<PointRow, Undecodable>>;

    /// The rows of an aggregated table.
    fn partials(&self) -> impl Iterator<Item = Result<PartialRow, Undecodable>>;

    fn runs(&self) -> impl Iterator<Item = Result<PackedCell<'_>, Undecodable>>;
}

/// Puts what is stored of a partition where it belongs. Returns the runs that cannot be read.
pub(crate) fn fill(
    wanted: &Fetch,
    part: Part,
    stored: &impl Stored,
    codec: &mut Codec,
    cells: &mut Cells,
) -> Result<Vec<DamagedRun>, Undecodable> {
    if stored.has_runs() {
        return packed(wanted, part, stored, codec, cells);
    }
    match wanted.table.aggregated {
        false => points(wanted, part, stored, cells)?,
        true => partials(stored, |offset, rows| partial(wanted, part, offset, rows, cells))?,
    }
    Ok(Vec::new())
}

/// Passes on the rows of each slot of an aggregated partition, in the order of their shards, and the shards whose rows are
/// damaged.
pub(crate) fn each_slot(
    table: Table,
    part: Part,
    stored: &impl Stored,
    mut each: impl FnMut(i16, &[Row], &[i16]),
) -> Result<(), Undecodable> {
    if !stored.has_runs() {
        return partials(stored, |offset, rows| each(offset, rows, &[]));
    }
    let mut runs = OpenRuns::new((table, stored.metric(), part), stored.runs())?;
    runs.partials(&mut Codec::new(), stored.partials(), each)
}

/// Puts the partial of a slot where it belongs.
fn partial(wanted: &Fetch, part: Part, offset: i16, rows: &[Row], cells: &mut Cells) {
    let merged = merge(wanted.aggregation, rows);
    if let Some(at) = index(wanted, part, offset).filter(|_| merged.count > 0) {
        allocate(wanted, cells);
        cells.values[at] = merged.value;
        cells.counts[at] = merged.count;
    }
}

/// Puts the runs of a partition, and its rows, where they belong. Returns the runs that cannot be read.
fn packed(
    wanted: &Fetch,
    part: Part,
    stored: &impl Stored,
    codec: &mut Codec,
    cells: &mut Cells,
) -> Result<Vec<DamagedRun>, Undecodable> {
    let mut runs = OpenRuns::new((wanted.table, stored.metric(), part), stored.runs())?;
    let is_alone = !stored.has_rows() && runs.are_of_one_shard();
    if wanted.table.aggregated && !is_alone {
        runs.partials(codec, stored.partials(), |offset, rows, damaged| {
            match index(wanted, part, offset).filter(|_| !damaged.is_empty()) {
                // The rows of other shards are not all that was stored.
                Some(at) => cells.note_damage_at(at as u32..at as u32 + 1),
                None => partial(wanted, part, offset, rows, cells),
            }
        })?;
        return Ok(runs.into_damage());
    }
    let was_empty = cells.values.is_empty();
    allocate(wanted, cells);
    let from = (part.first_slot - wanted.first_slot) as usize;
    let slots = from..from + (part.until - part.from) as usize;
    let laid = match lay(part, stored, &runs, codec, cells, slots.clone()) {
        Err(Undecodable::Run(_)) => {
            cells.values[slots.clone()].fill(f64::NAN);
            cells.counts.get_mut(slots.clone()).into_iter().for_each(|counts| counts.fill(0));
            runs.decode_all(codec);
            lay(part, stored, &runs, codec, cells, slots)
        }
        laid => laid,
    };
    let (any, hidden) = laid?;
    if was_empty && !any {
        (cells.values, cells.counts) = (Vec::new(), Vec::new());
    }
    let from = from as u32;
    hidden.into_iter().for_each(|places| cells.note_damage_at(from + places.start..from + places.end));
    Ok(runs.into_damage())
}

/// Puts runs, and the rows of a stage-0 partition, into the places `slots` of a fetch. Returns whether any of them has a value, and the
/// places whose value is damaged, as slots of the part.
fn lay(
    part: Part,
    stored: &impl Stored,
    runs: &OpenRuns<'_>,
    codec: &mut Codec,
    cells: &mut Cells,
    slots: Range<usize>,
) -> Result<(bool, Vec<Range<u32>>), Undecodable> {
    let values = &mut cells.values[slots.clone()];
    let mut hidden = Hidden::default();
    // As many as values in a coarse stage, and none in the first.
    if let Some(counts) = cells.counts.get_mut(slots) {
        runs.lay(codec, values, counts, &mut hidden)?;
        let hidden = hidden.ranges(values);
        // What counts nothing was taken away.
        values.iter_mut().zip(&*counts).filter(|(_, count)| **count == 0).for_each(|(value, _)| *value = f64::NAN);
        return Ok((values.iter().any(|value| !value.is_nan()), hidden));
    }
    if !stored.has_rows() {
        let any = runs.lay(codec, values, &mut [], &mut hidden)?;
        return Ok((any, hidden.ranges(values)));
    }
    let mut times = vec![i64::MIN; values.len()];
    for point in stored.points() {
        let point = point?;
        let at = (i32::from(point.offset) - i32::from(part.from)) as usize;
        if let (Some(value), Some(time)) = (values.get_mut(at), times.get_mut(at)) {
            (*value, *time) = (point.value, point.time);
        }
    }
    runs.lay_over_rows(codec, values, &mut times, &mut hidden)?;
    Ok((true, hidden.ranges(values)))
}

/// As [`each_slot`], where there are rows alone: none of them is damaged.
fn partials(stored: &impl Stored, mut each: impl FnMut(i16, &[Row])) -> Result<(), Undecodable> {
    let mut slot: Vec<Row> = Vec::new();
    let mut offset = 0;
    for partial in stored.partials() {
        let partial = partial?;
        // The rows of a slot are consecutive.
        if partial.offset != offset && !slot.is_empty() {
            each(offset, &slot);
            slot.clear();
        }
        offset = partial.offset;
        slot.push(partial.row);
    }
    if !slot.is_empty() {
        each(offset, &slot);
    }
    Ok(())
}

/// Puts the points of a stage-0 partition where they belong.
fn points(fetch: &Fetch, part: Part, stored: &impl Stored, cells: &mut Cells) -> Result<(), Undecodable> {
    if !stored.has_rows() {
        return Ok(());
    }
    allocate(fetch, cells);
    // The place of this partition's slots in the column; other slots are left out.
    let from = (part.first_slot - fetch.first_slot) as usize;
    let slots = (part.until - part.from) as usize;
    let Some(column) = cells.values.get_mut(from..from + slots) else { return Ok(()) };
    for point in stored.points() {
        let point = point?;
        if let Some(value) = column.get_mut((i32::from(point.offset) - i32::from(part.from)) as usize) {
            *value = point.value;
        }
    }
    Ok(())
}

/// Which cell of a fetch an offset of one of its partitions is.
pub(crate) fn index(fetch: &Fetch, part: Part, offset: i16) -> Option<usize> {
    let inside = part.from <= offset && offset < part.until;
    inside.then(|| (part.first_slot - fetch.first_slot) as usize + (offset - part.from) as usize)
}

fn allocate(fetch: &Fetch, cells: &mut Cells) {
    if cells.values.is_empty() {
        let slots = fetch.end_slot.saturating_sub(fetch.first_slot) as usize;
        cells.values.resize(slots, f64::NAN);
        cells.counts.resize(if fetch.table.aggregated { slots } else { 0 }, 0);
    }
}
