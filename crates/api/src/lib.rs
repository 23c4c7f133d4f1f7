//! Graphite over HTTP: requests, response formats, limits, status codes, the start page.
//!
//! The contract is graphite-web 1.1.10's. Nothing here knows how points arrive or where they are kept.

mod api;
mod body;
mod extension;
mod failures;
mod limits;
mod observe;
mod params;
mod refusal;
mod server;
mod stall;
mod times;

mod evaluation;
mod events;
mod find;
mod formats;
mod functions;
mod graph_request;
mod nodes;
mod page;
mod reckoning;
mod render_request;
mod tags;

mod carbonapi;
mod carbonapi_fetch;
mod carbonapi_series;
mod metric_info;

mod calendar;
mod json;
mod msgpack;
mod pickle;
mod pieces;
mod protobuf;
mod python;
mod write;

pub use api::{Activity, Api, ApiOptions};
pub use body::{Body, BodyError, RequestBody, Response};
pub use extension::{Answer, Extension, ExtensionRequest};
pub use limits::Limits;
pub use observe::{Answered, Observer};

use refusal::Refusal;
