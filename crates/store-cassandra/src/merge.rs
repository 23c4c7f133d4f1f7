//! Merges the rows that several writers and replicas wrote for one slot. Pure.
//!
//! Each replica is complete; the writers of a replica each have a part. The replica with the highest count wins (of
//! equals the lowest), and its rows are added up. The expected results are recorded from BigGraphite under `tests/biggraphite/merges.txt`.

use metric::{Aggregation, Partial, SATURATED_COUNT};

use crate::rows::{replica_of, saturated};

/// A row of an aggregated table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// Replica and writer; see [`crate::rows::shard`].
    pub(crate) shard: i16,
    /// As in [`Partial`]; NaN in a row without a value.
    pub(crate) value: f64,
    /// Stage-0 slots that the row stands for.
    pub(crate) count: i64,
}

/// The rows of one slot in the order of their shards (as the tables keep them) as one partial; its count is
/// zero where they have no value.
///
/// Values are folded from the highest signed shard down, as BigGraphite does. So `last` of several writers is the
/// value of the highest shard that has one: a row does not tell when it was written, and both programs must
/// agree.
///
/// A row with the largest count that a row can hold may stand for more points, so the total is unknown too: the merged
/// partial gets that count, which means complete.
pub(crate) fn merge(aggregation: Aggregation, rows: &[Row]) -> Partial {
    match rows {
        [] => Partial::NONE,
        [row] => match u32::try_from(row.count) {
            Ok(count) if count > 0 && !row.value.is_nan() => Partial { value: row.value, count },
            _ => Partial::NONE,
        },
        _ => {
            let (replica, merged) = merge_several(aggregation, rows);
            let is_full =
                |row: &Row| row.count == i64::from(i16::MAX) && replica_of(row.shard) == replica && !row.value.is_nan();
            if merged.count <= SATURATED_COUNT || !rows.iter().any(is_full) {
                return merged;
            }
            let (value, _) = saturated(aggregation, merged.value, merged.count);
            Partial { value, count: SATURATED_COUNT }
        }
    }
}

/// As BigGraphite merges them; and the replica that was believed.
fn merge_several(aggregation: Aggregation, rows: &[Row]) -> (u8, Partial) {
    let mut counts = [0i64; 4];
    for row in rows {
        counts[usize::from(replica_of(row.shard))] += row.count;
    }
    let mut best = 0;
    for replica in 1..4 {
        if counts[replica] > counts[best] {
            best = replica;
        }
    }
    let mut value = f64::NAN;
    // Only of rows with a value: other rows must not count in the mean.
    let mut counted = 0;
    for row in rows.iter().rev() {
        if usize::from(replica_of(row.shard)) == best && !row.value.is_nan() {
            value = match aggregation {
                _ if value.is_nan() => row.value,
                Aggregation::Last => value,
                _ => aggregation.merge(Partial::point(value), Partial::point(row.value)).value,
            };
            counted += row.count;
        }
    }
    let count = match aggregation {
        Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero => counted,
        _ => counts[best],
    };
    let merged = match u32::try_from(count) {
        Ok(count) if count > 0 && !value.is_nan() => Partial { value, count },
        _ => Partial::NONE,
    };
    (best as u8, merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        let mut fields = text.split(':');
        let mut next = || fields.next().unwrap();
        Row { shard: next().parse().unwrap(), value: next().parse().unwrap(), count: next().parse().unwrap() }
    }

    fn rows(text: &str) -> Vec<Row> {
        let mut rows: Vec<Row> = text.split_whitespace().map(row).collect();
        rows.sort_by_key(|row| row.shard);
        rows
    }

    fn merged(aggregation: Aggregation, text: &str) -> Partial {
        merge(aggregation, &rows(text))
    }

    #[test]
    fn slots_are_merged_as_biggraphite_merges_them() {
        let mut known = 0;
        for line in include_str!("../tests/biggraphite/merges.txt").lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let aggregation = match fields[0] {
                "average" => Aggregation::Average,
                "total" => Aggregation::Sum,
                "minimum" => Aggregation::Min,
                "maximum" => Aggregation::Max,
                "last" => Aggregation::Last,
                other => panic!("no such aggregator: {other}"),
            };
            let (_, got) = merge_several(aggregation, &rows(fields[1]));
            let value = aggregation.finish(got, got.count, 0.0);
            let wanted: f64 = fields[2].parse().unwrap();
            assert!(value == wanted || value.is_nan() && wanted.is_nan(), "{value} of {line}");
            // A saturated count only affects the rounding of a mean.
            let ours = merged(aggregation, fields[1]);
            let ours = aggregation.finish(ours, ours.count, 0.0);
            let is_near = (ours - wanted).abs() <= 1e-12 * wanted.abs();
            assert!(
                ours == wanted || wanted.is_nan() || aggregation == Aggregation::Average && is_near,
                "{ours} of {line}"
            );
            if !wanted.is_nan() {
                let (value, count) = fields[3].split_once(':').unwrap();
                let (value, count): (f64, f64) = (value.parse().unwrap(), count.parse().unwrap());
                assert_eq!((got.value, f64::from(got.count)), (value, count), "{line}");
            }
            known += 1;
        }
        assert!(known > 900);
    }

    #[test]
    fn writers_with_one_full_count_are_complete_together() {
        let day = 86_400;
        let read = |method: Aggregation, rows: &str| method.finish(merged(method, rows), day, 1.0);
        assert_eq!(read(Aggregation::Sum, "7:5:32767 3:2:2"), 7.0);
        assert_eq!(read(Aggregation::Max, "7:5:32767 3:9:32767"), 9.0);
        assert_eq!(read(Aggregation::Average, "7:32767:32767 3:98301:32767"), 2.0);
        // All of them can count on: there are 40,000 points, and no more.
        assert_eq!(merged(Aggregation::Sum, "7:5:20000 3:2:20000"), Partial { value: 7.0, count: 40_000 });
        // Rows of other replicas, and rows without a value, do not count.
        assert_eq!(merged(Aggregation::Sum, "16384:9:32767 1:5:20000 0:2:20000").count, 40_000);
        assert_eq!(merged(Aggregation::Sum, "7:NaN:32767 1:5:20000 0:2:20000").count, 40_000);
    }

    #[test]
    fn the_replica_with_the_highest_count_wins_and_of_equals_the_lowest() {
        let partial = |value, count| Partial { value, count };
        assert_eq!(merged(Aggregation::Sum, "16384:5:3 0:7:9"), partial(7.0, 9));
        assert_eq!(merged(Aggregation::Sum, "16385:5:3 16384:5:3 0:7:5"), partial(10.0, 6));
        assert_eq!(merged(Aggregation::Sum, "-1:1:3 -32768:2:3 16384:4:3 0:8:3"), partial(8.0, 3));
    }

    #[test]
    fn the_counts_of_all_writers_of_the_latest_value_count() {
        let whole = merged(Aggregation::Last, "7:5:30 3:2:30");
        assert_eq!(whole, Partial { value: 5.0, count: 60 });
        assert_eq!(Aggregation::Last.finish(whole, 60, 1.0), 5.0);
    }

    #[test]
    fn the_extremes_farthest_from_and_nearest_to_zero_are_merged() {
        assert_eq!(merged(Aggregation::AbsMax, "3:5:1 2:-7:1 1:6:1").value, -7.0);
        assert_eq!(merged(Aggregation::AbsMin, "3:5:1 2:-7:1 1:6:1").value, 5.0);
        assert_eq!(merged(Aggregation::AvgZero, "3:5:1 2:-7:1 1:6:1"), Partial { value: 4.0, count: 3 });
    }

    #[test]
    fn rows_without_a_value_are_ignored() {
        for rows in ["", "1:NaN:5", "1:3:0", "1:3:-2", "1:NaN:3 0:NaN:3", "1:3:0 0:4:0", "1:3:-5 0:4:2"] {
            for method in Aggregation::ALL {
                assert_eq!(merged(method, rows).count, 0, "{rows}");
            }
        }
    }
}
