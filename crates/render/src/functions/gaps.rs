//! One series to one series, by its gaps: filled, closed up, and counted.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Limit, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::summarize::from_start,
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Changed>("changed", "Special", "One where a value differs from the one before it, else zero."),
    Function::of::<CompressPeriodicGaps>(
        "compressPeriodicGaps",
        GROUP,
        "Finds out from the first three values every how many steps there is one, and makes that the series' step.",
    ),
    Function::of::<Delay>(
        "delay",
        GROUP,
        "Moves the values so many steps to the right, a negative number of them to the left. No more values are fetched: those \
         at the edge are null.",
    ),
    Function::of::<Interpolate>(
        "interpolate",
        GROUP,
        "Nulls between two values become points of the straight line between these, unless more than limit of them follow \
         each other.",
    ),
];

parameters! {
    /// changed.
    struct Changed {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Changed {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut changed = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let mut previous = f64::NAN;
            let mut differs = |value: &f64| {
                if value.is_nan() {
                    return 0.0;
                }
                let before = std::mem::replace(&mut previous, *value);
                f64::from(u8::from(!before.is_nan() && before != *value))
            };
            let values = series.values.iter().map(&mut differs).collect();
            let name = format!("changed({})", series.name);
            changed.push(Series { integers: true, ..series.with(values).called(name) });
        }
        Ok(changed.into())
    }
}

parameters! {
    /// compressPeriodicGaps.
    struct CompressPeriodicGaps {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for CompressPeriodicGaps {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut compressed = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let name = format!("compressPeriodicGaps({})", series.name);
            let series = series.called(name);
            compressed.push(match period(&series.values) {
                Some((first, period)) => {
                    let (start, step) = (series.start + first * series.step, period * series.step);
                    let values = from_start(&series, Aggregator::Last, step, start);
                    let end = start + step * (values.len() as i64 - 1);
                    Series { start, end, step, ..series.with_alike(values) }
                }
                None => series,
            });
        }
        Ok(compressed.into())
    }
}

/// The position of the first value, and the steps from one value to the next: those between the first two, if the third
/// is where the two predict it, and alone. Zero is not a value here, as in graphite-web.
fn period(values: &[f64]) -> Option<(i64, i64)> {
    let counts = |value: &f64| !value.is_nan() && *value != 0.0;
    let mut places = (0..values.len()).filter(|i| values.get(*i).is_some_and(counts));
    let (first, second) = (places.next()?, places.next()?);
    let period = second - first;
    let third = second + period;
    let unknown = |at: usize| values.get(at).is_some_and(|value| value.is_nan());
    let alone = values.get(third).is_some_and(counts) && unknown(third - 1) && unknown(third + 1);
    (period > 1 && alone).then_some((first as i64, period as i64))
}

parameters! {
    /// delay.
    struct Delay {
        series: SeriesList = "seriesList".required();
        steps: i64 = "steps".required();
    }
}

impl Evaluate for Delay {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut delayed = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            let count = series.values.len();
            let by = usize::try_from(self.steps.unsigned_abs()).unwrap_or(usize::MAX).min(count);
            let unknown = std::iter::repeat_n(f64::NAN, by);
            let values = match self.steps < 0 {
                true => series.values.iter().skip(by).copied().chain(unknown).collect(),
                false => unknown.chain(series.values.iter().take(count - by).copied()).collect(),
            };
            series.tags.put("delay", self.steps.to_string());
            let name = format!("delay({},{})", series.name, self.steps);
            delayed.push(series.with_alike(values).called(name));
        }
        Ok(delayed.into())
    }
}

parameters! {
    /// interpolate.
    struct Interpolate {
        series: SeriesList = "seriesList".required();
        limit: Limit = "limit".default(Literal::Float(f64::INFINITY));
    }
}

impl Evaluate for Interpolate {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut interpolated = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let name = format!("interpolate({})", series.name);
            let (values, filled) = interpolate(&series.values, self.limit.0);
            let integers = series.integers && !filled;
            interpolated.push(Series { integers, ..series.with(values).called(name) });
        }
        Ok(interpolated.into())
    }
}

/// The values with their gaps filled, and whether there was a gap.
fn interpolate(values: &[f64], limit: f64) -> (Vec<f64>, bool) {
    let mut filled = values.to_vec();
    let mut any = false;
    let mut last: Option<usize> = None;
    for (i, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        if let Some(last) = last.replace(i)
            && let gap = i - last - 1
            && gap > 0
            && gap as f64 <= limit
        {
            any = true;
            let before = values[last];
            for (place, out) in filled[last + 1..i].iter_mut().enumerate() {
                *out = before + (place + 1) as f64 * (value - before) / (gap + 1) as f64;
            }
        }
    }
    (filled, any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_values_define_a_period() {
        const N: f64 = f64::NAN;
        assert_eq!(period(&[N, 1.0, N, 2.0, N, 3.0, N]), Some((1, 2)));
        // graphite-web 1.1.10 overlooks a value at the very start, its next version does not.
        assert_eq!(period(&[1.0, N, 2.0, N, 3.0, N]), Some((0, 2)));
        // A third value that nothing follows may be followed by another.
        assert_eq!(period(&[1.0, N, 2.0, N, 3.0]), None);
        assert_eq!(period(&[1.0, N, 2.0, N, 3.0, 4.0]), None);
        assert_eq!(period(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(period(&[N, N]), None);
        assert_eq!(period(&[]), None);
    }
}
