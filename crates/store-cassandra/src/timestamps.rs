//! Write timestamps that never go back: of two writes of this process the later wins. They follow a [`Calendar`], so that a correction has a
//! later one than the row of another node that it corrects.
//!
//! A deletion is [ahead](HIDES_AHEAD) of it, and what comes after the deletion is later. From there on they go on at half of the calendar's pace
//! until it has come so far, on every node: would they stand still, the order of writes of two nodes would be lost meanwhile.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::calendar::{Calendar, HIDES_AHEAD, half_since};

/// Gives out timestamps, microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Timestamps {
    calendar: Mutex<Arc<Calendar>>,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// The highest one; 0 before the first.
    last: i64,
    /// When `last` was that.
    at: Option<Instant>,
}

impl Given {
    /// Lets `last` go on.
    fn go_on(&mut self, instant: Instant) {
        let before = self.at.replace(instant).unwrap_or(instant);
        self.last = self.last.saturating_add(half_since(before, instant));
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

    /// The highest one given out, or that comes before the next one; 0 before the first.
    pub(crate) fn last(&self) -> i64 {
        self.given.lock().last
    }

    /// All later ones are higher than this one.
    pub(crate) fn continue_after(&self, timestamp: i64) {
        let (_, instant) = self.calendar.lock().now_at();
        let mut given = self.given.lock();
        given.go_on(instant);
        given.last = given.last.max(timestamp);
    }

    /// The first of `number` consecutive timestamps that no other caller gets.
    pub(crate) fn take(&self, number: usize) -> i64 {
        self.take_ahead(0, number)
    }

    /// One for a deletion, later than those that other nodes give out before they have followed it: see [`HIDES_AHEAD`]. No node follows one
    /// of nothing.
    pub(crate) fn of_deletion(&self, is_of_any: bool) -> i64 {
        let ahead = if is_of_any { HIDES_AHEAD.as_micros() as i64 } else { 0 };
        self.take_ahead(ahead, 1)
    }

    fn take_ahead(&self, ahead: i64, number: usize) -> i64 {
        let (now, instant) = self.calendar.lock().now_at();
        let mut given = self.given.lock();
        given.go_on(instant);
        let first = (now + ahead).max(given.last + 1);
        given.last = first + number.max(1) as i64 - 1;
        first
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host::ManualClock;

    use super::*;

    #[test]
    fn timestamps_never_go_back() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = Timestamps::new(Arc::new(Calendar::new(clock.clone())));
        let mut last = 0;
        for number in [1, 5, 0, 1_000_000_000, 3, 1] {
            let first = timestamps.take(number);
            assert!(first > last, "{first} after {last}");
            last = first + number as i64 - 1;
            clock.set(1_600_000_000);
        }
        // Also after a restart, when the earlier process had a clock a year ahead.
        let used = last + 31_536_000_000_000;
        timestamps.continue_after(used);
        timestamps.continue_after(last);
        assert_eq!((timestamps.take(2), timestamps.last()), (used + 1, used + 2));
    }

    #[test]
    fn a_deletion_is_later_than_what_others_write_meanwhile_and_what_comes_after_it_is_later_still() {
        let timestamps = Timestamps::new(Arc::new(Calendar::new(Arc::new(ManualClock::at(1_700_000_000)))));
        let before = timestamps.take(5);
        assert_eq!(timestamps.of_deletion(false), before + 5);
        let deletion = timestamps.of_deletion(true);
        assert_eq!(deletion - before, 20_000_000);
        assert_eq!((timestamps.take(1), timestamps.of_deletion(true)), (deletion + 1, deletion + 2));
    }

    #[test]
    fn after_a_deletion_two_nodes_write_in_the_order_of_time() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let [deleting, following] = [(); 2].map(|()| Timestamps::new(Arc::new(Calendar::new(clock.clone()))));
        let deletion = deleting.of_deletion(true);
        deleting.take(1_000);
        clock.advance(Duration::from_millis(500));
        following.continue_after(deletion);
        let mut last = deletion;
        for turn in 0..100 {
            clock.advance(Duration::from_secs(1));
            let of = if turn % 2 == 0 { &following } else { &deleting };
            let taken = of.take(1);
            assert!(last + 200_000 < taken, "turn {turn}: {taken} after {last}");
            last = taken;
        }
        assert_eq!(last, 1_700_000_100_500_000, "by the calendar again");
    }

    #[test]
    fn timestamps_are_as_far_ahead_of_the_clock_as_another_one_is() {
        let calendar = Arc::new(Calendar::new(Arc::new(ManualClock::at(1_700_000_000))));
        let timestamps = Timestamps::new(calendar.clone());
        calendar.follow(Some(Duration::from_secs(240)));
        assert_eq!(timestamps.take(1), 1_700_000_240_000_000);
        calendar.follow(None);
        assert_eq!(timestamps.take(1), 1_700_000_240_000_001, "they never go back");
    }
}
