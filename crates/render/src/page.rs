//! The page docs/functions.md, from the table.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    Aggregator, Kind, Literal, Parameter,
    functions::{self, Function},
    number::repr,
};

const HEAD: &str = "# Functions

Every function that a target may call, by group. All of graphite-web 1.1.10 are here and answer as there, to the byte; where
they do not, [differences.md](differences.md) says so. Those marked *extension* are carbonapi's. `/functions` answers the
same as JSON, for editors.

This page is made from the table of functions: `cargo run -q -p render --example functions_page > docs/functions.md`.

Arguments are given by place or by name, `movingAverage(a.b, windowSize='5min')`, and `a.b | movingAverage(10)` is
`movingAverage(a.b, 10)`. `none` is the same as not given.
";

/// Markdown: a chapter for each group, in it a section for each function, and before them what the kinds of
/// parameters take.
pub fn functions_page() -> String {
    let mut groups: BTreeMap<&str, BTreeMap<&str, &Function>> = BTreeMap::new();
    for function in functions::all() {
        groups.entry(function.group).or_default().insert(function.name, function);
    }
    let mut page = HEAD.to_owned();
    page.push_str("\n| a parameter of type | takes |\n|---|---|\n");
    let all = functions::all().flat_map(Function::shown);
    let kinds: BTreeMap<&str, Kind> = all.map(|parameter| (parameter.kind.name(), parameter.kind)).collect();
    for (name, kind) in kinds {
        let _ = writeln!(page, "| {name} | {} |", takes(kind));
    }
    let names: Vec<&str> = Aggregator::NAMES.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(page, "\nAggregation functions: {}.", names.join(", "));
    for (group, functions) in groups {
        let _ = writeln!(page, "\n## {group}");
        for function in functions.values() {
            section(function, &mut page);
        }
    }
    page
}

/// The values that a parameter takes.
fn takes(kind: Kind) -> &'static str {
    match kind {
        Kind::Aggregator => "the name of an aggregation function, in quotes",
        Kind::AggregatorOrFunction => {
            "that, or the name of a function that makes one series of several, such as `'sumSeries'`"
        }
        Kind::Any => "series or a number, as the description says",
        Kind::Boolean => "`true` or `false`",
        Kind::Date => "a time as `from` and `until` take it: `'-1h'`, `'noon yesterday'`, `'20260131'`, Unix seconds",
        Kind::Float => "a number",
        Kind::Integer => "a whole number",
        Kind::IntegerOrInfinity => "a whole number, or `inf`",
        Kind::IntegerOrInterval => "a number of points, or an interval",
        Kind::Interval => {
            "a time such as `'30s'`, `'5min'`, `'1h'`, `'1d'`, `'2w'`, `'1mon'`, `'1y'`, or several: `'1h30min'`"
        }
        Kind::Node => "a position in a name, the first node being 0; negative ones count from the end",
        Kind::NodeOrTag => "that, or the name of a tag, in quotes",
        Kind::SeriesList => "a glob, or a call",
        Kind::SeriesLists => "lists of series, as mapSeries makes them",
        Kind::String => "a text in quotes",
        Kind::Tag => "the name of a tag, in quotes",
    }
}

fn section(function: &Function, page: &mut String) {
    let mark = if function.extension { " (extension)" } else { "" };
    let _ = writeln!(page, "\n### {}{mark}\n", function.name);
    let _ = writeln!(page, "    {}\n", function.signature_text());
    let _ = writeln!(page, "{}", function.description);
    let parameters: Vec<&Parameter> = function.shown().collect();
    if !parameters.is_empty() {
        page.push('\n');
    }
    for parameter in parameters {
        let _ = writeln!(page, "* `{}`: {}", parameter.name, facts(function, parameter));
    }
}

/// Type, whether it must be given, default and choices.
fn facts(function: &Function, parameter: &Parameter) -> String {
    let default = function.signature.default_of(parameter).or(parameter.documented);
    let mut said = parameter.kind.name().to_owned();
    if parameter.multiple {
        said.push_str(", any number of them");
    }
    match default {
        Some(default) => said += &format!(", {} when not given", literal(&default)),
        None if parameter.required => said.push_str(", required"),
        None => said.push_str(", optional"),
    }
    if !parameter.options.is_empty() {
        let options: Vec<String> = parameter.options.iter().map(literal).collect();
        said += &format!("; one of {}", options.join(", "));
    }
    said
}

fn literal(literal: &Literal) -> String {
    match literal {
        Literal::Boolean(value) => format!("`{value}`"),
        Literal::Integer(value) => format!("`{value}`"),
        Literal::Float(value) => format!("`{}`", repr(*value)),
        Literal::Text(value) => format!("`'{value}'`"),
        Literal::None => "`none`".to_owned(),
    }
}
