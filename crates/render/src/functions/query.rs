//! Series that depend on other series: targets made of names, and a fallback for missing series.

use crate::{
    Aggregator, Error,
    argument::{Node, SeriesList, Value, parameters},
    function::{Evaluate, FirstArgument, Function, Inputs, Needs, Reach, Reaching},
    python_format::python_format,
    python_regex::PythonRegex,
    scope::{CallContext, Scope},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::reaching::<AliasQuery>(
        "aliasQuery",
        "Alias",
        "Names each series by the last value of another, as newName formats it: '%d users'. The other is the target that \
         search and replace make of the name; \\1 is the first group.",
    ),
    Function::reaching::<ApplyByNode>(
        "applyByNode",
        "Combine",
        "For each distinct beginning of the names, up to and with node nodeNum, the target templateFunction with that beginning in \
         place of %; newName names its series, with % as well.",
    ),
    Function::of::<FallbackSeries>("fallbackSeries", "Special", "The series, or the fallback where there are none."),
    Function::reaching::<UseSeriesAbove>(
        "useSeriesAbove",
        "Filter Series",
        "For each series that rises above a value, another one: the target that search and replace make of its name.",
    ),
];

/// Bytes of the longest target or name made here.
const MAX_BYTES: usize = 1 << 20;

/// Copies of a target that are there at a time: as it was made, read, and in the fetches that it needs.
const COPIES: usize = 4;

/// `template.replace('%', prefix)` of Python, bounded, and taken from the budget before it is made.
fn filled(template: &str, prefix: &str, scope: &mut Scope) -> Result<String, Error> {
    let places = template.bytes().filter(|byte| *byte == b'%').count();
    let bytes = places.saturating_mul(prefix.len()).saturating_add(template.len());
    if bytes > MAX_BYTES {
        return Err(scope.reject(format!("makes a text of more than {MAX_BYTES} bytes")));
    }
    scope.spend_name(COPIES * bytes)?;
    Ok(template.replace('%', prefix))
}

parameters! {
    /// aliasQuery.
    struct AliasQuery {
        series: SeriesList = "seriesList".required();
        search: String = "search".required();
        replace: String = "replace".required();
        name: String = "newName".required();
    }
}

impl Reaching for AliasQuery {
    fn reach(&self, _: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Later)
    }

    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        let renaming = Renaming::of(&self.search, &self.replace, scope)?;
        let mut targets = Vec::with_capacity(self.series.0.len());
        for series in &self.series.0 {
            let target = renaming.apply(&series.name, scope)?;
            scope.spend_name(COPIES * target.len())?;
            targets.push(target);
        }
        Ok(Needs::targets(targets))
    }

    fn evaluate(mut self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        for (series, (query, found)) in self.series.0.iter_mut().zip(inputs.targets) {
            let shown: String = query.chars().take(200).collect();
            let Some(first) = found.first() else {
                return Err(scope.reject(format!("No series found with query: {shown}")));
            };
            let last = Aggregator::Last.of(&first.values);
            if last.is_nan() {
                return Err(scope.reject(format!("Cannot get last value of series: {shown}")));
            }
            let name = python_format(&self.name, last, first.integers);
            series.name = name.map_err(|problem| scope.reject(format!("newName {problem}")))?.into();
        }
        Ok(self.series.0.into())
    }
}

/// A pattern, and the replacement of its matches.
struct Renaming {
    regex: PythonRegex,
    replacement: crate::python_regex::Replacement,
}

impl Renaming {
    fn of(search: &str, replace: &str, scope: &Scope) -> Result<Renaming, Error> {
        let regex = PythonRegex::new(search).map_err(|problem| scope.reject(format!("search {problem}")))?;
        let replacement = regex.replacement(replace).map_err(|problem| scope.reject(format!("replace {problem}")))?;
        Ok(Renaming { regex, replacement })
    }

    fn apply(&self, name: &str, scope: &Scope) -> Result<String, Error> {
        scope.check()?;
        let stop = || scope.check().is_err();
        let replaced = self.regex.replace(name, &self.replacement, &stop);
        // A cancellation is not the pattern's mistake.
        scope.check()?;
        replaced.map_err(|problem| scope.reject(format!("search {problem}")))
    }
}

parameters! {
    /// applyByNode.
    struct ApplyByNode {
        series: SeriesList = "seriesList".required();
        node: Node = "nodeNum".required();
        template: String = "templateFunction".required();
        name: Option<String> = "newName";
    }
}

impl ApplyByNode {
    /// The distinct beginnings of the names, each with its target. Empty targets are left out.
    fn targets(&self, scope: &mut Scope) -> Result<Vec<(&str, String)>, Error> {
        let mut prefixes: Vec<&str> = self.series.0.iter().map(|series| prefix(&series.name, self.node.0)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut targets = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            let target = filled(&self.template, prefix, scope)?;
            if !target.trim().is_empty() {
                targets.push((prefix, target));
            }
        }
        Ok(targets)
    }
}

impl Reaching for ApplyByNode {
    fn reach(&self, _: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Later)
    }

    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        Ok(Needs::targets(self.targets(scope)?.into_iter().map(|(_, target)| target).collect()))
    }

    fn evaluate(self, inputs: Inputs, scope: &mut Scope) -> Result<Value, Error> {
        // Every found series gets the times of the last series, as in graphite-web.
        let Some(last) = self.series.0.last() else { return Ok(Vec::new().into()) };
        let (start, end) = (last.start, last.end);
        let mut all = Vec::new();
        for ((prefix, _), (_, found)) in self.targets(scope)?.into_iter().zip(inputs.targets) {
            let name = match self.name.as_deref().filter(|name| !name.is_empty()) {
                Some(name) => Some(filled(name, prefix, scope)?),
                None => None,
            };
            for mut series in found {
                if let Some(name) = &name {
                    series.name = name.as_str().into();
                }
                series.path_expression = prefix.into();
                (series.start, series.end) = (start, end);
                all.push(series);
            }
        }
        Ok(all.into())
    }
}

/// The nodes of a name up to and with one; from -1 on backwards, those without so many at the end less one.
fn prefix(name: &str, node: i64) -> &str {
    let nodes = name.split('.').count() as i64;
    let kept = node.saturating_add(1);
    let kept = if kept < 0 { (kept + nodes).max(0) } else { kept };
    if kept == 0 {
        return "";
    }
    let dot = usize::try_from(kept - 1).ok().and_then(|nth| name.match_indices('.').nth(nth));
    dot.and_then(|(at, _)| name.get(..at)).unwrap_or(name)
}

parameters! {
    /// fallbackSeries.
    struct FallbackSeries {
        series: SeriesList = "seriesList".required();
        fallback: SeriesList = "fallback".required();
    }
}

impl Evaluate for FallbackSeries {
    fn evaluate(self, _: &mut Scope) -> Result<Value, Error> {
        Ok(if self.series.0.is_empty() { self.fallback.0 } else { self.series.0 }.into())
    }
}

parameters! {
    /// useSeriesAbove.
    struct UseSeriesAbove {
        series: SeriesList = "seriesList".required();
        value: f64 = "value".required();
        search: String = "search".required();
        replace: String = "replace".required();
    }
}

impl Reaching for UseSeriesAbove {
    fn reach(&self, _: &CallContext, _: &FirstArgument) -> Result<Reach, Error> {
        Ok(Reach::Later)
    }

    fn reach_further(&self, scope: &mut Scope) -> Result<Needs, Error> {
        let renaming = Renaming::of(&self.search, &self.replace, scope)?;
        let mut targets = String::new();
        for series in &self.series.0 {
            let name = renaming.apply(&series.name, scope)?;
            if Aggregator::Max.of(&series.values) > self.value {
                if targets.len() + name.len() > MAX_BYTES {
                    return Err(scope.reject(format!("makes a target of more than {MAX_BYTES} bytes")));
                }
                scope.spend_name(COPIES * name.len())?;
                targets.push_str(if targets.is_empty() { "" } else { "," });
                targets.push_str(&name);
            }
        }
        let any = !targets.is_empty();
        Ok(Needs::targets(any.then(|| format!("group({targets})")).into_iter().collect()))
    }

    fn evaluate(self, inputs: Inputs, _: &mut Scope) -> Result<Value, Error> {
        let found = inputs.targets.into_iter().flat_map(|(_, found)| found);
        Ok(found.filter(|series| !series.values.is_empty()).collect::<Vec<_>>().into())
    }
}
