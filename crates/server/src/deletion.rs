//! `/admin/delete` and `/tags/delSeries`: which metrics a request names, and their deletion.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use api::ExtensionRequest;
use hyper::{Method, StatusCode};
use ingest::Ingest;
use metadata::{FindError, FindLimits, Matcher, Registry, TagExpressions};
use metric::{MetricId, canonical_name};
use render::PythonRegex;
use serde_json::{Value, json};

/// Bytes of a form.
const FORM_BYTES: usize = 64 << 10;

/// Names in an answer.
const NAMES_SHOWN: usize = 100;

/// The parameters of a request: the query string's, then the form's.
pub struct Asked(Vec<(String, String)>);

impl Asked {
    /// Reads them, and says them for the record of the request.
    pub async fn read(request: ExtensionRequest) -> Result<Asked, (StatusCode, String)> {
        let asked_for = request.asked_for.clone();
        let read = request.parameters(FORM_BYTES, "a form of at most 64 KiB").await;
        let mut pairs = read.map_err(|error| (StatusCode::BAD_REQUEST, error))?;
        pairs.retain(|(name, _)| !name.is_empty());
        let asked = Asked(pairs);
        let shown = asked.0.iter().filter(|(name, _)| name != "proof");
        asked_for.set(shown.map(|(name, value)| format!("{name}={value}")).collect());
        Ok(asked)
    }

    /// Of a form.
    #[cfg(test)]
    pub fn parsed(text: &[u8]) -> Asked {
        let pairs = form_urlencoded::parse(text).filter(|(name, _)| !name.is_empty());
        Asked(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Rejects parameters that a request does not have: what a misspelt one was to prevent would happen.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        let Some((unknown, _)) = self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) else { return Ok(()) };
        Err(match known {
            [] => format!("unknown parameter '{unknown}'; this request has none"),
            known => format!("unknown parameter '{unknown}'; this request has {}", known.join(", ")),
        })
    }

    pub fn flag(&self, name: &str) -> bool {
        self.all(name).last().is_some_and(|value| !matches!(*value, "" | "0" | "false"))
    }
}

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
/// may not write.
pub async fn del_series(ingest: Arc<Ingest>, request: ExtensionRequest) -> (StatusCode, Value) {
    let deleted = async {
        let writes = request.sender.writes.clone();
        let asked = Asked::read(request).await?;
        // graphite-web has the last three for every request.
        asked
            .only(&["path", "path[]", "pretty", "jsonp", "local"])
            .map_err(|error| (StatusCode::BAD_REQUEST, error))?;
        let paths = Some(asked.all("path")).filter(|paths| !paths.is_empty()).unwrap_or_else(|| asked.all("path[]"));
        if paths.is_empty() {
            return Err((StatusCode::BAD_REQUEST, "no path specified".to_owned()));
        }
        let mut ids = Vec::with_capacity(paths.len());
        for path in paths {
            let unreadable = || (StatusCode::BAD_REQUEST, format!("Cannot parse path {path}"));
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
        Ok(_) => (StatusCode::OK, Value::Bool(true)),
        Err((status, error)) => (status, json!({"error": error})),
    }
}

/// In a task, so that a deletion ends also when the client goes away.
async fn delete_metrics(ingest: Arc<Ingest>, metrics: Vec<MetricId>) -> Result<usize, (StatusCode, String)> {
    match tokio::spawn(async move { ingest.delete(&metrics).await }).await {
        Ok(Ok(deleted)) => {
            if 0 < deleted {
                tracing::info!(metrics = deleted, "deleted metrics that a request named");
            }
            Ok(deleted)
        }
        Ok(Err(error)) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// Sets its flag when it is dropped.
pub struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
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
        let leaves = registry.leaves(query, &limits).map_err(|error| unfit(&error))?;
        // A name may have a lone bracket; where none does, the glob is a typing error.
        if leaves.is_empty()
            && let Some(error) = unbalanced(query)
        {
            return Err((StatusCode::UNPROCESSABLE_ENTITY, error));
        }
        found.extend(leaves.leaves().map(|(id, name)| (name.to_owned(), id)));
    }
    if !expressions.is_empty() {
        let expressions = TagExpressions::read(&expressions, |pattern| {
            let regex = PythonRegex::new(pattern)?;
            Ok(Matcher::new(move |value| regex.finds(value)))
        });
        let expressions = expressions.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
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
    fn a_search_ends_when_its_client_is_gone() {
        let registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        for name in ["a.b", "a.c;dc=eu"] {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let search = CancelOnDrop(cancelled.clone());
        let asked = [&b"query=a.*&query=x.*"[..], b"expr=dc=~e"]
            .map(|text| Asked(form_urlencoded::parse(text).into_owned().collect()));
        let found = |asked: &Asked| find(&registry, asked, cancelled.clone()).map(|found| found.len());
        assert_eq!([found(&asked[0]), found(&asked[1])], [Ok(1), Ok(1)]);
        drop(search);
        // Also where each glob is found at once. Expressions look at the flag as often as those of a query.
        let over = Err((StatusCode::UNPROCESSABLE_ENTITY, "the request was cancelled".to_owned()));
        assert_eq!(found(&asked[0]), over);
    }
}
