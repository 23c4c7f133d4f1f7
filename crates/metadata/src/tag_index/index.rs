//! The index itself: tags, their values, and the metrics that have them.
//!
//! A value belongs to one tag. A hash table finds a value by tag and text when a metric comes; a sorted list per tag serves
//! prefixes and listings. [`TagIndex::settle`] brings the lists up to date after a batch of changes: until then new values are missing there
//! and emptied ones still present.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use metric::MetricId;
use roaring::RoaringBitmap;

use super::{
    postings::{Posting, Postings},
    slab::Slab,
    texts::{TextPlace, Texts},
};
use crate::{
    name_table::{ManyPlaces, NameTable},
    tag_expressions::{TagPlace, read_tags, tags_of},
};

/// A tag by its number.
pub(super) type TagId = u32;

/// A value of a tag by its number.
pub(super) type ValueId = u32;

/// A tag that a metric has.
#[derive(Default)]
struct Tag {
    text: TextPlace,
    metrics: Posting,
    // By text, as of the last settling.
    values: Vec<ValueId>,
}

/// A value of a tag.
#[derive(Default, Clone, Copy)]
struct Value {
    text: TextPlace,
    tag: TagId,
    metrics: Posting,
}

/// The tags of metrics.
pub(crate) struct TagIndex {
    seed: RandomState,
    texts: Texts,
    pub(super) postings: Postings,
    tags: Slab<Tag>,
    values: Slab<Value>,
    by_tag: NameTable,
    by_value: NameTable,
    // By text, as of the last settling.
    sorted_tags: Vec<TagId>,
    // Since the last settling: those that came, and those without a metric.
    new_tags: Vec<TagId>,
    new_values: Vec<ValueId>,
    empty_tags: Vec<TagId>,
    empty_values: Vec<ValueId>,
    // Metrics whose tags can be read.
    all: RoaringBitmap,
    // The tags of the metric that was added last, in their order: the next one mostly has the same. Empty once a tag is.
    recent: Vec<TagId>,
    // Whether these are known to be each there once.
    recent_is_distinct: bool,
    // Metrics that have just these, and are not among the metrics of these yet: it is quicker to add many together.
    usual: Vec<u32>,
    // Of the name that is being added. Kept for its memory.
    places: Vec<TagPlace>,
    // Bytes of memory when they were counted last, and an estimate of what came since.
    measured: usize,
    estimated: usize,
    // Changes since.
    unmeasured: usize,
}

/// Tags of a metric that are looked up together.
const TOGETHER: usize = 16;

/// Metrics that wait to be added to their tags, at most.
const MOST_USUAL: usize = 1 << 16;

/// Changed metrics after which memory is counted again.
const MEASURE_AFTER: usize = 4096;

/// Estimated bytes after which memory is counted again.
const MEASURE_AFTER_BYTES: usize = 1 << 20;

/// The same, as parts of all metrics and bytes: what counting takes grows with them.
const MEASURE_AFTER_PART: usize = 32;

impl TagIndex {
    pub(crate) fn new() -> TagIndex {
        TagIndex {
            seed: RandomState::default(),
            texts: Texts::default(),
            postings: Postings::new(),
            tags: Slab::new(),
            values: Slab::new(),
            by_tag: NameTable::new(),
            by_value: NameTable::new(),
            sorted_tags: Vec::new(),
            new_tags: Vec::new(),
            new_values: Vec::new(),
            empty_tags: Vec::new(),
            empty_values: Vec::new(),
            all: RoaringBitmap::new(),
            recent: Vec::new(),
            recent_is_distinct: false,
            usual: Vec::new(),
            places: Vec::new(),
            measured: 0,
            estimated: 0,
            unmeasured: 0,
        }
    }

    /// An index whose tags and values are appended in the order of texts.
    pub(super) fn of_metrics(all: RoaringBitmap) -> TagIndex {
        TagIndex { all, ..TagIndex::new() }
    }

    /// Appends a tag that will have so many values. `None` when its text does not come after those that are there, or it
    /// has no metric.
    pub(super) fn append_tag(&mut self, text: &str, metrics: Posting, values: usize) -> Option<TagId> {
        if metrics.is_empty() || self.sorted_tags.last().is_some_and(|&last| self.tag_text(last) >= text) {
            return None;
        }
        let tag = self.tags.add(Tag { text: self.texts.add(text), metrics, values: Vec::with_capacity(values) });
        self.by_tag.insert(self.hash_of_tag(text), tag);
        self.sorted_tags.push(tag);
        Some(tag)
    }

    /// Appends a value of a tag. `None` as for a tag. It is found once [`TagIndex::find_appended`] was called with `places`.
    pub(super) fn append_value(
        &mut self,
        tag: TagId,
        text: &str,
        metrics: Posting,
        places: &mut ManyPlaces,
    ) -> Option<()> {
        let last = self.tags.get(tag).values.last();
        if metrics.is_empty() || last.is_some_and(|&last| self.value_text(last) >= text) {
            return None;
        }
        let value = self.values.add(Value { text: self.texts.add(text), tag, metrics });
        places.add(self.hash_of_value(tag, text), value);
        self.tags.get_mut(tag).values.push(value);
        Some(())
    }

    /// Lets values that were appended be found.
    pub(super) fn find_appended(&mut self, places: ManyPlaces) {
        self.by_value.insert_all(places);
    }

    /// Whether a metric is in the index.
    pub(crate) fn contains(&self, id: MetricId) -> bool {
        self.all.contains(id.0)
    }

    /// All metrics in the index.
    pub(crate) fn all(&self) -> &RoaringBitmap {
        &self.all
    }

    /// Adds a metric. One whose tags cannot be read is left out.
    pub(crate) fn add(&mut self, id: MetricId, name: &str) {
        let mut tags = std::mem::take(&mut self.places);
        if read_tags(name, &mut tags) && self.all.insert(id.0) {
            self.add_to_tags(id, name, &tags);
        }
        self.places = tags;
    }

    fn add_to_tags(&mut self, id: MetricId, name: &str, tags: &[TagPlace]) {
        // With more, some would be done before all are known.
        let is_short = tags.len() <= TOGETHER;
        let mut is_usual = is_short && self.recent_is_distinct && tags.len() == self.recent.len();
        let mut is_distinct = true;
        let mut looked_up = [(0, 0, None, ""); TOGETHER];
        for (chunk, tags) in tags.chunks(TOGETHER).enumerate() {
            // In steps, in which no load waits for another: the processor fetches where several values are in the table, then
            // the values, then their metrics.
            for (place, (tag, found)) in tags.iter().zip(&mut looked_up).enumerate() {
                let place = chunk * TOGETHER + place;
                let (text, value) = tag.of(name);
                let is_recent = self.recent.get(place).is_some_and(|&recent| self.tag_text(recent) == text);
                is_usual &= is_recent;
                let tag = if is_recent { self.recent[place] } else { self.tag_at(place, text) };
                let hash = self.hash_of_value(tag, value);
                self.by_value.prefetch(hash);
                *found = (tag, hash, None, value);
            }
            let looked_up = &mut looked_up[..tags.len()];
            for (tag, hash, known, value) in looked_up.iter_mut() {
                *known = self.value_under(*hash, *tag, value);
            }
            for &(tag, hash, known, value) in looked_up.iter() {
                // Of a tag that is there twice, the first counts.
                if !is_usual && !self.postings.insert(&mut self.tags.get_mut(tag).metrics, id.0) {
                    is_distinct = false;
                    continue;
                }
                let value = known.unwrap_or_else(|| self.add_value(hash, tag, value));
                self.postings.insert(&mut self.values.get_mut(value).metrics, id.0);
            }
        }
        if is_usual {
            self.usual.push(id.0);
            if self.usual.len() == MOST_USUAL {
                self.add_usual();
            }
        } else {
            self.recent_is_distinct = is_distinct && tags.len() == self.recent.len();
        }
    }

    /// The tag with a text, which is added if it is not there: the tag of a metric at a place among its tags.
    fn tag_at(&mut self, place: usize, text: &str) -> TagId {
        self.add_usual();
        let tag = self.tag(text).unwrap_or_else(|| self.add_tag(text));
        self.recent.truncate(place);
        self.recent.push(tag);
        self.recent_is_distinct = false;
        tag
    }

    /// Adds the metrics that have just the recent tags to these.
    fn add_usual(&mut self) {
        if self.usual.is_empty() {
            return;
        }
        self.usual.sort_unstable();
        for &tag in &self.recent {
            self.postings.insert_all(&mut self.tags.get_mut(tag).metrics, &self.usual);
        }
        self.usual.clear();
    }

    /// Removes a metric with the name that it had.
    pub(crate) fn remove(&mut self, id: MetricId, name: &str) {
        if !self.all.remove(id.0) {
            return;
        }
        self.add_usual();
        for (tag, value) in tags_of(name).into_iter().flatten() {
            let Some(tag) = self.tag(tag) else { continue };
            let metrics = &mut self.tags.get_mut(tag).metrics;
            if !self.postings.remove(metrics, id.0) {
                continue;
            }
            let is_last = metrics.is_empty();
            if let Some(value) = self.value(tag, value) {
                self.remove_from_value(value, id);
            }
            if is_last {
                self.recent.clear();
                self.recent_is_distinct = false;
                let hash = self.hash_of_tag(self.tag_text(tag));
                self.by_tag.remove(hash, tag);
                self.empty_tags.push(tag);
            }
        }
    }

    fn remove_from_value(&mut self, value: ValueId, id: MetricId) {
        let entry = self.values.get_mut(value);
        self.postings.remove(&mut entry.metrics, id.0);
        let entry = *entry;
        if entry.metrics.is_empty() {
            let hash = self.hash_of_value(entry.tag, self.texts.get(entry.text));
            self.by_value.remove(hash, value);
            self.empty_values.push(value);
        }
    }

    /// Brings the sorted lists up to date. To be called after each batch of changes, before a search.
    pub(crate) fn settle(&mut self) {
        self.add_usual();
        self.settle_values();
        let empty = std::mem::take(&mut self.empty_tags);
        let mut new = std::mem::take(&mut self.new_tags);
        new.retain(|&tag| !self.tags.get(tag).metrics.is_empty());
        if !empty.is_empty() || !new.is_empty() {
            let sorted = std::mem::take(&mut self.sorted_tags);
            self.sorted_tags = settled(sorted, empty.clone(), new, |tag| self.texts.bytes(self.tags.get(tag).text));
        }
        for tag in empty {
            self.texts.remove(self.tags.release(tag).text);
        }
        if self.texts.are_sparse() {
            self.copy_texts();
        }
    }

    fn settle_values(&mut self) {
        let empty = std::mem::take(&mut self.empty_values);
        let new = std::mem::take(&mut self.new_values);
        let mut changes: Vec<(TagId, bool, ValueId)> = Vec::with_capacity(empty.len() + new.len());
        changes.extend(empty.iter().map(|&value| (self.values.get(value).tag, false, value)));
        let is_there = |&&value: &&ValueId| !self.values.get(value).metrics.is_empty();
        changes.extend(new.iter().filter(is_there).map(|&value| (self.values.get(value).tag, true, value)));
        changes.sort_unstable();
        for changes in changes.chunk_by(|a, b| a.0 == b.0) {
            let first_new = changes.partition_point(|&(_, is_new, _)| !is_new);
            let numbers = |changes: &[(TagId, bool, ValueId)]| changes.iter().map(|&(.., value)| value).collect();
            let (empty, new) = (numbers(&changes[..first_new]), numbers(&changes[first_new..]));
            let tag = changes[0].0;
            let sorted = std::mem::take(&mut self.tags.get_mut(tag).values);
            let text = |value| self.texts.bytes(self.values.get(value).text);
            self.tags.get_mut(tag).values = settled(sorted, empty, new, text);
        }
        for value in empty {
            self.texts.remove(self.values.release(value).text);
        }
    }

    /// Copies the texts in use to new chunks.
    fn copy_texts(&mut self) {
        let mut texts = Texts::default();
        for tag in self.tags.iter_mut().filter(|tag| !tag.metrics.is_empty()) {
            tag.text = texts.add(self.texts.get(tag.text));
        }
        for value in self.values.iter_mut().filter(|value| !value.metrics.is_empty()) {
            value.text = texts.add(self.texts.get(value.text));
        }
        self.texts = texts;
    }

    fn add_tag(&mut self, text: &str) -> TagId {
        let tag = self.tags.add(Tag { text: self.texts.add(text), ..Tag::default() });
        self.by_tag.insert(self.hash_of_tag(text), tag);
        self.new_tags.push(tag);
        tag
    }

    fn add_value(&mut self, hash: u64, tag: TagId, text: &str) -> ValueId {
        let value = self.values.add(Value { text: self.texts.add(text), tag, ..Value::default() });
        self.by_value.insert(hash, value);
        self.new_values.push(value);
        value
    }

    /// The tag with a text.
    pub(super) fn tag(&self, text: &str) -> Option<TagId> {
        self.by_tag.find(self.hash_of_tag(text), |tag| self.tag_text(tag) == text)
    }

    /// The value of a tag with a text.
    pub(super) fn value(&self, tag: TagId, text: &str) -> Option<ValueId> {
        self.value_under(self.hash_of_value(tag, text), tag, text)
    }

    fn value_under(&self, hash: u64, tag: TagId, text: &str) -> Option<ValueId> {
        let is_same = |number| {
            let value = self.values.get(number);
            value.tag == tag && self.texts.bytes(value.text) == text.as_bytes()
        };
        self.by_value.find(hash, is_same)
    }

    fn hash_of_tag(&self, text: &str) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    fn hash_of_value(&self, tag: TagId, text: &str) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u32(tag);
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    pub(super) fn tag_text(&self, tag: TagId) -> &str {
        self.texts.get(self.tags.get(tag).text)
    }

    #[inline]
    pub(super) fn value_text(&self, value: ValueId) -> &str {
        self.texts.get(self.values.get(value).text)
    }

    /// The metrics that have a tag.
    pub(super) fn tag_metrics(&self, tag: TagId) -> Posting {
        self.tags.get(tag).metrics
    }

    /// The metrics that have a value of a tag.
    #[inline]
    pub(super) fn value_metrics(&self, value: ValueId) -> Posting {
        self.values.get(value).metrics
    }

    /// Texts, as bytes, and metrics of some values.
    pub(super) fn read_values<'a>(&'a self, values: &[ValueId], out: &mut Vec<(&'a [u8], Posting)>) {
        // In steps, in which no load waits for another.
        let mut places: [TextPlace; 64] = [0; 64];
        for values in values.chunks(places.len()) {
            let begin = out.len();
            for (&value, place) in values.iter().zip(&mut places) {
                let value = self.values.get(value);
                *place = value.text;
                out.push((&[], value.metrics));
            }
            for (entry, &place) in out[begin..].iter_mut().zip(&places) {
                entry.0 = self.texts.bytes(place);
            }
        }
    }

    /// As [`TagIndex::read_values`], of those values of a tag that are among `most` of all, from a number on, in the order of
    /// memory. Returns the number behind; `None` where there are none from there on.
    pub(super) fn read_in_memory<'a>(
        &'a self,
        tag: TagId,
        (from, most): (ValueId, usize),
        out: &mut Vec<(&'a [u8], Posting)>,
    ) -> Option<ValueId> {
        let values = self.values.from(from);
        let values = &values[..values.len().min(most)];
        let of_tag = values.iter().filter(|value| value.tag == tag && !value.metrics.is_empty());
        out.extend(of_tag.map(|value| (self.texts.bytes(value.text), value.metrics)));
        (!values.is_empty()).then_some(from + values.len() as u32)
    }

    /// The number behind those of all values, in the order of memory.
    pub(super) fn values_end(&self) -> ValueId {
        self.values.end()
    }

    /// Whether most of all values are those of a tag.
    pub(super) fn has_most_values(&self, tag: TagId) -> bool {
        2 * self.tags.get(tag).values.len() >= self.values.end() as usize
    }

    /// The tags whose text begins with a prefix, by text.
    pub(super) fn tags_with_prefix(&self, prefix: &str) -> &[TagId] {
        with_prefix(&self.sorted_tags, prefix, |tag| self.tag_text(tag))
    }

    /// The values of a tag whose text begins with a prefix, by text.
    pub(super) fn values_with_prefix(&self, tag: TagId, prefix: &str) -> &[ValueId] {
        with_prefix(&self.tags.get(tag).values, prefix, |value| self.value_text(value))
    }

    /// Bytes of memory held after some metrics changed, which were estimated to take `bytes`. Counted now and then: that takes
    /// milliseconds at a million values.
    pub(crate) fn memory_after(&mut self, changed: usize, bytes: usize) -> usize {
        self.unmeasured += changed;
        self.estimated += bytes;
        let most = MEASURE_AFTER.max(self.all.len() as usize / MEASURE_AFTER_PART);
        if self.unmeasured >= most || self.estimated >= MEASURE_AFTER_BYTES.max(self.measured / MEASURE_AFTER_PART) {
            self.measured = self.memory_bytes();
            (self.unmeasured, self.estimated) = (0, 0);
        }
        self.measured + self.estimated
    }

    fn memory_bytes(&self) -> usize {
        let lists: usize = self.tags.iter().map(|tag| tag.values.capacity() * size_of::<ValueId>()).sum();
        let tables = self.by_tag.memory_bytes() + self.by_value.memory_bytes();
        let slabs = self.tags.memory_bytes() + self.values.memory_bytes();
        self.texts.memory_bytes() + self.postings.memory_bytes() + slabs + tables + lists
    }
}

/// The part of a sorted list that begins with a prefix.
fn with_prefix<'a>(sorted: &'a [u32], prefix: &str, text: impl Fn(u32) -> &'a str) -> &'a [u32] {
    let begin = sorted.partition_point(|&one| text(one) < prefix);
    let rest = &sorted[begin..];
    let end = rest.partition_point(|&one| text(one).starts_with(prefix));
    &rest[..end]
}

/// Sorts by text. Reads each text once, but for those that begin with the same 16 bytes: most comparisons of a million texts
/// would wait for memory.
fn sort_by_text<'a>(list: &mut [u32], text: &impl Fn(u32) -> &'a [u8]) {
    let beginning = |one: u32| {
        let (mut key, text) = ([0; 16], text(one));
        let len = text.len().min(key.len());
        key[..len].copy_from_slice(&text[..len]);
        u128::from_be_bytes(key)
    };
    let mut keyed: Vec<(u128, u32)> = list.iter().map(|&one| (beginning(one), one)).collect();
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| text(a.1).cmp(text(b.1))));
    list.iter_mut().zip(keyed).for_each(|(one, (_, sorted))| *one = sorted);
}

/// Calls `each` with the place of each of some sorted entries in a sorted list. New texts are mostly close to each other.
fn place_each<'a>(list: &[u32], entries: &[u32], text: &impl Fn(u32) -> &'a [u8], mut each: impl FnMut(usize, u32)) {
    let mut place = 0;
    for &one in entries {
        let wanted = text(one);
        // Steps that double, from the place before on, and then a search within the last of them.
        let mut step = 1;
        while list.get(place + step - 1).is_some_and(|&known| text(known) < wanted) {
            place += step;
            step *= 2;
        }
        let rest = &list[place..list.len().min(place + step)];
        place += rest.partition_point(|&known| text(known) < wanted);
        each(place, one);
    }
}

/// A sorted list without some of its entries, and with new ones. No two of those that stay have the same text.
fn settled<'a>(sorted: Vec<u32>, mut empty: Vec<u32>, mut new: Vec<u32>, text: impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    // Where the old list is cut: (place, entry to leave out), (place, entry to put in).
    let mut cuts: Vec<(usize, Option<u32>)> = Vec::with_capacity(empty.len() + new.len());
    // An entry that came and went since is not in the list.
    sort_by_text(&mut empty, &text);
    place_each(&sorted, &empty, &text, |place, one| {
        if sorted.get(place) == Some(&one) {
            cuts.push((place, None));
        }
    });
    let empty = cuts.len();
    sort_by_text(&mut new, &text);
    place_each(&sorted, &new, &text, |place, one| cuts.push((place, Some(one))));
    // Stable, so that new entries of one place stay in order. A text that left and came again has one place.
    cuts.sort_by_key(|&(place, _)| place);
    let mut list = Vec::with_capacity(sorted.len() + new.len() - empty);
    let mut copied = 0;
    for (place, entry) in cuts {
        if copied < place {
            list.extend_from_slice(&sorted[copied..place]);
            copied = place;
        }
        match entry {
            Some(entry) => list.push(entry),
            None => copied = place + 1,
        }
    }
    list.extend_from_slice(&sorted[copied..]);
    list
}
