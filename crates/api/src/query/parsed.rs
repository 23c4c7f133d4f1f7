//! A request to Graphite's API, parsed.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{HeaderMap, Method, header, http::request::Parts};

use super::{protocol::Protocol, viewer::Viewer};
use crate::{
    encode::json::JsonStyle,
    http::{Client, Coding, Parameters, Rejection},
};

/// A request to Graphite's API, with its whole body.
pub(crate) struct Query {
    /// Who sends it.
    pub viewer: Arc<Viewer>,
    /// Whose turns and memory it takes.
    pub client: Client,
    /// Method.
    pub method: Method,
    /// Path without a final slash.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Parameters from the query string and the form body.
    pub parameters: Parameters,
    /// Body.
    pub body: Bytes,
    /// carbonapi's protocol, if the request uses one.
    pub protocol: Option<Protocol>,
}

impl Query {
    /// Parses a request.
    pub async fn parse(viewer: Arc<Viewer>, client: Client, head: Parts, body: Bytes) -> Result<Query, Rejection> {
        let path = head.uri.path();
        let path = path.strip_suffix('/').unwrap_or(path).to_owned();
        let is_v3 = Protocol::is_v3(head.uri.query(), &head.headers);
        // A message without a content type must not count as a form.
        let form = if is_v3 { Bytes::new() } else { body.clone() };
        let parameters = Parameters::read(head.uri.query(), &head.headers, form).await?;
        let named = || parameters.last("format").and_then(Protocol::named);
        let protocol = if is_v3 { Some(Protocol::V3) } else { named() };
        Ok(Query { viewer, client, method: head.method, path, headers: head.headers, parameters, body, protocol })
    }

    /// Whether the body is a message of carbonapi's version 3, for paths that take one.
    pub fn has_v3_message(&self) -> bool {
        self.protocol == Some(Protocol::V3) && !self.body.is_empty()
    }

    /// The style of `/metrics/...`: raw UTF-8 unless the client accepts only `application/json`.
    pub fn json_style(&self) -> JsonStyle {
        let accept = self.headers.get(header::ACCEPT).map_or(&b"application/json"[..], |accept| accept.as_bytes());
        JsonStyle {
            ascii: accept == b"application/json",
            pretty: self.parameters.truthy("pretty"),
            callback: self.callback(),
        }
    }

    /// The function whose call contains the answer, for JSONP. The router has checked it.
    pub fn callback(&self) -> Option<String> {
        self.parameters.last("jsonp").filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// The content coding that the client accepts.
    pub fn coding(&self) -> Coding {
        Coding::of(&self.headers)
    }
}
