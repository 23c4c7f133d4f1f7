//! The expected values of a series, after Holt and Winters: level, slope and season, learnt value by value.

use std::collections::HashMap;

use crate::{
    Error, Literal, Series,
    argument::{Interval, Real, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    scope::{CallContext, Scope},
};

const GROUP: &str = "Calculate";

/// Steps of putting a series away under its name.
const STEPS_PER_SERIES: usize = 500;

/// How fast level, slope and season follow the values.
const LEVEL: f64 = 0.1;
const SLOPE: f64 = 0.0035;
const SEASON: f64 = 0.1;

const BOOTSTRAPS: &[Literal] = &[Literal::Text("7d"), Literal::Text("30d")];
const SEASONS: &[Literal] = &[Literal::Text("1d"), Literal::Text("7d")];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<Aberration>(
        "holtWintersAberration",
        GROUP,
        "How far each value is outside of its confidence bands; zero inside of them.",
    ),
    Function::reaching::<ConfidenceArea>(
        "holtWintersConfidenceArea",
        GROUP,
        "The area between the confidence bands of one series, for a graph.",
    ),
    Function::reaching::<ConfidenceBands>(
        "holtWintersConfidenceBands",
        GROUP,
        "For each series the band below and the band above its forecast: delta times the expected deviation.",
    ),
    Function::reaching::<Forecast>(
        "holtWintersForecast",
        GROUP,
        "The expected values of each series by its season, learnt from the bootstrapInterval before the graph, which is \
         fetched for it, and from the graph.",
    ),
];

/// The span to learn from.
fn source(bootstrap: &Interval, call: &CallContext) -> Result<Needs, Error> {
    if bootstrap.seconds < 0 {
        return Err(call.reject(format!("bootstrapInterval must not be negative, got '{}'", bootstrap.text)));
    }
    Ok(Needs::spans(vec![call.moved(-bootstrap.seconds, 0, "bootstrapInterval")?]))
}

parameters! {
    /// holtWintersForecast.
    struct Forecast {
        _series: SeriesList = "seriesList".required();
        bootstrap: Interval = "bootstrapInterval".default(Literal::Text("7d")).suggest(BOOTSTRAPS);
        season: Interval = "seasonality".default(Literal::Text("1d")).suggest(SEASONS);
    }
}

impl Reaching for Forecast {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        source(&self.bootstrap, call).map(Reach::InsteadOfFirst)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let mut forecasts = Vec::new();
        for mut series in inputs.only() {
            let learnt = Learnt::of(&series, &self.season, scope)?;
            let name = format!("holtWintersForecast({})", series.name);
            mark(&mut series, &["holtWintersForecast", "holtWintersDeviation"]);
            forecasts.push(of_graph(&series, &name, self.bootstrap.seconds, learnt.predictions));
        }
        Ok(forecasts.into())
    }
}

/// Tags whose value is 1.
fn mark(series: &mut Series, tags: &[&str]) {
    for tag in tags {
        series.tags.put(tag, "1");
    }
}

/// The same series with another name and other values, without those before the graph.
fn of_graph(series: &Series, name: &str, preview: i64, mut values: Vec<f64>) -> Series {
    let before = usize::try_from(preview / series.step.max(1)).unwrap_or(usize::MAX).min(values.len());
    values.drain(..before);
    let made = Series::computed(name, series.start + preview, series.end, series.step, values);
    Series { tags: series.tags.clone(), x_files_factor: series.x_files_factor, ..made }
}

parameters! {
    /// holtWintersConfidenceBands.
    struct ConfidenceBands {
        _series: SeriesList = "seriesList".required();
        delta: Real = "delta".default(Literal::Integer(3));
        bootstrap: Interval = "bootstrapInterval".default(Literal::Text("7d")).suggest(BOOTSTRAPS);
        season: Interval = "seasonality".default(Literal::Text("1d")).suggest(SEASONS);
    }
}

impl Reaching for ConfidenceBands {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        source(&self.bootstrap, call).map(Reach::InsteadOfFirst)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let bands = bands(inputs.only(), self.delta.0, &self.bootstrap, &self.season, scope)?;
        Ok(bands.into_iter().flat_map(|(_, lower, upper)| [lower, upper]).collect::<Vec<_>>().into())
    }
}

/// The name of each series, its lower and its upper band.
fn bands(
    wide: Vec<Series>,
    delta: f64,
    bootstrap: &Interval,
    season: &Interval,
    scope: &mut Scope,
) -> Result<Vec<(String, Series, Series)>, Error> {
    let mut bands = Vec::with_capacity(wide.len());
    for mut series in wide {
        let learnt = Learnt::of(&series, season, scope)?;
        scope.spend(2 * series.values.len())?;
        let name = series.name.to_string();
        let tags =
            ["holtWintersForecast", "holtWintersDeviation", "holtWintersConfidenceUpper", "holtWintersConfidenceLower"];
        mark(&mut series, &tags);
        let band = |side: f64, called: &str| {
            let widths = learnt.predictions.iter().zip(&learnt.deviations);
            let values = widths.map(|(prediction, deviation)| prediction + side * (delta * deviation)).collect();
            let band = of_graph(&series, &format!("{called}({name})"), bootstrap.seconds, values);
            Series { path_expression: series.path_expression.clone(), ..band }
        };
        let (lower, upper) = (band(-1.0, "holtWintersConfidenceLower"), band(1.0, "holtWintersConfidenceUpper"));
        bands.push((name, lower, upper));
    }
    Ok(bands)
}

parameters! {
    /// holtWintersConfidenceArea.
    struct ConfidenceArea {
        _series: SeriesList = "seriesList".required();
        delta: Real = "delta".default(Literal::Integer(3));
        bootstrap: Interval = "bootstrapInterval".default(Literal::Text("7d")).suggest(BOOTSTRAPS);
        season: Interval = "seasonality".default(Literal::Text("1d")).suggest(SEASONS);
    }
}

impl Reaching for ConfidenceArea {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        source(&self.bootstrap, call).map(Reach::InsteadOfFirst)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let bands = bands(inputs.only(), self.delta.0, &self.bootstrap, &self.season, scope)?;
        if bands.len() > 1 {
            let count = bands.len();
            return Err(scope.reject(format!("seriesList must be exactly 1 series, got {count}")));
        }
        let mut area = Vec::with_capacity(2);
        for (_, mut lower, mut upper) in bands {
            let name = format!("areaBetween({})", upper.path_expression);
            let name = name.replace("areaBetween", "holtWintersConfidenceArea");
            for band in [&mut lower, &mut upper] {
                mark(band, &["holtWintersConfidenceArea"]);
                band.graph_options_mut().stacked = true;
            }
            lower.graph_options_mut().invisible = true;
            area.extend([lower.called(name.clone()), upper.called(name)]);
        }
        Ok(area.into())
    }
}

parameters! {
    /// holtWintersAberration.
    struct Aberration {
        series: SeriesList = "seriesList".required();
        delta: Real = "delta".default(Literal::Integer(3));
        bootstrap: Interval = "bootstrapInterval".default(Literal::Text("7d")).suggest(BOOTSTRAPS);
        season: Interval = "seasonality".default(Literal::Text("1d")).suggest(SEASONS);
    }
}

impl Reaching for Aberration {
    fn reach(&self, call: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        source(&self.bootstrap, call).map(Reach::Also)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let bands = bands(inputs.only(), self.delta.0, &self.bootstrap, &self.season, scope)?;
        let mut values_of = HashMap::with_capacity(bands.len());
        for (name, lower, upper) in bands {
            scope.check_after(STEPS_PER_SERIES)?;
            values_of.insert(name, (lower.values, upper.values));
        }
        let mut aberrations = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            // A series that is not there before the graph has no bands; graphite-web fails on it.
            let Some((lower, upper)) = values_of.get(&*series.name) else { continue };
            let mut places = 0..;
            let outside = |value: &f64| {
                let i: usize = places.next().unwrap_or(usize::MAX);
                let at = |band: &[f64]| band.get(i).copied().unwrap_or(f64::NAN);
                let (lower, upper) = (at(lower), at(upper));
                // Null is in no order with anything, so it is zero.
                if *value > upper {
                    value - upper
                } else if *value < lower {
                    value - lower
                } else {
                    0.0
                }
            };
            let values = scope.column(&series.values, 3, outside)?;
            mark(&mut series, &["holtWintersAberration"]);
            let name = format!("holtWintersAberration({})", series.name);
            let integers = values.iter().all(|value| *value == 0.0);
            let made = Series::computed(&name, series.start, series.end, series.step, values);
            aberrations.push(Series { tags: series.tags, x_files_factor: series.x_files_factor, integers, ..made });
        }
        Ok(aberrations.into())
    }
}

/// The expected value at each time, before it was known, and its usual error.
struct Learnt {
    predictions: Vec<f64>,
    deviations: Vec<f64>,
}

impl Learnt {
    fn of(series: &Series, season: &Interval, scope: &mut Scope) -> Result<Learnt, Error> {
        let count = series.values.len();
        scope.spend(3 * count)?;
        let length = usize::try_from(season.seconds / series.step.max(1)).unwrap_or(0);
        if length < 2 {
            let (text, step) = (&season.text, series.step);
            return Err(scope.reject(format!("seasonality must be at least two steps of {step} s, got '{text}'")));
        }
        let (mut seasons, mut deviations) = (Vec::with_capacity(count), Vec::<f64>::with_capacity(count));
        let mut predictions = Vec::with_capacity(count);
        // Unknown (NaN) after a null.
        let (mut last_level, mut last_slope, mut next) = (f64::NAN, 0.0, f64::NAN);
        for (i, &value) in series.values.iter().enumerate() {
            if i % 4096 == 0 {
                scope.check()?;
            }
            if value.is_nan() {
                predictions.push(next);
                seasons.push(0.0);
                deviations.push(0.0);
                (last_level, last_slope, next) = (f64::NAN, 0.0, f64::NAN);
                continue;
            }
            // The first is its own prediction.
            let prediction = if i == 0 { value } else { next };
            let before = |values: &[f64], i: usize| i.checked_sub(length).map_or(0.0, |place| values[place]);
            let last_season: f64 = before(&seasons, i);
            let base = if last_level.is_nan() { value } else { last_level };
            let level = LEVEL * (value - last_season) + (1.0 - LEVEL) * (base + last_slope);
            let slope = SLOPE * (level - base) + (1.0 - SLOPE) * last_slope;
            let expected = if prediction.is_nan() { 0.0 } else { prediction };
            let deviation = SEASON * (value - expected).abs() + (1.0 - SEASON) * before(&deviations, i);
            // The season a step later is known already: it is at least two steps long.
            next = level + slope + before(&seasons, i + 1);
            seasons.push(SEASON * (value - level) + (1.0 - SEASON) * last_season);
            predictions.push(prediction);
            deviations.push(deviation);
            (last_level, last_slope) = (level, slope);
        }
        Ok(Learnt { predictions, deviations })
    }
}
