//! Aggregation functions: one number of many, either the values of a series or those of several series at one time.
//!
//! Python sums from the left, starting at an integer zero, and so do we: the sums are the same to the bit.
//! Unknown values are skipped by adding zero, which changes nothing, because a sum that begins at +0.0 is
//! never -0.0. (CPython 3.12 and later compensates `sum()`; the last digit may differ there.)

use std::convert::Infallible;

/// An aggregation function. It leaves unknown values (NaN) out; without known values the answer is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregator {
    /// Their mean.
    Average,
    /// Their mean, unknown ones counting as zero.
    AvgZero,
    /// The middle one in size, or the mean of the middle two.
    Median,
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The first less all others.
    Diff,
    /// The standard deviation of the whole population.
    StdDev,
    /// How many are known.
    Count,
    /// The largest less the smallest.
    Range,
    /// Their product, unknown if any is.
    Multiply,
    /// The last known.
    Last,
}

impl Aggregator {
    /// Every name and its function, in graphite-web's order.
    pub const NAMES: [(&'static str, Aggregator); 16] = [
        ("average", Aggregator::Average),
        ("avg_zero", Aggregator::AvgZero),
        ("median", Aggregator::Median),
        ("sum", Aggregator::Sum),
        ("min", Aggregator::Min),
        ("max", Aggregator::Max),
        ("diff", Aggregator::Diff),
        ("stddev", Aggregator::StdDev),
        ("count", Aggregator::Count),
        ("range", Aggregator::Range),
        ("multiply", Aggregator::Multiply),
        ("last", Aggregator::Last),
        ("rangeOf", Aggregator::Range),
        ("avg", Aggregator::Average),
        ("total", Aggregator::Sum),
        ("current", Aggregator::Last),
    ];

    /// The aggregator of a name.
    pub fn named(name: &str) -> Option<Aggregator> {
        Aggregator::NAMES.iter().find(|(known, _)| *known == name).map(|(_, aggregator)| *aggregator)
    }

    /// Whether Python's answer for these values is an integer: the middle one of an odd number of integers is one, too.
    pub(crate) fn answers_integer(self, values: &[f64], integers: bool) -> bool {
        let odd = || values.iter().filter(|value| !value.is_nan()).count() % 2 == 1;
        self.keeps_integers(integers) || (self == Aggregator::Median && integers && odd())
    }

    /// Whether Python's answer is an integer, given whether the values are.
    pub(crate) fn keeps_integers(self, integers: bool) -> bool {
        match self {
            Aggregator::Count => true,
            Aggregator::Sum | Aggregator::Min | Aggregator::Max | Aggregator::Diff | Aggregator::Last => integers,
            _ => false,
        }
    }

    /// One number of many, NaN where unknown. A count is never unknown.
    pub fn of(self, values: &[f64]) -> f64 {
        let known = || values.iter().copied().filter(|value| !value.is_nan());
        let count = known().count() as f64;
        if count == 0.0 && !matches!(self, Aggregator::Count | Aggregator::AvgZero) {
            return f64::NAN;
        }
        let sum = || values.iter().fold(0.0, |sum, value| sum + zero_if_unknown(*value));
        match self {
            Aggregator::Average => sum() / count,
            Aggregator::AvgZero => sum() / values.len() as f64,
            Aggregator::Median => {
                let mut sorted: Vec<f64> = known().collect();
                median(&mut sorted)
            }
            Aggregator::Sum => sum(),
            Aggregator::Min => values.iter().copied().fold(f64::INFINITY, smaller),
            Aggregator::Max => values.iter().copied().fold(f64::NEG_INFINITY, larger),
            Aggregator::Diff => {
                let mut known = known();
                let first = 0.0 + known.next().unwrap_or(f64::NAN);
                known.fold(first, |rest, value| rest - value)
            }
            Aggregator::StdDev => {
                let mean = sum() / count;
                let squares = known().fold(0.0, |sum, value| sum + (value - mean) * (value - mean));
                (squares / count).sqrt()
            }
            Aggregator::Count => count,
            Aggregator::Range => known().fold(f64::NEG_INFINITY, larger) - known().fold(f64::INFINITY, smaller),
            Aggregator::Multiply if count < values.len() as f64 => f64::NAN,
            Aggregator::Multiply => values.iter().product(),
            Aggregator::Last => values.iter().rev().copied().find(|value| !value.is_nan()).unwrap_or(f64::NAN),
        }
    }

    /// One number for each row of the columns. A column that is shorter than the longest is unknown from its end on.
    /// A row is unknown where its known share is below `x_files_factor`.
    pub(crate) fn across(self, columns: &[&[f64]], x_files_factor: f64) -> Vec<f64> {
        let Ok(out) = self.across_while(columns, x_files_factor, &|| Ok::<(), Infallible>(()));
        out
    }

    /// The same, until `check` returns an error. Checks each thousand rows, or each row where a row takes long.
    pub(crate) fn across_while<'c, E>(
        self,
        columns: &[&'c [f64]],
        x_files_factor: f64,
        check: &dyn Fn() -> Result<(), E>,
    ) -> Result<Vec<f64>, E> {
        let rows = columns.iter().map(|column| column.len()).max().unwrap_or(0);
        let mut out = vec![f64::NAN; rows];
        let total = columns.len() as f64;
        let least = least_known(total, x_files_factor);
        // The accumulators of a block of rows stay in the fastest cache while column after column is folded into
        // them.
        const BLOCK: usize = 1024;
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let first = block * BLOCK;
            let after = first + out.len();
            let part = |column: &&'c [f64]| -> &'c [f64] {
                column.get(first.min(column.len())..after.min(column.len())).unwrap_or_default()
            };
            let parts: Vec<&[f64]> = columns.iter().map(part).collect();
            let mut counts = [0.0; BLOCK];
            check()?;
            self.fold_block(&parts, out, &mut counts, check)?;
            match self {
                Aggregator::Average => finish(out, &counts, least, |sum, count| sum / count),
                Aggregator::StdDev => finish(out, &counts, least, |squares, count| (squares / count).sqrt()),
                Aggregator::AvgZero => finish(out, &counts, least, |sum, _| sum / total),
                Aggregator::Count => finish(out, &counts, least, |_, count| count),
                Aggregator::Multiply => finish(out, &counts, least.max(total), |product, _| product),
                _ => finish(out, &counts, least, |value, _| value),
            }
        }
        Ok(out)
    }

    /// Folds columns into a block of rows, and counts the known values of each: sums for the averages, the sum of
    /// squares for the deviation, the answer for the others.
    fn fold_block<E>(
        self,
        columns: &[&[f64]],
        out: &mut [f64],
        counts: &mut [f64],
        check: &dyn Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let infinity = f64::INFINITY;
        match self {
            Aggregator::Average | Aggregator::AvgZero | Aggregator::Sum | Aggregator::Count => {
                fold_columns(columns, out, counts, 0.0, |sum, value, _| sum + zero_if_unknown(value));
            }
            Aggregator::Min => fold_columns(columns, out, counts, infinity, |least, value, _| smaller(least, value)),
            Aggregator::Max => fold_columns(columns, out, counts, -infinity, |most, value, _| larger(most, value)),
            Aggregator::Multiply => fold_columns(columns, out, counts, 1.0, |product, value, _| product * value),
            Aggregator::Last => {
                let later = |last: f64, value: f64, _| if value.is_nan() { last } else { value };
                fold_columns(columns, out, counts, f64::NAN, later);
            }
            Aggregator::Diff => fold_columns(columns, out, counts, 0.0, |rest, value, known_before| {
                let value = zero_if_unknown(value);
                if known_before == 0.0 { rest + value } else { rest - value }
            }),
            Aggregator::Range => {
                let mut least = vec![0.0; out.len()];
                Aggregator::Min.fold_block(columns, &mut least, counts, check)?;
                Aggregator::Max.fold_block(columns, out, counts, check)?;
                for (out, least) in out.iter_mut().zip(least) {
                    *out -= least;
                }
            }
            Aggregator::StdDev => {
                let mut means = vec![0.0; out.len()];
                Aggregator::Average.fold_block(columns, &mut means, counts, check)?;
                for (mean, count) in means.iter_mut().zip(counts) {
                    *mean /= *count;
                }
                out.fill(0.0);
                for column in columns {
                    for ((out, mean), value) in out.iter_mut().zip(&means).zip(*column) {
                        *out += if value.is_nan() { 0.0 } else { (value - mean) * (value - mean) };
                    }
                }
            }
            Aggregator::Median => {
                let mut counts = counts.iter_mut();
                by_row(columns, out, |row| {
                    check()?;
                    if let Some(count) = counts.next() {
                        *count = row.len() as f64;
                    }
                    Ok(if row.is_empty() { f64::NAN } else { median(row) })
                })?;
            }
        }
        Ok(())
    }
}

/// Makes a number of the known values of each row, in the order of the columns. Stops at an error.
pub(crate) fn by_row<E>(
    columns: &[&[f64]],
    out: &mut [f64],
    mut answer: impl FnMut(&mut [f64]) -> Result<f64, E>,
) -> Result<(), E> {
    // Neighbouring rows are gathered together, because they share the lines of the cache.
    const TOGETHER: usize = 8;
    let mut gathered: [Vec<f64>; TOGETHER] = Default::default();
    for (part, out) in out.chunks_mut(TOGETHER).enumerate() {
        gathered.iter_mut().for_each(Vec::clear);
        for column in columns {
            let values = column.get(part * TOGETHER..).unwrap_or_default();
            for (row, value) in gathered.iter_mut().zip(values) {
                if !value.is_nan() {
                    row.push(*value);
                }
            }
        }
        for (out, row) in out.iter_mut().zip(&mut gathered) {
            *out = answer(row)?;
        }
    }
    Ok(())
}

/// The number of values that must be known to reach a share of all: at least one.
fn least_known(total: f64, share: f64) -> f64 {
    if share > 1.0 {
        return f64::INFINITY;
    }
    // A division decides, as in Python; the product may be off by one.
    let near = (share * total).ceil();
    let enough = |known: &f64| known / total >= share;
    [near - 1.0, near, near + 1.0].into_iter().find(enough).unwrap_or(near).max(1.0)
}

/// Makes the answer of a folded block; null where fewer than `least` values are known.
fn finish(out: &mut [f64], counts: &[f64], least: f64, answer: impl Fn(f64, f64) -> f64) {
    for (out, count) in out.iter_mut().zip(counts) {
        *out = if *count < least { f64::NAN } else { answer(*out, *count) };
    }
}

/// Folds each column into the rows and counts the known values, in straight loops that the compiler vectorises: each
/// column is read from memory once. `fold` gets the number of known values before.
fn fold_columns(
    columns: &[&[f64]],
    out: &mut [f64],
    counts: &mut [f64],
    start: f64,
    fold: impl Fn(f64, f64, f64) -> f64,
) {
    out.fill(start);
    counts.fill(0.0);
    for column in columns {
        for ((out, count), value) in out.iter_mut().zip(counts.iter_mut()).zip(*column) {
            *out = fold(*out, *value, *count);
            *count += if value.is_nan() { 0.0 } else { 1.0 };
        }
    }
}

fn zero_if_unknown(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value }
}

/// Python's `min` keeps the first of equals, and a comparison with NaN is false.
fn smaller(least: f64, value: f64) -> f64 {
    if value < least { value } else { least }
}

/// Python's `max` keeps the first of equals, and a comparison with NaN is false.
fn larger(most: f64, value: f64) -> f64 {
    if value > most { value } else { most }
}

/// The middle of known values; at least one.
pub(crate) fn median(known: &mut [f64]) -> f64 {
    debug_assert!(!known.is_empty(), "something has a middle");
    let middle = known.len() / 2;
    let even = known.len().is_multiple_of(2);
    let (below, value, _) = known.select_nth_unstable_by(middle, in_order);
    if even { (below.iter().copied().fold(f64::NEG_INFINITY, larger) + *value) / 2.0 } else { *value }
}

/// The order of known values.
pub(crate) fn in_order(a: &f64, b: &f64) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn a_row_among_others_has_the_value_that_it_has_alone() {
        for seed in 1..=300_u64 {
            let random = SeededRandom::new(seed);
            let count = 1 + random.below(60);
            let columns: Vec<Vec<f64>> = (0..count)
                .map(|_| {
                    let rows = random.below(40);
                    let value = || match random.below(8) {
                        0 | 1 => f64::NAN,
                        2 => 0.0,
                        _ => random.below(2_000_001) as f64 / 1e3 - 1e3,
                    };
                    (0..rows).map(|_| value()).collect()
                })
                .collect();
            let slices: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
            let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
            let share = [0.0, 0.25, 0.5, 0.9, 1.0, 2.0][random.below(6) as usize];
            for (name, aggregator) in Aggregator::NAMES {
                let across = aggregator.across(&slices, share);
                let naive: Vec<f64> = (0..rows)
                    .map(|row| {
                        let at = |column: &&[f64]| column.get(row).copied().unwrap_or(f64::NAN);
                        let values: Vec<f64> = slices.iter().map(at).collect();
                        let known = values.iter().filter(|value| !value.is_nan()).count();
                        let enough = known > 0 && known as f64 / values.len() as f64 >= share;
                        if enough { aggregator.of(&values) } else { f64::NAN }
                    })
                    .collect();
                let bits = |values: &[f64]| -> Vec<u64> {
                    values.iter().map(|value| if value.is_nan() { u64::MAX } else { value.to_bits() }).collect()
                };
                assert_eq!(bits(&across), bits(&naive), "seed {seed}: {name} with {share} of {columns:?}");
            }
        }
    }
}
