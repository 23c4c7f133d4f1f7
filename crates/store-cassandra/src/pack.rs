//! Runs of points cut into the rows of packed tables: each of one partition, with the values that were written together.
//! Pure.

use codec::{Codec, seal_run};
use metric::{ROW_POINTS, Table, Timestamp};
use store::Run;
use uuid::Uuid;

use crate::{packed_wire::PackedRow, rows, run_key, timestamps::Times};

/// A row, and where it is written.
#[derive(Debug, PartialEq)]
pub(crate) struct Packed {
    pub(crate) table: Table,
    pub(crate) row: PackedRow,
}

/// The packed rows of some runs. Runs of a metric that follow each other go together where they are of one partition
/// and the later one has the later slots.
pub(crate) struct PackedRows<'a> {
    runs: &'a [Run],
    shard: i16,
    now: Timestamp,
    // Each run has its own, as in `Batches`: of two that write one slot the later wins.
    times: Times,
    run: usize,
    at: usize,
    // The id of the metric of the run of this index.
    id: Option<(usize, Uuid)>,
    codec: Codec,
    values: Vec<f64>,
    counts: Vec<u32>,
}

/// The slots that are collected for the next row.
#[derive(Clone, Copy)]
struct Open {
    table: Table,
    metric: Uuid,
    time_start_ms: i64,
    first: i16,
    timestamp: i64,
    ttl: i32,
}

/// The place of a value that is written.
struct Cell {
    time_start_ms: i64,
    offset: i16,
    ttl: i32,
}

impl<'a> PackedRows<'a> {
    /// `now` is Unix seconds; `times` are those of the runs.
    pub(crate) fn new(runs: &'a [Run], shard: i16, now: Timestamp, times: Times) -> PackedRows<'a> {
        let (values, counts, codec) = (Vec::new(), Vec::new(), Codec::new());
        PackedRows { runs, shard, now, times, run: 0, at: 0, id: None, codec, values, counts }
    }

    fn id(&mut self) -> Uuid {
        let name = &self.runs[self.run].name;
        let id = match self.id {
            Some((run, id)) if self.runs[run].name == *name => id,
            _ => rows::metric_id(name),
        };
        self.id = Some((self.run, id));
        id
    }

    /// The place of a value of a run, or `None` where there is nothing to write.
    fn cell(&self, run: &Run, at: usize) -> Option<Cell> {
        let slot = run.first_slot.checked_add(u32::try_from(at).ok()?)?;
        let ttl = rows::ttl(run.table.stage, slot, self.now).filter(|_| is_present(run, at))?;
        let (time_start_ms, offset) = rows::place(run.table.stage, slot);
        Some(Cell { time_start_ms, offset, ttl })
    }

    /// Adds the value at `self.at` of a run, and those that follow it without a gap in its partition, as far as a row goes. Returns the
    /// seconds that the last one has to live.
    fn add(&mut self, open: Open, cell: &Cell, run: &Run) -> i32 {
        let (begin, end) = ((cell.offset - open.first) as usize, run_key::RUN_SLOTS as usize);
        let of_partition = ROW_POINTS as usize - cell.offset as usize;
        // No slot after the last that has a number.
        let numbered = (u32::MAX - run.first_slot) as usize + 1;
        let until = (self.at + of_partition.min(end - begin)).min(run.values.len()).min(numbered);
        let until = (self.at + 1..until).find(|&at| !is_present(run, at)).unwrap_or(until);
        self.values.resize(begin, f64::NAN);
        self.values.extend_from_slice(&run.values[self.at..until]);
        if run.table.aggregated {
            self.counts.resize(begin, 0);
            self.counts.extend_from_slice(&run.counts[self.at..until]);
        }
        self.at = until;
        // A later slot lives longer.
        self.cell(run, until - 1).map_or(cell.ttl, |last| last.ttl)
    }

    fn seal(&mut self, open: Open) -> Packed {
        let Open { table, metric, time_start_ms, first, timestamp, ttl } = open;
        let row =
            packed_row(&mut self.codec, table, (metric, time_start_ms), self.shard, first, &self.values, &self.counts);
        self.values.clear();
        self.counts.clear();
        Packed { table, row: PackedRow { ttl, timestamp, ..row } }
    }
}

impl Iterator for PackedRows<'_> {
    type Item = Packed;

    fn next(&mut self) -> Option<Packed> {
        let mut open: Option<Open> = None;
        while let Some(run) = self.runs.get(self.run) {
            let metric = self.id();
            let timestamp = self.times.of(self.run);
            while self.at < run.values.len() {
                let Some(cell) = self.cell(run, self.at) else {
                    self.at += 1;
                    continue;
                };
                let Cell { time_start_ms, offset: first, ttl, .. } = cell;
                let mut begun = open.unwrap_or(Open { table: run.table, metric, time_start_ms, first, timestamp, ttl });
                let next = begun.first + self.values.len() as i16;
                let follows = (begun.table, begun.metric, begun.time_start_ms) == (run.table, metric, time_start_ms)
                    && (next..begun.first + run_key::RUN_SLOTS).contains(&cell.offset);
                if !follows {
                    return Some(self.seal(begun));
                }
                // The whole row lives as long as its last slot.
                (begun.timestamp, begun.ttl) = (timestamp, self.add(begun, &cell, run));
                open = Some(begun);
            }
            self.run += 1;
            self.at = 0;
        }
        open.map(|open| self.seal(open))
    }
}

/// Whether a run has a value there that is written.
fn is_present(run: &Run, at: usize) -> bool {
    !run.values[at].is_nan() && (!run.table.aggregated || run.counts.get(at).is_some_and(|&count| count > 0))
}

/// The row of values from `first` on. The first and the last value are present. The row has no time to live and no timestamp yet.
pub(crate) fn packed_row(
    codec: &mut Codec,
    table: Table,
    (metric, time_start_ms): (Uuid, i64),
    shard: i16,
    first: i16,
    values: &[f64],
    counts: &[u32],
) -> PackedRow {
    let offset = run_key::key_offset(table.aggregated, first);
    // A byte of version; most values take two or three bytes.
    let mut points = Vec::with_capacity(32 + 3 * values.len());
    points.push(0);
    codec.encode(first as usize, values, counts, &mut points);
    seal_run(&run_key::place(table, metric, time_start_ms, offset, shard), &mut points);
    let count = values.iter().filter(|value| !value.is_nan()).count() as i16;
    PackedRow {
        metric,
        time_start_ms,
        offset,
        shard,
        count,
        holes: run_key::holes(values),
        points,
        ttl: 0,
        timestamp: 0,
    }
}

#[cfg(test)]
mod tests {
    use codec::open_run;
    use metric::{Aggregation, MetricId, Stage};

    use super::*;

    const NOW: Timestamp = 1_800_000_000;

    fn run(name: &str, aggregated: bool, first_slot: u32, values: &[f64]) -> Run {
        let table = Table { stage: Stage::new(60, 10080).unwrap(), aggregated, rollup: None };
        let counts = if aggregated { vec![60; values.len()] } else { vec![] };
        let aggregation = Aggregation::Average;
        Run { metric: MetricId(0), name: name.into(), table, first_slot, values: values.to_vec(), counts, aggregation }
    }

    fn packed(runs: &[Run]) -> Vec<Packed> {
        PackedRows::new(runs, rows::shard(0, 7), NOW, 100.into()).collect()
    }

    /// Values and counts by offset.
    fn opened(packed: &Packed) -> (Vec<f64>, Vec<u32>) {
        let row = &packed.row;
        let place = run_key::place(packed.table, row.metric, row.time_start_ms, row.offset, row.shard);
        let (mut values, mut counts) = (vec![f64::NAN; 2000], vec![0; 2000]);
        Codec::new().decode(open_run(&place, &row.points).unwrap(), 0..2000, &mut values, &mut counts).unwrap();
        (values, counts)
    }

    /// Partition in slots, timestamp, key, and `offset=value` of each slot.
    fn write(packed: &Packed) -> String {
        let PackedRow { offset, shard, count, holes, timestamp, .. } = &packed.row;
        let (values, _) = opened(packed);
        let slots = values.iter().enumerate().filter(|(_, value)| !value.is_nan());
        let slots: Vec<String> = slots.map(|(at, value)| format!("{at}={value}")).collect();
        let place = packed.row.time_start_ms / 60_000;
        format!("{place}@{timestamp}: {offset}/{shard} {count}{holes:?} {}", slots.join(" "))
    }

    #[test]
    fn a_row_has_the_values_of_one_partition_that_are_written_together() {
        let a = 30_000_000 - 2;
        let nan = f64::NAN;
        let runs = [
            run("a", false, a, &[1.0, nan, 3.0, 4.0]),
            run("a", false, a + 3, &[5.0]),
            run("b", false, a + 3, &[6.0]),
            run("b", true, a + 3, &[7.0]),
            run("b", true, a + 4, &[8.0, nan]),
            run("b", true, a + 7, &[9.0]),
            run("b", true, a + 6, &[10.0]),
        ];
        let written: Vec<String> = packed(&runs).iter().map(write).collect();
        assert_eq!(
            written,
            [
                "29998000@100: 1998/7 1[] 1998=1",
                "30000000@100: 0/7 2[] 0=3 1=4",
                "30000000@101: 1/7 1[] 1=5",
                "30000000@102: 1/7 1[] 1=6",
                "30000000@105: 2001/7 3[19] 1=7 2=8 5=9",
                "30000000@106: 2004/7 1[] 4=10",
            ]
        );
    }

    #[test]
    fn a_run_is_cut_into_bounded_rows_without_loss() {
        let values: Vec<f64> = (0..5000).map(f64::from).collect();
        let mut gaps = run("c", false, 29_990_123, &values);
        gaps.values.iter_mut().enumerate().filter(|(at, _)| at % 7 < 5).for_each(|(_, value)| *value = f64::NAN);
        let all = run("a", true, 29_990_123, &values);
        for run in [all, gaps] {
            let rows = packed(std::slice::from_ref(&run));
            assert!((11..=14).contains(&rows.len()), "{}", rows.len());
            let wanted: Vec<f64> = run.values.iter().copied().filter(|value| !value.is_nan()).collect();
            let mut seen = Vec::new();
            for row in &rows {
                let values: Vec<f64> = opened(row).0.into_iter().filter(|value| !value.is_nan()).collect();
                assert_eq!(values.len(), row.row.count as usize);
                seen.extend(values);
            }
            assert_eq!(seen, wanted);
        }
    }

    #[test]
    fn expired_and_absent_values_are_not_written_and_a_row_lives_as_long_as_its_last_slot() {
        let stage = Stage::new(60, 10080).unwrap();
        let oldest = stage.slot(NOW).unwrap() - 10080 - 15;
        let mut none = run("a", true, 29_990_000, &[1.0]);
        none.counts = vec![0];
        assert_eq!(packed(&[run("a", false, oldest, &[1.0]), none, run("a", false, 29_990_000, &[])]), []);
        let rows = packed(&[run("a", false, oldest, &[1.0, 2.0, 3.0])]);
        assert_eq!(rows.iter().map(|row| (row.row.count, row.row.ttl)).collect::<Vec<_>>(), [(2, 120)]);
        assert_eq!(packed(&[]), []);
    }

    #[test]
    fn slots_that_count_nothing_or_have_no_number_are_left_out() {
        let mut holed = run("a", true, 29_990_000, &[1.0, 2.0, 3.0, f64::NAN, 5.0]);
        holed.counts = vec![1, 0, 3, 4, 5];
        let rows = packed(&[holed]);
        assert_eq!(rows.iter().map(|row| (row.row.count, row.row.holes.clone())).collect::<Vec<_>>(), [(3, vec![21])]);
        assert_eq!(opened(&rows[0]).1[(29_990_000 % 2000) as usize..][..5], [1, 0, 3, 0, 5]);
        let rows = packed(&[run("a", false, u32::MAX - 1, &[1.0, 2.0, 3.0, 4.0])]);
        assert_eq!(rows.iter().map(|row| row.row.count).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn counts_are_exact() {
        let mut aggregated = run("a", true, 29_990_000, &[86_400.0 * 3.0, 1.0, 2.0]);
        aggregated.counts = vec![86_400, 1, u32::MAX];
        let rows = packed(&[aggregated]);
        let (values, counts) = opened(&rows[0]);
        let at = (29_990_000 % 2000) as usize;
        assert_eq!(
            (&values[at..at + 3], &counts[at..at + 3]),
            (&[259_200.0, 1.0, 2.0][..], &[86_400, 1, u32::MAX][..])
        );
    }
}
