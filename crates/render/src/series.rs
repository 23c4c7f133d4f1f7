//! Series, as functions take and return them.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    graph_options::{GraphOptions, NO_OPTIONS},
    lineage::Lineage,
};

/// Values at regular times, with a name.
///
/// `values[i]` belongs to `start + i * step`. There are usually `(end - start) / step` of them, but some
/// functions of Graphite return one more or fewer, and readers must take the values there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the answer.
    pub name: Arc<str>,
    /// The path expression of the fetch, or the function call that stands for it in later names.
    pub path_expression: Arc<str>,
    /// Time of `values[0]`, Unix seconds.
    pub start: i64,
    /// The end of the series, Unix seconds, exclusive.
    pub end: i64,
    /// Seconds from a value to the next, at least 1.
    pub step: i64,
    /// NaN is null. Shared, so that passing a series on costs no copy.
    pub values: Arc<Vec<f64>>,
    /// Shared like the values.
    pub tags: Tags,
    /// How to fold values where the reader wants fewer.
    pub consolidation: Consolidation,
    /// The share of values, 0 to 1, that must be known where several are folded into one.
    pub x_files_factor: f64,
    /// Python holds these values as integers (counts, mostly) and writes them without a decimal point.
    pub integers: bool,
    /// How to draw it; `None` for most series. See [`Series::graph_options`].
    pub graph: Option<Arc<GraphOptions>>,
    /// Where the values come from, if the request asks. A function that makes a series of several leaves it empty; the
    /// engine fills it in.
    pub lineage: Lineage,
}

impl Series {
    /// How to draw it.
    pub fn graph_options(&self) -> &GraphOptions {
        self.graph.as_deref().unwrap_or(const { &NO_OPTIONS })
    }

    /// The options to change.
    pub(crate) fn graph_options_mut(&mut self) -> &mut GraphOptions {
        Arc::make_mut(self.graph.get_or_insert_default())
    }

    /// A fetched series of a path expression, with the tags in its name.
    pub fn fetched(name: &str, path_expression: Arc<str>, start: i64, step: i64, values: Vec<f64>) -> Series {
        debug_assert!(step > 0, "a fetched series has a step");
        Series {
            end: start + step * values.len() as i64,
            step,
            path_expression,
            ..Series::computed(name, start, start, step, values)
        }
    }

    /// A series that a function makes: its name is its path expression, and its tags are those of the name.
    pub(crate) fn computed(name: &str, start: i64, end: i64, step: i64, values: Vec<f64>) -> Series {
        let name: Arc<str> = name.into();
        Series {
            path_expression: name.clone(),
            tags: Tags::of_name(&name),
            name,
            start,
            end,
            step,
            values: Arc::new(values),
            consolidation: Consolidation::Average,
            x_files_factor: 0.0,
            integers: false,
            graph: None,
            lineage: None,
        }
    }

    /// Bytes in memory. Of values that it shares with other series, its part.
    pub fn bytes(&self) -> usize {
        size_of::<Series>() + self.name.len() + size_of_val(self.values.as_slice()) / Arc::strong_count(&self.values)
    }

    /// The same series under a name that later names refer to as well.
    pub(crate) fn called(mut self, name: String) -> Series {
        self.name = name.into();
        self.path_expression = self.name.clone();
        self
    }

    /// The same series with other values, which Python holds as floats.
    pub(crate) fn with(self, values: Vec<f64>) -> Series {
        Series { integers: false, ..self.with_alike(values) }
    }

    /// The same series with other values, which Python holds as integers if it held these as such.
    pub(crate) fn with_alike(mut self, values: Vec<f64>) -> Series {
        self.values = Arc::new(values);
        self
    }
}

/// How to fold values where the reader wants fewer, by Graphite's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Consolidation {
    /// The mean of the known values.
    #[default]
    Average,
    /// The same by its other name, which graphite-web keeps in its answers.
    Avg,
    /// Their sum.
    Sum,
    /// The mean, unknown values counting as zero.
    AvgZero,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The earliest known.
    First,
    /// The latest known.
    Last,
}

impl Consolidation {
    /// Graphite's name.
    pub fn name(self) -> &'static str {
        match self {
            Consolidation::Average => "average",
            Consolidation::Avg => "avg",
            Consolidation::Sum => "sum",
            Consolidation::AvgZero => "avg_zero",
            Consolidation::Max => "max",
            Consolidation::Min => "min",
            Consolidation::First => "first",
            Consolidation::Last => "last",
        }
    }
}

impl fmt::Display for Consolidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error is the unknown name.
impl FromStr for Consolidation {
    type Err = String;

    fn from_str(text: &str) -> Result<Consolidation, String> {
        Ok(match text {
            "average" => Consolidation::Average,
            "avg" => Consolidation::Avg,
            "sum" => Consolidation::Sum,
            "avg_zero" => Consolidation::AvgZero,
            "max" => Consolidation::Max,
            "min" => Consolidation::Min,
            "first" => Consolidation::First,
            "last" => Consolidation::Last,
            other => return Err(other.to_owned()),
        })
    }
}

/// The tags of a series, in the order of insertion, which is also that of the answer. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags(
    // Invariant: no two with the same key. They are few, so a search from the front is enough.
    Arc<Vec<(Arc<str>, Arc<str>)>>,
);

impl Tags {
    /// The tags in a name: `a.b;dc=x` has `dc` and `name`. A name without valid tags, or one that is a function call,
    /// has itself as `name`.
    pub fn of_name(name: &str) -> Tags {
        if name.contains(';')
            && !looks_like_a_call(name)
            && let Some(tags) = Tags::parse(name)
        {
            return tags;
        }
        let unmarked = name.trim_start_matches('~');
        let value = if looks_like_a_call(name) || unmarked.is_empty() { name } else { unmarked };
        Tags(Arc::new(vec![("name".into(), value.into())]))
    }

    fn parse(name: &str) -> Option<Tags> {
        let mut segments = name.split(';');
        let metric = segments.next()?.trim_start_matches('~');
        let mut tags = Tags::default();
        for segment in segments {
            let (tag, value) = segment.split_once('=')?;
            let valid = !tag.is_empty() && !tag.contains(['!', '^']) && !value.is_empty() && !value.starts_with('~');
            if !valid {
                return None;
            }
            tags.put(tag, value);
        }
        if metric.is_empty() {
            return None;
        }
        tags.put("name", metric);
        Some(tags)
    }

    /// The value of a tag.
    pub fn get(&self, tag: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == tag).map(|(_, value)| value)
    }

    /// Sets a tag: in its place if it is there, at the end if it is new.
    pub fn put(&mut self, tag: &str, value: impl Into<Arc<str>>) {
        let tags = Arc::make_mut(&mut self.0);
        match tags.iter_mut().find(|(known, _)| **known == *tag) {
            Some((_, old)) => *old = value.into(),
            None => tags.push((tag.into(), value.into())),
        }
    }

    /// Keeps the tags that both have with the same value.
    pub(crate) fn intersect(&mut self, other: &Tags) {
        let shared = Arc::ptr_eq(&self.0, &other.0);
        if !shared && self.iter().any(|(tag, value)| other.get(tag) != Some(value)) {
            Arc::make_mut(&mut self.0).retain(|(tag, value)| other.get(tag) == Some(&**value));
        }
    }

    /// Tags and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(tag, value)| (&**tag, &**value))
    }
}

/// Whether a name looks like `letters(something)`. graphite-web does not search tags in such a name.
fn looks_like_a_call(name: &str) -> bool {
    let Some((function, rest)) = name.split_once('(') else { return false };
    let letters = !function.is_empty() && function.bytes().all(|byte| byte.is_ascii_alphabetic());
    letters && rest.len() >= 2 && rest.ends_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(name: &str) -> String {
        let tags: Vec<String> = Tags::of_name(name).iter().map(|(tag, value)| format!("{tag}={value}")).collect();
        tags.join(" ")
    }

    #[test]
    fn a_name_contains_its_tags() {
        assert_eq!(tags("a.b"), "name=a.b");
        assert_eq!(tags("a.b;dc=x;rack=1"), "dc=x rack=1 name=a.b");
        assert_eq!(tags("~a;dc=x"), "dc=x name=a");
        assert_eq!(tags("~a"), "name=a");
        assert_eq!(tags("a;dc"), "name=a;dc");
        assert_eq!(tags("a;dc="), "name=a;dc=");
        assert_eq!(tags("sum(a;dc=x)"), "name=sum(a;dc=x)");
        assert_eq!(tags(""), "name=");
    }
}
