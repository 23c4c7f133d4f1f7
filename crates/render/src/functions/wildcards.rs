//! Series that have the same name but for some nodes, as one.

use std::collections::HashMap;

use crate::{
    Error, Literal, Series,
    argument::{Named, Node, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::combine::{SeriesAggregator, aggregate},
    scope::Scope,
};

const GROUP: &str = "Combine";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AggregateWithWildcards>(
        "aggregateWithWildcards",
        GROUP,
        "One series, by func, of all that have the same name once the nodes at the positions are taken out of it.",
    )
    .signature("aggregateWithWildcards(seriesList, func, *positions)"),
    without(
        "averageSeriesWithWildcards",
        "average",
        "The mean of all series that have the same name once the nodes at the positions are taken out of it.",
    ),
    without(
        "multiplySeriesWithWildcards",
        "multiply",
        "The product of all series that have the same name once the nodes at the positions are taken out of it.",
    ),
    without(
        "sumSeriesWithWildcards",
        "sum",
        "The sum of all series that have the same name once the nodes at the positions are taken out of it.",
    ),
];

const fn without(name: &'static str, func: &'static str, description: &'static str) -> Function {
    Function::of::<WithWildcards>(name, GROUP, description).preset("func", Literal::Text(func)).aggregator()
}

parameters! {
    /// aggregateWithWildcards.
    struct AggregateWithWildcards {
        series: SeriesList = "seriesList".required();
        func: SeriesAggregator = "func".required();
        positions: Vec<Node> = "position";
    }
}

impl Evaluate for AggregateWithWildcards {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        merged(self.series.0, &self.func.0, &self.positions, scope)
    }
}

parameters! {
    /// sumSeriesWithWildcards and its like.
    struct WithWildcards {
        series: SeriesList = "seriesList".required();
        func: Named = "func";
        positions: Vec<Node> = "position";
    }
}

impl Evaluate for WithWildcards {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        merged(self.series.0, &self.func, &self.positions, scope)
    }
}

fn merged(series: Vec<Series>, func: &Named, positions: &[Node], scope: &mut Scope) -> Result<Value, Error> {
    let mut places = HashMap::new();
    let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
    for series in series {
        scope.check()?;
        let name = without_nodes(&series.name, positions);
        let place = *places.entry(name.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((name, Vec::new()));
        }
        groups[place].1.push(series);
    }
    let mut merged = Vec::with_capacity(groups.len());
    for (name, group) in groups {
        scope.spend(group.first().map_or(0, |series| series.values.len()))?;
        let one = aggregate(&group, func, scope.x_files_factor, scope)?;
        merged.extend(one.map(|series| Series { name: name.into(), ..series }));
    }
    Ok(merged.into())
}

/// The name without the nodes at the positions. Negative positions match no node here.
fn without_nodes(name: &str, positions: &[Node]) -> String {
    let stays = |(place, _): &(usize, &str)| !positions.contains(&Node(*place as i64));
    let nodes: Vec<&str> = name.split('.').enumerate().filter(stays).map(|(_, node)| node).collect();
    nodes.join(".")
}
