//! Tests of quotas: limits, and counts that are exact while names come and go and rules change.

use std::collections::{BTreeMap, BTreeSet};

use carbon::{Sink, read_quotas};
use host::Random;

use super::*;

fn quotas(text: &str) -> Quotas {
    Quotas::new(read_quotas(text).unwrap().0, &Registry::new())
}

/// The names that are admitted.
fn admitted<'a>(quotas: &Quotas, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| quotas.admit(name, 0).is_ok()).collect()
}

#[test]
fn each_branch_of_a_pattern_has_its_own_quota_and_the_last_pattern_applies() {
    let quotas = quotas("[*]\nmetrics = 2\n[big]\nmetrics = 3\n[sys.app.w*]\nmetrics = 1\n");
    let names = ["a.1", "a.2", "a.3", "b.1", "top", "big.1", "big.2", "big.3", "big.4", "a.b.c;x=1.2", "c;x=1.2"];
    assert_eq!(admitted(&quotas, &names), ["a.1", "a.2", "b.1", "top", "big.1", "big.2", "big.3", "c;x=1.2"]);
    let names = ["sys.app.web.1", "sys.app.web.2", "sys.app.db.1", "sys.app.db.2"];
    assert_eq!(admitted(&quotas, &names), ["sys.app.web.1", "sys.app.db.1"], "a quota of sys holds, too");
    let used = quotas.used();
    let of = |branch: &str| used.iter().find(|used| used.branch == branch).unwrap().clone();
    assert_eq!((of("a").metrics, of("a").metrics_beyond, of("big").metrics_limit), (2, 2, Some(3)));
    assert_eq!((of("sys.app.web").pattern.as_str(), of("sys.app.web").metrics_beyond), ("sys.app.w*", 1));
}

#[test]
fn a_quota_of_all_names_and_one_that_only_reports() {
    let all = quotas("[/]\nmetrics = 2\n");
    assert_eq!(admitted(&all, &["a", "b.c", "d"]), ["a", "b.c"]);
    assert_eq!(all.admit("d", 0).unwrap_err(), "limits.quotas: metrics = 2 of all names");
    let reports = quotas("[*]\nmetrics = 1\ndropping-policy = none\n");
    assert_eq!(admitted(&reports, &["a.1", "a.2", "a.3"]).len(), 3);
    assert_eq!((reports.used()[0].metrics, reports.used()[0].metrics_beyond), (3, 2));
}

#[test]
fn points_beyond_the_number_of_a_minute_are_rejected() {
    let quotas = quotas("[*]\nthroughput = 3\n");
    quotas.admit("a.1", 0).unwrap();
    let registry = Arc::new(Registry::new());
    let through = |now: Timestamp| {
        let mut batch = Batch::new(Protocol::LineTcp, 1, registry.clone());
        ["a.1", "b.1", "a.1", "..a.1"].iter().for_each(|name| batch.point(name.as_bytes(), 60, 1.0));
        quotas.pass(&mut batch, now);
        assert!(batch.examples.iter().all(|example| example.reason == RejectReason::OverQuota));
        batch.len()
    };
    assert_eq!([0, 59, 60].map(through), [4, 1, 4]);
    assert_eq!(quotas.used()[0].points_beyond, 3);
}

#[test]
fn points_that_one_branch_rejects_do_not_use_up_the_quota_above_it() {
    let quotas = quotas("[*]\nthroughput = 3\n[/]\nthroughput = 5\n");
    ["blue.1", "red.1"].iter().for_each(|name| quotas.admit(name, 0).unwrap());
    let registry = Arc::new(Registry::new());
    let mut batch = Batch::new(Protocol::LineTcp, 1, registry);
    (0..20).for_each(|_| batch.point(b"blue.1", 60, 1.0));
    batch.point(b"red.1", 60, 1.0);
    quotas.pass(&mut batch, 0);
    assert_eq!(batch.len(), 4);
}

#[test]
fn directories_below_a_branch_have_a_number() {
    let quotas = quotas("[*]\nnamespaces = 2\n[/]\nnamespaces = 4\n");
    let names = ["a.1", "a.b.1", "a.b.2", "a.c.d.1", "a.c.1", "a.e.1", "a.b.c;x=1.2.3", "f.g.1", "top"];
    assert_eq!(admitted(&quotas, &names), ["a.1", "a.b.1", "a.b.2", "a.c.1", "a.b.c;x=1.2.3", "top"]);
    assert_eq!(quotas.admit("a.e.1", 0).unwrap_err(), "limits.quotas: namespaces = 2 of a.*");
    assert_eq!(quotas.admit("f.g.1", 0).unwrap_err(), "limits.quotas: namespaces = 4 of all names");
    let used = quotas.used();
    assert_eq!((used[0].namespaces, used[0].namespaces_limit), (3, Some(4)));
    assert_eq!((used[1].namespaces, used[1].metrics, used[1].metrics_beyond), (2, 5, 3));
}

#[test]
fn a_branch_that_asks_for_more_is_shut_for_the_rest_of_the_minute() {
    let quotas = quotas("[*]\nmetrics = 2\ndropping-policy = all\n");
    let registry = Arc::new(Registry::new());
    let through = |now: Timestamp| {
        let mut batch = Batch::new(Protocol::LineTcp, 1, registry.clone());
        ["a.1", "b.1"].iter().for_each(|name| batch.point(name.as_bytes(), 60, 1.0));
        quotas.pass(&mut batch, now);
        batch.len()
    };
    assert!(quotas.count_points());
    for name in ["a.1", "a.2", "b.1"] {
        quotas.admit(name, 0).unwrap();
    }
    assert_eq!(through(1), 2);
    quotas.admit("a.3", 2).unwrap_err();
    assert_eq!([through(3), through(59), through(60)], [1, 1, 2]);
    assert_eq!(quotas.used()[0].points_beyond, 2);
}

#[test]
fn other_rules_come_into_force_and_keep_what_was_counted() {
    let registry = Registry::new();
    for name in ["a.1", "a.2", "a.3", "b.c.1"] {
        let policy = registry.intern(&metric::Policy::default());
        registry.write().create(registry.hash(name.as_bytes()), name, policy, 0);
    }
    let rules = |text: &str| read_quotas(text).unwrap().0;
    let quotas = Quotas::new(rules("[*]\nmetrics = 3\n"), &registry);
    quotas.admit("a.4", 0).unwrap_err();
    assert!(!quotas.count_points());
    quotas.replace(rules("[{a,c}]\nmetrics = 2\ndropping-policy = all\n[b.*]\nmetrics = 9\n"), &registry);
    assert!(quotas.count_points());
    let used = quotas.used();
    let of = |branch: &BranchUse| (branch.branch.clone(), branch.metrics, branch.metrics_beyond, branch.is_shut);
    assert_eq!(
        used.iter().map(of).collect::<Vec<_>>(),
        [("a".to_owned(), 3, 1, true), ("b.c".to_owned(), 1, 0, false)]
    );
    quotas.replace(Vec::new(), &registry);
    quotas.admit("a.5", 0).unwrap();
    assert_eq!((quotas.used(), quotas.count_points()), (vec![], false));
}

/// Metrics and directories of each branch, counted one by one.
fn naive<'a>(rules: &Rules, names: impl Iterator<Item = &'a String>) -> Vec<(String, u64, u64)> {
    let (mut metrics, mut below): (BTreeMap<String, u64>, BTreeMap<String, BTreeSet<String>>) = Default::default();
    let counts_directories = rules.rules.iter().any(|rule| rule.namespaces.is_some());
    for name in names {
        for (branch, rule) in rules.branches_of(name) {
            *metrics.entry(branch.to_owned()).or_default() += 1;
            let path = name.split(';').next().unwrap();
            let depth = rules.rules[rule].pattern.depth();
            let parts: Vec<&str> = path.split('.').collect();
            let directories = (depth + 1..parts.len()).map(|length| parts[..length].join("."));
            below.entry(branch.to_owned()).or_default().extend(directories.filter(|_| counts_directories));
        }
    }
    metrics
        .into_iter()
        .map(|(branch, count)| (below[&branch].len() as u64, branch, count))
        .map(|(d, b, c)| (b, c, d))
        .collect()
}

#[test]
fn every_metric_counts_once_while_others_come_and_go_and_rules_change() {
    const FILES: [&str; 5] = [
        "[*]\nmetrics = 30\n[/]\nmetrics = 60\n",
        "[*.*]\nnamespaces = 3\n[a]\nmetrics = 9\n[/]\nnamespaces = 30\n",
        "",
        "[{a,b}.*]\nmetrics = 4\ndropping-policy = none\n[*]\nnamespaces = 6\n",
        "[/]\nmetrics = 50\nthroughput = 9\n",
    ];
    for seed in 0..300_u64 {
        let random = host::SeededRandom::new(seed);
        let below = |end: u64| random.below(end);
        let registry = Registry::new();
        let policy = registry.intern(&metric::Policy::default());
        let quotas = Quotas::new(read_quotas(FILES[0]).unwrap().0, &registry);
        let (mut living, mut next): (BTreeMap<String, MetricId>, Option<&str>) = Default::default();
        let mut current = FILES[0];
        for step in 0..250 {
            let part = |end: u64| ["a", "b", "c", "d"][below(end) as usize];
            let tags = if part(4) == "a" { ";x=1.2" } else { "" };
            let name = match part(3) {
                "a" => format!("{}.{}{tags}", part(4), part(4)),
                "b" => format!("{}.{}.{}{tags}", part(4), part(3), part(4)),
                _ => format!("{}.{}.{}.{}{tags}", part(2), part(3), part(2), part(4)),
            };
            match below(10) {
                0..5 if !living.contains_key(&name) => {
                    let mut names = registry.write();
                    if quotas.admit(&name, 0).is_ok() {
                        let id = names.create(registry.hash(name.as_bytes()), &name, policy, 0);
                        quotas.created(id, &name);
                        living.insert(name, id);
                    }
                }
                5..7 if !living.is_empty() => {
                    let place = below(living.len() as u64) as usize;
                    let (name, id) = living.iter().nth(place).map(|(name, id)| (name.clone(), *id)).unwrap();
                    registry.remove_each(&[id], |id, name| quotas.removed(id, name));
                    living.remove(&name);
                }
                7 if next.is_none() => {
                    let text = FILES[below(FILES.len() as u64) as usize];
                    quotas.begin(read_quotas(text).unwrap().0);
                    next = Some(text);
                }
                _ => {
                    if quotas.count_slice(&registry, 1 + below(12) as u32)
                        && let Some(text) = next.take()
                    {
                        current = text;
                    }
                }
            }
            let rules = Rules::new(read_quotas(current).unwrap().0);
            let used = quotas.used().into_iter().map(|used| (used.branch, used.metrics, used.namespaces));
            assert_eq!(used.collect::<Vec<_>>(), naive(&rules, living.keys()), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn points_count_for_more_branches_than_are_kept() {
    let text: String = (0..12).map(|depth| format!("[{}]\nthroughput = {}\n", vec!["*"; depth].join("."), 3)).collect();
    let quotas = quotas(&text.replacen("[]", "[/]", 1));
    let name = (0..13).map(|_| "a").collect::<Vec<_>>().join(".");
    quotas.admit(&name, 0).unwrap();
    let mut batch = Batch::new(Protocol::LineTcp, 1, Arc::new(Registry::new()));
    (0..5).for_each(|_| batch.point(name.as_bytes(), 60, 1.0));
    quotas.pass(&mut batch, 0);
    assert_eq!((batch.len(), quotas.used().iter().map(|used| used.points).collect::<Vec<_>>()), (3, vec![3; 12]));
}
