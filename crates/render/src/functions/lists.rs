//! Lists of lists of series: grouped by nodes, and each group reduced to one series.

use crate::{
    Error, Series,
    argument::{Node, NodeOrTag, SeriesList, SeriesLists, Value, parameters},
    function::{Evaluate, Function},
    functions::node::by_key,
    scope::Scope,
};

const GROUP: &str = "Combine";

pub(super) const FUNCTIONS: &[Function] = &[MAP, MAP.also("map"), REDUCE, REDUCE.also("reduce")];

const MAP: Function = Function::of::<MapSeries>(
    "mapSeries",
    GROUP,
    "Groups the series by nodes or tags, one list for each combination of these. Only reduceSeries and aggregate take \
     such lists.",
);

const REDUCE: Function = Function::of::<ReduceSeries>(
    "reduceSeries",
    GROUP,
    "Of the lists that mapSeries makes, one series each: reduceFunction of the series whose node is the first of \
     reduceMatchers, of the one whose node is the second, and so on. For instance \
     reduceSeries(mapSeries(disk.*.*,1),'asPercent',2,'used','total').",
);

parameters! {
    /// mapSeries.
    struct MapSeries {
        series: SeriesList = "seriesList".required();
        nodes: Vec<NodeOrTag> = "mapNodes".required();
    }
}

impl Evaluate for MapSeries {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        Ok(Value::Lists(by_key(self.series.0, &self.nodes, scope)?.into_iter().map(|(_, list)| list).collect()))
    }
}

parameters! {
    /// reduceSeries.
    struct ReduceSeries {
        lists: SeriesLists = "seriesLists".required();
        function: String = "reduceFunction".required();
        node: Node = "reduceNode".required();
        matchers: Vec<String> = "reduceMatchers".required();
    }
}

impl Evaluate for ReduceSeries {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        let mut groups: Vec<(String, Vec<Option<Series>>)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for series in self.lists.0.into_iter().flatten() {
            scope.check()?;
            let nodes: Vec<&str> = series.name.split('.').collect();
            let node = if self.node.0 < 0 { self.node.0 + nodes.len() as i64 } else { self.node.0 };
            // graphite-web fails on a name that is too short; it matches nothing.
            let found = usize::try_from(node).ok().and_then(|place| Some((place, nodes.get(place)?)));
            let Some((place, node)) = found else { continue };
            let Some(matcher) = self.matchers.iter().position(|matcher| matcher == node) else { continue };
            let before = nodes.get(..place).unwrap_or_default();
            let name = format!("{}.reduce.{}", before.join("."), self.function);
            let group = *places.entry(name.clone()).or_insert(groups.len());
            if group == groups.len() {
                groups.push((name, vec![None; self.matchers.len()]));
            }
            groups[group].1[matcher] = Some(series);
        }
        let mut reduced = Vec::with_capacity(groups.len());
        for (name, members) in groups {
            scope.check_callback(&self.function)?;
            // A group that lacks a member, or has no result, makes graphite-web fail; we leave it out.
            let Some(members) = members.into_iter().collect::<Option<Vec<Series>>>() else { continue };
            let lists = members.into_iter().map(|series| vec![series]).collect();
            let single = scope.call_back(&self.function, lists)?.into_iter().next();
            reduced.extend(single.map(|series| Series { name: name.into(), ..series }));
        }
        Ok(reduced.into())
    }
}
