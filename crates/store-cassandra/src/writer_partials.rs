//! This writer's partials of coarse slots: the values of its rows, so that the rows of all writers together give the total.
//!
//! 1. [`partial`] computes for one slot this writer's row and the corrections of other writers' rows. Pure.
//! 2. [`Correction`] says what is written for one, in either layout. Pure.
//! 3. [`Points::writer_partials`] reads the rows, and writes the corrections before it returns.
//!
//! Only rows of our own replica matter: each replica is complete by itself.

use codec::Codec;
use futures::{StreamExt, TryStreamExt, stream};
use metric::{Aggregation, Partial, Slot, Table};
use store::{Fetch, OwnRows, Run, StoreError};

use crate::{
    Layout,
    fill::{Stored, each_slot, index},
    merge::Row,
    pack::packed_row,
    packed_wire::PackedRow,
    points::Points,
    rows::{self, Part, replica_of},
    undecodable::Undecodable,
    wire::WrittenRow,
};

/// A row that must change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Correction {
    pub(crate) shard: i16,
    /// Value and count, or `None` to delete the row.
    pub(crate) to: Option<(f64, i64)>,
}

/// The row of the shard `mine` for a slot whose total is `whole` ([`Partial::NONE`]: no row), and the rows to correct
/// first.
///
/// A row needs a count: BigGraphite would add the value of a row without one to the next slot. So where the other rows
/// count every point and yet have a wrong value, because a point they counted was overwritten, one of them is corrected: of values that
/// are added up it leaves one of its points to our row, which has the difference then. Where its writer goes on from what it had in
/// memory, and writes that over the correction, the sum stays right, and the count is too large by what was taken until this node has looked
/// again.
pub(crate) fn partial(aggregation: Aggregation, whole: Partial, rows: &[Row], mine: i16) -> (Partial, Vec<Correction>) {
    let is_ours = |row: &&Row| replica_of(row.shard) == replica_of(mine);
    let mut others: Vec<Row> = rows.iter().filter(is_ours).filter(|row| row.shard != mine).copied().collect();
    let mut corrections = Vec::new();
    if others.is_empty() {
        return (whole, corrections);
    }
    let mine_now = match aggregation {
        Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero => added(whole, &mut others, &mut corrections),
        _ => chosen(aggregation, whole, &mut others, mine, &mut corrections),
    };
    if mine_now.count == 0 && rows.iter().any(|row| row.shard == mine) {
        corrections.push(Correction { shard: mine, to: None });
    }
    (mine_now, corrections)
}

/// Where the values of all rows are added up.
fn added(whole: Partial, others: &mut Vec<Row>, corrections: &mut Vec<Correction>) -> Partial {
    others.retain(|row| !row.value.is_nan());
    let (mut value, mut count) = (whole.value, i64::from(whole.count));
    let mut magnitude = value.abs();
    for row in others.iter_mut() {
        if !row.value.is_finite() {
            // No finite value compensates for an infinity. If the total is still infinite, our own row has it.
            row.value = 0.0;
            corrections.push(Correction { shard: row.shard, to: (row.count > 0).then_some((0.0, row.count)) });
        }
        value -= row.value;
        magnitude += row.value.abs();
        count -= row.count;
    }
    // A rounding error is not a difference.
    if count == 0 && value.abs() <= magnitude * 1e-12 {
        return Partial::NONE;
    }
    others.sort_by_key(|row| row.count);
    let to_spare: i64 = others.iter().map(|row| (row.count - 1).max(0)).sum();
    if count < 1 && 1 - count <= to_spare {
        for row in others.iter_mut().rev() {
            let taken = (1 - count).min(row.count - 1);
            if taken < 1 {
                break;
            }
            row.count -= taken;
            count += taken;
            corrections.retain(|made| made.shard != row.shard);
            corrections.push(Correction { shard: row.shard, to: Some((row.value, row.count)) });
        }
    }
    // They have one point each.
    while count < 1 {
        let Some(row) = others.pop() else { break };
        value += row.value;
        count += row.count;
        corrections.retain(|made| made.shard != row.shard);
        let to = (count > 0).then_some((value, count));
        corrections.push(Correction { shard: row.shard, to });
        if to.is_some() {
            return Partial::NONE;
        }
    }
    Partial { value, count: u32::try_from(count).unwrap_or(0) }
}

/// Where one of the values is the answer: an extreme, or the latest.
fn chosen(
    aggregation: Aggregation,
    whole: Partial,
    others: &mut [Row],
    mine: i16,
    corrections: &mut Vec<Correction>,
) -> Partial {
    let value = whole.value;
    let mut count = i64::from(whole.count) - others.iter().map(|row| row.count).sum::<i64>();
    let is_written = count > 0;
    let is_wrong = |row: &Row| match aggregation {
        _ if row.value.is_nan() || row.value == value => false,
        // The highest shard is believed: all must agree with us, or with each other.
        Aggregation::Last => !is_written || row.shard > mine,
        Aggregation::Max => row.value > value,
        Aggregation::Min => row.value < value,
        Aggregation::AbsMax => row.value.abs() >= value.abs(),
        _ => row.value.abs() <= value.abs(),
    };
    let mut is_said = is_written;
    others.sort_by_key(|row| -row.count);
    for row in others {
        let mut to = *row;
        let of_the_largest = count < 0 || !is_said && !is_written;
        if is_wrong(row) || of_the_largest && (count < 0 || row.value != value) {
            to.value = value;
        }
        if count < 0 {
            // They count more than there is.
            let left = row.count + count;
            to.count = left.max(0);
            count = left.min(0);
        }
        is_said |= to.count > 0 && to.value == value;
        let same = to.count == row.count && (to.value == row.value || to.value.is_nan());
        if !same {
            corrections.push(Correction { shard: row.shard, to: (to.count > 0).then_some((to.value, to.count)) });
        }
    }
    match is_written {
        true => Partial { value, count: u32::try_from(count).unwrap_or(u32::MAX) },
        false => Partial::NONE,
    }
}

/// Whether another writer of our replica has one of these rows, or one of those that are damaged.
pub(crate) fn has_others(rows: &[Row], damaged: &[i16], mine: i16) -> bool {
    let mut shards = rows.iter().map(|row| row.shard).chain(damaged.iter().copied());
    shards.any(|shard| shard != mine && replica_of(shard) == replica_of(mine))
}

/// Leaves the slot at this place of a run as it is stored: what other writers have of it is not known.
fn leave_out(run: &mut Run, at: usize) {
    if let (Some(value), Some(count)) = (run.values.get_mut(at), run.counts.get_mut(at)) {
        (*value, *count) = (f64::NAN, 0);
    }
}

/// Makes the total at this place of a run the row of the shard `mine`. Returns the rows to correct first.
fn subtract(run: &mut Run, at: usize, rows: &[Row], mine: i16) -> Vec<Correction> {
    let (Some(value), Some(count)) = (run.values.get_mut(at), run.counts.get_mut(at)) else { return Vec::new() };
    if value.is_nan() || *count == 0 {
        return Vec::new();
    }
    let (row, corrections) = partial(run.aggregation, Partial { value: *value, count: *count }, rows, mine);
    (*value, *count) = (row.value, row.count);
    corrections
}

/// Makes the totals of a partition's slots the rows of the shard `mine`, and passes on the rows to correct first. Slots with a
/// damaged row are left out.
pub(crate) fn subtract_stored(
    run: &mut Run,
    (fetch, part): (&Fetch, Part),
    stored: &impl Stored,
    mine: i16,
    mut correct: impl FnMut(Slot, Correction),
) -> Result<(), Undecodable> {
    each_slot(fetch.table, part, stored, |offset, rows, damaged| {
        let Some(at) = index(fetch, part, offset) else { return };
        if !damaged.is_empty() {
            return leave_out(run, at);
        }
        let slot = fetch.first_slot + at as Slot;
        subtract(run, at, rows, mine).into_iter().for_each(|correction| correct(slot, correction));
    })
}

impl Correction {
    /// Whether it is a run and not a row. Where a stage has a packed table, a deleted row would let an older run be seen.
    pub(crate) fn is_packed(self, layout: Layout, has_packed_table: bool) -> bool {
        match self.to {
            Some(_) => layout == Layout::Packed,
            None => has_packed_table,
        }
    }

    /// The run of this slot. Without a value it counts nothing.
    pub(crate) fn packed(self, fetch: &Fetch, slot: Slot, ttl: i32, timestamp: i64) -> PackedRow {
        let metric = rows::metric_id(&fetch.name);
        let (time_start_ms, offset) = rows::place(fetch.table.stage, slot);
        let (value, count) = self.to.unwrap_or((0.0, 0));
        let counts = [u32::try_from(count).unwrap_or(u32::MAX)];
        let place = (metric, time_start_ms);
        let row = packed_row(&mut Codec::new(), fetch.table, place, self.shard, offset, &[value], &counts);
        PackedRow { ttl, timestamp, ..row }
    }

    /// The row of this slot; `None` where it is deleted.
    pub(crate) fn row(self, fetch: &Fetch, slot: Slot, ttl: i32) -> Option<WrittenRow> {
        let (value, count) = self.to?;
        let metric = rows::metric_id(&fetch.name);
        let (time_start_ms, offset) = rows::place(fetch.table.stage, slot);
        let partial = Some((self.shard, count.min(i64::from(i16::MAX)) as i16));
        Some(WrittenRow { metric, time_start_ms, offset, partial, value, ttl })
    }
}

impl Points {
    /// See [`store::SharedPoints::writer_partials`].
    pub(crate) async fn writer_partials(&self, mut wholes: Vec<Run>) -> Result<OwnRows, StoreError> {
        let fetches: Vec<Fetch> = wholes.iter().map(fetch_of).collect();
        let mut corrections: Vec<(usize, Slot, Correction)> = Vec::new();
        self.read(&fetches, |which, part, answer| {
            let correct = |slot, correction| corrections.push((which, slot, correction));
            subtract_stored(&mut wholes[which], (&fetches[which], part), answer, self.shard(), correct)
        })
        .await?;
        let of_others = corrections.iter().filter(|(.., correction)| correction.shard != self.shard());
        let corrected = of_others.map(|(which, ..)| fetches[*which].metric).collect();
        let correct =
            |(which, slot, correction): (usize, Slot, Correction)| self.correct(&fetches[which], slot, correction);
        stream::iter(corrections).map(correct).buffer_unordered(self.in_flight).try_collect::<()>().await?;
        Ok(OwnRows { runs: wholes, corrected })
    }

    /// See [`store::SharedPoints::have_others`].
    pub(crate) async fn have_others(&self, fetches: Vec<Fetch>) -> Result<Vec<bool>, StoreError> {
        let mut have_others = vec![false; fetches.len()];
        self.read(&fetches, |which, part, answer| {
            each_slot(fetches[which].table, part, answer, |_, rows, damaged| {
                have_others[which] |= has_others(rows, damaged, self.shard());
            })
        })
        .await?;
        Ok(have_others)
    }

    async fn correct(&self, fetch: &Fetch, slot: Slot, correction: Correction) -> Result<(), StoreError> {
        let table = fetch.table;
        let Some(ttl) = rows::ttl(table.stage, slot, self.clock.now()) else { return Ok(()) };
        let has_packed_table = self.packed.existing(table.stage).await?.is_some();
        if correction.is_packed(self.layout, has_packed_table) {
            let time = self.timestamps.take(rows::metric_id(&fetch.name));
            return self.write_run(table, correction.packed(fetch, slot, ttl, time)).await;
        }
        match correction.row(fetch, slot, ttl) {
            Some(row) => self.correct_row(table, &row).await,
            None => self.delete_row(fetch, slot, correction.shard).await,
        }
    }

    async fn correct_row(&self, table: Table, row: &WrittenRow) -> Result<(), StoreError> {
        // A run may be all that there was.
        let statements = self.made_rows(table).await?;
        let insert = statements.insert(self.timestamps.take(row.metric));
        let _permit = self.writes.acquire().await.expect("it is never closed");
        let done = self.retry.run(|| self.session.execute_unpaged(&insert, row)).await;
        done.map(drop).map_err(|error| self.failed("correcting a row of", table, &error))
    }

    async fn delete_row(&self, fetch: &Fetch, slot: Slot, shard: i16) -> Result<(), StoreError> {
        let table = fetch.table;
        let Some(statements) = self.tables.existing(table).await? else { return Ok(()) };
        let Some(delete) = &statements.delete else { return Ok(()) };
        let (time_start_ms, offset) = rows::place(table.stage, slot);
        let metric = rows::metric_id(&fetch.name);
        let key = (self.timestamps.take(metric), metric, time_start_ms, offset, shard);
        let _permit = self.writes.acquire().await.expect("it is never closed");
        let done = self.retry.run(|| self.session.execute_unpaged(delete, key)).await;
        done.map(drop).map_err(|error| self.failed("correcting a row of", table, &error))
    }
}

pub(crate) fn fetch_of(run: &Run) -> Fetch {
    Fetch {
        metric: run.metric,
        name: run.name.clone(),
        table: run.table,
        first_slot: run.first_slot,
        end_slot: run.first_slot.saturating_add(u32::try_from(run.values.len()).unwrap_or(u32::MAX)),
        aggregation: run.aggregation,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::merge::merge;

    const MINE: i16 = 100;

    fn row(shard: i16, value: f64, count: i64) -> Row {
        Row { shard, value, count }
    }

    /// The rows that are stored after the corrections.
    fn after(aggregation: Aggregation, whole: Partial, rows: &[Row]) -> Vec<Row> {
        let mut stored: BTreeMap<i16, Row> = rows.iter().map(|row| (row.shard, *row)).collect();
        let (mine, corrections) = partial(aggregation, whole, rows, MINE);
        let mut seen = Vec::new();
        for Correction { shard, to } in corrections {
            assert!(!seen.contains(&shard), "{shard} is corrected once");
            seen.push(shard);
            match to {
                Some((value, count)) => {
                    assert!(shard != MINE && count > 0);
                    stored.insert(shard, row(shard, value, count));
                }
                None => drop(stored.remove(&shard)),
            }
        }
        if mine.count > 0 {
            stored.insert(MINE, row(MINE, mine.value, i64::from(mine.count)));
        } else {
            assert!(!stored.contains_key(&MINE), "a row of ours that must not be");
        }
        stored.into_values().collect()
    }

    #[test]
    fn points_that_other_writers_counted_are_left_to_them() {
        let whole = |value, count| Partial { value, count };
        let others = [row(3, 10.0, 4), row(200, 5.0, 2)];
        assert_eq!(partial(Aggregation::Sum, whole(21.0, 8), &others, MINE), (whole(6.0, 2), vec![]));
        assert_eq!(partial(Aggregation::Max, whole(12.0, 8), &others, MINE), (whole(12.0, 2), vec![]));
        let (mine, corrections) = partial(Aggregation::Max, whole(9.0, 8), &others, MINE);
        assert_eq!((mine, corrections), (whole(9.0, 2), vec![Correction { shard: 3, to: Some((9.0, 4)) }]));
        let (mine, corrections) = partial(Aggregation::Last, whole(7.0, 8), &others, MINE);
        assert_eq!((mine, corrections), (whole(7.0, 2), vec![Correction { shard: 200, to: Some((7.0, 2)) }]));
        let (mine, corrections) = partial(Aggregation::Average, whole(15.0, 6), &others, MINE);
        assert_eq!((mine.count, corrections), (0, vec![]));
        // One of their points was overwritten by us: 1 more, and none more. They leave a point to us.
        let (mine, corrections) = partial(Aggregation::Average, whole(16.0, 6), &others, MINE);
        assert_eq!((mine, corrections), (whole(1.0, 1), vec![Correction { shard: 3, to: Some((10.0, 3)) }]));
        // They have one point each.
        let others = [row(3, 10.0, 1), row(200, 5.0, 1)];
        let (mine, corrections) = partial(Aggregation::Average, whole(16.0, 2), &others, MINE);
        assert_eq!((mine.count, corrections), (0, vec![Correction { shard: 200, to: Some((6.0, 1)) }]));
    }

    #[test]
    fn a_writer_that_writes_over_a_correction_leaves_the_sum_right() {
        // The other one has nine points of 1.0; we overwrite one with 100.0.
        let (before, whole) = ([row(3, 9.0, 9)], Partial { value: 108.0, count: 9 });
        let mut stored = after(Aggregation::Sum, whole, &before);
        assert_eq!(merge(Aggregation::Sum, &stored), whole);
        // It goes on from memory, with four more.
        stored.iter_mut().filter(|row| row.shard == 3).for_each(|theirs| *theirs = row(3, 13.0, 13));
        assert_eq!(merge(Aggregation::Sum, &stored), Partial { value: 112.0, count: 14 });
        // We look again.
        let whole = Partial { value: 112.0, count: 13 };
        assert_eq!(merge(Aggregation::Sum, &after(Aggregation::Sum, whole, &stored)), whole);
    }

    #[test]
    fn rows_of_other_replicas_are_left_alone() {
        let whole = Partial { value: 21.0, count: 8 };
        assert_eq!(partial(Aggregation::Sum, whole, &[row(16389, 10.0, 4)], MINE), (whole, vec![]));
    }

    #[test]
    fn all_rows_together_give_the_total() {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(41_221);
        println!("SEED={seed}");
        let mut state: u64 = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut corrected, mut gone) = (0, 0);
        for _ in 0..20_000 {
            let aggregation = Aggregation::ALL[below(8) as usize];
            let mut rows = Vec::new();
            for shard in [-5, 3, 100, 101, 16_000] {
                if below(2) == 0 {
                    let value = match below(30) {
                        0 => f64::NAN,
                        1 => f64::INFINITY,
                        _ => below(20) as f64 - 10.0,
                    };
                    rows.push(row(shard, value, below(8) as i64 + (below(20) > 0) as i64));
                }
            }
            rows.retain(|row| replica_of(row.shard) == 0 || row.shard == -5);
            // Replica 3 has less to say, so that ours is believed.
            rows.iter_mut().filter(|row| row.shard == -5).for_each(|row| row.count = 0);
            let whole = Partial { value: below(20) as f64 - 10.0, count: below(30) as u32 + 1 };
            let stored = after(aggregation, whole, &rows);
            let context = format!("{aggregation} {whole:?} {rows:?} -> {stored:?}");
            let got = merge(aggregation, &stored);
            assert_eq!(got.value, whole.value, "{context}");
            let nan: i64 = stored.iter().filter(|row| row.value.is_nan()).map(|row| row.count).sum();
            assert!(i64::from(got.count) == i64::from(whole.count) || nan > 0, "{got:?} {context}");
            corrected += usize::from(stored.iter().any(|row| row.shard != MINE && !rows.contains(row)));
            gone +=
                usize::from(rows.iter().any(|row| row.shard == MINE) && !stored.iter().any(|row| row.shard == MINE));
        }
        assert!(corrected > 1000 && gone > 100, "{corrected} corrected, {gone} gone");
    }
}
