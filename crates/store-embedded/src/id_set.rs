//! A set of metric ids in little memory: a bit for each id of the ranges that have one.

use std::collections::BTreeMap;

use metric::MetricId;

/// Ids of one chunk.
const CHUNK: u32 = 1 << 16;
const WORDS: usize = CHUNK as usize / 64;

/// The set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet {
    chunks: BTreeMap<u32, Box<[u64; WORDS]>>,
}

fn place(id: MetricId) -> (u32, usize, u64) {
    let within = id.0 % CHUNK;
    (id.0 / CHUNK, within as usize / 64, 1 << (within % 64))
}

impl IdSet {
    /// Adds an id. Returns whether it is new.
    pub fn insert(&mut self, id: MetricId) -> bool {
        let (chunk, word, bit) = place(id);
        let word = &mut self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]))[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes an id. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: MetricId) -> bool {
        let (chunk, word, bit) = place(id);
        let Some(words) = self.chunks.get_mut(&chunk) else { return false };
        let was_there = words[word] & bit != 0;
        words[word] &= !bit;
        was_there
    }

    /// Whether an id is there.
    pub fn contains(&self, id: MetricId) -> bool {
        let (chunk, word, bit) = place(id);
        self.chunks.get(&chunk).is_some_and(|words| words[word] & bit != 0)
    }

    /// The highest id.
    pub(crate) fn highest(&self) -> Option<MetricId> {
        // A chunk may have lost all of its ids.
        self.chunks.iter().rev().find_map(|(chunk, words)| {
            let word = words.iter().rposition(|word| *word != 0)?;
            Some(MetricId(chunk * CHUNK + word as u32 * 64 + words[word].ilog2()))
        })
    }

    /// The ids, rising.
    pub fn iter(&self) -> impl Iterator<Item = MetricId> + '_ {
        self.chunks.iter().flat_map(|(chunk, words)| {
            words.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(move |(place, word)| {
                let first = chunk * CHUNK + place as u32 * 64;
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| MetricId(first + bit))
            })
        })
    }

    /// Adds all ids of another set.
    pub fn extend(&mut self, other: &IdSet) {
        for (chunk, words) in &other.chunks {
            let ours = self.chunks.entry(*chunk).or_insert_with(|| Box::new([0; WORDS]));
            ours.iter_mut().zip(words.iter()).for_each(|(ours, theirs)| *ours |= theirs);
        }
    }

    /// The ids as runs: first id and how many.
    pub(crate) fn runs(&self) -> Vec<(MetricId, u32)> {
        runs(self.iter())
    }
}

/// Rising ids as runs: first id and how many.
pub(crate) fn runs(ids: impl IntoIterator<Item = MetricId>) -> Vec<(MetricId, u32)> {
    let mut runs: Vec<(MetricId, u32)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((first, count)) if first.0 + *count == id.0 => *count += 1,
            _ => runs.push((id, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_in_order_and_as_runs() {
        let mut set = IdSet::default();
        let ids = [7, 3, 4, 5, 65_535, 65_536, u32::MAX - 1].map(MetricId);
        assert!(ids.iter().all(|id| set.insert(*id)) && !set.insert(MetricId(4)));
        let mut sorted = ids.to_vec();
        sorted.sort();
        assert_eq!(set.iter().collect::<Vec<_>>(), sorted);
        let runs: Vec<(u32, u32)> = set.runs().into_iter().map(|(first, count)| (first.0, count)).collect();
        assert_eq!(runs, [(3, 3), (7, 1), (65_535, 2), (u32::MAX - 1, 1)]);
        assert!(set.remove(MetricId(4)) && !set.remove(MetricId(4)) && !set.remove(MetricId(100_000)));
        assert!(!set.contains(MetricId(4)) && set.contains(MetricId(5)));
    }
}
