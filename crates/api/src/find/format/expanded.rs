//! The answer to `/metrics/expand`.

use metadata::Found;

use crate::encode::json::{JsonStyle, LIST, OBJECT, json_string};

/// Writes distinct full paths in order, for each pattern when `grouped`.
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
