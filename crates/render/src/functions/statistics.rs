//! Statistics of series: correlation, distribution, outliers, and the curve of best fit.

use crate::{
    Error, Kind, Literal, Series,
    argument::{Interval, ParameterPosition, SeriesList, Take, Value, parameters},
    function::{Evaluate, Function},
    normalize::normalize,
    number::general,
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    EWMA.also("ewma"),
    EWMA,
    KS_TEST.also("ksTest2"),
    KS_TEST,
    Function::of::<Pearson>(
        "pearson",
        GROUP,
        "How two series correlate, by Pearson's coefficient of the last so many values at each time: 1 alike, -1 opposite, 0 \
         not at all. Times at which either is null do not count.",
    )
    .extension(),
    Function::of::<PearsonClosest>(
        "pearsonClosest",
        GROUP,
        "The n series that correlate best with one, by Pearson's coefficient: alike (pos), opposite (neg), or either (abs).",
    )
    .extension(),
    Function::of::<PolyFit>(
        "polyfit",
        "Combine",
        "The polynomial of a degree that is nearest to the values of each series, drawn an interval beyond its end.",
    )
    .extension(),
    Function::of::<Tukey>("tukeyAbove", GROUP, "The n series with the most values far above the usual: above the third \
        quartile of all values by basis times the distance of the quartiles. interval is the number of values, or the \
        time, at the end that count, or, negative, that do not.")
    .preset("above", Literal::Boolean(true))
    .extension(),
    Function::of::<Tukey>("tukeyBelow", GROUP, "The n series with the most values far below the usual: below the first \
        quartile of all values by basis times the distance of the quartiles. interval is the number of values, or the \
        time, at the end that count, or, negative, that do not.")
    .preset("above", Literal::Boolean(false))
    .extension(),
];

const EWMA: Function = Function::of::<Ewma>(
    "exponentialWeightedMovingAverage",
    "Calculate",
    "A mean that forgets: alpha times each value plus 1 - alpha times the mean so far.",
)
.extension();

const KS_TEST: Function = Function::of::<KsTest>(
    "kolmogorovSmirnovTest2",
    GROUP,
    "How likely it is, 0 to 1, that the last so many values of two series come from the same distribution, by the test of \
     Kolmogorov and Smirnov.",
)
.extension();

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

/// Two lists of one series each at their common step, under a name; `None` where one list is empty.
struct Pair {
    combined: Series,
    left: Vec<f64>,
    right: Vec<f64>,
    window: usize,
}

impl Pair {
    fn of(
        function: &str,
        (left, right): (SeriesList, SeriesList),
        window: i64,
        scope: &mut Scope,
    ) -> Result<Option<Pair>, Error> {
        let Some(size) = usize::try_from(window).ok().filter(|window| *window > 0) else {
            return Err(scope.reject(format!("windowSize must be at least 1, got {window}")));
        };
        let (a, b) = match (left.0.as_slice(), right.0.as_slice()) {
            ([a], [b]) => (a, b),
            ([], _) | (_, []) => return Ok(None),
            (left, right) => {
                let given = format!("got {} and {}", left.len(), right.len());
                return Err(scope.reject(format!("both lists must be one series, {given}")));
            }
        };
        let Some(normalized) = normalize(&[a, b]) else { return Ok(None) };
        let mut columns = normalized.columns.iter().map(|column| column.to_vec());
        let (left, right) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        scope.spend(left.len().saturating_mul(3))?;
        let (start, end, step) = (normalized.start, normalized.end, normalized.step);
        let name = format!("{function}({},{},{window})", a.name, b.name);
        let combined = Series { start, end, step, ..a.clone().called(name) };
        Ok(Some(Pair { combined, left, right, window: size }))
    }

    /// The value of each window, from number `first` on; those before are unknown.
    fn windows(self, first: usize, scope: &Scope, mut of: impl FnMut(&[f64], &[f64]) -> f64) -> Result<Value, Error> {
        let Pair { combined, left, mut right, window } = self;
        right.resize(left.len(), f64::NAN);
        let mut values = vec![f64::NAN; left.len()];
        for (i, value) in values.iter_mut().enumerate().skip(first) {
            if i % 16 == 0 {
                scope.check()?;
            }
            let places = (i + 1).saturating_sub(window)..i + 1;
            if let (Some(a), Some(b)) = (left.get(places.clone()), right.get(places)) {
                *value = of(a, b);
            }
        }
        Ok(vec![combined.with(values)].into())
    }
}

parameters! {
    /// pearson.
    struct Pearson {
        left: SeriesList = "seriesListA".required();
        right: SeriesList = "seriesListB".required();
        window: i64 = "windowSize".required();
    }
}

impl Evaluate for Pearson {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        match Pair::of("pearson", (self.left, self.right), self.window, scope)? {
            Some(pair) => {
                let first = pair.window - 1;
                pair.windows(first, scope, coefficient)
            }
            None => Ok(Vec::new().into()),
        }
    }
}

/// Pearson's coefficient of two columns where both are known; unknown where either never changes.
fn coefficient(a: &[f64], b: &[f64]) -> f64 {
    let known = || a.iter().zip(b).filter(|(a, b)| !a.is_nan() && !b.is_nan());
    let count = known().count() as f64;
    let mean_a = known().map(|(a, _)| a).sum::<f64>() / count;
    let mean_b = known().map(|(_, b)| b).sum::<f64>() / count;
    let (mut together, mut alone_a, mut alone_b) = (0.0, 0.0, 0.0);
    for (a, b) in known() {
        let (a, b) = (a - mean_a, b - mean_b);
        together += a * b;
        alone_a += a * a;
        alone_b += b * b;
    }
    let coefficient = together / (alone_a.sqrt() * alone_b.sqrt());
    if coefficient.is_finite() { coefficient } else { f64::NAN }
}

const DIRECTIONS: &[Literal] = &[Literal::Text("abs"), Literal::Text("neg"), Literal::Text("pos")];

parameters! {
    /// pearsonClosest.
    struct PearsonClosest {
        one: SeriesList = "series".required();
        series: SeriesList = "seriesList".required();
        n: i64 = "n".required();
        direction: String = "direction".default(Literal::Text("abs")).options(DIRECTIONS);
    }
}

impl Evaluate for PearsonClosest {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let one = match self.one.0.as_slice() {
            [one] => one,
            [] => return Ok(Vec::new().into()),
            many => return Err(scope.reject(format!("series must be one series, got {}", many.len()))),
        };
        let mut ranked: Vec<(f64, Series)> = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            scope.check()?;
            // Series of other lengths have no counterpart for each value.
            if series.values.len() != one.values.len() {
                continue;
            }
            let closeness = coefficient(&one.values, &series.values);
            let closeness = match self.direction.as_str() {
                "pos" => closeness,
                "neg" => -closeness,
                _ => closeness.abs(),
            };
            if closeness >= 0.0 {
                ranked.push((closeness, series));
            }
        }
        ranked.sort_by(|(a, _), (b, _)| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
        let n = usize::try_from(self.n).unwrap_or(0);
        Ok(ranked.into_iter().take(n).map(|(_, series)| series).collect::<Vec<_>>().into())
    }
}

parameters! {
    /// kolmogorovSmirnovTest2.
    struct KsTest {
        left: SeriesList = "seriesListA".required();
        right: SeriesList = "seriesListB".required();
        window: i64 = "windowSize".required();
    }
}

impl Evaluate for KsTest {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        match Pair::of("kolmogorovSmirnovTest2", (self.left, self.right), self.window, scope)? {
            Some(pair) => {
                let first = pair.window;
                pair.windows(first, scope, same_distribution)
            }
            None => Ok(Vec::new().into()),
        }
    }
}

/// The probability that two samples come from one distribution: 1. the largest distance of their empirical
/// distributions; 2. how likely at least that is (Kolmogorov's distribution, by its two series). Unknown where either
/// sample is empty.
fn same_distribution(a: &[f64], b: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        known.sort_by(f64::total_cmp);
        known
    };
    let (a, b) = (sorted(a), sorted(b));
    if a.is_empty() || b.is_empty() {
        return f64::NAN;
    }
    let share =
        |values: &[f64], up_to: f64| values.partition_point(|value| *value <= up_to) as f64 / values.len() as f64;
    let distance = |at: &f64| (share(&a, *at) - share(&b, *at)).abs();
    let largest = a.iter().chain(&b).map(distance).fold(0.0, f64::max);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let z = (n * m / (n + m)).sqrt() * largest;
    if z == 0.0 {
        return 1.0;
    }
    // Each series converges quickly on its side of 1.18.
    if z < 1.18 {
        let y = (-std::f64::consts::PI.powi(2) / (8.0 * z * z)).exp();
        return 1.0 - (2.0 * std::f64::consts::PI).sqrt() / z * (y + y.powi(9) + y.powi(25) + y.powi(49));
    }
    let x = (-2.0 * z * z).exp();
    2.0 * (x - x.powi(4) + x.powi(9))
}

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
            let values = match fit(&series.values, degree) {
                Some(curve) => (0..count).map(|i| curve.at(i as f64)).collect(),
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
fn fit(values: &[f64], degree: usize) -> Option<Curve> {
    let known = || values.iter().enumerate().filter(|(_, value)| value.is_finite());
    let size = degree + 1;
    if known().count() < size {
        return None;
    }
    let half = ((values.len() - 1) as f64 / 2.0).max(0.5);
    let middle = (values.len() - 1) as f64 / 2.0;
    let mut sums = vec![0.0; 2 * degree + 1];
    let mut right = vec![0.0; size];
    for (place, value) in known() {
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
    let mut rows: Vec<Vec<f64>> =
        (0..size).map(|i| sums[i..i + size].iter().copied().chain([right[i]]).collect()).collect();
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
    Some(Curve { middle, half, coefficients })
}

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
        let considered = |series: &Series| -> Vec<f64> {
            let some = series.values.iter().take(until as usize).skip(from as usize);
            some.copied().filter(|value| !value.is_nan()).collect()
        };
        scope.spend(usize::try_from(until - from).unwrap_or(0).saturating_mul(self.series.0.len()))?;
        let mut all: Vec<f64> = self.series.0.iter().flat_map(considered).collect();
        all.sort_by(f64::total_cmp);
        let quartile = |part: f64| all.get((part * all.len() as f64) as usize).copied().unwrap_or(f64::NAN);
        let (low, high) = (quartile(0.25), quartile(0.75));
        let far = self.basis * (high - low);
        let outlying = |value: &f64| if self.above { *value >= high + far } else { *value <= low - far };
        let mut counted: Vec<(usize, Series)> = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            let outliers = considered(&series).iter().filter(|value| outlying(value)).count();
            if outliers > 0 {
                counted.push((outliers, series));
            }
        }
        counted.sort_by_key(|(outliers, _)| std::cmp::Reverse(*outliers));
        let n = usize::try_from(self.n).unwrap_or(usize::MAX);
        Ok(counted.into_iter().take(n).map(|(_, series)| series).collect::<Vec<_>>().into())
    }
}
