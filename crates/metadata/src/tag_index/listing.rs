//! Lists tags, and values of a tag with how many metrics have each, of all metrics or of a set.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;

use super::search::{ReadNames, STEPS_PER_NAME, STEPS_PER_VALUE, SharedIndex, VALUES_PER_NAME};
use crate::{
    limits::{Budget, FindError},
    tag_expressions::{Matcher, TagError, TagExpressions, value_of},
};

/// Values that are listed before others may change the index.
const PASS: usize = 256;

/// Memory of a value that is counted in a tree and then listed, in times of what it takes in the list.
const LISTED_TIMES: usize = 2;

/// Which tags or values are listed.
#[derive(Default)]
pub struct TagListing {
    /// Those of metrics for which these hold; of all metrics without.
    pub expressions: Option<TagExpressions>,
    /// Those that begin with this.
    pub prefix: String,
    /// Those that match.
    pub pattern: Option<Matcher>,
    /// The first so many, by text; all without.
    pub limit: Option<usize>,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTag {
    /// See [`text_id`].
    pub id: u32,
    /// The tag.
    pub tag: String,
}

/// A value of a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedValue {
    /// See [`text_id`].
    pub id: u32,
    /// The value.
    pub value: String,
    /// How many metrics have it.
    pub count: u64,
}

/// The number of a tag or value in an answer: its checksum. It stays over restarts, and tells nothing about names that a
/// caller does not see.
pub fn text_id(text: &str) -> u32 {
    crc32fast::hash(text.as_bytes())
}

impl TagListing {
    fn takes(&self, text: &str, budget: &Budget<'_>) -> Result<bool, FindError> {
        let Some(pattern) = &self.pattern else { return Ok(true) };
        budget.limits.check_cancelled()?;
        let matches = pattern.matches(text);
        matches.map_err(|reason| TagError::Pattern { expression: text.to_owned(), reason }.into())
    }

    /// Those of some texts that the pattern takes. Others may change the index while they are compared: one comparison may take a
    /// tenth of a second.
    fn taken<T>(
        &self,
        shared: &mut dyn SharedIndex,
        mut texts: Vec<(String, T)>,
        budget: &Budget<'_>,
    ) -> Result<Vec<(String, T)>, FindError> {
        if self.pattern.is_none() {
            return Ok(texts);
        }
        let mut taken = Ok(());
        shared.without(&mut || {
            texts.retain(|(text, _)| {
                let takes = if taken.is_ok() { self.takes(text, budget) } else { Ok(false) };
                takes.unwrap_or_else(|error| {
                    taken = Err(error);
                    false
                })
            });
        });
        taken.map(|()| texts)
    }

    fn is_full(&self, listed: usize) -> bool {
        self.limit.is_some_and(|limit| listed >= limit)
    }
}

/// The tags of metrics, of those in `within` if it is given, by text. Tags that the expressions use are left out.
pub(crate) fn list_tags(
    shared: &mut dyn SharedIndex,
    asked: &TagListing,
    within: Option<&RoaringBitmap>,
    budget: &mut Budget<'_>,
) -> Result<Vec<ListedTag>, FindError> {
    let (mut listed, mut bytes) = (Vec::new(), 0);
    // The last tag that was met. Others may come, and go, between some and the next.
    let mut last: Option<String> = None;
    loop {
        let index = shared.index();
        let tags = index.tags_with_prefix(&asked.prefix);
        let begin = last.as_ref().map_or(0, |last| tags.partition_point(|&tag| index.tag_text(tag) <= last.as_str()));
        let tags = &tags[begin..];
        let tags = &tags[..tags.len().min(PASS)];
        let Some(&end) = tags.last() else { return Ok(listed) };
        last = Some(index.tag_text(end).to_owned());
        budget.spend(STEPS_PER_VALUE * tags.len() as u64)?;
        let is_used = |text: &str| asked.expressions.iter().flat_map(TagExpressions::iter).any(|one| one.tag == text);
        let is_there = |tag| within.is_none_or(|within| index.postings.meets(index.tag_metrics(tag), within));
        let wanted = tags.iter().filter(|&&tag| !is_used(index.tag_text(tag)) && is_there(tag));
        let wanted = wanted.map(|&tag| (index.tag_text(tag).to_owned(), ())).collect();
        for (tag, ()) in asked.taken(shared, wanted, budget)? {
            if asked.is_full(listed.len()) {
                return Ok(listed);
            }
            bytes += size_of::<ListedTag>() + tag.len();
            budget.check(bytes, listed.len() + 1)?;
            listed.push(ListedTag { id: text_id(&tag), tag });
        }
        if asked.is_full(listed.len()) {
            return Ok(listed);
        }
        shared.let_pass();
    }
}

/// The values of a tag, of metrics in `within` if it is given, by text; `None` when none of these has the tag.
pub(crate) fn list_values(
    shared: &mut dyn SharedIndex,
    tag: &str,
    asked: &TagListing,
    within: Option<&RoaringBitmap>,
    names: &dyn ReadNames,
    budget: &mut Budget<'_>,
) -> Result<Option<Vec<ListedValue>>, FindError> {
    let index = shared.index();
    let Some(number) = index.tag(tag) else { return Ok(None) };
    let metrics = within.map(|within| index.postings.count_in(index.tag_metrics(number), within));
    if metrics == Some(0) {
        return Ok(None);
    }
    let values = index.values_with_prefix(number, &asked.prefix);
    if let (Some(within), Some(metrics)) = (within, metrics) {
        // The walk passes so many values until the limit is reached, if those of the metrics are spread evenly.
        let limit = asked.limit.unwrap_or(usize::MAX) as u64;
        let looks = (values.len() as u64 / metrics.max(1)).saturating_mul(limit).min(values.len() as u64);
        if within.len() * VALUES_PER_NAME < looks {
            let mut listed = Ok(Vec::new());
            shared.without(&mut || listed = list_from_names(tag, asked, within, names, budget));
            return listed.map(Some);
        }
    }
    let (mut listed, mut bytes) = (Vec::new(), 0);
    // The last value that was met. Others may come, and go, between some and the next.
    let mut last: Option<String> = None;
    loop {
        let index = shared.index();
        let Some(number) = index.tag(tag) else { break };
        let values = index.values_with_prefix(number, &asked.prefix);
        let begin =
            last.as_ref().map_or(0, |last| values.partition_point(|&value| index.value_text(value) <= last.as_str()));
        let values = &values[begin..];
        let values = &values[..values.len().min(PASS)];
        let Some(&end) = values.last() else { break };
        last = Some(index.value_text(end).to_owned());
        let mut wanted = Vec::new();
        for &value in values {
            // Without a pattern all of them are listed.
            if asked.pattern.is_none() && asked.is_full(listed.len() + wanted.len()) {
                break;
            }
            budget.spend(STEPS_PER_VALUE)?;
            let metrics = index.value_metrics(value);
            let count =
                within.map_or_else(|| index.postings.len(metrics), |within| index.postings.count_in(metrics, within));
            if count > 0 {
                wanted.push((index.value_text(value).to_owned(), count));
            }
        }
        for (value, count) in asked.taken(shared, wanted, budget)? {
            if asked.is_full(listed.len()) {
                break;
            }
            bytes += size_of::<ListedValue>() + value.len();
            budget.check(bytes, listed.len() + 1)?;
            listed.push(ListedValue { id: text_id(&value), value, count });
        }
        if asked.is_full(listed.len()) {
            break;
        }
        shared.let_pass();
    }
    Ok(Some(listed))
}

/// As `list_values`, by reading the names of the metrics.
fn list_from_names(
    tag: &str,
    asked: &TagListing,
    within: &RoaringBitmap,
    names: &dyn ReadNames,
    budget: &mut Budget<'_>,
) -> Result<Vec<ListedValue>, FindError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut bytes = 0;
    names.read(within, &mut |_, name| {
        budget.spend(STEPS_PER_NAME)?;
        let value = value_of(name, tag);
        if value.is_empty() || !value.starts_with(&asked.prefix) {
            return Ok(());
        }
        if let Some(count) = counts.get_mut(value) {
            *count += 1;
        } else if asked.takes(value, budget)? {
            bytes += LISTED_TIMES * (size_of::<ListedValue>() + value.len());
            budget.check(bytes, counts.len() + 1)?;
            counts.insert(value.to_owned(), 1);
        }
        Ok(())
    })?;
    let listed = counts.into_iter().take(asked.limit.unwrap_or(usize::MAX));
    Ok(listed.map(|(value, count)| ListedValue { id: text_id(&value), value, count }).collect())
}
