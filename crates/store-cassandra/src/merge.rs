//! One slot's rows, of several writers and replicas, made one. Pure.
//!
//! Replicas each tell the whole story, writers of a replica each a part of it: of the replicas the one that
//! counts most is believed (the lowest of equals), and its rows are added up. What the results must be is
//! recorded from BigGraphite under `tests/biggraphite/merges.txt`.

use metric::{Aggregation, Partial};

use crate::rows::replica_of;

/// What a row of an aggregated table says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// Replica and writer; see [`crate::rows::shard`].
    pub(crate) shard: i16,
    /// As in [`Partial`]; NaN says nothing.
    pub(crate) value: f64,
    /// Stage-0 slots that the row stands for.
    pub(crate) count: i16,
}

/// The rows of one slot in the order of their shards (as the tables keep them) as one partial; its count is
/// zero where they say nothing.
///
/// Values are folded from the highest signed shard down, as BigGraphite does. So `last` of several writers is the
/// value of the highest shard that has one: nothing in a row says which is the latest, and both programs must
/// say the same.
pub(crate) fn merge(aggregation: Aggregation, rows: &[Row]) -> Partial {
    match rows {
        [] => Partial::NONE,
        [row] => match u32::try_from(row.count) {
            Ok(count) if count > 0 && !row.value.is_nan() => Partial { value: row.value, count },
            _ => Partial::NONE,
        },
        _ => merge_several(aggregation, rows),
    }
}

fn merge_several(aggregation: Aggregation, rows: &[Row]) -> Partial {
    let mut counts = [0i64; 4];
    for row in rows {
        counts[usize::from(replica_of(row.shard))] += i64::from(row.count);
    }
    let mut best = 0;
    for replica in 1..4 {
        if counts[replica] > counts[best] {
            best = replica;
        }
    }
    let mut value = f64::NAN;
    // Of the rows that say a value: the mean must not be divided by what they leave out.
    let mut counted = 0;
    for row in rows.iter().rev() {
        if usize::from(replica_of(row.shard)) == best && !row.value.is_nan() {
            value = match aggregation {
                _ if value.is_nan() => row.value,
                Aggregation::Last => value,
                _ => aggregation.merge(Partial::point(value), Partial::point(row.value)).value,
            };
            counted += i64::from(row.count);
        }
    }
    let count = match aggregation {
        Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero => counted,
        _ => counts[best],
    };
    match u32::try_from(count) {
        Ok(count) if count > 0 && !value.is_nan() => Partial { value, count },
        _ => Partial::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        let mut fields = text.split(':');
        let mut next = || fields.next().unwrap();
        Row { shard: next().parse().unwrap(), value: next().parse().unwrap(), count: next().parse().unwrap() }
    }

    fn merged(aggregation: Aggregation, rows: &str) -> Partial {
        let mut rows: Vec<Row> = rows.split_whitespace().map(row).collect();
        rows.sort_by_key(|row| row.shard);
        merge(aggregation, &rows)
    }

    #[test]
    fn biggraphite_reads_the_same() {
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
            let got = merged(aggregation, fields[1]);
            let value = aggregation.finish(got, got.count, 0.0);
            let wanted: f64 = fields[2].parse().unwrap();
            assert!(value == wanted || value.is_nan() && wanted.is_nan(), "{value} of {line}");
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
    fn a_replica_that_counts_more_is_believed_and_the_lowest_of_equals() {
        let partial = |value, count| Partial { value, count };
        assert_eq!(merged(Aggregation::Sum, "16384:5:3 0:7:9"), partial(7.0, 9));
        assert_eq!(merged(Aggregation::Sum, "16385:5:3 16384:5:3 0:7:5"), partial(10.0, 6));
        assert_eq!(merged(Aggregation::Sum, "-1:1:3 -32768:2:3 16384:4:3 0:8:3"), partial(8.0, 3));
    }

    #[test]
    fn the_extremes_farthest_from_and_nearest_to_zero_are_merged() {
        assert_eq!(merged(Aggregation::AbsMax, "3:5:1 2:-7:1 1:6:1").value, -7.0);
        assert_eq!(merged(Aggregation::AbsMin, "3:5:1 2:-7:1 1:6:1").value, 5.0);
        assert_eq!(merged(Aggregation::AvgZero, "3:5:1 2:-7:1 1:6:1"), Partial { value: 4.0, count: 3 });
    }

    #[test]
    fn rows_that_say_nothing_are_nothing() {
        for rows in ["", "1:NaN:5", "1:3:0", "1:3:-2", "1:NaN:3 0:NaN:3", "1:3:0 0:4:0", "1:3:-5 0:4:2"] {
            for method in Aggregation::ALL {
                assert_eq!(merged(method, rows).count, 0, "{rows}");
            }
        }
    }
}
