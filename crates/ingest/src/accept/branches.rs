//! The branches of names that have quotas: how many metrics, directories and points each has.
//!
//! A branch of `sys.app.*` is `sys.app.web`, with all metrics below it; of tagged names the part before the tags counts. Of
//! several patterns of one depth that match a branch the last one applies; those of other depths hold besides it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use carbon::{Dropping, QuotaRule};
use metric::Timestamp;

/// Branches with metrics, by the rules of a file: as many as there are metrics, at most.
#[derive(Debug, Default)]
pub(super) struct Branches {
    pub(super) rules: Arc<Rules>,
    pub(super) all: HashMap<String, Branch>,
    /// Metrics in and below each directory that counts for a quota, by the hash of its path.
    directories: HashMap<u64, u32>,
    hasher: RandomState,
}

/// The quotas of a file.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) rules: Vec<QuotaRule>,
    /// Of the patterns, ascending.
    depths: Vec<usize>,
    /// The lowest depth of a pattern with a quota of directories.
    namespaces_from: Option<usize>,
}

/// The metrics of a branch.
#[derive(Debug, Default)]
pub(super) struct Branch {
    pub(super) rule: usize,
    pub(super) metrics: u64,
    pub(super) namespaces: u64,
    /// Shared with the branch of the same name under other rules.
    pub(super) meter: Arc<Meter>,
}

/// What came for a branch. Changed under the lock of the branches in force alone.
#[derive(Debug)]
pub(super) struct Meter {
    /// The minute of `points`.
    minute: AtomicI64,
    points: AtomicU64,
    pub(super) metrics_beyond: AtomicU64,
    pub(super) points_beyond: AtomicU64,
    /// The minute in which it asked for more metrics than it may have.
    pub(super) shut_in: AtomicI64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            minute: AtomicI64::new(i64::MIN),
            points: AtomicU64::new(0),
            metrics_beyond: AtomicU64::new(0),
            points_beyond: AtomicU64::new(0),
            shut_in: AtomicI64::new(i64::MIN),
        }
    }
}

impl Meter {
    /// The points of a minute.
    pub(super) fn points_in(&self, minute: Timestamp) -> u64 {
        if self.minute.load(Relaxed) == minute { self.points.load(Relaxed) } else { 0 }
    }

    /// One more point in a minute.
    pub(super) fn add_point(&self, minute: Timestamp) {
        let points = self.points_in(minute) + 1;
        self.minute.store(minute, Relaxed);
        self.points.store(points, Relaxed);
    }
}

impl Branches {
    pub(super) fn of(rules: Arc<Rules>) -> Branches {
        Branches { rules, ..Branches::default() }
    }

    /// Directories that this name would add, among those below patterns of this depth.
    pub(super) fn new_directories(&self, name: &str, depth: usize) -> u64 {
        let is_new = |path: &&str| !self.directories.contains_key(&self.hasher.hash_one(path));
        directories_below(name, depth).filter(is_new).count() as u64
    }

    /// Counts a metric. A branch that is new takes the meter that it has elsewhere.
    pub(super) fn add(&mut self, name: &str, meter_of: impl Fn(&str) -> Arc<Meter>) {
        let Branches { rules, all, directories, hasher } = self;
        let mut new = Vec::new();
        for path in rules.directories_of(name) {
            let metrics = directories.entry(hasher.hash_one(path)).or_default();
            if *metrics == 0 {
                new.push(components(path));
            }
            *metrics += 1;
        }
        for (branch, rule) in rules.branches_of(name) {
            let depth = rules.rules[rule].pattern.depth();
            let namespaces = new.iter().filter(|components| depth < **components).count() as u64;
            if !all.contains_key(branch) {
                all.insert(branch.to_owned(), Branch { rule, meter: meter_of(branch), ..Branch::default() });
            }
            let known = all.get_mut(branch).expect("it was added");
            known.metrics += 1;
            known.namespaces += namespaces;
        }
    }

    /// Subtracts a metric that was counted and is gone. Forgets branches without metrics.
    pub(super) fn subtract(&mut self, name: &str) {
        let Branches { rules, all, directories, hasher } = self;
        let mut gone = Vec::new();
        for path in rules.directories_of(name) {
            let hash = hasher.hash_one(path);
            if let Some(metrics) = directories.get_mut(&hash) {
                *metrics -= 1;
                if *metrics == 0 {
                    directories.remove(&hash);
                    gone.push(components(path));
                }
            }
        }
        for (branch, rule) in rules.branches_of(name) {
            let Some(known) = all.get_mut(branch) else { continue };
            let depth = rules.rules[rule].pattern.depth();
            known.metrics -= 1;
            known.namespaces -= gone.iter().filter(|components| depth < **components).count() as u64;
            if known.metrics == 0 {
                all.remove(branch);
            }
        }
    }
}

impl Branch {
    pub(super) fn is_shut(&self, rule: &QuotaRule, minute: Timestamp) -> bool {
        let is_over = |limit: Option<u64>, has: u64| limit.is_some_and(|limit| limit < has);
        rule.dropping == Dropping::All
            && (self.meter.shut_in.load(Relaxed) == minute
                || is_over(rule.metrics, self.metrics)
                || is_over(rule.namespaces, self.namespaces))
    }
}

impl Rules {
    pub(super) fn new(rules: Vec<QuotaRule>) -> Rules {
        let mut depths: Vec<usize> = rules.iter().map(|rule| rule.pattern.depth()).collect();
        depths.sort_unstable();
        depths.dedup();
        let with_namespaces = rules.iter().filter(|rule| rule.namespaces.is_some());
        let namespaces_from = with_namespaces.map(|rule| rule.pattern.depth()).min();
        Rules { rules, depths, namespaces_from }
    }

    /// Whether any may reject points of known metrics.
    pub(super) fn count_points(&self) -> bool {
        self.rules.iter().any(|rule| rule.points_per_minute.is_some() || rule.dropping == Dropping::All)
    }

    /// The branches of a name that have quotas, and the rule of each.
    pub(super) fn branches_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
        let path = path_of(name);
        self.depths.iter().filter_map(move |&depth| {
            let branch = first_components(path, depth)?;
            let matches = |rule: &QuotaRule| rule.pattern.depth() == depth && rule.pattern.matches(branch);
            Some((branch, self.rules.iter().rposition(matches)?))
        })
    }

    /// The directories of a name that count for a quota.
    fn directories_of<'a>(&self, name: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.namespaces_from.into_iter().flat_map(|from| directories_below(name, from))
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

fn components(path: &str) -> usize {
    path.matches('.').count() + 1
}
