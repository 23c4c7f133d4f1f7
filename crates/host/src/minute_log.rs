//! Limits log lines of one kind to one a minute, for what others cause: during an outage every request fails alike.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Time between two log lines, at least.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last log line, and the number of events since then.
#[derive(Debug, Default)]
pub struct MinuteLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_line: Option<Instant>,
    suppressed: u64,
}

impl MinuteLog {
    /// Without an event yet.
    pub const fn new() -> MinuteLog {
        MinuteLog { state: Mutex::new(State { last_line: None, suppressed: 0 }) }
    }

    /// Counts an event at `now`. When its log line is due, returns the number of events without a line before it.
    pub fn is_due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.last_line.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            state.suppressed += 1;
            return None;
        }
        state.last_line = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_a_minute_is_logged_with_the_number_of_suppressed_ones() {
        let (failures, start) = (MinuteLog::default(), Instant::now());
        let at = |seconds: u64| failures.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 200].map(at), [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
