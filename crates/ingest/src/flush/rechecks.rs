//! Spans of metrics whose coarse slots this node derives again: another writer of the tables may have stored points of them at the same
//! moment, and rows that were derived meanwhile count them twice or not at all.
//!
//! A node that extends its rows from memory writes what it has itself, which is right whatever others do. Spans that were derived are
//! kept here.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use metadata::PolicyId;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

/// How long after a write its slots are derived again: writes that were under way have ended by then, and BigGraphite, which keeps rows in
/// memory for ten minutes, has written them.
pub(super) const RECHECK_AFTER: Duration = Duration::from_secs(11 * 60);

/// How often a metric comes again whose rows are not right. Corrections lose against a clock that is ahead until then.
const TRIES: u32 = 12;

/// Metrics that wait. Further ones are left as they are.
const MAX_METRICS: usize = 1 << 18;

/// Spans of one metric. Further ones make the last one longer.
const MAX_SPANS: usize = 16;

/// The spans of one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recheck {
    pub(super) metric: MetricId,
    /// The policy under which the points came.
    pub(super) policy: PolicyId,
    /// Times of points, ends not included, sorted and disjoint.
    pub(super) spans: Vec<Range<Timestamp>>,
    due: Instant,
    tries: u32,
}

/// The spans that wait.
#[derive(Default)]
pub(super) struct Rechecks {
    waiting: Mutex<BTreeMap<MetricId, Recheck>>,
}

impl Rechecks {
    /// Keeps spans of a metric that were written now.
    pub(super) fn add(&self, metric: MetricId, policy: PolicyId, spans: Vec<Range<Timestamp>>, now: Instant) {
        let recheck = Recheck { metric, policy, spans: Vec::new(), due: now + RECHECK_AFTER, tries: 0 };
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MAX_METRICS && !waiting.contains_key(&metric) {
            return;
        }
        let of_metric = waiting.entry(metric).or_insert_with(|| recheck.clone());
        if of_metric.policy != policy {
            // Rows of several policies are left as they are.
            *of_metric = recheck;
        }
        of_metric.tries = 0;
        of_metric.spans.extend(spans);
        of_metric.spans = joined(std::mem::take(&mut of_metric.spans));
    }

    /// Takes metrics that are due, as many at most.
    pub(super) fn take_due(&self, now: Instant, most: usize) -> Vec<Recheck> {
        let mut waiting = self.waiting.lock();
        let due: Vec<MetricId> =
            waiting.values().filter(|recheck| recheck.due <= now).map(|recheck| recheck.metric).take(most).collect();
        due.iter().filter_map(|metric| waiting.remove(metric)).collect()
    }

    /// Puts a recheck back: its rows were not right, or could not be read. It comes again later, unless it came too often.
    pub(super) fn again(&self, recheck: Recheck, now: Instant) {
        if recheck.tries >= TRIES {
            return;
        }
        let mut waiting = self.waiting.lock();
        match waiting.get_mut(&recheck.metric) {
            Some(later) if later.policy == recheck.policy => {
                later.spans.extend(recheck.spans);
                later.spans = joined(std::mem::take(&mut later.spans));
            }
            Some(_) => {}
            None => {
                let again = Recheck { due: now + RECHECK_AFTER, tries: recheck.tries + 1, ..recheck };
                waiting.insert(again.metric, again);
            }
        }
    }
}

/// Sorts spans and joins those that touch, and then the last ones where there are too many.
fn joined(mut spans: Vec<Range<Timestamp>>) -> Vec<Range<Timestamp>> {
    spans.sort_unstable_by_key(|span| span.start);
    let mut joined: Vec<Range<Timestamp>> = Vec::new();
    for span in spans {
        let is_full = joined.len() == MAX_SPANS;
        match joined.last_mut() {
            Some(last) if is_full || span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_comes_once_a_while_after_its_first_write_and_again_if_it_was_not_right() {
        let (rechecks, start) = (Rechecks::default(), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        rechecks.add(MetricId(7), 0, vec![0..60, 120..180], at(0));
        rechecks.add(MetricId(7), 0, std::iter::once(60..90).collect(), at(5));
        assert!(rechecks.take_due(at(10), 9).is_empty());
        let [recheck] = &rechecks.take_due(at(11), 9)[..] else { panic!("it is due") };
        assert_eq!(recheck.spans, [0..90, 120..180]);
        assert!(rechecks.take_due(at(30), 9).is_empty());
        let mut recheck = recheck.clone();
        for turn in 0..TRIES {
            rechecks.again(recheck, at(30));
            assert!(rechecks.take_due(at(40), 9).is_empty(), "{turn}");
            recheck = rechecks.take_due(at(41), 9).remove(0);
        }
        rechecks.again(recheck, at(30));
        assert!(rechecks.take_due(at(100), 9).is_empty(), "a dozen times is enough");
    }

    #[test]
    fn spans_and_metrics_are_bounded() {
        let spans = joined((0..100).map(|i| i * 100..i * 100 + 1).collect());
        assert_eq!((spans.len(), spans.last()), (MAX_SPANS, Some(&(1500..9901))));
        let rechecks = Rechecks::default();
        let all = MAX_METRICS as u32 + 5;
        (0..all).for_each(|metric| rechecks.add(MetricId(metric), 0, std::iter::once(0..1).collect(), Instant::now()));
        assert_eq!(rechecks.waiting.lock().len(), MAX_METRICS);
    }
}
