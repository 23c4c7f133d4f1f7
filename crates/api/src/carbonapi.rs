//! What carbonapi and go-carbon say to each other: which protocol a request speaks, the requests' messages, and what
//! this server can do. The field numbers are those of go-graphite/protocol.

use std::sync::Arc;

use hyper::{HeaderMap, Response, header};

use crate::{
    Api, Body, Refusal,
    api::{Query, Reply},
    protobuf::{self, Damaged, Fields, Value, read_text},
    write::json_string,
};

/// carbonapi's protocols of protobuf messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `carbonapi_v2_pb`, also called `protobuf`: parameters in the query string.
    V2,
    /// `carbonapi_v3_pb`: a message in the body, also of a GET.
    V3,
}

impl Protocol {
    /// The protocol that a `format` names.
    pub fn named(format: &str) -> Option<Protocol> {
        match format {
            "carbonapi_v3_pb" => Some(Protocol::V3),
            "carbonapi_v2_pb" | "protobuf" | "protobuf3" | "pb" | "pb3" => Some(Protocol::V2),
            _ => None,
        }
    }

    /// Whether a request's headers or its query string say version 3. The header goes before any format, as in
    /// go-carbon. It is looked for before the body is read: that is a message then, and no form.
    pub fn is_v3(query: Option<&str>, headers: &HeaderMap) -> bool {
        let accepted = headers.get_all(header::ACCEPT).iter().any(|accept| accept == Protocol::V3.content_type());
        let format = || {
            let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
            pairs.filter(|(name, _)| name == "format").last().map(|(_, format)| format.into_owned())
        };
        accepted || format().and_then(|format| Protocol::named(&format)) == Some(Protocol::V3)
    }

    /// The content type of its answers.
    pub fn content_type(self) -> &'static str {
        match self {
            Protocol::V2 => "application/x-protobuf",
            Protocol::V3 => "application/x-carbonapi-v3-pb",
        }
    }
}

/// One series or pattern that a `MultiFetchRequest` asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// A name, a glob or a whole `seriesByTag(...)` call.
    pub name: String,
    /// What the user's target has: the answer is filed under it.
    pub path_expression: String,
    /// Unix seconds.
    pub start: i64,
    /// Unix seconds.
    pub stop: i64,
}

/// Reads a `MultiFetchRequest`. Filter functions and `maxDataPoints` are passed over: neither is promised, and
/// carbonapi does both itself.
pub(crate) fn read_fetches(message: &[u8]) -> Result<Vec<Wanted>, Damaged> {
    let mut all = Vec::new();
    for field in Fields::of(message) {
        let (1, Value::Bytes(message)) = field? else { continue };
        let mut wanted = Wanted::default();
        for field in Fields::of(message) {
            match field? {
                (1, Value::Bytes(text)) => wanted.name = read_text(text)?,
                (2, Value::Int(time)) => wanted.start = time,
                (3, Value::Int(time)) => wanted.stop = time,
                (5, Value::Bytes(text)) => wanted.path_expression = read_text(text)?,
                _ => {}
            }
        }
        if wanted.path_expression.is_empty() {
            wanted.path_expression.clone_from(&wanted.name);
        }
        all.push(wanted);
    }
    Ok(all)
}

/// Reads the texts of a `MultiGlobRequest` or a `MultiMetricsInfoRequest`: both have them in their first field.
pub(crate) fn read_names(message: &[u8]) -> Result<Vec<String>, Damaged> {
    let mut names = Vec::new();
    for field in Fields::of(message) {
        if let (1, Value::Bytes(text)) = field? {
            names.push(read_text(text)?);
        }
    }
    Ok(names)
}

/// A message in a body that cannot be read.
pub(crate) fn unreadable(message: &'static str) -> impl FnOnce(Damaged) -> Refusal {
    move |error| Refusal::Request(format!("the body is no {message} of carbonapi_v3_pb: {error}"))
}

/// The protocols, the best first: carbonapi's `auto` takes that one.
const PROTOCOLS: [&str; 6] =
    ["carbonapi_v3_pb", "carbonapi_v2_pb", "protobuf", "msgpack", "graphite-web-pickle", "graphite-web-pickle-1.1"];

/// `/_internal/capabilities/`: a `CapabilityResponse`. The request's message is empty.
pub(crate) async fn capabilities(_: &Arc<Api>, query: &Query) -> Result<Reply, Refusal> {
    let mut out = Vec::new();
    let content_type = match query.protocol {
        Some(protocol) => {
            PROTOCOLS.iter().for_each(|protocol| protobuf::text(&mut out, 1, protocol));
            protobuf::text(&mut out, 2, "plumbago");
            // A request that was cut into several is answered as the whole one.
            protobuf::boolean(&mut out, 5, true);
            protocol.content_type()
        }
        None => {
            out.extend_from_slice(b"{\"supportedProtocols\": [");
            for (place, protocol) in PROTOCOLS.iter().enumerate() {
                out.extend_from_slice(if place > 0 { b", " } else { b"" });
                json_string(&mut out, protocol, true);
            }
            out.extend_from_slice(
                b"], \"name\": \"plumbago\", \"highPrecisionTimestamps\": false, \"supportFilteringFunctions\": false, \
                  \"likeSplittedRequests\": true, \"supportStreaming\": false}",
            );
            "application/json"
        }
    };
    let response = Response::builder().header(header::CONTENT_TYPE, content_type);
    Ok(response.body(Body::from(out)).expect("the parts of an answer are ours").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_is_filed_under_its_name_when_nothing_else_is_said() {
        let mut one = Vec::new();
        protobuf::text(&mut one, 1, "a.*");
        protobuf::int(&mut one, 2, 60);
        protobuf::int(&mut one, 3, 120);
        let mut two = one.clone();
        protobuf::text(&mut two, 5, "{a,b}.*");
        protobuf::int(&mut two, 7, 300);
        let mut message = Vec::new();
        protobuf::bytes(&mut message, 1, &one);
        protobuf::bytes(&mut message, 1, &two);
        let wanted = |path_expression: &str| Wanted {
            name: "a.*".to_owned(),
            path_expression: path_expression.to_owned(),
            start: 60,
            stop: 120,
        };
        assert_eq!(read_fetches(&message), Ok(vec![wanted("a.*"), wanted("{a,b}.*")]));
        assert_eq!(read_fetches(&message[..message.len() - 1]), Err(Damaged));
    }

    #[test]
    fn version_3_is_said_by_a_header_or_by_the_format() {
        let headers = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
            headers
        };
        assert!(Protocol::is_v3(None, &headers("application/x-carbonapi-v3-pb")));
        assert!(Protocol::is_v3(Some("format=json"), &headers("application/x-carbonapi-v3-pb")));
        assert!(Protocol::is_v3(Some("format=json&format=carbonapi_v3_pb"), &HeaderMap::new()));
        assert!(!Protocol::is_v3(Some("format=protobuf"), &headers("*/*")));
    }
}
