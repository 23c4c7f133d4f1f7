//! `/functions`: what the render language offers, for editors.

use std::sync::Arc;

use hyper::{Response, StatusCode, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
    write::json_string,
};

/// `GET /functions`: all of them, or one group's, flat or by group.
pub(crate) async fn list(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let grouped =
        query.params.last("grouped").is_some_and(|text| matches!(text, "1") || text.eq_ignore_ascii_case("true"));
    let group = query.params.last("group");
    Ok(json(StatusCode::OK, render::functions_json(group, grouped, query.params.truthy("pretty"))))
}

/// `GET /functions/NAME`.
pub(crate) async fn one(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let name = query.path.strip_prefix("/functions/").unwrap_or_default();
    Ok(match render::function_json(name, query.params.truthy("pretty")) {
        Some(text) => json(StatusCode::OK, text),
        None => {
            let mut text = b"{\"error\": ".to_vec();
            json_string(&mut text, &format!("Function not found: {name}"), true);
            text.push(b'}');
            json(StatusCode::NOT_FOUND, text)
        }
    })
}

fn json(status: StatusCode, text: impl Into<Body>) -> Reply {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(text.into()).expect("the parts of an answer are ours").into()
}
