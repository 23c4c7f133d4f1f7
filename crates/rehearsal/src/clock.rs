//! A clock that follows the paused time of the runtime.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use host::Clock;
use tokio::runtime::Handle;

/// Shows the simulated time of the runtime that asks. Threads of no runtime see the time that was asked for last.
#[derive(Debug)]
pub struct SimulatedClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The calendar at `since`.
    calendar: Duration,
    since: Instant,
    last: Instant,
}

impl SimulatedClock {
    /// A clock that stands at `calendar` now. Made within the runtime.
    pub fn at(calendar: Duration) -> SimulatedClock {
        let since = tokio::time::Instant::now().into_std();
        SimulatedClock { state: Mutex::new(State { calendar, since, last: since }) }
    }

    fn update<T>(&self, use_state: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if Handle::try_current().is_ok() {
            state.last = state.last.max(tokio::time::Instant::now().into_std());
        }
        use_state(&mut state)
    }

    /// Sets the calendar, forward or back, as an operator does. The stopwatch does not notice.
    pub fn set(&self, calendar: Duration) {
        self.update(|state| (state.calendar, state.since) = (calendar, state.last));
    }
}

impl Clock for SimulatedClock {
    fn since_epoch(&self) -> Duration {
        self.update(|state| state.calendar + (state.last - state.since))
    }

    fn instant(&self) -> Instant {
        self.update(|state| state.last)
    }
}
