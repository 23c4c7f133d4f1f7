//! After how long without points a metric is stale, by rules over names.
//!
//! Each metric has the number of its rule in a byte, so that a question compares no name with a pattern. Numbers that are not
//! known yet are found by the maintenance thread, or by the first question that meets the metric.

use std::sync::Arc;

use metric::{Column, MetricId, Timestamp};
use parking_lot::{Mutex, RwLock};

use crate::seen::SeenSpan;

/// Rules over names, at most.
pub const MAX_STALE_RULES: usize = 250;

/// The number of a metric whose rule is not known yet, and of one that has none.
const UNKNOWN: u8 = 0;
const NONE: u8 = u8::MAX;

const _: () = assert!(MAX_STALE_RULES < NONE as usize, "each rule has a number of its own");

/// A rule. Of several that match a name, the first holds.
pub struct StaleRule {
    /// Seconds after its last point from which on a metric is stale; `None` where it never is.
    pub max_stale: Option<u64>,
    /// Whether the rule is for a canonical name.
    pub matches: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// A question that leaves out stale metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HideStale {
    /// The time from which their age counts, Unix seconds.
    pub now: Timestamp,
    /// Those that may have points in one of these spans are not left out. A span without an end does not count.
    pub unless: Arc<[SeenSpan]>,
}

/// The rules in force, and the number of each metric's rule.
pub(crate) struct StaleRules {
    rules: Vec<StaleRule>,
    numbers: RwLock<Column<u8>>,
    /// The maintenance thread has been through the ids before this one.
    numbered: Mutex<MetricId>,
}

impl StaleRules {
    /// `None` where no metric can become stale.
    pub(crate) fn new(mut rules: Vec<StaleRule>) -> Option<StaleRules> {
        debug_assert!(rules.len() <= MAX_STALE_RULES, "the reader of the file has the bound");
        rules.truncate(MAX_STALE_RULES);
        rules.iter().any(|rule| rule.max_stale.is_some()).then(|| StaleRules {
            rules,
            numbers: RwLock::new(Column::new(|| UNKNOWN)),
            numbered: Mutex::new(MetricId(0)),
        })
    }

    /// Since when each metric from `first` on must have points, [`Timestamp::MIN`] where that is of no importance. Returns
    /// the places of those whose rule is not known.
    pub(crate) fn fresh_since(&self, first: MetricId, now: Timestamp, since: &mut [Timestamp]) -> Vec<usize> {
        let (mut unknown, numbers) = (Vec::new(), self.numbers.read());
        for (place, since) in since.iter_mut().enumerate() {
            let id = MetricId(first.0.saturating_add(place as u32));
            *since = match numbers.get(id).copied().unwrap_or(UNKNOWN) {
                UNKNOWN => {
                    unknown.push(place);
                    Timestamp::MIN
                }
                NONE => Timestamp::MIN,
                number => {
                    let max_stale = self.rules[usize::from(number) - 1].max_stale;
                    let seconds = max_stale.map(|seconds| Timestamp::try_from(seconds).unwrap_or(Timestamp::MAX));
                    seconds.map_or(Timestamp::MIN, |seconds| now.saturating_sub(seconds))
                }
            };
        }
        unknown
    }

    /// Whether the rule of a metric is known.
    pub(crate) fn is_numbered(&self, id: MetricId) -> bool {
        self.numbers.read().get(id).is_some_and(|&number| number != UNKNOWN)
    }

    /// The number of the rule for a name.
    pub(crate) fn number_of(&self, name: &str) -> u8 {
        let number = self.rules.iter().position(|rule| (rule.matches)(name));
        number.map_or(NONE, |number| number as u8 + 1)
    }

    /// Notes numbers.
    pub(crate) fn note(&self, numbers: &[(MetricId, u8)]) {
        let mut known = self.numbers.write();
        numbers.iter().for_each(|&(id, number)| *known.entry(id) = number);
    }

    /// A metric was removed.
    pub(crate) fn forget(&self, id: MetricId) {
        let mut numbers = self.numbers.write();
        if let Some(number) = numbers.get_mut(id) {
            *number = UNKNOWN;
            numbers.free(id, |&number| number == UNKNOWN);
        }
    }

    /// The ids that the maintenance thread goes through next, of those before `end`; none where it has been through all.
    pub(crate) fn next(&self, end: MetricId, most: u32) -> Option<(MetricId, MetricId)> {
        let mut numbered = self.numbered.lock();
        let first = *numbered;
        *numbered = MetricId(first.0.saturating_add(most).min(end.0).max(first.0));
        (first < *numbered).then_some((first, *numbered))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.read().memory_bytes()
    }
}
