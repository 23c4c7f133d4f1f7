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

/// The runs of a partition that may have slots of a part.
#[derive(Debug)]
pub(crate) struct OpenRuns<'a> {
    table: Table,
    metric: Uuid,
    part: Part,
    /// The oldest write first.
    runs: Vec<OpenRun<'a>>,
    /// Those that cannot be read.
    damage: Vec<DamagedRun>,
}

/// A run that was read.
#[derive(Debug, Clone)]
struct OpenRun<'a> {
    cell: PackedCell<'a>,
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
    /// By the time of the write; of one moment, what cannot be read may be the later write.
    fn order(&self) -> (i64, bool) {
        (self.cell.time, matches!(self.content, Content::Damaged(_)))
    }
}

impl<'a> OpenRuns<'a> {
    pub(crate) fn new(
        (table, metric, part): (Table, Uuid, Part),
        cells: impl Iterator<Item = Result<PackedCell<'a>, Undecodable>>,
    ) -> Result<OpenRuns<'a>, Undecodable> {
        let mut open = OpenRuns { table, metric, part, runs: Vec::new(), damage: Vec::new() };
        for cell in cells {
            open.open(cell?);
        }
        open.runs.sort_by_key(OpenRun::order);
        Ok(open)
    }

    /// Whether all of them have one shard.
    pub(crate) fn are_of_one_shard(&self) -> bool {
        self.runs.iter().all(|run| run.cell.shard == self.runs[0].cell.shard)
    }

    /// Those that cannot be read.
    pub(crate) fn into_damage(self) -> Vec<DamagedRun> {
        self.damage
    }

    /// Takes a run, if it has slots of the part.
    fn open(&mut self, cell: PackedCell<'a>) {
        let PackedCell { offset, shard, points, .. } = cell;
        let place = run_key::place(self.table, self.metric, self.part.time_start_ms, offset, shard);
        match open_run(&place, points).and_then(|row| intact(self.table, cell, row)) {
            Ok((_, slots)) if within(&slots, self.part).is_empty() => {}
            Ok((row, slots)) => self.runs.push(OpenRun { cell, content: Content::Intact { row, slots } }),
            Err(error) => {
                let damaged = self.damaged(cell, error);
                self.runs.extend(damaged.map(|content| OpenRun { cell, content }));
            }
        }
    }

    /// Notes that a run cannot be read, if it has slots of the part.
    fn damaged(&mut self, cell: PackedCell<'a>, why: Damaged) -> Option<Content<'a>> {
        let slots = KeySlots::new(self.table.aggregated, cell.offset, cell.count, cell.holes);
        slots.within(self.part).next()?;
        self.damage.push(DamagedRun::new((self.metric, self.part), cell, slots, why));
        Some(Content::Damaged(slots))
    }

    /// Makes those damaged that do not decode, though their checksum is right: no encoder of ours wrote them. Called only after one did
    /// not, as it costs as much as the decoding.
    pub(crate) fn decode_all(&mut self, codec: &mut Codec) {
        let (mut values, mut counts) = (Vec::new(), Vec::new());
        for mut run in std::mem::take(&mut self.runs) {
            if let Content::Intact { row, slots } = &run.content {
                let slots = within(slots, self.part);
                values.resize(slots.len(), f64::NAN);
                counts.resize(if self.table.aggregated { slots.len() } else { 0 }, 0);
                if let Err(error) = codec.decode(row, slots, &mut values, &mut counts) {
                    let Some(damaged) = self.damaged(run.cell, error) else { continue };
                    run.content = damaged;
                }
            }
            self.runs.push(run);
        }
        self.runs.sort_by_key(OpenRun::order);
    }
}

/// A run whose checksum is right, and its slots; damaged where no node writes such a one: each read would decode all of it.
fn intact<'a>(table: Table, cell: PackedCell<'_>, row: &'a [u8]) -> Result<(&'a [u8], Range<usize>), Damaged> {
    if run_key::RUN_BYTES < row.len() {
        return Err(Damaged::new("a run has more bytes than its slots may take"));
    }
    let slots = extent(row)?;
    let of_key = run_key::places(table.aggregated, cell.offset);
    if slots.is_empty() || of_key.start == slots.start && slots.end <= of_key.end {
        return Ok((row, slots));
    }
    Err(Damaged::new("a run has slots that are not those of its key"))
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

impl OpenRuns<'_> {
    /// Decodes the runs over columns of the part, the later ones over the earlier. Returns whether any has a value there.
    /// After an error part of the columns may be written.
    pub(crate) fn lay(
        &self,
        codec: &mut Codec,
        values: &mut [f64],
        counts: &mut [u32],
        hidden: &mut Hidden,
    ) -> Result<bool, Damaged> {
        let (part, mut any) = (self.part, false);
        for run in &self.runs {
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

    /// Lays the runs over the points of rows that were written at `times`: the later one of each slot stays. The columns are those of
    /// the part; after an error part of them may be written.
    pub(crate) fn lay_over_rows(
        &self,
        codec: &mut Codec,
        values: &mut [f64],
        times: &mut [i64],
        hidden: &mut Hidden,
    ) -> Result<(), Damaged> {
        let (part, mut decoded) = (self.part, Vec::new());
        for run in &self.runs {
            let written = run.cell.time;
            let (row, slots) = match &run.content {
                Content::Intact { row, slots } => (row, within(slots, part)),
                Content::Damaged(slots) => {
                    for place in slots.within(part).map(|slot| slot - part.from as usize) {
                        if times[place] <= written {
                            (values[place], times[place]) = (f64::NAN, written);
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
                if *time <= written {
                    (*value, *time) = (*new, written);
                }
            }
        }
        Ok(())
    }
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

impl OpenRuns<'_> {
    /// Passes on the rows of each slot of an aggregated partition, in the order of their shards: the newest write of each
    /// shard, from runs and from rows. And the shards whose newest write is damaged.
    pub(crate) fn partials(
        &mut self,
        codec: &mut Codec,
        rows: impl Iterator<Item = Result<PartialRow, Undecodable>>,
        mut each: impl FnMut(i16, &[Row], &[i16]),
    ) -> Result<(), Undecodable> {
        let mut entries = Vec::new();
        for partial in rows {
            let PartialRow { offset, row, time } = partial?;
            entries.push(Entry { offset, row, written: (time, In::Row) });
        }
        let rows = entries.len();
        if self.add_entries(codec, &mut entries).is_err() {
            entries.truncate(rows);
            self.decode_all(codec);
            self.add_entries(codec, &mut entries)?;
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

    /// Adds the partials of the runs.
    fn add_entries(&self, codec: &mut Codec, entries: &mut Vec<Entry>) -> Result<(), Damaged> {
        let (part, mut values, mut counts) = (self.part, Vec::new(), Vec::new());
        for OpenRun { cell: PackedCell { shard, time, .. }, content } in &self.runs {
            let (shard, time) = (*shard, *time);
            let (row, slots) = match content {
                Content::Intact { row, slots } => (row, within(slots, part)),
                Content::Damaged(slots) => {
                    entries.extend(slots.within(part).map(|offset| Entry {
                        offset: offset as i16,
                        row: Row { shard, value: f64::NAN, count: 0 },
                        written: (time, In::DamagedRun),
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
                row: Row { shard, value, count: i64::from(count) },
                written: (time, In::Run),
            }));
        }
        Ok(())
    }
}

/// The slots that are of a part.
fn within(slots: &Range<usize>, part: Part) -> Range<usize> {
    slots.start.max(part.from as usize)..slots.end.min(part.until as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pack::packed_row, packed_wire::PackedRow};

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
        harm: Harm,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Harm {
        None,
        Checksum,
        /// The checksum is right, and the content of the run ends early.
        Content,
    }

    impl Stored {
        fn row(&self, aggregated: bool) -> PackedRow {
            let Stored { shard, first, slots, harm, .. } = *self;
            let digit = |slot: char| slot.to_digit(10).map_or(f64::NAN, f64::from);
            let values: Vec<f64> = slots.chars().map(digit).collect();
            let counts: Vec<u32> = values.iter().map(|value| u32::from(*value > 0.0)).collect();
            let counts = if aggregated { &counts[..] } else { &[] };
            let place = (Uuid::nil(), 0);
            let mut row = packed_row(&mut Codec::new(), table(aggregated), place, shard, first, &values, counts);
            match harm {
                Harm::None => {}
                Harm::Checksum => _ = row.points.remove(0),
                Harm::Content => {
                    // Values with many digits, so that more than a few bits can be wrong.
                    let values: Vec<f64> =
                        (1..).zip(&values).map(|(n, value)| value * f64::from(n).sqrt().sin()).collect();
                    let mut whole = Vec::new();
                    Codec::new().encode(first as usize, &values, counts, &mut whole);
                    row.points = broken(&whole, aggregated);
                    codec::seal_run(
                        &run_key::place(table(aggregated), Uuid::nil(), 0, row.offset, shard),
                        &mut row.points,
                    );
                }
            }
            row
        }
    }

    /// A row with another byte, so that it has the same slots and does not decode, behind a byte for the version.
    fn broken(row: &[u8], aggregated: bool) -> Vec<u8> {
        let mut codec = Codec::new();
        let mut fails = |bytes: &[u8]| {
            let (mut values, mut counts) = (vec![0.0; 500], vec![0; if aggregated { 500 } else { 0 }]);
            extent(bytes).is_ok_and(|slots| slots == extent(row).unwrap())
                && codec.decode(bytes, 0..500, &mut values, &mut counts).is_err()
        };
        for at in 0..row.len() {
            for other in 0..=u8::MAX {
                let mut bytes = row.to_vec();
                bytes[at] = other;
                if fails(&bytes) {
                    bytes.insert(0, 0);
                    return bytes;
                }
            }
        }
        panic!("every change of a byte decodes");
    }

    fn run(shard: i16, time: i64, first: i16, slots: &'static str) -> Stored {
        Stored { shard, time, first, slots, harm: Harm::None }
    }

    fn damaged(shard: i16, time: i64, first: i16, slots: &'static str) -> Stored {
        Stored { harm: Harm::Checksum, ..run(shard, time, first, slots) }
    }

    /// It ends behind the part.
    fn undecodable(shard: i16, time: i64, first: i16) -> Stored {
        Stored { harm: Harm::Content, ..run(shard, time, first, "2".repeat(300).leak()) }
    }

    /// Calls with the runs as they are opened.
    fn opened<T>(aggregated: bool, stored: &[Stored], call: impl FnOnce(&mut OpenRuns<'_>) -> T) -> T {
        let rows: Vec<_> = stored.iter().map(|stored| stored.row(aggregated)).collect();
        let cells = stored.iter().zip(&rows).map(|(stored, row)| PackedCell {
            offset: row.offset,
            shard: row.shard,
            count: row.count,
            holes: &row.holes,
            points: &row.points,
            time: stored.time,
        });
        let mut open = OpenRuns::new((table(aggregated), Uuid::nil(), PART), cells.map(Ok)).unwrap();
        let known = open.damage.len();
        if stored.iter().all(|stored| stored.harm != Harm::Content) {
            assert_eq!(known, open.runs.iter().filter(|run| matches!(run.content, Content::Damaged(_))).count());
        }
        call(&mut open)
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
            let lay = |runs: &OpenRuns<'_>| {
                let (mut values, mut hidden) = (vec![f64::NAN; 8], Hidden::default());
                let laid = runs.lay(&mut Codec::new(), &mut values, &mut [], &mut hidden);
                laid.map(|_| shown(&values, hidden))
            };
            lay(runs).unwrap_or_else(|_| {
                runs.decode_all(&mut Codec::new());
                lay(runs).unwrap()
            })
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
        // One whose checksum is right is found when it does not decode.
        assert_eq!(laid(&[older(), undecodable(1, 2, 101), run(2, 3, 102, "333")]), "1!333!!!");
        assert_eq!(laid(&[undecodable(1, 1, 105), older()]), "11111!!!");
        // A run of more slots than one has.
        assert_eq!(laid(&[run(1, 1, 101, "2".repeat(501).leak()), older()]), "1!!!!!!!");
    }

    #[test]
    fn rows_under_a_damaged_run_do_not_stand_in_and_later_ones_are_right() {
        let over_rows = |stored: &[Stored]| {
            opened(false, stored, |runs| {
                let (mut values, mut hidden) = (vec![1.0; 8], Hidden::default());
                let mut times = [10, 10, 20, 20, 30, 30, 40, 40];
                runs.lay_over_rows(&mut Codec::new(), &mut values, &mut times, &mut hidden).unwrap();
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
                let mut seen = Vec::new();
                runs.partials(&mut Codec::new(), rows.iter().map(|row| Ok(*row)), |offset, rows, damaged| {
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
        let [one, two] = both();
        assert_eq!(by_shard(&[one, two, undecodable(1, 2, 101)], &[]), ["1=1 2=2", "2=2 1!", "1!"]);
        let row = |offset, time| PartialRow { offset, row: Row { shard: 1, value: 7.0, count: 1 }, time };
        assert_eq!(
            by_shard(&[damaged(1, 2, 100, "333")], &[row(100, 1), row(101, 2), row(102, 3)]),
            ["1!", "1!", "1=7"]
        );
    }
}
