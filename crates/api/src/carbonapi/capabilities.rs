//! `/_internal/capabilities`: the protocols and features of this server.

use std::sync::Arc;

use hyper::StatusCode;

use crate::{
    encode::{json::json_string, protobuf},
    http::Rejection,
    query::{Backend, Query, Reply},
};

/// The protocols, the best first: carbonapi's `auto` selects the first.
const PROTOCOLS: [&str; 6] =
    ["carbonapi_v3_pb", "carbonapi_v2_pb", "protobuf", "msgpack", "graphite-web-pickle", "graphite-web-pickle-1.1"];

/// `/_internal/capabilities/`: a `CapabilityResponse`. The request's message is empty.
pub(crate) async fn capabilities(_: &Arc<Backend>, query: &Query) -> Result<Reply, Rejection> {
    let mut out = Vec::new();
    let content_type = match query.protocol {
        Some(protocol) => {
            PROTOCOLS.iter().for_each(|protocol| protobuf::text(&mut out, 1, protocol));
            protobuf::text(&mut out, 2, "plumbago");
            // The answers to the parts of a split request equal the answer to the whole request.
            protobuf::boolean(&mut out, 5, true);
            protocol.content_type()
        }
        None => {
            out.extend_from_slice(b"{\"supportedProtocols\": [");
            for (index, protocol) in PROTOCOLS.iter().enumerate() {
                out.extend_from_slice(if index > 0 { b", " } else { b"" });
                json_string(&mut out, protocol, true);
            }
            out.extend_from_slice(
                b"], \"name\": \"plumbago\", \"highPrecisionTimestamps\": false, \"supportFilteringFunctions\": false, \
                  \"likeSplittedRequests\": true, \"supportStreaming\": false}",
            );
            "application/json"
        }
    };
    Ok(Reply::short(StatusCode::OK, content_type, out))
}
