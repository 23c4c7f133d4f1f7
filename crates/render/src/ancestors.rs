//! The lineage of series that functions make: that of all series that went into the call.

use std::sync::Arc;

use crate::{Series, argument::Value, lineage::Origin};

/// The origins of all series that go into a call.
pub(crate) struct Ancestors {
    /// With the step of the series that brought them.
    origins: Vec<(i64, Origin)>,
    /// Whether all series have the same step.
    alike: bool,
}

impl Ancestors {
    /// Of the series among values. `None` where none of them has a lineage.
    pub fn of<'a>(series: impl Iterator<Item = &'a Series>) -> Option<Ancestors> {
        let mut ancestors = Ancestors { origins: Vec::new(), alike: true };
        let mut first = None;
        for series in series {
            let Some(lineage) = &series.lineage else { continue };
            ancestors.alike &= *first.get_or_insert(series.step) == series.step;
            for origin in lineage.iter() {
                add(&mut ancestors.origins, series.step, origin);
            }
        }
        first.map(|_| ancestors)
    }

    /// Gives the origins to the series of a result that have none.
    pub fn inherited(&self, value: &mut Value) {
        let lists: &mut dyn Iterator<Item = &mut Series> = match value {
            Value::Series(series) => &mut series.iter_mut(),
            Value::Lists(lists) => &mut lists.iter_mut().flatten(),
            _ => return,
        };
        let mut last: Option<(i64, Arc<Vec<Origin>>)> = None;
        for series in lists.filter(|series| series.lineage.is_none()) {
            let lineage = match &last {
                Some((step, lineage)) if *step == series.step => lineage.clone(),
                _ => Arc::new(self.at(series.step)),
            };
            last = Some((series.step, lineage.clone()));
            series.lineage = Some(lineage);
        }
    }

    /// The origins of a series with a step that was made of all. Series of one step are not normalized, whatever the
    /// function then does with them.
    fn at(&self, step: i64) -> Vec<Origin> {
        let mut all = Vec::new();
        for (before, origin) in &self.origins {
            let folded = if self.alike { 1 } else { (step / before.max(&1)).max(1) };
            add(&mut all, 0, &Origin { normalized: origin.normalized.saturating_mul(folded), ..origin.clone() });
        }
        all.into_iter().map(|(_, origin)| origin).collect()
    }
}

/// Adds an origin, to the count of the one that is the same.
fn add(all: &mut Vec<(i64, Origin)>, step: i64, origin: &Origin) {
    let same = |(known_step, known): &&mut (i64, Origin)| {
        *known_step == step && Origin { count: origin.count, ..known.clone() } == *origin
    };
    match all.iter_mut().find(same) {
        Some((_, known)) => known.count = known.count.saturating_add(origin.count),
        None => all.push((step, origin.clone())),
    }
}
