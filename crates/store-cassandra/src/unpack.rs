//! Runs of packed tables laid over each other, and over the rows of BigGraphite's tables: the newest write of a slot wins. Pure.

use std::ops::Range;

use codec::{Codec, Damaged, open_run, segments};
use metric::Table;
use scylla::response::query_result::QueryRowsResult;
use uuid::Uuid;

use crate::{merge::Row, packed_wire::PackedCell, rows::Part, run_key, undecodable::Undecodable, wire::PartialRow};

/// A run that was read, with its checksum checked.
#[derive(Debug, Clone)]
pub(crate) struct OpenRun<'a> {
    pub(crate) shard: i16,
    /// When it was written, microseconds.
    time: i64,
    row: &'a [u8],
    /// From its first to its last offset in the partition.
    slots: Range<usize>,
}

/// The runs that may have slots of a part, the oldest write first; and why another could not be opened.
pub(crate) fn open_runs<'a>(
    (table, metric, part): (Table, Uuid, Part),
    pages: &'a [QueryRowsResult],
) -> Result<(Vec<OpenRun<'a>>, Option<Damaged>), Undecodable> {
    let (mut runs, mut damage) = (Vec::new(), None);
    for page in pages {
        for cell in page.rows::<PackedCell<'a>>()? {
            let PackedCell { offset, shard, points, time } = cell?;
            let place = run_key::place(table, metric, part.time_start_ms, offset, shard);
            match open_run(&place, points).and_then(|row| Ok((row, extent(row)?))) {
                Ok((row, slots)) => {
                    if slots.start < part.until as usize && (part.from as usize) < slots.end {
                        runs.push(OpenRun { shard, time, row, slots });
                    }
                }
                Err(error) => damage = Some(error),
            }
        }
    }
    runs.sort_by_key(|run| run.time);
    Ok((runs, damage))
}

/// From the first to the last offset of a row.
fn extent(row: &[u8]) -> Result<Range<usize>, Damaged> {
    let mut extent: Option<Range<usize>> = None;
    for segment in segments(row) {
        let slots = segment?.slots;
        extent = Some(match extent {
            None => slots,
            Some(before) => before.start.min(slots.start)..before.end.max(slots.end),
        });
    }
    Ok(extent.unwrap_or_default())
}

/// Decodes runs over columns of a part, the later ones over the earlier. Returns whether any has a value there.
pub(crate) fn lay(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    values: &mut [f64],
    counts: &mut [u32],
) -> Result<bool, Damaged> {
    let mut any = false;
    for run in runs {
        any |= codec.decode(run.row, part.from as usize..part.until as usize, values, counts)?;
    }
    Ok(any)
}

/// Lays runs over the points of rows that were written at `times`: the later one of each slot stays. The columns are those of the part.
pub(crate) fn lay_over_rows(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    values: &mut [f64],
    times: &mut [i64],
) -> Result<(), Damaged> {
    let mut decoded = Vec::new();
    for run in runs {
        let slots = within(run, part);
        decoded.clear();
        decoded.resize(slots.len(), f64::NAN);
        codec.decode(run.row, slots.clone(), &mut decoded, &mut [])?;
        let at = slots.start - part.from as usize;
        let stored = values.iter_mut().zip(times.iter_mut()).skip(at);
        for (new, (value, time)) in decoded.iter().zip(stored).filter(|(new, _)| !new.is_nan()) {
            // Of equal times the packed one.
            if *time <= run.time {
                (*value, *time) = (*new, run.time);
            }
        }
    }
    Ok(())
}

/// A partial of a writer in one slot.
struct Entry {
    offset: i16,
    row: Row,
    /// When it was written, and whether it is packed: of equal times that one is believed.
    written: (i64, bool),
}

/// Passes on the rows of each slot of an aggregated partition, in the order of their shards: the newest write of each
/// shard, from runs and from rows.
pub(crate) fn partials(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    pages: &[QueryRowsResult],
    mut each: impl FnMut(i16, &[Row]),
) -> Result<(), Undecodable> {
    let mut entries = Vec::new();
    for page in pages {
        for partial in page.rows::<PartialRow>()? {
            let PartialRow { offset, row, time } = partial?;
            entries.push(Entry { offset, row, written: (time, false) });
        }
    }
    let (mut values, mut counts) = (Vec::new(), Vec::new());
    for run in runs {
        let slots = within(run, part);
        values.clear();
        values.resize(slots.len(), f64::NAN);
        counts.clear();
        counts.resize(slots.len(), 0);
        codec.decode(run.row, slots.clone(), &mut values, &mut counts)?;
        let cells = slots.zip(values.iter().zip(&counts)).filter(|(_, (value, _))| !value.is_nan());
        entries.extend(cells.map(|(offset, (&value, &count))| Entry {
            offset: offset as i16,
            row: Row { shard: run.shard, value, count: i64::from(count) },
            written: (run.time, true),
        }));
    }
    entries.sort_by_key(|entry| (entry.offset, entry.row.shard, entry.written));
    let mut slot: Vec<Row> = Vec::new();
    for of_slot in entries.chunk_by(|one, next| one.offset == next.offset) {
        slot.clear();
        for of_shard in of_slot.chunk_by(|one, next| one.row.shard == next.row.shard) {
            let Some(newest) = of_shard.last() else { continue };
            // A packed partial that counts nothing was taken away.
            if !(newest.written.1 && newest.row.count == 0) {
                slot.push(newest.row);
            }
        }
        each(of_slot[0].offset, &slot);
    }
    Ok(())
}

fn within(run: &OpenRun<'_>, part: Part) -> Range<usize> {
    run.slots.start.max(part.from as usize)..run.slots.end.min(part.until as usize)
}
