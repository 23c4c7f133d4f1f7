//! `format=msgpack`: the nodes of `pickle`. graphite-web reads `is_leaf`, carbonapi reads `isLeaf`.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{encode::msgpack, find::nodes::Nodes};

/// The format.
struct MessagePack {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(MessagePack { options })
}

impl FindFormat for MessagePack {
    fn content_type(&self) -> &'static str {
        "application/x-msgpack"
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.options.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        let nodes = nodes.by_name();
        msgpack::array(out, nodes.len());
        for node in nodes {
            msgpack::map(out, 3 + usize::from(node.is_leaf));
            msgpack::text(out, "path");
            msgpack::text(out, node.path);
            msgpack::text(out, "is_leaf");
            msgpack::boolean(out, node.is_leaf);
            msgpack::text(out, "isLeaf");
            msgpack::boolean(out, node.is_leaf);
            if node.is_leaf {
                msgpack::text(out, "intervals");
                msgpack::array(out, 1);
                msgpack::array(out, 2);
                msgpack::int(out, 0);
                msgpack::int(out, self.options.now);
            }
        }
    }
}
