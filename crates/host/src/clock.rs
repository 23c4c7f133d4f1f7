//! The time: of the calendar, and of a stopwatch.

use std::{
    fmt::Debug,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Tells the time. Sleeping is the runtime's business.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Time since 1970 by the calendar. It may jump either way; a clock before 1970 reads as zero.
    fn since_epoch(&self) -> Duration;

    /// A point on a clock that never goes back, to measure how long something takes.
    fn instant(&self) -> Instant;

    /// Unix seconds, rounded down.
    fn now(&self) -> i64 {
        self.since_epoch().as_secs() as i64
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn since_epoch(&self) -> Duration {
        // A clock before 1970 is not set yet: every point would be from the future.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    /// Microseconds since 1970.
    calendar: AtomicI64,
    stopwatch: Mutex<Instant>,
}

impl ManualClock {
    /// A clock that stands at `now`, Unix seconds.
    pub fn at(now: i64) -> ManualClock {
        ManualClock { calendar: AtomicI64::new(now * 1_000_000), stopwatch: Mutex::new(Instant::now()) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        self.calendar.fetch_add(by.as_micros() as i64, Relaxed);
        *self.stopwatch.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Sets the calendar, forward or back, as an operator or NTP does. The stopwatch does not notice.
    pub fn set(&self, now: i64) {
        self.calendar.store(now * 1_000_000, Relaxed);
    }
}

impl Clock for ManualClock {
    fn since_epoch(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.calendar.load(Relaxed)).unwrap_or(0))
    }

    fn instant(&self) -> Instant {
        *self.stopwatch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_that_is_set_back_leaves_the_stopwatch() {
        let clock = ManualClock::at(1_000);
        let began = clock.instant();
        clock.advance(Duration::from_millis(2_500));
        assert_eq!((clock.now(), clock.instant() - began), (1_002, Duration::from_millis(2_500)));
        clock.set(10);
        assert_eq!((clock.now(), clock.instant() - began), (10, Duration::from_millis(2_500)));
        clock.set(-10);
        assert_eq!(clock.now(), 0);
    }
}
