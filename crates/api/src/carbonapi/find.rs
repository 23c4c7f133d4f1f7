//! `/metrics/find` in carbonapi's version 3: a `MultiGlobRequest` in the body.

use std::sync::Arc;

use metadata::FindLimits;

use super::messages::{GlobRequest, read_body, read_globs};
use crate::{
    encode::protobuf,
    find::{Nodes, answer_bytes, check_patterns, find_next, glob_response, names_work_at, query_is_missing},
    http::{Rejection, respond_text, uncached_head},
    query::{Backend, NamesTimes, Protocol, Query, Reply},
};

/// `/metrics/find` in version 3.
///
/// Without times nothing is left out: so carbonapi finds what it fetches afterwards, of times that the find does not have. With
/// times its users search.
pub(crate) async fn find(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let request = read_body(backend, query, "MultiGlobRequest", read_globs).await?;
    let GlobRequest { mut patterns, start, stop } = request;
    patterns.extend(query.parameters.all("query").map(str::to_owned));
    if patterns.is_empty() {
        return Err(query_is_missing());
    }
    check_patterns(backend, &patterns)?;
    let asked = NamesTimes::read(backend, &query.parameters)?;
    let times = asked.with(start, stop);
    names_work_at(backend, query, times, move |backend, limits, coding, work| {
        let limits = &FindLimits { stale: None, ..limits.clone() };
        let (mut out, mut response) = (Vec::new(), Vec::new());
        let mut left = limits.clone();
        for pattern in &patterns {
            let found = find_next(backend, work, pattern, &mut left, limits)?;
            work.take(2 * answer_bytes(&found))?;
            response.clear();
            glob_response(&Nodes { found: &found, leaves_only: false }, pattern, &mut response);
            protobuf::bytes(&mut out, 1, &response);
        }
        let share = work.answer(out.capacity())?;
        Ok(respond_text(uncached_head(Protocol::V3.content_type()), out, coding, share))
    })
    .await
}
