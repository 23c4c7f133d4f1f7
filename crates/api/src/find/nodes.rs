//! Nodes of the tree of names, in the two orders of the formats.

use metadata::Found;

/// The result of a find as graphite-web shows it: a path that is both a metric and a branch is two nodes.
pub(crate) struct Nodes<'a> {
    /// The result.
    pub found: &'a Found,
    /// Whether to omit branches.
    pub leaves_only: bool,
}

/// A metric or a branch.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub path: &'a str,
    // Start of the last component.
    pub name: usize,
    pub is_leaf: bool,
}

impl<'a> Node<'a> {
    pub fn name(&self) -> &'a str {
        &self.path[self.name..]
    }
}

impl<'a> Nodes<'a> {
    /// The nodes in the order of paths, a branch before the leaf of the same path.
    pub(super) fn by_path(&self) -> impl Iterator<Item = Node<'a>> {
        let leaves_only = self.leaves_only;
        self.found.iter().flat_map(move |node| {
            let name = node.path.rfind('.').map_or(0, |dot| dot + 1);
            let as_node = |is_leaf| Node { path: node.path, name, is_leaf };
            let branch = (node.is_branch && !leaves_only).then(|| as_node(false));
            let leaf = node.is_leaf.then(|| as_node(true));
            branch.into_iter().chain(leaf)
        })
    }

    /// The nodes in the order of names; nodes with the same name in the order of paths.
    pub(super) fn by_name(&self) -> Vec<Node<'a>> {
        let mut nodes: Vec<Node<'a>> = self.by_path().collect();
        // Already sorted for most patterns, which have their wildcard at the end or a fixed end.
        if !nodes.is_sorted_by(|a, b| a.name() <= b.name()) {
            nodes.sort_by(|a, b| a.name().cmp(b.name()));
        }
        nodes
    }
}
