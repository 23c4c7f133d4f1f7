//! Work on names: waits for a turn, then runs on a thread that may block, within the limits of a find.

use std::sync::{Arc, atomic::Ordering};

use metadata::{FindError, FindLimits, Found, HideStale, TimeFilter};
use metric::MetricId;

use crate::{
    http::{Coding, Rejection, Response},
    query::{Backend, Kind, NamesTimes, Query, Reply, Work, blocking},
};

/// Waits for a turn, then calls `work` on a thread that may block. The limits tell `work` when the client disconnects, and the
/// times that the client asks for.
pub(crate) async fn names_work(
    backend: &Arc<Backend>,
    query: &Query,
    work: impl FnOnce(&Backend, &FindLimits, Coding, &Work) -> Result<Response, Rejection> + Send + 'static,
) -> Result<Reply, Rejection> {
    let times = NamesTimes::read(backend, &query.parameters)?;
    names_work_at(backend, query, times, work).await
}

/// As [`names_work`], with times that the request has elsewhere.
pub(crate) async fn names_work_at(
    backend: &Arc<Backend>,
    query: &Query,
    times: NamesTimes,
    work: impl FnOnce(&Backend, &FindLimits, Coding, &Work) -> Result<Response, Rejection> + Send + 'static,
) -> Result<Reply, Rejection> {
    let (turn, _cancel) = Work::begin(backend, query, Kind::Names).await?;
    let (backend, viewer, coding) = (backend.clone(), query.viewer.clone(), query.coding());
    let nodes = backend.limits.find_results;
    let work = move || {
        let cancelled = turn.cancelled().clone();
        let filter = viewer.nodes(&*backend.finder)?;
        let stale = Some(HideStale { now: times.now, unless: [times.span()].into() });
        let cancelled = Some(cancelled);
        let limits = FindLimits { nodes, cancelled, filter, times: times.span(), stale, ..FindLimits::default() };
        work(&backend, &limits, coding, &turn)
    };
    Ok(blocking(work).await?.into())
}

/// Bytes of a node in an answer, without its path: an estimate.
const NODE_BYTES: usize = 80;

/// Memory for nodes, and for the answer with them: an estimate.
pub(crate) fn answer_bytes(found: &Found) -> usize {
    found.lengths().map(|length| length + NODE_BYTES).sum()
}

/// Finds one of several patterns, and subtracts its nodes from `left`, the limits of the next patterns.
pub(crate) fn find_next(
    backend: &Backend,
    work: &Work,
    pattern: &str,
    left: &mut FindLimits,
    limits: &FindLimits,
) -> Result<Found, Rejection> {
    // A find that is over at once does not look at the client, and there may be thousands.
    if is_cancelled(limits) {
        return Err(Rejection::Cancelled);
    }
    let found = work.find(left, |limits| backend.finder.find(pattern, limits))?.map_err(|error| match error {
        FindError::TooManyNodes { .. } => FindError::TooManyNodes { limit: limits.nodes },
        other => other,
    })?;
    left.nodes -= found.len();
    Ok(found)
}

/// Checks the bytes of all patterns of a request.
pub(crate) fn check_patterns(backend: &Backend, patterns: &[impl AsRef<str>]) -> Result<(), Rejection> {
    let bytes = patterns.iter().map(|pattern| pattern.as_ref().len()).sum();
    backend.check_target_bytes("the bytes of the patterns are", bytes)
}

/// The metrics that a list of all has: those that the sender sees, with points in the times that are asked for, or else not
/// stale.
pub(crate) struct Listed<'a> {
    limits: &'a FindLimits,
    unseen: Option<TimeFilter<'a>>,
}

impl<'a> Listed<'a> {
    pub fn new(backend: &'a Backend, limits: &'a FindLimits) -> Listed<'a> {
        Listed { limits, unseen: backend.registry.time_filter(limits) }
    }

    /// Whether it has a metric.
    pub fn has(&self, id: MetricId, name: &str) -> bool {
        self.limits.filter.as_ref().is_none_or(|filter| filter.shows_metric(name))
            && !self.unseen.as_ref().is_some_and(|unseen| unseen.hides(id))
    }
}

/// Whether the client has disconnected.
pub(crate) fn is_cancelled(limits: &FindLimits) -> bool {
    limits.cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
