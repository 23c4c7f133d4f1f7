//! The polynomial of best fit.

use crate::{
    Error, Literal, Series,
    argument::{Interval, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<PolyFit>(
    "polyfit",
    "Combine",
    "The polynomial of a degree that is nearest to the values of each series, drawn an interval beyond its end.",
)
.extension()];

/// The highest degree for which floats give a meaningful polynomial.
const HIGHEST_DEGREE: usize = 20;

parameters! {
    /// polyfit.
    struct PolyFit {
        series: SeriesList = "seriesList".required();
        degree: Option<i64> = "degree".documented(Literal::Integer(1));
        offset: Option<Interval> = "offset".documented(Literal::Text("0d"));
    }
}

impl Evaluate for PolyFit {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let given = self.degree.unwrap_or(1);
        let degree = usize::try_from(given).ok().filter(|degree| (1..=HIGHEST_DEGREE).contains(degree));
        let Some(degree) = degree else {
            return Err(scope.reject(format!("degree must be 1 to {HIGHEST_DEGREE}, got {given}")));
        };
        let beyond = self.offset.as_ref().map_or(0, |offset| offset.seconds);
        if beyond < 0 {
            return Err(scope.reject("offset must not be negative; the curve reaches beyond the end, not short of it"));
        }
        let suffix = match (&self.degree, &self.offset) {
            (_, Some(offset)) => format!(",{degree},'{}'", offset.text),
            (Some(_), None) => format!(",{degree}"),
            (None, None) => String::new(),
        };
        let mut curves = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            let more = usize::try_from(beyond / series.step).unwrap_or(usize::MAX);
            let count = series.values.len().saturating_add(more);
            scope.spend(count)?;
            let at = |curve: &Curve, i: usize| {
                scope.check_after(2 * degree)?;
                Ok(curve.at(i as f64))
            };
            let values = match fit(&series.values, degree, scope)? {
                Some(curve) => (0..count).map(|i| at(&curve, i)).collect::<Result<_, Error>>()?,
                None => vec![f64::NAN; count],
            };
            let name = format!("polyfit({}{suffix})", series.name);
            let end = series.end + more as i64 * series.step;
            curves.push(Series { end, ..series.with(values).called(name) });
        }
        Ok(curves.into())
    }
}

/// A polynomial of the position of a value, moved and stretched so that all positions are between -1 and 1.
struct Curve {
    middle: f64,
    half: f64,
    coefficients: Vec<f64>,
}

impl Curve {
    fn at(&self, place: f64) -> f64 {
        let x = (place - self.middle) / self.half;
        self.coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
    }
}

/// The curve with the least squared distances from the known values; `None` where these do not define one.
///
/// 1. The sums of the normal equations. 2. Elimination, each time by the row with the largest pivot. 3. Backwards.
fn fit(values: &[f64], degree: usize, scope: &Scope) -> Result<Option<Curve>, Error> {
    let known = || values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let size = degree + 1;
    if known().count() < size {
        return Ok(None);
    }
    let half = ((values.len() - 1) as f64 / 2.0).max(0.5);
    let middle = (values.len() - 1) as f64 / 2.0;
    let mut sums = vec![0.0; 2 * degree + 1];
    let mut right = vec![0.0; size];
    for (place, value) in known() {
        scope.check_after(4 * size)?;
        let x = (place as f64 - middle) / half;
        let mut power = 1.0;
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += power;
            if let Some(right) = right.get_mut(i) {
                *right += power * value;
            }
            power *= x;
        }
    }
    let rows = (0..size).map(|i| sums[i..i + size].iter().copied().chain([right[i]]).collect()).collect();
    Ok(solved(rows).map(|coefficients| Curve { middle, half, coefficients }))
}

/// The solution of as many equations as there are unknowns.
fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = rows.len();
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-300 {
            return None;
        }
        let (upper, lower) = rows.split_at_mut(column + 1);
        let pivot = &upper[column];
        for row in lower {
            let factor = row[column] / pivot[column];
            for (value, pivot) in row.iter_mut().zip(pivot).skip(column) {
                *value -= factor * pivot;
            }
        }
    }
    let mut coefficients = vec![0.0; size];
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|j| rows[i][j] * coefficients[j]).sum();
        coefficients[i] = (rows[i][size] - known) / rows[i][i];
    }
    Some(coefficients)
}
