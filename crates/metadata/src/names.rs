//! Names and their ids: the records, the hash table that finds them, and the guards that readers and writers hold.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use metric::{Column, MAX_NAME_BYTES, MetricId, Timestamp, is_tagged};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::{
    arena::{Arena, NOWHERE, Place, Record},
    name_table::NameTable,
    policies::PolicyId,
    segment::Segment,
    tag_changes::TagChanges,
};

/// The content of the lock of names.
pub(crate) struct Table {
    pub arena: Arena,
    pub(crate) by_name: NameTable,
    // The place of each id's record; NOWHERE where an id has none.
    pub places: Column<Place>,
    // Names, not ids: without the holes that a restore or a removal leaves.
    pub names: usize,
    // The path index: every untagged name is in one segment or in the tail. The largest segment first.
    pub segments: Vec<Arc<Segment>>,
    // Removed ids whose names are still in a segment. Shared with finds, which leave them out.
    pub removed: Arc<HashSet<MetricId>>,
    // Ids in the order of their creation.
    pub tail: Vec<MetricId>,
    // What the tag index does not know yet.
    pub tag_changes: TagChanges,
    // Bytes of the tag index, as of the last measurement.
    pub tag_index_bytes: usize,
    // Deleted metrics, whose ids stay: see `Registry::hide`.
    pub hidden: HashSet<MetricId>,
    // Names that have an id but no record yet: see `Registry::reserve`. Few, and not for long.
    pub reserved: HashMap<Box<str>, MetricId>,
}

/// Names are checked on creation, so the arena holds valid text.
pub(crate) fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("names in the arena are UTF-8")
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            arena: Arena::new(),
            by_name: NameTable::new(),
            places: Column::new(|| NOWHERE),
            names: 0,
            segments: Vec::new(),
            removed: Arc::default(),
            tail: Vec::new(),
            tag_changes: TagChanges::default(),
            tag_index_bytes: 0,
            hidden: HashSet::new(),
            reserved: HashMap::new(),
        }
    }

    /// Adds a name that is in the arena to the hash table.
    pub(crate) fn add_place(&mut self, hash: u64, place: Place) {
        self.by_name.insert(hash, place);
        self.names += 1;
    }

    /// Hidden metrics included.
    #[inline]
    pub(crate) fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        let place = self.by_name.find(hash, |place| self.arena.get(place).name == name)?;
        Some(self.arena.get(place).id)
    }

    #[inline]
    pub(crate) fn find_shown(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.find(hash, name).filter(|id| self.hidden.is_empty() || !self.hidden.contains(id))
    }

    /// Brings a hidden metric back, and tells whether it was one.
    pub(crate) fn show(&mut self, id: MetricId) -> bool {
        let was_hidden = self.hidden.remove(&id);
        if was_hidden {
            self.names += 1;
            match self.record(id).map(|record| is_tagged(text(record.name))) {
                Some(true) => self.tag_changes.hidden_or_shown(id),
                Some(false) => self.tail.push(id),
                None => {}
            }
        }
        was_hidden
    }

    #[inline]
    pub(crate) fn record(&self, id: MetricId) -> Option<Record<'_>> {
        let place = *self.places.get(id)?;
        (place != NOWHERE).then(|| self.arena.get(place))
    }

    /// Adds a metric. Neither its name nor its id is there yet.
    pub(crate) fn insert(&mut self, hash: u64, id: MetricId, name: &str, policy: PolicyId, created_on: Timestamp) {
        let created = created_on.clamp(0, Timestamp::from(u32::MAX)) as u32;
        let place = self.arena.push(Record { id, created, policy, name: name.as_bytes() });
        *self.places.entry(id) = place;
        self.add_place(hash, place);
        if is_tagged(name) {
            self.tag_changes.created(id, name);
        } else {
            self.tail.push(id);
        }
    }

    /// No segment has the removed metrics of these segments any more.
    pub(crate) fn forget_removed(&mut self, segments: &[Arc<Segment>]) {
        if self.removed.is_empty() {
            return;
        }
        let removed = Arc::make_mut(&mut self.removed);
        for id in segments.iter().flat_map(|segment| &segment.ids) {
            removed.remove(id);
        }
        removed.shrink_to(removed.len() * 2);
    }

    /// Bytes of memory that names take, the index of those in the tail included, which is made later.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = (self.tail.len() + self.removed.len()) * size_of::<u64>();
        let tags = self.tag_index_bytes + self.tag_changes.memory_bytes();
        let segments = self.segments.iter().map(|segment| segment.memory_bytes()).sum::<usize>();
        let arena = self.arena.memory_bytes();
        let unindexed = self.tail.len() * self.bytes_per_name();
        lists + tags + segments + arena + unindexed + self.places.memory_bytes() + self.by_name.memory_bytes()
    }

    /// Bytes of a name in memory, on average.
    pub(crate) fn bytes_per_name(&self) -> usize {
        self.arena.memory_bytes() / self.names.max(1)
    }

    /// Adds a segment at the place that its size gives it.
    pub(crate) fn add_segment(&mut self, segment: Segment) {
        let at = self.segments.partition_point(|other| other.len() >= segment.len());
        self.segments.insert(at, Arc::new(segment));
    }
}

/// Shared access to names: see [`Registry::read`](crate::Registry::read).
pub struct Names<'a> {
    pub(crate) table: RwLockReadGuard<'a, Table>,
}

impl Names<'_> {
    /// As [`Names::find`], also a metric that is hidden.
    pub fn find_hidden_too(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.table.find(hash, name)
    }

    /// The id of the metric with exactly this name, whose [`Registry::hash`](crate::Registry::hash) is `hash`.
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.table.find_shown(hash, name)
    }

    /// The name of a metric; empty when no metric has the id.
    pub fn name(&self, id: MetricId) -> &str {
        self.table.record(id).map_or("", |record| text(record.name))
    }

    /// Whether a metric has the id, and is not hidden. Does not read its record.
    pub fn is_shown(&self, id: MetricId) -> bool {
        self.table.places.get(id).is_some_and(|&place| place != NOWHERE)
            && (self.table.hidden.is_empty() || !self.table.hidden.contains(&id))
    }

    /// Calls `each` with those of some metrics that are there and not hidden, in their order.
    pub(crate) fn shown<E>(
        &self,
        ids: &[MetricId],
        each: &mut dyn FnMut(MetricId, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        // In steps, in which no load waits for another.
        let place = |&id: &MetricId| self.table.places.get(id).copied().filter(|&place| place != NOWHERE);
        let places: Vec<Place> = ids.iter().filter_map(place).collect();
        places.iter().for_each(|&place| self.table.arena.prefetch(place));
        for record in places.into_iter().map(|place| self.table.arena.get(place)) {
            if self.table.hidden.is_empty() || !self.table.hidden.contains(&record.id) {
                each(record.id, text(record.name))?;
            }
        }
        Ok(())
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

    /// The same, or `None` when no metric has the id: it may have been deleted meanwhile.
    pub fn creation(&self, id: MetricId) -> Option<Timestamp> {
        self.table.record(id).map(|record| Timestamp::from(record.created))
    }

    /// Calls `each` with the metrics, tagged ones included, among the next so many ids, and returns the id after these.
    pub fn slice(&self, from: MetricId, ids: u32, mut each: impl FnMut(MetricId, &str)) -> MetricId {
        let until = MetricId(from.0.saturating_add(ids).min(self.end().0));
        for id in (from.0..until.0).map(MetricId) {
            if let Some(record) = self.table.record(id)
                && (self.table.hidden.is_empty() || !self.table.hidden.contains(&id))
            {
                each(id, text(record.name));
            }
        }
        until
    }

    /// The id after the highest in use: what per-metric columns are sized by.
    pub fn end(&self) -> MetricId {
        self.table.places.end()
    }

    /// Asks the processor to fetch what [`Names::find`] will look at. Worth it where the hashes of a batch are
    /// known before its names are looked up.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.by_name.prefetch(hash);
    }
}

/// Exclusive access to names: see [`Registry::write`](crate::Registry::write).
pub struct NamesMut<'a> {
    pub(crate) table: RwLockWriteGuard<'a, Table>,
}

impl NamesMut<'_> {
    /// As [`Names::find`].
    #[inline]
    pub fn find(&self, hash: u64, name: &[u8]) -> Option<MetricId> {
        self.table.find_shown(hash, name)
    }

    /// The id of the metric with this name, which is created when it is not there: another thread may
    /// have been quicker. `name` is canonical ([`metric::canonical_name`]), `hash` is its
    /// [`Registry::hash`](crate::Registry::hash), `policy` comes from [`Registry::intern`](crate::Registry::intern), `now` is in Unix seconds.
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
        let id = reserved.unwrap_or(self.table.places.end());
        assert!(id != MetricId::NONE, "a registry gives out at most 2^32 - 1 metrics");
        self.table.insert(hash, id, name, policy, now);
        id
    }

    /// Metrics known, hidden ones left out.
    pub fn count(&self) -> usize {
        self.table.names
    }

    /// Bytes of memory that names take, those of their index included.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// The next new metric gets this id or a higher one.
    pub fn end(&self) -> MetricId {
        self.table.places.end()
    }
}
