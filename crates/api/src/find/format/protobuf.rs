//! carbonapi's `GlobResponse`, the same in both versions of its protocol.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{encode::protobuf, find::nodes::Nodes, query::Protocol};

/// The format of version 2: one `GlobResponse`.
struct Protobuf {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(Protobuf { options })
}

impl FindFormat for Protobuf {
    fn content_type(&self) -> &'static str {
        Protocol::V2.content_type()
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.options.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        glob_response(nodes, &self.options.pattern, out);
    }
}

/// Writes a `GlobResponse` of either version. A path that is a metric and a branch has two matches.
pub(crate) fn glob_response(nodes: &Nodes<'_>, pattern: &str, out: &mut Vec<u8>) {
    protobuf::text(out, 1, pattern);
    for node in nodes.by_path() {
        let is_leaf = if node.is_leaf { 2 } else { 0 };
        protobuf::bytes_head(out, 2, protobuf::bytes_len(1, node.path.len()) + is_leaf);
        protobuf::text(out, 1, node.path);
        protobuf::boolean(out, 2, node.is_leaf);
    }
}
