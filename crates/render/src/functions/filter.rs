//! Choosing among series, by name or by one number of their values.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Named, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::sort::sorted_by,
    python_regex::PythonRegex,
    scope::Scope,
};

const GROUP: &str = "Filter Series";

pub(super) const FUNCTIONS: &[Function] = &[
    compared("averageAbove", "average", ">", "The series whose mean is above n."),
    compared("averageBelow", "average", "<=", "The series whose mean is at most n."),
    compared("currentAbove", "last", ">", "The series whose last value is above n."),
    compared("currentBelow", "last", "<=", "The series whose last value is at most n."),
    compared("maximumAbove", "max", ">", "The series whose largest value is above n."),
    compared("maximumBelow", "max", "<=", "The series whose largest value is at most n."),
    compared("minimumAbove", "min", ">", "The series whose smallest value is above n."),
    compared("minimumBelow", "min", "<=", "The series whose smallest value is at most n."),
    Function::of::<Exclude>("exclude", GROUP, "The series whose names do not match a regular expression."),
    Function::of::<Compare>(
        "filterSeries",
        GROUP,
        "The series whose value by func compares with threshold as operator says.",
    ),
    Function::of::<Grep>("grep", GROUP, "The series whose names match a regular expression."),
    Function::of::<Highest>("highest", GROUP, "The n series with the highest values by func, the highest first."),
    highest("highestAverage", "average", "The n series with the highest mean, the highest first."),
    highest("highestCurrent", "current", "The n series with the highest last value, the highest first."),
    highest("highestMax", "max", "The n series with the highest maximum, the highest first."),
    highest("highestMin", "min", "The n series with the highest minimum, the highest first.").extension(),
    Function::of::<Limit>("limit", GROUP, "The first n series."),
    Function::of::<Lowest>("lowest", GROUP, "The n series with the lowest values by func, the lowest first."),
    lowest("lowestAverage", "average", "The n series with the lowest mean, the lowest first."),
    lowest("lowestCurrent", "current", "The n series with the lowest last value, the lowest first."),
    lowest("lowestMax", "max", "The n series with the lowest maximum, the lowest first.").extension(),
    lowest("lowestMin", "min", "The n series with the lowest minimum, the lowest first.").extension(),
    Function::of::<RemoveEmptySeries>(
        "removeEmptySeries",
        GROUP,
        "The series that have any value, or whose known share of values is at least xFilesFactor.",
    ),
    Function::of::<Unique>("unique", GROUP, "The first series of each name."),
];

const fn compared(
    name: &'static str,
    func: &'static str,
    operator: &'static str,
    description: &'static str,
) -> Function {
    Function::of::<CompareN>(name, GROUP, description)
        .preset("func", Literal::Text(func))
        .preset("operator", Literal::Text(operator))
}

const fn highest(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<Highest>(name, GROUP, description).preset("func", Literal::Text(func)).without_fallbacks()
}

const fn lowest(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<Lowest>(name, GROUP, description).preset("func", Literal::Text(func)).without_fallbacks()
}

parameters! {
    /// highest and its like.
    struct Highest {
        series: SeriesList = "seriesList".required();
        n: i64 = "n".required().fallback(Literal::Integer(1));
        func: Named = "func".default(Literal::Text("average"));
    }
}

impl Evaluate for Highest {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(first_n(sorted_by(self.series.0, self.func.aggregator, true), self.n).into())
    }
}

parameters! {
    /// lowest and its like.
    struct Lowest {
        series: SeriesList = "seriesList".required();
        n: i64 = "n".required().fallback(Literal::Integer(1));
        func: Named = "func".default(Literal::Text("average"));
    }
}

impl Evaluate for Lowest {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(first_n(sorted_by(self.series.0, self.func.aggregator, false), self.n).into())
    }
}

parameters! {
    /// limit.
    struct Limit {
        series: SeriesList = "seriesList".required();
        n: i64 = "n".required();
    }
}

impl Evaluate for Limit {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(first_n(self.series.0, self.n).into())
    }
}

/// `list[:n]` of Python: a negative n leaves out so many at the end.
pub(super) fn first_n(mut series: Vec<Series>, n: i64) -> Vec<Series> {
    let count = series.len() as i64;
    let kept = if n < 0 { (count + n).max(0) } else { n.min(count) };
    series.truncate(kept as usize);
    series
}

const OPERATORS: &[Literal] = &[
    Literal::Text("!="),
    Literal::Text("<"),
    Literal::Text("<="),
    Literal::Text("="),
    Literal::Text(">"),
    Literal::Text(">="),
];

parameters! {
    /// filterSeries.
    struct Compare {
        series: SeriesList = "seriesList".required();
        func: Named = "func".required();
        operator: String = "operator".required().options(OPERATORS);
        threshold: f64 = "threshold".required();
    }
}

impl Evaluate for Compare {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let Compare { series, func, operator, threshold } = self;
        compare(series, func.aggregator, &operator, threshold, scope)
    }
}

parameters! {
    /// averageAbove and its like.
    struct CompareN {
        series: SeriesList = "seriesList".required();
        func: Named = "func";
        operator: String = "operator";
        n: f64 = "n".required();
    }
}

impl Evaluate for CompareN {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let CompareN { series, func, operator, n } = self;
        compare(series, func.aggregator, &operator, n, scope)
    }
}

/// An unknown value is different from everything and below everything.
fn compare(
    list: SeriesList,
    aggregator: Aggregator,
    operator: &str,
    threshold: f64,
    scope: &mut Scope,
) -> Result<Value, Error> {
    let mut kept = list.0;
    scope.check()?;
    kept.retain(|series| {
        let value = aggregator.of(&series.values);
        match operator {
            "=" => value == threshold,
            "!=" => value != threshold,
            ">" => value > threshold,
            ">=" => value >= threshold,
            "<" => value.is_nan() || value < threshold,
            _ => value.is_nan() || value <= threshold,
        }
    });
    Ok(kept.into())
}

parameters! {
    /// grep.
    struct Grep {
        series: SeriesList = "seriesList".required();
        pattern: String = "pattern".required();
    }
}

impl Evaluate for Grep {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        matching(self.series, &self.pattern, true, scope)
    }
}

parameters! {
    /// exclude.
    struct Exclude {
        series: SeriesList = "seriesList".required();
        pattern: String = "pattern".required();
    }
}

impl Evaluate for Exclude {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        matching(self.series, &self.pattern, false, scope)
    }
}

fn matching(list: SeriesList, pattern: &str, wanted: bool, scope: &mut Scope) -> Result<Value, Error> {
    let reject = |problem: String| scope.reject(format!("pattern {problem}"));
    let regex = PythonRegex::new(pattern).map_err(reject)?;
    let mut kept = Vec::with_capacity(list.0.len());
    for series in list.0 {
        scope.check()?;
        if regex.finds(&series.name).map_err(|problem| scope.reject(format!("pattern {problem}")))? == wanted {
            kept.push(series);
        }
    }
    Ok(kept.into())
}

parameters! {
    /// removeEmptySeries.
    struct RemoveEmptySeries {
        series: SeriesList = "seriesList".required();
        x_files_factor: Option<f64> = "xFilesFactor";
    }
}

impl Evaluate for RemoveEmptySeries {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        let factor = self.x_files_factor.unwrap_or(0.0);
        self.series.0.retain(|series| {
            let known = series.values.iter().filter(|value| !value.is_nan()).count();
            known > 0 && known as f64 / series.values.len() as f64 >= factor
        });
        Ok(self.series.0.into())
    }
}

parameters! {
    /// unique.
    struct Unique {
        lists: Vec<SeriesList> = "seriesLists".required();
    }
}

impl Evaluate for Unique {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        let mut seen = std::collections::HashSet::new();
        let all = self.lists.into_iter().flat_map(|list| list.0);
        Ok(all.filter(|series| seen.insert(series.name.clone())).collect::<Vec<_>>().into())
    }
}
