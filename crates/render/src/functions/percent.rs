//! Percentiles and percentages.

use std::collections::HashMap;

use crate::{
    Aggregator, Error, Literal, Series,
    aggregator::{by_row, in_order},
    argument::{Any, NodeOrTag, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::{
        combine::{divided, path_expressions},
        node::by_key,
    },
    normalize::{folded, normalize},
    number::{general, repr},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    AS_PERCENT,
    AS_PERCENT.also("pct"),
    Function::of::<NPercentile>("nPercentile", "Calculate", "A line at the n-th percentile of each series."),
    Function::of::<PercentileOfSeries>(
        "percentileOfSeries",
        "Combine",
        "The n-th percentile of the values at each time; interpolate takes a number between two values.",
    ),
];

const AS_PERCENT: Function = Function::of::<AsPercent>(
    "asPercent",
    "Combine",
    "Each series in percent of a total: of the sum of all, of a number, of one series, or of as many series, each of its \
     counterpart by name. With nodes, series and totals are matched by these.",
)
.aggregator();

/// The n-th percentile of sorted values, at least one: 0 <= n <= 100.
pub(super) fn percentile(sorted: &[f64], n: f64, interpolate: bool) -> f64 {
    debug_assert!(!sorted.is_empty(), "there are values");
    let exact_rank = n / 100.0 * (sorted.len() as f64 + 1.0);
    let whole_rank = exact_rank as usize;
    let fraction = exact_rank - whole_rank as f64;
    let rank = if interpolate { whole_rank } else { whole_rank + fraction.ceil() as usize };
    let value = sorted[rank.clamp(1, sorted.len()) - 1];
    match sorted.get(rank) {
        Some(next) if interpolate => value + fraction * (next - value),
        _ => value,
    }
}

/// The n-th percentile of values in any order, at least one: 0 <= n <= 100. Sorts only the values around it.
fn percentile_among(values: &mut [f64], n: f64, interpolate: bool) -> f64 {
    debug_assert!(!values.is_empty(), "there are values");
    let rank = n / 100.0 * (values.len() as f64 + 1.0);
    // With the two values around the rank in their places, the others do not matter.
    let lower = (rank as usize).clamp(1, values.len()) - 1;
    let (_, _, above) = values.select_nth_unstable_by(lower, in_order);
    if !above.is_empty() {
        above.select_nth_unstable_by(0, in_order);
    }
    percentile(values, n, interpolate)
}

parameters! {
    /// percentileOfSeries.
    struct PercentileOfSeries {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
        interpolate: bool = "interpolate".default(Literal::Boolean(false));
    }
}

impl Evaluate for PercentileOfSeries {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if !(0.0 < self.n && self.n <= 100.0) {
            return Err(scope.reject(format!("n must be greater than 0 and at most 100, got {}", repr(self.n))));
        }
        let all: Vec<&Series> = self.series.0.iter().collect();
        let (Some(first), Some(normalized)) = (all.first(), normalize(&all)) else { return Ok(Vec::new().into()) };
        let rows = normalized.columns.iter().map(|column| column.len()).max().unwrap_or(0);
        let mut values = vec![f64::NAN; rows];
        by_row(&normalized.slices(), &mut values, |row| {
            scope.check()?;
            Ok::<f64, Error>(if row.is_empty() { f64::NAN } else { percentile_among(row, self.n, self.interpolate) })
        })?;
        let name = format!("percentileOfSeries({},{})", first.path_expression, general(self.n));
        let made = Series::computed(&name, normalized.start, normalized.end, normalized.step, values);
        let integers = !self.interpolate && all.iter().all(|series| series.integers);
        Ok(vec![Series { x_files_factor: scope.x_files_factor, integers, ..made }].into())
    }
}

parameters! {
    /// nPercentile.
    struct NPercentile {
        series: SeriesList = "seriesList".required();
        n: f64 = "n".required();
    }
}

impl Evaluate for NPercentile {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if !(0.0 < self.n && self.n <= 100.0) {
            return Err(scope.reject(format!("n must be greater than 0 and at most 100, got {}", repr(self.n))));
        }
        let mut lines = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            let mut known: Vec<f64> = series.values.iter().copied().filter(|value| !value.is_nan()).collect();
            if known.is_empty() {
                continue;
            }
            let points = usize::try_from((series.end - series.start) / series.step.max(1)).unwrap_or(0);
            scope.spend(points)?;
            series.tags.put("nPercentile", repr(self.n));
            let name = format!("nPercentile({}, {})", series.name, general(self.n));
            let (integers, value) = (series.integers, percentile_among(&mut known, self.n, false));
            lines.push(Series { integers, ..series.with(vec![value; points]).called(name) });
        }
        Ok(lines.into())
    }
}

parameters! {
    /// asPercent.
    struct AsPercent {
        series: SeriesList = "seriesList".required();
        total: Option<Any> = "total";
        nodes: Vec<NodeOrTag> = "nodes";
    }
}

impl Evaluate for AsPercent {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        // graphite-web looks at the series before the total: the answer is empty, also where the total is invalid.
        if self.series.0.is_empty() {
            return Ok(Vec::new().into());
        }
        let total = match self.total.map(|total| total.0) {
            None | Some(Value::None) => None,
            Some(other) => Some(other),
        };
        match (total, self.nodes.is_empty()) {
            (None, true) => of_sum(&self.series.0, scope),
            (Some(Value::Series(totals)), true) => of_series(&self.series.0, totals, scope),
            (Some(total), true) => {
                let Some(text) = total.text() else { return Err(scope.reject("total must be a number or series")) };
                match f64::from_literal(&total) {
                    Some(number) => of_number(&self.series.0, number, &text, scope),
                    None => Err(scope.reject(format!("total must be a number or series, got '{text}'"))),
                }
            }
            (None, false) => by_nodes(self.series.0, None, &self.nodes, scope),
            (Some(Value::Series(totals)), false) => by_nodes(self.series.0, Some(totals), &self.nodes, scope),
            (Some(_), false) => Err(scope.reject("total must be None or series where nodes are given")),
        }
    }
}

trait FromLiteral: Sized {
    fn from_literal(value: &Value) -> Option<Self>;
}

impl FromLiteral for f64 {
    fn from_literal(value: &Value) -> Option<f64> {
        match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }
}

/// Steps are brought to their common multiple, but start, end and step of the answers stay those of the
/// series: graphite-web does not change them.
fn columns<'a>(series: &'a [Series], more: &[Series]) -> Vec<std::borrow::Cow<'a, [f64]>> {
    let all: Vec<&Series> = series.iter().chain(more).collect();
    let step = normalize(&all).map_or(1, |normalized| normalized.step);
    series.iter().map(|series| folded(series, step / series.step)).collect()
}

fn percents(values: &[f64], totals: &[f64]) -> Vec<f64> {
    let mut percents = divided(values, totals);
    for percent in &mut percents {
        *percent *= 100.0;
    }
    percents
}

fn of_total(
    series: &[Series],
    columns: &[std::borrow::Cow<[f64]>],
    total: &[f64],
    text: &str,
    scope: &mut Scope,
) -> Result<Value, Error> {
    let mut shares = Vec::with_capacity(series.len());
    for (series, column) in series.iter().zip(columns) {
        scope.spend(column.len().max(total.len()))?;
        scope.spend_name(2 * (series.name.len() + text.len()))?;
        let name = format!("asPercent({},{text})", series.name);
        let share = Series::computed(&name, series.start, series.end, series.step, percents(column, total));
        shares.push(Series { x_files_factor: scope.x_files_factor, ..share });
    }
    Ok(shares.into())
}

fn of_sum(series: &[Series], scope: &mut Scope) -> Result<Value, Error> {
    let all: Vec<&Series> = series.iter().collect();
    let Some(normalized) = normalize(&all) else { return Ok(Vec::new().into()) };
    let total = Aggregator::Sum.across(&normalized.slices(), 0.0);
    let text = format!("sumSeries({})", path_expressions(&all));
    of_total(series, &normalized.columns, &total, &text, scope)
}

fn of_number(series: &[Series], number: f64, text: &str, scope: &mut Scope) -> Result<Value, Error> {
    let columns = columns(series, &[]);
    // As many totals as the first series has values before its step is changed.
    let rows = series.first().map_or(0, |series| series.values.len());
    of_total(series, &columns, &vec![number; rows], text, scope)
}

fn of_series(series: &[Series], totals: Vec<Series>, scope: &mut Scope) -> Result<Value, Error> {
    if totals.len() == series.len() {
        let by_name = |series: &[Series]| {
            let mut sorted = series.to_vec();
            sorted.sort_by(|a, b| a.name.cmp(&b.name));
            sorted
        };
        let mut shares = Vec::with_capacity(series.len());
        for (series, total) in by_name(series).iter().zip(&by_name(&totals)) {
            shares.extend(pair(series, total, scope)?);
        }
        return Ok(shares.into());
    }
    let [total] = totals.as_slice() else {
        return Err(scope.reject(format!(
            "total must be missing, a number, 1 series or as many series as seriesList has ({}), got {}",
            series.len(),
            totals.len()
        )));
    };
    let own = columns(series, &totals);
    let total_column = columns(&totals, series);
    let total_values = total_column.first().map(|column| &**column).unwrap_or_default();
    of_total(series, &own, total_values, &total.name, scope)
}

/// A series in percent of another, at the step of both.
fn pair(series: &Series, total: &Series, scope: &mut Scope) -> Result<Option<Series>, Error> {
    let Some(both) = normalize(&[series, total]) else { return Ok(None) };
    scope.spend_name(2 * (series.name.len() + total.name.len()))?;
    let name = format!("asPercent({},{})", series.name, total.name);
    scope.spend(both.columns[0].len().max(both.columns[1].len()))?;
    let values = percents(&both.columns[0], &both.columns[1]);
    let share = Series::computed(&name, both.start, both.end, both.step, values);
    Ok(Some(Series { x_files_factor: scope.x_files_factor, ..share }))
}

fn by_nodes(
    series: Vec<Series>,
    totals: Option<Vec<Series>>,
    nodes: &[NodeOrTag],
    scope: &mut Scope,
) -> Result<Value, Error> {
    let mut keys: Vec<String> = Vec::new();
    let groups = by_key(series, nodes, scope)?;
    keys.extend(groups.iter().map(|(key, _)| key.clone()));
    let total_groups = match totals {
        None => groups.clone(),
        Some(totals) => by_key(totals, nodes, scope)?,
    };
    let groups: HashMap<String, Vec<Series>> = groups.into_iter().collect();
    let mut summed: HashMap<String, Series> = HashMap::new();
    // The span and step that a total without series gets: those of the last normalization.
    let mut last_normalized = None;
    for (key, group) in total_groups {
        if !groups.contains_key(&key) {
            keys.push(key.clone());
        }
        let total = match group.as_slice() {
            [only] => only.clone(),
            several => {
                let all: Vec<&Series> = several.iter().collect();
                let Some(normalized) = normalize(&all) else { continue };
                let values = Aggregator::Sum.across(&normalized.slices(), 0.0);
                let name = format!("sumSeries({})", path_expressions(&all));
                last_normalized = Some((normalized.start, normalized.end, normalized.step));
                Series::computed(&name, normalized.start, normalized.end, normalized.step, values)
            }
        };
        summed.insert(key, Series { x_files_factor: scope.x_files_factor, ..total });
    }
    let mut shares = Vec::new();
    for wanted in keys {
        let total = summed.get(&wanted);
        let Some(group) = groups.get(&wanted) else {
            let Some(total) = total else { continue };
            let (start, end, step) = last_normalized.unwrap_or((total.start, total.end, total.step));
            shares.push(missing(
                &format!("asPercent(MISSING,{})", total.name),
                start,
                end,
                step,
                total.values.len(),
                scope,
            )?);
            continue;
        };
        for series in group {
            match total {
                Some(total) => {
                    shares.extend(pair(series, total, scope)?);
                    last_normalized = shares.last().map(|share| (share.start, share.end, share.step));
                }
                None => {
                    let name = format!("asPercent({},MISSING)", series.name);
                    let (start, end, step) = last_normalized.unwrap_or((series.start, series.end, series.step));
                    shares.push(missing(&name, start, end, step, series.values.len(), scope)?);
                }
            }
        }
    }
    Ok(shares.into())
}

fn missing(name: &str, start: i64, end: i64, step: i64, rows: usize, scope: &mut Scope) -> Result<Series, Error> {
    scope.spend(rows)?;
    let series = Series::computed(name, start, end, step, vec![f64::NAN; rows]);
    Ok(Series { x_files_factor: scope.x_files_factor, ..series })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_no_order() {
        let mut chance = 88_172_645_463_325_252_u64;
        for _ in 0..2000 {
            let mut next = |bound: u64| {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                chance % bound
            };
            let mut values: Vec<f64> = (0..1 + next(60)).map(|_| next(50) as f64).collect();
            let (n, interpolate) = (next(101) as f64, next(2) == 0);
            let mut sorted = values.clone();
            sorted.sort_by(in_order);
            let expected = percentile(&sorted, n, interpolate);
            assert_eq!(percentile_among(&mut values, n, interpolate), expected, "{n} of {sorted:?}");
        }
    }
}
