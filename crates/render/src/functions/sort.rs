//! The order of series.

use crate::{
    Aggregator, Error, Literal, Series,
    argument::{Named, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    scope::Scope,
};

const GROUP: &str = "Sorting";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<SortBy>("sortBy", GROUP, "Sorts by the values by func, the lowest first."),
    Function::of::<SortBy>("sortByMaxima", GROUP, "Sorts by maximum, the highest first.")
        .preset("func", Literal::Text("max"))
        .preset("reverse", Literal::Boolean(true)),
    Function::of::<SortByMinima>(
        "sortByMinima",
        GROUP,
        "Sorts by minimum, the lowest first, and leaves out series that never rise above zero.",
    ),
    Function::of::<SortByName>("sortByName", GROUP, "Sorts by name; natural puts server2 before server12."),
    Function::of::<SortBy>("sortByTotal", GROUP, "Sorts by sum, the highest first.")
        .preset("func", Literal::Text("sum"))
        .preset("reverse", Literal::Boolean(true)),
];

parameters! {
    /// sortBy and its like.
    struct SortBy {
        series: SeriesList = "seriesList".required();
        func: Named = "func".default(Literal::Text("average"));
        reverse: bool = "reverse".default(Literal::Boolean(false));
    }
}

impl Evaluate for SortBy {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(sorted_by(self.series.0, self.func.aggregator, self.reverse).into())
    }
}

/// Sorted by a value of each series, unknown ones lowest; equals keep their order, in reverse as well.
pub(super) fn sorted_by(series: Vec<Series>, aggregator: Aggregator, reverse: bool) -> Vec<Series> {
    let key = |series: &Series| {
        let value = aggregator.of(&series.values);
        if value.is_nan() { f64::NEG_INFINITY } else { value }
    };
    let mut keyed: Vec<(f64, Series)> = series.into_iter().map(|series| (key(&series), series)).collect();
    keyed.sort_by(|(a, _), (b, _)| {
        let order = a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    keyed.into_iter().map(|(_, series)| series).collect()
}

parameters! {
    /// sortByMinima.
    struct SortByMinima {
        series: SeriesList = "seriesList".required();
    }
}

impl Evaluate for SortByMinima {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        self.series.0.retain(|series| Aggregator::Max.of(&series.values) > 0.0);
        Ok(sorted_by(self.series.0, Aggregator::Min, false).into())
    }
}

parameters! {
    /// sortByName.
    struct SortByName {
        series: SeriesList = "seriesList".required();
        natural: bool = "natural".default(Literal::Boolean(false));
        reverse: bool = "reverse".default(Literal::Boolean(false));
    }
}

impl Evaluate for SortByName {
    fn evaluate(mut self, _: &mut Scope) -> Result<Value, Error> {
        let series = &mut self.series.0;
        match self.natural {
            true => series.sort_by_cached_key(|series| natural_key(&series.name)),
            false => series.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        if self.reverse {
            // Python keeps the order of equals when it sorts in reverse.
            series.reverse();
            let key = |series: &Series| if self.natural { natural_key(&series.name) } else { series.name.to_string() };
            for equals in series.chunk_by_mut(|a, b| key(a) == key(b)) {
                equals.reverse();
            }
        }
        Ok(self.series.0.into())
    }
}

/// The name with every number padded to ten digits. A number without leading zeros: Python reads it first.
fn natural_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(at) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let digits = from.len() - from.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let (number, after) = from.split_at(digits);
        key.push_str(before);
        key.push_str(&format!("{:0>10}", number.trim_start_matches('0')));
        rest = after;
    }
    key.push_str(rest);
    key
}
