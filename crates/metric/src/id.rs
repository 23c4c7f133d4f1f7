//! The id by which one node knows a metric.

use std::fmt;

/// A metric's id in the registry of one node.
///
/// The registry gives ids out: 0 to the first metric, then one more to each. A metric keeps its id for good, and no
/// other metric ever gets it, not even after a deletion. Other nodes have other ids for the same names. At most
/// 2³² - 1 metrics have one: the registry panics rather than give out [`MetricId::NONE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MetricId(pub u32);

impl MetricId {
    /// No metric's id, where four bytes are to say that there is none.
    pub const NONE: MetricId = MetricId(u32::MAX);

    /// The id as an index into columns that have an entry for each metric.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MetricId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const _: () = assert!(size_of::<MetricId>() == 4, "millions of ids are kept in columns");
