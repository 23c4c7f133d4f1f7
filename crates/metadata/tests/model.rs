//! The registry against a naive model: random names, random globs, random removals, random moments of compaction, saving
//! and opening. Every test prints its seed; `SEED=… cargo test -p metadata --test model` repeats a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use host::{Random, SeededRandom, SystemRandom};
use metadata::{FindLimits, Registry};
use metric::{MetricId, Policy};

/// Random names and patterns.
struct Names(SeededRandom);

impl Names {
    fn new(test: &str) -> Names {
        println!("{test}:");
        Names(SeededRandom::new(SeededRandom::test_seed(SystemRandom.bits())))
    }

    fn below(&self, n: usize) -> usize {
        self.0.index(n)
    }

    fn choose<'a>(&self, from: &[&'a str]) -> &'a str {
        self.0.choose(from)
    }

    fn name(&self) -> String {
        // Half of them are regular, so that equal subtrees become one in the transducer.
        if self.below(2) == 0 {
            let parts = [&["a", "b", "c1", "c2"][..], &["cpu", "mem"], &["0", "1", "10"], &["user", "idle"]];
            return parts.map(|part| self.choose(part)).join(".");
        }
        let depth = 1 + self.below(4);
        let component = |random: &Names| {
            let length = 1 + random.below(3);
            (0..length).map(|_| random.choose(&["a", "b", "c", "-", "1", "é", "[", "{"])).collect::<String>()
        };
        (0..depth).map(|_| component(self)).collect::<Vec<_>>().join(".")
    }

    fn pattern(&self) -> String {
        if self.below(3) == 0 {
            let parts =
                [&["*", "c?", "[ab]", "**"][..], &["*", "c*", "mem"], &["*", "1*", "?"], &["user", "*", "u*", "no"]];
            let depth = 1 + self.below(4);
            return parts.map(|part| self.choose(part))[..depth].join(".");
        }
        let depth = 1 + self.below(4);
        let pieces = [
            "*",
            "?",
            "a",
            "b",
            "c",
            "-",
            "1",
            "é",
            "[ab]",
            "[!a]",
            "[a-c1]",
            "{a,b}",
            "{a*,?b,}",
            "{b{a,c},1}",
            "[",
            "{",
        ];
        let component = |random: &Names| match random.below(4) {
            0 => random.choose(&["*", "**", "*", "??"]).to_owned(),
            _ => (0..1 + random.below(3)).map(|_| random.choose(&pieces)).collect(),
        };
        (0..depth).map(|_| component(self)).collect::<Vec<_>>().join(".")
    }
}

/// Whether a pattern stands for a path: component by component, every alternative tried.
fn matches(pattern: &[&str], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return path.is_empty() };
    expand(first).iter().any(|variant| match variant.as_str() {
        "**" if rest.is_empty() => !path.is_empty(),
        "**" => (0..=path.len()).any(|n| matches(rest, &path[n..])),
        "" => !rest.is_empty() && matches(rest, path),
        variant => {
            let glob: Vec<char> = variant.chars().collect();
            path.split_first().is_some_and(|(component, path)| {
                fnmatch(&glob, &component.chars().collect::<Vec<_>>()) && matches(rest, path)
            })
        }
    })
}

fn expand(component: &str) -> Vec<String> {
    for (close, _) in component.match_indices('}') {
        if let Some(open) = component[..close].rfind('{') {
            let choices = component[open + 1..close].split(',');
            return choices
                .flat_map(|choice| expand(&format!("{}{choice}{}", &component[..open], &component[close + 1..])))
                .collect();
        }
    }
    vec![component.to_owned()]
}

fn fnmatch(glob: &[char], text: &[char]) -> bool {
    match (glob.first(), text.first()) {
        (None, None) => true,
        (Some('*'), _) => fnmatch(&glob[1..], text) || (!text.is_empty() && fnmatch(glob, &text[1..])),
        (Some('?'), Some(_)) => fnmatch(&glob[1..], &text[1..]),
        (Some('['), Some(&char)) => match glob[2.min(glob.len())..].iter().position(|&c| c == ']') {
            Some(at) => {
                let members = &glob[1..at + 2];
                let negated = members[0] == '!';
                let members = &members[usize::from(negated)..];
                class(members, char) != negated && fnmatch(&glob[at + 3..], &text[1..])
            }
            None => char == '[' && fnmatch(&glob[1..], &text[1..]),
        },
        (Some(a), Some(b)) => a == b && fnmatch(&glob[1..], &text[1..]),
        _ => false,
    }
}

fn class(members: &[char], char: char) -> bool {
    match members {
        [first, '-', last, rest @ ..] => (*first <= char && char <= *last) || class(rest, char),
        [first, rest @ ..] => *first == char || class(rest, char),
        [] => false,
    }
}

/// Every node a pattern stands for, by the rules: (id of the metric, whether it is a branch).
fn model_find(names: &BTreeMap<String, MetricId>, pattern: &str) -> BTreeMap<String, (Option<MetricId>, bool)> {
    let pattern: Vec<&str> = pattern.split('.').filter(|component| !component.is_empty()).collect();
    let mut nodes = BTreeMap::new();
    for (name, &id) in names {
        let path: Vec<&str> = name.split('.').collect();
        for depth in 1..=path.len() {
            if matches(&pattern, &path[..depth]) {
                let node = nodes.entry(path[..depth].join(".")).or_insert((None, false));
                if depth == path.len() {
                    node.0 = Some(id);
                } else {
                    node.1 = true;
                }
            }
        }
    }
    nodes
}

fn found(registry: &Registry, pattern: &str) -> Vec<(String, (Option<MetricId>, bool))> {
    let found = registry.find(pattern, &FindLimits::default()).unwrap();
    found.iter().map(|node| (node.path.to_owned(), (node.id, node.is_branch))).collect()
}

#[test]
fn finds_agree_with_the_model_whatever_is_compacted_saved_and_opened() {
    let random = Names::new("finds_agree_with_the_model");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    for _ in 0..20 {
        let mut registry = Registry::new();
        let policy = registry.intern(&Policy::default());
        let (mut names, mut hidden) = (BTreeMap::<String, MetricId>::new(), BTreeMap::<String, MetricId>::new());
        let mut next = 0;
        for _ in 0..40 {
            for _ in 0..random.below(20) {
                let name = random.name();
                let hash = registry.hash(name.as_bytes());
                let id = registry.write().create(hash, &name, policy, 1);
                let id_before = hidden.remove(&name).unwrap_or(MetricId(next));
                let known = *names.entry(name).or_insert(id_before);
                assert_eq!(id, known, "an id is never given twice");
                next = next.max(id.0 + 1);
            }
            if random.below(3) == 0 {
                let share = random.below(3);
                let (gone, left) = names.into_iter().partition(|_| random.below(10) < share);
                names = left;
                registry.hide(&BTreeMap::values(&gone).copied().collect::<Vec<_>>());
                hidden.extend(gone);
            }
            if random.below(3) == 0 {
                // Few wait in the index, and many are left out at once.
                let (share, of) = (1 + random.below(4), [4, 40][random.below(2)]);
                let all = names.iter().chain(&hidden);
                let gone: Vec<(String, MetricId)> =
                    all.filter(|_| random.below(of) < share).map(|(name, &id)| (name.clone(), id)).collect();
                let ids: Vec<MetricId> = gone.iter().map(|&(_, id)| id).collect();
                assert_eq!((registry.remove(&ids), registry.remove(&ids)), (ids.len(), 0));
                for (name, id) in gone {
                    names.remove(&name).or_else(|| hidden.remove(&name));
                    assert_eq!(registry.read().name(id), "");
                    assert_eq!(registry.records(&[id]), []);
                }
            }
            match random.below(6) {
                0 => registry.compact_fully(),
                1 => drop(registry.compact()),
                2 => {
                    registry.save(&host::SystemDisk, &file, None).unwrap();
                    registry = Registry::open(&host::SystemDisk, &file).unwrap().registry;
                    // A start shows hidden metrics until they are found deleted again.
                    names.append(&mut hidden);
                }
                _ => {}
            }
            for _ in 0..5 {
                let pattern = random.pattern();
                let expected = model_find(&names, &pattern);
                let got = found(&registry, &pattern);
                assert_eq!(got, expected.into_iter().collect::<Vec<_>>(), "{pattern} over {names:?}");
            }
            let mut all = Vec::new();
            registry.all(|id, name| {
                all.push((name.to_owned(), id));
                true
            });
            assert_eq!(all, names.clone().into_iter().collect::<Vec<_>>());
            assert_eq!(registry.len(), names.len());
            let guard = registry.read();
            for (name, &id) in &names {
                assert_eq!(guard.find(registry.hash(name.as_bytes()), name.as_bytes()), Some(id));
                assert_eq!(guard.name(id), name);
            }
            let stranger = random.name();
            let id = guard.find(registry.hash(stranger.as_bytes()), stranger.as_bytes());
            assert_eq!(id, names.get(&stranger).copied());
        }
    }
}

#[test]
fn a_find_sees_what_was_created_before_it_and_nothing_that_never_was() {
    let random = Names::new("a_find_sees_what_was_created_before_it");
    let names: Vec<String> = {
        let mut seen = BTreeSet::new();
        let names = std::iter::repeat_with(|| format!("{}.n{}", random.name(), random.below(1000)));
        names.filter(|name| seen.insert(name.clone())).take(60_000).collect()
    };
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    let created = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (i, name) in names.iter().enumerate() {
                let id = registry.write().create(registry.hash(name.as_bytes()), name, policy, 1);
                assert_eq!(id.index(), i);
                created.store(i + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                registry.compact();
            }
        });
        let mut finds = 0;
        while !done.load(Ordering::Acquire) || finds < 3 {
            let before = created.load(Ordering::Acquire);
            let leaves = registry.leaves("**", &FindLimits::default()).unwrap();
            let mut ids: Vec<MetricId> = leaves.leaves().map(|(id, _)| id).collect();
            ids.sort_unstable();
            // Ids are dense and each is there once: as many as were created, and no hole.
            assert!(ids.len() >= before, "{} of {before}", ids.len());
            assert!(ids.iter().enumerate().all(|(i, &id)| i == id.index()));
            for (id, name) in leaves.leaves().step_by(97) {
                assert_eq!(names[id.index()], name);
            }
            if let Some(last) = before.checked_sub(1) {
                assert_eq!(
                    found(&registry, &names[last].replace('[', r"\[").replace('{', r"\{"))[0].1.0,
                    Some(MetricId(last as u32))
                );
            }
            finds += 1;
        }
        println!("{finds} finds");
    });
    registry.compact_fully();
    let statistics = registry.index_statistics();
    assert_eq!((statistics.indexed, statistics.tail, statistics.segments), (60_000, 0, 1));
}

#[test]
fn metrics_that_come_and_go_take_no_more_memory_each_time() {
    const METRICS: usize = 40_000;
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    // One in a thousand stays.
    let name = |round: usize, i: usize| match i % 1000 {
        0 => format!("stays.m{i}"),
        _ => format!("round{round}.some.path.of.a.pod.m{i}"),
    };
    let mut used = Vec::new();
    for round in 0..10 {
        let create = |i| {
            let name = name(round, i);
            registry.write().create(registry.hash(name.as_bytes()), &name, policy, 1)
        };
        let ids: Vec<MetricId> = (0..METRICS).map(create).collect();
        while registry.compact() {}
        let gone: Vec<MetricId> =
            ids.into_iter().enumerate().filter(|(i, _)| i % 1000 != 0).map(|(_, id)| id).collect();
        assert_eq!(registry.remove(&gone), gone.len());
        while registry.compact() {}
        assert_eq!(registry.len(), METRICS / 1000);
        assert_eq!(registry.leaves("**", &FindLimits::default()).unwrap().len(), METRICS / 1000);
        used.push(registry.memory_bytes());
    }
    println!("bytes after each round: {used:?}");
    assert!(used[9] < used[0] + 64 * 1024, "{used:?}");
    assert!(used[9] < 3 << 20, "{used:?}");
}

#[test]
fn finds_while_metrics_come_and_go_see_those_that_stay() {
    let registry = Registry::new();
    let policy = registry.intern(&Policy::default());
    let create = |name: &str| registry.write().create(registry.hash(name.as_bytes()), name, policy, 1);
    for i in 0..3000 {
        create(&format!("stays.g{}.m{i}", i % 10));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20 {
                let ids: Vec<MetricId> = (0..3000).map(|i| create(&format!("stays.g{}.n{i}", i % 10))).collect();
                if round % 2 == 0 {
                    registry.compact();
                }
                registry.remove(&ids);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                registry.compact();
            }
        });
        while !done.load(Ordering::Acquire) {
            assert_eq!(registry.leaves("stays.g3.m*", &FindLimits::default()).unwrap().len(), 300);
        }
    });
    registry.compact_fully();
    assert_eq!(registry.find("**", &FindLimits::default()).unwrap().len(), 3011);
    let statistics = registry.index_statistics();
    assert_eq!((statistics.indexed, statistics.tail), (3000, 0));
}
