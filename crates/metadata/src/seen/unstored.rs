//! What the index asks of the owner of points in memory.

use metric::{MetricId, Timestamp};

/// The points that are accepted and in no row yet.
pub trait UnstoredPoints: Send + Sync + 'static {
    /// Whether all of them can be listed: not while some are in the journal alone.
    fn are_known(&self) -> bool;

    /// Calls `each` with those of the metrics that have some, and with times that all of them are between.
    fn spans(&self, ids: &[MetricId], each: &mut dyn FnMut(MetricId, Timestamp, Timestamp));
}
