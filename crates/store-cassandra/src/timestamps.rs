//! Write timestamps that never go back: of two writes of this process the later wins. They follow a [`Calendar`], so that a correction has a
//! later one than the row of another node that it corrects.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::calendar::{Calendar, HIDES_AHEAD};

/// Gives out timestamps, microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Timestamps {
    calendar: Mutex<Arc<Calendar>>,
    last: AtomicI64,
}

impl Timestamps {
    pub(crate) fn new(calendar: Arc<Calendar>) -> Timestamps {
        Timestamps { calendar: Mutex::new(calendar), last: AtomicI64::new(0) }
    }

    /// From now on they are by this one.
    pub(crate) fn go_by(&self, calendar: Arc<Calendar>) {
        *self.calendar.lock() = calendar;
    }

    /// The highest one given out; 0 before the first.
    pub(crate) fn last(&self) -> i64 {
        self.last.load(Relaxed)
    }

    /// All later ones are higher than this one.
    pub(crate) fn continue_after(&self, timestamp: i64) {
        self.last.fetch_max(timestamp, Relaxed);
    }

    /// The first of `number` consecutive timestamps that no other caller gets.
    pub(crate) fn take(&self, number: usize) -> i64 {
        let now = self.calendar.lock().now();
        self.from(now, number)
    }

    /// One for a deletion, later than those that other nodes give out before they have followed it: see [`HIDES_AHEAD`].
    pub(crate) fn of_deletion(&self) -> i64 {
        let now = self.calendar.lock().now();
        self.from(now + HIDES_AHEAD.as_micros() as i64, 1)
    }

    fn from(&self, now: i64, number: usize) -> i64 {
        let number = number.max(1) as i64;
        let next = |last: i64| Some(now.max(last + 1) + number - 1);
        let last = self.last.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|last| last);
        now.max(last + 1)
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
        let deletion = timestamps.of_deletion();
        assert_eq!(deletion - before, 20_000_000);
        assert_eq!((timestamps.take(1), timestamps.of_deletion()), (deletion + 1, deletion + 2));
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
