//! Quotas of branches: metrics, directories, and points a minute, below each branch that a pattern matches.
//!
//! A branch of `sys.app.*` is `sys.app.web`, with all metrics below it; of tagged names the part before the tags counts. Of
//! several patterns of one depth that match a branch the last one applies; those of other depths hold besides it.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use carbon::{Dropping, QuotaRule, RejectReason};
use metadata::Registry;
use metric::{Timestamp, canonical_name};
use parking_lot::Mutex;

use super::batch::Batch;
use crate::protocol::Protocol;

/// The use of one branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BranchUse {
    /// The branch, empty for all names.
    pub branch: String,
    /// The pattern of its quota.
    pub pattern: String,
    /// Its metrics.
    pub metrics: u64,
    /// How many it may have.
    pub metrics_limit: Option<u64>,
    /// Its directories, where there is a limit.
    pub namespaces: u64,
    /// How many it may have.
    pub namespaces_limit: Option<u64>,
    /// Its points in the current minute.
    pub points: u64,
    /// How many it may have in a minute.
    pub points_limit: Option<u64>,
    /// New metrics beyond the quota of metrics or of directories.
    pub metrics_beyond: u64,
    /// Points beyond the quota.
    pub points_beyond: u64,
    /// Whether what is beyond the quota is counted and not rejected.
    pub only_reports: bool,
    /// Whether all points of the branch are rejected now.
    pub is_shut: bool,
}

/// All quotas, and what is used of them.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// Whether any quota may reject points of known metrics.
    has_points: AtomicBool,
    // Locked after the admission and before the names; at most the names' lock is taken while it is held.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Arc<Rules>,
    minute: Timestamp,
    // Branches with metrics: as many as there are metrics, at most.
    branches: HashMap<String, Branch>,
    /// Hashes of the directories below branches with a quota of these.
    directories: HashSet<u64>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Rules {
    rules: Vec<QuotaRule>,
    /// Of the patterns, ascending.
    depths: Vec<usize>,
    /// The lowest depth of a pattern with a quota of directories.
    namespaces_from: Option<usize>,
}

#[derive(Debug, Default)]
struct Branch {
    rule: usize,
    metrics: u64,
    namespaces: u64,
    points: u64,
    metrics_beyond: u64,
    points_beyond: u64,
    /// The minute in which it asked for more metrics than it may have.
    shut_in: Option<Timestamp>,
}

impl Quotas {
    pub(super) fn new(rules: Vec<QuotaRule>, registry: &Registry) -> Quotas {
        let quotas = Quotas { has_points: AtomicBool::new(false), state: Mutex::default() };
        quotas.replace(rules, registry);
        quotas
    }

    /// Puts other rules into force. Branches that have a quota under both keep what they counted. The caller holds the
    /// lock of the admission.
    pub(super) fn replace(&self, rules: Vec<QuotaRule>, registry: &Registry) {
        let rules = Arc::new(Rules::new(rules));
        let shuts = |rule: &QuotaRule| rule.points_per_minute.is_some() || rule.dropping == Dropping::All;
        let has_points = rules.rules.iter().any(shuts);
        self.count_by(rules, registry);
        self.has_points.store(has_points, Relaxed);
    }

    /// Counts the metrics of each branch, which takes as long as reading all names. The caller holds the lock of the admission.
    pub(super) fn count(&self, registry: &Registry) {
        let rules = self.state.lock().rules.clone();
        self.count_by(rules, registry);
    }

    /// Whether there are any.
    pub(super) fn has_rules(&self) -> bool {
        !self.state.lock().rules.rules.is_empty()
    }

    /// Counts apart from what is in use: points of known metrics do not wait for it.
    fn count_by(&self, rules: Arc<Rules>, registry: &Registry) {
        let mut counted = State { rules, ..State::default() };
        counted.count(registry);
        let mut state = self.state.lock();
        for (name, branch) in std::mem::take(&mut state.branches) {
            if let Some(now) = counted.branches.get_mut(&name) {
                let Branch { rule, metrics, namespaces, .. } = *now;
                *now = Branch { rule, metrics, namespaces, ..branch };
            }
        }
        counted.minute = state.minute;
        let before = std::mem::replace(&mut *state, counted);
        drop(state);
        drop(before);
    }

    /// Counts one more metric, unless a quota forbids it. The error is the limit that was met.
    pub(super) fn admit(&self, name: &str, now: Timestamp) -> Result<(), String> {
        let mut state = self.state.lock();
        let State { rules, branches, directories, hasher, .. } = &mut *state;
        if rules.rules.is_empty() {
            return Ok(());
        }
        for (branch, rule) in rules.branches_of(name) {
            let QuotaRule { metrics, namespaces, dropping, .. } = &rules.rules[rule];
            let known = branches.get_mut(branch);
            let (has, dirs) = known.as_ref().map_or((0, 0), |known| (known.metrics, known.namespaces));
            let more = || {
                let from = rules.rules[rule].pattern.depth();
                directories_below(name, from).filter(|path| !directories.contains(&hasher.hash_one(path))).count()
            };
            let met = match (metrics, namespaces) {
                (Some(limit), _) if *limit <= has => format!("metrics = {limit}"),
                (_, Some(limit)) if *limit < dirs + more() as u64 => format!("namespaces = {limit}"),
                _ => continue,
            };
            if let Some(known) = known {
                known.metrics_beyond += 1;
                known.shut_in = Some(now.div_euclid(60));
            }
            if *dropping != Dropping::Nothing {
                return Err(format!("limits.quotas: {met} of {}", named(branch)));
            }
        }
        state.add(name);
        Ok(())
    }

    /// Whether any quota may reject points.
    pub(super) fn count_points(&self) -> bool {
        self.has_points.load(Relaxed)
    }

    /// Rejects the points of a batch that are beyond their branch's number for this minute, or whose branch is shut.
    pub(super) fn pass(&self, batch: &mut Batch, now: Timestamp) {
        if batch.protocol == Protocol::Own {
            return;
        }
        let (minute, mut state) = (now.div_euclid(60), self.state.lock());
        if state.minute != minute {
            state.minute = minute;
            state.branches.values_mut().for_each(|branch| branch.points = 0);
        }
        let mut passed = Vec::with_capacity(batch.sent.len());
        for sent in std::mem::take(&mut batch.sent) {
            match canonical_name(batch.name(&sent)).is_ok_and(|name| state.is_beyond(&name)) {
                false => passed.push(sent),
                true => {
                    let name = batch.name(&sent).to_vec();
                    batch.reject_sample(RejectReason::OverQuota, &name);
                }
            }
        }
        batch.sent = passed;
    }

    /// The use of all branches, in the order of their names.
    pub(crate) fn used(&self) -> Vec<BranchUse> {
        let state = self.state.lock();
        let mut all: Vec<BranchUse> = state.branches.iter().map(|(name, branch)| state.used_of(name, branch)).collect();
        all.sort_by(|a, b| a.branch.cmp(&b.branch));
        all
    }
}

impl State {
    fn count(&mut self, registry: &Registry) {
        if self.rules.rules.is_empty() {
            return;
        }
        registry.all(|_, name| {
            self.add(name);
            true
        });
        self.branches.retain(|_, branch| 0 < branch.metrics);
    }

    fn used_of(&self, name: &str, branch: &Branch) -> BranchUse {
        let rule = &self.rules.rules[branch.rule];
        BranchUse {
            branch: name.to_owned(),
            pattern: rule.pattern.to_string(),
            metrics: branch.metrics,
            metrics_limit: rule.metrics,
            namespaces: branch.namespaces,
            namespaces_limit: rule.namespaces,
            points: branch.points,
            points_limit: rule.points_per_minute,
            metrics_beyond: branch.metrics_beyond,
            points_beyond: branch.points_beyond,
            only_reports: rule.dropping == Dropping::Nothing,
            is_shut: branch.is_shut(rule, self.minute),
        }
    }

    fn is_beyond(&mut self, name: &str) -> bool {
        let State { rules, minute, branches, .. } = self;
        for (branch, rule) in rules.branches_of(name) {
            let rule = &rules.rules[rule];
            // A branch without a metric gets its first points without a count.
            let Some(known) = branches.get_mut(branch) else { continue };
            let is_shut = known.is_shut(rule, *minute);
            if is_shut || rule.points_per_minute.is_some_and(|limit| limit <= known.points) {
                known.points_beyond += 1;
                if is_shut || rule.dropping != Dropping::Nothing {
                    return true;
                }
            }
        }
        // Only now: what one branch rejects does not use up the quota of another.
        for (branch, rule) in rules.branches_of(name) {
            if let Some(limit) = rules.rules[rule].points_per_minute
                && let Some(known) = branches.get_mut(branch)
                && known.points < limit
            {
                known.points += 1;
            }
        }
        false
    }

    fn add(&mut self, name: &str) {
        let State { rules, branches, directories, hasher, .. } = self;
        let new: Vec<(u64, usize)> = match rules.namespaces_from {
            None => Vec::new(),
            Some(from) => directories_below(name, from)
                .map(|path| (hasher.hash_one(path), path.matches('.').count() + 1))
                .filter(|(hash, _)| directories.insert(*hash))
                .collect(),
        };
        for (branch, rule) in rules.branches_of(name) {
            let depth = rules.rules[rule].pattern.depth();
            let namespaces = new.iter().filter(|(_, components)| depth < *components).count() as u64;
            match branches.get_mut(branch) {
                Some(known) => {
                    known.metrics += 1;
                    known.namespaces += namespaces;
                }
                None => {
                    branches.insert(branch.to_owned(), Branch { rule, metrics: 1, namespaces, ..Branch::default() });
                }
            }
        }
    }
}

impl Branch {
    fn is_shut(&self, rule: &QuotaRule, minute: Timestamp) -> bool {
        let is_over = |limit: Option<u64>, has: u64| limit.is_some_and(|limit| limit < has);
        rule.dropping == Dropping::All
            && (self.shut_in == Some(minute)
                || is_over(rule.metrics, self.metrics)
                || is_over(rule.namespaces, self.namespaces))
    }
}

impl Rules {
    fn new(rules: Vec<QuotaRule>) -> Rules {
        let mut depths: Vec<usize> = rules.iter().map(|rule| rule.pattern.depth()).collect();
        depths.sort_unstable();
        depths.dedup();
        let with_namespaces = rules.iter().filter(|rule| rule.namespaces.is_some());
        let namespaces_from = with_namespaces.map(|rule| rule.pattern.depth()).min();
        Rules { rules, depths, namespaces_from }
    }

    /// The branches of a name that have quotas, and the rule of each.
    fn branches_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
        let path = path_of(name);
        self.depths.iter().filter_map(move |&depth| {
            let branch = first_components(path, depth)?;
            let matches = |rule: &QuotaRule| rule.pattern.depth() == depth && rule.pattern.matches(branch);
            Some((branch, self.rules.iter().rposition(matches)?))
        })
    }
}

/// A name without its tags.
fn path_of(name: &str) -> &str {
    name.split(';').next().unwrap_or(name)
}

/// The directories of a name that have more than so many components.
fn directories_below(name: &str, depth: usize) -> impl Iterator<Item = &str> {
    let path = path_of(name);
    path.match_indices('.').skip(depth).map(|(end, _)| &path[..end])
}

/// The first components of a path that has more.
fn first_components(path: &str, count: usize) -> Option<&str> {
    if count == 0 {
        return Some("");
    }
    path.match_indices('.').nth(count - 1).map(|(end, _)| &path[..end])
}

fn named(branch: &str) -> String {
    if branch.is_empty() { "all names".to_owned() } else { format!("{branch}.*") }
}

#[cfg(test)]
mod tests {
    use carbon::{Sink, read_quotas};

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
}
