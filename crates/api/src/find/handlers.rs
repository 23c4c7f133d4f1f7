//! `/metrics/find` and `/metrics/expand`.

use std::{collections::HashSet, sync::Arc};

use metadata::{FindLimits, Found, SeenSpan};

use super::{
    format::{self, FindFormat, FindOptions, expanded},
    nodes::Nodes,
    work::{answer_bytes, check_patterns, find_next, names_work},
};
use crate::{
    encode::python,
    http::{Rejection, respond_text, uncached_head},
    query::{Backend, LIKELY_BYTES, NamesTimes, Query, Reply, is_invalid_pattern},
};

/// A request to `/metrics/find`.
struct FindRequest {
    format: Box<dyn FindFormat>,
    // Whether a graphite-web in front of this server sends the request. After a status other than 200, it skips this
    // server for a minute.
    from_front_end: bool,
    // A front end finds what it renders in the same way: a series without points in its times must not be missing there.
    times: SeenSpan,
    // A carbonapi finds without times what it fetches of other times.
    hides_stale: bool,
    leaves_only: bool,
}

impl FindRequest {
    /// Reads and checks the parameters, in graphite-web's order.
    fn read(backend: &Backend, query: &Query) -> Result<FindRequest, Rejection> {
        let parameters = &query.parameters;
        let flag = |name: &str| match parameters.last(name).map(|text| (text, python::parse_int(text))) {
            None => Ok(0),
            Some((_, Ok(value))) => Ok(value),
            Some((text, Err(error))) => {
                let text = python::repr(text);
                Err(Rejection::parameters(format!("Invalid int value {text} for param {name}: {error}")))
            }
        };
        let leaves_only = flag("leavesOnly")? != 0;
        // This server never forwards a find; graphite-web validates the parameter, so it must be valid here too.
        flag("local")?;
        let wildcards = flag("wildcards")? != 0;
        let times = NamesTimes::read(backend, parameters)?;
        let position = if parameters.has("position") { flag("position")? } else { -1 };
        let automatic_variants = flag("automatic_variants")? != 0;
        let pattern = match parameters.last("query") {
            None => return Err(query_is_missing()),
            Some("") => return Err(Rejection::parameters("Required parameter 'query' is empty")),
            Some(pattern) => pattern.to_owned(),
        };
        let options =
            FindOptions { pattern, wildcards, automatic_variants, position, now: times.now, style: query.json_style() };
        let Some(entry) = format::named(parameters.last("format").unwrap_or("treejson")) else {
            return Err(Rejection::Format("Invalid value for 'format' parameter".to_owned()));
        };
        let is_local = parameters.last("local").is_some_and(|local| local != "0");
        let from_front_end = entry.is_for_front_ends && is_local;
        let times = if entry.is_for_front_ends { SeenSpan::default() } else { times.span() };
        let hides_stale = !entry.is_for_fetches;
        Ok(FindRequest { format: (entry.make)(options), from_front_end, times, hides_stale, leaves_only })
    }
}

/// `/metrics/find`, and `/metrics` with a query.
pub(crate) async fn find(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let request = FindRequest::read(backend, query)?;
    let FindRequest { format, from_front_end, times, hides_stale, leaves_only } = request;
    let pattern = format.pattern().into_owned();
    check_patterns(backend, &[&pattern])?;
    names_work(backend, query, move |backend, limits, coding, work| {
        let stale = limits.stale.clone().filter(|_| hides_stale);
        let limits = FindLimits { times, stale, ..limits.clone() };
        let find = |limits: &FindLimits| backend.finder.find(&pattern, limits);
        let found = match work.within_memory(&limits, LIKELY_BYTES, find, Found::bytes, answer_bytes)? {
            Ok(found) => found,
            Err(error) if from_front_end && is_invalid_pattern(&error) => {
                backend.withhold("find", &error);
                Found::default()
            }
            Err(error) => return Err(error.into()),
        };
        work.take(answer_bytes(&found))?;
        let share = work.answer(answer_bytes(&found))?;
        let mut out = Vec::with_capacity(answer_bytes(&found));
        format.write(&Nodes { found: &found, leaves_only }, &mut out);
        Ok(respond_text(uncached_head(format.content_type()), out, coding, share))
    })
    .await
}

/// The rejection of a find without a pattern.
pub(crate) fn query_is_missing() -> Rejection {
    Rejection::parameters("Missing required parameter 'query'")
}

/// `/metrics/expand`.
pub(crate) async fn expand(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let parameters = &query.parameters;
    let flag = |name: &str| parameters.int(name, 0).map(|value| value != 0).map_err(Rejection::parameters);
    flag("local")?;
    let grouped = flag("groupByExpr")?;
    let leaves_only = flag("leavesOnly")?;
    let patterns: Vec<String> = parameters.all("query").map(str::to_owned).collect();
    check_patterns(backend, &patterns)?;
    let style = query.json_style();
    names_work(backend, query, move |backend, limits, coding, work| {
        let mut groups: Vec<(&str, Found)> = Vec::new();
        let mut left = limits.clone();
        let mut known = HashSet::new();
        let mut answer = 0;
        for pattern in patterns.iter().filter(|pattern| known.insert(pattern.as_str())) {
            let found = find_next(backend, work, pattern, &mut left, limits)?;
            let bytes = size_of::<(&str, Found)>() + pattern.len() + answer_bytes(&found);
            work.take(bytes)?;
            answer += bytes;
            groups.push((pattern, found));
        }
        let share = work.answer(answer)?;
        let mut out = Vec::new();
        expanded(&groups, leaves_only, grouped, &style, &mut out);
        Ok(respond_text(uncached_head(style.content_type()), out, coding, share))
    })
    .await
}
