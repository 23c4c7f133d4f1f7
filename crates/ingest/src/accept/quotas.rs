//! Quotas of branches: metrics, and points a minute, below each branch that a pattern matches.
//!
//! A branch of `sys.app.*` is `sys.app.web`, with all metrics below it; of tagged names the part before the tags counts. Of
//! several patterns of one depth that match a branch the last one applies; those of other depths hold besides it.

use std::collections::HashMap;

use carbon::{QuotaRule, RejectReason};
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
    /// Its points in the current minute.
    pub points: u64,
    /// How many it may have in a minute.
    pub points_limit: Option<u64>,
    /// New metrics beyond the quota.
    pub metrics_beyond: u64,
    /// Points beyond the quota.
    pub points_beyond: u64,
    /// Whether what is beyond the quota is counted and not rejected.
    pub only_reports: bool,
}

/// All quotas, and what is used of them.
#[derive(Debug)]
pub(crate) struct Quotas {
    rules: Vec<QuotaRule>,
    /// Of the patterns, ascending.
    depths: Vec<usize>,
    has_points: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    minute: Timestamp,
    // Branches with metrics: as many as there are metrics, at most.
    branches: HashMap<String, Branch>,
}

#[derive(Debug, Default)]
struct Branch {
    rule: usize,
    metrics: u64,
    points: u64,
    metrics_beyond: u64,
    points_beyond: u64,
}

impl Quotas {
    pub(super) fn new(rules: Vec<QuotaRule>, registry: &Registry) -> Quotas {
        let mut depths: Vec<usize> = rules.iter().map(|rule| rule.pattern.len()).collect();
        depths.sort_unstable();
        depths.dedup();
        let has_points = rules.iter().any(|rule| rule.points_per_minute.is_some());
        let quotas = Quotas { rules, depths, has_points, state: Mutex::default() };
        quotas.count(registry);
        quotas
    }

    /// Counts the metrics of each branch, which takes as long as reading all names.
    pub(super) fn count(&self, registry: &Registry) {
        if self.rules.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.branches.values_mut().for_each(|branch| branch.metrics = 0);
        registry.all(|_, name| {
            self.add(&mut state, name);
            true
        });
        state.branches.retain(|_, branch| 0 < branch.metrics);
    }

    /// Counts one more metric, unless a quota forbids it. The error is the limit that was met.
    pub(super) fn admit(&self, name: &str) -> Result<(), String> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        for (branch, rule) in self.branches_of(name) {
            let QuotaRule { metrics: Some(limit), only_reports, .. } = &self.rules[rule] else { continue };
            let known = state.branches.get_mut(branch);
            if known.as_ref().map_or(0, |known| known.metrics) < *limit {
                continue;
            }
            if let Some(known) = known {
                known.metrics_beyond += 1;
            }
            if !only_reports {
                return Err(format!("limits.quotas: metrics = {limit} of {}", named(branch)));
            }
        }
        self.add(&mut state, name);
        Ok(())
    }

    /// Whether any quota is one of points.
    pub(super) fn count_points(&self) -> bool {
        self.has_points
    }

    /// Rejects the points of a batch that are beyond their branch's number for this minute.
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
            match canonical_name(batch.name(&sent)).is_ok_and(|name| self.is_beyond(&mut state, &name)) {
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
        let mut all: Vec<BranchUse> = state.branches.iter().map(|(name, branch)| self.used_of(name, branch)).collect();
        all.sort_by(|a, b| a.branch.cmp(&b.branch));
        all
    }

    fn used_of(&self, name: &str, branch: &Branch) -> BranchUse {
        let rule = &self.rules[branch.rule];
        BranchUse {
            branch: name.to_owned(),
            pattern: if rule.pattern.is_empty() { "/".to_owned() } else { rule.pattern.join(".") },
            metrics: branch.metrics,
            metrics_limit: rule.metrics,
            points: branch.points,
            points_limit: rule.points_per_minute,
            metrics_beyond: branch.metrics_beyond,
            points_beyond: branch.points_beyond,
            only_reports: rule.only_reports,
        }
    }

    fn is_beyond(&self, state: &mut State, name: &str) -> bool {
        for (branch, rule) in self.branches_of(name) {
            let QuotaRule { points_per_minute: Some(limit), only_reports, .. } = &self.rules[rule] else { continue };
            // A branch without a metric gets its first points without a count.
            let Some(known) = state.branches.get_mut(branch) else { continue };
            if known.points < *limit {
                known.points += 1;
                continue;
            }
            known.points_beyond += 1;
            if !only_reports {
                return true;
            }
        }
        false
    }

    fn add(&self, state: &mut State, name: &str) {
        for (branch, rule) in self.branches_of(name) {
            match state.branches.get_mut(branch) {
                Some(known) => known.metrics += 1,
                None => {
                    state.branches.insert(branch.to_owned(), Branch { rule, metrics: 1, ..Branch::default() });
                }
            }
        }
    }

    /// The branches of a name that have quotas, and the rule of each.
    fn branches_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
        let path = name.split(';').next().unwrap_or(name);
        self.depths.iter().filter_map(move |&depth| {
            let branch = first_components(path, depth)?;
            let matches = |rule: &QuotaRule| {
                rule.pattern.len() == depth
                    && branch.split('.').zip(&rule.pattern).all(|(part, pattern)| is_like(part, pattern))
            };
            Some((branch, self.rules.iter().rposition(matches)?))
        })
    }
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

/// Whether a component is like a pattern of `*` and `?`.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    // Where to go on after the last `*`: in the pattern, and in the text.
    let (mut at, mut i, mut again) = (0, 0, None);
    while at < text.len() {
        match pattern.get(i) {
            Some('*') => {
                again = Some((i + 1, at));
                i += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[at] => (at, i) = (at + 1, i + 1),
            _ => {
                let Some((after, from)) = again else { return false };
                again = Some((after, from + 1));
                (i, at) = (after, from + 1);
            }
        }
    }
    pattern[i..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carbon::{Sink, read_quotas};

    use super::*;

    fn quotas(text: &str) -> Quotas {
        Quotas::new(read_quotas(text).unwrap().0, &Registry::new())
    }

    /// The names that are admitted.
    fn admitted<'a>(quotas: &Quotas, names: &[&'a str]) -> Vec<&'a str> {
        names.iter().copied().filter(|name| quotas.admit(name).is_ok()).collect()
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
        assert_eq!(all.admit("d").unwrap_err(), "limits.quotas: metrics = 2 of all names");
        let reports = quotas("[*]\nmetrics = 1\ndropping-policy = none\n");
        assert_eq!(admitted(&reports, &["a.1", "a.2", "a.3"]).len(), 3);
        assert_eq!((reports.used()[0].metrics, reports.used()[0].metrics_beyond), (3, 2));
    }

    #[test]
    fn points_beyond_the_number_of_a_minute_are_rejected() {
        let quotas = quotas("[*]\nthroughput = 3\n");
        quotas.admit("a.1").unwrap();
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
    fn a_component_is_like_a_pattern() {
        for (text, pattern) in
            [("web", "*"), ("web", "w*"), ("web", "w?b"), ("web", "*b"), ("aXbXc", "a*X*c"), ("", "*")]
        {
            assert!(is_like(text, pattern), "{text} {pattern}");
        }
        for (text, pattern) in [("web", "w"), ("web", "web?"), ("web", "*x"), ("web", "e*"), ("", "?")] {
            assert!(!is_like(text, pattern), "{text} {pattern}");
        }
    }
}
