//! Valid calls of every function.

#![allow(dead_code, reason = "every test file takes what it needs")]

use render::{Kind, Literal, Parameter, functions::Function};

/// A valid argument of a parameter: by its kind, with exceptions by function.
pub fn argument(function: &Function, parameter: &Parameter) -> String {
    let special = match (function.name, parameter.name) {
        ("holtWintersConfidenceArea", "seriesList") => "a.one",
        ("aliasQuery", "newName") => "'%d'",
        ("integralByInterval", _) if parameter.kind == Kind::String => "'10min'",
        ("applyByNode", "templateFunction") => "'sumSeries(%.*)'",
        ("reduce" | "reduceSeries", "reduceFunction") => "'diffSeries'",
        ("reduce" | "reduceSeries", "reduceMatchers") => "'one','two'",
        ("pearsonClosest", "series") | (_, "seriesListA" | "seriesListB" | "resettingSeries" | "divisorSeries") => {
            "a.one"
        }
        ("seriesByTag", _) => "'name=a.one'",
        ("timeStack", "timeShiftEnd") | ("baseline" | "baselineAberration", "timeShiftEnd") => "3",
        ("baseline" | "baselineAberration", "maxAbsentPercent") => "100",
        ("asPercent" | "pct", "total") => "a.one",
        ("holtWintersForecast" | "holtWintersAberration", "seasonality") => "'10min'",
        ("holtWintersConfidenceBands" | "holtWintersConfidenceArea", "seasonality") => "'10min'",
        ("windowTolerance", _) => "0.5",
        _ => "",
    };
    if !special.is_empty() {
        return special.to_owned();
    }
    if let Some(option) =
        parameter.options.iter().find(|option| matches!(option, Literal::Text(text) if !text.is_empty()))
    {
        let Literal::Text(text) = option else { unreachable!("found as a text") };
        return format!("'{text}'");
    }
    match parameter.kind {
        Kind::Aggregator | Kind::AggregatorOrFunction => "'sum'",
        Kind::Any => "a.one",
        Kind::Boolean => "true",
        Kind::Date => "'-30min'",
        Kind::Float | Kind::Integer | Kind::IntegerOrInfinity => "2",
        Kind::IntegerOrInterval => "'5min'",
        Kind::Interval => "'10min'",
        Kind::Node | Kind::NodeOrTag => "1",
        Kind::SeriesList => "a.*",
        Kind::SeriesLists => "mapSeries(a.*,1)",
        Kind::String => "'x'",
        Kind::Tag => "'name'",
    }
    .to_owned()
}

/// A call with these parameters, by name after the first that is left out.
pub fn call(function: &Function, wanted: impl Fn(&Parameter) -> bool) -> String {
    let mut arguments = Vec::new();
    let mut by_place = true;
    for parameter in function.shown() {
        if !wanted(parameter) {
            by_place = false;
            continue;
        }
        let argument = argument(function, parameter);
        // Several values have no name.
        if !by_place && parameter.multiple {
            continue;
        }
        arguments.push(if by_place { argument } else { format!("{}={argument}", parameter.name) });
    }
    format!("{}({})", function.name, arguments.join(","))
}
