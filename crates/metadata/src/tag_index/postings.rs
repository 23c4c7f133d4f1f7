//! Sets of metric ids: up to two in place, some as a list, many as a compressed bitmap.

use roaring::RoaringBitmap;

use super::slab::Slab;

/// Ids of a list, at most. A bitmap of as many ids, spread over a million metrics, takes about as much.
const LIST_MOST: usize = 256;

/// Ids that a union collects before it sorts them.
const UNION_BATCH: usize = 1 << 20;

/// Ids that are sorted in any case.
const FEW_IDS: usize = 4096;

/// No id.
const NONE: u32 = u32::MAX;

/// A set of ids. What does not fit in it is in [`Postings`].
#[derive(Clone, Copy)]
pub(super) enum Posting {
    // Unused places are NONE, behind the others.
    Few([u32; 2]),
    List(u32),
    Map(u32),
}

impl Default for Posting {
    fn default() -> Posting {
        Posting::Few([NONE; 2])
    }
}

impl Posting {
    pub(super) fn is_empty(self) -> bool {
        matches!(self, Posting::Few([NONE, _]))
    }
}

/// What a set is made of.
pub(super) enum Shape<'a> {
    /// Ids in rising order.
    Ids(&'a [u32]),
    /// Many ids.
    Map(&'a RoaringBitmap),
}

/// The larger sets of an index.
pub(super) struct Postings {
    // In rising order, each once.
    lists: Slab<Vec<u32>>,
    maps: Slab<RoaringBitmap>,
}

impl Postings {
    pub(super) fn new() -> Postings {
        Postings { lists: Slab::new(), maps: Slab::new() }
    }

    /// Adds an id, and tells whether it was not there.
    pub(super) fn insert(&mut self, posting: &mut Posting, id: u32) -> bool {
        match posting {
            Posting::Few(ids) if ids.contains(&id) => false,
            Posting::Few(ids) => {
                match ids {
                    [NONE, _] => ids[0] = id,
                    [_, NONE] => ids[1] = id,
                    [one, other] => {
                        let mut list = Vec::with_capacity(4);
                        list.extend([*one, *other, id]);
                        list.sort_unstable();
                        *posting = Posting::List(self.lists.add(list));
                    }
                }
                true
            }
            Posting::List(number) => {
                let list = self.lists.get_mut(*number);
                // New metrics have the highest ids.
                let at = match list.last() {
                    Some(&last) if last < id => list.len(),
                    _ => match list.binary_search(&id) {
                        Ok(_) => return false,
                        Err(at) => at,
                    },
                };
                if list.len() == LIST_MOST {
                    let list = self.lists.release(*number);
                    let mut map = RoaringBitmap::from_sorted_iter(list).expect("a list is in rising order");
                    map.insert(id);
                    *posting = Posting::Map(self.maps.add(map));
                    return true;
                }
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len() / 4 + 2);
                }
                list.insert(at, id);
                true
            }
            Posting::Map(number) => self.maps.get_mut(*number).insert(id),
        }
    }

    /// Adds ids, which are in rising order.
    pub(super) fn insert_all(&mut self, posting: &mut Posting, ids: &[u32]) {
        for (done, &id) in ids.iter().enumerate() {
            if let Posting::Map(number) = posting {
                let ids = ids[done..].iter().copied();
                let more = RoaringBitmap::from_sorted_iter(ids).expect("the caller has them in rising order");
                *self.maps.get_mut(*number) |= more;
                return;
            }
            self.insert(posting, id);
        }
    }

    /// Removes an id, and tells whether it was there.
    pub(super) fn remove(&mut self, posting: &mut Posting, id: u32) -> bool {
        match posting {
            Posting::Few([one, other]) if *one == id => {
                *posting = Posting::Few([*other, NONE]);
                true
            }
            Posting::Few([_, other]) if *other == id => {
                *other = NONE;
                true
            }
            Posting::Few(_) => false,
            Posting::List(number) => {
                let list = self.lists.get_mut(*number);
                let Ok(at) = list.binary_search(&id) else { return false };
                list.remove(at);
                if let [one, other] = list[..] {
                    self.lists.release(*number);
                    *posting = Posting::Few([one, other]);
                }
                true
            }
            Posting::Map(number) => {
                let map = self.maps.get_mut(*number);
                let was_there = map.remove(id);
                // Half as many, so that a set at the bound does not go back and forth.
                if map.len() <= LIST_MOST as u64 / 2 {
                    let map = self.maps.release(*number);
                    *posting = Posting::List(self.lists.add(map.into_iter().collect()));
                }
                was_there
            }
        }
    }

    pub(super) fn len(&self, posting: Posting) -> u64 {
        match posting {
            Posting::Few(ids) => ids.iter().filter(|&&id| id != NONE).count() as u64,
            Posting::List(number) => self.lists.get(number).len() as u64,
            Posting::Map(number) => self.maps.get(number).len(),
        }
    }

    /// Whether the set has an id of `others`.
    pub(super) fn meets(&self, posting: Posting, others: &RoaringBitmap) -> bool {
        match posting {
            Posting::Map(number) => !self.maps.get(number).is_disjoint(others),
            _ => self.few(&posting).iter().any(|&id| others.contains(id)),
        }
    }

    /// How many ids of `others` the set has.
    pub(super) fn count_in(&self, posting: Posting, others: &RoaringBitmap) -> u64 {
        match posting {
            Posting::Map(number) => self.maps.get(number).intersection_len(others),
            _ => self.few(&posting).iter().filter(|&&id| others.contains(id)).count() as u64,
        }
    }

    /// The set alone.
    pub(super) fn to_bitmap(&self, posting: Posting) -> RoaringBitmap {
        match posting {
            Posting::Map(number) => self.maps.get(number).clone(),
            _ => self.few(&posting).iter().copied().collect(),
        }
    }

    /// Keeps what the set has, too.
    pub(super) fn keep(&self, posting: Posting, found: &mut RoaringBitmap) {
        match posting {
            Posting::Map(number) => *found &= self.maps.get(number),
            _ => *found = self.few(&posting).iter().copied().filter(|&id| found.contains(id)).collect(),
        }
    }

    /// Drops what the set has.
    pub(super) fn drop_from(&self, posting: Posting, found: &mut RoaringBitmap) {
        match posting {
            Posting::Map(number) => *found -= self.maps.get(number),
            _ => self.few(&posting).iter().for_each(|&id| _ = found.remove(id)),
        }
    }

    /// What the set is made of. Two ids may be in any order.
    pub(super) fn shape<'a>(&'a self, posting: &'a Posting) -> Shape<'a> {
        match posting {
            Posting::Map(number) => Shape::Map(self.maps.get(*number)),
            _ => Shape::Ids(self.few(posting)),
        }
    }

    /// A set of ids in rising order.
    pub(super) fn of_ids(&mut self, mut ids: impl ExactSizeIterator<Item = u32>) -> Posting {
        match ids.len() {
            0..=2 => Posting::Few(std::array::from_fn(|_| ids.next().unwrap_or(NONE))),
            count if count <= LIST_MOST => Posting::List(self.lists.add(ids.collect())),
            _ => {
                let map = RoaringBitmap::from_sorted_iter(ids).expect("the caller has them in rising order");
                Posting::Map(self.maps.add(map))
            }
        }
    }

    /// A set of many ids.
    pub(super) fn of_map(&mut self, map: RoaringBitmap) -> Posting {
        if map.len() <= LIST_MOST as u64 / 2 {
            return self.of_ids(map.iter().collect::<Vec<_>>().into_iter());
        }
        Posting::Map(self.maps.add(map))
    }

    fn few<'a>(&'a self, posting: &'a Posting) -> &'a [u32] {
        match posting {
            Posting::Few(ids) => {
                let len = ids.iter().position(|&id| id == NONE).unwrap_or(ids.len());
                &ids[..len]
            }
            Posting::List(number) => self.lists.get(*number),
            Posting::Map(_) => unreachable!("the callers look at maps first"),
        }
    }

    /// Bytes allocated: an estimate for the bitmaps. Takes about as long as there are lists and bitmaps.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists: usize = self.lists.iter().map(|list| list.capacity() * size_of::<u32>() + ALLOCATION_BYTES).sum();
        let maps: usize = self.maps.iter().map(map_bytes).sum();
        self.lists.memory_bytes() + self.maps.memory_bytes() + lists + maps
    }
}

/// What the allocator adds to an allocation, about.
const ALLOCATION_BYTES: usize = 8;

/// A container of a bitmap, besides its values.
const CONTAINER_BYTES: usize = 40 + ALLOCATION_BYTES;

fn map_bytes(map: &RoaringBitmap) -> usize {
    let parts = map.statistics();
    // Arrays double as they grow: a third of them is unused.
    let arrays = parts.n_bytes_array_containers + parts.n_bytes_array_containers / 3;
    parts.n_containers as usize * CONTAINER_BYTES + (arrays + parts.n_bytes_bitset_containers) as usize
}

/// Sets that are put together.
#[derive(Default)]
pub(super) struct Union {
    map: RoaringBitmap,
    ids: Vec<u32>,
}

impl Union {
    pub(super) fn add(&mut self, postings: &Postings, posting: Posting) {
        match posting {
            Posting::Map(number) => self.map |= postings.maps.get(number),
            _ => {
                self.ids.extend_from_slice(postings.few(&posting));
                if self.ids.len() >= UNION_BATCH {
                    self.flush();
                }
            }
        }
    }

    fn flush(&mut self) {
        if self.ids.len() < FEW_IDS {
            return self.flush_few();
        }
        let (first, last) = self.ids.iter().fold((NONE, 0), |(first, last), &id| (first.min(id), last.max(id)));
        // A container of a bitmap has as many ids.
        let first = first & !0xffff;
        let bytes = (last - first) as usize / 8 + 1;
        if self.ids.len() < bytes / 8 {
            return self.flush_few();
        }
        // Quicker than a sort: a bit for each id between the first and the last.
        let mut bits = vec![0; bytes];
        for id in self.ids.drain(..) {
            let place = id - first;
            bits[place as usize / 8] |= 1 << (place % 8);
        }
        self.map |= RoaringBitmap::from_lsb0_bytes(first, &bits);
    }

    fn flush_few(&mut self) {
        self.ids.sort_unstable();
        self.ids.dedup();
        let part = RoaringBitmap::from_sorted_iter(self.ids.drain(..)).expect("sorted, each once");
        self.map |= part;
    }

    pub(super) fn finish(mut self) -> RoaringBitmap {
        self.flush();
        self.map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn a_union_has_each_id_once_however_they_are_spread() {
        let random = SeededRandom::new(SeededRandom::test_seed(3));
        for (first, spread) in
            [(0, 1000), (0, 200_000), (70_000, 100_000), (u32::MAX - 300_000, 300_000), (0, u32::MAX)]
        {
            for sets in [0, 1, 20, 300] {
                let (mut postings, mut union, mut expected) = (Postings::new(), Union::default(), BTreeSet::new());
                for _ in 0..sets {
                    let most = [1, 2, 100, 1000][random.index(4)];
                    let ids: BTreeSet<u32> = (0..most).map(|_| first + random.below(spread.into()) as u32).collect();
                    expected.extend(&ids);
                    let posting = postings.of_ids(ids.into_iter().collect::<Vec<_>>().into_iter());
                    union.add(&postings, posting);
                }
                assert!(union.finish().iter().eq(expected), "{sets} sets of {spread} from {first}");
            }
        }
    }
}
