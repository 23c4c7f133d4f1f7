//! Metrics below the names of tokens that have a `max_metrics`: counted once, in slices, and kept while metrics come and go.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use metadata::{NameFilter, Registry};
use metric::MetricId;
use parking_lot::Mutex;

/// Ids that are counted under one lock: well below a millisecond.
const SLICE: u32 = 4096;

/// The metrics that one token may write. Changed under the lock of the names alone.
#[derive(Debug)]
pub(super) struct TokenCount {
    names: Arc<dyn NameFilter>,
    metrics: AtomicU64,
    /// Metrics with ids below this are counted.
    counted_to: AtomicU32,
}

/// The counts of all tokens that make metrics. Each of them costs a look at the name of every new metric.
#[derive(Debug, Default)]
pub(super) struct TokenCounts {
    // Locked after the names.
    all: Mutex<Vec<Weak<TokenCount>>>,
}

impl TokenCount {
    /// Whether it counts these names.
    pub(super) fn is_of(&self, names: &Arc<dyn NameFilter>) -> bool {
        Arc::ptr_eq(&self.names, names)
    }

    pub(super) fn metrics(&self) -> u64 {
        self.metrics.load(Relaxed)
    }

    fn counts(&self, id: MetricId, name: &str) -> bool {
        id.0 < self.counted_to.load(Relaxed) && self.names.shows_metric(name)
    }

    /// Counts some names. Returns whether all are counted, and then those that come later are, too.
    fn count_slice(&self, registry: &Registry, ids: u32) -> bool {
        let names = registry.read();
        let mut metrics = 0;
        let from = MetricId(self.counted_to.load(Relaxed));
        let until = names.slice(from, ids, |_, name| metrics += u64::from(self.names.shows_metric(name)));
        self.metrics.fetch_add(metrics, Relaxed);
        let is_whole = names.end() <= until;
        self.counted_to.store(if is_whole { u32::MAX } else { until.0 }, Relaxed);
        is_whole
    }
}

impl TokenCounts {
    /// Counts the metrics among `names`, which takes as long as reading all names: blocks this thread alone.
    pub(super) fn count(&self, names: Arc<dyn NameFilter>, registry: &Registry) -> Arc<TokenCount> {
        let count = self.begin(names);
        while !count.count_slice(registry, SLICE) {}
        count
    }

    fn begin(&self, names: Arc<dyn NameFilter>) -> Arc<TokenCount> {
        let count = Arc::new(TokenCount { names, metrics: AtomicU64::new(0), counted_to: AtomicU32::new(0) });
        let mut all = self.all.lock();
        all.retain(|count| 0 < count.strong_count());
        all.push(Arc::downgrade(&count));
        count
    }

    /// A metric is created or adopted. The caller holds the lock of the names.
    pub(super) fn created(&self, id: MetricId, name: &str) {
        for count in self.all.lock().iter().filter_map(Weak::upgrade).filter(|count| count.counts(id, name)) {
            count.metrics.fetch_add(1, Relaxed);
        }
    }

    /// A metric is removed. The caller holds the lock of the names.
    pub(super) fn removed(&self, id: MetricId, name: &str) {
        for count in self.all.lock().iter().filter_map(Weak::upgrade).filter(|count| count.counts(id, name)) {
            count.metrics.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use host::{Random, SeededRandom};

    use super::*;

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
    fn every_metric_counts_once_while_others_come_and_go() {
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let (registry, counts) = (Registry::new(), TokenCounts::default());
            let policy = registry.intern(&metric::Policy::default());
            let (mut living, mut whole, mut counting) = (BTreeMap::new(), Vec::new(), None);
            for _ in 0..200 {
                let name = format!("{}{}", ["blue.", "red.", "cpu;a="][random.index(3)], random.below(40));
                match random.below(8) {
                    0..4 if !living.contains_key(&name) => {
                        let mut names = registry.write();
                        let id = names.create(registry.hash(name.as_bytes()), &name, policy, 0);
                        counts.created(id, &name);
                        living.insert(name, id);
                    }
                    4 | 5 if !living.is_empty() => {
                        let name = living.keys().nth(random.index(living.len())).unwrap().clone();
                        let id = living.remove(&name).unwrap();
                        registry.remove_each(&[id], |id, name| counts.removed(id, name));
                    }
                    6 if counting.is_none() => {
                        let prefix = ["blue.", "red.", "cpu"][random.index(3)];
                        counting = Some((prefix, counts.begin(Arc::new(Below(prefix)))));
                    }
                    _ => {
                        if let Some(done) =
                            counting.take_if(|(_, count)| count.count_slice(&registry, 1 + random.below(9) as u32))
                        {
                            whole.push(done);
                        }
                    }
                }
                for (prefix, count) in &whole {
                    let expected = living.keys().filter(|name| name.starts_with(prefix)).count() as u64;
                    assert_eq!(count.metrics(), expected, "seed {seed}");
                }
            }
            assert!(!whole.is_empty());
            whole.clear();
            counting.take();
            counts.begin(Arc::new(Below("a")));
            assert_eq!(counts.all.lock().len(), 1);
        }
    }
}
