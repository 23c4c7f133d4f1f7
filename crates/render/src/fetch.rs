//! The fetches that a request needs, and their answers.

use std::{collections::HashMap, sync::Arc};

use crate::{Consolidation, Series, Span};

/// The series of one path expression, over one span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fetch {
    /// A glob, or a whole `seriesByTag(...)` call, as the target has it.
    pub path: Arc<str>,
    /// When.
    pub span: Span,
    /// The rollup that a coarse stage is read of, where a metric has several and this is one of them. `None` asks for the
    /// first.
    pub rollup: Option<Consolidation>,
    /// The spans over which the whole target reads the path, where stale metrics are hidden: one with points in any of
    /// them is among the series of each. `None` where that is the span alone.
    pub reads: Option<Arc<[Span]>>,
}

impl Fetch {
    /// The series of a path over a span, of the first rollup.
    pub fn new(path: impl Into<Arc<str>>, span: Span) -> Fetch {
        Fetch { path: path.into(), span, rollup: None, reads: None }
    }
}

/// The times of the events of one span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventFetch {
    /// Which events.
    pub tags: EventTags,
    /// When. Both ends belong to it.
    pub span: Span,
}

/// Selects events by their tags.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventTags {
    /// Every event: `events('*')`.
    Any,
    /// Events that have all of these tags. An empty list selects no event, as in graphite-web.
    All(Arc<[String]>),
}

/// One round of fetches, each once, in the order in which the targets need them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fetches {
    /// Series to fetch, for [`Data::put`].
    pub series: Vec<Fetch>,
    /// Events to fetch, for [`Data::put_events`].
    pub events: Vec<EventFetch>,
}

impl Fetches {
    /// Whether there is nothing to fetch.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.events.is_empty()
    }
}

/// The answers to fetches. A fetch that found nothing has an empty answer; one without an answer was not made yet.
#[derive(Debug, Clone, Default)]
pub struct Data {
    series: HashMap<Fetch, Vec<Series>>,
    events: HashMap<EventFetch, Vec<i64>>,
}

impl Data {
    /// Nothing fetched yet.
    pub fn new() -> Data {
        Data::default()
    }

    /// Files the answer to a fetch, sorted by name as Graphite sorts it.
    pub fn put(&mut self, fetch: Fetch, mut series: Vec<Series>) {
        series.sort_by(|a, b| a.name.cmp(&b.name));
        self.series.insert(fetch, series);
    }

    /// Files the time of each event, Unix seconds, in any order. Times outside of the span do not count.
    pub fn put_events(&mut self, fetch: EventFetch, times: Vec<i64>) {
        self.events.insert(fetch, times);
    }

    /// The answer to a fetch, if it was made.
    pub fn get(&self, fetch: &Fetch) -> Option<&[Series]> {
        self.series.get(fetch).map(Vec::as_slice)
    }

    /// The times of events, if they were fetched.
    pub fn get_events(&self, fetch: &EventFetch) -> Option<&[i64]> {
        self.events.get(fetch).map(Vec::as_slice)
    }
}
