//! Two lists of series, combined member by member.

use crate::{
    Error, Literal, Series,
    argument::{Named, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::combine::{SeriesAggregator, aggregate, divided, power},
    normalize::normalize,
    number::general,
    scope::Scope,
};

const GROUP: &str = "Combine";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AggregateLists>(
        "aggregateSeriesLists",
        GROUP,
        "The first series of both lists as one, then the second ones, and so on, by any of the aggregation functions.",
    ),
    paired("diffSeriesLists", "diff", "Each series of the first list less its counterpart in the second."),
    Function::of::<DivideLists>(
        "divideSeriesLists",
        GROUP,
        "Each series of the first list by its counterpart in the second; null where that is zero or null.",
    ),
    paired("multiplySeriesLists", "multiply", "Each series of the first list times its counterpart in the second."),
    Function::of::<PowerLists>(
        "powSeriesLists",
        GROUP,
        "Each series of the first list to the power of its counterpart in the second, or of the only one there. Lists of \
         different lengths are matched by name; default replaces a missing series.",
    )
    .extension(),
    paired("sumSeriesLists", "sum", "Each series of the first list plus its counterpart in the second."),
];

const fn paired(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<Pairs>(name, GROUP, description).preset("func", Literal::Text(func)).aggregator()
}

parameters! {
    /// aggregateSeriesLists.
    struct AggregateLists {
        first: SeriesList = "seriesListFirstPos".required();
        second: SeriesList = "seriesListSecondPos".required();
        func: SeriesAggregator = "func".required();
        x_files_factor: Option<f64> = "xFilesFactor";
    }
}

impl Evaluate for AggregateLists {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let factor = self.x_files_factor.unwrap_or(scope.x_files_factor);
        aggregated(self.first.0, self.second.0, &self.func.0, factor, scope)
    }
}

parameters! {
    /// sumSeriesLists and its like.
    struct Pairs {
        first: SeriesList = "seriesListFirstPos".required();
        second: SeriesList = "seriesListSecondPos".required();
        func: Named = "func";
    }
}

impl Evaluate for Pairs {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        aggregated(self.first.0, self.second.0, &self.func, scope.x_files_factor, scope)
    }
}

fn aggregated(
    first: Vec<Series>,
    second: Vec<Series>,
    func: &Named,
    x_files_factor: f64,
    scope: &mut Scope,
) -> Result<Value, Error> {
    equally_long(&first, &second, "seriesListFirstPos", "seriesListSecondPos", scope)?;
    let mut combined = Vec::with_capacity(first.len());
    for pair in first.into_iter().zip(second).map(<[Series; 2]>::from) {
        scope.spend(pair[0].values.len().max(pair[1].values.len()))?;
        let name = format!("{}Series({},{})", func.name, pair[0].name, pair[1].name);
        let both = aggregate(&pair, func, x_files_factor, scope)?;
        combined.extend(both.map(|series| Series { name: name.into(), ..series }));
    }
    Ok(combined.into())
}

parameters! {
    /// divideSeriesLists.
    struct DivideLists {
        dividends: SeriesList = "dividendSeriesList".required();
        divisors: SeriesList = "divisorSeriesList".required();
    }
}

impl Evaluate for DivideLists {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (dividends, divisors) = (&self.dividends.0, &self.divisors.0);
        equally_long(dividends, divisors, "dividendSeriesList", "divisorSeriesList", scope)?;
        let mut quotients = Vec::with_capacity(dividends.len());
        for (dividend, divisor) in dividends.iter().zip(divisors) {
            let Some(both) = normalize(&[dividend, divisor]) else { continue };
            scope.spend(both.columns[0].len().max(both.columns[1].len()))?;
            scope.spend_name(2 * (dividend.name.len() + divisor.name.len()))?;
            let name = format!("divideSeries({},{})", dividend.name, divisor.name);
            let values = divided(&both.columns[0], &both.columns[1]);
            let quotient = Series::computed(&name, both.start, both.end, both.step, values);
            quotients.push(Series { x_files_factor: scope.x_files_factor, ..quotient });
        }
        Ok(quotients.into())
    }
}

parameters! {
    /// powSeriesLists.
    struct PowerLists {
        bases: SeriesList = "sourceSeriesList".required();
        exponents: SeriesList = "factorSeriesList".required();
        default: Option<f64> = "default";
    }
}

impl Evaluate for PowerLists {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (bases, exponents) = (&self.bases.0, &self.exponents.0);
        let mut powers = Vec::with_capacity(bases.len());
        if let Some(default) = self.default.filter(|_| bases.is_empty()) {
            for exponent in exponents {
                scope.spend(exponent.values.len())?;
                let values = scope.column(&exponent.values, 20, |value| power(default, *value))?;
                let name = format!("powSeries({},{})", general(default), exponent.name);
                powers.push(exponent.clone().with(values).called(name));
            }
        }
        for (place, base) in bases.iter().enumerate() {
            let exponent = match exponents.as_slice() {
                [only] => Some(only),
                many if many.len() == bases.len() => many.get(place),
                many => many.iter().find(|exponent| exponent.name == base.name),
            };
            scope.spend(base.values.len())?;
            if let Some(exponent) = exponent {
                let Some(both) = normalize(&[base, exponent]) else { continue };
                let values = scope.column_of_both(&both.columns[0], &both.columns[1], 20, power)?;
                let name = format!("powSeries({},{})", base.name, exponent.name);
                let (start, end, step) = (both.start, both.end, both.step);
                powers.push(Series { start, end, step, lineage: None, ..base.clone().with(values).called(name) });
            } else if let Some(default) = self.default {
                let values = scope.column(&base.values, 20, |value| power(*value, default))?;
                let name = format!("powSeries({},{})", base.name, general(default));
                powers.push(base.clone().with(values).called(name));
            }
        }
        Ok(powers.into())
    }
}

fn equally_long(first: &[Series], second: &[Series], name: &str, other: &str, scope: &Scope) -> Result<(), Error> {
    if first.len() == second.len() {
        return Ok(());
    }
    let (given, others) = (first.len(), second.len());
    Err(scope.reject(format!("{name} and {other} must have as many series as each other, got {given} and {others}")))
}
