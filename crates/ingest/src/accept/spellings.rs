//! Names that come in another form than the one that metrics have: tags in another order, OpenMetrics, empty components.
//!
//! Such a sender sends them with each point, and to put a name into its canonical form takes ten times as long as to find it. So a
//! spelling is remembered with its metric. There is a bound: two generations are remembered, and the older one is forgotten
//! when the younger is full. Their memory is part of `ingest.names_limit`, and gives way to names of new metrics.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use metadata::prefetch;
use metric::MetricId;
use parking_lot::{RwLock, RwLockReadGuard};

/// Bytes of a block of texts. A text never spans two.
const BLOCK_BYTES: usize = 64 << 10;

/// Entries of a table when it is first used. A power of two, as all later sizes are.
const FIRST_CAPACITY: usize = 64;

/// Bytes of a generation from which on it may be full.
const LEAST_BYTES: usize = 1 << 20;

/// Spellings of known metrics.
#[derive(Default)]
pub(super) struct Spellings {
    generations: RwLock<Generations>,
    // Those of both generations.
    bytes: AtomicUsize,
}

/// Shared access to [`Spellings`], for a batch of points.
pub(super) type Known<'a> = RwLockReadGuard<'a, Generations>;

/// What is remembered.
#[derive(Default)]
pub(super) struct Generations {
    younger: Generation,
    older: Generation,
}

#[derive(Default)]
struct Generation {
    table: Table,
    blocks: Vec<Vec<u8>>,
}

/// Open addressing with linear probing. An entry is a quarter of a cache line, so that a look for a spelling waits for one
/// line of the table, which [`Generations::prefetch`] asks for before.
#[derive(Default)]
struct Table {
    // Never full: at most half of the places are taken, so that probing ends.
    places: Box<[Place]>,
    taken: usize,
}

/// Where a spelling is, and its metric.
#[derive(Clone, Copy)]
struct Place {
    // Of the hash. Of two spellings with one, the last is remembered.
    key: u32,
    // `NOWHERE` where a table has no spelling.
    block: u32,
    begin: u16,
    len: u16,
    metric: MetricId,
}

/// In place of a block: no spelling.
const NOWHERE: u32 = u32::MAX;

impl Spellings {
    pub(super) fn read(&self) -> Known<'_> {
        self.generations.read()
    }

    /// Remembers spellings: hash, text, metric. They take about as many bytes as `bytes`, or a few mebibytes.
    pub(super) fn add<'a>(&self, found: impl Iterator<Item = (u64, &'a [u8], MetricId)>, bytes: usize) {
        let mut generations = self.generations.write();
        for (hash, text, metric) in found {
            if generations.find(hash, text) == Some(metric) {
                continue;
            }
            if generations.younger.bytes() > LEAST_BYTES.max(bytes / 2) {
                generations.older = std::mem::take(&mut generations.younger);
            }
            generations.younger.add(hash, text, metric);
        }
        // As large as one can be that was just full, or from when there was more room.
        if generations.older.bytes() > LEAST_BYTES.max(bytes / 2) + 2 * BLOCK_BYTES {
            generations.older = Generation::default();
        }
        self.bytes.store(generations.younger.bytes() + generations.older.bytes(), Relaxed);
    }

    /// Bytes of memory held: an estimate.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Forgets all, and frees their memory.
    pub(super) fn forget(&self) {
        let mut generations = self.generations.write();
        let forgotten = std::mem::take(&mut *generations);
        self.bytes.store(0, Relaxed);
        drop(generations);
        drop(forgotten);
    }
}

impl Generations {
    /// The metric that a spelling had when it was added; it may be gone.
    pub(super) fn find(&self, hash: u64, text: &[u8]) -> Option<MetricId> {
        self.younger.find(hash, text).or_else(|| self.older.find(hash, text))
    }

    /// Asks the processor to fetch what [`Generations::find`] will look at first.
    pub(super) fn prefetch(&self, hash: u64) {
        self.younger.table.prefetch(hash);
        self.older.table.prefetch(hash);
    }
}

impl Generation {
    fn find(&self, hash: u64, text: &[u8]) -> Option<MetricId> {
        let place = self.table.find(hash)?;
        let (begin, end) = (usize::from(place.begin), usize::from(place.begin) + usize::from(place.len));
        (&self.blocks[place.block as usize][begin..end] == text).then_some(place.metric)
    }

    fn add(&mut self, hash: u64, text: &[u8], metric: MetricId) {
        if self.blocks.last().is_none_or(|block| block.len() + text.len() > BLOCK_BYTES) {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES));
        }
        let number = self.blocks.len() - 1;
        let block = &mut self.blocks[number];
        // Names have at most 4,095 bytes, so that every begin is below the end of a block.
        let (Ok(begin), Ok(len)) = (u16::try_from(block.len()), u16::try_from(text.len())) else { return };
        block.extend_from_slice(text);
        self.table.insert(hash, Place { key: key(hash), block: number as u32, begin, len, metric });
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES + self.table.places.len() * size_of::<Place>()
    }
}

impl Table {
    fn find(&self, hash: u64) -> Option<&Place> {
        if self.places.is_empty() {
            return None;
        }
        let place = &self.places[self.position(hash)];
        (place.block != NOWHERE).then_some(place)
    }

    fn insert(&mut self, hash: u64, place: Place) {
        if (self.taken + 1) * 2 > self.places.len() {
            self.grow();
        }
        let position = self.position(hash);
        self.taken += usize::from(self.places[position].block == NOWHERE);
        self.places[position] = place;
    }

    fn prefetch(&self, hash: u64) {
        if !self.places.is_empty() {
            prefetch(&self.places[self.bucket(key(hash))]);
        }
    }

    /// Where the spelling of a hash is, or would be.
    fn position(&self, hash: u64) -> usize {
        let key = key(hash);
        let mut position = self.bucket(key);
        while self.places[position].block != NOWHERE && self.places[position].key != key {
            position = self.behind(position);
        }
        position
    }

    fn bucket(&self, key: u32) -> usize {
        key as usize & (self.places.len() - 1)
    }

    fn behind(&self, position: usize) -> usize {
        (position + 1) & (self.places.len() - 1)
    }

    fn grow(&mut self) {
        let vacant = Place { key: 0, block: NOWHERE, begin: 0, len: 0, metric: MetricId::NONE };
        let larger = vec![vacant; (self.places.len() * 2).max(FIRST_CAPACITY)].into_boxed_slice();
        for place in std::mem::replace(&mut self.places, larger) {
            if place.block != NOWHERE {
                let mut position = self.bucket(place.key);
                while self.places[position].block != NOWHERE {
                    position = self.behind(position);
                }
                self.places[position] = place;
            }
        }
    }
}

/// What a table knows of a hash.
fn key(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(range: std::ops::Range<u64>) -> Vec<(u64, String)> {
        // Hashes that are not distinct.
        range.map(|i| (i % 50_000, format!("requests;t={i};{}", "x".repeat(100)))).collect()
    }

    #[test]
    fn a_spelling_is_found_by_its_whole_text() {
        let spellings = Spellings::default();
        let all = texts(0..2000);
        let added = || all.iter().enumerate().map(|(i, (hash, text))| (*hash, text.as_bytes(), MetricId(i as u32)));
        spellings.add(added(), 0);
        spellings.add(added(), 0);
        let known = spellings.read();
        added().for_each(|(hash, text, metric)| assert_eq!(known.find(hash, text), Some(metric)));
        assert_eq!(known.find(7, b"requests;t=8"), None);
        drop(known);
        spellings.add([(3, b"b;t=1".as_slice(), MetricId(9))].into_iter(), 0);
        // Of one hash, the last.
        assert_eq!(
            (spellings.read().find(3, b"b;t=1"), spellings.read().find(3, all[3].1.as_bytes())),
            (Some(MetricId(9)), None)
        );
    }

    #[test]
    fn spellings_are_bounded_and_the_newest_stay() {
        let spellings = Spellings::default();
        for round in 0..40 {
            let some = texts(round * 5000..(round + 1) * 5000);
            spellings.add(some.iter().map(|(hash, text)| (*hash, text.as_bytes(), MetricId(1))), 6 << 20);
            let generations = spellings.read();
            assert!(generations.younger.bytes() + generations.older.bytes() < 7 << 20);
            assert_eq!(spellings.bytes(), generations.younger.bytes() + generations.older.bytes());
            let (hash, text) = some.last().unwrap();
            assert_eq!(generations.find(*hash, text.as_bytes()), Some(MetricId(1)));
        }
        assert!(!spellings.read().older.table.places.is_empty());
        // Where less room is left, less stays.
        spellings.add(std::iter::once((1, b"a;t=1".as_slice(), MetricId(1))), 0);
        assert!(spellings.bytes() < 3 << 20 && spellings.bytes() > 0, "{}", spellings.bytes());
        spellings.forget();
        assert_eq!((spellings.bytes(), spellings.read().find(1, b"a;t=1")), (0, None));
    }
}
