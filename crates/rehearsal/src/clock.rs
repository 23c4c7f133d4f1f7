//! A clock that follows the paused time of the runtime.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use host::Clock;
use tokio::runtime::Handle;

/// Shows the simulated time of the runtime that it was made in, on every thread: one of another node's runtime has another time.
#[derive(Debug)]
pub struct SimulatedClock {
    runtime: Handle,
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
        SimulatedClock { runtime: Handle::current(), state: Mutex::new(State { calendar, since, last: since }) }
    }

    fn update<T>(&self, use_state: impl FnOnce(&mut State) -> T) -> T {
        let now = {
            let _within = self.runtime.enter();
            tokio::time::Instant::now().into_std()
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = state.last.max(now);
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
