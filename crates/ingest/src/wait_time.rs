//! The time that receivers wait for room, all connections together.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use host::Clock;
use parking_lot::Mutex;

/// Sums waits, including the part so far of those that last: a wait must be visible before it ends.
#[derive(Debug)]
pub(crate) struct WaitTime {
    clock: Arc<dyn Clock>,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// The sum until `at`.
    until: Duration,
    at: Option<Instant>,
    /// How many wait since then.
    now: u32,
}

impl Waits {
    fn advance(&mut self, now: Instant) -> Duration {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.until += since * self.now;
        self.until
    }
}

/// A wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Wait<'a>(&'a WaitTime);

impl WaitTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> WaitTime {
        WaitTime { clock, waits: Mutex::default() }
    }

    pub(crate) fn begin(&self) -> Wait<'_> {
        let mut waits = self.waits.lock();
        waits.advance(self.clock.instant());
        waits.now += 1;
        Wait(self)
    }

    pub(crate) fn so_far(&self) -> Duration {
        self.waits.lock().advance(self.clock.instant())
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock();
        waits.advance(self.0.clock.instant());
        waits.now -= 1;
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn concurrent_waits_are_summed_while_they_last_and_no_longer() {
        let clock = Arc::new(ManualClock::at(1_000));
        let time = WaitTime::new(clock.clone());
        let second = |count: u32| {
            clock.advance(Duration::from_secs(1));
            assert_eq!(time.so_far(), Duration::from_secs(u64::from(count)));
        };
        second(0);
        let first = time.begin();
        second(1);
        let (_second, _third) = (time.begin(), time.begin());
        second(4);
        drop(first);
        second(6);
        drop((_second, _third));
        second(6);
    }
}
