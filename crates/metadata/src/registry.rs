//! The registry: numbers, names and policies of metrics.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;
use metric::{MAX_NAME_BYTES, Policy, Timestamp, is_tagged};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::{MetricRecord, PolicyChange};

use crate::{
    PolicyHistory, PolicyId, PolicySpan,
    arena::{Arena, NOWHERE, Place, Record},
    find::NO_METRIC,
    numbers::Numbers,
    policies::Policies,
    segment::Segment,
};

/// Every metric this node knows.
///
/// Numbers are dense, begin at 0, persist in the metrics table and are never reused. All methods may be
/// called from any thread. A thread that holds [`Registry::read`] or [`Registry::write`] must let go of it
/// before it calls any other method but [`Registry::hash`], [`Registry::intern`], [`Registry::policy`] and
/// [`Registry::policy_count`]:
/// a waiting writer goes before a reader that comes again.
pub struct Registry {
    seed: RandomState,
    pub(crate) names: RwLock<Table>,
    // Taken after `names` where both are: whoever holds names may ask for a policy.
    pub(crate) policies: RwLock<Policies>,
    // Held by whoever changes the segments. Names there were at the last call of `compact`.
    pub(crate) compacting: Mutex<usize>,
}

/// What the lock of names guards.
pub(crate) struct Table {
    pub arena: Arena,
    numbers: Numbers,
    // The place of each number's record; NOWHERE where a number has none.
    pub places: Vec<Place>,
    // Names, not numbers: without the holes that a restore may leave.
    pub names: usize,
    // The path index: every untagged name is in one segment or in the tail. The largest segment first.
    pub segments: Vec<Arc<Segment>>,
    // Numbers in the order they came.
    pub tail: Vec<u32>,
    // Numbers of the names with tags, hidden ones included.
    pub tagged: Vec<u32>,
    // Metrics that are no more, though their numbers are: see `Registry::hide`.
    pub hidden: HashSet<u32>,
    // Names that have a number and are no metrics yet: see `Registry::reserve`. Few, and not for long.
    pub reserved: HashMap<Box<str>, u32>,
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

/// What [`Registry::take_in`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenIn {
    /// Metrics that were not known.
    pub added: usize,
    /// Numbers of those that were created meanwhile, and are kept by another policy than their record says.
    pub overtaken: Vec<u32>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Registry {
        Registry::of(Table::new(), Policies::new())
    }

    pub(crate) fn of(table: Table, policies: Policies) -> Registry {
        Registry {
            seed: RandomState::default(),
            policies: RwLock::new(policies),
            names: RwLock::new(table),
            compacting: Mutex::new(0),
        }
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

    /// As [`Registry::intern`], for a policy of tables that are shared: `None` when it is new and there are 4,096, far more than
    /// anybody means to have.
    pub fn try_intern(&self, policy: &Policy) -> Option<PolicyId> {
        self.policies.write().try_intern(policy)
    }

    /// The policy with a number that [`Registry::intern`] gave.
    ///
    /// # Panics
    /// When no policy has the number.
    pub fn policy(&self, id: PolicyId) -> Arc<Policy> {
        self.policies.read().get(id).expect("a policy number comes from intern").clone()
    }

    /// How many distinct policies there are: their numbers are 0 to this.
    pub fn policy_count(&self) -> usize {
        self.policies.read().distinct().len()
    }

    /// Takes over rows of the metrics table, in any order and any batches, each any number of times.
    pub fn restore(&self, records: Vec<MetricRecord>) -> Restored {
        let mut restored = Restored::default();
        let mut table = self.names.write();
        let mut policies = self.policies.write();
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
                table.show(record.number);
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
        let table = self.names.read();
        let policies = self.policies.read();
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
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        let Some(old) = table.record(number).map(|record| record.policy) else { return };
        if old == policy {
            return;
        }
        let place = table.places[number as usize];
        table.arena.set_policy(place, policy);
        policies.change(number, old, policy, since);
    }

    /// Gives numbers to metrics that were found in tables that are shared; [`Registry::take_in`] makes them known. Brings
    /// back those that are known and hidden, and leaves out all that are known, and names longer than names may be.
    ///
    /// A number belongs to its name from here on, whoever comes first: [`NamesMut::create`] of the same name takes it, and
    /// so does the next call of this. So no name ever has two, though the caller has yet to remember them.
    pub fn reserve<T>(&self, found: Vec<T>, name_of: impl Fn(&T) -> &str) -> Vec<(u32, T)> {
        let mut table = self.names.write();
        let mut unknown = Vec::with_capacity(found.len());
        for one in found {
            let name = name_of(&one);
            // Whoever made such a name, this program cannot keep it.
            if name.is_empty() || name.len() > MAX_NAME_BYTES {
                continue;
            }
            if let Some(number) = table.find(self.hash(name.as_bytes()), name.as_bytes()) {
                table.show(number);
                continue;
            }
            let number = match table.reserved.get(name) {
                Some(&number) => number,
                None => {
                    let number = table.places.len() as u32;
                    assert!(number != NO_METRIC, "a registry numbers at most 2^32 - 1 metrics");
                    table.places.push(NOWHERE);
                    table.reserved.insert(name.into(), number);
                    number
                }
            };
            unknown.push((number, one));
        }
        unknown
    }

    /// Makes metrics known under the numbers that [`Registry::reserve`] gave them. Those that were created meanwhile stay as
    /// they are.
    pub fn take_in(&self, records: &[MetricRecord]) -> TakenIn {
        let mut taken = TakenIn::default();
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        for record in records {
            let Some(last) = record.policies.last() else { continue };
            let policy = policies.intern(&last.policy);
            if table.reserved.get(&*record.name) == Some(&record.number) {
                table.reserved.remove(&*record.name);
                let hash = self.hash(record.name.as_bytes());
                table.insert(hash, record.number, &record.name, policy, record.created_on);
                taken.added += 1;
            } else if table.record(record.number).is_some_and(|known| known.policy != policy) {
                taken.overtaken.push(record.number);
            }
        }
        taken
    }

    /// Takes metrics out of sight: somebody deleted them from tables that are shared. Their numbers, names and
    /// policies stay, for points that are on their way; [`NamesMut::create`] of the same name brings one back
    /// under its old number. Rebuilds the path index: seconds for millions of names, beside the lock.
    pub fn hide(&self, numbers: &[u32]) {
        let _compacting = self.compacting.lock();
        let gone: HashSet<u32> = {
            let table = &mut *self.names.write();
            let is_shown = |number: &u32| table.record(*number).is_some() && !table.hidden.contains(number);
            let gone: HashSet<u32> = numbers.iter().copied().filter(is_shown).collect();
            table.hidden.extend(&gone);
            table.names -= gone.len();
            table.tail.retain(|number| !gone.contains(number));
            gone
        };
        if !gone.is_empty() {
            self.rebuild_without(&gone);
        }
    }

    /// Every policy a metric was kept by, oldest first, or `None` when no metric has the number.
    pub fn policies(&self, number: u32) -> Option<PolicyHistory> {
        let table = self.names.read();
        let current = table.record(number)?.policy;
        Some(self.policies.read().history(number, current))
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
        let columns = (table.places.len() + table.tail.len() + table.tagged.len()) * size_of::<u32>();
        let segments = table.segments.iter().map(|segment| segment.memory_bytes()).sum::<usize>();
        policies + columns + segments + table.arena.memory_bytes() + table.numbers.memory_bytes()
    }
}

/// Names are checked when they come in; what is in the arena is text.
pub(crate) fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("names in the arena are UTF-8")
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            arena: Arena::new(),
            numbers: Numbers::new(),
            places: Vec::new(),
            names: 0,
            segments: Vec::new(),
            tail: Vec::new(),
            tagged: Vec::new(),
            hidden: HashSet::new(),
            reserved: HashMap::new(),
        }
    }

    /// Makes room for names.
    pub(crate) fn reserve(&mut self, names: usize) {
        self.numbers.reserve(names);
    }

    /// Adds a name that is in the arena to the hash table.
    pub(crate) fn add_place(&mut self, hash: u64, place: Place) {
        self.numbers.insert(hash, place);
        self.names += 1;
    }

    /// Also what is hidden.
    #[inline]
    fn find(&self, hash: u64, name: &[u8]) -> Option<u32> {
        let place = self.numbers.find(hash, |place| self.arena.get(place).name == name)?;
        Some(self.arena.get(place).number)
    }

    #[inline]
    fn find_shown(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.find(hash, name).filter(|number| self.hidden.is_empty() || !self.hidden.contains(number))
    }

    /// Brings a hidden metric back, and tells whether it was one.
    fn show(&mut self, number: u32) -> bool {
        let was_hidden = self.hidden.remove(&number);
        if was_hidden {
            self.names += 1;
            if self.record(number).is_some_and(|record| !is_tagged(text(record.name))) {
                self.tail.push(number);
            }
        }
        was_hidden
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
        self.add_place(hash, place);
        if is_tagged(name) {
            self.tagged.push(number);
        } else {
            self.tail.push(number);
        }
    }

    /// Adds a segment at the place that its size gives it.
    pub(crate) fn add_segment(&mut self, segment: Segment) {
        let at = self.segments.partition_point(|other| other.len() >= segment.len());
        self.segments.insert(at, Arc::new(segment));
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
        self.table.find_shown(hash, name)
    }

    /// The name of a metric; empty when no metric has the number.
    pub fn name(&self, number: u32) -> &str {
        self.table.record(number).map_or("", |record| text(record.name))
    }

    /// Whether a metric has the number, and is not hidden.
    pub fn is_shown(&self, number: u32) -> bool {
        self.table.record(number).is_some() && (self.table.hidden.is_empty() || !self.table.hidden.contains(&number))
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
        self.table.find_shown(hash, name)
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
            self.table.show(number);
            return number;
        }
        let reserved = if self.table.reserved.is_empty() { None } else { self.table.reserved.remove(name) };
        let number = reserved.unwrap_or(self.table.places.len() as u32);
        assert!(number != NO_METRIC, "a registry numbers at most 2^32 - 1 metrics");
        self.table.insert(hash, number, name, policy, now);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FindLimits;

    #[test]
    fn a_hidden_metric_is_gone_with_its_directories_and_comes_back_under_its_number() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, policy, 7);
        let numbers: Vec<u32> = ["a.b", "a.c.d", "e.f", "x;t=v"].into_iter().map(create).collect();
        registry.compact_fully();
        let late = create("g.h");
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|node| node.path.to_owned()).collect::<Vec<_>>()
        };
        registry.hide(&[numbers[1], numbers[2], numbers[3], late, 99]);
        assert_eq!((paths("**"), registry.len()), (vec!["a".to_owned(), "a.b".to_owned()], 1));
        assert_eq!((paths("e.f"), paths("x;t=v")), (vec![], vec![]));
        assert_eq!(registry.read().name(numbers[1]), "a.c.d");
        assert_eq!(create("a.c.d"), numbers[1]);
        assert_eq!((paths("a.c.*"), registry.len()), (vec!["a.c.d".to_owned()], 2));
        registry.compact_fully();
        assert_eq!(paths("a.*"), ["a.b", "a.c"]);
        registry.hide(&numbers);
        assert_eq!((paths("**"), registry.len()), (vec![], 0));
    }

    #[test]
    fn a_name_has_one_number_whoever_comes_first() {
        let registry = Registry::new();
        let own = registry.intern(&Policy::default());
        let theirs = Policy { x_files_factor: 0.25, ..Policy::default() };
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, own, 7);
        let known = create("a");
        let reserve = |names: &[&'static str]| registry.reserve(names.to_vec(), |name| name);
        assert_eq!(reserve(&["a", "b", "c;t=v", "d"]), [(1, "b"), (2, "c;t=v"), (3, "d")]);
        assert_eq!((reserve(&["d", "e", "d"]), registry.len()), (vec![(3, "d"), (4, "e"), (3, "d")], 1));
        assert_eq!(registry.read().find(registry.hash(b"b"), b"b"), None);
        // A point comes for one of them, and for a new one.
        assert_eq!((create("d"), create("f")), (3, 5));

        let record = |number: u32, name: &str| MetricRecord {
            number,
            name: name.to_owned(),
            created_on: 3,
            policies: vec![PolicyChange { since: 0, policy: theirs.clone() }],
        };
        let records = [record(1, "b"), record(2, "c;t=v"), record(3, "d")];
        assert_eq!(registry.take_in(&records), TakenIn { added: 2, overtaken: vec![3] });
        assert_eq!(registry.take_in(&records), TakenIn { added: 0, overtaken: vec![3] });
        let names = registry.read();
        let found: Vec<Option<u32>> = ["a", "b", "c;t=v", "d", "e"]
            .map(|name| names.find(registry.hash(name.as_bytes()), name.as_bytes()))
            .into();
        assert_eq!(found, [Some(known), Some(1), Some(2), Some(3), None]);
        assert_eq!((names.policy_id(3), names.policy_id(1) != own, names.created_on(1)), (own, true, 3));
        drop(names);
        registry.hide(&[1]);
        assert_eq!((reserve(&["b"]), registry.len()), (vec![], 5));
    }

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
