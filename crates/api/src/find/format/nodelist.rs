//! `format=nodelist`: the distinct components at a position, counted from the end when negative.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{
    encode::json::{LIST, OBJECT, json_string},
    find::nodes::Nodes,
};

/// The format.
struct NodeList {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(NodeList { options })
}

impl FindFormat for NodeList {
    fn content_type(&self) -> &'static str {
        self.options.style.content_type()
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.options.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        let FindOptions { position, style, .. } = &self.options;
        // Paths without this position are left out; graphite-web fails on them.
        let count = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
        let mut parts: Vec<&str> = Vec::new();
        for node in nodes.by_path() {
            parts.extend(if *position < 0 {
                node.path.rsplit('.').nth(count - 1)
            } else {
                node.path.split('.').nth(count)
            });
        }
        parts.sort_unstable();
        parts.dedup();
        style.open(out);
        style.items(out, OBJECT, 1, [()], |out, ()| {
            out.extend_from_slice(b"\"nodes\": ");
            style.items(out, LIST, 2, parts.iter(), |out, part| json_string(out, part, style.ascii));
        });
        style.close(out);
    }
}
