//! Outliers: values and series beyond a bound or a percentile, or within.

use crate::{
    Aggregator, Error, Literal, Series,
    aggregator::in_order,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::percent::percentile,
    number::{general, repr},
    scope::Scope,
    sorted::{known, sort},
};

const SERIES: &str = "Filter Series";
const DATA: &str = "Filter Data";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AverageOutsidePercentile>(
        "averageOutsidePercentile",
        SERIES,
        "The series whose mean is outside of the middle n percent of all means, at either end.",
    ),
    Function::of::<RemoveBetweenPercentile>(
        "removeBetweenPercentile",
        SERIES,
        "The series that have any value outside of the middle n percent of the values of its time.",
    ),
    by_percentile("removeAbovePercentile", true, "Makes values above the n-th percentile of their series null."),
    by_percentile("removeBelowPercentile", false, "Makes values below the n-th percentile of their series null."),
    by_value("removeAboveValue", true, "Makes values above a number null."),
    by_value("removeBelowValue", false, "Makes values below a number null."),
];

const fn by_percentile(name: &'static str, above: bool, description: &'static str) -> Function {
    Function::of::<RemoveByPercentile>(name, DATA, description).preset("above", Literal::Boolean(above))
}

const fn by_value(name: &'static str, above: bool, description: &'static str) -> Function {
    Function::of::<RemoveByValue>(name, DATA, description).preset("above", Literal::Boolean(above))
}

/// The n-th percentile of the known among some values.
fn percentile_of(values: &[f64], n: f64, scope: &Scope) -> Result<Option<f64>, Error> {
    let mut known = known(values, scope)?;
    sort(&mut known, in_order, scope)?;
    Ok((!known.is_empty()).then(|| percentile(&known, n, false)))
}

parameters! {
    /// removeAbovePercentile and removeBelowPercentile.
    struct RemoveByPercentile {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
        above: bool = "above";
    }
}

impl Evaluate for RemoveByPercentile {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let n = self.n;
        if !(0.0 < n && n <= 100.0) {
            return Err(scope.reject(format!("n must be greater than 0 and at most 100, got {}", repr(n))));
        }
        let mut removed = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            let bound = percentile_of(&series.values, n, scope)?;
            let name = format!("{}({}, {})", scope.function(), series.name, general(n));
            if bound.is_some() {
                series.tags.put("nPercentile", repr(n));
            }
            removed.push(match bound {
                // A series shorter than its step has no percentile in graphite-web, and keeps its values.
                Some(bound) if (series.end - series.start) / series.step.max(1) > 0 => {
                    without(series, self.above, bound, scope)?
                }
                _ => series,
            });
            if let Some(series) = removed.last_mut() {
                *series = series.clone().called(name);
            }
        }
        Ok(removed.into())
    }
}

fn without(series: Series, above: bool, bound: f64, scope: &Scope) -> Result<Series, Error> {
    let keep = |value: &f64| {
        let removed = if above { *value > bound } else { *value < bound };
        if removed { f64::NAN } else { *value }
    };
    let values = scope.column(&series.values, 2, keep)?;
    Ok(series.with_alike(values))
}

parameters! {
    /// removeAboveValue and removeBelowValue.
    struct RemoveByValue {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
        above: bool = "above";
    }
}

impl Evaluate for RemoveByValue {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut removed = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.spend(series.values.len())?;
            let name = format!("{}({}, {})", scope.function(), series.name, general(self.n));
            removed.push(without(series, self.above, self.n, scope)?.called(name));
        }
        Ok(removed.into())
    }
}

/// The larger of the two percentages that a number below 50 and its counterpart above stand for.
fn upper_percentage(n: f64, scope: &Scope) -> Result<f64, Error> {
    if !(0.0..=100.0).contains(&n) {
        return Err(scope.reject(format!("n must be at least 0 and at most 100, got {}", repr(n))));
    }
    Ok(if n < 50.0 { 100.0 - n } else { n })
}

parameters! {
    /// averageOutsidePercentile.
    struct AverageOutsidePercentile {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
    }
}

impl Evaluate for AverageOutsidePercentile {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        let n = upper_percentage(self.n, scope)?;
        let mut means = Vec::with_capacity(self.series.0.len());
        for series in &self.series.0 {
            scope.check_after(2 * series.values.len())?;
            means.push(Aggregator::Average.of(&series.values));
        }
        let bound = |n: f64| Ok::<f64, Error>(percentile_of(&means, n, scope)?.unwrap_or(f64::NAN));
        let (low, high) = (bound(100.0 - n)?, bound(n)?);
        let mut means = means.iter();
        // A series without a mean is not among the others.
        self.series.0.retain(|_| means.next().is_some_and(|mean| *mean <= low || high <= *mean));
        Ok(self.series.0.into())
    }
}

parameters! {
    /// removeBetweenPercentile.
    struct RemoveBetweenPercentile {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
    }
}

/// Steps of taking a value out of a series and comparing it.
const STEPS_PER_VALUE: usize = 20;

impl Evaluate for RemoveBetweenPercentile {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        let n = upper_percentage(self.n, scope)?;
        let rows = self.series.0.iter().map(|series| series.values.len()).max().unwrap_or(0);
        scope.spend(rows.saturating_mul(2))?;
        let mut outside = vec![false; self.series.0.len()];
        let mut row = Vec::with_capacity(outside.len());
        for i in 0..rows {
            scope.check_after(STEPS_PER_VALUE * outside.len())?;
            let at = |series: &Series| series.values.get(i).copied().unwrap_or(f64::NAN);
            row.clear();
            row.extend(self.series.0.iter().map(at).filter(|value| !value.is_nan()));
            if row.is_empty() {
                continue;
            }
            sort(&mut row, in_order, scope)?;
            let (low, high) = (percentile(&row, 100.0 - n, false), percentile(&row, n, false));
            for (series, outside) in self.series.0.iter().zip(&mut outside) {
                let value = at(series);
                *outside |= value <= low || high <= value;
            }
        }
        let mut outside = outside.into_iter();
        self.series.0.retain(|_| outside.next().unwrap_or(false));
        Ok(self.series.0.into())
    }
}
