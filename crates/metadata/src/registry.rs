//! The registry: numbers, names and policies of metrics.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;
use metric::{MAX_NAME_BYTES, Policy, Timestamp, is_tagged};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::{MetricRecord, PolicyChange};

use crate::{
    FindError, FindLimits, Found, PolicyHistory, PolicyId, PolicySpan,
    arena::{Arena, NOWHERE, Place, Record},
    find::{Budget, NO_METRIC},
    numbers::Numbers,
    pattern,
    policies::Policies,
};

/// Every metric this node knows.
///
/// Numbers are dense, begin at 0, persist in the metrics table and are never reused. All methods may be
/// called from any thread. A thread that holds [`Registry::read`] or [`Registry::write`] must let go of it
/// before it calls any other method but [`Registry::hash`], [`Registry::intern`] and [`Registry::policy`]:
/// a waiting writer goes before a reader that comes again.
pub struct Registry {
    seed: RandomState,
    names: RwLock<Table>,
    policies: RwLock<Policies>,
}

/// What the lock of names guards.
struct Table {
    arena: Arena,
    numbers: Numbers,
    // The place of each number's record; NOWHERE where a number has none.
    places: Vec<Place>,
    // Names, not numbers: without the holes that a restore may leave.
    names: usize,
    tagged: usize,
    // Numbers of untagged names that are in no segment of the path index, in the order they came.
    tail: Vec<u32>,
}

/// What a restore did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Metrics that were not known.
    pub added: usize,
    /// Metrics that were known by the same number and name; their policies were replaced.
    pub known: usize,
    /// Records left out: the number has another name, the name has another number, or the name
    /// is longer than names may be. None in a store that is whole and that belongs to this registry.
    pub conflicts: usize,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Registry {
        let table = Table {
            arena: Arena::new(),
            numbers: Numbers::new(),
            places: Vec::new(),
            names: 0,
            tagged: 0,
            tail: Vec::new(),
        };
        Registry { seed: RandomState::default(), names: RwLock::new(table), policies: RwLock::new(Policies::new()) }
    }

    /// The hash of a name, which [`Names::find`] and [`NamesMut::create`] take. Seeded: another in every
    /// process, so that nobody can send names that collide.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(name);
        hasher.finish()
    }

    /// Shared access to the names, for a batch of points.
    #[inline]
    pub fn read(&self) -> Names<'_> {
        Names { table: self.names.read() }
    }

    /// Exclusive access to the names, for a batch of new metrics.
    pub fn write(&self) -> NamesMut<'_> {
        NamesMut { table: self.names.write() }
    }

    /// The number of a policy, which is given one when it is new. Numbers hold for the life of the process
    /// and in what [`Registry::save`] writes, not in the metrics table.
    pub fn intern(&self, policy: &Policy) -> PolicyId {
        self.policies.write().intern(policy)
    }

    /// The policy with a number that [`Registry::intern`] gave.
    ///
    /// # Panics
    /// When no policy has the number.
    pub fn policy(&self, id: PolicyId) -> Arc<Policy> {
        self.policies.read().get(id).expect("a policy number comes from intern").clone()
    }

    /// Takes over rows of the metrics table, in any order and any batches, each any number of times.
    pub fn restore(&self, records: Vec<MetricRecord>) -> Restored {
        let mut restored = Restored::default();
        let mut policies = self.policies.write();
        let mut table = self.names.write();
        for record in &records {
            let Some(last) = record.policies.last() else {
                restored.conflicts += 1;
                continue;
            };
            let hash = self.hash(record.name.as_bytes());
            let known = table.find(hash, record.name.as_bytes());
            let holder = table.record(record.number).is_some();
            if known.is_some_and(|number| number != record.number)
                || (known.is_none() && holder)
                || record.name.len() > MAX_NAME_BYTES
                || record.number == NO_METRIC
            {
                restored.conflicts += 1;
                continue;
            }
            let policy = policies.intern(&last.policy);
            if known.is_some() {
                let place = table.places[record.number as usize];
                table.arena.set_policy(place, policy);
                restored.known += 1;
            } else {
                table.insert(hash, record.number, &record.name, policy, record.created_on);
                restored.added += 1;
            }
            let spans = record.policies.iter();
            let spans = spans.map(|change| PolicySpan { since: change.since, policy: policies.intern(&change.policy) });
            let spans = spans.collect();
            policies.set_history(record.number, spans);
        }
        restored
    }

    /// Rows for the metrics table, in the order of `numbers`. Numbers that no metric has are left out.
    pub fn records(&self, numbers: &[u32]) -> Vec<MetricRecord> {
        let policies = self.policies.read();
        let table = self.names.read();
        let known = numbers.iter().filter_map(|&number| table.record(number));
        let rows = known.map(|record| MetricRecord {
            number: record.number,
            name: text(record.name).to_owned(),
            created_on: Timestamp::from(record.created),
            policies: policies
                .history(record.number, record.policy)
                .iter()
                .filter_map(|span| {
                    let policy = policies.get(span.policy)?;
                    Some(PolicyChange { since: span.since, policy: Policy::clone(policy) })
                })
                .collect(),
        });
        rows.collect()
    }

    /// From `since` (Unix seconds) on, a metric is kept by another policy. Nothing happens when it already
    /// is, or when no metric has the number.
    pub fn set_policy(&self, number: u32, policy: PolicyId, since: Timestamp) {
        let mut policies = self.policies.write();
        let mut table = self.names.write();
        let Some(old) = table.record(number).map(|record| record.policy) else { return };
        if old == policy {
            return;
        }
        let place = table.places[number as usize];
        table.arena.set_policy(place, policy);
        policies.change(number, old, policy, since);
    }

    /// Every policy a metric was kept by, oldest first, or `None` when no metric has the number.
    pub fn policies(&self, number: u32) -> Option<PolicyHistory> {
        let policies = self.policies.read();
        let current = self.names.read().record(number)?.policy;
        Some(policies.history(number, current))
    }

    /// Metrics known, tagged ones included.
    pub fn len(&self) -> usize {
        self.names.read().names
    }

    /// Whether no metric is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let policies = self.policies.read().memory_bytes();
        let table = self.names.read();
        let columns = (table.places.len() + table.tail.len()) * size_of::<u32>();
        policies + columns + table.arena.memory_bytes() + table.numbers.memory_bytes()
    }

    /// Merges what is new into the path index, when there is enough of it. Called by a maintenance thread
    /// every 100 ms to a second; returns whether there was something to do, in which case there may be more.
    pub fn compact(&self) -> bool {
        false
    }

    /// The nodes that a pattern names: metrics and branches of exactly its depth (of any, with `**`).
    ///
    /// Tagged metrics are not in the tree; a pattern that has a `;` is the exact name of one.
    pub fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        if is_tagged(pattern) {
            return self.exact(pattern);
        }
        self.walk(pattern, limits, false)
    }

    /// The metrics that a pattern names, to be read: nodes with a number. The exact name of a metric, tagged
    /// or not, costs one lookup.
    pub fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        if is_tagged(pattern) {
            return self.exact(pattern);
        }
        if !pattern::is_pattern(pattern) {
            return self.exact(&pattern::plain_name(pattern));
        }
        self.walk(pattern, limits, true)
    }

    /// Calls `each` with the number and name of every metric in the order of names, until it returns false.
    /// Tagged metrics come after the others, as they are not in the tree.
    pub fn all(&self, mut each: impl FnMut(u32, &str) -> bool) {
        let table = self.names.read();
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        for number in 0..table.places.len() as u32 {
            if let Some(record) = table.record(number) {
                names.insert(text(record.name), number);
            }
        }
        for tagged in [false, true] {
            for (name, &number) in &names {
                if is_tagged(name) == tagged && !each(number, name) {
                    return;
                }
            }
        }
    }

    fn exact(&self, name: &str) -> Result<Found, FindError> {
        let mut found = Found::default();
        let hash = self.hash(name.as_bytes());
        if let Some(number) = self.read().find(hash, name.as_bytes()) {
            found.push(name, number, false)?;
        }
        Ok(found)
    }

    fn walk(&self, pattern: &str, limits: &FindLimits, leaves_only: bool) -> Result<Found, FindError> {
        let Some(dfa) = pattern::automaton(pattern)? else { return Ok(Found::default()) };
        let mut cache = dfa.create_cache();
        let too_complex = |_| FindError::TooComplex;
        let start = dfa.start_state(&mut cache, &pattern::start()).map_err(|_| FindError::TooComplex)?;
        let mut budget = Budget::new(limits);
        let mut nodes: BTreeMap<String, (u32, bool)> = BTreeMap::new();
        let table = self.names.read();
        for &number in &table.tail {
            let Some(record) = table.record(number) else { continue };
            let mut state = start;
            budget.spend(record.name.len() as u64)?;
            for end in 0..=record.name.len() {
                let at_end = end == record.name.len();
                if at_end || record.name[end] == b'.' {
                    let eoi = dfa.next_eoi_state(&mut cache, state).map_err(too_complex)?;
                    if eoi.is_match() && (at_end || !leaves_only) {
                        let path = text(&record.name[..end]);
                        let node = nodes.entry(path.to_owned()).or_insert((NO_METRIC, false));
                        if at_end {
                            node.0 = number;
                        } else {
                            node.1 = true;
                        }
                    }
                }
                if at_end {
                    break;
                }
                state = dfa.next_state(&mut cache, state, record.name[end]).map_err(too_complex)?;
                if state.is_dead() {
                    break;
                }
            }
        }
        budget.check_nodes(nodes.len())?;
        let mut found = Found::default();
        for (path, (number, is_branch)) in nodes {
            found.push(&path, number, is_branch)?;
        }
        Ok(found)
    }
}

/// Names are checked when they come in; what is in the arena is text.
fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("names in the arena are UTF-8")
}

impl Table {
    #[inline]
    fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        let place = self.numbers.find(hash, |place| self.arena.get(place).name == name)?;
        Some(self.arena.get(place).number)
    }

    #[inline]
    fn record(&self, number: u32) -> Option<Record<'_>> {
        let place = *self.places.get(number as usize)?;
        (place != NOWHERE).then(|| self.arena.get(place))
    }

    /// Adds a metric. Neither its name nor its number is there yet.
    fn insert(&mut self, hash: u64, number: u32, name: &str, policy: PolicyId, created_on: Timestamp) {
        let created = created_on.clamp(0, Timestamp::from(u32::MAX)) as u32;
        let place = self.arena.push(Record { number, created, policy, name: name.as_bytes() });
        let index = number as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = place;
        self.numbers.insert(hash, place);
        self.names += 1;
        if is_tagged(name) {
            self.tagged += 1;
        } else {
            self.tail.push(number);
        }
    }
}

/// Shared access to names: see [`Registry::read`].
pub struct Names<'a> {
    table: RwLockReadGuard<'a, Table>,
}

impl Names<'_> {
    /// The number of the metric with exactly this name, whose [`Registry::hash`] is `hash`.
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.table.find(hash, name)
    }

    /// The name of a metric; empty when no metric has the number.
    pub fn name(&self, number: u32) -> &str {
        self.table.record(number).map_or("", |record| text(record.name))
    }

    /// The policy that holds for a metric now.
    ///
    /// # Panics
    /// When no metric has the number.
    #[inline]
    pub fn policy_id(&self, number: u32) -> PolicyId {
        self.table.record(number).expect("a metric's number comes from the registry").policy
    }

    /// When a metric was created, Unix seconds.
    ///
    /// # Panics
    /// When no metric has the number.
    pub fn created_on(&self, number: u32) -> Timestamp {
        Timestamp::from(self.table.record(number).expect("a metric's number comes from the registry").created)
    }

    /// The number after the highest in use: what per-metric columns are sized by.
    pub fn end(&self) -> u32 {
        self.table.places.len() as u32
    }

    /// Asks the processor to fetch what [`Names::find`] will look at. Worth it where the hashes of a batch are
    /// known before its names are looked up.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.numbers.prefetch(hash);
    }
}

/// Exclusive access to names: see [`Registry::write`].
pub struct NamesMut<'a> {
    table: RwLockWriteGuard<'a, Table>,
}

impl NamesMut<'_> {
    /// As [`Names::find`].
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.table.find(hash, name)
    }

    /// The number of the metric with this name, which is created when it is not there: another thread may
    /// have been quicker. `name` is canonical ([`metric::canonical_name`]), `hash` is its [`Registry::hash`], `policy`
    /// comes from [`Registry::intern`], `now` is in Unix seconds.
    ///
    /// # Panics
    /// When the name is longer than a canonical one can be, and at 2³² - 1 metrics.
    pub fn create(&mut self, hash: u64, name: &str, policy: PolicyId, now: Timestamp) -> u32 {
        assert!(name.len() <= MAX_NAME_BYTES, "a canonical name has at most {MAX_NAME_BYTES} bytes");
        if let Some(number) = self.table.find(hash, name.as_bytes()) {
            return number;
        }
        let number = self.table.places.len() as u32;
        assert!(number != NO_METRIC, "a registry numbers at most 2^32 - 1 metrics");
        self.table.insert(hash, number, name, policy, now);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_the_moment_it_is_created() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in ["a.b", "a.b.c", "a.d-é.c", "x;t=v"] {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        }
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|n| format!("{}:{}{}", n.path, n.is_leaf as u8, n.is_branch as u8)).collect::<Vec<_>>()
        };
        assert_eq!(paths("a.*"), ["a.b:11", "a.d-é:01"]);
        assert_eq!(paths("a.d-?.[a-c]"), ["a.d-é.c:10"]);
        assert_eq!(paths("a.{b,d-é}.c"), ["a.b.c:10", "a.d-é.c:10"]);
        assert_eq!(paths("x;t=v"), ["x;t=v:10"]);
        assert_eq!(paths("**"), ["a:01", "a.b:11", "a.b.c:10", "a.d-é:01", "a.d-é.c:10"]);
        assert_eq!(paths("a[b.c"), Vec::<String>::new());
    }
}
