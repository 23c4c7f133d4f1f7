//! The rate at which a backup reads, so that queries and flushes have most of the disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use host::Clock;

/// A shorter rest is taken later, with others.
const LEAST: Duration = Duration::from_millis(10);

/// Keeps to a rate, over all that was read.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    bytes_per_second: Option<u64>,
    began: Instant,
    bytes: AtomicU64,
}

impl Pace {
    /// From now on. `None` is as fast as the disk.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_per_second: Option<u64>) -> Arc<Pace> {
        let began = clock.instant();
        Arc::new(Pace { clock, bytes_per_second, began, bytes: AtomicU64::new(0) })
    }

    /// As fast as the disk.
    #[cfg(test)]
    pub(crate) fn without_limit() -> Arc<Pace> {
        Pace::new(host::Host::system().clock, None)
    }

    /// Bytes were read. Waits if they came too early: the caller is on a thread of its own.
    pub(crate) fn took(&self, bytes: u64) {
        let rest = self.rest(bytes);
        if LEAST < rest {
            std::thread::sleep(rest);
        }
    }

    fn rest(&self, bytes: u64) -> Duration {
        let bytes = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let due = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        due.saturating_sub(self.clock.instant() - self.began)
    }
}

#[cfg(test)]
mod tests {
    use host::ManualClock;

    use super::*;

    #[test]
    fn what_was_read_too_early_is_waited_for() {
        let clock = Arc::new(ManualClock::at(0));
        let pace = Pace::new(clock.clone(), Some(1000));
        assert_eq!(pace.rest(500), Duration::from_millis(500));
        clock.advance(Duration::from_secs(1));
        assert_eq!(pace.rest(500), Duration::ZERO);
        assert_eq!(pace.rest(2000), Duration::from_secs(2));
        assert_eq!(Pace::new(clock, None).rest(u64::MAX), Duration::ZERO);
    }
}
