//! The moving average in which older values count ever less.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Length, SeriesList, Value, parameters},
    evaluate::Scope,
    functions::{Asked, Evaluate, Function, Reach},
    number::round_to_millionths,
};

const LENGTHS: &[Literal] = &[
    Literal::Integer(5),
    Literal::Integer(7),
    Literal::Integer(10),
    Literal::Text("1min"),
    Literal::Text("5min"),
    Literal::Text("10min"),
    Literal::Text("30min"),
    Literal::Text("1hour"),
];

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<ExponentialMovingAverage>(
    "exponentialMovingAverage",
    "Calculate",
    "A mean in which the latest value counts 2 / (windowSize + 1) and the mean before it the rest. The windowSize is a \
     number of points or a time such as '5min' (then its seconds are what counts); what lies before the graph is fetched \
     for it.",
)];

parameters! {
    /// exponentialMovingAverage.
    struct ExponentialMovingAverage {
        series: SeriesList = "seriesList".required();
        window: Length = "windowSize".required().suggest(LENGTHS);
    }
}

impl ExponentialMovingAverage {
    /// How far before the graph the first mean begins, if it can be told.
    fn preview_seconds(&self, largest_step: Option<i64>) -> Option<i64> {
        match &self.window {
            Length::Time(seconds, _) => Some(*seconds),
            Length::Points(points, _) => Some(largest_step?.saturating_mul(*points)),
        }
    }
}

impl Evaluate for ExponentialMovingAverage {
    const REACHES: bool = true;

    fn reach(&self, asked: &Asked) -> Result<Reach, Error> {
        let preview = self.preview_seconds(asked.largest_step);
        let widened = preview.map(|preview| asked.moved(asked.span, -preview, 0, "windowSize")).transpose()?;
        Ok(Reach { asked: widened.is_none() || !asked.fetched, more: widened.into_iter().collect() })
    }

    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let largest_step = match scope.asked_was_evaluated {
            true => self.series.0.iter().map(|series| series.step).max(),
            false => scope.asked.largest_step,
        };
        let nothing = scope.asked_was_evaluated && self.series.0.is_empty();
        let Some(preview) = self.preview_seconds(largest_step).filter(|_| !nothing) else {
            return Ok(Vec::new().into());
        };
        let wide = scope.again(scope.asked.moved(scope.span, -preview, 0, "windowSize")?)?;
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
            // Python's `0` stands in where there is nothing to begin with.
            let integers = values.first() == Some(&0.0) && values.iter().skip(1).all(|value| value.is_nan());
            let start = series.start.saturating_add(preview);
            means.push(Series { start, integers, ..series.with(values).called(name) });
        }
        Ok(means.into())
    }
}

/// The mean of the first values, then one more for each value behind them: null where that is, and the mean goes on
/// from where it was.
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
