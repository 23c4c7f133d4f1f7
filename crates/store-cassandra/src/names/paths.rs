//! The path of a metric or directory as the tables have it.

use metric::is_tagged;

use crate::schema::LAST_COMPONENT;

/// The parent of a path as the tables have it: with a dot behind it, and a dot alone at the root.
fn parent(path: &str) -> &str {
    path.rfind('.').map_or(".", |dot| &path[..=dot])
}

/// The values of a row of a name: the name, its parent, its components and the mark of their end.
pub(super) fn bound(path: &str) -> Vec<&str> {
    let mut values = vec![path, parent(path)];
    values.extend(path.split('.'));
    values.push(LAST_COMPONENT);
    values
}

/// Components of a path. A tagged metric is found by its tags: it is in no tree, and has none.
pub(super) fn components(path: &str) -> usize {
    if is_tagged(path) { 0 } else { path.split('.').count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_name_is_biggraphites() {
        assert_eq!(bound("a.b.c"), ["a.b.c", "a.b.", "a", "b", "c", "__END__"]);
        assert_eq!(bound("x"), ["x", ".", "x", "__END__"]);
        let mut known = 0;
        let recorded = include_str!("../../tests/biggraphite/names.txt");
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(parent(fields[1]), fields[3], "{line}");
            known += 1;
        }
        assert!(known >= 10);
    }
}
