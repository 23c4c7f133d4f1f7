//! The answer of a find: nodes of the tree of names.

use metric::MetricId;

use crate::limits::FindError;

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    // The path is the text from the end of the entry before to here.
    end: u32,
    // `MetricId::NONE` where no metric has the name.
    id: MetricId,
    is_branch: bool,
}

impl Found {
    /// Nodes in any order: path, id of the metric, whether there is something beneath.
    ///
    /// # Errors
    /// [`FindError::TooManyNodes`] where their paths are longer than 4 GiB together.
    pub fn of<'a>(nodes: impl IntoIterator<Item = (&'a str, Option<MetricId>, bool)>) -> Result<Found, FindError> {
        let mut found = Found::default();
        for (path, id, is_branch) in nodes {
            found.push(path, id.unwrap_or(MetricId::NONE), is_branch)?;
        }
        found.sorted()
    }

    /// Nodes found.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The node at an index, in the order of paths.
    pub fn get(&self, index: usize) -> Option<Node<'_>> {
        let entry = self.entries.get(index)?;
        let begin = if index == 0 { 0 } else { self.entries[index - 1].end };
        Some(entry.node(&self.text[begin as usize..entry.end as usize]))
    }

    /// The nodes in the order of their paths.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Node<'_>> {
        let mut begin = 0;
        self.entries.iter().map(move |entry| {
            let path = &self.text[begin as usize..entry.end as usize];
            begin = entry.end;
            entry.node(path)
        })
    }

    /// The ids and names of the metrics among the nodes, in the order of names.
    pub fn leaves(&self) -> impl Iterator<Item = (MetricId, &str)> {
        self.iter().filter_map(|node| node.id.map(|id| (id, node.path)))
    }

    /// Adds a node after all others. `id` may be [`MetricId::NONE`].
    pub(crate) fn push(&mut self, path: &str, id: MetricId, is_branch: bool) -> Result<(), FindError> {
        self.text.push_str(path);
        let end = u32::try_from(self.text.len()).map_err(|_| FindError::TooManyNodes { limit: self.entries.len() })?;
        self.entries.push(Entry { end, id, is_branch });
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
    pub(crate) fn sorted(self) -> Result<Found, FindError> {
        let mut nodes: Vec<Node<'_>> = self.iter().collect();
        nodes.sort_by(|a, b| a.path.cmp(b.path));
        let mut sorted = Found::default();
        for same in nodes.chunk_by(|a, b| a.path == b.path) {
            let id = same.iter().find_map(|node| node.id).unwrap_or(MetricId::NONE);
            sorted.push(same[0].path, id, same.iter().any(|node| node.is_branch))?;
        }
        Ok(sorted)
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

impl Entry {
    fn node(self, path: &str) -> Node<'_> {
        let is_leaf = self.id != MetricId::NONE;
        Node { path, is_leaf, is_branch: self.is_branch, id: is_leaf.then_some(self.id) }
    }
}
