//! Series with different steps brought to one step, to combine them row by row.

use std::borrow::Cow;

use crate::{Consolidation, Series};

/// Series at one step. Rows count from the first value of each series: as in graphite-web, series with different
/// starts are not moved against each other.
pub(crate) struct Normalized<'a> {
    pub(crate) columns: Vec<Cow<'a, [f64]>>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

impl Normalized<'_> {
    /// The columns, for folding.
    pub(crate) fn slices(&self) -> Vec<&[f64]> {
        self.columns.iter().map(|column| &**column).collect()
    }
}

/// Folds each series to the least common multiple of all steps. `None` where there is no series.
pub(crate) fn normalize<'a>(series: &[&'a Series]) -> Option<Normalized<'a>> {
    let first = series.first()?;
    let step = series.iter().fold(first.step, |step, series| least_common_multiple(step, series.step));
    let start = series.iter().fold(first.start, |start, series| start.min(series.start));
    let end = series.iter().fold(first.end, |end, series| end.max(series.end));
    let columns = series.iter().map(|series| folded(series, step / series.step)).collect();
    Some(Normalized { columns, start, end: end - (end - start).rem_euclid(step), step })
}

/// A series' values, so many folded into one.
pub(crate) fn folded(series: &Series, per_point: i64) -> Cow<'_, [f64]> {
    match usize::try_from(per_point) {
        Ok(0 | 1) | Err(_) => Cow::Borrowed(&series.values),
        Ok(per_point) => Cow::Owned(fold(&series.values, per_point, series.consolidation, series.x_files_factor)),
    }
}

/// Folds runs of values. A run is unknown where the known share of a whole run is below `x_files_factor`;
/// the last run may be short, and counts as if it were whole.
pub(crate) fn fold(values: &[f64], per_point: usize, consolidation: Consolidation, x_files_factor: f64) -> Vec<f64> {
    let runs = values.chunks(per_point.max(1));
    runs.map(|run| {
        let known = run.iter().filter(|value| !value.is_nan()).count();
        if known == 0 || (known as f64 / per_point as f64) < x_files_factor {
            return f64::NAN;
        }
        let of = |aggregator: crate::Aggregator| aggregator.of(run);
        match consolidation {
            Consolidation::Average | Consolidation::Avg => of(crate::Aggregator::Average),
            Consolidation::AvgZero => of(crate::Aggregator::AvgZero),
            Consolidation::Sum => of(crate::Aggregator::Sum),
            Consolidation::Max => of(crate::Aggregator::Max),
            Consolidation::Min => of(crate::Aggregator::Min),
            Consolidation::Last => of(crate::Aggregator::Last),
            Consolidation::First => run.iter().copied().find(|value| !value.is_nan()).unwrap_or(f64::NAN),
        }
    })
    .collect()
}

fn least_common_multiple(a: i64, b: i64) -> i64 {
    let (mut divisor, mut rest) = (a.max(1), b.max(1));
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a.max(1) / divisor).saturating_mul(b.max(1))
}
