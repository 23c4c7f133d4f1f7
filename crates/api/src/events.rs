//! Events: there are none yet, and Grafana asks all the same.

use std::sync::Arc;

use hyper::{Response, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
};

/// `/events/get_data`: an empty list, which keeps dashboards with annotations alive.
pub(crate) async fn get_data(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let (content_type, text) = match query.params.last("jsonp") {
        Some(callback) => ("text/javascript", format!("{callback}([])")),
        None => ("application/json", "[]".to_owned()),
    };
    let response = Response::builder().header(header::CONTENT_TYPE, content_type);
    Ok(response.body(Body::from(text)).expect("the parts of an answer are ours").into())
}
