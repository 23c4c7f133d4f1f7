//! Series with unusual values, by Tukey's fences: the quartiles of all values and a multiple of their distance.

use crate::{
    Error, Kind, Literal, Series,
    argument::{Interval, ParameterPosition, SeriesList, Take, Value, parameters},
    function::{Evaluate, Function},
    number::general,
    scope::Scope,
    sorted::{known, sort},
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<Tukey>(
        "tukeyAbove",
        GROUP,
        "The n series with the most values far above the usual: above the third \
        quartile of all values by basis times the distance of the quartiles. interval is the number of values, or the \
        time, at the end that count, or, negative, that do not.",
    )
    .preset("above", Literal::Boolean(true))
    .extension(),
    Function::of::<Tukey>(
        "tukeyBelow",
        GROUP,
        "The n series with the most values far below the usual: below the first \
        quartile of all values by basis times the distance of the quartiles. interval is the number of values, or the \
        time, at the end that count, or, negative, that do not.",
    )
    .preset("above", Literal::Boolean(false))
    .extension(),
];

/// A number of values or a time, with its sign.
enum Stretch {
    Values(i64),
    Seconds(i64),
}

impl Take for Stretch {
    const KIND: Kind = Kind::IntegerOrInterval;

    fn one(value: Value, position: &ParameterPosition) -> Result<Self, Error> {
        match value {
            text @ Value::Text(_) => Interval::one(text, position).map(|interval| Stretch::Seconds(interval.seconds)),
            other => i64::one(other, position).map(Stretch::Values),
        }
    }
}

parameters! {
    /// tukeyAbove and tukeyBelow.
    struct Tukey {
        series: SeriesList = "seriesList".required();
        above: bool = "above";
        basis: f64 = "basis".required();
        n: i64 = "n".required();
        interval: Option<Stretch> = "interval".documented(Literal::Integer(0));
    }
}

impl Evaluate for Tukey {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if self.basis <= 0.0 || self.n < 1 {
            let given = format!("got {} and {}", general(self.basis), self.n);
            return Err(scope.reject(format!("basis must be above 0 and n at least 1, {given}")));
        }
        let Some(first) = self.series.0.first() else { return Ok(Vec::new().into()) };
        let count = first.values.len() as i64;
        let stretch = match self.interval {
            None => 0,
            Some(Stretch::Values(values)) => values,
            Some(Stretch::Seconds(seconds)) => seconds / first.step,
        };
        // An interval longer than the series means all of it.
        let (from, until) = match stretch {
            last if 0 < last && last < count => (count - last, count),
            all_but if all_but < 0 && -count < all_but => (0, count + all_but),
            _ => (0, count),
        };
        let considered = |series: &Series, scope: &Scope| {
            let rows = series.values.len();
            known(&series.values[(from as usize).min(rows)..(until as usize).min(rows)], scope)
        };
        scope.spend(usize::try_from(until - from).unwrap_or(0).saturating_mul(self.series.0.len()))?;
        let mut all = Vec::new();
        for series in &self.series.0 {
            all.append(&mut considered(series, scope)?);
        }
        sort(&mut all, f64::total_cmp, scope)?;
        let quartile = |part: f64| all.get((part * all.len() as f64) as usize).copied().unwrap_or(f64::NAN);
        let (low, high) = (quartile(0.25), quartile(0.75));
        let far = self.basis * (high - low);
        let outlying = |value: &f64| if self.above { *value >= high + far } else { *value <= low - far };
        let mut counted: Vec<(usize, Series)> = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            let outliers = considered(&series, scope)?.iter().filter(|value| outlying(value)).count();
            if outliers > 0 {
                counted.push((outliers, series));
            }
        }
        counted.sort_by_key(|(outliers, _)| std::cmp::Reverse(*outliers));
        let n = usize::try_from(self.n).unwrap_or(usize::MAX);
        Ok(counted.into_iter().take(n).map(|(_, series)| series).collect::<Vec<_>>().into())
    }
}
