//! The formats of `/info`, `/metrics/list` and `/metrics/details`.

use crate::{encode::python, http::Rejection, query::Query};

/// Rejects formats that go-carbon does not have: `json` and carbonapi's protocols are valid.
pub(super) fn check_format(query: &Query) -> Result<(), Rejection> {
    match query.parameters.last("format") {
        Some(format) if query.protocol.is_none() && format != "json" => Err(Rejection::Format(format!(
            "unknown format {}; use json, carbonapi_v2_pb or carbonapi_v3_pb",
            python::repr(format)
        ))),
        _ => Ok(()),
    }
}
