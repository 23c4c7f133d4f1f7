//! `/metrics/list`: all names, as go-carbon lists them.

use std::sync::Arc;

use super::formats::check_format;
use crate::{
    find::{ListFormat, all_names},
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// `/metrics/list`: all metrics.
pub(crate) async fn list(backend: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    check_format(query)?;
    let format = match query.protocol {
        Some(protocol) => ListFormat::Protobuf(protocol),
        None => ListFormat::Object(query.json_style()),
    };
    all_names(backend, query, format).await
}
