//! One series to one series of the same times: value by value, or each from those before it.

use crate::{
    Error, Literal, Series,
    argument::{Limit, SeriesList, Value, parameters},
    function::{AskedRollup, Evaluate, Function},
    number::{general, repr, round_to_millionths},
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Absolute>("absolute", GROUP, "Each value without its sign."),
    Function::of::<Derivative>("derivative", GROUP, "The difference from each value to the next.")
        .asks_for(AskedRollup::First),
    Function::of::<Integral>("integral", GROUP, "The sum of all values so far.").asks_for(AskedRollup::First),
    Function::of::<Invert>("invert", GROUP, "One divided by each value."),
    Function::of::<KeepLastValue>(
        "keepLastValue",
        GROUP,
        "Nulls become the last value before them, unless more than limit of them follow each other.",
    ),
    Function::of::<NonNegativeDerivative>(
        "nonNegativeDerivative",
        GROUP,
        "The growth of a counter from each value to the next; null where it fell, unless maxValue (or minValue) is the \
         value where it begins again.",
    )
    .asks_for(AskedRollup::First),
    Function::of::<Offset>("offset", GROUP, "Each value plus a number."),
    Function::of::<PerSecond>("perSecond", GROUP, "As nonNegativeDerivative, per second, rounded to six decimals.")
        .asks_for(AskedRollup::First),
    Function::of::<Scale>("scale", GROUP, "Each value times a number."),
    Function::of::<TransformNull>(
        "transformNull",
        GROUP,
        "Nulls become a number; with referenceSeries only where any of those has a value.",
    ),
];

/// Each series under `function(name)` or `function(name,argument)`, tagged with the function, with other values.
/// Integers of Python stay integers if the function adds only integers.
fn each(
    list: SeriesList,
    scope: &mut Scope,
    (function, tag, argument): (&str, &str, Option<f64>),
    keeps_integers: bool,
    values: impl Fn(&Series) -> Vec<f64>,
) -> Result<Value, Error> {
    let mut changed = Vec::with_capacity(list.0.len());
    for mut series in list.0 {
        scope.check()?;
        series.tags.put(function, tag);
        let argument = argument.map_or(String::new(), |argument| format!(",{}", general(argument)));
        let name = format!("{function}({}{argument})", series.name);
        let values = values(&series);
        let series = if keeps_integers { series.with_alike(values) } else { series.with(values) };
        changed.push(series.called(name));
    }
    Ok(changed.into())
}

/// Each value by itself.
fn map(series: &Series, map: impl Fn(f64) -> f64) -> Vec<f64> {
    series.values.iter().map(|value| map(*value)).collect()
}

parameters! {
    /// scale.
    struct Scale {
        series: SeriesList = "seriesList".required();
        factor: f64 = "factor".required();
    }
}

impl Evaluate for Scale {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let Scale { series, factor } = self;
        let what = ("scale", &*repr(factor), Some(factor));
        each(series, scope, what, false, |series| map(series, |value| value * factor))
    }
}

parameters! {
    /// offset.
    struct Offset {
        series: SeriesList = "seriesList".required();
        factor: f64 = "factor".required();
    }
}

impl Evaluate for Offset {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let Offset { series, factor } = self;
        let what = ("offset", &*repr(factor), Some(factor));
        each(series, scope, what, false, |series| map(series, |value| value + factor))
    }
}

parameters! {
    /// absolute.
    struct Absolute {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Absolute {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        each(self.series, scope, ("absolute", "1", None), true, |series| map(series, f64::abs))
    }
}

parameters! {
    /// invert.
    struct Invert {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Invert {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        // A result beyond all floats is null, as the inverse of zero is; that of an infinity is zero.
        // Python raises to the power of -1, which is not to the last bit what a division gives; the compiler
        // must not know the exponent, or it divides.
        let exponent = std::hint::black_box(-1.0);
        let invert = |value: f64| {
            let inverse = value.powf(exponent);
            if inverse.is_finite() { inverse } else { f64::NAN }
        };
        each(self.series, scope, ("invert", "1", None), false, |series| map(series, invert))
    }
}

parameters! {
    /// transformNull.
    struct TransformNull {
        series: SeriesList = "seriesList".required();
        default: Option<f64> = "default".documented(Literal::Integer(0));
        reference: Option<SeriesList> = "referenceSeries";
    }
}

impl Evaluate for TransformNull {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        // Python's own default is an integer, which shows; one that is given becomes a float.
        let (default, written) = self.default.map_or((0.0, "0".to_owned()), |default| (default, repr(default)));
        let reference = self.reference.map(|list| list.0).filter(|series| !series.is_empty());
        let suffix = if reference.is_some() { ",referenceSeries" } else { "" };
        // Where any reference has a value. Beyond their ends nothing has.
        let known: Option<Vec<bool>> = reference.map(|series| {
            let rows = series.iter().map(|series| series.values.len()).max().unwrap_or(0);
            let any = |row: usize| series.iter().any(|series| series.values.get(row).is_some_and(|v| !v.is_nan()));
            (0..rows).map(any).collect()
        });
        let mut filled = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.check()?;
            series.tags.put("transformNull", written.as_str());
            if known.is_some() {
                series.tags.put("referenceSeries", "1");
            }
            let name = format!("transformNull({},{}{suffix})", series.name, general(default));
            let rows = known.as_ref().map_or(0, Vec::len).max(series.values.len());
            let value = |row: usize| {
                let value = series.values.get(row).copied().unwrap_or(f64::NAN);
                let replace = known.as_ref().is_none_or(|known| known.get(row) == Some(&true));
                if value.is_nan() && replace { default } else { value }
            };
            // Where a reference is longer, graphite-web keeps as many values as there were, from the end.
            let values = (rows - series.values.len()..rows).map(value).collect();
            let nothing = series.values.iter().all(|value| value.is_nan());
            let integers = self.default.is_none() && (series.integers || nothing);
            filled.push(Series { integers, ..series.with(values).called(name) });
        }
        Ok(filled.into())
    }
}

parameters! {
    /// keepLastValue.
    struct KeepLastValue {
        series: SeriesList = "seriesList".required();
        limit: Limit = "limit".default(Literal::Float(f64::INFINITY));
    }
}

impl Evaluate for KeepLastValue {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut kept = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.check()?;
            let name = format!("keepLastValue({})", series.name);
            let values = keep_last(&series.values, self.limit.0);
            kept.push(series.with_alike(values).called(name));
        }
        Ok(kept.into())
    }
}

fn keep_last(values: &[f64], limit: f64) -> Vec<f64> {
    let mut kept = values.to_vec();
    let mut last = f64::NAN;
    for run in kept.chunk_by_mut(|a, b| a.is_nan() == b.is_nan()) {
        let unknown = run.first().is_some_and(|value| value.is_nan());
        if unknown && run.len() as f64 <= limit {
            run.fill(last);
        } else if !unknown {
            last = run.last().copied().unwrap_or(last);
        }
    }
    kept
}

parameters! {
    /// derivative.
    struct Derivative {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Derivative {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let differences = |series: &Series| {
            let mut previous = f64::NAN;
            series.values.iter().map(|value| value - std::mem::replace(&mut previous, *value)).collect()
        };
        each(self.series, scope, ("derivative", "1", None), true, differences)
    }
}

parameters! {
    /// integral.
    struct Integral {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for Integral {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let sums = |series: &Series| {
            let mut sum = 0.0;
            let mut add = |value: &f64| {
                if value.is_nan() {
                    return f64::NAN;
                }
                sum += value;
                sum
            };
            series.values.iter().map(&mut add).collect()
        };
        each(self.series, scope, ("integral", "1", None), false, sums)
    }
}

parameters! {
    /// nonNegativeDerivative.
    struct NonNegativeDerivative {
        series: SeriesList = "seriesList".required();
        max: Option<f64> = "maxValue";
        min: Option<f64> = "minValue";
    }
}

impl Evaluate for NonNegativeDerivative {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let counter = Counter { max: self.max, min: self.min };
        let growth = |series: &Series| counter.growth(&series.values).collect();
        let keeps_integers = self.max.is_none() && self.min.is_none();
        each(self.series, scope, ("nonNegativeDerivative", "1", None), keeps_integers, growth)
    }
}

parameters! {
    /// perSecond.
    struct PerSecond {
        series: SeriesList = "seriesList".required();
        max: Option<f64> = "maxValue";
        min: Option<f64> = "minValue";
    }
}

impl Evaluate for PerSecond {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let counter = Counter { max: self.max, min: self.min };
        let rates = |series: &Series| {
            let step = series.step as f64;
            counter.growth(&series.values).map(|growth| round_to_millionths(growth / step)).collect()
        };
        each(self.series, scope, ("perSecond", "1", None), false, rates)
    }
}

/// A counter that only grows, between bounds at which it begins again.
#[derive(Clone, Copy)]
struct Counter {
    max: Option<f64>,
    min: Option<f64>,
}

impl Counter {
    /// How much it grew from each value to the next; null where that is unknown. A value out of bounds does
    /// not count, nor does the one after it.
    fn growth(self, values: &[f64]) -> impl Iterator<Item = f64> + '_ {
        let mut previous = f64::NAN;
        values.iter().map(move |value| {
            let value = if self.max.is_some_and(|max| *value > max) || self.min.is_some_and(|min| *value < min) {
                f64::NAN
            } else {
                *value
            };
            let before = std::mem::replace(&mut previous, value);
            if before.is_nan() || value.is_nan() {
                f64::NAN
            } else if value >= before {
                value - before
            } else if let Some(max) = self.max {
                max + 1.0 + value - before - self.min.unwrap_or(0.0)
            } else if let Some(min) = self.min {
                value - min
            } else {
                f64::NAN
            }
        })
    }
}
