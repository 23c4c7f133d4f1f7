//! Several series to several others, by their names and by how often values occur.

use std::collections::{BTreeMap, HashSet};

use crate::{
    Error, Literal, Series,
    argument::{SeriesList, Value, parameters},
    function::{Evaluate, Function},
    number::general,
    scope::Scope,
};

const GROUP: &str = "Transform";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<CountValues>(
        "countValues",
        "Combine",
        "For each value that occurs, cut to a whole number, how many series have it at each time, under that number as name. \
         Where more than valuesLimit occur, one series valuesLimitReached of zeros.",
    )
    .extension(),
    Function::of::<HeatMap>(
        "heatMap",
        GROUP,
        "For counters where each includes the one before it, such as those of a histogram: each less the one before it. \
         Their order is that of the sums of the first five values where none is null.",
    )
    .extension(),
    Function::of::<IntegralWithReset>(
        "integralWithReset",
        GROUP,
        "The sum of all values so far, beginning again at zero where resettingSeries has any other value than zero.",
    )
    .extension(),
    Function::of::<Join>(
        "join",
        GROUP,
        "The series of seriesA whose names are in seriesB as well (AND) or are not (SUB), those of both, each name once (OR), \
         or those that only one of them has (XOR).",
    )
    .extension(),
    Function::of::<RemoveZeroSeries>(
        "removeZeroSeries",
        "Filter Series",
        "The series that have any value but zero, or whose share of such values is at least xFilesFactor.",
    )
    .extension(),
    Function::of::<ScaleAfterTimestamp>(
        "scaleAfterTimestamp",
        GROUP,
        "Each value from a time on, Unix seconds, times a number.",
    )
    .extension(),
];

parameters! {
    /// countValues.
    struct CountValues {
        series: SeriesList = "seriesList".required();
        limit: i64 = "valuesLimit".default(Literal::Integer(32));
    }
}

/// Series that countValues makes at most, one for each value.
const MOST_VALUES: i64 = 10_000;

/// Steps of a look for a value among the counts.
const STEPS_PER_VALUE: usize = 20;

impl Evaluate for CountValues {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if !(0..=MOST_VALUES).contains(&self.limit) {
            return Err(scope.reject(format!("valuesLimit must be 0 to {MOST_VALUES}, got {}", self.limit)));
        }
        let Some(first) = self.series.0.first() else { return Ok(Vec::new().into()) };
        let rows = self.series.0.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let mut counts: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for series in &self.series.0 {
            scope.check()?;
            for (row, value) in series.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                scope.check_after(STEPS_PER_VALUE)?;
                let key = *value as i64;
                if !counts.contains_key(&key) {
                    if counts.len() as i64 >= self.limit {
                        let zeros = vec![0.0; first.values.len()];
                        let reached = first.clone().with(zeros).called("valuesLimitReached".to_owned());
                        let reached = Series { lineage: None, ..reached };
                        return Ok(vec![reached].into());
                    }
                    scope.spend(rows)?;
                    scope.check_after(rows)?;
                }
                if let Some(count) = counts.entry(key).or_insert_with(|| vec![0.0; rows]).get_mut(row) {
                    *count += 1.0;
                }
            }
        }
        let end = first.start + first.step * rows as i64;
        let named = |(key, values): (i64, Vec<f64>)| Series {
            end,
            lineage: None,
            ..first.clone().with(values).called(key.to_string())
        };
        Ok(counts.into_iter().map(named).collect::<Vec<_>>().into())
    }
}

parameters! {
    /// heatMap.
    struct HeatMap {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for HeatMap {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        const POINTS: usize = 5;
        let mut list = self.series.0;
        let shape = |series: &Series| (series.start, series.end, series.step, series.values.len());
        if let Some(other) = list.iter().find(|series| list.first().is_some_and(|first| shape(first) != shape(series)))
        {
            return Err(scope.reject(format!("all series must have the same times, and {} has others", other.name)));
        }
        let rows = list.first().map_or(0, |series| series.values.len());
        let at = |series: &Series, row: usize| series.values.get(row).copied().unwrap_or(f64::NAN);
        let known = |row: &usize| list.iter().all(|series| !at(series, *row).is_nan());
        let first_rows: Vec<usize> = (0..rows).filter(known).take(POINTS).collect();
        let weight = |series: &Series| first_rows.iter().map(|row| at(series, *row)).sum::<f64>();
        list.sort_by(|a, b| weight(a).partial_cmp(&weight(b)).unwrap_or(std::cmp::Ordering::Equal));
        let mut map = Vec::with_capacity(list.len());
        for pair in list.windows(2) {
            let [previous, current] = pair else { continue };
            scope.spend(rows)?;
            let values = current.values.iter().zip(previous.values.iter()).map(|(a, b)| a - b).collect();
            let name = format!("heatMap({},{})", current.name, previous.name);
            map.push(Series { lineage: None, ..current.clone().with_alike(values).called(name) });
        }
        Ok(map.into())
    }
}

parameters! {
    /// integralWithReset.
    struct IntegralWithReset {
        series: SeriesList = "seriesList".required();
        reset: SeriesList = "resettingSeries".required();
    }
}

impl Evaluate for IntegralWithReset {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let [reset] = self.reset.0.as_slice() else {
            return Err(scope.reject(format!("resettingSeries must be one series, got {}", self.reset.0.len())));
        };
        let mut summed = Vec::with_capacity(self.series.0.len());
        for series in self.series.0 {
            if series.step != reset.step || series.values.len() != reset.values.len() {
                return Err(scope.reject(format!("{} must have the same times as {}", series.name, reset.name)));
            }
            scope.spend(series.values.len())?;
            let mut sum = 0.0;
            let mut add = |(value, reset): (&f64, &f64)| {
                if value.is_nan() {
                    return f64::NAN;
                }
                sum = if reset.is_nan() || *reset == 0.0 { sum + value } else { 0.0 };
                sum
            };
            let values = series.values.iter().zip(reset.values.iter()).map(&mut add).collect();
            let name = format!("integralWithReset({},{})", series.name, reset.name);
            summed.push(series.with(values).called(name));
        }
        Ok(summed.into())
    }
}

const JOINS: &[Literal] = &[Literal::Text("AND"), Literal::Text("OR"), Literal::Text("SUB"), Literal::Text("XOR")];

/// One of [`JOINS`], in any case.
struct JoinType(String);

impl crate::argument::Take for JoinType {
    const KIND: crate::Kind = crate::Kind::String;

    fn one(value: Value, position: &crate::argument::ParameterPosition) -> Result<Self, Error> {
        let value = match value {
            Value::Text(text) => Value::Text(text.to_uppercase()),
            other => other,
        };
        String::one(value, position).map(JoinType)
    }
}

parameters! {
    /// join.
    struct Join {
        a: SeriesList = "seriesA".required();
        b: SeriesList = "seriesB".required();
        join: JoinType = "type".default(Literal::Text("AND")).options(JOINS);
    }
}

/// Steps of a look for a name among many.
const STEPS_PER_NAME: usize = 400;

impl Evaluate for Join {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let scope = &*scope;
        let names = |list: &[Series]| {
            let name = |series: &Series| scope.check_after(STEPS_PER_NAME).map(|()| series.name.clone());
            list.iter().map(name).collect::<Result<HashSet<_>, Error>>()
        };
        let (in_a, in_b) = (names(&self.a.0)?, names(&self.b.0)?);
        let (from_a, from_b): (fn(bool) -> bool, bool) = match self.join.0.as_str() {
            "AND" => (|in_b| in_b, false),
            "OR" => (|_| true, true),
            "SUB" => (|in_b| !in_b, false),
            _ => (|in_b| !in_b, true),
        };
        let mut joined = Vec::new();
        for series in self.a.0 {
            scope.check_after(STEPS_PER_NAME)?;
            if from_a(in_b.contains(&series.name)) {
                joined.push(series);
            }
        }
        for series in self.b.0 {
            scope.check_after(STEPS_PER_NAME)?;
            if from_b && !in_a.contains(&series.name) {
                joined.push(series);
            }
        }
        Ok(joined.into())
    }
}

parameters! {
    /// removeZeroSeries.
    struct RemoveZeroSeries {
        series: SeriesList = "seriesList".required();
        x_files_factor: Option<f64> = "xFilesFactor";
    }
}

impl Evaluate for RemoveZeroSeries {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        let factor = self.x_files_factor.unwrap_or(0.0);
        self.series.0.retain(|series| {
            let known = series.values.iter().filter(|value| !value.is_nan() && **value != 0.0).count();
            known > 0 && known as f64 / series.values.len() as f64 >= factor
        });
        for series in &mut self.series.0 {
            series.tags.put("removeZeroSeries", factor.to_string());
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// scaleAfterTimestamp.
    struct ScaleAfterTimestamp {
        series: SeriesList = "seriesList".required();
        factor: f64 = "factor".required();
        from: i64 = "timestamp".default(Literal::Integer(0));
    }
}

impl Evaluate for ScaleAfterTimestamp {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (factor, from) = (general(self.factor), self.from);
        let suffix = if from == 0 { String::new() } else { format!(",{from}") };
        let mut scaled = Vec::with_capacity(self.series.0.len());
        for mut series in self.series.0 {
            scope.spend(series.values.len())?;
            let time = |i: usize| series.start + i as i64 * series.step;
            let scale = |(i, value): (usize, &f64)| if time(i) >= from { value * self.factor } else { *value };
            let values = series.values.iter().enumerate().map(scale).collect();
            series.tags.put("scale", factor.as_str());
            let name = format!("scale({},{factor}{suffix})", series.name);
            scaled.push(series.with(values).called(name));
        }
        Ok(scaled.into())
    }
}
