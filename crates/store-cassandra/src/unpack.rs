//! Runs of packed tables laid over each other, and over the rows of BigGraphite's tables: the newest write of a slot wins. Pure.

use std::ops::Range;

use codec::{Codec, Damaged, open_run, segments};
use metric::Table;
use uuid::Uuid;

use crate::{
    damaged_runs::DamagedRun,
    merge::Row,
    packed_wire::PackedCell,
    rows::Part,
    run_key::{self, KeySlots},
    undecodable::Undecodable,
    wire::PartialRow,
};

/// A run that was read.
#[derive(Debug, Clone)]
pub(crate) struct OpenRun<'a> {
    pub(crate) shard: i16,
    /// When it was written, microseconds.
    time: i64,
    content: Content<'a>,
}

#[derive(Debug, Clone)]
enum Content<'a> {
    Intact {
        /// Its checksum is right.
        row: &'a [u8],
        /// From its first to its last offset in the partition.
        slots: Range<usize>,
    },
    /// What was written last of these slots is not known: no earlier write may stand in for it.
    Damaged(KeySlots<'a>),
}

impl OpenRun<'_> {
    fn is_damaged(&self) -> bool {
        matches!(self.content, Content::Damaged(_))
    }

    /// By the time of the write; of one moment, what cannot be read may be the later write.
    fn order(&self) -> (i64, bool) {
        (self.time, self.is_damaged())
    }
}

/// The runs of a partition that may have slots of a part, the oldest write first; and which of them could not be opened.
pub(crate) fn open_runs<'a>(
    (table, metric, part): (Table, Uuid, Part),
    cells: impl Iterator<Item = Result<PackedCell<'a>, Undecodable>>,
) -> Result<(Vec<OpenRun<'a>>, Vec<DamagedRun>), Undecodable> {
    let (mut runs, mut damage) = (Vec::new(), Vec::new());
    for cell in cells {
        open((table, metric, part), cell?, &mut runs, &mut damage);
    }
    runs.sort_by_key(OpenRun::order);
    Ok((runs, damage))
}

/// Opens a run, if it has slots of a part.
fn open<'a>(
    (table, metric, part): (Table, Uuid, Part),
    cell: PackedCell<'a>,
    runs: &mut Vec<OpenRun<'a>>,
    damage: &mut Vec<DamagedRun>,
) {
    let PackedCell { offset, shard, points, time, .. } = cell;
    let place = run_key::place(table, metric, part.time_start_ms, offset, shard);
    match open_run(&place, points).and_then(|row| Ok((row, extent(row)?))) {
        Ok((row, slots)) => {
            if slots.start < part.until as usize && (part.from as usize) < slots.end {
                runs.push(OpenRun { shard, time, content: Content::Intact { row, slots } });
            }
        }
        Err(error) => {
            let slots = KeySlots::new(table.aggregated, offset, cell.count, cell.holes);
            if slots.within(part).next().is_some() {
                runs.push(OpenRun { shard, time, content: Content::Damaged(slots) });
                damage.push(DamagedRun::new((metric, part), cell, slots, error));
            }
        }
    }
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

/// Places of a part whose last write is damaged, in no order. Their value is NaN.
#[derive(Debug, Default)]
pub(crate) struct Hidden(Vec<u32>);

impl Hidden {
    /// The places that no later write has given a value, as ranges.
    pub(crate) fn ranges(mut self, values: &[f64]) -> Vec<Range<u32>> {
        self.0.retain(|&place| values.get(place as usize).is_some_and(|value| value.is_nan()));
        self.0.sort_unstable();
        self.0.dedup();
        let stretches = self.0.chunk_by(|one, next| one + 1 == *next);
        stretches.map(|of| of[0]..of[0] + of.len() as u32).collect()
    }
}

/// Decodes runs over columns of a part, the later ones over the earlier. Returns whether any has a value there.
pub(crate) fn lay(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    values: &mut [f64],
    counts: &mut [u32],
    hidden: &mut Hidden,
) -> Result<bool, Damaged> {
    let mut any = false;
    for run in runs {
        match &run.content {
            Content::Intact { row, .. } => {
                any |= codec.decode(row, part.from as usize..part.until as usize, values, counts)?;
            }
            Content::Damaged(slots) => {
                for place in slots.within(part).map(|slot| slot - part.from as usize) {
                    values[place] = f64::NAN;
                    counts.iter_mut().skip(place).take(1).for_each(|count| *count = 0);
                    hidden.0.push(place as u32);
                }
            }
        }
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
    hidden: &mut Hidden,
) -> Result<(), Damaged> {
    let mut decoded = Vec::new();
    for run in runs {
        let (row, slots) = match &run.content {
            Content::Intact { row, slots } => (row, within(slots, part)),
            Content::Damaged(slots) => {
                for place in slots.within(part).map(|slot| slot - part.from as usize) {
                    if times[place] <= run.time {
                        (values[place], times[place]) = (f64::NAN, run.time);
                        hidden.0.push(place as u32);
                    }
                }
                continue;
            }
        };
        decoded.clear();
        decoded.resize(slots.len(), f64::NAN);
        codec.decode(row, slots.clone(), &mut decoded, &mut [])?;
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
    /// When it was written, and in what: of equal times the last of these is believed.
    written: (i64, In),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum In {
    Row,
    Run,
    DamagedRun,
}

/// Passes on the rows of each slot of an aggregated partition, in the order of their shards: the newest write of each
/// shard, from runs and from rows. And the shards whose newest write is damaged.
pub(crate) fn partials(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    rows: impl Iterator<Item = Result<PartialRow, Undecodable>>,
    each: impl FnMut(i16, &[Row], &[i16]),
) -> Result<(), Undecodable> {
    let mut entries = Vec::new();
    for partial in rows {
        let PartialRow { offset, row, time } = partial?;
        entries.push(Entry { offset, row, written: (time, In::Row) });
    }
    Ok(newest_of_shards(codec, runs, part, entries, each)?)
}

/// As [`partials`], with the rows as entries.
fn newest_of_shards(
    codec: &mut Codec,
    runs: &[OpenRun<'_>],
    part: Part,
    mut entries: Vec<Entry>,
    mut each: impl FnMut(i16, &[Row], &[i16]),
) -> Result<(), Damaged> {
    let (mut values, mut counts) = (Vec::new(), Vec::new());
    for run in runs {
        let (row, slots) = match &run.content {
            Content::Intact { row, slots } => (row, within(slots, part)),
            Content::Damaged(slots) => {
                entries.extend(slots.within(part).map(|offset| Entry {
                    offset: offset as i16,
                    row: Row { shard: run.shard, value: f64::NAN, count: 0 },
                    written: (run.time, In::DamagedRun),
                }));
                continue;
            }
        };
        values.clear();
        values.resize(slots.len(), f64::NAN);
        counts.clear();
        counts.resize(slots.len(), 0);
        codec.decode(row, slots.clone(), &mut values, &mut counts)?;
        let cells = slots.zip(values.iter().zip(&counts)).filter(|(_, (value, _))| !value.is_nan());
        entries.extend(cells.map(|(offset, (&value, &count))| Entry {
            offset: offset as i16,
            row: Row { shard: run.shard, value, count: i64::from(count) },
            written: (run.time, In::Run),
        }));
    }
    entries.sort_by_key(|entry| (entry.offset, entry.row.shard, entry.written));
    let (mut slot, mut damaged): (Vec<Row>, Vec<i16>) = (Vec::new(), Vec::new());
    for of_slot in entries.chunk_by(|one, next| one.offset == next.offset) {
        slot.clear();
        damaged.clear();
        for of_shard in of_slot.chunk_by(|one, next| one.row.shard == next.row.shard) {
            let Some(newest) = of_shard.last() else { continue };
            match newest.written.1 {
                In::DamagedRun => damaged.push(newest.row.shard),
                // A packed partial that counts nothing was taken away.
                In::Run if newest.row.count == 0 => {}
                In::Run | In::Row => slot.push(newest.row),
            }
        }
        each(of_slot[0].offset, &slot, &damaged);
    }
    Ok(())
}

fn within(slots: &Range<usize>, part: Part) -> Range<usize> {
    slots.start.max(part.from as usize)..slots.end.min(part.until as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::packed_row;

    const PART: Part = Part { time_start_ms: 0, from: 100, until: 108, first_slot: 100 };

    fn table(aggregated: bool) -> Table {
        Table { stage: metric::Stage::new(60, 10080).unwrap(), aggregated, rollup: None }
    }

    /// What is stored of a run from an offset on: a digit a slot. In a coarse stage each counts 1, and a 0 nothing.
    struct Stored {
        shard: i16,
        time: i64,
        first: i16,
        slots: &'static str,
        is_damaged: bool,
    }

    fn run(shard: i16, time: i64, first: i16, slots: &'static str) -> Stored {
        Stored { shard, time, first, slots, is_damaged: false }
    }

    fn damaged(shard: i16, time: i64, first: i16, slots: &'static str) -> Stored {
        Stored { is_damaged: true, ..run(shard, time, first, slots) }
    }

    /// Calls with the runs as they are opened.
    fn opened<T>(aggregated: bool, stored: &[Stored], call: impl FnOnce(&[OpenRun<'_>]) -> T) -> T {
        let rows: Vec<_> = stored
            .iter()
            .map(|Stored { shard, first, slots, .. }| {
                let digit = |slot: char| slot.to_digit(10).map_or(f64::NAN, f64::from);
                let values: Vec<f64> = slots.chars().map(digit).collect();
                let counts: Vec<u32> = values.iter().map(|value| u32::from(*value > 0.0)).collect();
                let counts = if aggregated { &counts[..] } else { &[] };
                packed_row(&mut Codec::new(), table(aggregated), (Uuid::nil(), 0), *shard, *first, &values, counts)
            })
            .collect();
        let cells = stored.iter().zip(&rows).map(|(stored, row)| PackedCell {
            offset: row.offset,
            shard: row.shard,
            count: row.count,
            holes: &row.holes,
            points: if stored.is_damaged { &row.points[1..] } else { &row.points },
            time: stored.time,
        });
        let (mut runs, mut damage) = (Vec::new(), Vec::new());
        cells.for_each(|cell| open((table(aggregated), Uuid::nil(), PART), cell, &mut runs, &mut damage));
        runs.sort_by_key(OpenRun::order);
        assert_eq!(damage.len(), runs.iter().filter(|run| run.is_damaged()).count());
        call(&runs)
    }

    /// Slots as digits, `-` for nothing and `!` for damage.
    fn shown(values: &[f64], hidden: Hidden) -> String {
        let hidden: Vec<u32> = hidden.ranges(values).into_iter().flatten().collect();
        let slot = |(place, value): (u32, &f64)| match value {
            _ if hidden.contains(&place) => '!',
            value if value.is_nan() => '-',
            value => char::from_digit(*value as u32, 10).unwrap(),
        };
        (0..).zip(values).map(slot).collect()
    }

    fn laid(stored: &[Stored]) -> String {
        opened(false, stored, |runs| {
            let (mut values, mut hidden) = (vec![f64::NAN; 8], Hidden::default());
            lay(&mut Codec::new(), runs, PART, &mut values, &mut [], &mut hidden).unwrap();
            shown(&values, hidden)
        })
    }

    #[test]
    fn the_slots_whose_newest_write_is_damaged_are_damaged_and_no_others() {
        let older = || run(1, 1, 100, "11111111");
        assert_eq!(laid(&[older(), damaged(1, 2, 101, "22-2")]), "1!!1!111");
        assert_eq!(laid(&[damaged(1, 2, 101, "22-2")]), "-!!-!---");
        assert_eq!(laid(&[older(), damaged(1, 2, 101, "22-2"), run(2, 3, 102, "333")]), "1!333111");
        assert_eq!(laid(&[damaged(1, 1, 100, "11111111"), run(1, 2, 102, "2--2")]), "!!2!!2!!");
        // Runs that begin before the part, end after it, and are outside it.
        assert_eq!(laid(&[older(), damaged(1, 2, 98, "2222"), damaged(1, 2, 106, "2222")]), "!!1111!!");
        assert_eq!(laid(&[older(), damaged(1, 2, 90, "22"), damaged(1, 2, 98, "2---------2")]), "11111111");
        // Of one moment, the one that cannot be read may be the later one.
        assert_eq!(laid(&[damaged(1, 1, 100, "2"), older()]), "!1111111");
    }

    #[test]
    fn rows_under_a_damaged_run_do_not_stand_in_and_later_ones_are_right() {
        let over_rows = |stored: &[Stored]| {
            opened(false, stored, |runs| {
                let (mut values, mut hidden) = (vec![1.0; 8], Hidden::default());
                let mut times = [10, 10, 20, 20, 30, 30, 40, 40];
                lay_over_rows(&mut Codec::new(), runs, PART, &mut values, &mut times, &mut hidden).unwrap();
                shown(&values, hidden)
            })
        };
        assert_eq!(over_rows(&[damaged(1, 25, 100, "22222222")]), "!!!!1111");
        assert_eq!(over_rows(&[damaged(1, 30, 100, "22222222"), run(2, 31, 101, "33333333")]), "!3333311");
        assert_eq!(over_rows(&[run(1, 35, 100, "333"), damaged(1, 25, 100, "22222222")]), "333!1111");
    }

    #[test]
    fn of_a_coarse_slot_each_shard_counts_by_its_own_newest_write() {
        let by_shard = |stored: &[Stored], rows: &[PartialRow]| {
            opened(true, stored, |runs| {
                let mut slots = vec!["-".to_owned(); 8];
                let (mut entries, mut seen) = (Vec::new(), Vec::new());
                entries.extend(rows.iter().map(|row| Entry {
                    offset: row.offset,
                    row: row.row,
                    written: (row.time, In::Row),
                }));
                newest_of_shards(&mut Codec::new(), runs, PART, entries, |offset, rows, damaged| {
                    seen.push(offset);
                    let rows = rows.iter().map(|row| format!("{}={}", row.shard, row.value));
                    let damaged = damaged.iter().map(|shard| format!("{shard}!"));
                    slots[(offset - PART.from) as usize] = rows.chain(damaged).collect::<Vec<_>>().join(" ");
                })
                .unwrap();
                assert!(seen.is_sorted());
                slots.truncate(3);
                slots
            })
        };
        let both = || [run(1, 1, 100, "111"), run(2, 5, 100, "22")];
        let [one, two] = both();
        assert_eq!(by_shard(&[one, two], &[]), ["1=1 2=2", "1=1 2=2", "1=1"]);
        let [one, two] = both();
        assert_eq!(by_shard(&[one, two, damaged(1, 2, 101, "33")], &[]), ["1=1 2=2", "2=2 1!", "1!"]);
        // A later intact write of the shard is right, and so is one that takes the partial away; not one of another shard.
        let [one, two] = both();
        let stored = [one, two, damaged(1, 2, 100, "333"), run(1, 3, 100, "4"), run(1, 3, 101, "0")];
        assert_eq!(by_shard(&stored, &[]), ["1=4 2=2", "2=2", "1!"]);
        let row = |offset, time| PartialRow { offset, row: Row { shard: 1, value: 7.0, count: 1 }, time };
        assert_eq!(
            by_shard(&[damaged(1, 2, 100, "333")], &[row(100, 1), row(101, 2), row(102, 3)]),
            ["1!", "1!", "1=7"]
        );
    }
}
