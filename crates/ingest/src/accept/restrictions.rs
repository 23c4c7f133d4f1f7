//! The restrictions of a listener or of a token, and how much of them its senders have used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use carbon::RejectReason;
use metadata::NameFilter;
use metric::Timestamp;
use parking_lot::Mutex;

/// The hash of a token.
pub type TokenHash = [u8; 32];

/// What becomes of the prefix of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixRule {
    /// Names begin with it; others are rejected.
    Require,
    /// It is put before every name.
    Prepend,
    /// It is put before names that do not begin with it.
    Allow,
}

/// Restrictions of a listener. The default restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// The beginning of all names, and how it gets there.
    pub prefix: Option<(String, PrefixRule)>,
    /// Hashes of tokens: the first component of each name is one of these tokens. Empty without tokens.
    pub tokens: Vec<TokenHash>,
    /// Points a second of all senders together, and at once.
    pub points_per_second: Option<u64>,
    /// New metrics a minute.
    pub creations_per_minute: Option<u64>,
}

impl Restrictions {
    /// Whether there are any.
    pub fn are_none(&self) -> bool {
        *self == Restrictions::default()
    }
}

/// The restrictions of a listener, and how much its senders have used.
#[derive(Debug)]
pub struct ListenerGate {
    pub(super) restrictions: Restrictions,
    rate: Mutex<Rate>,
    creations: Mutex<Creations>,
    points: AtomicU64,
    rejects: [AtomicU64; RejectReason::ALL.len()],
}

/// Points that senders may still send, as of a time.
#[derive(Debug, Default)]
struct Rate {
    left: f64,
    at: Option<Instant>,
}

/// New metrics of a minute.
#[derive(Debug, Default)]
struct Creations {
    minute: Timestamp,
    created: u64,
}

impl ListenerGate {
    /// Nothing used yet.
    pub fn new(restrictions: Restrictions) -> Arc<ListenerGate> {
        Arc::new(ListenerGate {
            restrictions,
            rate: Mutex::default(),
            creations: Mutex::default(),
            points: AtomicU64::new(0),
            rejects: [const { AtomicU64::new(0) }; RejectReason::ALL.len()],
        })
    }

    /// Accepted points.
    pub fn points(&self) -> u64 {
        self.points.load(Relaxed)
    }

    /// Rejected input, by its reason.
    pub fn rejects(&self) -> impl Iterator<Item = (RejectReason, u64)> {
        RejectReason::ALL.into_iter().map(|reason| (reason, self.rejects[reason as usize].load(Relaxed)))
    }

    pub(super) fn count_points(&self, points: u64) {
        self.points.fetch_add(points, Relaxed);
    }

    pub(super) fn count_rejects(&self, reason: RejectReason, count: u32) {
        self.rejects[reason as usize].fetch_add(u64::from(count), Relaxed);
    }

    /// How many of these points the senders may send now.
    pub(super) fn granted(&self, points: usize, now: Instant) -> usize {
        let Some(per_second) = self.restrictions.points_per_second else { return points };
        let (per_second, mut rate) = (per_second as f64, self.rate.lock());
        let passed = rate.at.map_or(1.0, |at| now.saturating_duration_since(at).as_secs_f64());
        rate.at = Some(now);
        rate.left = (rate.left + passed * per_second).min(per_second);
        let granted = points.min(rate.left as usize);
        rate.left -= granted as f64;
        granted
    }

    /// Counts one more new metric at `now`, unless the listener has had its number in this minute.
    pub(super) fn admits(&self, now: Timestamp) -> bool {
        let Some(limit) = self.restrictions.creations_per_minute else { return true };
        let (minute, mut creations) = (now.div_euclid(60), self.creations.lock());
        if creations.minute != minute {
            *creations = Creations { minute, created: 0 };
        }
        let admits = creations.created < limit;
        creations.created += u64::from(admits);
        admits
    }

    /// A metric that was counted is not created.
    pub(super) fn takes_back(&self) {
        let mut creations = self.creations.lock();
        creations.created = creations.created.saturating_sub(1);
    }
}

/// A sender over HTTP, as its token says.
#[derive(Debug, Clone)]
pub struct TokenGate {
    /// The limits of the token, which all its requests share.
    pub limits: Arc<ListenerGate>,
    /// The names that it may write; all without this.
    pub names: Option<Arc<dyn NameFilter>>,
}

/// The gate of one connection: that of its listener or of its sender's token, and the token that it sent last.
pub(super) struct Gate {
    pub(super) listener: Arc<ListenerGate>,
    /// The names that its sender may write; all without this.
    pub(super) names: Option<Arc<dyn NameFilter>>,
    // So that a connection's token is hashed once. Never shown.
    pub(super) known_token: Option<Vec<u8>>,
}

impl Gate {
    pub(super) fn new(listener: Arc<ListenerGate>) -> Gate {
        Gate { listener, names: None, known_token: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_metrics_are_counted_by_the_minute() {
        let listener = ListenerGate::new(Restrictions { creations_per_minute: Some(2), ..Restrictions::default() });
        assert_eq!(
            [0, 59, 59, 60, 61, 119, 120].map(|now| listener.admits(now)),
            [true, true, false, true, true, false, true]
        );
        let free = ListenerGate::new(Restrictions::default());
        assert!((0..100).all(|_| free.admits(1)));
    }
}
