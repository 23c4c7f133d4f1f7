//! Spans of metrics whose coarse slots this node derives again: another writer of the tables may have stored points of them at the same
//! moment, and rows that were derived meanwhile count them twice or not at all.
//!
//! A node that extends its rows from memory writes what it has itself, which is right whatever others do. Spans that were derived are
//! kept here, and so are those of writes that took long: what others derived meanwhile saw a part of them. A metric that moves between
//! nodes may leave a slot of the first stage to both, and each counts it: of a metric that may have come or gone, the ends are kept.
//! So are spans in which this node corrected rows of others, which do not know of it and may write over the correction (`corrected.rs`).

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use metadata::PolicyId;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

use super::recheck_file::{Saved, Wait};

/// How long after a write its slots are derived again, where other nodes were seen: their writes that were under way have mostly ended.
/// A node whose write takes longer looks again itself.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// The same for every write: BigGraphite, which keeps rows in memory for ten minutes, has written them.
pub(super) const LATE: Duration = Duration::from_secs(11 * 60);

/// Seconds without a point after which another node may have had the metric.
pub(super) const ABSENCE: Timestamp = 60;

/// How often a metric comes again whose rows are not right. Corrections lose against a clock that is ahead until then.
const TRIES: u32 = 12;

/// Metrics that wait for each of the three. Further ones are left as they are.
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
    wait: Wait,
    /// When its spans were written.
    since: Instant,
    tries: u32,
}

/// The spans that wait.
pub(super) struct Rechecks {
    soon: Mutex<Queue>,
    late: Mutex<Queue>,
    corrected: Mutex<Queue>,
    changes: AtomicU64,
}

/// Metrics that wait for the same.
struct Queue {
    wait: Wait,
    time: Duration,
    waiting: HashMap<MetricId, Waiting>,
    // Each metric that waits, once, and when it is due.
    order: BTreeSet<(Instant, MetricId)>,
}

/// The spans of a metric that waits.
struct Waiting {
    first: Recheck,
    /// Spans that were added while others waited. They wait as long as those, counted from when those are taken.
    next: Vec<Range<Timestamp>>,
}

impl Rechecks {
    /// None so far. What was corrected in rows of others comes first after the time given.
    pub(super) fn new(after_correction: Duration) -> Rechecks {
        let queue = |wait, time| Mutex::new(Queue { wait, time, waiting: HashMap::new(), order: BTreeSet::new() });
        Rechecks {
            soon: queue(Wait::Soon, SOON),
            late: queue(Wait::Late, LATE),
            corrected: queue(Wait::Corrected, after_correction),
            changes: AtomicU64::new(0),
        }
    }

    /// Keeps spans of a metric that were written now. `has_others` says that other nodes were seen.
    pub(super) fn add(
        &self,
        metric: MetricId,
        policy: PolicyId,
        spans: Vec<Range<Timestamp>>,
        now: Instant,
        has_others: bool,
    ) {
        self.changes.fetch_add(1, Relaxed);
        if has_others {
            self.soon.lock().add(metric, policy, spans.clone(), now);
        }
        self.late.lock().add(metric, policy, spans, now);
    }

    /// Takes metrics that are due, as many at most.
    pub(super) fn take_due(&self, now: Instant, most: usize) -> Vec<Recheck> {
        let mut due = self.soon.lock().take_due(now, most);
        due.extend(self.late.lock().take_due(now, most - due.len()));
        due.extend(self.corrected.lock().take_due(now, most - due.len()));
        self.changes.fetch_add(due.len() as u64, Relaxed);
        due
    }

    /// All metrics that wait for what other nodes were writing, due or not. They go on waiting: what another node is writing may come after a look
    /// that is made too early.
    pub(super) fn all_soon(&self) -> Vec<Recheck> {
        self.soon.lock().all()
    }

    /// Puts in what an earlier process kept of a metric, as if it had been written now.
    pub(super) fn restore(&self, saved: Saved, policy: PolicyId, now: Instant) {
        self.queue(saved.wait).lock().add(saved.metric, policy, saved.spans, now);
    }

    /// All that waits, for a later process.
    pub(super) fn saved(&self) -> Vec<Saved> {
        let mut all = self.soon.lock().saved();
        all.extend(self.late.lock().saved());
        all.extend(self.corrected.lock().saved());
        all
    }

    /// Counts what was added and taken.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Keeps spans of a metric in which rows of other writers were corrected now.
    pub(super) fn add_corrected(&self, metric: MetricId, policy: PolicyId, spans: Vec<Range<Timestamp>>, now: Instant) {
        self.changes.fetch_add(1, Relaxed);
        self.corrected.lock().add(metric, policy, spans, now);
    }

    /// Puts back what others may still write over: it comes again after this time.
    pub(super) fn watch_on(&self, recheck: Recheck, now: Instant, after: Duration) {
        self.changes.fetch_add(1, Relaxed);
        self.corrected.lock().put_back(Recheck { tries: 0, ..recheck }, now + after);
    }

    /// Puts a recheck back: its rows were not right, or could not be read. It comes again later, unless it came too often.
    pub(super) fn again(&self, recheck: Recheck, now: Instant) {
        self.changes.fetch_add(1, Relaxed);
        self.queue(recheck.wait).lock().again(recheck, now);
    }

    fn queue(&self, wait: Wait) -> &Mutex<Queue> {
        match wait {
            Wait::Soon => &self.soon,
            Wait::Late => &self.late,
            Wait::Corrected => &self.corrected,
        }
    }

    /// Metrics that wait for what other nodes were writing.
    pub(super) fn soon(&self) -> usize {
        self.soon.lock().waiting.len()
    }
}

impl Recheck {
    /// How long ago rows of others were corrected; `None` where none was.
    pub(super) fn corrected_for(&self, now: Instant) -> Option<Duration> {
        (self.wait == Wait::Corrected).then(|| now.saturating_duration_since(self.since))
    }
}

impl Queue {
    fn add(&mut self, metric: MetricId, policy: PolicyId, spans: Vec<Range<Timestamp>>, now: Instant) {
        let whole = |spans| Recheck { metric, policy, spans: joined(spans), wait: self.wait, since: now, tries: 0 };
        match self.waiting.get_mut(&metric) {
            Some(of_metric) if of_metric.first.policy == policy => {
                of_metric.next.extend(spans);
                of_metric.next = joined(std::mem::take(&mut of_metric.next));
            }
            // Rows of several policies are left as they are.
            Some(of_metric) => {
                of_metric.first = whole(spans);
                of_metric.next = Vec::new();
            }
            None => {
                let recheck = whole(spans);
                self.put(recheck, now + self.time);
            }
        }
    }

    /// Puts in a metric that does not wait.
    fn put(&mut self, recheck: Recheck, due: Instant) {
        if self.waiting.len() < MAX_METRICS {
            self.order.insert((due, recheck.metric));
            self.waiting.insert(recheck.metric, Waiting { first: recheck, next: Vec::new() });
        }
    }

    fn take_due(&mut self, now: Instant, most: usize) -> Vec<Recheck> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(&(_, metric)) = self.order.first().filter(|(at, _)| *at <= now)
        {
            self.order.pop_first();
            let Some(Waiting { first, next }) = self.waiting.remove(&metric) else { continue };
            if !next.is_empty() {
                self.put(Recheck { spans: next, since: now, tries: 0, ..first.clone() }, now + self.time);
            }
            due.push(first);
        }
        if self.order.is_empty() {
            // The room that a restart of a million metrics took.
            (self.waiting, self.order) = (HashMap::new(), BTreeSet::new());
        }
        due
    }

    fn all(&self) -> Vec<Recheck> {
        let whole = |Waiting { first, next }: &Waiting| {
            let spans = joined(first.spans.iter().chain(next).cloned().collect());
            Recheck { spans, ..first.clone() }
        };
        self.waiting.values().map(whole).collect()
    }

    fn saved(&self) -> Vec<Saved> {
        let wait = self.wait;
        let of_metric = |(&metric, Waiting { first, next }): (&MetricId, &Waiting)| Saved {
            metric,
            wait,
            spans: joined(first.spans.iter().chain(next).cloned().collect()),
        };
        self.waiting.iter().map(of_metric).collect()
    }

    fn again(&mut self, recheck: Recheck, now: Instant) {
        if recheck.tries < TRIES {
            self.put_back(Recheck { tries: recheck.tries + 1, ..recheck }, now + self.time);
        }
    }

    /// Puts back what was taken.
    fn put_back(&mut self, recheck: Recheck, due: Instant) {
        match self.waiting.get_mut(&recheck.metric) {
            Some(later) if later.first.policy == recheck.policy => {
                later.next.extend(recheck.spans);
                later.next = joined(std::mem::take(&mut later.next));
            }
            Some(_) => {}
            None => self.put(recheck, due),
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

    const MINUTE: Duration = Duration::from_secs(60);

    fn spans(due: Vec<Recheck>) -> Vec<(u32, Vec<Range<Timestamp>>)> {
        due.into_iter().map(|recheck| (recheck.metric.0, recheck.spans)).collect()
    }

    fn one(from: Timestamp, until: Timestamp) -> Vec<Range<Timestamp>> {
        std::iter::once(from..until).collect()
    }

    #[test]
    fn a_metric_comes_so_long_after_each_write_and_again_if_it_was_not_right() {
        let (rechecks, start) = (Rechecks::new(MINUTE), Instant::now());
        let at = |minutes: u32| start + minutes * MINUTE;
        rechecks.add(MetricId(7), 0, vec![0..60, 120..180], at(0), false);
        rechecks.add(MetricId(7), 0, one(60, 90), at(5), false);
        rechecks.add(MetricId(7), 0, one(90, 95), at(6), false);
        assert!(rechecks.take_due(at(10), 9).is_empty());
        assert_eq!(spans(rechecks.take_due(at(11), 9)), [(7, vec![0..60, 120..180])]);
        // What was written meanwhile is never looked at too early.
        assert!(rechecks.take_due(at(21), 9).is_empty());
        let mut recheck = rechecks.take_due(at(22), 9).remove(0);
        assert_eq!(recheck.spans, one(60, 95));
        for turn in 0..TRIES {
            rechecks.again(recheck, at(30));
            assert!(rechecks.take_due(at(40), 9).is_empty(), "{turn}");
            recheck = rechecks.take_due(at(41), 9).remove(0);
        }
        rechecks.again(recheck, at(30));
        assert!(rechecks.take_due(at(100), 9).is_empty(), "a dozen times is enough");
    }

    #[test]
    fn where_other_nodes_are_a_metric_comes_soon_and_late() {
        let (rechecks, start) = (Rechecks::new(MINUTE), Instant::now());
        rechecks.add(MetricId(7), 0, one(0, 60), start, true);
        rechecks.add(MetricId(8), 0, one(0, 60), start, false);
        assert!(rechecks.take_due(start + SOON / 2, 9).is_empty());
        let due = rechecks.take_due(start + SOON, 9);
        assert_eq!(spans(due.clone()), [(7, one(0, 60))]);
        rechecks.again(due[0].clone(), start + SOON);
        assert_eq!((spans(rechecks.take_due(start + 2 * SOON, 9)), rechecks.soon()), (vec![(7, one(0, 60))], 0));
        assert_eq!(spans(rechecks.take_due(start + LATE, 9)), [(7, one(0, 60)), (8, one(0, 60))]);
        // A node that leaves does not wait, and its next start looks again.
        rechecks.add(MetricId(7), 0, one(0, 60), start, true);
        rechecks.add(MetricId(7), 0, one(80, 90), start, true);
        assert_eq!(rechecks.soon(), 1);
        assert_eq!((spans(rechecks.all_soon()), rechecks.soon()), (vec![(7, vec![0..60, 80..90])], 1));
    }

    #[test]
    fn a_later_process_has_what_waited() {
        let (rechecks, later, start) = (Rechecks::new(MINUTE), Rechecks::new(MINUTE), Instant::now());
        rechecks.add(MetricId(7), 0, one(0, 60), start, true);
        rechecks.add(MetricId(7), 0, one(80, 90), start, false);
        let before = rechecks.changes();
        rechecks.saved().into_iter().for_each(|saved| later.restore(saved, 0, start));
        assert_eq!(spans(later.take_due(start + SOON, 9)), [(7, one(0, 60))]);
        assert_eq!(spans(later.take_due(start + LATE, 9)), [(7, vec![0..60, 80..90])]);
        assert_eq!(rechecks.changes(), before);
        rechecks.take_due(start + SOON, 9);
        assert_ne!(rechecks.changes(), before);
    }

    #[test]
    fn what_was_corrected_comes_again_for_as_long_as_it_is_put_back() {
        let (rechecks, later, start) = (Rechecks::new(MINUTE), Rechecks::new(MINUTE), Instant::now());
        let at = |minutes: u32| start + minutes * MINUTE;
        rechecks.add_corrected(MetricId(7), 0, one(0, 60), at(0));
        rechecks.add_corrected(MetricId(8), 0, one(0, 60), at(0));
        assert!(rechecks.take_due(at(0), 9).is_empty());
        let due = rechecks.take_due(at(1), 9);
        assert_eq!(
            (spans(due.clone()), due[0].corrected_for(at(1))),
            (vec![(7, one(0, 60)), (8, one(0, 60))], Some(MINUTE))
        );
        rechecks.watch_on(due[0].clone(), at(1), 9 * MINUTE);
        rechecks.watch_on(due[1].clone(), at(1), 2 * MINUTE);
        // Another correction meanwhile waits from then on.
        rechecks.add_corrected(MetricId(8), 0, one(60, 70), at(2));
        assert_eq!(spans(rechecks.take_due(at(3), 9)), [(8, one(0, 60))]);
        assert_eq!(spans(rechecks.take_due(at(4), 9)), [(8, one(60, 70))]);
        rechecks.saved().into_iter().for_each(|saved| later.restore(saved, 0, at(0)));
        assert_eq!((spans(rechecks.take_due(at(10), 9)), rechecks.soon()), (vec![(7, one(0, 60))], 0));
        assert_eq!(spans(later.take_due(at(1), 9)), [(7, one(0, 60))]);
    }

    #[test]
    fn metrics_come_in_the_order_of_their_writes_as_many_as_asked_for() {
        let (rechecks, start) = (Rechecks::new(MINUTE), Instant::now());
        let add = |metric: u32, second: u64| {
            rechecks.add(MetricId(metric), 0, one(0, 60), start + Duration::from_secs(second), true);
        };
        [(9, 0), (3, 1), (5, 2), (1, 3)].into_iter().for_each(|(metric, second)| add(metric, second));
        let take = |second, most| {
            let due = rechecks.take_due(start + SOON + Duration::from_secs(second), most);
            due.into_iter().map(|recheck| recheck.metric.0).collect::<Vec<_>>()
        };
        assert_eq!((take(2, 2), take(2, 2), take(3, 2)), (vec![9, 3], vec![5], vec![1]));
    }

    #[test]
    fn spans_and_metrics_are_bounded() {
        let spans = joined((0..100).map(|i| i * 100..i * 100 + 1).collect());
        assert_eq!((spans.len(), spans.last()), (MAX_SPANS, Some(&(1500..9901))));
        let rechecks = Rechecks::new(MINUTE);
        let all = MAX_METRICS as u32 + 5;
        (0..all).for_each(|metric| rechecks.add(MetricId(metric), 0, one(0, 1), Instant::now(), false));
        let late = rechecks.late.lock();
        assert_eq!((late.waiting.len(), late.order.len()), (MAX_METRICS, MAX_METRICS));
    }
}
