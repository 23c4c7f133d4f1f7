//! `/metrics/find` in carbonapi's version 3: a `MultiGlobRequest` in the body.

use std::sync::Arc;

use super::messages::{read_body, read_names};
use crate::{
    encode::protobuf,
    find::{Nodes, answer_bytes, check_patterns, find_next, glob_response, names_work, query_is_missing},
    http::{Rejection, respond_text, uncached_head},
    query::{Backend, Protocol, Query, Reply},
};

/// `/metrics/find` in version 3.
pub(crate) async fn find(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let mut patterns = read_body(backend, query, "MultiGlobRequest", read_names).await?;
    patterns.extend(query.parameters.all("query").map(str::to_owned));
    if patterns.is_empty() {
        return Err(query_is_missing());
    }
    check_patterns(backend, &patterns)?;
    names_work(backend, query, move |backend, limits, coding, work| {
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
