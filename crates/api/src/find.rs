//! Finding names: `/metrics/find`, `/metrics/expand`, `/metrics/index.json`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hyper::header;
use metadata::{FindError, FindLimits, Found};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Api, Refusal,
    api::{Query, Reply},
    carbonapi::{Protocol, read_names, unreadable},
    json::{JsonStyle, uncached},
    nodes::{self, Listing},
    pieces::{Coding, respond, respond_text},
    protobuf, python, times,
};

/// `/metrics/find`, and `/metrics` with a query.
pub(crate) async fn find(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    if query.protocol == Some(Protocol::V3) {
        return find_all(api, query).await;
    }
    let params = &query.params;
    let flag = |name: &str| match params.last(name).map(|text| (text, python::int(text))) {
        None => Ok(0),
        Some((_, Ok(value))) => Ok(value),
        Some((text, Err(error))) => {
            let text = python::quoted(text);
            Err(Refusal::parameters(format!("Invalid int value {text} for param {name}: {error}")))
        }
    };
    let format = params.last("format").unwrap_or("treejson");
    let leaves_only = flag("leavesOnly")? != 0;
    // There is nobody to forward to; the parameter is still checked, as there.
    flag("local")?;
    let wildcards = flag("wildcards")? != 0;
    let now = times::check_find(api, params)?;
    let position = if params.has("position") { flag("position")? } else { -1 };
    let automatic_variants = flag("automatic_variants")? != 0;
    let pattern = match params.last("query") {
        None => return Err(query_is_missing()),
        Some("") => return Err(Refusal::parameters("Required parameter 'query' is empty")),
        Some(pattern) => pattern,
    };
    let base = pattern.rsplit_once('.').map_or(String::new(), |(base, _)| format!("{base}."));
    let style = JsonStyle::of(query);
    let (content_type, write): (&'static str, nodes::Writer) = match format {
        "treejson" => (style.content_type(), Box::new(move |f, out| nodes::treejson(f, &base, wildcards, &style, out))),
        "completer" => (style.content_type(), Box::new(move |f, out| nodes::completer(f, wildcards, &style, out))),
        "json" => (style.content_type(), Box::new(move |f, out| nodes::json(f, now, &style, out))),
        "nodelist" => (style.content_type(), Box::new(move |f, out| nodes::nodelist(f, position, &style, out))),
        "pickle" => ("application/pickle", Box::new(move |f, out| nodes::pickle(f, now, out))),
        "msgpack" => ("application/x-msgpack", Box::new(move |f, out| nodes::msgpack(f, now, out))),
        _ if query.protocol.is_some() => {
            let asked = pattern.to_owned();
            let write: nodes::Writer = Box::new(move |f, out| nodes::glob_response(f, &asked, out));
            (Protocol::V2.content_type(), write)
        }
        _ => return Err(Refusal::Format("Invalid value for 'format' parameter".to_owned())),
    };
    let pattern = match format {
        "completer" => completed(pattern, automatic_variants),
        _ => pattern.to_owned(),
    };
    check_patterns(api, &[&pattern])?;
    // A front end that gets anything but 200 leaves us out for a minute, over one user's pattern.
    let to_front_end = matches!(format, "pickle" | "msgpack") && params.last("local").is_some_and(|local| local != "0");
    let response = find_work(api, query, move |api, limits, permit, headers| {
        let found = match api.finder.find(&pattern, limits) {
            Ok(found) => found,
            Err(error) if to_front_end && is_users(&error) => {
                tracing::warn!(%error, "a front end is sent no names");
                api.observer.withheld("find");
                Found::default()
            }
            Err(error) => return Err(refusal(error)),
        };
        // A name, what is said of it, and its punctuation.
        let mut out = Vec::with_capacity(found.iter().map(|node| node.path.len() + 80).sum());
        write(&nodes::Nodes { found: &found, leaves_only }, &mut out);
        Ok(respond_text(uncached(content_type), out, Coding::of(headers), permit))
    });
    Ok(response.await?.into())
}

/// `/metrics/find` as carbonapi asks for it in version 3: a `MultiGlobRequest` in the body.
async fn find_all(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let mut patterns = read_names(&query.body).map_err(unreadable("MultiGlobRequest"))?;
    patterns.extend(query.params.all("query").map(str::to_owned));
    if patterns.is_empty() {
        return Err(query_is_missing());
    }
    check_patterns(api, &patterns)?;
    let response = find_work(api, query, move |api, limits, permit, headers| {
        let (mut out, mut response) = (Vec::new(), Vec::new());
        let mut left = limits.clone();
        for pattern in &patterns {
            let found = find_next(api, pattern, &mut left, limits)?;
            response.clear();
            nodes::glob_response(&nodes::Nodes { found: &found, leaves_only: false }, pattern, &mut response);
            protobuf::bytes(&mut out, 1, &response);
        }
        Ok(respond_text(uncached(Protocol::V3.content_type()), out, Coding::of(headers), permit))
    });
    Ok(response.await?.into())
}

/// Finds one of several patterns, and takes what it found from what the next ones may find.
fn find_next(api: &Api, pattern: &str, left: &mut FindLimits, limits: &FindLimits) -> Result<Found, Refusal> {
    let found = api.finder.find(pattern, left).map_err(|error| match error {
        FindError::TooManyNodes { .. } => FindError::TooManyNodes { limit: limits.nodes },
        other => other,
    });
    let found = found.map_err(refusal)?;
    left.nodes -= found.len();
    Ok(found)
}

/// What a find without a pattern is told.
pub(crate) fn query_is_missing() -> Refusal {
    Refusal::parameters("Missing required parameter 'query'")
}

/// The pattern of a name that is still being typed.
fn completed(typed: &str, automatic_variants: bool) -> String {
    let mut pattern = typed.replace("..", "*.");
    if !pattern.ends_with('*') {
        pattern.push('*');
    }
    if automatic_variants {
        let variants = |part: &str| match part.contains(',') && !part.contains('{') {
            true => format!("{{{part}}}"),
            false => part.to_owned(),
        };
        pattern = pattern.split('.').map(variants).collect::<Vec<_>>().join(".");
    }
    pattern
}

/// `/metrics/expand`.
pub(crate) async fn expand(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let params = &query.params;
    let flag = |name: &str| params.int(name, 0).map(|value| value != 0).map_err(Refusal::parameters);
    flag("local")?;
    let grouped = flag("groupByExpr")?;
    let leaves_only = flag("leavesOnly")?;
    let patterns: Vec<String> = params.all("query").map(str::to_owned).collect();
    check_patterns(api, &patterns)?;
    let style = JsonStyle::of(query);
    let response = find_work(api, query, move |api, limits, permit, headers| {
        let mut groups: Vec<(&str, Found)> = Vec::new();
        let mut left = limits.clone();
        for pattern in &patterns {
            if groups.iter().any(|(known, _)| known == pattern) {
                continue;
            }
            groups.push((pattern, find_next(api, pattern, &mut left, limits)?));
        }
        let mut out = Vec::new();
        nodes::expanded(&groups, leaves_only, grouped, &style, &mut out);
        Ok(respond_text(uncached(style.content_type()), out, Coding::of(headers), permit))
    });
    Ok(response.await?.into())
}

/// `/metrics/index.json`: every metric, in the order of names.
pub(crate) async fn index(api: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    all_names(api, query, Listing::Json(JsonStyle::of(query))).await
}

/// Every metric, in the order of names.
pub(crate) async fn all_names(api: &Arc<Api>, query: &Query, listing: Listing) -> Result<Reply, Refusal> {
    let response = find_work(api, query, move |api, limits, permit, headers| {
        api.finder.has_all().map_err(refusal)?;
        let index = nodes::Index::new(listing, api.limits.response_bytes);
        let index = index.filled(&api.registry, || is_cancelled(limits));
        let index = index.map_err(|given| Refusal::TooMuch {
            what: "the bytes of the answer come to",
            given: format!("more than {given}"),
            limit: api.limits.response_bytes,
            setting: "query.max_response_bytes",
        })?;
        let builder = hyper::Response::builder().header(header::CONTENT_TYPE, index.content_type());
        Ok(respond(builder, Arc::new(index), Coding::of(headers), permit))
    });
    Ok(response.await?.into())
}

fn check_patterns(api: &Api, patterns: &[impl AsRef<str>]) -> Result<(), Refusal> {
    let bytes: usize = patterns.iter().map(|pattern| pattern.as_ref().len()).sum();
    if bytes <= api.limits.target_bytes {
        return Ok(());
    }
    let (given, limit) = (bytes.to_string(), api.limits.target_bytes);
    Err(Refusal::TooMuch { what: "the bytes of the patterns are", given, limit, setting: "query.max_target_bytes" })
}

/// Whether the pattern is to blame.
pub(crate) fn is_users(error: &FindError) -> bool {
    !matches!(error, FindError::Cancelled | FindError::Elsewhere(_))
}

/// A find that failed, as an answer.
pub(crate) fn refusal(error: FindError) -> Refusal {
    match error {
        FindError::TooManyNodes { limit } => Refusal::TooMuch {
            what: "the names that match are",
            given: format!("more than {limit}"),
            limit,
            setting: "query.max_find_results",
        },
        FindError::TooMuchWork | FindError::TooManyTagged { .. } | FindError::TooManyRows(_) => {
            Refusal::TooHard(error.to_string())
        }
        FindError::Elsewhere(problem) => Refusal::Names(problem),
        other => Refusal::parameters(other.to_string()),
    }
}

/// Set when dropped: the work on another thread sees that nobody waits any more.
pub(crate) struct CancelOnDrop(pub Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether nobody waits for the answer any more.
pub(crate) fn is_cancelled(limits: &FindLimits) -> bool {
    limits.cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Waits for a turn, then walks names and writes the answer where work may be done.
pub(crate) async fn find_work(
    api: &Arc<Api>,
    query: &Query,
    work: impl FnOnce(&Api, &FindLimits, OwnedSemaphorePermit, &hyper::HeaderMap) -> Result<crate::Response, Refusal>
    + Send
    + 'static,
) -> Result<crate::Response, Refusal> {
    let permit = api.turn().await?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(cancelled.clone());
    let (api, headers) = (api.clone(), query.headers.clone());
    let limits = FindLimits { nodes: api.limits.find_results, cancelled: Some(cancelled), ..FindLimits::default() };
    let done = tokio::task::spawn_blocking(move || work(&api, &limits, permit, &headers));
    done.await.map_err(|_| Refusal::Broken)?
}
