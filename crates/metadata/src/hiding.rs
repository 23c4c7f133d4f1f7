//! The metrics that a question leaves out because of the times of their points.

use std::sync::Arc;

use metric::{MetricId, Timestamp};

use crate::{
    limits::{Budget, FindLimits},
    registry::Registry,
    seen::TimeFilter,
    stale::{StaleRule, StaleRules},
};

/// Names that are compared with patterns in one hold of their lock.
const AT_ONCE: u32 = 256;

/// Ids that the maintenance thread goes through between two looks at its other work.
const SLICE: u32 = 16 * AT_ONCE;

impl Registry {
    /// Puts rules in force that say when metrics are stale; none hide nothing.
    pub fn set_stale_rules(&self, rules: Vec<StaleRule>) {
        *self.stale.write() = StaleRules::new(rules).map(Arc::new);
    }

    /// Whether there are rules by which metrics become stale.
    pub fn has_stale_rules(&self) -> bool {
        self.stale.read().is_some()
    }

    /// The metrics that a question leaves out: those without points in its times; without times, stale ones. `None` where
    /// it leaves out none.
    pub fn time_filter(&self, limits: &FindLimits) -> Option<TimeFilter<'_>> {
        if limits.times.is_bounded() {
            return self.seen().filter(limits.times, self.read().end());
        }
        let (stale, rules) = (limits.stale.as_ref()?, self.stale.read().clone()?);
        // Not later than metrics may have points: a clock that is set far ahead makes none stale.
        let now = stale.now.min(self.seen().latest());
        let since = move |first, since: &mut [Timestamp]| self.fresh_since(&rules, first, now, since);
        self.seen().filter_since(Box::new(since), &stale.unless, self.read().end())
    }

    pub(crate) fn budget<'a>(&'a self, limits: &'a FindLimits) -> Budget<'a> {
        Budget::new(limits, self.time_filter(limits))
    }

    fn fresh_since(&self, rules: &StaleRules, first: MetricId, now: Timestamp, since: &mut [Timestamp]) {
        let unknown = rules.fresh_since(first, now, since);
        if let (Some(&begin), Some(&last)) = (unknown.first(), unknown.last()) {
            let (begin, end) = (first.0 + begin as u32, first.0.saturating_add(last as u32 + 1));
            if self.number(rules, MetricId(begin), MetricId(end)) {
                rules.fresh_since(first, now, since);
            }
        }
    }

    /// Finds the rules of some metrics that have none yet, and tells whether there were any.
    fn number(&self, rules: &StaleRules, begin: MetricId, end: MetricId) -> bool {
        let (mut next, mut is_any) = (begin, false);
        while next < end {
            let mut numbers = Vec::new();
            let names = self.read();
            let after = names.slice(next, AT_ONCE.min(end.0 - next.0), |id, name| {
                if !rules.is_numbered(id) {
                    numbers.push((id, rules.number_of(name)));
                }
            });
            drop(names);
            rules.note(&numbers);
            is_any |= !numbers.is_empty();
            if after <= next {
                break;
            }
            next = after;
        }
        is_any
    }

    /// Finds the rules of metrics that came, and returns whether there may be more. For a maintenance thread.
    pub(crate) fn number_stale(&self) -> bool {
        let Some(rules) = self.stale.read().clone() else { return false };
        let end = self.read().end();
        let Some((begin, end)) = rules.next(end, SLICE) else { return false };
        self.number(&rules, begin, end);
        true
    }

    /// A metric was removed.
    pub(crate) fn forget_stale(&self, id: MetricId) {
        if let Some(rules) = &*self.stale.read() {
            rules.forget(id);
        }
    }
}
