//! `/functions`: what the render language offers, for editors.

use std::sync::Arc;

use hyper::{Response, StatusCode, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
};

/// `GET /functions`: all of them, or one group's, flat or by group.
pub(crate) async fn list(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let grouped =
        query.params.last("grouped").is_some_and(|text| matches!(text, "1") || text.eq_ignore_ascii_case("true"));
    let group = query.params.last("group");
    Ok(json(StatusCode::OK, query, &render::functions_json(group, grouped)))
}

/// `GET /functions/NAME`.
pub(crate) async fn one(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let name = query.path.strip_prefix("/functions/").unwrap_or_default();
    Ok(match render::function_json(name) {
        Some(function) => json(StatusCode::OK, query, &function),
        None => {
            let error = serde_json::json!({ "error": format!("Function not found: {name}") });
            json(StatusCode::NOT_FOUND, query, &error)
        }
    })
}

fn json(status: StatusCode, query: &Query, value: &serde_json::Value) -> Reply {
    let text = if query.params.truthy("pretty") { format!("{value:#}") } else { value.to_string() };
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(text)).expect("the parts of an answer are ours").into()
}
