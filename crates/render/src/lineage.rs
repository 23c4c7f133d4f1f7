//! Where a series comes from: the stage that was read, and what was folded since. Only for requests that ask.

use std::sync::Arc;

/// What was read, as the reader of series tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The stages of the metric, for people and for Grafana.
    pub stages: String,
    /// The index of the stage that was read.
    pub stage: usize,
    /// Seconds from a value to the next, as read.
    pub step: i64,
    /// The method that makes coarser stages.
    pub method: &'static str,
}

/// What was read for a series or a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// What was read.
    pub source: Arc<Source>,
    /// Values folded into one because series of other steps were combined with these; 1 where they were not.
    pub normalized: i64,
    /// Values folded into one for `maxDataPoints`, and the method. `None` where they were not.
    pub consolidated: Option<(i64, &'static str)>,
    /// How many series of this origin were combined.
    pub count: u64,
}

/// The origins of a series, each once. `None` unless the request asks, and for series that are made of nothing.
pub type Lineage = Option<Arc<Vec<Origin>>>;

/// The lineage of a fetched series. Where values of several methods are in it, each is a source.
pub fn fetched_from(sources: impl Iterator<Item = Source>) -> Lineage {
    let origin = |source| Origin { source: Arc::new(source), normalized: 1, consolidated: None, count: 1 };
    Some(Arc::new(sources.map(origin).collect()))
}

/// Notes that so many values were folded into one for `maxDataPoints`, and by which method.
pub(crate) fn note_consolidation(lineage: &mut Lineage, per_point: usize, method: &'static str) {
    if let Some(lineage) = lineage {
        for origin in Arc::make_mut(lineage) {
            origin.consolidated = Some((i64::try_from(per_point).unwrap_or(i64::MAX), method));
        }
    }
}
