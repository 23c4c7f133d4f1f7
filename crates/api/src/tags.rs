//! The tag API, as far as Grafana's editor needs it to be there: no tag is known yet.

use std::sync::Arc;

use hyper::{Response, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
};

/// `/tags` and what lies beneath, as a graphite-web that knows no tagged series answers.
pub(crate) async fn tags(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let text = match query.path.as_str() {
        "/tags" | "/tags/findSeries" | "/tags/autoComplete/tags" | "/tags/autoComplete/values" => "[]",
        "/tags/tagSeries" | "/tags/tagMultiSeries" | "/tags/delSeries" => {
            let text = "series are tagged by sending points to names with tags; they cannot be tagged here";
            return Err(Refusal::Request(text.to_owned()));
        }
        // The details of a tag that nothing has.
        _ => "null",
    };
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(Body::from(text)).expect("the parts of an answer are ours").into())
}
