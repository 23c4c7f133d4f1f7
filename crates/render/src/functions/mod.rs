//! The table of functions: the families, and functions by name. Each family has a file of its own; nothing outside of
//! them names a function. No family knows the table: a function that calls others by name gets `CALLBACKS`.

use std::{collections::HashMap, sync::LazyLock};

pub use crate::function::Function;
use crate::{
    Error, Series,
    argument::Value,
    function::Body,
    scope::{Callbacks, Scope},
};

mod alias;
mod baseline;
mod buckets;
mod combine;
mod comparison;
mod consolidation;
mod constant;
mod deviation;
mod event;
mod exponential;
mod filter;
mod forecast;
mod fourier;
mod gaps;
mod generate;
mod graph;
mod legend;
mod lists;
mod maths;
mod moving;
mod node;
mod outlier;
mod pairs;
mod percent;
mod polynomial;
mod preview;
mod query;
mod regression;
mod release;
mod set;
mod shift;
mod slice;
mod slo;
mod sort;
mod summarize;
mod tag;
mod transform;
mod tukey;
mod weighted;
mod wildcards;
mod window_medians;
mod windows;

/// Every function, by family. A new file is added here and nowhere else.
const FAMILIES: &[&[Function]] = &[
    alias::FUNCTIONS,
    baseline::FUNCTIONS,
    buckets::FUNCTIONS,
    combine::FUNCTIONS,
    comparison::FUNCTIONS,
    consolidation::FUNCTIONS,
    constant::FUNCTIONS,
    deviation::FUNCTIONS,
    event::FUNCTIONS,
    exponential::FUNCTIONS,
    filter::FUNCTIONS,
    forecast::FUNCTIONS,
    fourier::FUNCTIONS,
    gaps::FUNCTIONS,
    generate::FUNCTIONS,
    graph::FUNCTIONS,
    legend::FUNCTIONS,
    lists::FUNCTIONS,
    maths::FUNCTIONS,
    moving::FUNCTIONS,
    node::FUNCTIONS,
    outlier::FUNCTIONS,
    pairs::FUNCTIONS,
    percent::FUNCTIONS,
    polynomial::FUNCTIONS,
    release::FUNCTIONS,
    query::FUNCTIONS,
    regression::FUNCTIONS,
    set::FUNCTIONS,
    shift::FUNCTIONS,
    slo::FUNCTIONS,
    slice::FUNCTIONS,
    sort::FUNCTIONS,
    summarize::FUNCTIONS,
    tag::FUNCTIONS,
    transform::FUNCTIONS,
    tukey::FUNCTIONS,
    weighted::FUNCTIONS,
    wildcards::FUNCTIONS,
];

/// Every function, family by family.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// The function of a name.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Function>> =
        LazyLock::new(|| all().map(|function| (function.name, function)).collect());
    BY_NAME.get(name).copied()
}

/// The function of a name, or the error that suggests another.
pub(crate) fn called(name: &str) -> Result<&'static Function, Error> {
    find(name).ok_or_else(|| {
        let nearest = all().map(|function| (distance(name, function.name), function.name)).min();
        let near = |(distance, _): &(usize, &str)| *distance <= 2 || *distance * 3 <= name.len();
        Error::UnknownFunction {
            name: name.chars().take(100).collect(),
            nearest: nearest.filter(near).map(|(_, name)| name),
        }
    })
}

/// Whether a function of this name is marked as a callback.
pub(crate) fn is_callback(name: &str) -> bool {
    find(name).is_some_and(|function| function.aggregator)
}

/// The table as functions see it.
pub(crate) const CALLBACKS: Callbacks = Callbacks { check: |name| called(name).map(|_| ()), call: call_back };

/// Calls a function with nothing but series. One that needs more than its arguments cannot be called so.
fn call_back(name: &str, lists: Vec<Vec<Series>>, scope: &mut Scope) -> Result<Vec<Series>, Error> {
    let function = called(name)?;
    let Body::Evaluate { evaluate, .. } = function.body else {
        return Err(scope.reject(format!("cannot call {}, which fetches series of its own", function.name)));
    };
    let arguments = function.arguments(is_callback, lists.into_iter().map(Value::Series).collect(), Vec::new())?;
    match scope.within(function.name, |scope| evaluate(arguments, scope))? {
        Value::Series(series) => Ok(series),
        _ => Ok(Vec::new()),
    }
}

/// The edit distance between two names, in any case. A name of more than a hundred bytes is far from all others.
fn distance(from: &str, to: &str) -> usize {
    if from.len() > 100 {
        return usize::MAX / 4;
    }
    strsim::levenshtein(&from.to_ascii_lowercase(), &to.to_ascii_lowercase())
}
