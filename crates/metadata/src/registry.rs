//! The registry: ids, names and policies of metrics.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use foldhash::fast::RandomState;
use metric::{MAX_NAME_BYTES, MetricId, Policy, Timestamp, is_tagged};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::{MetricRecord, PolicyChange};

use crate::{
    PolicyHistory, PolicyId, PolicySpan,
    arena::{Arena, NOWHERE, Place, Record},
    name_table::NameTable,
    policies::Policies,
    segment::Segment,
};

/// Every metric this node knows.
///
/// Ids are dense, begin at 0, persist in the metrics table and are never reused. All methods may be
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
    by_name: NameTable,
    // The place of each id's record; NOWHERE where an id has none.
    pub places: Vec<Place>,
    // Names, not ids: without the holes that a restore may leave.
    pub names: usize,
    // The path index: every untagged name is in one segment or in the tail. The largest segment first.
    pub segments: Vec<Arc<Segment>>,
    // Ids in the order they came.
    pub tail: Vec<MetricId>,
    // Ids of the names with tags, hidden ones included.
    pub tagged: Vec<MetricId>,
    // Metrics that are no more, though their ids are: see `Registry::hide`.
    pub hidden: HashSet<MetricId>,
    // Names that have an id and are no metrics yet: see `Registry::reserve`. Few, and not for long.
    pub reserved: HashMap<Box<str>, MetricId>,
}

/// What a restore did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Metrics that were not known.
    pub added: usize,
    /// Metrics that were known by the same id and name; their policies were replaced.
    pub known: usize,
    /// Records left out: the id has another name, the name has another id, or the name
    /// is longer than names may be. None in a store that is whole and that belongs to this registry.
    pub conflicts: usize,
}

/// What [`Registry::take_in`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TakenIn {
    /// Metrics that were not known.
    pub added: usize,
    /// Ids of those that were created meanwhile, and are kept by another policy than their record says.
    pub overtaken: Vec<MetricId>,
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

    /// The id of a policy, which is given one when it is new. Ids hold for the life of the process
    /// and in what [`Registry::save`] writes, not in the metrics table.
    pub fn intern(&self, policy: &Policy) -> PolicyId {
        self.policies.write().intern(policy)
    }

    /// As [`Registry::intern`], for a policy of tables that are shared: `None` when it is new and there are 4,096, far more than
    /// anybody means to have.
    pub fn try_intern(&self, policy: &Policy) -> Option<PolicyId> {
        self.policies.write().try_intern(policy)
    }

    /// The policy with an id that [`Registry::intern`] gave.
    ///
    /// # Panics
    /// When no policy has the id.
    pub fn policy(&self, id: PolicyId) -> Arc<Policy> {
        self.policies.read().get(id).expect("a policy id comes from intern").clone()
    }

    /// How many distinct policies there are: their ids are 0 to this.
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
            let holder = table.record(record.id).is_some();
            if known.is_some_and(|id| id != record.id)
                || (known.is_none() && holder)
                || record.name.len() > MAX_NAME_BYTES
                || record.id == MetricId::NONE
            {
                restored.conflicts += 1;
                continue;
            }
            let policy = policies.intern(&last.policy);
            if known.is_some() {
                let place = table.places[record.id.index()];
                table.arena.set_policy(place, policy);
                table.show(record.id);
                restored.known += 1;
            } else {
                table.insert(hash, record.id, &record.name, policy, record.created_on);
                restored.added += 1;
            }
            let spans = record.policies.iter();
            let spans = spans.map(|change| PolicySpan { since: change.since, policy: policies.intern(&change.policy) });
            let spans = spans.collect();
            policies.set_history(record.id, spans);
        }
        restored
    }

    /// Rows for the metrics table, in the order of `ids`. Ids that no metric has are left out.
    pub fn records(&self, ids: &[MetricId]) -> Vec<MetricRecord> {
        let table = self.names.read();
        let policies = self.policies.read();
        let known = ids.iter().filter_map(|&id| table.record(id));
        let rows = known.map(|record| MetricRecord {
            id: record.id,
            name: text(record.name).to_owned(),
            created_on: Timestamp::from(record.created),
            policies: policies
                .history(record.id, record.policy)
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
    /// is, or when no metric has the id.
    pub fn set_policy(&self, id: MetricId, policy: PolicyId, since: Timestamp) {
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        let Some(old) = table.record(id).map(|record| record.policy) else { return };
        if old == policy {
            return;
        }
        let place = table.places[id.index()];
        table.arena.set_policy(place, policy);
        policies.change(id, old, policy, since);
    }

    /// Gives ids to metrics that were found in tables that are shared; [`Registry::take_in`] makes them known. Brings
    /// back those that are known and hidden, and leaves out all that are known, and names longer than names may be.
    ///
    /// An id belongs to its name from here on, whoever comes first: [`NamesMut::create`] of the same name takes it, and
    /// so does the next call of this. So no name ever has two, though the caller has yet to remember them.
    pub fn reserve<T>(&self, found: Vec<T>, name_of: impl Fn(&T) -> &str) -> Vec<(MetricId, T)> {
        let mut table = self.names.write();
        let mut unknown = Vec::with_capacity(found.len());
        for one in found {
            let name = name_of(&one);
            // Whoever made such a name, this program cannot keep it.
            if name.is_empty() || name.len() > MAX_NAME_BYTES {
                continue;
            }
            if let Some(id) = table.find(self.hash(name.as_bytes()), name.as_bytes()) {
                table.show(id);
                continue;
            }
            let id = match table.reserved.get(name) {
                Some(&id) => id,
                None => {
                    let id = MetricId(table.places.len() as u32);
                    assert!(id != MetricId::NONE, "a registry gives out at most 2^32 - 1 metrics");
                    table.places.push(NOWHERE);
                    table.reserved.insert(name.into(), id);
                    id
                }
            };
            unknown.push((id, one));
        }
        unknown
    }

    /// Makes metrics known under the ids that [`Registry::reserve`] gave them. Those that were created meanwhile stay as
    /// they are.
    pub fn take_in(&self, records: &[MetricRecord]) -> TakenIn {
        let mut taken = TakenIn::default();
        let mut table = self.names.write();
        let mut policies = self.policies.write();
        for record in records {
            let Some(last) = record.policies.last() else { continue };
            let policy = policies.intern(&last.policy);
            if table.reserved.get(&*record.name) == Some(&record.id) {
                table.reserved.remove(&*record.name);
                let hash = self.hash(record.name.as_bytes());
                table.insert(hash, record.id, &record.name, policy, record.created_on);
                taken.added += 1;
            } else if table.record(record.id).is_some_and(|known| known.policy != policy) {
                taken.overtaken.push(record.id);
            }
        }
        taken
    }

    /// Takes metrics out of sight: somebody deleted them from tables that are shared. Their ids, names and
    /// policies stay, for points that are on their way; [`NamesMut::create`] of the same name brings one back
    /// under its old id. Rebuilds the path index: seconds for millions of names, beside the lock.
    pub fn hide(&self, ids: &[MetricId]) {
        let _compacting = self.compacting.lock();
        let gone: HashSet<MetricId> = {
            let table = &mut *self.names.write();
            let is_shown = |id: &MetricId| table.record(*id).is_some() && !table.hidden.contains(id);
            let gone: HashSet<MetricId> = ids.iter().copied().filter(is_shown).collect();
            table.hidden.extend(&gone);
            table.names -= gone.len();
            table.tail.retain(|id| !gone.contains(id));
            gone
        };
        if !gone.is_empty() {
            self.rebuild_without(&gone);
        }
    }

    /// Every policy a metric was kept by, oldest first, or `None` when no metric has the id.
    pub fn policies(&self, id: MetricId) -> Option<PolicyHistory> {
        let table = self.names.read();
        let current = table.record(id)?.policy;
        Some(self.policies.read().history(id, current))
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
        policies + columns + segments + table.arena.memory_bytes() + table.by_name.memory_bytes()
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
            by_name: NameTable::new(),
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
        self.by_name.reserve(names);
    }

    /// Adds a name that is in the arena to the hash table.
    pub(crate) fn add_place(&mut self, hash: u64, place: Place) {
        self.by_name.insert(hash, place);
        self.names += 1;
    }

    /// Also what is hidden.
    #[inline]
    fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        let place = self.by_name.find(hash, |place| self.arena.get(place).name == name)?;
        Some(self.arena.get(place).id)
    }

    #[inline]
    fn find_shown(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.find(hash, name).filter(|id| self.hidden.is_empty() || !self.hidden.contains(id))
    }

    /// Brings a hidden metric back, and tells whether it was one.
    fn show(&mut self, id: MetricId) -> bool {
        let was_hidden = self.hidden.remove(&id);
        if was_hidden {
            self.names += 1;
            if self.record(id).is_some_and(|record| !is_tagged(text(record.name))) {
                self.tail.push(id);
            }
        }
        was_hidden
    }

    #[inline]
    fn record(&self, id: MetricId) -> Option<Record<'_>> {
        let place = *self.places.get(id.index())?;
        (place != NOWHERE).then(|| self.arena.get(place))
    }

    /// Adds a metric. Neither its name nor its id is there yet.
    fn insert(&mut self, hash: u64, id: MetricId, name: &str, policy: PolicyId, created_on: Timestamp) {
        let created = created_on.clamp(0, Timestamp::from(u32::MAX)) as u32;
        let place = self.arena.push(Record { id, created, policy, name: name.as_bytes() });
        let index = id.index();
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = place;
        self.add_place(hash, place);
        if is_tagged(name) {
            self.tagged.push(id);
        } else {
            self.tail.push(id);
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
    /// The id of the metric with exactly this name, whose [`Registry::hash`] is `hash`.
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.table.find_shown(hash, name)
    }

    /// The name of a metric; empty when no metric has the id.
    pub fn name(&self, id: MetricId) -> &str {
        self.table.record(id).map_or("", |record| text(record.name))
    }

    /// Whether a metric has the id, and is not hidden.
    pub fn is_shown(&self, id: MetricId) -> bool {
        self.table.record(id).is_some() && (self.table.hidden.is_empty() || !self.table.hidden.contains(&id))
    }

    /// The policy that holds for a metric now.
    ///
    /// # Panics
    /// When no metric has the id.
    #[inline]
    pub fn policy_id(&self, id: MetricId) -> PolicyId {
        self.table.record(id).expect("a metric's id comes from the registry").policy
    }

    /// When a metric was created, Unix seconds.
    ///
    /// # Panics
    /// When no metric has the id.
    pub fn created_on(&self, id: MetricId) -> Timestamp {
        Timestamp::from(self.table.record(id).expect("a metric's id comes from the registry").created)
    }

    /// The id after the highest in use: what per-metric columns are sized by.
    pub fn end(&self) -> MetricId {
        MetricId(self.table.places.len() as u32)
    }

    /// Asks the processor to fetch what [`Names::find`] will look at. Worth it where the hashes of a batch are
    /// known before its names are looked up.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.by_name.prefetch(hash);
    }
}

/// Exclusive access to names: see [`Registry::write`].
pub struct NamesMut<'a> {
    table: RwLockWriteGuard<'a, Table>,
}

impl NamesMut<'_> {
    /// As [`Names::find`].
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.table.find_shown(hash, name)
    }

    /// The id of the metric with this name, which is created when it is not there: another thread may
    /// have been quicker. `name` is canonical ([`metric::canonical_name`]), `hash` is its [`Registry::hash`], `policy`
    /// comes from [`Registry::intern`], `now` is in Unix seconds.
    ///
    /// # Panics
    /// When the name is longer than a canonical one can be, and at 2³² - 1 metrics.
    pub fn create(&mut self, hash: u64, name: &str, policy: PolicyId, now: Timestamp) -> MetricId {
        assert!(name.len() <= MAX_NAME_BYTES, "a canonical name has at most {MAX_NAME_BYTES} bytes");
        if let Some(id) = self.table.find(hash, name.as_bytes()) {
            self.table.show(id);
            return id;
        }
        let reserved = if self.table.reserved.is_empty() { None } else { self.table.reserved.remove(name) };
        let id = reserved.unwrap_or(MetricId(self.table.places.len() as u32));
        assert!(id != MetricId::NONE, "a registry gives out at most 2^32 - 1 metrics");
        self.table.insert(hash, id, name, policy, now);
        id
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
        let ids: Vec<MetricId> = ["a.b", "a.c.d", "e.f", "x;t=v"].into_iter().map(create).collect();
        registry.compact_fully();
        let late = create("g.h");
        let paths = |pattern: &str| {
            let found = registry.find(pattern, &FindLimits::default()).unwrap();
            found.iter().map(|node| node.path.to_owned()).collect::<Vec<_>>()
        };
        registry.hide(&[ids[1], ids[2], ids[3], late, MetricId(99)]);
        assert_eq!((paths("**"), registry.len()), (vec!["a".to_owned(), "a.b".to_owned()], 1));
        assert_eq!((paths("e.f"), paths("x;t=v")), (vec![], vec![]));
        assert_eq!(registry.read().name(ids[1]), "a.c.d");
        assert_eq!(create("a.c.d"), ids[1]);
        assert_eq!((paths("a.c.*"), registry.len()), (vec!["a.c.d".to_owned()], 2));
        registry.compact_fully();
        assert_eq!(paths("a.*"), ["a.b", "a.c"]);
        registry.hide(&ids);
        assert_eq!((paths("**"), registry.len()), (vec![], 0));
    }

    #[test]
    fn a_name_has_one_id_whoever_comes_first() {
        let registry = Registry::new();
        let own = registry.intern(&Policy::default());
        let theirs = Policy { x_files_factor: 0.25, ..Policy::default() };
        let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, own, 7);
        let known = create("a");
        let reserve = |names: &[&'static str]| registry.reserve(names.to_vec(), |name| name);
        assert_eq!(
            reserve(&["a", "b", "c;t=v", "d"]),
            [(MetricId(1), "b"), (MetricId(2), "c;t=v"), (MetricId(3), "d")]
        );
        assert_eq!(
            (reserve(&["d", "e", "d"]), registry.len()),
            (vec![(MetricId(3), "d"), (MetricId(4), "e"), (MetricId(3), "d")], 1)
        );
        assert_eq!(registry.read().find(registry.hash(b"b"), b"b"), None);
        // A point comes for one of them, and for a new one.
        assert_eq!((create("d"), create("f")), (MetricId(3), MetricId(5)));

        let record = |id: u32, name: &str| MetricRecord {
            id: MetricId(id),
            name: name.to_owned(),
            created_on: 3,
            policies: vec![PolicyChange { since: 0, policy: theirs.clone() }],
        };
        let records = [record(1, "b"), record(2, "c;t=v"), record(3, "d")];
        assert_eq!(registry.take_in(&records), TakenIn { added: 2, overtaken: vec![MetricId(3)] });
        assert_eq!(registry.take_in(&records), TakenIn { added: 0, overtaken: vec![MetricId(3)] });
        let names = registry.read();
        let found: Vec<Option<MetricId>> = ["a", "b", "c;t=v", "d", "e"]
            .map(|name| names.find(registry.hash(name.as_bytes()), name.as_bytes()))
            .into();
        assert_eq!(found, [Some(known), Some(MetricId(1)), Some(MetricId(2)), Some(MetricId(3)), None]);
        assert_eq!(
            (names.policy_id(MetricId(3)), names.policy_id(MetricId(1)) != own, names.created_on(MetricId(1))),
            (own, true, 3)
        );
        drop(names);
        registry.hide(&[MetricId(1)]);
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
