//! The restrictions of a listener or of a token, and how much of them its senders have used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use carbon::RejectReason;
use metadata::{NameFilter, Registry};
use metric::Timestamp;
use parking_lot::Mutex;

use super::token_counts::{TokenCount, TokenCounts};
use crate::long_work::do_work;

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
    /// Metrics among the names that a token sees. Not of a listener: its prefix is one of the limits by prefix.
    pub max_metrics: Option<u64>,
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
    /// Held while the metrics are counted.
    counting: Mutex<()>,
    // Locked after the names.
    metrics: Mutex<Option<Arc<TokenCount>>>,
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
            counting: Mutex::default(),
            metrics: Mutex::default(),
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

    /// Whether the metrics among these names are not counted yet.
    fn lacks_count(&self, names: &Arc<dyn NameFilter>) -> bool {
        self.restrictions.max_metrics.is_some() && !self.metrics.lock().as_ref().is_some_and(|count| count.is_of(names))
    }

    /// Counts the metrics that there are among `names`, those of other senders too. Takes as long as reading all names, which
    /// the caller has not locked.
    fn count_metrics(&self, names: &Arc<dyn NameFilter>, counts: &TokenCounts, registry: &Registry) {
        let _counting = self.counting.lock();
        if self.lacks_count(names) {
            let count = counts.count(names.clone(), registry);
            *self.metrics.lock() = Some(count);
        }
    }

    /// Whether one more metric is within [`Restrictions::max_metrics`].
    pub(super) fn has_room(&self) -> bool {
        let Some(limit) = self.restrictions.max_metrics else { return true };
        self.metrics.lock().as_ref().is_some_and(|count| count.metrics() < limit)
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
    pub writes: Option<Arc<dyn NameFilter>>,
    /// The names whose metrics count for its [`Restrictions::max_metrics`].
    pub counted: Option<Arc<dyn NameFilter>>,
}

/// The gate of one connection: that of its listener or of its sender's token, and the token that it sent last.
pub(super) struct Gate {
    pub(super) listener: Arc<ListenerGate>,
    /// The names that its sender may write; all without this.
    pub(super) writes: Option<Arc<dyn NameFilter>>,
    /// The names whose metrics count for it.
    pub(super) counted: Option<Arc<dyn NameFilter>>,
    // So that a connection's token is hashed once. Never shown.
    pub(super) known_token: Option<Vec<u8>>,
}

impl Gate {
    /// Before new metrics are created: counts those that there are, once. Other tasks of this thread move to
    /// another meanwhile.
    pub(super) fn count_metrics(&self, counts: &TokenCounts, registry: &Registry) {
        if let Some(names) = self.counted.as_ref().filter(|names| self.listener.lacks_count(names)) {
            do_work(true, || self.listener.count_metrics(names, counts, registry));
        }
    }

    pub(super) fn new(listener: Arc<ListenerGate>) -> Gate {
        Gate { listener, writes: None, counted: None, known_token: None }
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
        assert!(free.has_room());
        assert!((0..100).all(|_| free.admits(1)));
    }

    #[derive(Debug)]
    struct Below(&'static str);

    impl NameFilter for Below {
        fn shows_metric(&self, name: &str) -> bool {
            name.starts_with(self.0)
        }

        fn shows_branch(&self, path: &str) -> bool {
            self.0.starts_with(path)
        }
    }

    #[test]
    fn a_token_has_room_when_its_metrics_are_counted() {
        let (registry, counts) = (Registry::new(), TokenCounts::default());
        let create = |name: &str| {
            let policy = registry.intern(&metric::Policy::default());
            let mut names = registry.write();
            let id = names.create(registry.hash(name.as_bytes()), name, policy, 0);
            counts.created(id, name);
            id
        };
        let (blue, red): (Arc<dyn NameFilter>, Arc<dyn NameFilter>) =
            (Arc::new(Below("blue.")), Arc::new(Below("red.")));
        let first = create("blue.a");
        create("red.a");
        let gate = ListenerGate::new(Restrictions { max_metrics: Some(2), ..Restrictions::default() });
        assert!(!gate.has_room() && gate.lacks_count(&blue));
        gate.count_metrics(&blue, &counts, &registry);
        assert!(gate.has_room() && !gate.lacks_count(&blue));
        create("blue.b");
        assert!(!gate.has_room(), "other senders create them, too");
        registry.remove_each(&[first], |id, name| counts.removed(id, name));
        assert!(gate.has_room());
        create("blue.c");
        assert!(!gate.has_room() && gate.lacks_count(&red), "its names may change");
        gate.count_metrics(&red, &counts, &registry);
        assert!(gate.has_room());
    }
}
