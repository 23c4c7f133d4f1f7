//! Several series to one: sums, means, extremes and counts, row by row.

use std::sync::Arc;

use crate::{
    Error, Kind, Literal, Series, Tags,
    argument::{AllSeries, Named, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    normalize::normalize,
    scope::Scope,
};

const GROUP: &str = "Combine";

pub(super) const FUNCTIONS: &[Function] = &[
    SUM,
    SUM.also("sum"),
    AVERAGE,
    AVERAGE.also("avg"),
    combined("minSeries", "min", "The smallest value at each time."),
    combined("maxSeries", "max", "The largest value at each time."),
    combined("rangeOfSeries", "rangeOf", "The largest value less the smallest at each time."),
    combined("stddevSeries", "stddev", "The standard deviation of the values at each time."),
    combined("diffSeries", "diff", "The first series less all others."),
    combined(
        "multiplySeries",
        "multiply",
        "The product of the values at each time, null where any is. A single series is returned as it is.",
    ),
    Function::of::<Aggregate>(
        "aggregate",
        GROUP,
        "One series of many, by any of the aggregation functions, for instance aggregate(host.*.cpu, 'sum'). A time \
         at which the share of known values is below xFilesFactor is null.",
    ),
    Function::of::<CountSeries>("countSeries", GROUP, "How many series there are, as a series.").aggregator(),
    Function::of::<Divide>(
        "divideSeries",
        GROUP,
        "Each dividend by the divisor, exactly one series; null where that is zero or null.",
    ),
    by_name("average", "average", "The mean of the values at each time, as averageSeries."),
    by_name("avgSeries", "avg", "The mean of the values at each time, as averageSeries."),
    by_name("avg_zero", "avg_zero", AVERAGE_OF_ALL),
    by_name("avg_zeroSeries", "avg_zero", AVERAGE_OF_ALL),
    by_name("count", "count", "How many of the series have a value at each time."),
    by_name("current", "current", LAST_OF_ALL),
    by_name("currentSeries", "current", LAST_OF_ALL),
    by_name("diff", "diff", "The first series less all others, as diffSeries."),
    Function::of::<First>("first", GROUP, FIRST_OF_ALL).extension(),
    Function::of::<First>("firstSeries", GROUP, FIRST_OF_ALL).extension(),
    by_name("last", "last", LAST_OF_ALL),
    by_name("lastSeries", "last", LAST_OF_ALL),
    by_name("max", "max", "The largest value at each time, as maxSeries."),
    by_name("median", "median", MIDDLE_OF_ALL),
    by_name("medianSeries", "median", MIDDLE_OF_ALL),
    by_name("min", "min", "The smallest value at each time, as minSeries."),
    by_name("multiply", "multiply", "The product of the values at each time, as multiplySeries."),
    by_name("range", "range", HEIGHT_OF_ALL),
    by_name("rangeOf", "rangeOf", HEIGHT_OF_ALL),
    by_name("rangeSeries", "range", HEIGHT_OF_ALL),
    by_name("stddev", "stddev", "The standard deviation of the values at each time, as stddevSeries."),
    by_name("total", "total", "The sum of the values at each time, as sumSeries."),
    by_name("totalSeries", "total", "The sum of the values at each time, as sumSeries."),
    Function::of::<GroupAll>("group", GROUP, "Several series lists as one."),
    Function::of::<Power>(
        "powSeries",
        GROUP,
        "The first series to the power of the second, that to the power of the third, and so on; null where any is.",
    )
    .signature("powSeries(*seriesLists)")
    .aggregator(),
];

const AVERAGE_OF_ALL: &str = "The mean of the values at each time, unknown ones counting as zero.";
const FIRST_OF_ALL: &str = "What the first of all series has at each time.";
const HEIGHT_OF_ALL: &str = "The largest value less the smallest at each time, as rangeOfSeries.";
const LAST_OF_ALL: &str = "What the last series that has a value has at each time.";
const MIDDLE_OF_ALL: &str = "The middle value at each time, or the mean of the middle two.";

/// An aggregator as a function of its own. No callback: there its bare name is an aggregator already.
const fn by_name(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<Combine>(name, GROUP, description).preset("func", Literal::Text(func)).extension()
}

const SUM: Function =
    combined("sumSeries", "sum", "The sum of the values at each time. To sum over time, see integral.");
const AVERAGE: Function = combined("averageSeries", "average", "The mean of the values at each time.");

const fn combined(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<Combine>(name, GROUP, description).preset("func", Literal::Text(func)).aggregator()
}

parameters! {
    /// sumSeries and its like.
    struct Combine {
        lists: Vec<SeriesList> = "seriesLists".required();
        func: Named = "func".required();
    }
}

impl Evaluate for Combine {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let only_one = self.lists.len() == 1 && self.lists.iter().all(|list| list.0.len() == 1);
        let series: Vec<Series> = self.lists.into_iter().flat_map(|list| list.0).collect();
        if only_one && self.func.aggregator == crate::Aggregator::Multiply {
            return Ok(series.into());
        }
        Ok(aggregate(&series, &self.func, scope.x_files_factor, scope)?.into_iter().collect::<Vec<_>>().into())
    }
}

parameters! {
    /// first.
    struct First {
        lists: Vec<SeriesList> = "seriesLists".required();
    }
}

impl Evaluate for First {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let series: Vec<Series> = self.lists.into_iter().flat_map(|list| list.0).collect();
        let all: Vec<&Series> = series.iter().collect();
        let Some(mut normalized) = normalize(&all) else { return Ok(Vec::new().into()) };
        let func = Named { aggregator: crate::Aggregator::Last, name: "first".to_owned() };
        let combined = aggregate(&series, &func, 0.0, scope)?;
        let values = normalized.columns.swap_remove(0).into_owned();
        Ok(combined.map(|combined| combined.with(values)).into_iter().collect::<Vec<_>>().into())
    }
}

/// An aggregator, with or without `Series` behind its name.
pub(crate) struct SeriesAggregator(pub(crate) Named);

impl crate::argument::Take for SeriesAggregator {
    const KIND: Kind = Kind::Aggregator;

    fn one(value: Value, position: &crate::argument::ParameterPosition) -> Result<Self, Error> {
        let name = value.text().unwrap_or_default();
        let bare = name.strip_suffix("Series").unwrap_or(&name);
        Named::one(Value::Text(bare.to_owned()), position).map(SeriesAggregator)
    }
}

parameters! {
    /// aggregate.
    struct Aggregate {
        series: AllSeries = "seriesList".required();
        func: SeriesAggregator = "func".required();
        x_files_factor: Option<f64> = "xFilesFactor";
    }
}

impl Evaluate for Aggregate {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let factor = self.x_files_factor.unwrap_or(scope.x_files_factor);
        Ok(aggregate(&self.series.0, &self.func.0, factor, scope)?.into_iter().collect::<Vec<_>>().into())
    }
}

/// One series of many, or `None` without series. Its tags are those that all share, and how it was made.
pub(super) fn aggregate(
    series: &[Series],
    func: &Named,
    x_files_factor: f64,
    scope: &mut Scope,
) -> Result<Option<Series>, Error> {
    let all: Vec<&Series> = series.iter().collect();
    let Some(normalized) = normalize(&all) else { return Ok(None) };
    let values = func.aggregator.across_while(&normalized.slices(), x_files_factor, &|| scope.check())?;
    let name = format!("{}Series({})", func.name, path_expressions(&all));
    let mut tags = series.first().map_or_else(Tags::default, |first| first.tags.clone());
    for series in series {
        tags.intersect(&series.tags);
    }
    if tags.get("name").is_none() {
        tags.put("name", name.as_str());
    }
    tags.put("aggregatedBy", func.name.as_str());
    let integers = func.aggregator.keeps_integers(series.iter().all(|series| series.integers));
    let combined = Series::computed(&name, normalized.start, normalized.end, normalized.step, values);
    Ok(Some(Series { tags, x_files_factor, integers, ..combined }))
}

/// Every path expression of the series, each once, in order, for later names.
pub(super) fn path_expressions(series: &[&Series]) -> String {
    let mut seen: Vec<&Arc<str>> = Vec::new();
    for series in series {
        let path = &series.path_expression;
        // Series of one glob come one after another and share its text.
        let shared = seen.last().is_some_and(|last| Arc::ptr_eq(last, path));
        if !shared && !seen.contains(&path) {
            seen.push(path);
        }
    }
    let texts: Vec<&str> = seen.into_iter().map(|path| &**path).collect();
    texts.join(",")
}

parameters! {
    /// countSeries.
    struct CountSeries {
        lists: Vec<SeriesList> = "seriesLists";
    }
}

impl Evaluate for CountSeries {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if self.lists.is_empty() {
            let none = Series { integers: true, ..super::constant::line(0.0, "0", scope) };
            return Ok(vec![Series { path_expression: "countSeries()".into(), ..none }].into());
        }
        let series: Vec<&Series> = self.lists.iter().flat_map(|list| &list.0).collect();
        let Some(normalized) = normalize(&series) else { return Ok(Vec::new().into()) };
        let rows = normalized.columns.iter().map(|column| column.len()).max().unwrap_or(0);
        let name = format!("countSeries({})", path_expressions(&series));
        let values = vec![series.len() as f64; rows];
        let counted = Series::computed(&name, normalized.start, normalized.end, normalized.step, values);
        Ok(vec![Series { integers: true, x_files_factor: scope.x_files_factor, ..counted }].into())
    }
}

parameters! {
    /// divideSeries.
    struct Divide {
        dividends: SeriesList = "dividendSeriesList".required();
        divisor: SeriesList = "divisorSeries".required();
    }
}

impl Evaluate for Divide {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let divisor = match self.divisor.0.as_slice() {
            [divisor] => divisor,
            [] => return Ok(self.dividends.0.into_iter().map(without_divisor).collect::<Vec<_>>().into()),
            more => {
                let count = more.len();
                return Err(scope.reject(format!("divisorSeries must be exactly 1 series, got {count}")));
            }
        };
        let mut quotients = Vec::with_capacity(self.dividends.0.len());
        for dividend in &self.dividends.0 {
            scope.spend_name(2 * (dividend.name.len() + divisor.name.len()))?;
            let name = format!("divideSeries({},{})", dividend.name, divisor.name);
            let Some(normalized) = normalize(&[dividend, divisor]) else { continue };
            let rows = normalized.columns.iter().map(|column| column.len()).max().unwrap_or(0);
            scope.spend(rows)?;
            let values = divided(&normalized.columns[0], &normalized.columns[1]);
            let quotient = Series::computed(&name, normalized.start, normalized.end, normalized.step, values);
            quotients.push(Series { x_files_factor: scope.x_files_factor, ..quotient });
        }
        Ok(quotients.into())
    }
}

fn without_divisor(series: Series) -> Series {
    let name = format!("divideSeries({},MISSING)", series.name);
    let nulls = vec![f64::NAN; series.values.len()];
    series.with(nulls).called(name)
}

/// Row by row, as many as the longer has; null where the divisor is zero or either is null.
pub(super) fn divided(dividends: &[f64], divisors: &[f64]) -> Vec<f64> {
    let rows = dividends.len().max(divisors.len());
    let mut quotients: Vec<f64> = dividends
        .iter()
        .zip(divisors)
        .map(|(dividend, divisor)| if *divisor == 0.0 { f64::NAN } else { dividend / divisor })
        .collect();
    quotients.resize(rows, f64::NAN);
    quotients
}

parameters! {
    /// group.
    struct GroupAll {
        lists: Vec<SeriesList> = "seriesLists";
    }
}

impl Evaluate for GroupAll {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(self.lists.into_iter().flat_map(|list| list.0).collect::<Vec<_>>().into())
    }
}

parameters! {
    /// powSeries.
    struct Power {
        lists: Vec<SeriesList> = "seriesList".required();
    }
}

impl Evaluate for Power {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let series: Vec<&Series> = self.lists.iter().flat_map(|list| &list.0).collect();
        let Some(normalized) = normalize(&series) else { return Ok(Vec::new().into()) };
        let rows = normalized.columns.iter().map(|column| column.len()).max().unwrap_or(0);
        scope.spend(rows)?;
        let mut columns = normalized.columns.iter();
        let mut values = columns.next().map_or_else(Vec::new, |first| first.to_vec());
        values.resize(rows, f64::NAN);
        for exponents in columns {
            scope.check()?;
            let exponents = exponents.iter().copied().chain(std::iter::repeat(f64::NAN));
            for (value, exponent) in values.iter_mut().zip(exponents) {
                scope.check_after(20)?;
                *value = power(*value, exponent);
            }
        }
        let names: Vec<&str> = series.iter().map(|series| &*series.name).collect();
        let name = format!("powSeries({})", names.join(","));
        let made = Series::computed(&name, normalized.start, normalized.end, normalized.step, values);
        let integers = series.len() == 1 && series.iter().all(|series| series.integers);
        Ok(vec![Series { integers, x_files_factor: scope.x_files_factor, ..made }].into())
    }
}

/// `math.pow` of Python, null where either is or where Python fails: roots of negatives, zero to a negative power, and
/// overflows.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    if base.is_nan() || exponent.is_nan() {
        return f64::NAN;
    }
    let power = base.powf(exponent);
    let fails = power.is_infinite() && base.is_finite() && exponent.is_finite();
    if fails { f64::NAN } else { power }
}
