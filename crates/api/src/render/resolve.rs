//! Resolves the paths of a render to metrics.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metadata::{FindError, FindLimits, Found, HideStale, NameFilter, SeenSpan, TagError, TagExpressions};
use metric::Timestamp;
use render::{Argument, Expression, Fetch, Span};

use super::request::RenderRequest;
use crate::{
    http::Rejection,
    query::{Backend, Work, is_invalid_pattern, read_tag_expressions},
};

/// The metrics of each path of a request. Each path is resolved once; where there are rules for stale metrics, once for all
/// times that a target reads of it.
pub(super) struct ResolvedPaths {
    /// The sources of names and points.
    pub backend: Arc<Backend>,
    from_front_end: bool,
    filter: Option<Arc<dyn NameFilter>>,
    work: Arc<Work>,
    now: Timestamp,
    /// Whether there are rules for stale metrics.
    pub hides_stale: bool,
    found: Mutex<HashMap<Resolved, Found>>,
}

/// A path, and the time spans that are read, where these count.
pub(super) type Resolved = (Arc<str>, Option<Arc<[Span]>>);

impl ResolvedPaths {
    /// No path yet. The work tells when the client is gone.
    pub fn new(backend: Arc<Backend>, request: &RenderRequest, work: Arc<Work>) -> ResolvedPaths {
        let (from_front_end, filter) = (request.from_front_end, request.viewer.metrics());
        let (now, hides_stale) = (backend.now(), backend.registry.has_stale_rules());
        ResolvedPaths { backend, from_front_end, filter, work, now, hides_stale, found: Mutex::default() }
    }

    /// What the metrics of a fetch are found under. A metric that is named is never left out.
    pub fn key(&self, fetch: &Fetch) -> Resolved {
        let is_search = is_tagged_search(&fetch.path) || metadata::is_pattern(&fetch.path);
        let reads = || fetch.reads.clone().unwrap_or_else(|| [fetch.span].into());
        (fetch.path.clone(), (self.hides_stale && is_search).then(reads))
    }

    /// Calls `each` with the metrics of a fetch.
    pub fn with<T>(&self, fetch: &Fetch, each: impl FnOnce(&Found) -> T) -> Result<T, Rejection> {
        let mut found = self.found();
        let (path, key) = (&fetch.path, self.key(fetch));
        // Nothing that is drawn is left out.
        let seen = |span: &Span| SeenSpan { from: Some(span.from), until: Some(span.until) };
        let stale = key.1.as_ref().map(|reads| HideStale { now: self.now, unless: reads.iter().map(seen).collect() });
        let entry = match found.entry(key) {
            Entry::Occupied(known) => return Ok(each(known.get())),
            Entry::Vacant(entry) => entry,
        };
        // A find that is over at once does not look at the client, and there may be thousands.
        if self.work.is_cancelled() {
            return Err(Rejection::Cancelled);
        }
        let limits = FindLimits {
            nodes: self.backend.limits.series,
            cancelled: Some(self.work.cancelled().clone()),
            filter: self.filter.clone(),
            stale,
            ..FindLimits::default()
        };
        let Backend { registry, finder, .. } = &*self.backend;
        let leaves = match is_tagged_search(path) {
            true => {
                match tag_expressions(path).map_err(FindError::from).and_then(|tags| finder.has_all().map(|()| tags)) {
                    Ok(tags) => self.work.find_tagged(registry, &tags, &limits, |_| 0)?,
                    Err(error) => Err(error),
                }
            }
            false => self.work.find(&limits, |limits| finder.leaves(path, limits))?,
        };
        match leaves {
            Ok(leaves) => Ok(each(entry.insert(leaves))),
            Err(FindError::TooManyNodes { .. }) => Err(too_many_series(limits.nodes)),
            Err(error) if self.from_front_end && is_invalid_pattern(&error) => Ok(each(entry.insert(Found::default()))),
            Err(error) => Err(error.into()),
        }
    }

    /// The paths resolved so far.
    pub fn found(&self) -> MutexGuard<'_, HashMap<Resolved, Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a path is a whole `seriesByTag(...)` call.
fn is_tagged_search(path: &str) -> bool {
    path.starts_with("seriesByTag(")
}

/// The expressions of a whole `seriesByTag(...)` call. The grammar keeps the call as text, so this parses its arguments
/// under another name. Arguments that are not texts are ignored, as in graphite-web.
fn tag_expressions(call: &str) -> Result<TagExpressions, TagError> {
    let arguments = call.strip_prefix("seriesByTag").unwrap_or(call);
    let Ok(Expression::Call(call)) = render::parse(&format!("tags{arguments}")) else {
        return Err(TagError::Invalid(call.to_owned()));
    };
    let texts = call.positional.into_iter().filter_map(|argument| match argument {
        Argument::Text(text) => Some(text),
        _ => None,
    });
    read_tag_expressions(&texts.collect::<Vec<_>>())
}

/// The rejection of a request for more series than `limit`.
pub(super) fn too_many_series(limit: usize) -> Rejection {
    let given = format!("more than {limit}");
    Rejection::TooMuch { what: "the series that match are", given, limit, setting: "query.max_series" }
}
