//! The bounds of a find, what it has spent of them, and why it fails.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use globs::GlobError;
use metric::MetricId;

use crate::{
    seen::{SeenSpan, TimeFilter},
    stale::HideStale,
    tag_expressions::TagError,
};

/// The names that the caller of a find may see. Others answer as names that do not exist.
pub trait NameFilter: Debug + Send + Sync + 'static {
    /// Whether a metric of this name is shown.
    fn shows_metric(&self, name: &str) -> bool;

    /// Whether a branch of the tree is shown, which has a metric below.
    fn shows_branch(&self, path: &str) -> bool;
}

/// The bounds of a find.
#[derive(Debug, Clone)]
pub struct FindLimits {
    /// Nodes in the answer, at most; one more is [`FindError::TooManyNodes`].
    pub nodes: usize,
    /// Bytes of the answer in memory, at most; one more is [`FindError::TooManyBytes`].
    pub bytes: usize,
    /// Steps of the walk (about one a byte of a name), at most; one more is [`FindError::TooMuchWork`].
    pub steps: u64,
    /// Set by the caller to cancel the find, which reads the flag every few microseconds.
    pub cancelled: Option<Arc<AtomicBool>>,
    /// The names that the caller may see; all without it.
    pub filter: Option<Arc<dyn NameFilter>>,
    /// Metrics without points in this span are left out, and branches without others.
    pub times: SeenSpan,
    /// Without times, stale metrics are left out; none without this. See [`Registry::set_stale_rules`](crate::Registry::set_stale_rules).
    pub stale: Option<HideStale>,
}

impl FindLimits {
    /// What the caller may see of a node: its metric, its branch.
    pub(crate) fn shown(&self, path: &str, id: MetricId, is_branch: bool) -> (MetricId, bool) {
        let Some(filter) = &self.filter else { return (id, is_branch) };
        let is_shown = id != MetricId::NONE && filter.shows_metric(path);
        (if is_shown { id } else { MetricId::NONE }, is_branch && filter.shows_branch(path))
    }
}

impl FindLimits {
    /// Fails when the caller has cancelled the find.
    pub(crate) fn check_cancelled(&self) -> Result<(), FindError> {
        match &self.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(FindError::Cancelled),
            _ => Ok(()),
        }
    }
}

impl Default for FindLimits {
    /// A million nodes; a second or two of walking.
    fn default() -> FindLimits {
        FindLimits {
            nodes: 1_000_000,
            bytes: usize::MAX,
            steps: 100_000_000,
            cancelled: None,
            filter: None,
            times: SeenSpan::default(),
            stale: None,
        }
    }
}

/// Why a find failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The pattern is invalid.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// More answers than the caller takes.
    #[error("the pattern matches more than {limit} metrics and branches; make it narrower")]
    TooManyNodes {
        /// Nodes allowed.
        limit: usize,
    },
    /// An answer larger than the caller has memory for.
    #[error("the answer has more than {limit} bytes; make the pattern narrower")]
    TooManyBytes {
        /// Bytes allowed.
        limit: usize,
    },
    /// More walking than the caller allows.
    #[error("the pattern takes too long to resolve; begin it with fixed components or make it narrower")]
    TooMuchWork,
    /// More tagged metrics than one request may read.
    #[error("there are more than {limit} metrics with tags, which is too many to look through; use names or globs")]
    TooManyTagged {
        /// Metrics that one request may read.
        limit: u64,
    },
    /// The tag expressions are invalid.
    #[error(transparent)]
    Tags(#[from] TagError),
    /// The pattern would read more rows of the shared tables than the settings allow.
    #[error("{0}")]
    TooManyRows(String),
    /// The store of the names cannot answer now.
    #[error("{0}")]
    Elsewhere(String),
    /// The caller cancelled the find.
    #[error("the request was cancelled")]
    Cancelled,
}

/// How much of its limits a find has used.
pub(crate) struct Budget<'a> {
    pub(crate) limits: &'a FindLimits,
    /// The metrics that are left out because of the times of their points.
    pub(crate) unseen: Option<TimeFilter<'a>>,
    steps: u64,
    /// Bytes of parts of the answer that are whole.
    pub(crate) parts: usize,
}

/// Steps between looks at the cancel flag.
const STEPS_PER_LOOK: u64 = 1024;

impl<'a> Budget<'a> {
    pub(crate) fn new(limits: &'a FindLimits, unseen: Option<TimeFilter<'a>>) -> Budget<'a> {
        Budget { limits, unseen, steps: 0, parts: 0 }
    }

    /// Whether a metric is left out because of the times of its points. See [`TimeFilter::hides`].
    #[inline]
    pub(crate) fn hides(&self, id: MetricId) -> bool {
        self.unseen.as_ref().is_some_and(|unseen| unseen.hides(id))
    }

    /// Judges metrics, so that [`Budget::hides`] can be asked under locks.
    pub(crate) fn prepare(&self, ids: &[MetricId]) {
        if let Some(unseen) = &self.unseen {
            unseen.prepare(ids);
        }
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
        self.limits.check_cancelled()
    }

    /// Steps that are spent.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Checks an answer against the limits.
    #[inline]
    pub(crate) fn check(&self, bytes: usize, nodes: usize) -> Result<(), FindError> {
        if self.parts + bytes > self.limits.bytes {
            return Err(FindError::TooManyBytes { limit: self.limits.bytes });
        }
        self.check_nodes(nodes)
    }

    /// Checks the number of answers against the limit.
    #[inline]
    pub(crate) fn check_nodes(&self, nodes: usize) -> Result<(), FindError> {
        if nodes > self.limits.nodes {
            return Err(FindError::TooManyNodes { limit: self.limits.nodes });
        }
        Ok(())
    }
}
