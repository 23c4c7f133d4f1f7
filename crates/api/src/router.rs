//! The routes: which handler answers a path and a method.
//!
//! Only this file knows the handlers, and only [`crate::Api`] knows this file.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc};

use hyper::{Method, Uri, http::request::Parts};

use crate::{
    carbonapi, events, find, functions,
    http::{Access, Client, Recording, Rejection, RequestBody, counted, read_counted},
    page,
    query::{Backend, Protocol, Query, Reply, Viewer},
    render, tags,
};

type Handler = for<'a> fn(&'a Arc<Backend>, &'a Query) -> Answer<'a>;
type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply, Rejection>> + Send + 'a>>;

/// The route of a path of Graphite's API.
pub(crate) struct Route {
    /// The kind of request, for metrics.
    pub label: &'static str,
    methods: &'static str,
    handler: Handler,
}

macro_rules! route {
    ($label:literal, $methods:literal, $handler:path) => {
        Some(Route { label: $label, methods: $methods, handler: |backend, query| Box::pin($handler(backend, query)) })
    };
}

impl Route {
    /// The route of a request. `None` for `GET /metrics` without a query, a scrape of Prometheus.
    pub fn of(method: &Method, uri: &Uri) -> Option<Route> {
        let path = uri.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        if is_scrape(method, path, uri) { None } else { Route::of_path(path) }
    }

    /// The route of a path without a final slash.
    fn of_path(path: &str) -> Option<Route> {
        match path {
            "/render" => route!("render", "GET, HEAD, POST", render_or_fetch),
            "/metrics" | "/metrics/find" => route!("find", "GET, HEAD, POST", find_in_protocol),
            "/metrics/expand" => route!("expand", "GET, HEAD, POST", find::expand),
            "/metrics/index.json" => route!("index", "GET, HEAD, POST", find::index),
            "/metrics/list" => route!("list", "GET, HEAD, POST", carbonapi::list),
            "/metrics/details" => route!("details", "GET, HEAD, POST", carbonapi::details),
            "/info" => route!("info", "GET, HEAD, POST", carbonapi::info),
            "/_internal/capabilities" => route!("capabilities", "GET, HEAD, POST", carbonapi::capabilities),
            "/functions" => route!("functions", "GET, HEAD", functions::list),
            "/tags" => route!("tags", "GET, HEAD", tags::list),
            "/tags/findSeries" => route!("tags", "GET, HEAD, POST", tags::find_series),
            "/tags/autoComplete/tags" => route!("tags", "GET, HEAD, POST", tags::complete_tags),
            "/tags/autoComplete/values" => route!("tags", "GET, HEAD, POST", tags::complete_values),
            "/tags/tagSeries" | "/tags/tagMultiSeries" => route!("tags", "POST", tags::tag_series),
            "/events" => route!("events", "GET, HEAD, POST", events::events),
            "/events/get_data" => route!("events", "GET, HEAD, POST", events::get_data),
            "/version" => route!("version", "GET, HEAD, POST", page::version),
            "" => route!("page", "GET, HEAD", page::start),
            // Names are not this crate's to change.
            "/tags/delSeries" => None,
            _ if path.starts_with("/functions/") => route!("functions", "GET, HEAD", functions::one),
            _ if path.starts_with("/events/") => route!("events", "GET, HEAD", events::one),
            _ if path.starts_with("/tags/") => route!("tags", "GET, HEAD", tags::details),
            _ => None,
        }
    }

    /// What a request touches.
    pub fn access(&self) -> Access {
        if self.label == "events" { Access::Events } else { Access::Read }
    }

    /// Whether answers are made without a turn, and so without memory of their own.
    fn has_no_turn(&self, path: &str) -> bool {
        matches!(self.label, "functions" | "info") || path.starts_with("/events/") && path != "/events/get_data"
    }

    /// Reads a request and calls its handler.
    pub async fn answer(
        &self,
        backend: &Arc<Backend>,
        viewer: Arc<Viewer>,
        peer: IpAddr,
        head: Parts,
        body: RequestBody,
        recording: Option<&mut Recording>,
    ) -> Result<Reply, Rejection> {
        if !self.methods.split(", ").any(|method| method == head.method.as_str()) {
            return Err(Rejection::Method { path: head.uri.path().to_owned(), allow: self.methods });
        }
        let client = Client::new(&viewer.name, peer);
        let memory = || backend.body_memory(&viewer, &client);
        // Its memory is held until the answer is ready.
        let (body, _memory) = read_counted(body, backend.limits.body_bytes, "http.max_body_bytes", memory).await?;
        let query = Query::parse(viewer, client, head, body).await?;
        if let Some(recording) = recording {
            recording.asks(["target", "query", "expr"].iter().flat_map(|name| query.parameters.all(name)));
        }
        if let Some(callback) = query.callback() {
            backend.browsers.check_callback(&callback)?;
        }
        let mut reply = (self.handler)(backend, &query).await?;
        if self.has_no_turn(&query.path) {
            reply.response = counted(reply.response, &backend.answers, &query.client).await?;
        }
        Ok(reply)
    }
}

/// The rejection of a request without a route.
pub(crate) fn no_route(uri: &Uri) -> Rejection {
    match uri.path().strip_suffix('/').unwrap_or(uri.path()) {
        "/metrics" => find::query_is_missing(),
        _ => Rejection::NoSuchPath(uri.path().to_owned()),
    }
}

/// Whether `GET /metrics` is for Prometheus: it has no `query`, which find requires.
fn is_scrape(method: &Method, path: &str, uri: &Uri) -> bool {
    let has_query =
        || form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).any(|(name, _)| name == "query");
    path == "/metrics" && method != Method::POST && !has_query()
}

/// `/render`: parameters, or a message of carbonapi's version 3.
async fn render_or_fetch(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    match query.has_v3_message() {
        true => carbonapi::fetch(backend, query).await,
        false => render::render(backend, query).await,
    }
}

/// `/metrics/find`: parameters, or a message of carbonapi's version 3.
async fn find_in_protocol(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    match query.protocol {
        Some(Protocol::V3) => carbonapi::find(backend, query).await,
        _ => find::find(backend, query).await,
    }
}
