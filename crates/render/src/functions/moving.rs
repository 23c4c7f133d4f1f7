//! Functions over a window that moves along a series.

use crate::{
    Error, Literal, Series,
    argument::{Length, Named, SeriesList, Value, parameters},
    function::{FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    functions::{
        preview::{self, LENGTHS},
        windows::windows,
    },
    scope::{CallContext, Scope},
};

const GROUP: &str = "Calculate";

pub(super) const FUNCTIONS: &[Function] = &[
    moving(
        "movingAverage",
        "average",
        "The mean of the windowSize before each time: points, or a time such as '5min'.",
    ),
    moving(
        "movingMax",
        "max",
        "The largest value of the windowSize before each time: points, or a time such as '5min'.",
    ),
    moving(
        "movingMedian",
        "median",
        "The median of the windowSize before each time: points, or a time such as '5min'.",
    ),
    moving(
        "movingMin",
        "min",
        "The smallest value of the windowSize before each time: points, or a time such as '5min'.",
    ),
    moving("movingSum", "sum", "The sum of the windowSize before each time: points, or a time such as '5min'."),
    Function::reaching::<Moving>(
        "movingWindow",
        GROUP,
        "Folds the values of the windowSize before each time by func. The window is a number of points or a time such as \
         '5min'; the values before the graph are fetched for it.",
    ),
];

const fn moving(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::reaching::<Moving>(name, GROUP, description).preset("func", Literal::Text(func))
}

parameters! {
    /// movingWindow and its like.
    struct Moving {
        series: SeriesList = "seriesList".required();
        window: Length = "windowSize".required().suggest(LENGTHS);
        func: Named = "func".default(Literal::Text("average"));
        x_files_factor: Option<f64> = "xFilesFactor";
    }
}

impl Reaching for Moving {
    fn reach(&self, call: &CallContext, first: &FirstArgument) -> Result<Reach, Error> {
        preview::reach(&self.window, call, first)
    }

    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        preview::reach_further(&self.window, &self.series, scope)
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        let Some((preview, wide)) = preview::previewed(&self.series, inputs, scope) else {
            return Ok(Vec::new().into());
        };
        let tag = format!("moving{}", capitalized(&self.func.name));
        let mut moved = Vec::with_capacity(wide.len());
        for mut series in wide {
            let (points, shown, text) = match &self.window {
                Length::Time(_, text) => (preview / series.step.max(1), format!("\"{text}\""), text),
                Length::Points(points, text) => (*points, text.clone(), text),
            };
            let name = format!("{tag}({},{shown})", series.name);
            series.tags.put(&tag, text.as_str());
            scope.spend(series.values.len())?;
            let factor = self.x_files_factor.unwrap_or(series.x_files_factor);
            let points = usize::try_from(points).unwrap_or(usize::MAX);
            let values = windows(&series.values, points, self.func.aggregator, factor, scope)?;
            let integers = self.func.aggregator.keeps_integers(series.integers);
            let start = series.start.saturating_add(preview);
            moved.push(Series { start, integers, ..series.with(values).called(name) });
        }
        Ok(moved.into())
    }
}

/// `str.capitalize()` of Python: the first letter large, all others small.
fn capitalized(name: &str) -> String {
    let (first, rest) = name.split_at(name.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}
