//! `format=treejson`: one entry for each distinct name, branches first, with paths below the pattern's base.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::contract::{FindFormat, FindOptions};
use crate::{
    encode::{
        json::{JsonStyle, LIST, json_string, json_text},
        python::write_int,
    },
    find::nodes::{Node, Nodes},
};

/// The format.
struct TreeJson {
    // The pattern up to its last dot.
    base: String,
    wildcards: bool,
    style: JsonStyle,
    pattern: String,
}

/// Makes the format.
pub(super) fn make(options: FindOptions) -> Box<dyn FindFormat> {
    let FindOptions { pattern, wildcards, style, .. } = options;
    let base = pattern.rsplit_once('.').map_or(String::new(), |(base, _)| format!("{base}."));
    Box::new(TreeJson { base, wildcards, style, pattern })
}

impl FindFormat for TreeJson {
    fn content_type(&self) -> &'static str {
        self.style.content_type()
    }

    fn pattern(&self) -> Cow<'_, str> {
        self.pattern.as_str().into()
    }

    fn write(&self, nodes: &Nodes<'_>, out: &mut Vec<u8>) {
        let style = &self.style;
        let all = nodes.by_name();
        let mut distinct: Vec<Node<'_>> = Vec::new();
        for &node in &all {
            match distinct.last_mut() {
                // Of a leaf and a branch with one name, graphite-web shows the branch.
                Some(last) if last.name() == node.name() => last.is_leaf &= node.is_leaf,
                _ => distinct.push(node),
            }
        }
        let star = (self.wildcards && all.len() > 1).then(|| Node {
            path: "*",
            name: 0,
            is_leaf: all.iter().all(|n| n.is_leaf),
        });
        let branches = distinct.iter().filter(|node| !node.is_leaf);
        let leaves = distinct.iter().filter(|node| node.is_leaf);
        style.open(out);
        style.items(out, LIST, 1, star.iter().chain(branches).chain(leaves), |out, node| {
            let text = unquote_plus(node.name());
            out.push(b'{');
            style.line(out, 2);
            out.extend_from_slice(b"\"text\": ");
            json_string(out, &text, style.ascii);
            style.comma(out, 2);
            out.extend_from_slice(b"\"id\": \"");
            json_text(out, &self.base, style.ascii);
            json_text(out, node.name(), style.ascii);
            out.push(b'"');
            let branch = i64::from(!node.is_leaf);
            for (key, value) in [("allowChildren", branch), ("expandable", branch), ("leaf", 1 - branch)] {
                style.comma(out, 2);
                json_string(out, key, true);
                out.extend_from_slice(b": ");
                write_int(out, value);
            }
            style.line(out, 1);
            out.push(b'}');
        });
        style.close(out);
    }
}

/// Python's `unquote_plus`, which graphite-web applies to the name that it shows.
fn unquote_plus(name: &str) -> Cow<'_, str> {
    if !name.contains(['+', '%']) {
        return Cow::Borrowed(name);
    }
    let spaced = name.replace('+', " ");
    Cow::Owned(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unquoted_as_in_python() {
        for (name, shown) in
            [("a+b", "a b"), ("a%20b", "a b"), ("%zz%4", "%zz%4"), ("%c3%a9", "é"), ("é+", "é "), ("%ff", "\u{fffd}")]
        {
            assert_eq!(unquote_plus(name), shown);
        }
    }
}
