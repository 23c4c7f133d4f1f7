//! Answers tag expressions with a set of metric ids.
//!
//! 1. Expressions that do not hold for metrics without the tag narrow the set: first those with one value, smallest set first,
//!    then patterns, fewest values first.
//! 2. Of the others, the metrics are dropped whose value they refuse.
//!
//! A pattern is compared with each distinct value of its tag that begins with the pattern's literal text, or, where fewer metrics
//! are left than such values, with the values in the names of these metrics.
//!
//! A search lets others change the index between some values and the next. Metrics that are there all the while are found by
//! it nevertheless, and none whose values do not fit: what is left of a set after a comparison was in it before, values are met
//! in the order of texts or of memory, and neither changes for a value that stays.

use metric::MetricId;
use roaring::RoaringBitmap;

use super::{
    index::TagIndex,
    postings::{Posting, Union},
};
use crate::{
    limits::{Budget, FindError},
    tag_expressions::{Comparison, Expression, TagExpressions, Test, value_of},
};

/// What reading a name costs, in steps of a find: with its limit as it is by default, ten million names.
pub(crate) const STEPS_PER_NAME: u64 = 10;

/// What comparing a value with a pattern costs, in steps of a find.
pub(super) const STEPS_PER_VALUE: u64 = 10;

/// Values that a walk passes in the time of reading one name.
pub(super) const VALUES_PER_NAME: u64 = 3;

/// Values that are read together, without a change of the index in between.
const TOGETHER: usize = 32;

/// Values that are compared before others may change the index, where that is quick.
const PASS: usize = 256;

/// The same where it is not: one comparison may take a tenth of a second.
const SLOW_PASS: usize = 4;

/// Ids that operations on bitmaps take a step for.
const IDS_PER_STEP: u64 = 64;

/// The names of metrics.
pub(crate) trait ReadNames {
    /// Calls `each` with ids and names. Ids of metrics that are gone are left out.
    fn read(
        &self,
        ids: &RoaringBitmap,
        each: &mut dyn FnMut(MetricId, &str) -> Result<(), FindError>,
    ) -> Result<(), FindError>;
}

/// The index, which others change when a search lets them.
pub(crate) trait SharedIndex {
    /// The index as it is now.
    fn index(&self) -> &TagIndex;

    /// Lets those change it who wait for that.
    fn let_pass(&mut self);

    /// Does work that does not need the index, and lets others change it meanwhile.
    fn without(&mut self, work: &mut dyn FnMut());
}

/// The metrics for which all expressions hold.
pub(crate) fn search(
    index: &mut dyn SharedIndex,
    expressions: &TagExpressions,
    names: &dyn ReadNames,
    budget: &mut Budget<'_>,
) -> Result<RoaringBitmap, FindError> {
    Search { shared: index, names, budget }.all_hold(expressions)
}

struct Search<'a, 'b> {
    shared: &'a mut dyn SharedIndex,
    names: &'a dyn ReadNames,
    budget: &'a mut Budget<'b>,
}

impl Search<'_, '_> {
    fn all_hold(&mut self, expressions: &TagExpressions) -> Result<RoaringBitmap, FindError> {
        let (refusing, narrowing): (Vec<_>, Vec<_>) = expressions.iter().partition(|one| one.takes_empty);
        let (patterns, exact): (Vec<_>, Vec<_>) =
            narrowing.into_iter().partition(|one| matches!(one.test(), Test::Matches { .. }));
        let index = self.shared.index();
        let mut sets: Vec<Posting> = exact.into_iter().map(|one| metrics_of(index, one)).collect();
        sets.sort_by_key(|&set| index.postings.len(set));
        let mut found = None;
        for set in sets {
            found = Some(match found {
                None => index.postings.to_bitmap(set),
                Some(mut found) => {
                    index.postings.keep(set, &mut found);
                    found
                }
            });
            spend_on(self.budget, found.as_ref())?;
        }
        let mut patterns: Vec<_> = patterns.into_iter().map(|one| (candidates(index, one), one)).collect();
        patterns.sort_by_key(|(values, _)| *values);
        for (_, expression) in patterns {
            if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
            found = Some(if expression.is_negated {
                let mut others = self.with_tag(expression, found);
                others -= self.passing(expression, Some(&others))?;
                others
            } else {
                self.passing(expression, found.as_ref())?
            });
            spend_on(self.budget, found.as_ref())?;
        }
        let mut found = found.unwrap_or_else(|| self.shared.index().all().clone());
        for expression in refusing {
            if found.is_empty() {
                break;
            }
            self.drop_refused(expression, &mut found)?;
            spend_on(self.budget, Some(&found))?;
        }
        Ok(found)
    }

    /// The metrics, of those in `found`, whose value matches a pattern. Not those without the tag.
    fn passing(&mut self, expression: &Expression, found: Option<&RoaringBitmap>) -> Result<RoaringBitmap, FindError> {
        let index = self.shared.index();
        let Some(tag) = index.tag(&expression.tag) else { return Ok(RoaringBitmap::new()) };
        let (prefix, is_all) = pattern_of(expression);
        if is_all && prefix.is_empty() {
            return Ok(self.with_tag(expression, found.cloned()));
        }
        if let Some(found) = found
            && found.len() * VALUES_PER_NAME < candidates(index, expression) as u64
        {
            return self.passing_names(expression, found);
        }
        let in_memory = prefix.is_empty() && index.has_most_values(tag);
        let mut union = Union::default();
        if in_memory {
            self.compare_in_memory(expression, found, &mut union)?;
        } else {
            self.compare_in_order(expression, found, &mut union)?;
        }
        let mut passing = union.finish();
        if let Some(found) = found {
            passing &= found;
        }
        Ok(passing)
    }

    /// Compares the values of a tag that begin with the literal text of a pattern, in the order of texts.
    fn compare_in_order(
        &mut self,
        expression: &Expression,
        found: Option<&RoaringBitmap>,
        union: &mut Union,
    ) -> Result<(), FindError> {
        let (prefix, is_all) = pattern_of(expression);
        let mut comparison = expression.comparison();
        // The last text that was met.
        let mut last: Option<Vec<u8>> = None;
        loop {
            let index = self.shared.index();
            let Some(tag) = index.tag(&expression.tag) else { return Ok(()) };
            let values = index.values_with_prefix(tag, prefix);
            let begin = last.as_ref().map_or(0, |last| {
                values.partition_point(|&value| index.value_text(value).as_bytes() <= last.as_slice())
            });
            let values = &values[begin..];
            let values = &values[..values.len().min(PASS)];
            let together = if comparison.is_quick() || is_all { TOGETHER } else { SLOW_PASS };
            let mut entries = Vec::with_capacity(TOGETHER);
            for values in values.chunks(together) {
                entries.clear();
                // All before any is compared: each is somewhere else in memory, and the processor fetches several at a time.
                index.read_values(values, &mut entries);
                if is_all {
                    self.budget.spend(entries.len() as u64)?;
                    entries.iter().for_each(|&(_, metrics)| union.add(&index.postings, metrics));
                } else {
                    compare(index, &entries, &mut comparison, found, self.budget, union)?;
                }
                if !comparison.is_quick() && !is_all {
                    break;
                }
            }
            let Some(&(text, _)) = entries.last() else { return Ok(()) };
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(text);
            self.shared.let_pass();
        }
    }

    /// Compares all values of a tag in the order of memory, which is quicker where most values are those of the tag. Values
    /// that come meanwhile behind the others are left out: where they come quicker than they are compared, the end is never met.
    fn compare_in_memory(
        &mut self,
        expression: &Expression,
        found: Option<&RoaringBitmap>,
        union: &mut Union,
    ) -> Result<(), FindError> {
        let mut comparison = expression.comparison();
        let (mut next, end) = (0, self.shared.index().values_end());
        while next < end {
            let index = self.shared.index();
            let Some(tag) = index.tag(&expression.tag) else { return Ok(()) };
            let mut entries = Vec::with_capacity(PASS);
            let most = if comparison.is_quick() { PASS } else { SLOW_PASS };
            let most = most.min((end - next) as usize);
            let Some(behind) = index.read_in_memory(tag, (next, most), &mut entries) else { return Ok(()) };
            compare(index, &entries, &mut comparison, found, self.budget, union)?;
            next = behind;
            self.shared.let_pass();
        }
        Ok(())
    }

    fn passing_names(&mut self, expression: &Expression, found: &RoaringBitmap) -> Result<RoaringBitmap, FindError> {
        let (mut ids, mut read) = (Vec::new(), Ok(()));
        let (budget, names) = (&mut *self.budget, self.names);
        self.shared.without(&mut || {
            read = names.read(found, &mut |id, name| {
                budget.spend(STEPS_PER_NAME)?;
                budget.limits.check_cancelled()?;
                let value = value_of(name, &expression.tag);
                if !value.is_empty() && expression.passes(value)? {
                    ids.push(id.0);
                }
                Ok(())
            });
        });
        read?;
        Ok(ids.into_iter().collect())
    }

    /// The metrics, of those in `found`, that have the tag of an expression.
    fn with_tag(&self, expression: &Expression, found: Option<RoaringBitmap>) -> RoaringBitmap {
        let index = self.shared.index();
        let tagged = index.tag(&expression.tag).map(|tag| index.tag_metrics(tag)).unwrap_or_default();
        match found {
            None => index.postings.to_bitmap(tagged),
            Some(mut found) => {
                index.postings.keep(tagged, &mut found);
                found
            }
        }
    }

    /// Drops metrics whose value an expression refuses that holds without the tag.
    fn drop_refused(&mut self, expression: &Expression, found: &mut RoaringBitmap) -> Result<(), FindError> {
        if matches!(expression.test(), Test::Is(_)) {
            let index = self.shared.index();
            index.postings.drop_from(metrics_of(index, expression), found);
            return Ok(());
        }
        if expression.is_negated {
            *found -= self.passing(expression, Some(found))?;
            return Ok(());
        }
        let mut refused = self.with_tag(expression, Some(found.clone()));
        refused -= self.passing(expression, Some(&refused))?;
        *found -= refused;
        Ok(())
    }
}

/// Adds the metrics of the values that pass. Of values with few metrics, only of those that have one in `found`.
fn compare(
    index: &TagIndex,
    entries: &[(&[u8], Posting)],
    comparison: &mut Comparison<'_>,
    found: Option<&RoaringBitmap>,
    budget: &mut Budget<'_>,
    union: &mut Union,
) -> Result<(), FindError> {
    budget.spend(STEPS_PER_VALUE * entries.len() as u64)?;
    for &(text, metrics) in entries {
        // Cheaper than the pattern, where the set is small.
        let is_wanted = match (found, metrics) {
            (Some(found), Posting::Few(_)) if !comparison.is_quick() => index.postings.meets(metrics, found),
            _ => true,
        };
        if !is_wanted {
            continue;
        }
        // One comparison may take a tenth of a second.
        if !comparison.is_quick() {
            budget.limits.check_cancelled()?;
        }
        if comparison.passes(text)? {
            union.add(&index.postings, metrics);
        }
    }
    Ok(())
}

/// The literal text at the beginning of a pattern, and whether it asks for nothing else.
fn pattern_of(expression: &Expression) -> (&str, bool) {
    match expression.test() {
        Test::Matches { prefix, is_all, .. } => (prefix, *is_all),
        Test::Is(_) => ("", false),
    }
}

/// The metrics of an expression with one value: those that have it, or any value where it is empty.
fn metrics_of(index: &TagIndex, expression: &Expression) -> Posting {
    let Some(tag) = index.tag(&expression.tag) else { return Posting::default() };
    match expression.test() {
        Test::Is(value) if !value.is_empty() => {
            index.value(tag, value).map(|value| index.value_metrics(value)).unwrap_or_default()
        }
        _ => index.tag_metrics(tag),
    }
}

/// How many values may match a pattern.
fn candidates(index: &TagIndex, expression: &Expression) -> usize {
    let (prefix, _) = pattern_of(expression);
    index.tag(&expression.tag).map_or(0, |tag| index.values_with_prefix(tag, prefix).len())
}

fn spend_on(budget: &mut Budget<'_>, found: Option<&RoaringBitmap>) -> Result<(), FindError> {
    budget.spend(1 + found.map_or(0, RoaringBitmap::len) / IDS_PER_STEP)
}
