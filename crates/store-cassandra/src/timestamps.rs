//! Write timestamps that never go back: of two writes of this process the later wins. They follow a [`Calendar`], so that a correction has a
//! later one than the row of another node that it corrects.
//!
//! A deletion is [ahead](HIDES_AHEAD) of it, and what comes of its metrics after that is later. The times of these metrics go on at half of the
//! calendar's pace until it has come so far, on every node: would they stand still, the order of writes of two nodes would be lost meanwhile.
//! Other metrics stay by the calendar: a node that has followed a deletion may not have followed the next one yet, and what it writes of that
//! one's metrics must be earlier.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use store::Run;
use uuid::Uuid;

use crate::{
    calendar::{Calendar, FURTHEST, HIDES_AHEAD, half_since},
    rows,
};

/// Deleted metrics whose own times are known, at most: some megabytes. Beyond that number all metrics have the times of the deletion.
const MOST_DELETED: usize = 65_536;

/// Interval between two looks which of them are as all others again.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The times of nodes whose calendars have still to show the time of a deletion are a thousandth of so much before those of the others, so that
/// they are in their order, too.
const BEFORE: Duration = Duration::from_secs(15);

/// Microseconds of that.
const ROOM: i64 = BEFORE.as_millis() as i64;

/// Gives out timestamps, microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Timestamps {
    calendar: Mutex<Arc<Calendar>>,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// The highest one of all metrics; 0 before the first.
    last: i64,
    /// When `last` was that.
    at: Option<Instant>,
    /// The latest one of each metric that was deleted lately, and when it was that, or will be.
    deleted: HashMap<Uuid, (i64, Instant)>,
    /// When to look which of these the calendar has passed.
    sweep_at: Option<Instant>,
    /// The time of the latest deletion.
    last_deletion: i64,
}

impl Given {
    /// Lets `last` go on.
    fn go_on(&mut self, instant: Instant) {
        let before = self.at.replace(instant).unwrap_or(instant);
        self.last = self.last.saturating_add(half_since(before, instant));
    }

    /// The time behind which a deleted metric goes on now.
    fn of_deleted(&self, metric: Uuid, instant: Instant) -> Option<i64> {
        self.deleted.get(&metric).map(|&one| gone_on(one, instant))
    }

    /// The timestamp of a write of a metric, where the others get this one.
    fn of_metric(&mut self, metric: Uuid, of_others: i64, instant: Instant) -> i64 {
        let Some(deleted) = self.of_deleted(metric, instant) else { return of_others };
        if deleted < of_others {
            self.deleted.remove(&metric);
            return of_others;
        }
        match self.deleted.get_mut(&metric) {
            Some((time, at)) if instant < *at => *time += 1,
            _ => _ = self.deleted.insert(metric, (deleted + 1, instant)),
        }
        deleted + 1
    }

    /// Forgets metrics that are written by the calendar again. Without this each write would look for its metrics among them.
    fn sweep(&mut self, now: i64, instant: Instant) {
        if self.sweep_at.is_some_and(|at| at <= instant) {
            self.deleted.retain(|_, one| now <= gone_on(*one, instant));
            self.sweep_at = (!self.deleted.is_empty()).then(|| instant + SWEEP_EVERY);
        }
    }

    /// What is written of these metrics from now on has later times than this one, which goes on from a moment on.
    fn note_deleted(
        &mut self,
        metrics: impl Iterator<Item = Uuid>,
        (time, at): (i64, Instant),
        (now, instant): (i64, Instant),
    ) {
        self.sweep_at = self.sweep_at.or(Some(instant + SWEEP_EVERY));
        for metric in metrics {
            if MOST_DELETED <= self.deleted.len() && !self.deleted.contains_key(&metric) {
                self.sweep_at = Some(instant);
                self.sweep(now, instant);
                if MOST_DELETED <= self.deleted.len() {
                    self.go_on(instant);
                    self.last = self.last.max(time);
                    return;
                }
            }
            if self.of_deleted(metric, instant).is_none_or(|before| before < gone_on((time, at), instant)) {
                self.deleted.insert(metric, (time, at));
            }
        }
    }
}

/// A time that is that of a moment, at another moment.
fn gone_on((time, at): (i64, Instant), instant: Instant) -> i64 {
    let left = at.saturating_duration_since(instant).min(BEFORE);
    time.saturating_add(half_since(at, instant)) - left.as_millis() as i64
}

/// The timestamps of some runs, one each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Times {
    /// That of the first run.
    first: i64,
    /// Runs of metrics that were deleted lately, by place, with their own.
    deleted: Vec<(usize, i64)>,
}

impl Times {
    /// That of a run by its place.
    pub(crate) fn of(&self, run: usize) -> i64 {
        let place = self.deleted.binary_search_by_key(&run, |(run, _)| *run);
        place.map_or(self.first + run as i64, |place| self.deleted[place].1)
    }
}

/// Those of runs from this one on, none of a metric that was deleted lately.
impl From<i64> for Times {
    fn from(first: i64) -> Times {
        Times { first, deleted: Vec::new() }
    }
}

impl Timestamps {
    pub(crate) fn new(calendar: Arc<Calendar>) -> Timestamps {
        Timestamps { calendar: Mutex::new(calendar), given: Mutex::default() }
    }

    /// From now on they are by this one.
    pub(crate) fn go_by(&self, calendar: Arc<Calendar>) {
        *self.calendar.lock() = calendar;
    }

    /// The highest one given out to a write, or that comes before the next one; 0 before the first. Not those of metrics that were deleted lately.
    pub(crate) fn last(&self) -> i64 {
        self.given.lock().last
    }

    /// The time of the latest deletion, which is that of no deletion just before it; 0 before the first.
    pub(crate) fn last_deletion(&self) -> i64 {
        self.given.lock().last_deletion
    }

    /// All later ones are higher than this one.
    pub(crate) fn continue_after(&self, timestamp: i64) {
        let (_, instant) = self.calendar.lock().now_at();
        let mut given = self.given.lock();
        given.go_on(instant);
        given.last = given.last.max(timestamp);
    }

    /// All later ones of these metrics are behind their deletion by another node, whose row in the log of changes has this time. They go on as
    /// those of that node, from the moment on in which the calendar here shows that time. A calendar that is wrong takes no other along.
    pub(crate) fn continue_behind_deletion(&self, metrics: impl Iterator<Item = Uuid>, logged: i64) {
        let (now, instant) = self.calendar.lock().now_at();
        let logged = logged.min(now + FURTHEST.as_micros() as i64);
        let (passed, left) = ((now - logged).max(0), (logged - now).max(0));
        let time = logged + HIDES_AHEAD.as_micros() as i64 + ROOM + passed / 2;
        if now < time {
            let at = instant + Duration::from_micros(left.unsigned_abs());
            self.given.lock().note_deleted(metrics, (time, at), (now, instant));
        }
    }

    /// One for a write of a metric, by its id in the tables, that no other caller gets.
    pub(crate) fn take(&self, metric: Uuid) -> i64 {
        let (given, first, instant) = &mut self.take_next(1);
        given.of_metric(metric, *first, *instant)
    }

    /// One for each of these runs, later ones for later runs of a metric.
    pub(crate) fn take_for(&self, runs: &[Run]) -> Times {
        let (given, first, instant) = &mut self.take_next(runs.len());
        let mut times = Times::from(*first);
        // Most often there are none.
        if !given.deleted.is_empty() {
            for (place, run) in runs.iter().enumerate() {
                let of_others = *first + place as i64;
                let time = given.of_metric(rows::metric_id(&run.name), of_others, *instant);
                if time != of_others {
                    times.deleted.push((place, time));
                }
            }
        }
        times
    }

    /// That of a deletion of these metrics, later than those that other nodes give out before they have followed it: see [`HIDES_AHEAD`].
    pub(crate) fn of_deletion(&self, metrics: &[Uuid]) -> i64 {
        let (now, instant) = self.calendar.lock().now_at();
        let mut given = self.given.lock();
        // Not behind `last`: where that is further ahead, a calendar was once, and others would lose for as long what they write next.
        let ahead = now + HIDES_AHEAD.as_micros() as i64;
        let deleted = metrics.iter().filter_map(|metric| given.of_deleted(*metric, instant)).max();
        // A microsecond behind: the row of the deletion must not have a time that is far from now, as others read it late then.
        let time = deleted.map_or(ahead, |deleted| ahead.max(deleted + 1));
        // The caller sees by it whether there was one.
        let time = time + i64::from(time == given.last_deletion);
        given.note_deleted(metrics.iter().copied(), (time + ROOM, instant), (now, instant));
        given.last_deletion = time;
        time
    }

    /// The first of `number` consecutive timestamps.
    fn take_next(&self, number: usize) -> (MutexGuard<'_, Given>, i64, Instant) {
        let (now, instant) = self.calendar.lock().now_at();
        let mut given = self.given.lock();
        given.go_on(instant);
        given.sweep(now, instant);
        let first = now.max(given.last + 1);
        given.last = first + number.max(1) as i64 - 1;
        (given, first, instant)
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;
    use metric::{Aggregation, MetricId, Stage, Table};

    use super::*;

    fn timestamps(clock: &Arc<ManualClock>) -> Timestamps {
        Timestamps::new(Arc::new(Calendar::new(clock.clone())))
    }

    fn run(name: &str) -> Run {
        Run {
            metric: MetricId(0),
            name: name.to_owned(),
            table: Table { stage: Stage::new(60, 60).unwrap(), aggregated: false, rollup: None },
            first_slot: 0,
            values: Vec::new(),
            counts: Vec::new(),
            aggregation: Aggregation::Last,
        }
    }

    fn id(name: &str) -> Uuid {
        rows::metric_id(name)
    }

    #[test]
    fn timestamps_never_go_back() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = timestamps(&clock);
        let mut last = 0;
        for number in [1, 5, 0, 10_000, 3, 1] {
            let first = timestamps.take_for(&vec![run("a"); number]).of(0);
            assert!(first > last, "{first} after {last}");
            last = first + number as i64 - 1;
            clock.set(1_600_000_000);
        }
        // Also after a restart, when the earlier process had a clock a year ahead.
        let used = last + 31_536_000_000_000;
        timestamps.continue_after(used);
        timestamps.continue_after(last);
        assert_eq!(
            (timestamps.take(id("a")), timestamps.take(id("b")), timestamps.last()),
            (used + 1, used + 2, used + 2)
        );
        // A deletion would hide for a year what others write.
        assert_eq!(timestamps.of_deletion(&[id("a")]), 1_600_000_020_000_000);
    }

    #[test]
    fn a_deletion_is_later_than_what_others_write_meanwhile_and_what_comes_of_its_metrics_is_later_still() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = timestamps(&clock);
        let before = timestamps.take(id("a"));
        let deletion = timestamps.of_deletion(&[id("a"), id("b")]);
        assert_eq!((deletion - before, timestamps.last_deletion(), timestamps.last()), (20_000_000, deletion, before));
        let times = timestamps.take_for(&[run("c"), run("a"), run("d"), run("a"), run("b")]);
        let of_runs: Vec<i64> = (0..5).map(|place| times.of(place)).collect();
        let [first, ..] = of_runs[..] else { panic!("five runs") };
        let later = deletion + ROOM;
        assert_eq!(of_runs, [before + 1, later + 1, first + 2, later + 2, later + 1]);
        assert_eq!((timestamps.take(id("a")), timestamps.take(id("c"))), (later + 3, first + 6));
        // Deleted again at once.
        assert_eq!(timestamps.of_deletion(&[id("a")]), later + 4);
        assert_eq!(timestamps.of_deletion(&[id("c")]), deletion);
    }

    #[test]
    fn a_node_that_has_followed_a_deletion_writes_of_other_metrics_before_the_next_one() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let [deleting, following] = [(); 2].map(|()| timestamps(&clock));
        let logged = deleting.take(id("c"));
        let first = deleting.of_deletion(&[id("a")]);
        let second = deleting.of_deletion(&[id("b")]);
        following.continue_behind_deletion([id("a")].into_iter(), logged + 200_000);
        assert!(first < following.take(id("a")) && following.take(id("b")) < second);
    }

    #[test]
    fn after_a_deletion_two_nodes_write_in_the_order_of_time() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let [deleting, following] = [(); 2].map(|()| timestamps(&clock));
        let deletion = deleting.of_deletion(&[id("a")]);
        deleting.take_for(&vec![run("a"); 1000]);
        clock.advance(Duration::from_millis(500));
        following.continue_behind_deletion([id("a")].into_iter(), 1_700_000_000_000_000);
        let mut last = deletion;
        for turn in 0..100 {
            clock.advance(Duration::from_secs(1));
            let of = if turn % 2 == 0 { &following } else { &deleting };
            let taken = of.take(id("a"));
            assert!(last + 200_000 < taken, "turn {turn}: {taken} after {last}");
            last = taken;
        }
        assert_eq!(last, 1_700_000_100_500_000, "by the calendar again");
        assert_eq!(following.given.lock().deleted.len() + deleting.given.lock().deleted.len(), 0);
    }

    #[test]
    fn a_node_whose_calendar_is_behind_writes_after_a_deletion_in_the_order_of_its_calendar() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let [deleting, following, further] = [(); 3].map(|()| timestamps(&clock));
        let deletion = deleting.of_deletion(&[id("a")]);
        // The row of the deletion has a time of a second from now.
        let logged = 1_700_000_001_000_000;
        [&following, &further].iter().for_each(|of| of.continue_behind_deletion([id("a")].into_iter(), logged));
        let mut last = deletion + 1_000_000;
        for turn in 0..9 {
            let of = if turn % 2 == 0 { &following } else { &further };
            let taken = of.take(id("a"));
            assert!(last < taken && taken < deletion + 1_000_000 + ROOM, "turn {turn}: {taken}");
            last = taken;
            clock.advance(Duration::from_millis(100));
        }
        clock.advance(Duration::from_millis(300));
        assert_eq!(following.take(id("a")), deletion + 1_000_000 + ROOM + 5 + 1 + 100_000, "five writes before");
        // The deleting node reads its own row.
        deleting.continue_behind_deletion([id("a")].into_iter(), logged);
        let mut last = 0;
        for of in [&further, &following, &deleting, &further, &deleting, &following] {
            clock.advance(Duration::from_millis(1));
            let taken = of.take(id("a"));
            assert!(last < taken, "{taken} after {last}");
            last = taken;
        }
        // A row of before that changes nothing.
        following.continue_behind_deletion([id("a")].into_iter(), logged - 500_000);
        assert_eq!(following.take(id("a")), last + 1);
    }

    #[test]
    fn beyond_a_number_of_deleted_metrics_all_have_later_times() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = timestamps(&clock);
        let deleted = |from: u128| (from..).take(MOST_DELETED).map(Uuid::from_u128);
        timestamps.continue_behind_deletion(deleted(0), 1_700_000_000_000_000);
        assert_eq!(timestamps.take(id("a")), 1_700_000_000_000_000);
        timestamps.continue_behind_deletion([id("a")].into_iter(), 1_700_000_000_000_000);
        assert_eq!(timestamps.take(id("b")), 1_700_000_020_000_001 + ROOM);
        // Those that the calendar has passed make room.
        clock.advance(Duration::from_secs(60));
        timestamps.continue_behind_deletion([id("a")].into_iter(), 1_700_000_060_000_000);
        assert_eq!(timestamps.given.lock().deleted.len(), 1);
        assert_eq!(
            (timestamps.take(id("b")), timestamps.take(id("a"))),
            (1_700_000_060_000_000, 1_700_000_080_000_001 + ROOM)
        );
    }

    #[test]
    fn deleted_metrics_that_no_point_comes_of_are_forgotten() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = timestamps(&clock);
        timestamps.of_deletion(&[id("a"), id("b")]);
        for left in [2, 2, 2, 0, 0] {
            clock.advance(Duration::from_secs(11));
            timestamps.take(id("c"));
            assert_eq!(timestamps.given.lock().deleted.len(), left);
        }
    }

    #[test]
    fn timestamps_are_as_far_ahead_of_the_clock_as_another_one_is() {
        let calendar = Arc::new(Calendar::new(Arc::new(ManualClock::at(1_700_000_000))));
        let timestamps = Timestamps::new(calendar.clone());
        calendar.follow(Some(Duration::from_secs(240)));
        assert_eq!(timestamps.take(id("a")), 1_700_000_240_000_000);
        calendar.follow(None);
        assert_eq!(timestamps.take(id("a")), 1_700_000_240_000_001, "they never go back");
    }
}
