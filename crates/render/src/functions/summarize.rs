//! Series at a coarser step.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Interval, Named, SeriesList, Value, parameters},
    function::{AskedRollup, Evaluate, Function},
    scope::Scope,
};

pub(super) const INTERVALS: &[Literal] = &[Literal::Text("10min"), Literal::Text("1h"), Literal::Text("1d")];

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<Summarize>(
    "summarize",
    "Transform",
    "Folds the values of each interval by func. Intervals begin at multiples of themselves since 1970, or, with \
     alignToFrom, where the series does.",
)
.asks_for(AskedRollup::First)];

parameters! {
    /// summarize.
    struct Summarize {
        series: SeriesList = "seriesList".required();
        interval: Interval = "intervalString".required().suggest(INTERVALS);
        func: Named = "func".default(Literal::Text("sum"));
        align_to_from: bool = "alignToFrom".default(Literal::Boolean(false));
    }
}

impl Evaluate for Summarize {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (interval, text) = (self.interval.seconds, &self.interval.text);
        if interval <= 0 {
            return Err(scope.reject(format!("intervalString must be longer than nothing, got '{text}'")));
        }
        let mut summarized = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            let (start, until) = match self.align_to_from {
                true => (series.start, series.end),
                false => {
                    let start = series.start - series.start.rem_euclid(interval);
                    (start, series.end - series.end.rem_euclid(interval) + interval)
                }
            };
            let intervals = (until - start).max(0).div_ceil_i64(interval);
            scope.spend(usize::try_from(intervals).unwrap_or(usize::MAX))?;
            let values = in_intervals(&series, self.func.aggregator, interval, start, intervals);
            series.tags.put("summarize", text.as_str());
            series.tags.put("summarizeFunction", self.func.name.as_str());
            let aligned = if self.align_to_from { ", true" } else { "" };
            let name = format!("summarize({}, \"{text}\", \"{}\"{aligned})", series.name, self.func.name);
            let end = if self.align_to_from { start + intervals * interval } else { until };
            let integers = self.func.aggregator.keeps_integers(series.integers);
            let values = series.with(values).called(name);
            summarized.push(Series { start, end, step: interval, integers, ..values });
        }
        Ok(summarized.into())
    }
}

trait DivCeil {
    fn div_ceil_i64(self, by: i64) -> i64;
}

impl DivCeil for i64 {
    /// How many times `by` (positive) must be taken to reach a number that is not negative.
    fn div_ceil_i64(self, by: i64) -> i64 {
        self / by + i64::from(self % by != 0)
    }
}

/// The value of each interval from `start` on, which is not before the series' own start, up to the series' end.
pub(super) fn from_start(series: &Series, aggregator: Aggregator, interval: i64, start: i64) -> Vec<f64> {
    let intervals = (series.end - start).max(0).div_ceil_i64(interval);
    in_intervals(series, aggregator, interval, start, intervals)
}

/// The values of so many intervals from `start` on, which is not after the series' own start.
/// An interval is unknown where the known share of the values that fit in it is below xFilesFactor.
fn in_intervals(series: &Series, aggregator: Aggregator, interval: i64, start: i64, intervals: i64) -> Vec<f64> {
    let fitting = interval as f64 / series.step as f64;
    // Values behind the end, as a line at a constant has one, do not count.
    let slots = (series.end - series.start).max(0).div_ceil_i64(series.step);
    let all = series.values.get(..usize::try_from(slots).unwrap_or(0).min(series.values.len())).unwrap_or_default();
    // The number of values before a time.
    let before = |time: i64| {
        let count = (time - series.start).max(0).div_ceil_i64(series.step);
        usize::try_from(count).unwrap_or(usize::MAX).min(all.len())
    };
    let summary = |i: i64| {
        let from = start + i * interval;
        let values = all.get(before(from)..before(from + interval)).unwrap_or_default();
        let known = values.iter().filter(|value| !value.is_nan()).count();
        if known == 0 || (known as f64 / fitting) < series.x_files_factor {
            return f64::NAN;
        }
        aggregator.of(values)
    };
    (0..intervals).map(summary).collect()
}
