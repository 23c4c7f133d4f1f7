//! Packed rows put together for one statement: those of one table that the same replica has, so that Cassandra is asked once for
//! some of them and not once for each.

use std::collections::HashMap;

use metric::Stage;
use scylla::routing::Shard;
use uuid::Uuid;

use crate::{pack::Packed, packed_wire::PackedRow};

/// Rows of a batch at most. Cassandra warns of batches of more than ten partitions.
pub(crate) const BATCH_RUNS: usize = 10;

/// Bytes of a batch at most, unless one row alone has more. Cassandra warns of batches of several partitions from 5 KiB on.
const BATCH_BYTES: usize = 4_500;

/// What a row takes besides its blobs.
const ROW_BYTES: usize = 64;

/// A replica, and its shard where it has several.
pub(crate) type Place = Option<(Uuid, Shard)>;

/// Rows of one stage's table for one statement.
#[derive(Debug, PartialEq)]
pub(crate) struct PackedBatch {
    pub(crate) stage: Stage,
    pub(crate) rows: Vec<PackedRow>,
}

/// Puts rows together; no two of a batch have the same partition.
pub(crate) struct PackedBatches<R, P> {
    rows: R,
    place: P,
    open: HashMap<(Stage, Place), (usize, Vec<PackedRow>)>,
}

impl<R: Iterator<Item = Packed>, P: Fn(&Packed) -> Place> PackedBatches<R, P> {
    /// `place` says which replica to ask for a row.
    pub(crate) fn new(rows: R, place: P) -> PackedBatches<R, P> {
        PackedBatches { rows, place, open: HashMap::new() }
    }
}

impl<R: Iterator<Item = Packed>, P: Fn(&Packed) -> Place> Iterator for PackedBatches<R, P> {
    type Item = PackedBatch;

    fn next(&mut self) -> Option<PackedBatch> {
        for packed in self.rows.by_ref() {
            let stage = packed.table.stage;
            let place = (self.place)(&packed);
            let size = ROW_BYTES + packed.row.points.len() + packed.row.holes.len();
            let (bytes, rows) = self.open.entry((stage, place)).or_default();
            let is_of_partition = |other: &PackedRow| other.partition() == packed.row.partition();
            let is_full = rows.len() == BATCH_RUNS || BATCH_BYTES < *bytes + size || rows.iter().any(is_of_partition);
            if is_full && !rows.is_empty() {
                *bytes = size;
                let mut next = Vec::with_capacity(BATCH_RUNS);
                next.push(packed.row);
                return Some(PackedBatch { stage, rows: std::mem::replace(rows, next) });
            }
            *bytes += size;
            rows.push(packed.row);
        }
        let next = *self.open.keys().next()?;
        let (_, rows) = self.open.remove(&next)?;
        Some(PackedBatch { stage: next.0, rows })
    }
}

#[cfg(test)]
mod tests {
    use metric::Table;

    use super::*;

    fn packed(resolution: u32, metric: u128, time_start_ms: i64, bytes: usize) -> Packed {
        let table = Table { stage: Stage::new(resolution, 1_000).unwrap(), aggregated: false, rollup: None };
        let row = PackedRow {
            metric: Uuid::from_u128(metric),
            time_start_ms,
            offset: 0,
            shard: 1,
            count: 1,
            holes: Vec::new(),
            points: vec![0; bytes],
            ttl: 60,
            timestamp: 7,
        };
        Packed { table, row }
    }

    /// Stage, and metric and partition of each row.
    fn batches(rows: Vec<Packed>) -> Vec<(u32, Vec<(u128, i64)>)> {
        // Even metrics live on one replica, odd ones on another.
        let place = |packed: &Packed| Some((Uuid::from_u128(packed.row.metric.as_u128() % 2), 0));
        let batches = PackedBatches::new(rows.into_iter(), place);
        let rows = |batch: PackedBatch| {
            let rows = batch.rows.iter().map(|row| (row.metric.as_u128(), row.time_start_ms)).collect();
            (batch.stage.resolution(), rows)
        };
        let mut batches: Vec<_> = batches.map(rows).collect();
        // Those that are left at the end come in any order.
        batches.sort();
        batches
    }

    #[test]
    fn rows_go_together_by_stage_and_replica() {
        let rows = vec![
            packed(1, 2, 0, 100),
            packed(1, 3, 0, 100),
            packed(60, 2, 0, 100),
            packed(1, 4, 0, 100),
            packed(1, 5, 0, 100),
        ];
        assert_eq!(batches(rows), [(1, vec![(2, 0), (4, 0)]), (1, vec![(3, 0), (5, 0)]), (60, vec![(2, 0)])]);
    }

    #[test]
    fn a_batch_is_bounded_and_has_no_partition_twice() {
        let many = batches((0..25).map(|nth| packed(1, 2 * nth, 0, 10)).collect());
        assert_eq!(many.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(), [10, 10, 5]);
        let large = batches((0..4).map(|nth| packed(1, 2 * nth, 0, 2_300)).collect());
        assert_eq!(large.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(), [1, 1, 1, 1]);
        let larger = batches(vec![packed(1, 2, 0, 9_000), packed(1, 4, 0, 10)]);
        assert_eq!(larger, [(1, vec![(2, 0)]), (1, vec![(4, 0)])]);
        let twice = batches(vec![packed(1, 2, 0, 10), packed(1, 2, 2_000, 10), packed(1, 2, 0, 10)]);
        assert_eq!(twice, [(1, vec![(2, 0)]), (1, vec![(2, 0), (2, 2_000)])]);
    }
}
