//! `format=completer`: completions of a name that the user types.

use std::borrow::Cow;

use super::contract::{FindFormat, FindOptions};
use crate::{
    encode::json::{LIST, OBJECT, json_string, json_text},
    find::nodes::Nodes,
};

/// The format.
struct Completer {
    options: FindOptions,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    Box::new(Completer { options })
}

impl FindFormat for Completer {
    fn content_type(&self) -> &'static str {
        self.options.style.content_type()
    }

    fn pattern(&self) -> Cow<'_, str> {
        completed(&self.options.pattern, self.options.automatic_variants).into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        let FindOptions { wildcards, style, .. } = &self.options;
        let all = nodes.by_name();
        let star = *wildcards && all.len() > 1;
        let items = all.iter().map(Some).chain(star.then_some(None));
        style.open(out);
        style.items(out, OBJECT, 1, [()], |out, ()| {
            out.extend_from_slice(b"\"metrics\": ");
            style.items(out, LIST, 2, items.clone(), |out, node| {
                out.push(b'{');
                style.line(out, 3);
                if let Some(node) = node {
                    out.extend_from_slice(b"\"path\": \"");
                    json_text(out, node.path, style.ascii);
                    out.extend_from_slice(if node.is_leaf { b"\"" } else { b".\"" });
                    style.comma(out, 3);
                }
                out.extend_from_slice(b"\"name\": ");
                json_string(out, node.map_or("*", |node| node.name()), style.ascii);
                if let Some(node) = node {
                    style.comma(out, 3);
                    out.extend_from_slice(if node.is_leaf { b"\"is_leaf\": \"1\"" } else { b"\"is_leaf\": \"0\"" });
                }
                style.line(out, 2);
                out.push(b'}');
            });
        });
        style.close(out);
    }
}

/// The pattern of a name that the user types.
fn completed(typed: &str, automatic_variants: bool) -> String {
    let mut pattern = typed.replace("..", "*.");
    if !pattern.ends_with('*') {
        pattern.push('*');
    }
    if automatic_variants {
        let variants = |part: &str| match part.contains(',') && !part.contains('{') {
            true => format!("{{{part}}}"),
            false => part.to_owned(),
        };
        pattern = pattern.split('.').map(variants).collect::<Vec<_>>().join(".");
    }
    pattern
}
