//! `/render` in carbonapi's version 3: a `MultiFetchRequest` in the body, with a name and a time span in each entry.
//!
//! 1. Read the message, and group fetches of the same time span.
//! 2. Wait for a turn.
//! 3. Evaluate each group: see [`evaluate`]. The limits apply to all groups together.
//! 4. Give each series the path expression of its fetch.

use std::{collections::HashMap, sync::Arc};

use super::messages::{FetchRequest, read_body, read_fetches};
use crate::{
    http::Rejection,
    query::{Backend, Kind, Query, Reply, Times, Work, blocking},
    render::{CarbonapiV3, Cost, FetchHead, RenderRequest, evaluate, respond_series},
};

/// `/render` in version 3, with a message in the body.
pub(crate) async fn fetch(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let fetches = read_body(backend, query, "MultiFetchRequest", read_fetches).await?;
    let names: Vec<&str> = fetches.iter().map(|fetch| &*fetch.name).collect();
    let (work, _cancel) = Work::begin(backend, query, Kind::of_targets(&names)).await?;
    let now = backend.now();
    let (mut all, mut heads, mut cost) = (Vec::new(), Vec::new(), Cost::default());
    for Group { start, stop, expressions, names } in groups(fetches)? {
        let times = Times { now, from: start.min(stop), until: start.max(stop) };
        let request = Arc::new(RenderRequest::for_paths(backend, query, names, times));
        let evaluated = evaluate(backend, &request, cost, &work).await?;
        cost = evaluated.cost;
        for mut series in evaluated.series {
            if let Some(expression) = expressions.get(&*series.path_expression) {
                series.path_expression = expression.as_str().into();
            }
            heads.push(FetchHead::of(&backend.registry, &query.viewer, &series, start, stop));
            all.push(series);
        }
    }
    let (coding, limit) = (query.coding(), backend.limits.response_bytes);
    let missing = work.missing_peers();
    let response = blocking(move || respond_series(Box::new(CarbonapiV3(heads)), all, limit, coding, &work));
    let mut reply = Reply { response: response.await?, series: cost.series as u64, points: cost.points as u64 };
    reply.name_missing(&missing);
    Ok(reply)
}

/// Fetches that are evaluated together.
struct Group {
    start: i64,
    stop: i64,
    /// Each name once, in the order of the request.
    names: Vec<String>,
    /// The path expression of each name.
    expressions: HashMap<String, String>,
}

/// Groups of one request, at most; each is evaluated separately. carbonapi nearly always has one for each time span.
const MAX_GROUPS: usize = 100;

/// Groups fetches of the same time span. A name with two expressions is in two groups, because the answer has it twice.
fn groups(fetches: Vec<FetchRequest>) -> Result<Vec<Group>, Rejection> {
    let mut groups: Vec<Group> = Vec::new();
    // Indices into `groups`, by time span.
    let mut indices: HashMap<(i64, i64), Vec<usize>> = HashMap::new();
    for FetchRequest { name, path_expression, start, stop } in fetches {
        let of_span = indices.entry((start, stop)).or_default();
        let (mut index, mut is_known) = (None, false);
        for &candidate in of_span.iter() {
            match groups[candidate].expressions.get(&name) {
                Some(expression) if *expression == path_expression => is_known = true,
                Some(_) => continue,
                None => index = Some(candidate),
            }
            break;
        }
        if is_known {
            continue;
        }
        let index = index.unwrap_or_else(|| {
            groups.push(Group { start, stop, names: Vec::new(), expressions: HashMap::new() });
            of_span.push(groups.len() - 1);
            groups.len() - 1
        });
        if groups.len() > MAX_GROUPS {
            let text = format!(
                "the request has more than {MAX_GROUPS} different time spans, or expressions for one name; send several requests"
            );
            return Err(Rejection::Request(text));
        }
        groups[index].names.push(name.clone());
        groups[index].expressions.insert(name, path_expression);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_once_for_each_time_span_and_expression() {
        let fetch = |name: &str, path_expression: &str, start: i64| FetchRequest {
            name: name.to_owned(),
            path_expression: path_expression.to_owned(),
            start,
            stop: 100,
        };
        let fetches = vec![
            fetch("a.b", "a.*", 0),
            fetch("a.c", "a.*", 0),
            fetch("a.b", "a.b", 0),
            fetch("a.b", "a.*", 0),
            fetch("a.b", "a.*", 50),
        ];
        let groups: Vec<_> = groups(fetches).unwrap().into_iter().map(|group| (group.start, group.names)).collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(groups, [(0, names(&["a.b", "a.c"])), (0, names(&["a.b"])), (50, names(&["a.b"]))]);
    }
}
