//! Resolves the paths of a render to metrics.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metadata::{FindError, FindLimits, Found, NameFilter, TagError, TagExpressions};
use render::{Argument, Expression};

use super::request::RenderRequest;
use crate::{
    http::Rejection,
    query::{Backend, Work, compile_pattern, is_invalid_pattern},
};

/// The metrics of each path of a request. Each path is resolved once.
pub(super) struct ResolvedPaths {
    /// The sources of names and points.
    pub backend: Arc<Backend>,
    from_front_end: bool,
    filter: Option<Arc<dyn NameFilter>>,
    work: Arc<Work>,
    found: Mutex<HashMap<Arc<str>, Found>>,
}

impl ResolvedPaths {
    /// No path yet. The work tells when the client is gone.
    pub fn new(backend: Arc<Backend>, request: &RenderRequest, work: Arc<Work>) -> ResolvedPaths {
        let (from_front_end, filter) = (request.from_front_end, request.viewer.metrics());
        ResolvedPaths { backend, from_front_end, filter, work, found: Mutex::default() }
    }

    /// Calls `each` with the metrics of a path.
    pub fn with<T>(&self, path: &Arc<str>, each: impl FnOnce(&Found) -> T) -> Result<T, Rejection> {
        let mut found = self.found();
        let entry = match found.entry(path.clone()) {
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
            ..FindLimits::default()
        };
        let Backend { registry, finder, .. } = &*self.backend;
        let tagged = |limits: &FindLimits| {
            let tags = tag_expressions(path)?;
            finder.has_all()?;
            registry.tagged(&tags, limits)
        };
        let leaves = self.work.find(&limits, |limits| match path.starts_with("seriesByTag(") {
            true => tagged(limits),
            false => finder.leaves(path, limits),
        });
        match leaves? {
            Ok(leaves) => Ok(each(entry.insert(leaves))),
            Err(FindError::TooManyNodes { .. }) => Err(too_many_series(limits.nodes)),
            Err(error) if self.from_front_end && is_invalid_pattern(&error) => Ok(each(entry.insert(Found::default()))),
            Err(error) => Err(error.into()),
        }
    }

    /// The paths resolved so far.
    pub fn found(&self) -> MutexGuard<'_, HashMap<Arc<str>, Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    TagExpressions::read(&texts.collect::<Vec<_>>(), compile_pattern)
}

/// The rejection of a request for more series than `limit`.
pub(super) fn too_many_series(limit: usize) -> Rejection {
    let given = format!("more than {limit}");
    Rejection::TooMuch { what: "the series that match are", given, limit, setting: "query.max_series" }
}
