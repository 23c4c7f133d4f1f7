//! `/admin/delete` and `/tags/delSeries`: which metrics a request names, and their deletion.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use api::{ExtensionRequest, TagStyle};
use hyper::{Method, StatusCode};
use ingest::{DeletionError, Ingest};
use metadata::{FindError, FindLimits, Registry};
use metric::{MetricId, canonical_name, is_tagged};
use serde_json::{Value, json};

use crate::asked::{Asked, CancelOnDrop};

/// Names in an answer.
const NAMES_SHOWN: usize = 100;

/// Answers `GET /admin/delete` with how far the current deletion is, `POST` by deleting what `query` (globs and names) and
/// `expr` (tag expressions that must all hold) name. With `dry_run` nothing is deleted.
pub async fn delete(ingest: Arc<Ingest>, request: ExtensionRequest) -> (StatusCode, Value) {
    if request.method != Method::POST {
        if request.uri.query().is_some_and(|query| !query.is_empty()) {
            let text = "GET answers how far the current deletion is and has no parameters; POST to delete, or with \
                        dry_run=1 to count and list";
            return (StatusCode::METHOD_NOT_ALLOWED, json!({"error": text}));
        }
        let (done, metrics) = ingest.deletion_progress();
        return (StatusCode::OK, json!({"metrics": metrics, "metrics_done": done}));
    }
    match delete_asked(ingest, request).await {
        Ok(answer) => (StatusCode::OK, answer),
        Err((status, error)) => (status, json!({"error": error})),
    }
}

async fn delete_asked(ingest: Arc<Ingest>, request: ExtensionRequest) -> Result<Value, (StatusCode, String)> {
    let asked = Asked::read(request).await?;
    asked.only(&["query", "expr", "dry_run"]).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
    let is_dry_run = asked.flag("dry_run");
    let registry = ingest.registry().clone();
    let cancelled = Arc::new(AtomicBool::new(false));
    // Nothing is deleted yet: the search ends when the client goes away.
    let _search = CancelOnDrop(cancelled.clone());
    let found = tokio::task::spawn_blocking(move || find(&registry, &asked, cancelled)).await;
    let found = found.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    let names: Vec<&str> = found.keys().take(NAMES_SHOWN).map(String::as_str).collect();
    let mut answer = json!({"metrics": found.len(), "deleted": 0, "dry_run": is_dry_run, "names": names});
    if !is_dry_run {
        let deleted = delete_metrics(ingest, found.into_values().collect()).await?;
        answer["deleted"] = deleted.into();
    }
    Ok(answer)
}

/// Deletes the series that `path` names, as graphite-web does. A missing one is not an error, and neither is one that the sender
/// may not write. Returns the status, the content type and the body.
pub async fn del_series(ingest: Arc<Ingest>, request: ExtensionRequest) -> (StatusCode, &'static str, Vec<u8>) {
    let (writes, allows_jsonp) = (request.sender.writes.clone(), request.allows_jsonp);
    let mut style = TagStyle::default();
    let deleted = async {
        let asked = Asked::read(request).await?;
        let invalid = |error| (StatusCode::BAD_REQUEST, error);
        // graphite-web has the last three for every request.
        asked.only(&["path", "path[]", "pretty", "jsonp", "local"]).map_err(invalid)?;
        style = TagStyle::of(allows_jsonp, asked.last("pretty"), asked.last("jsonp")).map_err(invalid)?;
        let paths = Some(asked.all("path")).filter(|paths| !paths.is_empty()).unwrap_or_else(|| asked.all("path[]"));
        if paths.is_empty() {
            return Err(invalid("no path specified".to_owned()));
        }
        let mut ids = Vec::with_capacity(paths.len());
        for path in paths {
            let unreadable = || invalid(format!("Cannot parse path {path}"));
            let name = canonical_name(path.as_bytes()).map_err(|_| unreadable())?;
            let registry = ingest.registry();
            let id = registry.read().find(registry.hash(name.as_bytes()), name.as_bytes());
            if id.is_none() && !metadata::is_plain_or_tagged(&name) {
                return Err(unreadable());
            }
            ids.extend(id.filter(|_| writes.as_ref().is_none_or(|writes| writes.shows_metric(&name))));
        }
        delete_metrics(ingest, ids).await
    };
    match deleted.await {
        Ok(_) => (StatusCode::OK, style.content_type(), style.done()),
        Err((status, error)) => (status, style.content_type(), style.error(&error)),
    }
}

/// In a task, so that a deletion ends also when the client goes away.
async fn delete_metrics(ingest: Arc<Ingest>, metrics: Vec<MetricId>) -> Result<usize, (StatusCode, String)> {
    match tokio::spawn(async move { deleted_and_logged(&ingest, &metrics).await }).await {
        Ok(Ok(deleted)) => Ok(deleted),
        Ok(Err(error)) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// Deletes metrics, and says so in the log: the client may have gone away.
async fn deleted_and_logged(ingest: &Ingest, metrics: &[MetricId]) -> Result<usize, DeletionError> {
    let deleted = ingest.delete(metrics).await;
    match &deleted {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(metrics = deleted, "deleted metrics that a request named"),
        Err(error) => tracing::error!(%error, asked = metrics.len(), "a deletion that a request asked for has failed"),
    }
    deleted
}

/// The metrics that a request names, by name.
fn find(
    registry: &Registry,
    asked: &Asked,
    cancelled: Arc<AtomicBool>,
) -> Result<BTreeMap<String, MetricId>, (StatusCode, String)> {
    let (queries, expressions) = (asked.all("query"), asked.all("expr"));
    if queries.is_empty() && expressions.is_empty() {
        let text = "give a glob in 'query' or tag expressions in 'expr'";
        return Err((StatusCode::BAD_REQUEST, text.to_owned()));
    }
    // Globs name metrics without tags, expressions those with tags.
    if !queries.is_empty() && !expressions.is_empty() {
        let text = "give globs ('query') or tag expressions ('expr'), not both: globs find names without tags, expressions \
                    those with tags; 'name=~^keep' is an expression on the name";
        return Err((StatusCode::BAD_REQUEST, text.to_owned()));
    }
    let unfit = |error: &dyn std::fmt::Display| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
    let limits = FindLimits { cancelled: Some(cancelled.clone()), ..FindLimits::default() };
    let mut found = BTreeMap::new();
    for query in queries {
        // A search that is over at once does not look, and there may be thousands.
        if cancelled.load(Relaxed) {
            return Err(unfit(&FindError::Cancelled));
        }
        // The tags of a metric may come in any order, and in OpenMetrics' form.
        let name =
            (is_tagged(query) || query.ends_with("\"}")).then(|| canonical_name(query.as_bytes()).ok()).flatten();
        let leaves = registry.leaves(name.as_deref().unwrap_or(query), &limits).map_err(|error| unfit(&error))?;
        // A name may have a lone bracket; where none does, the glob is a typing error.
        if leaves.is_empty()
            && let Some(error) = unbalanced(query)
        {
            return Err((StatusCode::UNPROCESSABLE_ENTITY, error));
        }
        found.extend(leaves.leaves().map(|(id, name)| (name.to_owned(), id)));
    }
    if !expressions.is_empty() {
        let expressions =
            api::read_tag_expressions(&expressions).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        let tagged = registry.tagged(&expressions, &limits).map_err(|error| unfit(&error))?;
        found.extend(tagged.leaves().map(|(id, name)| (name.to_owned(), id)));
    }
    Ok(found)
}

/// What is wrong with the brackets of a glob.
fn unbalanced(glob: &str) -> Option<String> {
    let pairs = [('{', '}'), ('[', ']')];
    pairs.into_iter().find_map(|(open, close)| {
        let (opened, closed) = (glob.matches(open).count(), glob.matches(close).count());
        match opened.cmp(&closed) {
            Ordering::Greater => Some(format!("'{glob}' is not a glob: '{open}' is not closed")),
            Ordering::Less => Some(format!("'{glob}' is not a glob: '{close}' is not opened")),
            Ordering::Equal => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use metric::Policy;

    use super::*;

    #[test]
    fn a_tagged_metric_is_named_by_its_tags_in_any_order() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in ["a;dc=eu;host=1", "a;dc=eu;host=2"] {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
        }
        for query in ["a;dc=eu;host=1", "a;host=1;dc=eu", "a{host=\"1\",dc=\"eu\"}"] {
            let form = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
            let found = find(&registry, &Asked::parsed(form.as_bytes()), Arc::default()).unwrap();
            assert_eq!(found.into_keys().collect::<Vec<_>>(), ["a;dc=eu;host=1"], "{query}");
        }
    }

    #[test]
    fn a_search_ends_when_its_client_is_gone() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in ["a.b", "a.c;dc=eu"] {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let search = CancelOnDrop(cancelled.clone());
        let asked = [&b"query=a.*&query=x.*"[..], b"expr=dc=~e"].map(Asked::parsed);
        let found = |asked: &Asked| find(&registry, asked, cancelled.clone()).map(|found| found.len());
        assert_eq!([found(&asked[0]), found(&asked[1])], [Ok(1), Ok(1)]);
        drop(search);
        // Also where each glob is found at once. Expressions look at the flag as often as those of a query.
        let over = Err((StatusCode::UNPROCESSABLE_ENTITY, "the request was cancelled".to_owned()));
        assert_eq!(found(&asked[0]), over);
    }
}
