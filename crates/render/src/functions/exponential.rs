//! Means where older values count ever less.

use crate::{
    Aggregator, Error, Series,
    argument::{Length, SeriesList, Value, parameters},
    function::{Evaluate, FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    functions::preview::{self, LENGTHS},
    number::{general, round_to_millionths},
    scope::{CallContext, Scope},
};

pub(super) const FUNCTIONS: &[Function] = &[EXPONENTIAL, EWMA.also("ewma"), EWMA];

const EXPONENTIAL: Function = Function::reaching::<ExponentialMovingAverage>(
    "exponentialMovingAverage",
    "Calculate",
    "A mean in which the latest value counts 2 / (windowSize + 1) and the mean before it the rest. The windowSize is a \
     number of points or a time such as '5min' (then its seconds count); the values before the graph are fetched \
     for it.",
);

const EWMA: Function = Function::of::<Ewma>(
    "exponentialWeightedMovingAverage",
    "Calculate",
    "A mean that forgets: alpha times each value plus 1 - alpha times the mean so far.",
)
.extension();

parameters! {
    /// exponentialMovingAverage.
    struct ExponentialMovingAverage {
        series: SeriesList = "seriesList".required();
        window: Length = "windowSize".required().suggest(LENGTHS);
    }
}

impl Reaching for ExponentialMovingAverage {
    fn reach(&self, call: &CallContext, first: &FirstArgument) -> Result<Reach, Error> {
        preview::reach(&self.window, call, first)
    }

    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        preview::reach_further(&self.window, &self.series, scope)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Some((preview, wide)) = preview::previewed(&self.series, inputs, scope) else {
            return Ok(Vec::new().into());
        };
        let mut means = Vec::with_capacity(wide.len());
        for mut series in wide {
            scope.spend(series.values.len())?;
            let (points, constant, shown, text) = match &self.window {
                Length::Time(_, text) => (preview / series.step.max(1), preview, format!("\"{text}\""), text),
                Length::Points(points, text) => (*points, *points, text.clone(), text),
            };
            series.tags.put("exponentialMovingAverage", text.as_str());
            let name = format!("exponentialMovingAverage({},{shown})", series.name);
            let points = usize::try_from(points).unwrap_or(usize::MAX);
            let values = averages(&series.values, points, 2.0 / (constant as f64 + 1.0));
            // Without values to begin with, Python takes the integer `0`.
            let integers = values.first() == Some(&0.0) && values.iter().skip(1).all(|value| value.is_nan());
            let start = series.start.saturating_add(preview);
            means.push(Series { start, integers, ..series.with(values).called(name) });
        }
        Ok(means.into())
    }
}

/// The mean of the first values, then one more for each value behind them: null where that value is null, and the mean
/// continues behind it.
fn averages(values: &[f64], points: usize, constant: f64) -> Vec<f64> {
    let (first, rest) = values.split_at(points.min(values.len()));
    let seed = Aggregator::Average.of(first);
    let mut mean = if seed.is_nan() { 0.0 } else { seed };
    let mut means = Vec::with_capacity(rest.len() + 1);
    means.push(round_to_millionths(mean));
    for value in rest {
        if value.is_nan() {
            means.push(f64::NAN);
        } else {
            mean = constant * value + (1.0 - constant) * mean;
            means.push(round_to_millionths(mean));
        }
    }
    means
}

parameters! {
    /// exponentialWeightedMovingAverage.
    struct Ewma {
        series: SeriesList = "seriesList".required();
        alpha: f64 = "alpha".required();
    }
}

impl Evaluate for Ewma {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut averaged = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let mut mean = f64::NAN;
            let mut push = |value: &f64| {
                if value.is_nan() {
                    return f64::NAN;
                }
                mean = if mean.is_nan() { *value } else { self.alpha * value + (1.0 - self.alpha) * mean };
                mean
            };
            let values = series.values.iter().map(&mut push).collect();
            let name = format!("ewma({},{})", series.name, general(self.alpha));
            averaged.push(series.with(values).called(name));
        }
        Ok(averaged.into())
    }
}
