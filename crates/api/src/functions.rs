//! `/functions`: the functions of targets, for editors.

use std::sync::Arc;

use hyper::StatusCode;

use crate::{
    encode::json::error_object,
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// `GET /functions`: all functions, or those of one group, in a list or by group.
pub(crate) async fn list(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let grouped =
        query.parameters.last("grouped").is_some_and(|text| matches!(text, "1") || text.eq_ignore_ascii_case("true"));
    let group = query.parameters.last("group");
    Ok(Reply::json(StatusCode::OK, render::functions_json(group, grouped, query.parameters.truthy("pretty"))))
}

/// `GET /functions/NAME`.
pub(crate) async fn one(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let name = query.path.strip_prefix("/functions/").unwrap_or_default();
    Ok(match render::function_json(name, query.parameters.truthy("pretty")) {
        Some(text) => Reply::json(StatusCode::OK, text),
        None => Reply::json(StatusCode::NOT_FOUND, error_object(&format!("Function not found: {name}"))),
    })
}
