//! Tags: series found, grouped and named by them.

use std::collections::HashMap;

use crate::{
    Error, Series, Tags,
    argument::{Callback, NodeOrTag, SeriesList, Tag, Value, parameters},
    function::{Evaluate, Function},
    functions::{combine::aggregate, node::key},
    scope::Scope,
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::of::<AliasByTags>(
        "aliasByTags",
        "Alias",
        "Names each series by tags, or by nodes of its name, joined by dots.",
    ),
    Function::of::<GroupByTags>(
        "groupByTags",
        "Combine",
        "One series for each combination of the values of some tags, made of all series that have it and named by it.",
    ),
    Function::of::<SeriesByTag>(
        "seriesByTag",
        "Special",
        "The series whose tags meet every expression: 'tag=value', 'tag!=value', 'tag=~regex' or 'tag!=~regex'; an empty \
         value means that the tag is missing.",
    ),
];

parameters! {
    /// aliasByTags.
    struct AliasByTags {
        series: SeriesList = "seriesList".required();
        tags: Vec<NodeOrTag> = "tags".required();
    }
}

impl Evaluate for AliasByTags {
    fn evaluate(mut self, scope: &mut Scope) -> Result<Value, Error> {
        for series in &mut self.series.0 {
            series.name = key(series, &self.tags, scope)?.into();
        }
        Ok(self.series.0.into())
    }
}

parameters! {
    /// groupByTags.
    struct GroupByTags {
        series: SeriesList = "seriesList".required();
        callback: Callback = "callback".required();
        tags: Vec<Tag> = "tags".required();
    }
}

/// A key is that of a group and of its place, the name of a series, and its tags.
const COPIES_OF_KEY: usize = 4;

impl Evaluate for GroupByTags {
    fn evaluate(self, scope: &mut Scope) -> Result<Value, Error> {
        if self.tags.is_empty() {
            return Err(scope.reject("no tags specified; name at least one to group by"));
        }
        // Their common name stays, unless the name is among the tags, and then each keeps its own.
        let by_name = self.tags.iter().any(|tag| tag.0 == "name");
        let name_of = |series: &Series| series.tags.get("name").unwrap_or_default().to_owned();
        let first = self.series.0.first().map(name_of);
        let common = first.filter(|first| self.series.0.iter().all(|series| series.tags.get("name") == Some(first)));
        let common = common.unwrap_or_else(|| self.callback.name().to_owned());
        let mut names: Vec<&str> = self.tags.iter().map(|tag| tag.0.as_str()).filter(|tag| *tag != "name").collect();
        // Python sorts `tag=value`; where one tag is the beginning of another, that is not the order of the tags.
        names.sort_by(|a, b| format!("{a}=").cmp(&format!("{b}=")));

        let mut places = HashMap::new();
        let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
        for series in self.series.0 {
            let name = if by_name { name_of(&series) } else { common.clone() };
            // Before it is made: a target has room for many thousands of tags, which may be one that is long.
            let value = |tag: &str| series.tags.get(tag).unwrap_or_default();
            let bytes = names.iter().fold(name.len(), |bytes, tag| bytes + tag.len() + value(tag).len() + 2);
            scope.spend_name(bytes.saturating_mul(COPIES_OF_KEY))?;
            let mut key = name;
            key.reserve_exact(bytes - key.len());
            for tag in &names {
                [";", tag, "=", value(tag)].into_iter().for_each(|part| key.push_str(part));
            }
            let place = *places.entry(key.clone()).or_insert(groups.len());
            if place == groups.len() {
                groups.push((key, Vec::new()));
            }
            groups[place].1.push(series);
        }
        let mut grouped = Vec::with_capacity(groups.len());
        for (key, group) in groups {
            let single = match &self.callback {
                Callback::Aggregator(func) => aggregate(&group, func, scope.x_files_factor, scope)?,
                Callback::Function(function) => scope.call_back(function, vec![group])?.into_iter().next(),
            };
            // A group without a result makes graphite-web fail; we leave it out.
            grouped.extend(single.map(|series| Series { tags: tags_of(&key), ..series.called(key) }));
        }
        Ok(grouped.into())
    }
}

/// The tags in a key made above. A tag without a value is left out; graphite-web fails on it.
fn tags_of(key: &str) -> Tags {
    let (name, pairs) = key.split_once(';').unwrap_or((key, ""));
    let mut tags = Tags::default();
    for (tag, value) in pairs.split(';').filter_map(|pair| pair.split_once('=')) {
        if !value.is_empty() {
            tags.put(tag, value);
        }
    }
    tags.put("name", name);
    tags
}

parameters! {
    /// seriesByTag. The grammar makes a fetch of it, so that it is only evaluated as a callback.
    struct SeriesByTag {
        _expressions: Vec<String> = "tagExpressions".required();
    }
}

impl Evaluate for SeriesByTag {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(Vec::new().into())
    }
}
