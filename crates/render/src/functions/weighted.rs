//! Means in which other series are the weights.

use std::collections::BTreeSet;

use crate::{
    Aggregator, Error, Series,
    argument::{Named, NodeOrTag, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::{
        combine::{aggregate, divided},
        node::key,
    },
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[Function::of::<WeightedAverage>(
    "weightedAverage",
    "Combine",
    "The mean of the series in which each counts by its weight: the series of seriesListWeight that has the same nodes or \
     tags.",
)];

parameters! {
    /// weightedAverage.
    struct WeightedAverage {
        averages: SeriesList = "seriesListAvg".required();
        weights: SeriesList = "seriesListWeight".required();
        nodes: Vec<NodeOrTag> = "nodes";
    }
}

impl Evaluate for WeightedAverage {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let (averages, weights) = (&self.averages.0, &self.weights.0);
        if averages.len() != weights.len() {
            return Err(scope.reject(format!(
                "seriesListAvg and seriesListWeight must have as many series as each other, got {} and {}",
                averages.len(),
                weights.len()
            )));
        }
        let mut pairs: Vec<(String, Option<&Series>, Option<&Series>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (average, weight) in averages.iter().zip(weights) {
            scope.check()?;
            let mut place = |series: &Series| -> Result<usize, Error> {
                let key = key(series, &self.nodes, scope)?;
                let place = *places.entry(key.clone()).or_insert(pairs.len());
                if place == pairs.len() {
                    pairs.push((key, None, None));
                }
                Ok(place)
            };
            let (first, second) = (place(average)?, place(weight)?);
            pairs[first].1 = Some(average);
            pairs[second].2 = Some(weight);
        }
        let mut products = Vec::with_capacity(pairs.len());
        for (_, average, weight) in pairs {
            let (Some(average), Some(weight)) = (average, weight) else { continue };
            scope.spend(average.values.len().max(weight.values.len()))?;
            let name = format!("product({},{})", weight.name, average.name);
            // Value by value, whatever the steps are.
            let values = Aggregator::Multiply.across(&[average.values.as_slice(), weight.values.as_slice()], 0.0);
            let product = Series::computed(&name, average.start, average.end, average.step, values);
            products.push(Series { x_files_factor: scope.x_files_factor, ..product });
        }
        if products.is_empty() {
            return Ok(Vec::new().into());
        }
        let sum = Named { aggregator: Aggregator::Sum, name: "sum".to_owned() };
        let factor = scope.x_files_factor;
        let all_products = aggregate(&products, &sum, factor, scope)?;
        // All weights count, also those that have no counterpart.
        let all_weights = aggregate(weights, &sum, factor, scope)?;
        let (Some(all_products), Some(all_weights)) = (all_products, all_weights) else { return Ok(Vec::new().into()) };
        let nodes: Vec<String> = self.nodes.iter().map(NodeOrTag::to_string).collect();
        let name = format!("weightedAverage({}, {}, {})", paths(averages), paths(weights), nodes.join(","));
        let Series { start, end, step, .. } = all_products;
        let values = divided(&all_products.values, &all_weights.values);
        let mean = Series::computed(&name, start, end, step, values);
        Ok(vec![Series { x_files_factor: factor, ..mean }].into())
    }
}

/// The path expressions of the series, sorted, each once.
fn paths(series: &[Series]) -> String {
    let paths: BTreeSet<&str> = series.iter().map(|series| &*series.path_expression).collect();
    paths.into_iter().collect::<Vec<&str>>().join(",")
}
