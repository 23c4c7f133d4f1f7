//! The hash table from names to places in the arena.

use crate::{arena::Place, prefetch::prefetch};

/// Tables, chosen by bits of the hash. Each grows alone, so that growth neither stalls a writer for long
/// nor doubles the memory of the whole at once.
const SHARDS: usize = 64;

/// Entries of a table when it is first used.
const FIRST_CAPACITY: usize = 16;

/// No entry. Its place is [`crate::arena::NOWHERE`].
const EMPTY: u64 = u64::MAX;

/// Open addressing with linear probing over `(32 hash bits, place)`.
///
/// A removal closes its gap, so there are no tombstones, and a lookup that hits touches one cache line of
/// the table and the record itself. Growing needs the hash bits alone, never the names.
pub(crate) struct NameTable {
    shards: Vec<Shard>,
}

#[derive(Clone, Default)]
struct Shard {
    // Never full: at most three quarters of the entries are taken, so that probing ends.
    entries: Box<[u64]>,
    taken: usize,
}

/// Places that go into a table together: see [`NameTable::insert_all`].
pub(crate) struct ManyPlaces {
    // The entries of each shard.
    shards: Vec<Vec<u64>>,
}

impl ManyPlaces {
    /// None yet, with room for so many.
    pub(crate) fn new(names: usize) -> ManyPlaces {
        // A sixteenth more than spread evenly is seldom passed.
        let room = names / SHARDS + names / SHARDS / 16;
        ManyPlaces { shards: (0..SHARDS).map(|_| Vec::with_capacity(room)).collect() }
    }

    /// Adds a place under a hash.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, place: Place) {
        self.shards[shard_of(hash)].push(entry(hash, place));
    }
}

impl NameTable {
    pub(crate) fn new() -> NameTable {
        NameTable { shards: vec![Shard::default(); SHARDS] }
    }

    /// The place of the name with this hash for which `same` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut same: impl FnMut(Place) -> bool) -> Option<Place> {
        let entries = &self.shards[shard_of(hash)].entries;
        if entries.is_empty() {
            return None;
        }
        let mut i = bucket(hash as u32, entries.len());
        loop {
            let entry = entries[i];
            if entry == EMPTY {
                return None;
            }
            if (entry >> 32) as u32 == hash as u32 && same(entry as Place) {
                return Some(entry as Place);
            }
            i += 1;
            if i == entries.len() {
                i = 0;
            }
        }
    }

    /// Adds a place under a hash. The caller has seen that its name is not there.
    pub(crate) fn insert(&mut self, hash: u64, place: Place) {
        let shard = &mut self.shards[shard_of(hash)];
        if (shard.taken + 1) * 4 > shard.entries.len() * 3 {
            // Half as much again rather than double: at a million names that is some bytes a name less.
            shard.resize((shard.entries.len() + shard.entries.len() / 2).max(FIRST_CAPACITY));
        }
        shard.put(entry(hash, place));
        shard.taken += 1;
    }

    /// Adds many places that are not there yet. Table after table: one fits into the cache of a processor, and all together do
    /// not, so that this takes a small part of the time of as many calls of [`NameTable::insert`].
    pub(crate) fn insert_all(&mut self, places: ManyPlaces) {
        for (shard, entries) in self.shards.iter_mut().zip(places.shards) {
            let capacity = (shard.taken + entries.len()) * 3 / 2 + FIRST_CAPACITY;
            if !entries.is_empty() && shard.entries.len() < capacity {
                shard.resize(capacity);
            }
            entries.iter().for_each(|&entry| shard.put(entry));
            shard.taken += entries.len();
        }
    }

    /// Removes the entry of a place that was added under a hash.
    pub(crate) fn remove(&mut self, hash: u64, place: Place) {
        let shard = &mut self.shards[shard_of(hash)];
        let Some(at) = shard.position(hash, place) else { return };
        shard.close_gap(at);
        shard.taken -= 1;
        if shard.taken * 4 < shard.entries.len() && shard.entries.len() > FIRST_CAPACITY {
            shard.resize((shard.taken * 2).max(FIRST_CAPACITY));
        }
    }

    /// The record of a name that was added under a hash has moved.
    pub(crate) fn set_place(&mut self, hash: u64, old: Place, new: Place) {
        let shard = &mut self.shards[shard_of(hash)];
        if let Some(at) = shard.position(hash, old) {
            shard.entries[at] = entry(hash, new);
        }
    }

    /// Brings the bucket of a hash towards the processor, for a lookup that follows shortly.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let entries = &self.shards[shard_of(hash)].entries;
        if entries.is_empty() {
            return;
        }
        prefetch(&entries[bucket(hash as u32, entries.len())]);
    }

    /// Bytes allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.entries.len() * size_of::<u64>()).sum()
    }
}

impl Shard {
    fn put(&mut self, entry: u64) {
        let mut i = bucket((entry >> 32) as u32, self.entries.len());
        while self.entries[i] != EMPTY {
            i += 1;
            if i == self.entries.len() {
                i = 0;
            }
        }
        self.entries[i] = entry;
    }

    /// Where the entry of a place is.
    fn position(&self, hash: u64, place: Place) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let wanted = entry(hash, place);
        let mut i = bucket(hash as u32, self.entries.len());
        while self.entries[i] != EMPTY {
            if self.entries[i] == wanted {
                return Some(i);
            }
            i = self.after(i);
        }
        None
    }

    /// Empties an entry, and moves those behind it that a lookup would not find any more.
    fn close_gap(&mut self, mut gap: usize) {
        let mut i = self.after(gap);
        while self.entries[i] != EMPTY {
            let home = bucket((self.entries[i] >> 32) as u32, self.entries.len());
            // A lookup goes from the home up to the entry, around the end of the table.
            let passes = if home <= i { home <= gap && gap < i } else { home <= gap || gap < i };
            if passes {
                self.entries[gap] = self.entries[i];
                gap = i;
            }
            i = self.after(i);
        }
        self.entries[gap] = EMPTY;
    }

    fn after(&self, i: usize) -> usize {
        if i + 1 == self.entries.len() { 0 } else { i + 1 }
    }

    fn resize(&mut self, capacity: usize) {
        let old = std::mem::replace(&mut self.entries, vec![EMPTY; capacity].into_boxed_slice());
        for entry in old {
            if entry != EMPTY {
                self.put(entry);
            }
        }
    }
}

fn entry(hash: u64, place: Place) -> u64 {
    u64::from(hash as u32) << 32 | u64::from(place)
}

/// The shard uses hash bits that the bucket does not.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Scales 32 bits to the capacity, which need not be a power of two.
#[inline]
fn bucket(hash: u32, capacity: usize) -> usize {
    ((u64::from(hash) * capacity as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn places_that_are_added_together_are_found_as_those_that_are_added_one_after_the_other() {
        let random = SeededRandom::new(SeededRandom::test_seed(5));
        for count in [0, 1, 100, 20_000] {
            let hashes: Vec<u64> = (0..count).map(|_| random.below(1 << 62) << 2).collect();
            let (mut table, mut single) = (NameTable::new(), NameTable::new());
            // Some are there before.
            let (before, together) = hashes.split_at(count / 3);
            let mut many = ManyPlaces::new(together.len());
            for (place, &hash) in hashes.iter().enumerate() {
                single.insert(hash, place as Place);
                match place < before.len() {
                    true => table.insert(hash, place as Place),
                    false => many.add(hash, place as Place),
                }
            }
            table.insert_all(many);
            for (place, &hash) in hashes.iter().enumerate() {
                let is_same = |found| hashes[found as usize] == hash;
                assert_eq!(table.find(hash, is_same), Some(place as Place));
                assert_eq!(single.find(hash, is_same), Some(place as Place));
            }
            assert!(table.memory_bytes() <= 64 * FIRST_CAPACITY * 8 + count * 13, "{}", table.memory_bytes());
            // What was added together can be removed, and others can come.
            for (place, &hash) in hashes.iter().enumerate() {
                table.remove(hash, place as Place);
                assert_eq!(table.find(hash, |found| found == place as Place), None);
                table.insert(hash ^ 1, place as Place);
            }
            for (place, &hash) in hashes.iter().enumerate() {
                assert_eq!(table.find(hash ^ 1, |found| found == place as Place), Some(place as Place));
            }
        }
    }
}
