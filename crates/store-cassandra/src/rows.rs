//! The place of a point in the tables and the content of its row: keys, offsets, shards, times to live. Pure.
//!
//! The rules are BigGraphite's; its own answers are recorded under `tests/biggraphite`.

use metric::{Aggregation, ROW_POINTS, Slot, Stage, Timestamp};
use store::MetricRecord;
use uuid::Uuid;

use crate::schema::{MAX_TTL_SECONDS, OUT_OF_ORDER_SECONDS};

/// The namespace of metric ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x0000_0000_1111_2222_3333_4444_4444_4444);

/// Writers that one replica can tell apart.
pub(crate) const WRITERS: u16 = 1 << 14;

/// The largest count that a row can hold. It stands for itself and for every larger one.
pub(crate) const LARGEST_COUNT: u32 = i16::MAX as u32;

/// The last second at which a row may expire. Cassandra up to 4, and 5 by default, keep it in 31 bits and reject later
/// ones; such rows expire then. Cassandra computes with its own clock, and the rejection of one row would hold up a whole
/// flush: so a day less.
const LAST_EXPIRY: Timestamp = i32::MAX as Timestamp - 1 - 86_400;

/// The id of a metric in the datapoints tables.
pub(crate) fn metric_id(name: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, name.as_bytes())
}

/// Those of some metrics.
pub(crate) fn metric_ids(records: &[MetricRecord]) -> Vec<Uuid> {
    records.iter().map(|record| metric_id(&record.name)).collect()
}

/// Consecutive slots of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The partition's clock, milliseconds.
    pub(crate) time_start_ms: i64,
    /// Offset of the first slot, below [`ROW_POINTS`].
    pub(crate) from: i16,
    /// The offset after the last slot, at most [`ROW_POINTS`].
    pub(crate) until: i16,
    /// The first slot.
    pub(crate) first_slot: Slot,
}

/// The partitions that hold the slots from `first` to before `end`, in order, each with the slots wanted of it.
pub(crate) fn parts(stage: Stage, first: Slot, end: Slot) -> impl Iterator<Item = Part> + Send {
    let mut next = first;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let (row, from) = (next / ROW_POINTS, next % ROW_POINTS);
        let wanted = (end - next).min(ROW_POINTS - from);
        let part = Part {
            time_start_ms: time_start_ms(stage, row),
            from: from as i16,
            until: (from + wanted) as i16,
            first_slot: next,
        };
        // No row is after the last slot.
        next = next.checked_add(wanted).unwrap_or(end);
        Some(part)
    })
}

/// The partition of a slot, and the slot's offset in it.
pub(crate) fn place(stage: Stage, slot: Slot) -> (i64, i16) {
    (time_start_ms(stage, slot / ROW_POINTS), (slot % ROW_POINTS) as i16)
}

fn time_start_ms(stage: Stage, row: u32) -> i64 {
    i64::from(row) * i64::from(ROW_POINTS) * i64::from(stage.resolution()) * 1000
}

/// What tells the rows of writers and replicas apart: two bits of replica, fourteen of writer.
pub(crate) fn shard(replica: u8, writer: u16) -> i16 {
    debug_assert!(replica < 4 && writer < WRITERS, "two bits and fourteen");
    (u16::from(replica & 3) << 14 | writer & (WRITERS - 1)) as i16
}

/// The replica of a shard, 0 to 3.
pub(crate) fn replica_of(shard: i16) -> u8 {
    (shard as u16 >> 14) as u8
}

/// Seconds that a row written at `now` has to live, or `None` when its time is over. A row outlives its stage by a
/// quarter of an hour, as its table's own TTL has it, counted from the point's time and not from its write.
pub(crate) fn ttl(stage: Stage, slot: Slot, now: Timestamp) -> Option<i32> {
    let end = (stage.time(slot) + stage.duration() + OUT_OF_ORDER_SECONDS).min(LAST_EXPIRY);
    let seconds = (end - now).min(MAX_TTL_SECONDS);
    i32::try_from(seconds).ok().filter(|&seconds| seconds > 0)
}

/// A count as a row holds it, and the value that goes with it: a mean stays the same mean.
pub(crate) fn saturated(aggregation: Aggregation, value: f64, count: u32) -> (f64, i16) {
    match i16::try_from(count) {
        Ok(count) => (value, count),
        Err(_) if aggregation == Aggregation::Average => {
            (value / f64::from(count) * f64::from(LARGEST_COUNT), i16::MAX)
        }
        Err(_) => (value, i16::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The precision in `10080*60s_aggr`, BigGraphite's notation of a table: the place of a point depends on it alone.
    fn stage(text: &str) -> Stage {
        let (_, seconds) = text.split_once('*').unwrap();
        let (seconds, _) = seconds.split_once("s_").unwrap();
        Stage::new(seconds.parse().unwrap(), 1).unwrap()
    }

    fn recorded(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split('\t').collect())
    }

    #[test]
    fn a_metric_has_biggraphites_id() {
        let mut known = 0;
        for line in recorded(include_str!("../tests/biggraphite/names.txt")) {
            assert_eq!(metric_id(line[1]).to_string(), line[2], "{}", line[1]);
            known += 1;
        }
        assert!(known >= 10);
    }

    #[test]
    fn a_point_is_where_biggraphite_puts_it() {
        let mut known = 0;
        for line in recorded(include_str!("../tests/biggraphite/offsets.txt")) {
            let stage = stage(line[0]);
            let slot = stage.slot(line[1].parse().unwrap()).unwrap();
            assert_eq!(place(stage, slot), (line[2].parse().unwrap(), line[3].parse().unwrap()), "{line:?}");
            known += 1;
        }
        assert!(known > 300);
    }

    #[test]
    fn the_partitions_of_a_window_are_biggraphites_less_the_empty_ones() {
        let mut known = 0;
        for line in recorded(include_str!("../tests/biggraphite/selects.txt")) {
            let stage = stage(line[0]);
            let slot = |text: &str| stage.slot(text.parse().unwrap()).unwrap();
            let write = |part: Part| format!("{}:{}-{}", part.time_start_ms, part.from, part.until);
            let got: Vec<String> = parts(stage, slot(line[1]), slot(line[2])).map(write).collect();
            let wanted: Vec<&str> = line[3]
                .split(' ')
                .filter(|part| {
                    let (_, offsets) = part.split_once(':').unwrap();
                    let (from, until) = offsets.split_once('-').unwrap();
                    from != until
                })
                .collect();
            assert_eq!(got, wanted, "{line:?}");
            known += 1;
        }
        assert!(known > 90);
    }

    #[test]
    fn the_parts_of_a_window_are_its_slots_in_order() {
        let stage = Stage::new(60, 10080).unwrap();
        for (first, end) in [(0, 0), (7, 3), (0, 1), (1999, 2001), (5, 8123), (Slot::MAX - 5, Slot::MAX)] {
            let mut next = first;
            for part in parts(stage, first, end) {
                assert_eq!(part.first_slot, next);
                assert_eq!(place(stage, next), (part.time_start_ms, part.from));
                next += (part.until - part.from) as u32;
            }
            assert_eq!(next, end.max(first));
        }
    }

    #[test]
    fn a_shard_is_a_replica_and_a_writer() {
        assert_eq!(
            [(1, 5), (2, 1), (3, 16383), (0, 0)].map(|(replica, writer)| shard(replica, writer)),
            [16389, -32767, -1, 0]
        );
        assert_eq!([16389, -32767, -1, 16383].map(replica_of), [1, 2, 3, 0]);
    }

    #[test]
    fn the_ttl_of_a_row_counts_from_its_own_time() {
        let stage = Stage::new(60, 11520).unwrap();
        let now = stage.time(28_000_000);
        assert_eq!(ttl(stage, 28_000_000, now), Some(11520 * 60 + 900));
        assert_eq!(ttl(stage, 28_000_000 - 11520, now), Some(900));
        assert_eq!(ttl(stage, 28_000_000 - 11534, now), Some(60));
        assert_eq!(ttl(stage, 28_000_000 - 11535, now), None);
        assert_eq!(ttl(stage, 28_000_000 - 11534, now + 59), Some(1));
        assert_eq!(ttl(stage, 0, now), None);
        // Cassandra rejects a thousand years.
        let long = Stage::new(86400, 49_000).unwrap();
        assert_eq!(ttl(long, long.slot(now).unwrap(), now), Some((LAST_EXPIRY - now) as i32));
        assert_eq!(ttl(long, 1, 0), Some(MAX_TTL_SECONDS as i32));
        assert_eq!(ttl(long, 1, LAST_EXPIRY), None);
    }

    #[test]
    fn a_count_too_large_keeps_the_mean() {
        assert_eq!(saturated(Aggregation::Average, 120.0, 60), (120.0, 60));
        assert_eq!(saturated(Aggregation::Average, 32767.0, 32767), (32767.0, 32767));
        let (value, count) = saturated(Aggregation::Average, 86_400.0 * 2.5, 86_400);
        assert_eq!((value, count), (32767.0 * 2.5, 32767));
        for method in Aggregation::ALL.into_iter().filter(|method| *method != Aggregation::Average) {
            assert_eq!(saturated(method, 7.0, 86_400), (7.0, 32767), "{method}");
        }
    }
}
