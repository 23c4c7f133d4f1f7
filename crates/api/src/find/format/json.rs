//! `format=json`: every node with its full path, in the order of paths.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{
    encode::{
        json::{LIST, OBJECT, json_string},
        python::write_int,
    },
    find::nodes::Nodes,
};

/// The format.
struct Json {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(Json { options })
}

impl FindFormat for Json {
    fn content_type(&self) -> &'static str {
        self.options.style.content_type()
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.options.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        let FindOptions { now, style, .. } = &self.options;
        style.open(out);
        style.items(out, LIST, 1, nodes.by_path(), |out, node| {
            out.push(b'{');
            style.line(out, 2);
            out.extend_from_slice(b"\"path\": ");
            json_string(out, node.path, style.ascii);
            style.comma(out, 2);
            if node.is_leaf {
                out.extend_from_slice(b"\"is_leaf\": true");
                style.comma(out, 2);
                out.extend_from_slice(b"\"intervals\": ");
                style.items(out, LIST, 3, [()], |out, ()| {
                    style.items(out, OBJECT, 4, [("start", 0), ("end", *now)], |out, (key, value)| {
                        json_string(out, key, true);
                        out.extend_from_slice(b": ");
                        write_int(out, value);
                    });
                });
            } else {
                out.extend_from_slice(b"\"is_leaf\": false");
            }
            style.line(out, 1);
            out.push(b'}');
        });
        style.close(out);
    }
}
