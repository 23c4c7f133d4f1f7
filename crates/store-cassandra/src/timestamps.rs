//! Write timestamps that never go back: of two writes of this process the later wins. They follow the calendars of other nodes that are
//! ahead, so that a correction has a later one than the row that it corrects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::Clock;

/// Gives out timestamps, microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Timestamps {
    clock: Arc<dyn Clock>,
    /// How far ahead of the clock they are, microseconds.
    ahead: AtomicI64,
    last: AtomicI64,
}

impl Timestamps {
    /// By this clock, as far as it goes forward, and [`Timestamps::set_ahead`].
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Timestamps {
        Timestamps { clock, ahead: AtomicI64::new(0), last: AtomicI64::new(0) }
    }

    /// The highest one given out; 0 before the first.
    pub(crate) fn last(&self) -> i64 {
        self.last.load(Relaxed)
    }

    /// All later ones are higher than this one.
    pub(crate) fn continue_after(&self, timestamp: i64) {
        self.last.fetch_max(timestamp, Relaxed);
    }

    /// From now on they are so far ahead of the clock.
    pub(crate) fn set_ahead(&self, ahead: Duration) {
        self.ahead.store(ahead.as_micros() as i64, Relaxed);
    }

    /// The first of `number` consecutive timestamps that no other caller gets.
    pub(crate) fn take(&self, number: usize) -> i64 {
        let now = self.clock.since_epoch().as_micros() as i64 + self.ahead.load(Relaxed);
        let number = number.max(1) as i64;
        let next = |last: i64| Some(now.max(last + 1) + number - 1);
        let last = self.last.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|last| last);
        now.max(last + 1)
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn timestamps_never_go_back() {
        let clock = Arc::new(ManualClock::at(1_700_000_000));
        let timestamps = Timestamps::new(clock.clone());
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
    fn timestamps_are_as_far_ahead_of_the_clock_as_another_one_is() {
        let timestamps = Timestamps::new(Arc::new(ManualClock::at(1_700_000_000)));
        timestamps.set_ahead(Duration::from_secs(240));
        assert_eq!(timestamps.take(1), 1_700_000_240_000_000);
        timestamps.set_ahead(Duration::ZERO);
        assert_eq!(timestamps.take(1), 1_700_000_240_000_001, "they never go back");
    }
}
