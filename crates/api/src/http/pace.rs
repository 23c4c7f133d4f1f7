//! The least that clients must send and read: bytes a second over a window. Pauses and total times have limits of their own.
//!
//! Only time in which a client could have done something counts: not while the server waits for its own memory.

use std::time::Duration;

use super::limits::Limits;

/// The window, at most; a shorter `http.idle_timeout` makes it shorter.
const WINDOW: Duration = Duration::from_secs(30);

/// A minimum rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    per_second: u64,
    pub window: Duration,
}

/// What a client has done in the current window.
#[derive(Debug, Default)]
pub(super) struct Waited {
    pub time: Duration,
    pub bytes: u64,
}

/// Why a body is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlowBody {
    /// A pause.
    #[error("the client sent no byte of the body for {0:?}")]
    Silent(Duration),
    /// Too few bytes.
    #[error("the client sent less than {0} bytes a second of the body; http.min_rate lowers this")]
    BelowRate(u64),
    /// Too long in all.
    #[error("the client sent the body for longer than {0:?}; http.body_timeout raises this")]
    TooLong(Duration),
}

impl Pace {
    pub(super) fn new(limits: &Limits) -> Pace {
        Pace { per_second: limits.min_rate, window: WINDOW.min(limits.idle) }
    }

    /// Ends a window that is over; true if the client did too little in it.
    pub(super) fn is_missed(&self, waited: &mut Waited) -> bool {
        if waited.time < self.window {
            return false;
        }
        let Waited { time, bytes } = std::mem::take(waited);
        (bytes as f64) < self.per_second as f64 * time.as_secs_f64()
    }
}

/// How a client sends the body of a request.
#[derive(Debug)]
pub(crate) struct BodyPace {
    idle: Duration,
    total: Duration,
    pace: Pace,
    waited: Waited,
    silent: Duration,
    in_all: Duration,
}

impl BodyPace {
    /// At the beginning of a body.
    pub(crate) fn new(limits: &Limits) -> BodyPace {
        let (idle, total, pace) = (limits.idle, limits.body_time, Pace::new(limits));
        BodyPace { idle, total, pace, waited: Waited::default(), silent: Duration::ZERO, in_all: Duration::ZERO }
    }

    /// How long to wait for bytes before the next [`BodyPace::waited`].
    pub(super) fn patience(&self) -> Duration {
        let window = self.pace.window.saturating_sub(self.waited.time);
        (self.idle.saturating_sub(self.silent)).min(self.total.saturating_sub(self.in_all)).min(window)
    }

    /// Counts a wait, and the bytes that ended it: none if the patience was over.
    pub(super) fn waited(&mut self, time: Duration, bytes: usize) -> Result<(), SlowBody> {
        self.in_all += time;
        self.silent = if bytes == 0 { self.silent + time } else { Duration::ZERO };
        self.waited.time += time;
        self.waited.bytes += bytes as u64;
        if self.idle <= self.silent {
            return Err(SlowBody::Silent(self.idle));
        }
        if self.total <= self.in_all {
            return Err(SlowBody::TooLong(self.total));
        }
        if self.pace.is_missed(&mut self.waited) {
            return Err(SlowBody::BelowRate(self.pace.per_second));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(limits: impl FnOnce(&mut Limits)) -> BodyPace {
        let mut all = Limits::default();
        limits(&mut all);
        BodyPace::new(&all)
    }

    /// Seconds until a client is given up that sends so many bytes each second.
    fn given_up(mut body: BodyPace, bytes: usize) -> Option<(u64, SlowBody)> {
        (1..3600).find_map(|second| Some((second, body.waited(SECOND, bytes).err()?)))
    }

    #[test]
    fn a_body_has_a_longest_pause_a_least_rate_and_a_longest_time() {
        let limits = |limits: &mut Limits| {
            (limits.idle, limits.min_rate, limits.body_time) = (75 * SECOND, 100, 600 * SECOND);
        };
        assert_eq!(given_up(pace(limits), 99), Some((30, SlowBody::BelowRate(100))));
        assert_eq!(given_up(pace(limits), 100), Some((600, SlowBody::TooLong(600 * SECOND))));
        assert_eq!(given_up(pace(|limits| limits.min_rate = 0), 0), Some((75, SlowBody::Silent(75 * SECOND))));
        let short = |limits: &mut Limits| (limits.idle, limits.min_rate) = (5 * SECOND, 100);
        assert_eq!(given_up(pace(short), 1), Some((5, SlowBody::BelowRate(100))));
    }

    #[test]
    fn each_window_counts_by_itself() {
        let mut body = pace(|limits| limits.min_rate = 100);
        assert_eq!(body.waited(SECOND, 1 << 20), Ok(()));
        assert_eq!(body.patience(), 29 * SECOND);
        assert_eq!(body.waited(29 * SECOND, 1), Ok(()));
        assert_eq!(body.waited(30 * SECOND, 1), Err(SlowBody::BelowRate(100)));
    }
}
