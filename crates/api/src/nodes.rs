//! Nodes of the tree of names, in the formats of `/metrics/...`.

use std::borrow::Cow;

use metadata::{Found, Registry};
use metric::Timestamp;

use crate::{
    carbonapi::Protocol,
    json::JsonStyle,
    msgpack, pickle as python,
    pieces::Pieces,
    protobuf,
    write::{int, json_string},
};

/// Writes nodes in one of the formats.
pub(crate) type Writer = Box<dyn FnOnce(&Nodes<'_>, &mut Vec<u8>) + Send>;

/// What was found, as graphite-web sees it: a path that is both a metric and a branch is two nodes.
pub(crate) struct Nodes<'a> {
    /// What was found.
    pub found: &'a Found,
    /// Whether branches are left out.
    pub leaves_only: bool,
}

/// A node as graphite-web has it.
#[derive(Clone, Copy)]
struct Node<'a> {
    path: &'a str,
    // Where the last component begins in the path.
    name: usize,
    is_leaf: bool,
}

impl<'a> Node<'a> {
    fn name(&self) -> &'a str {
        &self.path[self.name..]
    }
}

impl<'a> Nodes<'a> {
    /// In the order of paths, a branch before the leaf of the same path.
    fn by_path(&self) -> impl Iterator<Item = Node<'a>> {
        let leaves_only = self.leaves_only;
        self.found.iter().flat_map(move |node| {
            let name = node.path.rfind('.').map_or(0, |dot| dot + 1);
            let as_node = |is_leaf| Node { path: node.path, name, is_leaf };
            let branch = (node.is_branch && !leaves_only).then(|| as_node(false));
            let leaf = node.is_leaf.then(|| as_node(true));
            branch.into_iter().chain(leaf)
        })
    }

    /// In the order of names, and of paths where names are the same.
    fn by_name(&self) -> Vec<Node<'a>> {
        let mut nodes: Vec<Node<'a>> = self.by_path().collect();
        // Most patterns have their wildcard at the end, or a fixed end: in order already.
        if !nodes.is_sorted_by(|a, b| a.name() <= b.name()) {
            nodes.sort_by(|a, b| a.name().cmp(b.name()));
        }
        nodes
    }
}

const LIST: [u8; 2] = *b"[]";
const OBJECT: [u8; 2] = *b"{}";

/// `treejson`: one entry for each distinct name, branches first, each under the pattern's own base.
pub(crate) fn treejson(nodes: &Nodes<'_>, base: &str, wildcards: bool, style: &JsonStyle, out: &mut Vec<u8>) {
    let all = nodes.by_name();
    let mut distinct: Vec<Node<'_>> = Vec::new();
    for &node in &all {
        match distinct.last_mut() {
            // Of a leaf and a branch with one name, graphite-web shows the branch.
            Some(last) if last.name() == node.name() => last.is_leaf &= node.is_leaf,
            _ => distinct.push(node),
        }
    }
    let star =
        (wildcards && all.len() > 1).then(|| Node { path: "*", name: 0, is_leaf: all.iter().all(|n| n.is_leaf) });
    let branches = distinct.iter().filter(|node| !node.is_leaf);
    let leaves = distinct.iter().filter(|node| node.is_leaf);
    style.open(out);
    style.items(out, LIST, 1, star.iter().chain(branches).chain(leaves), |out, node| {
        let text = unquoted_plus(node.name());
        out.push(b'{');
        style.line(out, 2);
        out.extend_from_slice(b"\"text\": ");
        json_string(out, &text, style.ascii);
        style.comma(out, 2);
        out.extend_from_slice(b"\"id\": \"");
        crate::write::json_text(out, base, style.ascii);
        crate::write::json_text(out, node.name(), style.ascii);
        out.push(b'"');
        let branch = i64::from(!node.is_leaf);
        for (key, value) in [("allowChildren", branch), ("expandable", branch), ("leaf", 1 - branch)] {
            style.comma(out, 2);
            json_string(out, key, true);
            out.extend_from_slice(b": ");
            int(out, value);
        }
        style.line(out, 1);
        out.push(b'}');
    });
    style.close(out);
}

/// Python's `unquote_plus`, which graphite-web applies to the name it shows.
fn unquoted_plus(name: &str) -> Cow<'_, str> {
    if !name.contains(['+', '%']) {
        return Cow::Borrowed(name);
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |digit: u8| (digit as char).to_digit(16);
        rest = match (byte, after) {
            (b'+', _) => {
                bytes.push(b' ');
                after
            }
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push((hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0)) as u8);
                after
            }
            _ => {
                bytes.push(byte);
                after
            }
        };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// `completer`: what a text field offers to complete what was typed.
pub(crate) fn completer(nodes: &Nodes<'_>, wildcards: bool, style: &JsonStyle, out: &mut Vec<u8>) {
    let all = nodes.by_name();
    let star = wildcards && all.len() > 1;
    let items = all.iter().map(Some).chain(star.then_some(None));
    style.open(out);
    style.items(out, OBJECT, 1, [()], |out, ()| {
        out.extend_from_slice(b"\"metrics\": ");
        style.items(out, LIST, 2, items.clone(), |out, node| {
            out.push(b'{');
            style.line(out, 3);
            if let Some(node) = node {
                out.extend_from_slice(b"\"path\": \"");
                crate::write::json_text(out, node.path, style.ascii);
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

/// `json`: every node with its full path, in the order of paths.
pub(crate) fn json(nodes: &Nodes<'_>, now: Timestamp, style: &JsonStyle, out: &mut Vec<u8>) {
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
                style.items(out, OBJECT, 4, [("start", 0), ("end", now)], |out, (key, value)| {
                    json_string(out, key, true);
                    out.extend_from_slice(b": ");
                    int(out, value);
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

/// `nodelist`: the distinct components at a position, counted from the end when it is negative. Paths that
/// have no such position are left out; graphite-web fails on them.
pub(crate) fn nodelist(nodes: &Nodes<'_>, position: i64, style: &JsonStyle, out: &mut Vec<u8>) {
    let count = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    for node in nodes.by_path() {
        parts.extend(if position < 0 { node.path.rsplit('.').nth(count - 1) } else { node.path.split('.').nth(count) });
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

/// `pickle`: what graphite-web asks a remote for. An interval is a plain tuple: its readers take that, and
/// no class need exist on their side.
pub(crate) fn pickle(nodes: &Nodes<'_>, now: Timestamp, out: &mut Vec<u8>) {
    python::begin(out);
    python::list(out, |out| {
        for node in nodes.by_name() {
            python::dict(out, |out| {
                python::text(out, "path");
                python::text(out, node.path);
                python::text(out, "is_leaf");
                python::boolean(out, node.is_leaf);
                if node.is_leaf {
                    python::text(out, "intervals");
                    python::list(out, |out| {
                        python::int(out, 0);
                        python::int(out, now);
                        python::pair(out);
                    });
                }
            });
        }
    });
    python::end(out);
}

/// `msgpack`: the same, and `isLeaf` beside `is_leaf`: graphite-web reads one, carbonapi the other.
pub(crate) fn msgpack(nodes: &Nodes<'_>, now: Timestamp, out: &mut Vec<u8>) {
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
            msgpack::int(out, now);
        }
    }
}

/// `/metrics/expand`: distinct full paths, in order; each pattern's own when they are grouped.
pub(crate) fn expanded(
    groups: &[(&str, Found)],
    leaves_only: bool,
    grouped: bool,
    style: &JsonStyle,
    out: &mut Vec<u8>,
) {
    let shown = |node: &metadata::Node<'_>| node.is_leaf || !leaves_only;
    style.open(out);
    style.items(out, OBJECT, 1, [()], |out, ()| {
        out.extend_from_slice(b"\"results\": ");
        if grouped {
            style.items(out, OBJECT, 2, groups, |out, (pattern, found)| {
                json_string(out, pattern, style.ascii);
                out.extend_from_slice(b": ");
                style.items(out, LIST, 3, found.iter().filter(shown), |out, node| {
                    json_string(out, node.path, style.ascii);
                });
            });
            return;
        }
        let mut all: Vec<&str> = Vec::new();
        for (_, found) in groups {
            all.extend(found.iter().filter(shown).map(|node| node.path));
        }
        if groups.len() > 1 {
            all.sort_unstable();
            all.dedup();
        }
        style.items(out, LIST, 2, all, |out, path| json_string(out, path, style.ascii));
    });
    style.close(out);
}

/// A `GlobResponse` of carbonapi, of either version: a node that is a metric and a branch is matched twice.
pub(crate) fn glob_response(nodes: &Nodes<'_>, pattern: &str, out: &mut Vec<u8>) {
    protobuf::text(out, 1, pattern);
    for node in nodes.by_path() {
        let is_leaf = if node.is_leaf { 2 } else { 0 };
        protobuf::bytes_head(out, 2, protobuf::bytes_len(1, node.path.len()) + is_leaf);
        protobuf::text(out, 1, node.path);
        protobuf::boolean(out, 2, node.is_leaf);
    }
}

/// Names of one piece of the index.
const NAMES_PER_PIECE: usize = 8192;

/// How all names are listed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Listing {
    /// As `/metrics/index.json` does: a list.
    Json(JsonStyle),
    /// As go-carbon's `/metrics/list` does in JSON: `{"Metrics": [...]}`.
    Object(JsonStyle),
    /// As it does in protobuf: a `ListMetricsResponse`, which both versions have alike.
    Protobuf(Protocol),
}

/// The names, in one buffer, written as they are sent.
pub(crate) struct Index {
    listing: Listing,
    limit: usize,
    text: String,
    // Where each name ends.
    ends: Vec<usize>,
}

impl Index {
    pub fn new(listing: Listing, limit: usize) -> Index {
        Index { listing, limit, text: String::new(), ends: Vec::new() }
    }

    pub fn content_type(&self) -> &'static str {
        match &self.listing {
            Listing::Json(style) | Listing::Object(style) => style.content_type(),
            Listing::Protobuf(protocol) => protocol.content_type(),
        }
    }

    /// Takes over every name. The error is the number of bytes at which it was too much.
    pub fn filled(mut self, registry: &Registry, cancelled: impl Fn() -> bool) -> Result<Index, usize> {
        let mut bytes = 2;
        registry.all(|_, name| {
            // Quotes, comma, blank.
            bytes += name.len() + 4;
            self.text.push_str(name);
            self.ends.push(self.text.len());
            bytes <= self.limit && !(self.ends.len().is_multiple_of(NAMES_PER_PIECE) && cancelled())
        });
        if bytes > self.limit { Err(self.limit) } else { Ok(self) }
    }

    fn name(&self, index: usize) -> &str {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[begin..self.ends[index]]
    }
}

impl Pieces for Index {
    fn count(&self) -> usize {
        self.ends.len().div_ceil(NAMES_PER_PIECE).max(1)
    }

    fn write(&self, piece: usize, out: &mut Vec<u8>) {
        let begin = piece * NAMES_PER_PIECE;
        let end = (begin + NAMES_PER_PIECE).min(self.ends.len());
        let (style, is_object) = match &self.listing {
            Listing::Json(style) => (style, false),
            Listing::Object(style) => (style, true),
            Listing::Protobuf(_) => {
                return (begin..end).for_each(|index| protobuf::text(out, 1, self.name(index)));
            }
        };
        if piece == 0 {
            style.open(out);
            out.extend_from_slice(if is_object { b"{\"Metrics\": [" } else { b"[" });
        }
        for index in begin..end {
            if index > 0 {
                style.comma(out, 1);
            } else {
                style.line(out, 1);
            }
            json_string(out, self.name(index), style.ascii);
        }
        if piece + 1 == self.count() {
            if !self.ends.is_empty() {
                style.line(out, 0);
            }
            out.extend_from_slice(if is_object { b"]}" } else { b"]" });
            style.close(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_names_are_unquoted_as_in_python() {
        for (name, shown) in [("a+b", "a b"), ("a%20b", "a b"), ("%zz%4", "%zz%4"), ("%c3%a9", "é"), ("é+", "é ")] {
            assert_eq!(unquoted_plus(name), shown);
        }
    }
}
