//! What a find asks, and what it answers.

use metric::MetricId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use globs::GlobError;

use crate::TagError;

/// How far a find may go.
#[derive(Debug, Clone)]
pub struct FindLimits {
    /// Nodes in the answer, at most; one more is [`FindError::TooManyNodes`].
    pub nodes: usize,
    /// Steps of the walk (bytes of names looked at, about), at most; one more is [`FindError::TooMuchWork`].
    pub steps: u64,
    /// Set by whoever asked when the answer is no longer wanted; looked at every few microseconds.
    pub cancelled: Option<Arc<AtomicBool>>,
}

impl Default for FindLimits {
    /// A million nodes; a second or two of walking.
    fn default() -> FindLimits {
        FindLimits { nodes: 1_000_000, steps: 100_000_000, cancelled: None }
    }
}

/// Who answers globs: the registry's path index, or something beside that knows more names.
///
/// A call may take as long as the names are far; it is made where blocking is allowed.
pub trait Finder: Send + Sync + 'static {
    /// The nodes that a pattern names, as [`Registry::find`](crate::Registry::find) has them.
    ///
    /// # Errors
    /// As there; [`FindError::Elsewhere`] where names are asked of a store that cannot answer.
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError>;

    /// The metrics that a pattern names, as [`Registry::leaves`](crate::Registry::leaves) has them.
    ///
    /// # Errors
    /// As for [`Finder::find`].
    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError>;

    /// Whether the registry has every name, for answers that list or look through all of them.
    ///
    /// # Errors
    /// [`FindError::Elsewhere`] where it has not read them yet.
    fn has_all(&self) -> Result<(), FindError> {
        Ok(())
    }
}

impl Finder for crate::Registry {
    fn find(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        crate::Registry::find(self, pattern, limits)
    }

    fn leaves(&self, pattern: &str, limits: &FindLimits) -> Result<Found, FindError> {
        crate::Registry::leaves(self, pattern, limits)
    }
}

/// Why a find was refused or ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// A pattern that is refused whatever the names are.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// More answers than the caller takes.
    #[error("the pattern matches more than {limit} metrics and branches; make it narrower")]
    TooManyNodes {
        /// Nodes allowed.
        limit: usize,
    },
    /// More walking than the caller allows.
    #[error("the pattern takes too long to resolve; begin it with fixed components or make it narrower")]
    TooMuchWork,
    /// More tagged metrics than are looked through for one question.
    #[error("there are more than {limit} metrics with tags, which is too many to look through; use names or globs")]
    TooManyTagged {
        /// Metrics that are looked through.
        limit: u64,
    },
    /// A question about tags that cannot be answered.
    #[error(transparent)]
    Tags(#[from] TagError),
    /// The tables of names refuse the pattern: it reads more rows of them than it may.
    #[error("{0}")]
    TooManyRows(String),
    /// The store of the names does not answer.
    #[error("{0}")]
    Elsewhere(String),
    /// The caller gave up.
    #[error("the request was cancelled")]
    Cancelled,
}

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

    /// Adds a node as `push` does, unless it says no more than the last one.
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

/// What a find has spent of its limits.
pub(crate) struct Budget<'a> {
    limits: &'a FindLimits,
    steps: u64,
}

/// Steps between looks at the cancel flag.
const STEPS_PER_LOOK: u64 = 1024;

impl<'a> Budget<'a> {
    pub(crate) fn new(limits: &'a FindLimits) -> Budget<'a> {
        Budget { limits, steps: 0 }
    }

    /// Spends steps.
    #[inline]
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), FindError> {
        let before = self.steps;
        self.steps += steps;
        if before / STEPS_PER_LOOK != self.steps / STEPS_PER_LOOK {
            self.look()?;
        }
        Ok(())
    }

    #[cold]
    fn look(&self) -> Result<(), FindError> {
        if self.steps > self.limits.steps {
            return Err(FindError::TooMuchWork);
        }
        match &self.limits.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(FindError::Cancelled),
            _ => Ok(()),
        }
    }

    /// Checks an number of answers against the limit.
    #[inline]
    pub(crate) fn check_nodes(&self, nodes: usize) -> Result<(), FindError> {
        if nodes > self.limits.nodes {
            return Err(FindError::TooManyNodes { limit: self.limits.nodes });
        }
        Ok(())
    }
}
