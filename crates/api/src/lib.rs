//! Graphite over HTTP: requests, response formats, limits, status codes, the start page.
//!
//! The contract is graphite-web 1.1.10's. This crate does not know how points arrive or where they are stored.
//! [`Api`] is the front door: it serves a listener from names, points and events.
//!
//! ```
//! use std::sync::Arc;
//!
//! use api::{Api, ApiOptions, BrowserRules, Limits, Paths};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let store = Arc::new(store::MemoryDriver::new());
//! let registry = Arc::new(metadata::Registry::new());
//! let api = Api::new(ApiOptions {
//!     finder: registry.clone(),
//!     registry,
//!     series: Arc::new(NoPoints),
//!     events: store,
//!     limits: Limits::default(),
//!     doorkeeper: Arc::new(()),
//!     browsers: BrowserRules::default(),
//!     clock: Arc::new(host::SystemClock),
//!     time_zone: jiff::tz::TimeZone::UTC,
//!     about: Vec::new(),
//!     extension: Arc::new(()),
//!     observer: Arc::new(()),
//! });
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! api.serve(listener, Paths::All, async { /* resolves when the server stops */ }).await;
//! # });
//! #
//! # struct NoPoints;
//! # impl store::SeriesSource for NoPoints {
//! #     fn fetch(
//! #         self: Arc<Self>,
//! #         requests: Vec<store::SeriesRequest>,
//! #     ) -> std::pin::Pin<Box<dyn Future<Output = Result<Vec<Option<store::FetchedSeries>>, store::FetchError>> + Send>> {
//! #         Box::pin(async move { Ok(requests.iter().map(|_| None).collect()) })
//! #     }
//! # }
//! ```
//!
//! The rooms, from the bottom to the top; each uses only rooms above it in this list: `encode`, `http`, `query`; then
//! the handlers `find`, `events`, `render`, `carbonapi`, `functions`, `tags`, `page`; then `router`, which alone knows
//! the handlers; then [`Api`].

mod encode;
mod http;
mod query;

mod carbonapi;
mod events;
mod find;
mod functions;
mod page;
mod render;
mod tags;

mod api;
mod router;

pub use api::{Api, ApiOptions, PROTOCOLS, Paths};
pub use http::{
    Access, AllowedHosts, Answer, Answered, AskedFor, Body, BodyError, BrowserRules, Extension, ExtensionRequest,
    Limits, MemoryUse, Observer, RequestBody, RequestRecord, Response, Sender, SenderLimits, SlowBody, TakenPoints,
};
pub use query::{Activity, Doorkeeper, NameOwners, NameScope, Scope, Viewer, WriteScope, read_tag_expressions};
pub use tags::TagStyle;
