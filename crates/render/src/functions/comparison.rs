//! Two series compared: their correlation, and whether their values have one distribution.

use crate::{
    Error, Literal, Series,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    normalize::normalize,
    scope::Scope,
    sorted::sorted_known,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
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
];

const KS_TEST: Function = Function::of::<KsTest>(
    "kolmogorovSmirnovTest2",
    GROUP,
    "How likely it is, 0 to 1, that the last so many values of two series come from the same distribution, by the test of \
     Kolmogorov and Smirnov.",
)
.extension();

/// The value of a window of two columns.
type Comparison = fn(&[f64], &[f64], &Scope) -> Result<f64, Error>;

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
        let combined = Series { start, end, step, lineage: None, ..a.clone().called(name) };
        Ok(Some(Pair { combined, left, right, window: size }))
    }

    /// The value of each window, from number `first` on; those before are unknown.
    fn windows(self, first: usize, scope: &Scope, of: Comparison) -> Result<Value, Error> {
        let Pair { combined, left, mut right, window } = self;
        right.resize(left.len(), f64::NAN);
        let mut values = vec![f64::NAN; left.len()];
        for (i, value) in values.iter_mut().enumerate().skip(first) {
            let places = (i + 1).saturating_sub(window)..i + 1;
            if let (Some(a), Some(b)) = (left.get(places.clone()), right.get(places)) {
                *value = of(a, b, scope)?;
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
fn coefficient(a: &[f64], b: &[f64], scope: &Scope) -> Result<f64, Error> {
    scope.check_after(10 * a.len())?;
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
    Ok(if coefficient.is_finite() { coefficient } else { f64::NAN })
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
            let closeness = coefficient(&one.values, &series.values, scope)?;
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
fn same_distribution(a: &[f64], b: &[f64], scope: &Scope) -> Result<f64, Error> {
    let (a, b) = (sorted_known(a, scope)?, sorted_known(b, scope)?);
    if a.is_empty() || b.is_empty() {
        return Ok(f64::NAN);
    }
    let largest = largest_distance(&a, &b);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let z = (n * m / (n + m)).sqrt() * largest;
    if z == 0.0 {
        return Ok(1.0);
    }
    // Each series converges quickly on its side of 1.18.
    if z < 1.18 {
        let y = (-std::f64::consts::PI.powi(2) / (8.0 * z * z)).exp();
        return Ok(1.0 - (2.0 * std::f64::consts::PI).sqrt() / z * (y + y.powi(9) + y.powi(25) + y.powi(49)));
    }
    let x = (-2.0 * z * z).exp();
    Ok(2.0 * (x - x.powi(4) + x.powi(9)))
}

/// The largest distance of two empirical distributions, whose values are sorted. Both are walked together: to search
/// for each value would take far longer.
fn largest_distance(a: &[f64], b: &[f64]) -> f64 {
    let (mut in_a, mut in_b, mut largest) = (0, 0, 0.0_f64);
    while in_a < a.len() || in_b < b.len() {
        let at = match (a.get(in_a), b.get(in_b)) {
            (Some(a), Some(b)) => a.min(*b),
            (Some(one), None) | (None, Some(one)) => *one,
            (None, None) => break,
        };
        in_a += a.iter().skip(in_a).take_while(|value| **value <= at).count();
        in_b += b.iter().skip(in_b).take_while(|value| **value <= at).count();
        largest = largest.max((in_a as f64 / a.len() as f64 - in_b as f64 / b.len() as f64).abs());
    }
    largest
}
