//! Patterns over names: the first line is a pattern, the others are names. The result is the same for names in the
//! tail and in the index, and has the depth of the pattern.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metadata::{FindLimits, Registry};
use metric::{Policy, canonical_name};

const NAMES: [&str; 6] = ["servers.a.cpu", "servers.a.cpu.user", "servers.b.cpu", "a", "a{b,c}.[x]", "\u{e9}.b"];

fn found(registry: &Registry, pattern: &str) -> Option<Vec<(String, bool, bool)>> {
    let limits = FindLimits { nodes: 1000, steps: 1_000_000, ..FindLimits::default() };
    let found = registry.find(pattern, &limits).ok()?;
    let leaves = registry.leaves(pattern, &limits).ok()?;
    let nodes: Vec<_> = found.iter().map(|node| (node.path.to_owned(), node.is_leaf, node.is_branch)).collect();
    // The exact name of a tagged metric is not a node of the tree, but can be read.
    if !pattern.contains(';') {
        let metrics: Vec<&str> = nodes.iter().filter(|node| node.1).map(|node| node.0.as_str()).collect();
        assert_eq!(leaves.leaves().map(|(_, name)| name).collect::<Vec<_>>(), metrics);
    }
    Some(nodes)
}

fuzz_target!(|input: &str| {
    let mut lines = input.lines();
    let Some(pattern) = lines.next() else { return };
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    for name in NAMES.into_iter().chain(lines) {
        let Ok(name) = canonical_name(name.as_bytes()) else { continue };
        let hash = registry.hash(name.as_bytes());
        registry.write().create(hash, &name, policy, 0);
    }
    let in_tail = found(&registry, pattern);
    while registry.compact() {}
    let in_index = found(&registry, pattern);
    if let (Some(in_tail), Some(in_index)) = (&in_tail, &in_index) {
        assert_eq!(in_tail, in_index);
    }
    if !pattern.contains(['{', '\\', ';']) && !pattern.contains("**") {
        let depth = pattern.split('.').filter(|component| !component.is_empty()).count();
        for (path, ..) in in_index.iter().flatten() {
            assert_eq!(path.split('.').count(), depth, "{path}");
        }
    }
});
