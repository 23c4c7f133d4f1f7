//! One number for a series, and how far its values stray from their mean.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Named, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::constant::line,
    number::{general, repr},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AggregateLine>(
        "aggregateLine",
        "Calculate",
        "A line at the value that func makes of each series: of three points, or, with keepStep, of as many as the series \
         has.",
    ),
    Function::of::<MostDeviant>(
        "mostDeviant",
        "Filter Series",
        "The n series whose values vary the most, the most varying first.",
    ),
    Function::of::<StDev>(
        "stdev",
        "Calculate",
        "The standard deviation of the last so many values at each time; null where less than the share windowTolerance of \
         them is known.",
    ),
];

parameters! {
    /// aggregateLine.
    struct AggregateLine {
        series: SeriesList = "seriesList".required();
        func: Named = "func".default(Literal::Text("average"));
        keep_step: bool = "keepStep".default(Literal::Boolean(false));
    }
}

/// Steps of making a line: its name, and the text of its value.
const STEPS_PER_LINE: usize = 2000;

impl Evaluate for AggregateLine {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut lines = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.check_after(STEPS_PER_LINE)?;
            let value = self.func.aggregator.of(&series.values);
            let integers = self.func.aggregator.answers_integer(&series.values, series.integers);
            let shown = if value.is_nan() { "None".to_owned() } else { general(value) };
            let name = format!("aggregateLine({}, {shown})", series.name);
            lines.push(match self.keep_step {
                true => {
                    scope.spend(series.values.len())?;
                    let values = vec![value; series.values.len()];
                    Series { integers, ..series.with(values).called(name) }
                }
                false => {
                    let text = match (value.is_nan(), integers) {
                        (true, _) => "None".to_owned(),
                        (false, true) => format!("{value:.0}"),
                        (false, false) => repr(value),
                    };
                    Series { integers, ..line(value, &text, scope).called(name) }
                }
            });
        }
        Ok(lines.into())
    }
}

parameters! {
    /// mostDeviant.
    struct MostDeviant {
        series: SeriesList = "seriesList".required();
        n: i64 = "n".required();
    }
}

impl Evaluate for MostDeviant {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        scope.check()?;
        let variance = |series: &Series| {
            let known = || series.values.iter().filter(|value| !value.is_nan());
            let mean = Aggregator::Average.of(&series.values);
            known().fold(0.0, |sum, value| sum + (value - mean) * (value - mean)) / known().count() as f64
        };
        let known = self.series.0.into_iter().filter(|series| series.values.iter().any(|value| !value.is_nan()));
        let mut deviants: Vec<(f64, Series)> = known.map(|series| (variance(&series), series)).collect();
        deviants.sort_by(|(a, _), (b, _)| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
        Ok(super::filter::first_n(deviants.into_iter().map(|(_, series)| series).collect(), self.n).into())
    }
}

parameters! {
    /// stdev.
    struct StDev {
        series: SeriesList = "seriesList".required();
        points: i64 = "points".required();
        tolerance: f64 = "windowTolerance".default(Literal::Float(0.1));
    }
}

impl Evaluate for StDev {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let points = self.points;
        let Some(window) = usize::try_from(points).ok().filter(|points| *points > 0) else {
            return Err(scope.reject(format!("points must be at least 1, got {points}")));
        };
        let mut deviations = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            series.tags.put("stdev", points.to_string());
            let name = format!("stdev({},{points})", series.name);
            let values = moving_deviation(&series.values, window, self.tolerance, scope)?;
            deviations.push(series.with(values).called(name));
        }
        Ok(deviations.into())
    }
}

/// The deviation in each window that ends with a value; the first windows are short. Uses running
/// sums, because graphite-web does and their errors show: constant values deviate a little from themselves.
fn moving_deviation(values: &[f64], window: usize, tolerance: f64, scope: &Scope) -> Result<Vec<f64>, Error> {
    // Python squares with the library's power, which is not to the last bit what a multiplication gives.
    let two = std::hint::black_box(2.0);
    let (mut known, mut sum, mut squares) = (0.0, 0.0, 0.0);
    let mut places = 0..;
    let deviation = |value: &f64| {
        let i: usize = places.next().unwrap_or(usize::MAX);
        let dropped = i.checked_sub(window).map_or(f64::NAN, |dropped| values[dropped]);
        if !dropped.is_nan() {
            known -= 1.0;
            sum -= dropped;
            squares -= dropped.powf(two);
        }
        if !value.is_nan() {
            known += 1.0;
            sum += value;
            squares += value.powf(two);
        }
        if known > 0.0 && known / window as f64 >= tolerance {
            // Below zero by rounding alone: null, as there.
            (known * squares - sum.powf(two)).sqrt() / known
        } else {
            f64::NAN
        }
    };
    scope.column(values, 40, deviation)
}
