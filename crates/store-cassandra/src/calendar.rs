//! The time by which a node writes: its own calendar, or that of another node that is further ahead.
//!
//! Of two writes of a row Cassandra keeps the later one, and nodes look for what others say about the time of their own. So these times
//! never go back, unless by more than [`FURTHEST`]: where a calendar that was ahead is set right, they go on at half of its pace until it has
//! come so far. Would they stand still, a node that stands some seconds behind another one would lose every write to it meanwhile.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

/// A calendar that is ahead by this or less is not followed: corrections come ten seconds after what they correct.
pub const NEAREST: Duration = Duration::from_secs(10);

/// A calendar that is further ahead is not followed: its node is wrong, and would take the others with it.
pub const FURTHEST: Duration = Duration::from_secs(900);

/// How far ahead of its calendar a node deletes points: other nodes, whose calendars may be ten seconds ahead without being followed (fifteen
/// by a heartbeat that is five seconds old), write for a second until they have followed the deletion. What they write after that has later times.
pub const HIDES_AHEAD: Duration = Duration::from_secs(20);

const MICROSECONDS: i64 = FURTHEST.as_micros() as i64;

/// The time by which a node writes.
#[derive(Debug)]
pub struct Calendar {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// Microseconds since 1970.
#[derive(Debug, Default)]
struct State {
    /// The latest time of this node's own calendar.
    own: i64,
    /// That of another node, when it was heard of. By a stopwatch since then, as the calendar here may be set right meanwhile, and at half of its
    /// pace, as that one may be.
    followed: Option<(Instant, i64)>,
    /// The latest time that was given out.
    latest: i64,
    /// When that was.
    at: Option<Instant>,
    /// The latest time that was reported to other nodes.
    reported: i64,
}

/// The later time, unless `before` is so far ahead of the calendar that it was wrong.
fn not_back(before: i64, time: i64, calendar: i64) -> i64 {
    if before <= calendar + MICROSECONDS { before.max(time) } else { time }
}

/// Half of the microseconds between two moments.
pub(crate) fn half_since(earlier: Instant, later: Instant) -> i64 {
    (later.saturating_duration_since(earlier) / 2).as_micros() as i64
}

impl State {
    fn now(&mut self, clock: &dyn Clock) -> (i64, i64) {
        let (calendar, instant) = (clock.since_epoch().as_micros() as i64, clock.instant());
        let passed = half_since(self.at.replace(instant).unwrap_or(instant), instant);
        self.own = not_back(self.own.saturating_add(passed), calendar, calendar);
        let followed = self.followed.map_or(i64::MIN, |(at, time)| time.saturating_add(half_since(at, instant)));
        let time = not_back(followed, self.own, calendar);
        self.latest = not_back(self.latest.saturating_add(passed), time, calendar);
        (self.latest, calendar)
    }
}

impl Calendar {
    /// This node's own, for now.
    pub fn new(clock: Arc<dyn Clock>) -> Calendar {
        Calendar { clock, state: Mutex::default() }
    }

    /// Microseconds since 1970.
    pub fn now(&self) -> i64 {
        self.state.lock().now(&*self.clock).0
    }

    /// The same, and the moment by a stopwatch.
    pub(crate) fn now_at(&self) -> (i64, Instant) {
        let mut state = self.state.lock();
        let (now, _) = state.now(&*self.clock);
        (now, state.at.unwrap_or_else(|| self.clock.instant()))
    }

    /// How far that is ahead of the calendar here.
    pub fn ahead(&self) -> Duration {
        let (now, calendar) = self.state.lock().now(&*self.clock);
        Duration::from_micros(u64::try_from(now - calendar).unwrap_or(0))
    }

    /// What other nodes get to know, microseconds since 1970, later each time: the calendar here and what it was before, and not what is followed,
    /// so that no two nodes drive each other on.
    pub fn report(&self) -> i64 {
        let mut state = self.state.lock();
        let (_, calendar) = state.now(&*self.clock);
        state.reported = not_back(state.reported + 1000, state.own, calendar);
        state.reported
    }

    /// Another node's calendar is so far ahead of the one here, and none is further; or none is to be followed. Until the next call it goes on at
    /// half of its pace: it may be set right meanwhile, and no time here may be further ahead than those there.
    pub fn follow(&self, ahead: Option<Duration>) {
        let mut state = self.state.lock();
        let calendar = self.clock.since_epoch().as_micros() as i64;
        state.followed = ahead.map(|ahead| (self.clock.instant(), calendar + ahead.as_micros() as i64));
    }

    /// This node has written at this time, microseconds since 1970, before it was started again, or others have.
    pub fn was(&self, time: i64) {
        let mut state = self.state.lock();
        // What was there goes on until now, and this time from now on.
        state.now(&*self.clock);
        state.own = state.own.max(time);
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    const START: i64 = 1_700_000_000;

    fn calendar() -> (Calendar, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(START));
        (Calendar::new(clock.clone()), clock)
    }

    fn seconds(calendar: &Calendar) -> i64 {
        calendar.now() / 1_000_000 - START
    }

    #[test]
    fn a_calendar_that_was_behind_and_is_set_right_runs_no_further_ahead() {
        let (calendar, clock) = calendar();
        calendar.follow(Some(Duration::from_secs(300)));
        clock.advance(Duration::from_secs(2));
        assert_eq!((seconds(&calendar), calendar.ahead().as_secs()), (301, 299), "the other one may be set right");
        clock.set(START + 303);
        assert_eq!((seconds(&calendar), calendar.ahead()), (303, Duration::ZERO));
        calendar.follow(None);
        assert_eq!(seconds(&calendar), 303);
    }

    #[test]
    fn a_calendar_that_was_ahead_and_is_set_right_goes_on_slowly_until_it_has_come_so_far_and_reports_so() {
        let (calendar, clock) = calendar();
        clock.set(START + 300);
        let reported = calendar.report();
        clock.set(START + 5);
        assert_eq!((seconds(&calendar), calendar.ahead().as_secs()), (300, 295));
        assert!(reported < calendar.report() && reported < calendar.report(), "each heartbeat is another one");
        assert_eq!(calendar.report() / 1_000_000 - START, 300);
        clock.advance(Duration::from_secs(200));
        assert_eq!((seconds(&calendar), calendar.ahead().as_secs()), (400, 195));
        assert_eq!(calendar.report() / 1_000_000 - START, 400);
        clock.advance(Duration::from_secs(388));
        assert_eq!((seconds(&calendar), calendar.ahead().as_secs()), (594, 1));
        clock.advance(Duration::from_secs(4));
        assert_eq!((seconds(&calendar), calendar.ahead().as_secs()), (597, 0));
    }

    #[test]
    fn what_is_followed_is_not_reported() {
        let (calendar, _clock) = calendar();
        calendar.follow(Some(Duration::from_secs(300)));
        assert_eq!((seconds(&calendar), calendar.report() / 1_000_000 - START), (300, 0));
    }

    #[test]
    fn a_calendar_that_was_more_than_a_quarter_of_an_hour_ahead_is_forgotten() {
        let (calendar, clock) = calendar();
        clock.set(START + 3600);
        assert_eq!(seconds(&calendar), 3600);
        clock.set(START);
        assert_eq!((seconds(&calendar), calendar.report() / 1_000_000 - START), (0, 0));
    }

    #[test]
    fn a_start_goes_on_where_the_process_before_was_ahead() {
        let (calendar, _clock) = calendar();
        calendar.was((START + 200) * 1_000_000);
        assert_eq!(seconds(&calendar), 200);
        calendar.was((START + 100_000) * 1_000_000);
        assert_eq!(seconds(&calendar), 200, "by a calendar that was wrong");
    }
}
