//! Quotas of branches: metrics, directories, and points a minute, below each branch that a pattern matches.
//!
//! Every metric counts once: while it is created, adopted or removed, under the lock of the names. Other rules count all names
//! in slices, next to the rules in force:
//!
//! 1. A slice goes through some ids under a shared lock of the names, and remembers how far it came.
//! 2. A metric that comes or goes counts for the new rules if its id is below that; otherwise a later slice decides.
//! 3. Under the lock of the last slice, the new rules come into force.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use carbon::{Dropping, QuotaRule, RejectReason};
use metadata::Registry;
use metric::{MetricId, Timestamp, canonical_name};
use parking_lot::Mutex;

use super::{
    batch::Batch,
    branches::{Branch, Branches, Meter, Rules},
};
use crate::protocol::Protocol;

/// Ids that are counted under one lock: half a millisecond or so.
const SLICE: u32 = 512;

/// Quotas of a name that are looked up once for each point; further ones twice.
const KEPT: usize = 8;

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
    /// Held while other rules are counted.
    counting: Mutex<()>,
    // Locked after the names.
    next: Mutex<Option<Next>>,
    // Locked after `next`; nothing is locked while it is held.
    state: Mutex<State>,
}

/// What is in force.
#[derive(Debug, Default)]
struct State {
    minute: Timestamp,
    branches: Branches,
}

/// Rules that are not in force yet.
#[derive(Debug)]
struct Next {
    branches: Branches,
    /// Metrics with ids below this are counted.
    counted_to: MetricId,
}

impl Quotas {
    pub(super) fn new(rules: Vec<QuotaRule>, registry: &Registry) -> Quotas {
        let quotas = Quotas {
            has_points: AtomicBool::new(false),
            counting: Mutex::default(),
            next: Mutex::default(),
            state: Mutex::default(),
        };
        quotas.replace(rules, registry);
        quotas
    }

    /// Counts all names by other rules and puts these into force. Branches that have a quota under both keep what came for
    /// them. Takes as long as reading all names; no lock is held for longer than a slice.
    pub(super) fn replace(&self, rules: Vec<QuotaRule>, registry: &Registry) {
        let _counting = self.counting.lock();
        self.begin(rules);
        while !self.count_slice(registry, SLICE) {}
    }

    fn begin(&self, rules: Vec<QuotaRule>) {
        let branches = Branches::of(Arc::new(Rules::new(rules)));
        *self.next.lock() = Some(Next { branches, counted_to: MetricId(0) });
    }

    /// Counts some names by the rules that [`Quotas::begin`] took. Returns whether these are in force.
    fn count_slice(&self, registry: &Registry, ids: u32) -> bool {
        let names = registry.read();
        let mut next = self.next.lock();
        let Some(Next { branches, counted_to }) = &mut *next else { return true };
        *counted_to = match branches.rules.rules.is_empty() {
            true => names.end(),
            false => names.slice(*counted_to, ids, |_, name| branches.add(name, |branch| self.meter_of(branch))),
        };
        if *counted_to < names.end() {
            return false;
        }
        let counted = next.take().map(|next| next.branches).unwrap_or_default();
        self.has_points.store(counted.rules.count_points(), Relaxed);
        let before = std::mem::replace(&mut self.state.lock().branches, counted);
        drop((next, names));
        // Frees as many branches as there are metrics, maybe.
        drop(before);
        true
    }

    fn meter_of(&self, branch: &str) -> Arc<Meter> {
        self.state.lock().branches.all.get(branch).map(|known| known.meter.clone()).unwrap_or_default()
    }

    /// Counts one more metric, unless a quota forbids it. The error is the limit that was met. The caller holds the lock of the
    /// names, creates the metric, and calls [`Quotas::created`].
    pub(super) fn admit(&self, name: &str, now: Timestamp) -> Result<(), String> {
        let mut state = self.state.lock();
        let State { branches, .. } = &mut *state;
        for (branch, rule) in branches.rules.branches_of(name) {
            let rule = &branches.rules.rules[rule];
            let QuotaRule { metrics, namespaces, dropping, .. } = rule;
            let known = branches.all.get(branch);
            let (has, dirs) = known.map_or((0, 0), |known| (known.metrics, known.namespaces));
            let more = || branches.new_directories(name, rule.pattern.depth());
            let met = match (metrics, namespaces) {
                (Some(limit), _) if *limit <= has => format!("metrics = {limit}"),
                (_, Some(limit)) if *limit < dirs + more() => format!("namespaces = {limit}"),
                _ => continue,
            };
            if let Some(Branch { meter, .. }) = known {
                meter.metrics_beyond.fetch_add(1, Relaxed);
                meter.shut_in.store(now.div_euclid(60), Relaxed);
            }
            if *dropping != Dropping::Nothing {
                return Err(format!("limits.quotas: {met} of {}", named(branch)));
            }
        }
        branches.add(name, |_| Arc::default());
        Ok(())
    }

    /// A metric that was admitted has this id. The caller still holds the lock of the names.
    pub(super) fn created(&self, id: MetricId, name: &str) {
        if let Some(Next { branches, .. }) = self.next.lock().as_mut().filter(|next| id < next.counted_to) {
            branches.add(name, |branch| self.meter_of(branch));
        }
    }

    /// A metric came without asking. The caller holds the lock of the names.
    pub(super) fn adopted(&self, id: MetricId, name: &str) {
        self.state.lock().branches.add(name, |_| Arc::default());
        self.created(id, name);
    }

    /// A metric is removed. The caller holds the lock of the names.
    pub(super) fn removed(&self, id: MetricId, name: &str) {
        if let Some(Next { branches, .. }) = self.next.lock().as_mut().filter(|next| id < next.counted_to) {
            branches.subtract(name);
        }
        self.state.lock().branches.subtract(name);
    }

    /// Whether there are any.
    pub(super) fn has_rules(&self) -> bool {
        !self.state.lock().branches.rules.rules.is_empty()
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
        let mut state = self.state.lock();
        state.minute = now.div_euclid(60);
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
        let all = state.branches.all.iter();
        let mut all: Vec<BranchUse> = all.map(|(name, branch)| state.used_of(name, branch)).collect();
        drop(state);
        all.sort_by(|a, b| a.branch.cmp(&b.branch));
        all
    }
}

impl State {
    fn used_of(&self, name: &str, branch: &Branch) -> BranchUse {
        let rule = &self.branches.rules.rules[branch.rule];
        BranchUse {
            branch: name.to_owned(),
            pattern: rule.pattern.to_string(),
            metrics: branch.metrics,
            metrics_limit: rule.metrics,
            namespaces: branch.namespaces,
            namespaces_limit: rule.namespaces,
            points: branch.meter.points_in(self.minute),
            points_limit: rule.points_per_minute,
            metrics_beyond: branch.meter.metrics_beyond.load(Relaxed),
            points_beyond: branch.meter.points_beyond.load(Relaxed),
            only_reports: rule.dropping == Dropping::Nothing,
            is_shut: branch.is_shut(rule, self.minute),
        }
    }

    fn is_beyond(&self, name: &str) -> bool {
        let State { minute, branches: Branches { rules, all, .. } } = self;
        let mut met = [const { None }; KEPT];
        let mut count = 0;
        for (branch, rule) in rules.branches_of(name) {
            let rule = &rules.rules[rule];
            // A branch without a metric gets its first points without a count.
            let Some(known) = all.get(branch) else { continue };
            let is_shut = known.is_shut(rule, *minute);
            let limit = rule.points_per_minute;
            let is_full = limit.is_some_and(|limit| limit <= known.meter.points_in(*minute));
            if is_shut || is_full {
                known.meter.points_beyond.fetch_add(1, Relaxed);
                if is_shut || rule.dropping != Dropping::Nothing {
                    return true;
                }
            }
            if limit.is_some() && !is_full {
                if let Some(place) = met.get_mut(count) {
                    *place = Some(&*known.meter);
                }
                count += 1;
            }
        }
        // Only now: what one branch rejects does not use up the quota of another.
        match count <= KEPT {
            true => met.into_iter().flatten().for_each(|meter: &Meter| meter.add_point(*minute)),
            false => self.add_point(name),
        }
        false
    }

    /// Counts a point for each of its branches that has a number of points and is not beyond it.
    #[cold]
    fn add_point(&self, name: &str) {
        let State { minute, branches: Branches { rules, all, .. } } = self;
        for (branch, rule) in rules.branches_of(name) {
            if let Some(limit) = rules.rules[rule].points_per_minute
                && let Some(known) = all.get(branch)
                && known.meter.points_in(*minute) < limit
            {
                known.meter.add_point(*minute);
            }
        }
    }
}

fn named(branch: &str) -> String {
    if branch.is_empty() { "all names".to_owned() } else { format!("{branch}.*") }
}

#[cfg(test)]
mod tests;
