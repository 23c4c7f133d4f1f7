//! Requests that a store failed, in the log: while it is away each one would be a line, and all of them would say the same.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// One line in this time, at most.
const EVERY: Duration = Duration::from_secs(60);

/// When one was told, and how many were not since.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    told: Mutex<(Option<Instant>, u64)>,
}

impl Failures {
    /// Whether one at `now` shall be told; then also how many before it were not.
    pub(crate) fn is_due(&self, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_early = told.0.is_some_and(|at| now.saturating_duration_since(at) < EVERY);
        if is_early {
            told.1 += 1;
            return None;
        }
        told.0 = Some(now);
        Some(std::mem::take(&mut told.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_minute_is_told_with_how_many_were_not() {
        let (failures, start) = (Failures::default(), Instant::now());
        let at = |seconds: u64| failures.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 200].map(at), [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
