//! Answers tag expressions with a set of metric ids.
//!
//! 1. Expressions that do not hold for metrics without the tag narrow the set: first those with one value, smallest set first,
//!    then patterns, fewest values first.
//! 2. Of the others, the metrics are dropped whose value they refuse.
//!
//! A pattern is compared with each distinct value of its tag that begins with the pattern's literal text, or, where fewer metrics
//! are left than such values, with the values in the names of these metrics.

use metric::MetricId;
use roaring::RoaringBitmap;

use super::{
    index::{TagIndex, ValueId},
    postings::{Posting, Union},
};
use crate::{
    limits::{Budget, FindError},
    tag_expressions::{Expression, TagExpressions, Test, value_of},
};

/// What reading a name costs, in steps of a find: with its limit as it is by default, ten million names.
pub(crate) const STEPS_PER_NAME: u64 = 10;

/// What comparing a value with a pattern costs, in steps of a find.
pub(super) const STEPS_PER_VALUE: u64 = 10;

/// Values that a walk passes in the time of reading one name.
pub(super) const VALUES_PER_NAME: u64 = 3;

/// Values that are read together.
const TOGETHER: usize = 32;

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

/// The metrics for which all expressions hold.
pub(crate) fn search(
    index: &TagIndex,
    expressions: &TagExpressions,
    names: &dyn ReadNames,
    budget: &mut Budget<'_>,
) -> Result<RoaringBitmap, FindError> {
    Search { index, names, budget }.all_hold(expressions)
}

struct Search<'a, 'b> {
    index: &'a TagIndex,
    names: &'a dyn ReadNames,
    budget: &'a mut Budget<'b>,
}

impl<'a> Search<'a, '_> {
    fn all_hold(&mut self, expressions: &TagExpressions) -> Result<RoaringBitmap, FindError> {
        let (refusing, narrowing): (Vec<_>, Vec<_>) = expressions.iter().partition(|one| one.takes_empty);
        let (patterns, exact): (Vec<_>, Vec<_>) =
            narrowing.into_iter().partition(|one| matches!(one.test(), Test::Matches { .. }));
        let mut sets: Vec<Posting> = exact.into_iter().map(|one| self.metrics_of(one)).collect();
        sets.sort_by_key(|&set| self.index.postings.len(set));
        let mut found = None;
        for set in sets {
            found = Some(match found {
                None => self.index.postings.to_bitmap(set),
                Some(mut found) => {
                    self.index.postings.keep(set, &mut found);
                    found
                }
            });
            self.spend_on(found.as_ref())?;
        }
        let mut patterns: Vec<_> = patterns.into_iter().map(|one| (self.candidates(one), one)).collect();
        patterns.sort_by_key(|(values, _)| values.len());
        for (values, expression) in patterns {
            if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
            let passing = self.passing(expression, values, found.as_ref())?;
            found = Some(if expression.is_negated { self.others(expression, passing, found) } else { passing });
            self.spend_on(found.as_ref())?;
        }
        let mut found = found.unwrap_or_else(|| self.index.all().clone());
        for expression in refusing {
            if found.is_empty() {
                break;
            }
            self.drop_refused(expression, &mut found)?;
            self.spend_on(Some(&found))?;
        }
        Ok(found)
    }

    /// The metrics of an expression with one value: those that have it, or any value where it is empty.
    fn metrics_of(&self, expression: &Expression) -> Posting {
        let Some(tag) = self.index.tag(&expression.tag) else { return Posting::default() };
        match expression.test() {
            Test::Is(value) if !value.is_empty() => {
                self.index.value(tag, value).map(|value| self.index.value_metrics(value)).unwrap_or_default()
            }
            _ => self.index.tag_metrics(tag),
        }
    }

    /// The values that may match a pattern.
    fn candidates(&self, expression: &Expression) -> &'a [ValueId] {
        let prefix = match expression.test() {
            Test::Matches { prefix, .. } => prefix.as_str(),
            Test::Is(_) => "",
        };
        let index = self.index;
        index.tag(&expression.tag).map(|tag| index.values_with_prefix(tag, prefix)).unwrap_or_default()
    }

    /// The metrics, of those in `found`, whose value matches a pattern. Not those without the tag.
    fn passing(
        &mut self,
        expression: &Expression,
        values: &[ValueId],
        found: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap, FindError> {
        let is_all = matches!(expression.test(), Test::Matches { is_all: true, .. });
        if let Some(found) = found
            && found.len() * VALUES_PER_NAME < values.len() as u64
        {
            return self.passing_names(expression, found);
        }
        let mut union = Union::default();
        let mut entries = Vec::with_capacity(TOGETHER);
        for values in values.chunks(TOGETHER) {
            entries.clear();
            // All before any is compared: each is somewhere else in memory, and the processor fetches several at a time.
            self.index.read_values(values, !is_all, &mut entries);
            for &(text, metrics) in &entries {
                if is_all {
                    self.budget.spend(1)?;
                    union.add(&self.index.postings, metrics);
                    continue;
                }
                self.budget.spend(STEPS_PER_VALUE)?;
                // Cheaper than the pattern, where the set is small.
                let is_wanted = match (found, metrics) {
                    (Some(found), Posting::Few(_)) => self.index.postings.meets(metrics, found),
                    _ => true,
                };
                if is_wanted {
                    // One comparison may take a tenth of a second.
                    self.budget.limits.check_cancelled()?;
                    if expression.passes(text)? {
                        union.add(&self.index.postings, metrics);
                    }
                }
            }
        }
        let mut passing = union.finish();
        if let Some(found) = found {
            passing &= found;
        }
        Ok(passing)
    }

    fn passing_names(&mut self, expression: &Expression, found: &RoaringBitmap) -> Result<RoaringBitmap, FindError> {
        let mut ids = Vec::new();
        let budget = &mut *self.budget;
        self.names.read(found, &mut |id, name| {
            budget.spend(STEPS_PER_NAME)?;
            budget.limits.check_cancelled()?;
            let value = value_of(name, &expression.tag);
            if !value.is_empty() && expression.passes(value)? {
                ids.push(id.0);
            }
            Ok(())
        })?;
        Ok(ids.into_iter().collect())
    }

    /// The metrics, of those in `found`, that have the tag but not a value that passes.
    fn others(&self, expression: &Expression, passing: RoaringBitmap, found: Option<RoaringBitmap>) -> RoaringBitmap {
        let tagged = self.index.tag(&expression.tag).map(|tag| self.index.tag_metrics(tag)).unwrap_or_default();
        let mut others = match found {
            None => self.index.postings.to_bitmap(tagged),
            Some(mut found) => {
                self.index.postings.keep(tagged, &mut found);
                found
            }
        };
        others -= passing;
        others
    }

    /// Drops metrics whose value an expression refuses that holds without the tag.
    fn drop_refused(&mut self, expression: &Expression, found: &mut RoaringBitmap) -> Result<(), FindError> {
        if matches!(expression.test(), Test::Is(_)) {
            self.index.postings.drop_from(self.metrics_of(expression), found);
            return Ok(());
        }
        let passing = self.passing(expression, self.candidates(expression), Some(found))?;
        let refused =
            if expression.is_negated { passing } else { self.others(expression, passing, Some(found.clone())) };
        *found -= refused;
        Ok(())
    }

    fn spend_on(&mut self, found: Option<&RoaringBitmap>) -> Result<(), FindError> {
        self.budget.spend(1 + found.map_or(0, RoaringBitmap::len) / IDS_PER_STEP)
    }
}
