//! The points of one metric on their way to the store.

use downsample::{PendingPoints, Stored, WriterPartials};
use metadata::PolicyId;
use metric::MetricId;

/// The points of one metric that are being written. They stay readable from here until they are stored.
#[derive(Debug)]
pub(crate) struct FlushJob {
    pub(crate) metric: MetricId,
    /// The policy under which the points were accepted.
    pub(crate) policy: PolicyId,
    pub(crate) points: PendingPoints,
    /// The partials that this writer had stored before, where known.
    pub(crate) partials: Option<WriterPartials>,
    /// Whether this writer's partials may be remembered afterwards: not when other points of the metric, under other
    /// policies, are stored between these and those in memory.
    pub(crate) is_latest: bool,
}

impl FlushJob {
    /// How far this writer's rows reached before.
    pub(crate) fn stored_before(&self) -> Stored {
        self.partials.as_ref().map_or(Stored::Unknown, WriterPartials::stored)
    }
}
