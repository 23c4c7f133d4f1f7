//! The answer of a find: nodes of the tree of names.

use std::ops::Range;

use metric::MetricId;

use crate::{
    limits::FindError,
    prefetch::prefetch,
    text_order::{Keyed, Texts, sort_by_text},
};

/// Nodes after one that is read, whose path is fetched meanwhile, and the bytes that the processor fetches of it.
const AHEAD: usize = 8;
const LINE_BYTES: usize = 64;
const LINES: usize = 4;

/// A node of the tree of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its full path.
    pub path: &'a str,
    /// Whether there is a metric of this name.
    pub is_leaf: bool,
    /// Whether there are metrics beneath. A node may be both.
    pub is_branch: bool,
    /// The id of the metric, of a leaf.
    pub id: Option<MetricId>,
}

/// The nodes found, sorted by path (as bytes), each once.
///
/// Paths lie in one buffer: eighty thousand answers are two allocations, not eighty thousand.
#[derive(Debug, Clone, Default)]
pub struct Found {
    // In the order of the pushes: a sort copies no text.
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    // Where the path is in the text.
    begin: u32,
    end: u32,
    // `MetricId::NONE` where no metric has the name.
    id: MetricId,
    is_branch: bool,
}

impl PartialEq for Found {
    fn eq(&self, other: &Found) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Found {}

impl Found {
    /// Bytes of a node in memory, without its path.
    pub(crate) const NODE_BYTES: usize = size_of::<Entry>();

    /// Nodes in any order: path, id of the metric, whether there is something beneath.
    ///
    /// # Errors
    /// [`FindError::TooManyNodes`] where their paths are longer than 4 GiB together.
    pub fn of<'a>(nodes: impl IntoIterator<Item = (&'a str, Option<MetricId>, bool)>) -> Result<Found, FindError> {
        let mut found = Found::default();
        for (path, id, is_branch) in nodes {
            found.push(path, id.unwrap_or(MetricId::NONE), is_branch)?;
        }
        Ok(found.sorted())
    }

    /// Nodes found.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.entries.len() * Found::NODE_BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The node at an index, in the order of paths.
    pub fn get(&self, index: usize) -> Option<Node<'_>> {
        self.entries.get(index).map(|entry| entry.node(&self.text))
    }

    /// The nodes in the order of their paths.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Node<'_>> {
        self.range(0..self.len())
    }

    /// Some of the nodes in the order of their paths.
    ///
    /// # Panics
    /// Where there are not so many.
    pub fn range(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = Node<'_>> {
        let text = self.text.as_bytes();
        let entries = &self.entries[range];
        entries.iter().enumerate().map(move |(index, entry)| {
            // The next path may be somewhere else in the text.
            if let Some(next) = entries.get(index + AHEAD) {
                let next = &text[next.begin as usize..next.end as usize];
                next.iter().step_by(LINE_BYTES).take(LINES).for_each(prefetch);
            }
            entry.node(&self.text)
        })
    }

    /// The ids and names of the metrics among the nodes, in the order of names.
    pub fn leaves(&self) -> impl Iterator<Item = (MetricId, &str)> {
        self.iter().filter_map(|node| node.id.map(|id| (id, node.path)))
    }

    /// Bytes of each path. Quicker than to read them.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|entry| entry.len())
    }

    /// Without nodes, with room for so many and so many bytes of their paths, each no more than `limit` bytes.
    pub(crate) fn with_room(nodes: usize, bytes: usize, limit: usize) -> Found {
        let nodes = nodes.min(limit / Found::NODE_BYTES);
        Found { text: String::with_capacity(bytes.min(limit)), entries: Vec::with_capacity(nodes) }
    }

    /// Adds a node after all others. `id` may be [`MetricId::NONE`].
    pub(crate) fn push(&mut self, path: &str, id: MetricId, is_branch: bool) -> Result<(), FindError> {
        let begin = self.text.len() as u32;
        self.text.push_str(path);
        let end = u32::try_from(self.text.len()).map_err(|_| FindError::TooManyNodes { limit: self.entries.len() })?;
        self.entries.push(Entry { begin, end, id, is_branch });
        Ok(())
    }

    /// Adds a node as `push` does, unless it is a branch alone whose path the last one has as a branch.
    pub(crate) fn push_unless_last(&mut self, path: &str, id: MetricId, is_branch: bool) -> Result<(), FindError> {
        let last = self.entries.len().checked_sub(1).and_then(|last| self.get(last));
        if id == MetricId::NONE && last.is_some_and(|last| last.is_branch && last.path == path) {
            return Ok(());
        }
        self.push(path, id, is_branch)
    }

    /// The same nodes in order, each once.
    pub(crate) fn sorted(mut self) -> Found {
        let text = self.text.as_bytes();
        let path = |entry: &Entry| &text[entry.begin as usize..entry.end as usize];
        let mut order: Vec<Keyed> = (0..self.entries.len() as u32).map(Keyed::new).collect();
        sort_by_text(&mut order, &mut Paths { text, entries: &self.entries });
        let mut sorted: Vec<Entry> = Vec::with_capacity(self.entries.len());
        for entry in order.iter().map(|keyed| self.entries[keyed.place as usize]) {
            match sorted.last_mut() {
                Some(last) if last.len() == entry.len() && path(last) == path(&entry) => {
                    if last.id == MetricId::NONE {
                        last.id = entry.id;
                    }
                    last.is_branch |= entry.is_branch;
                }
                _ => sorted.push(entry),
            }
        }
        self.entries = sorted;
        self
    }

    /// The same nodes in order, where the first ones are in order already. No path is there twice.
    pub(crate) fn sorted_behind(mut self, first: usize) -> Found {
        if first == self.len() {
            return self;
        }
        let new = Found { text: std::mem::take(&mut self.text), entries: self.entries.split_off(first) }.sorted();
        let text = new.text.as_bytes();
        let path = |entry: &Entry| &text[entry.begin as usize..entry.end as usize];
        let mut sorted = Vec::with_capacity(first + new.len());
        let mut rest = &self.entries[..];
        for entry in new.entries {
            // They are few: each is searched for among the others.
            let (before, behind) = rest.split_at(rest.partition_point(|known| path(known) < path(&entry)));
            sorted.extend_from_slice(before);
            sorted.push(entry);
            rest = behind;
        }
        sorted.extend_from_slice(rest);
        Found { text: new.text, entries: sorted }
    }

    /// Two answers as one.
    pub(crate) fn merge(self, other: Found) -> Result<Found, FindError> {
        if self.is_empty() {
            return Ok(other);
        }
        if other.is_empty() {
            return Ok(self);
        }
        let mut merged = Found {
            text: String::with_capacity(self.text.len() + other.text.len()),
            entries: Vec::with_capacity(self.len() + other.len()),
        };
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.path.cmp(b.path),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let path = a.or(b).expect("one side was peeked").path;
            let id = a.and_then(|node| node.id).or(b.and_then(|node| node.id));
            let is_branch = a.is_some_and(|node| node.is_branch) || b.is_some_and(|node| node.is_branch);
            merged.push(path, id.unwrap_or(MetricId::NONE), is_branch)?;
        }
        Ok(merged)
    }
}

/// The paths of entries, by their places.
struct Paths<'a> {
    text: &'a [u8],
    entries: &'a [Entry],
}

impl Texts for Paths<'_> {
    fn text(&self, place: u32) -> Option<&[u8]> {
        let entry = &self.entries[place as usize];
        Some(&self.text[entry.begin as usize..entry.end as usize])
    }
}

impl Entry {
    fn len(&self) -> usize {
        (self.end - self.begin) as usize
    }

    fn node<'a>(&self, text: &'a str) -> Node<'a> {
        let is_leaf = self.id != MetricId::NONE;
        let path = &text[self.begin as usize..self.end as usize];
        Node { path, is_leaf, is_branch: self.is_branch, id: is_leaf.then_some(self.id) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn nodes_are_in_the_order_of_their_bytes_each_once() {
        let random = SeededRandom::new(SeededRandom::test_seed(7));
        for prefix in ["", "a", "requests;app=", "ä"] {
            let mut expected: BTreeMap<String, (bool, bool)> = BTreeMap::new();
            let mut nodes = Vec::new();
            for _ in 0..2000 {
                // Also zeros, which the key has behind a short text, and texts that are alike for longer than a key.
                let length = random.index(24);
                let tail: String = (0..length).map(|_| ['\0', 'a', 'b', 'ü'][random.index(4)]).collect();
                let long = if random.below(3) == 0 { "0123456789abcdef" } else { "" };
                let (is_leaf, is_branch) = (random.below(2) == 0, random.below(2) == 0);
                let path = format!("{prefix}{long}{tail}");
                let known = expected.entry(path.clone()).or_default();
                *known = (known.0 || is_leaf, known.1 || is_branch);
                nodes.push((path, is_leaf.then_some(MetricId(1)), is_branch));
            }
            let found = Found::of(nodes.iter().map(|(path, id, is_branch)| (&**path, *id, *is_branch))).unwrap();
            let found: Vec<_> =
                found.iter().map(|node| (node.path.to_owned(), (node.is_leaf, node.is_branch))).collect();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
        assert!(Found::of([]).unwrap().is_empty());
    }
}
