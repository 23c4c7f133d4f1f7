//! Questions about tags against a naive walk over all names: random metrics that come, go, are hidden and shown again, random
//! expressions. Every test prints its seed; `SEED=… cargo test --workspace --test tags` repeats a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use host::{Random, SeededRandom, SystemRandom};
use metadata::{FindError, FindLimits, Matcher, NameFilter, Registry, TagExpressions, TagListing};
use metric::{MetricId, Policy};
use regex_automata::meta::Regex;

fn compile(pattern: &str) -> Result<Matcher, String> {
    let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
    Ok(Matcher::new(move |value| Ok(regex.is_match(value))).with_pattern(pattern, usize::MAX))
}

fn read(texts: &[String]) -> Result<TagExpressions, String> {
    TagExpressions::read_any(texts, compile).map_err(|error| error.to_string())
}

fn create(registry: &Registry, name: &str) -> MetricId {
    let policy = registry.intern(&Policy::default());
    registry.write().create(registry.hash(name.as_bytes()), name, policy, 7)
}

/// Shows some names alone.
#[derive(Debug)]
struct Part(&'static str);

impl NameFilter for Part {
    fn shows_metric(&self, name: &str) -> bool {
        name.contains(self.0)
    }

    fn shows_branch(&self, _: &str) -> bool {
        false
    }
}

fn limits(part: Option<&'static str>) -> FindLimits {
    FindLimits { filter: part.map(|part| Arc::new(Part(part)) as Arc<dyn NameFilter>), ..FindLimits::default() }
}

/// The names that are shown.
#[derive(Default)]
struct Model(BTreeMap<String, MetricId>);

impl Model {
    fn tagged(&self, expressions: &TagExpressions, part: Option<&str>) -> Vec<String> {
        let is_shown = |name: &&String| part.is_none_or(|part| name.contains(part));
        let holds = |name: &&String| expressions.take(name).unwrap();
        self.0.keys().filter(is_shown).filter(holds).cloned().collect()
    }

    /// How many of these names have each value of each tag.
    fn counts(names: &[String]) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for name in names {
            let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
            let mut parts = name.split(';');
            tags.insert("name", parts.next().unwrap().trim_start_matches('~'));
            for (tag, value) in parts.map(|part| part.split_once('=').unwrap()) {
                tags.entry(tag).or_insert(value);
            }
            for (tag, value) in tags.into_iter().filter(|(_, value)| !value.is_empty()) {
                *counts.entry(tag.to_owned()).or_default().entry(value.to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

struct Chance(SeededRandom);

impl Chance {
    fn new(test: &str) -> Chance {
        println!("{test}:");
        Chance(SeededRandom::new(SeededRandom::test_seed(SystemRandom.bits())))
    }

    fn below(&self, n: usize) -> usize {
        self.0.index(n)
    }

    fn name(&self) -> String {
        if self.below(20) == 0 {
            let odd =
                ["a.b", "a;b", "a;b=~c", "~;b=c", "~~x;dc=d1", "x;dc=d1;dc=d2", "x;name=y;dc=d1", ";a=b", "x;a!=b"];
            return self.0.choose(&odd).to_owned();
        }
        let mut name = self.0.choose(&["cpu", "mem.used", "é"]).to_owned();
        name.push_str(&format!(";dc=d{}", self.below(2)));
        if self.below(3) > 0 {
            name.push_str(&format!(";host=web-{}", self.below(30)));
        }
        if self.below(2) > 0 {
            name.push_str(&format!(";id={:04}", self.below(3000)));
        }
        if self.below(30) == 0 {
            name.push_str(&format!(";rare{}=1", self.below(5)));
        }
        name
    }

    fn expression(&self) -> String {
        let tag = self.0.choose(&["name", "dc", "host", "id", "rare1", "rare2", "none"]);
        let operator = self.0.choose(&["=", "!=", "=~", "!=~"]);
        let values = ["", "cpu", "d1", "d2", "web-3", "web-13", "0100", "1", "é", "x"];
        let patterns = [
            "",
            ".*",
            ".+",
            "d",
            "d1$",
            "^d1",
            "web-1",
            "web-1.*",
            "web-1?",
            "web-{1}2",
            "web-(1|2)$",
            "web|d",
            "^0|1",
            "0.0",
            "(c|)",
            "(c|)$",
            "01+",
            "mem\\.u",
            "mem.u",
            "[cé]",
            "2[0-9]*$",
            "(?i)WEB",
            "d\\d",
        ];
        let value = if operator.ends_with('~') { self.0.choose(&patterns) } else { self.0.choose(&values) };
        format!("{tag}{operator}{value}")
    }

    fn expressions(&self) -> Vec<String> {
        (0..self.below(4)).map(|_| self.expression()).collect()
    }

    fn part(&self) -> Option<&'static str> {
        [None, None, Some("dc=d1"), Some("web-1"), Some("nowhere")][self.below(5)]
    }
}

#[test]
fn answers_agree_with_a_walk_over_all_names() {
    let chance = Chance::new("answers_agree_with_a_walk_over_all_names");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names");
    let mut registry = Registry::new();
    let mut model = Model::default();
    for _ in 0..40 {
        for _ in 0..chance.below(200) {
            let name = chance.name();
            model.0.insert(name.clone(), create(&registry, &name));
        }
        if chance.below(3) == 0 {
            // Many go at times, so that sets become small again.
            let share = [2, 10, 100][chance.below(3)];
            let gone: Vec<String> = model.0.keys().filter(|_| chance.below(share) == 0).cloned().collect();
            let ids: Vec<MetricId> = gone.iter().map(|name| model.0.remove(name).unwrap()).collect();
            if chance.below(2) == 0 { registry.hide(&ids) } else { assert_eq!(registry.remove(&ids), ids.len()) }
        }
        match chance.below(6) {
            0 => while registry.compact() {},
            1 => {
                // Hidden metrics are shown again: those who save delete them first.
                let hidden: Vec<MetricId> = {
                    let names = registry.read();
                    let ids = (0..names.end().0).map(MetricId);
                    ids.filter(|&id| !names.name(id).is_empty() && !names.is_shown(id)).collect()
                };
                registry.remove(&hidden);
                registry.save(&host::SystemDisk, &path, None).unwrap();
                let disk: Arc<dyn host::Disk> = Arc::new(host::SystemDisk);
                registry = Registry::open(&*disk, &path).unwrap().expecting_tags(&disk, folder.path());
            }
            _ => {}
        }
        for _ in 0..10 {
            check(&chance, &registry, &model);
        }
    }
}

fn check(chance: &Chance, registry: &Registry, model: &Model) {
    let texts = chance.expressions();
    let part = chance.part();
    let limits = limits(part);
    let expressions = read(&texts).unwrap();
    let names = model.tagged(&expressions, part);
    let found = registry.tagged(&expressions, &limits).unwrap();
    let found: Vec<(&str, MetricId)> = found.leaves().map(|(id, name)| (name, id)).collect();
    let expected: Vec<(&str, MetricId)> = names.iter().map(|name| (name.as_str(), model.0[name])).collect();
    assert_eq!(found, expected, "{texts:?} for {part:?}");
    assert_eq!(registry.count_tagged(&expressions, &limits).unwrap(), names.len() as u64);

    let counts = Model::counts(&names);
    let limit = [None, Some(0), Some(1), Some(3), Some(100)][chance.below(5)];
    let pattern = || [None, None, Some("^d"), Some("^[0-9w]"), Some("1$")][chance.below(5)];
    let listing = |prefix: &str, pattern: Option<&str>| TagListing {
        expressions: (!texts.is_empty()).then(|| read(&texts).unwrap()),
        prefix: prefix.to_owned(),
        pattern: pattern.map(|pattern| compile(pattern).unwrap()),
        limit,
    };
    let takes = |text: &str, prefix: &str, pattern: Option<&str>| {
        text.starts_with(prefix) && pattern.is_none_or(|pattern| Regex::new(pattern).unwrap().is_match(text))
    };

    let (prefix, asked) = (["", "", "r", "d", "host"][chance.below(5)], pattern());
    let used: BTreeSet<&str> = texts.iter().map(|text| text.split(['=', '!']).next().unwrap()).collect();
    let expected = counts.keys().map(String::as_str);
    let expected = expected.filter(|tag| takes(tag, prefix, asked) && !used.contains(tag));
    let expected: Vec<&str> = expected.take(limit.unwrap_or(usize::MAX)).collect();
    let listed = registry.list_tags(&listing(prefix, asked), &limits).unwrap();
    let listed: Vec<&str> = listed.iter().map(|one| one.tag.as_str()).collect();
    assert_eq!(listed, expected, "tags with {prefix} {asked:?} of {texts:?} for {part:?}");

    let tag = chance.0.choose(&["name", "dc", "host", "id", "rare1", "none"]);
    let (prefix, asked) = (["", "", "0", "web-1", "d2", "c"][chance.below(6)], pattern());
    let expected = counts.get(tag).map(|values| {
        let values = values.iter().map(|(value, &count)| (value.as_str(), count));
        values.filter(|(value, _)| takes(value, prefix, asked)).take(limit.unwrap_or(usize::MAX)).collect::<Vec<_>>()
    });
    let listed = registry.list_values(tag, &listing(prefix, asked), &limits).unwrap();
    let values = listed.as_ref().map(|listed| listed.iter().map(|one| (one.value.as_str(), one.count)).collect());
    assert_eq!(values, expected, "values of {tag} with {prefix} {asked:?} of {texts:?} for {part:?}");
}

#[test]
fn large_answers_are_in_the_order_of_names_whatever_came_and_went_since_it_was_made() {
    let chance = Chance::new("large_answers_are_in_the_order_of_names_whatever_came_and_went_since_it_was_made");
    let registry = Registry::new();
    let mut model = Model::default();
    for round in 0..8 {
        // Some rounds are too small for another order, some are most of all metrics.
        for _ in 0..[3000, 40, 700, 6000][round % 4] {
            let i = chance.below(1_000_000);
            let name = format!("requests.{};app=a;cell=c{};host=web-{i:06};é={}", i % 3, i % 2, i % 7);
            let id = create(&registry, &name);
            model.0.insert(name, id);
        }
        if chance.below(3) > 0 {
            // Twice: the first call sees that many names came.
            for _ in 0..2 {
                while registry.compact() {}
            }
        }
        let share = [4, 20, 1000][chance.below(3)];
        let gone: Vec<String> = model.0.keys().filter(|_| chance.below(share) == 0).cloned().collect();
        let ids: Vec<MetricId> = gone.iter().map(|name| model.0.remove(name).unwrap()).collect();
        if round % 2 == 0 {
            registry.hide(&ids)
        } else {
            assert_eq!(registry.remove(&ids), ids.len())
        }
        for text in ["app=a", "cell=c1", "host=~web-00.*", "é!=3", "host=~.*77"] {
            let expressions = TagExpressions::read_any(&[text], compile).unwrap();
            for part in [None, Some("c1")] {
                let found = registry.tagged(&expressions, &limits(part)).unwrap();
                let found: Vec<&str> = found.leaves().map(|(_, name)| name).collect();
                assert!(found == model.tagged(&expressions, part), "{text} for {part:?} in round {round}");
            }
        }
        if round % 4 == 3 {
            for name in gone.iter().take(2000) {
                model.0.insert(name.clone(), create(&registry, name));
            }
        }
    }
}

#[test]
fn metrics_that_go_while_they_are_put_in_order_leave_the_others_in_order() {
    let registry = Registry::new();
    let name = |i: u32| format!("m{};spread={:08x};i={i}", i % 2, i.wrapping_mul(0x9E37_79B1));
    let mut living: BTreeSet<String> = BTreeSet::new();
    for round in 0..6 {
        let ids: Vec<(MetricId, String)> = (round * 4000..(round + 1) * 4000)
            .map(|i| (create(&registry, &name(i)), name(i)))
            .inspect(|(_, name)| _ = living.insert(name.clone()))
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    while registry.compact() {}
                }
            });
            for some in ids.chunks(40) {
                registry.remove(&some[..10].iter().map(|(id, _)| *id).collect::<Vec<_>>());
                some[..10].iter().for_each(|(_, name)| _ = living.remove(name));
            }
        });
        let all = TagExpressions::read(&["i!="], compile).unwrap();
        let found = registry.tagged(&all, &FindLimits::default()).unwrap();
        assert!(found.leaves().map(|(_, name)| name).eq(living.iter()), "round {round}");
    }
}

#[test]
fn a_question_in_the_midst_of_changes_sees_what_was_there_before_it() {
    let registry = Registry::new();
    let done = AtomicBool::new(false);
    let count = |text: &str| {
        let expressions = read(&[text.to_owned()]).unwrap();
        registry.count_tagged(&expressions, &FindLimits::default()).unwrap()
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (registry, done) = (&registry, &done);
            scope.spawn(move || {
                for i in 0..4000 {
                    let id = create(registry, &format!("m;thread={thread};i={i}"));
                    if i % 3 == 0 {
                        registry.remove(&[id]);
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                registry.compact();
            }
        });
        let mut before = 0;
        while !done.load(Ordering::Relaxed) {
            create(&registry, &format!("mine;n={before}"));
            before += 1;
            assert_eq!(count("name=mine"), before);
            let i = count("thread=0");
            assert!(i <= 4000);
        }
    });
    assert_eq!((count("thread=0"), count("thread=1"), count("i=7"), count("i=9")), (2666, 2666, 2, 0));
}

#[test]
fn tags_that_come_and_go_take_no_more_memory_each_time() {
    let registry = Registry::new();
    let mut memory = Vec::new();
    for round in 0..6 {
        let names = (0..20_000).map(|i| format!("m;dc=d{};round={round};unique={round}-{i}", i % 3));
        let ids: Vec<MetricId> = names.map(|name| create(&registry, &name)).collect();
        while registry.compact() {}
        memory.push(registry.memory_bytes());
        registry.remove(&ids);
        while registry.compact() {}
    }
    assert!(memory[5] < memory[1] * 5 / 4, "{memory:?}");
    assert!(registry.memory_bytes() < memory[0] / 2, "{} after {memory:?}", registry.memory_bytes());
    assert!(registry.list_tags(&TagListing::default(), &FindLimits::default()).unwrap().is_empty());
}

#[test]
fn a_question_has_bounds() {
    let registry = Registry::new();
    for i in 0..5000 {
        create(&registry, &format!("m{i};t={i};u=1"));
    }
    let expressions = |text: &str| read(&[text.to_owned()]).unwrap();
    let bound = |steps: u64, nodes: usize| FindLimits { steps, nodes, ..FindLimits::default() };
    let too_much = Err(FindError::TooManyTagged { limit: 1000 });
    assert_eq!(registry.count_tagged(&expressions("t=~.*7"), &bound(10_000, 10)), too_much);
    assert_eq!(registry.count_tagged(&expressions("t=~.*7"), &bound(100_000, 10)), Ok(1355));
    let all = TagListing::default();
    assert_eq!(registry.list_values("t", &all, &bound(100_000, 10)), Err(FindError::TooManyNodes { limit: 10 }));
    assert_eq!(registry.list_values("t", &all, &bound(1000, 5000)), Err(FindError::TooMuchWork));
    let cancelled = FindLimits { cancelled: Some(Arc::new(AtomicBool::new(true))), ..FindLimits::default() };
    assert_eq!(registry.list_values("t", &all, &cancelled), Err(FindError::Cancelled));
    assert_eq!(registry.tagged(&expressions("u=1"), &bound(100_000, 10)), Err(FindError::TooManyNodes { limit: 10 }));
}

#[test]
fn names_of_what_was_found_are_read_again_without_another_search() {
    let registry = Registry::new();
    for i in 0..5000 {
        create(&registry, &format!("m{};t={i}", i % 7));
    }
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = |_: &str| -> Result<Matcher, String> {
        let calls = calls.clone();
        Ok(Matcher::new(move |value| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(value.ends_with('7'))
        }))
    };
    let expressions = TagExpressions::read(&["t=~.*7"], counting).unwrap();
    let found = registry.find_tagged(&expressions, &limits(None)).unwrap();
    let compared = calls.load(Ordering::Relaxed);
    let expected = registry.expected_bytes(&found, &limits(None));
    let read = |bytes: usize| registry.read_tagged(&found, &FindLimits { bytes, ..limits(None) });
    assert_eq!(read(1000).err(), Some(FindError::TooManyBytes { limit: 1000 }));
    let names = read(expected).unwrap();
    assert!(expected < names.bytes() * 2, "{expected} for {}", names.bytes());
    assert_eq!(calls.load(Ordering::Relaxed), compared);
    assert_eq!(names, registry.tagged(&expressions, &limits(None)).unwrap());
    // What is removed since is left out, and what is hidden.
    let ids: Vec<MetricId> = names.leaves().map(|(id, _)| id).collect();
    registry.remove(&ids[..10]);
    registry.hide(&ids[10..20]);
    assert_eq!(read(expected).unwrap().leaves().map(|(id, _)| id).collect::<Vec<_>>(), ids[20..]);
    let few = FindLimits { steps: 100, ..limits(None) };
    assert_eq!(registry.read_tagged(&found, &few).err(), Some(FindError::TooManyTagged { limit: 10 }));
}

#[test]
fn a_cancelled_question_compares_no_more_values_with_a_pattern() {
    let registry = Registry::new();
    for i in 0..50 {
        create(&registry, &format!("m;t={i};u={i}"));
    }
    let cancelled = Arc::<AtomicBool>::default();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let cancelling = |_: &str| -> Result<Matcher, String> {
        let (cancelled, calls) = (cancelled.clone(), calls.clone());
        Ok(Matcher::new(move |value| {
            // The empty value is asked for when an expression is read.
            if !value.is_empty() {
                calls.fetch_add(1, Ordering::Relaxed);
                cancelled.store(true, Ordering::Relaxed);
            }
            Ok(!value.is_empty())
        }))
    };
    let limits = FindLimits { cancelled: Some(cancelled.clone()), ..FindLimits::default() };
    for texts in [&["t=~.*1"][..], &["name=m", "t=~.*1"], &["u=~.*2", "t!=~.*1"]] {
        cancelled.store(false, Ordering::Relaxed);
        calls.store(0, Ordering::Relaxed);
        let expressions = TagExpressions::read_any(texts, cancelling).unwrap();
        assert_eq!(registry.tagged(&expressions, &limits), Err(FindError::Cancelled), "{texts:?}");
        assert_eq!(calls.load(Ordering::Relaxed), 1, "{texts:?}");
    }
}

/// An expression whose pattern matches where a value has an `x`, and calls `hook` with how many values it was compared with.
fn hooked(tag: &str, operator: &str, hook: impl Fn(usize) + Send + Sync + 'static) -> TagExpressions {
    let (hook, calls) = (Arc::new(hook), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let compile = |_: &str| {
        let (hook, calls) = (hook.clone(), calls.clone());
        Ok(Matcher::new(move |value| {
            if !value.is_empty() {
                hook(calls.fetch_add(1, Ordering::SeqCst));
            }
            Ok(value.contains('x'))
        }))
    };
    TagExpressions::read_any(&[format!("{tag}{operator}.*x")], compile).unwrap()
}

#[test]
fn a_question_that_takes_long_does_not_make_others_wait_when_a_metric_comes() {
    let registry = Registry::new();
    for i in 0..2000 {
        create(&registry, &format!("m;t={i};other=1"));
    }
    registry.compact();
    for operator in ["=~", "!=~"] {
        let (is_begun, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let begun = is_begun.clone();
        let expressions = hooked("t", operator, move |_| {
            begun.store(true, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                registry.count_tagged(&expressions, &limits(None)).unwrap();
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            for i in 0..3 {
                create(&registry, &format!("m;new={i}{operator}"));
                let listed = registry.list_values("other", &TagListing::default(), &limits(None)).unwrap().unwrap();
                assert_eq!(listed[0].count, 2000);
            }
            assert!(!is_over.load(Ordering::SeqCst), "others were answered before the long question: {operator}");
        });
    }
}

#[test]
fn a_question_finds_what_is_there_all_the_while_although_the_index_changes() {
    // The second tag has few of the values, so that its values are met in the order of texts.
    for tag in ["t", "u"] {
        for operator in ["=~", "!=~"] {
            let registry = Arc::new(Registry::new());
            let name = |i: usize, x: &str| format!("m;t={:05}{x};u={:04}{x}", i * 7919 % 3000, i * 7919 % 1000);
            let stay: Vec<usize> = (0..3000).filter(|i| i % 3 != 0).collect();
            for i in 0..3000 {
                create(&registry, &name(i, if i % 2 == 0 { "x" } else { "" }));
            }
            registry.compact();
            let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
            let (others, changed) = (registry.clone(), threads.clone());
            let expressions = hooked(tag, operator, move |call| {
                if call % 200 != 100 {
                    return;
                }
                assert!(call < 30_000, "{call} comparisons, and values come still");
                // What changes reaches the index by a question, which waits for this one to let it pass.
                let (others, is_begun) = (others.clone(), Arc::new(AtomicBool::new(false)));
                let begun = is_begun.clone();
                changed.lock().unwrap().push(std::thread::spawn(move || {
                    begun.store(true, Ordering::SeqCst);
                    let gone = (call * 15..call * 15 + 900).filter(|i| i % 3 == 0).map(|i| MetricId(i as u32));
                    others.remove(&gone.collect::<Vec<_>>());
                    for i in 0..300 {
                        create(
                            &others,
                            &format!("new;t={:05}b{call}{};u=n", i * 10, if i % 2 == 0 { "x" } else { "" }),
                        );
                    }
                    others.list_tags(&TagListing::default(), &limits(None)).unwrap();
                }));
                // Most of them wait by the time that this one goes on, so that more values come than are compared.
                while !is_begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            });
            let found = registry.tagged(&expressions, &limits(None)).unwrap();
            threads.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap());
            let found: BTreeSet<&str> = found.leaves().map(|(_, name)| name).collect();
            for &i in &stay {
                let is_x = i % 2 == 0;
                let name = name(i, if is_x { "x" } else { "" });
                assert_eq!(found.contains(&*name), is_x == (operator == "=~"), "{name} {operator}");
            }
            let value =
                |name: &str| name.split_once(&format!(";{tag}=")).unwrap().1.split(';').next().unwrap().to_owned();
            let unfit: Vec<&&str> =
                found.iter().filter(|name| value(name).contains('x') != (operator == "=~")).collect();
            assert!(unfit.is_empty(), "{unfit:?}");
        }
    }
}
