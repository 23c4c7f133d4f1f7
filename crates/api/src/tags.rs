//! The tag API, as far as Grafana's editor needs it.

use std::sync::Arc;

use hyper::StatusCode;

use crate::{
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// `/tags` and the paths below it, as a graphite-web without tagged series answers.
pub(crate) async fn tags(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let text = match query.path.as_str() {
        "/tags" | "/tags/findSeries" | "/tags/autoComplete/tags" | "/tags/autoComplete/values" => "[]",
        "/tags/tagSeries" | "/tags/tagMultiSeries" => {
            let text = "this server does not tag series; send points to names with tags instead";
            return Err(Rejection::Request(text.to_owned()));
        }
        // The details of a tag without series.
        _ => "null",
    };
    Ok(Reply::json(StatusCode::OK, text))
}
