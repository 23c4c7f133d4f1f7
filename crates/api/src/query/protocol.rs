//! carbonapi's protocols: how a request selects one.

use hyper::{HeaderMap, header};

/// carbonapi's protocols of protobuf messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `carbonapi_v2_pb`, also called `protobuf`: parameters in the query string.
    V2,
    /// `carbonapi_v3_pb`: a message in the body, also of a GET.
    V3,
}

impl Protocol {
    /// The values of `format` that select this protocol.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Protocol::V2 => &["carbonapi_v2_pb", "protobuf", "protobuf3", "pb", "pb3"],
            Protocol::V3 => &["carbonapi_v3_pb"],
        }
    }

    /// The protocol that a `format` selects.
    pub fn named(format: &str) -> Option<Protocol> {
        [Protocol::V2, Protocol::V3].into_iter().find(|protocol| protocol.names().contains(&format))
    }

    /// Whether a request's headers or its query string select version 3. The header has precedence over a format, as in
    /// go-carbon. The server checks this before it reads the body, which is a message then, not a form.
    pub fn is_v3(query: Option<&str>, headers: &HeaderMap) -> bool {
        let accepted = headers.get_all(header::ACCEPT).iter().any(|accept| accept == Protocol::V3.content_type());
        let format = || {
            let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
            pairs.filter(|(name, _)| name == "format").last().map(|(_, format)| format.into_owned())
        };
        accepted || format().and_then(|format| Protocol::named(&format)) == Some(Protocol::V3)
    }

    /// The content type of its answers.
    pub const fn content_type(self) -> &'static str {
        match self {
            Protocol::V2 => "application/x-protobuf",
            Protocol::V3 => "application/x-carbonapi-v3-pb",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_or_the_format_selects_version_3() {
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
