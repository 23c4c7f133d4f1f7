//! Names and groups by the nodes of a name, or by tags.

use crate::{
    Error, Literal, Series,
    argument::{Callback, NodeOrTag, SeriesList, Value, parameters},
    function::{Evaluate, Function},
    functions::combine::aggregate,
    grammar::parse,
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AliasByNode>(
        "aliasByNode",
        "Alias",
        "Names each series by nodes of its name, counted from 0 or from -1 backwards, or by tags, joined by dots.",
    ),
    Function::of::<GroupByNode>(
        "groupByNode",
        "Combine",
        "One series for each value of a node or tag, made of all series that have it.",
    ),
    Function::of::<GroupByNodes>(
        "groupByNodes",
        "Combine",
        "One series for each combination of nodes or tags, made of all series that have it.",
    ),
];

parameters! {
    /// aliasByNode.
    struct AliasByNode {
        series: SeriesList = "seriesList".required();
        nodes: Vec<NodeOrTag> = "nodes".required();
    }
}

impl Evaluate for AliasByNode {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.name = key(series, &self.nodes, scope)?.into();
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// groupByNode.
    struct GroupByNode {
        series: SeriesList = "seriesList".required();
        node: NodeOrTag = "nodeNum".required();
        callback: Callback = "callback".default(Literal::Text("average"));
    }
}

impl Evaluate for GroupByNode {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        grouped(self.series, &[self.node], &self.callback, scope)
    }
}

parameters! {
    /// groupByNodes.
    struct GroupByNodes {
        series: SeriesList = "seriesList".required();
        callback: Callback = "callback".required();
        nodes: Vec<NodeOrTag> = "nodes";
    }
}

impl Evaluate for GroupByNodes {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        grouped(self.series, &self.nodes, &self.callback, scope)
    }
}

fn grouped(list: SeriesList, nodes: &[NodeOrTag], callback: &Callback, scope: &mut Scope) -> Result<Value, Error> {
    let mut results = Vec::new();
    for (key, group) in by_key(list.0, nodes, scope)? {
        let single = match callback {
            Callback::Aggregator(func) => aggregate(&group, func, scope.x_files_factor, scope)?,
            Callback::Function(function) => scope.call_back(function, vec![group])?.into_iter().next(),
        };
        // A group without a result makes graphite-web fail; we leave it out.
        results.extend(single.map(|series| Series { name: key.into(), ..series }));
    }
    Ok(results.into())
}

/// Series by key, keys in the order in which they first occur.
pub(super) fn by_key(
    series: Vec<Series>,
    nodes: &[NodeOrTag],
    scope: &mut Scope,
) -> Result<Vec<(String, Vec<Series>)>, Error> {
    let mut places = std::collections::HashMap::new();
    let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
    for series in series {
        let key = key(&series, nodes, scope)?;
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(series);
    }
    Ok(groups)
}

/// Nodes and tags of a series, joined by dots. Nodes are those of the name, or, where that ends like a
/// function call, of the first path in it. A node that does not exist is searched among the tags. The budget bounds
/// keys: a target has room for thousands of nodes.
pub(super) fn key(series: &Series, nodes: &[NodeOrTag], scope: &mut Scope) -> Result<String, Error> {
    let parsed = if series.name.ends_with(')') { parse(&series.name).ok() } else { None };
    let path = parsed.as_ref().and_then(|expression| expression.first_path()).unwrap_or(&series.name);
    let path = path.split(';').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('.').collect();
    let mut key = String::new();
    for (place, node) in nodes.iter().enumerate() {
        if place > 0 {
            key.push('.');
        }
        let tag = |tag: &str| series.tags.get(tag).unwrap_or_default().to_owned();
        match node {
            NodeOrTag::Tag(name) => key.push_str(&tag(name)),
            NodeOrTag::Node(node) => match part(&parts, *node) {
                Some(part) => key.push_str(part),
                None => key.push_str(&tag(&node.to_string())),
            },
        }
    }
    scope.spend_name(key.len())?;
    Ok(key)
}

/// An element counted from 0, or from -1 backwards.
fn part<'a>(parts: &[&'a str], node: i64) -> Option<&'a str> {
    let count = parts.len() as i64;
    let place = if node < 0 { node + count } else { node };
    parts.get(usize::try_from(place).ok()?).copied()
}
