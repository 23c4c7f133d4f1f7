//! What a pattern finds is what graphite-web 1.1.10 finds (`globs.txt`, written by `record-globs`), and the
//! few patterns that are meant to differ.

use metadata::{FindError, FindLimits, GlobError, Registry};
use metric::{MetricId, Policy};

/// A registry of names: the first `indexed` are in segments, the others in the tail.
fn registry(names: &[&str], indexed: usize) -> Registry {
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    let create = |names: &[&str]| {
        for name in names {
            registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
        }
    };
    create(&names[..indexed]);
    registry.compact_fully();
    create(&names[indexed..]);
    registry
}

/// The nodes found, a branch as `a.b+`.
fn find(registry: &Registry, pattern: &str) -> Vec<String> {
    let found = registry.find(pattern, &FindLimits::default()).unwrap();
    let mut nodes = Vec::new();
    for node in found.iter() {
        assert_eq!(node.is_leaf, node.id.is_some());
        if node.is_leaf {
            nodes.push(node.path.to_owned());
        }
        if node.is_branch {
            nodes.push(format!("{}+", node.path));
        }
    }
    nodes
}

fn check(names: &[&str], pattern: &str, expected: &[&str]) {
    for indexed in [0, names.len() / 2, names.len()] {
        let registry = registry(names, indexed);
        assert_eq!(find(&registry, pattern), expected, "{pattern} with {indexed} of {names:?} in the index");
    }
}

#[test]
fn every_recorded_pattern_finds_what_graphite_web_finds() {
    let recorded = include_str!("globs.txt").split_once('\n').unwrap().1;
    let mut blocks = recorded.split("\n\n");
    let names: Vec<&str> = blocks.next().unwrap().lines().collect();
    let registries = [0, names.len() / 2, names.len()].map(|indexed| registry(&names, indexed));
    let mut wrong = Vec::new();
    let mut patterns = 0;
    for block in blocks {
        let mut lines = block.lines();
        let pattern = lines.next().unwrap();
        let expected: Vec<&str> = lines.map(str::trim_start).collect();
        for (i, registry) in registries.iter().enumerate() {
            let mut found = find(registry, pattern);
            let order: Vec<String> = found.iter().map(|node| node.trim_end_matches('+').to_owned()).collect();
            assert!(order.is_sorted(), "{pattern}: {order:?}");
            // The record is in the order of Python's tuples, a leaf before a branch of the same name.
            found.sort_by_key(|node| (node.trim_end_matches('+').to_owned(), node.ends_with('+')));
            if found != expected {
                wrong.push(format!("{i} {pattern}\n   found {found:?}\n  wanted {expected:?}"));
            }
            let leaves = registry.leaves(pattern, &FindLimits::default()).unwrap();
            let leaves: Vec<&str> = leaves.leaves().map(|(_, name)| name).collect();
            let expected: Vec<&str> = expected.iter().copied().filter(|node| !node.ends_with('+')).collect();
            if leaves != expected {
                wrong.push(format!("{i} leaves of {pattern}\n   found {leaves:?}\n  wanted {expected:?}"));
            }
        }
        patterns += 1;
    }
    assert!(patterns > 400, "only {patterns} patterns were read");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// graphite-web finds a branch called `a.b.`; names here have no empty components, as in BigGraphite.
#[test]
fn empty_components_of_a_pattern_are_dropped() {
    check(&["a.b", "a.b.c"], "a.b.", &["a.b", "a.b+"]);
    check(&["a.b", "a.b.c"], ".a..b", &["a.b", "a.b+"]);
    check(&["a.b"], "", &[]);
    check(&["a.b"], "...", &[]);
}

/// graphite-web drops backslashes, finds what the pattern then means, and calls it by the pattern.
#[test]
fn a_backslash_makes_the_next_character_itself() {
    let names = ["x.a*b", "x.aab", "x.{a}", "x.a", r"x.c\d", "x.cd"];
    check(&names, r"x.a\*b", &["x.a*b"]);
    check(&names, r"x.\{a\}", &["x.{a}"]);
    check(&names, r"x.\a", &["x.a"]);
    check(&names, r"x.a\", &["x.a"]);
    check(&names, r"x.c\\d", &[r"x.c\d"]);
    check(&names, r"x.[a\]\*]", &["x.a"]);
}

/// BigGraphite refuses them; graphite-web cuts at the dots first, so that the halves are plain text.
#[test]
fn braces_do_not_reach_over_a_dot() {
    check(&["a.b", "a.c", "d"], "{a.b,d}", &[]);
    check(&["{a.b,d}"], "{a.b,d}", &["{a.b,d}"]);
}

/// BigGraphite takes `?` for any character, a dot included, and a `**` inside a component for any depth. There
/// graphite-web's rules hold.
#[test]
fn wildcards_stay_inside_their_component() {
    check(&["a.b", "a-b"], "a?b", &["a-b"]);
    check(&["a.b", "a-b"], "a[!x]b", &["a-b"]);
    check(&["a.b", "a-b"], "a[+-9]b", &["a-b"]);
    check(&["ab", "a.b"], "a**b", &["ab"]);
}

#[test]
fn tagged_metrics_are_found_by_their_exact_name_alone() {
    let names = ["n;a=1;b=2", "n", "m.x"];
    check(&names, "*", &["m+", "n"]);
    check(&names, "**", &["m+", "m.x", "n"]);
    check(&names, "n;a=1;b=2", &["n;a=1;b=2"]);
    check(&names, "n;*", &[]);
    let registry = registry(&names, 3);
    let leaves = registry.leaves("n;a=1;b=2", &FindLimits::default()).unwrap();
    assert_eq!(leaves.leaves().collect::<Vec<_>>(), [(MetricId(0), "n;a=1;b=2")]);
}

#[test]
fn the_name_of_a_metric_is_resolved_without_the_index() {
    let registry = registry(&["a.b", r"c\d", "e*"], 2);
    let leaves = |pattern: &str| {
        let found = registry.leaves(pattern, &FindLimits::default()).unwrap();
        found.leaves().map(|(id, name)| (id, name.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(leaves("a.b"), [(MetricId(0), "a.b".to_owned())]);
    assert_eq!(leaves(".a..b."), [(MetricId(0), "a.b".to_owned())]);
    assert_eq!(leaves("a"), []);
    assert_eq!(leaves(r"c\d"), [(MetricId(1), r"c\d".to_owned())]);
    assert_eq!(leaves(r"e\*"), [(MetricId(2), "e*".to_owned())]);
}

fn error(names: &[&str], pattern: &str, limits: &FindLimits) -> String {
    let errors: Vec<String> = [0, names.len()]
        .into_iter()
        .map(|indexed| registry(names, indexed).find(pattern, limits).unwrap_err().to_string())
        .collect();
    assert_eq!(errors[0], errors[1]);
    errors[0].clone()
}

#[test]
fn a_find_beyond_a_limit_is_rejected_with_a_reason() {
    let none = FindLimits::default();
    let names: Vec<String> = (0..3000).map(|i| format!("a.{i}.x")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(error(&names, &vec!["*"; 65].join("."), &none), "the pattern has 65 components; names have at most 64");
    assert_eq!(error(&names, &"a".repeat(70_000), &none), "the pattern has 70000 bytes; at most 65536 are read");
    assert_eq!(
        error(&names, &"{a,b}".repeat(14), &none),
        "the braces of the pattern stand for more than 10000 alternatives or half a million characters; use * or fewer braces"
    );
    assert_eq!(
        error(&names, "a.*", &FindLimits { nodes: 2999, ..none.clone() }),
        "the pattern matches more than 2999 metrics and branches; make it narrower"
    );
    assert_eq!(
        error(&names, "a.*", &FindLimits { bytes: 50_000, ..none.clone() }),
        "the answer has more than 50000 bytes; make the pattern narrower"
    );
    assert_eq!(
        error(&names, "a.*.*", &FindLimits { steps: 1000, ..none.clone() }),
        "the pattern takes too long to resolve; begin it with fixed components or make it narrower"
    );
    let cancelled = Some(std::sync::Arc::new(true.into()));
    assert_eq!(error(&names, "a.*.*", &FindLimits { cancelled, ..none }), "the request was cancelled");
}

/// The worst that fits into a request: each is answered or refused, in bounded time and memory.
#[test]
fn hostile_patterns_are_answered_or_rejected() {
    let names: Vec<String> =
        (0..200).map(|i| format!("{}.{}", "ab".repeat(i % 20 + 1), "x.".repeat(i % 30) + "y")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let registry = registry(&names, 100);
    let patterns = [
        "*a*".repeat(10_000),
        "?*".repeat(20_000),
        vec!["**"; 64].join("."),
        vec!["**.*a*b*"; 32].join("."),
        "{".repeat(60_000),
        "}".repeat(60_000),
        "{,".repeat(30_000),
        format!("{}{}", "{".repeat(30_000), "}".repeat(30_000)),
        format!("{{{}}}", "a*b,".repeat(9_000)),
        "[".repeat(60_000),
        "[!a]".repeat(15_000),
        "[a-".repeat(20_000),
        "\\".repeat(60_001),
        "[\u{1}-\u{10ffff}]".repeat(2000),
        "é*".repeat(20_000),
    ];
    for pattern in patterns {
        let begin = std::time::Instant::now();
        match registry.find(&pattern, &FindLimits::default()) {
            Ok(found) => assert!(found.len() <= 1000),
            Err(error) => assert!(!matches!(error, FindError::Glob(GlobError::Invalid { .. })), "{error}"),
        }
        eprintln!("{:20.20} {:?}", pattern, begin.elapsed());
    }
}
