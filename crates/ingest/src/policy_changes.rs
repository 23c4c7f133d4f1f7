//! Rules that change while points come: every metric that exists is judged again, and given its new policy once its
//! points under the old one are on their way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use carbon::{Decision, Rules};
use host::JudgingTime;
use metadata::{PolicyId, Registry};
use metric::MetricId;
use parking_lot::Mutex;

use crate::{
    active_rules::{ActiveRules, RuleSet},
    back_pressure::BackPressure,
    backoff::RULES_RETRY,
    flush::RowWriter,
    memtable::{FlushJob, ListReject, MayTake, Memtable},
    owed_records::OwedRecords,
    registration::Registration,
    wal::Journal,
};

/// Metrics judged under one lock.
const GROUP: usize = 4096;

/// The owners of what a change of policy touches.
pub(crate) struct PolicyChanges {
    pub(crate) rules: Arc<ActiveRules>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) time: Arc<JudgingTime>,
    /// Of metrics that others changed.
    pub(crate) owed: OwedRecords,
    /// Whether policies of others could not be noted when they were read.
    pub(crate) are_others_left_out: AtomicBool,
    /// Whether the read of all names that is running has left out a metric that others changed while this node did not run.
    pub(crate) are_absences_left: AtomicBool,
    /// Metrics that were given another policy since this was last logged.
    pub(crate) given: AtomicU64,
    /// Metrics that keep another policy than these rules give them, as counted when their change began to wait.
    pub(crate) waiting: Mutex<Option<(Arc<RuleSet>, u64)>>,
    /// Newcomers whose rejects are set, from the first one on: other rules go through all metrics.
    pub(crate) listed_newcomers: AtomicUsize,
}

/// A group of metrics, judged.
enum Judged {
    /// Points under the policies before, to be stored. `is_unfinished` says that metrics wait for an earlier job.
    Changed { jobs: Vec<Arc<FlushJob>>, is_unfinished: bool },
    /// Points spill, or the clock is in doubt: metrics keep their policies until that ends; the lists hold meanwhile.
    Postponed,
    /// Starts the change to other rules, which goes through all metrics.
    Superseded,
}

impl PolicyChanges {
    /// Puts rules in force for new metrics. Returns whether [`PolicyChanges::apply`] may take as long as the store is
    /// away or the clock in doubt.
    pub(crate) fn set(&self, rules: Rules) -> bool {
        self.rules.set(rules);
        self.must_wait()
    }

    /// Whether metrics that exist keep their policies for now.
    fn must_wait(&self) -> bool {
        self.back_pressure.is_spilling() || self.memtable.is_recovering() || !self.time.now().is_certain()
    }

    /// Judges every metric that exists by the rules in force, until each of them has its policy. The lists hold at once.
    pub(crate) async fn apply(self: Arc<PolicyChanges>) {
        let mut are_rejects_set = false;
        loop {
            let rules = self.rules.current();
            if !are_rejects_set && self.must_wait() {
                if let Some(waiting) = self.set_rejects(&rules, self.all()).await {
                    *self.waiting.lock() = Some((rules.clone(), waiting));
                }
                are_rejects_set = true;
            }
            let may_take = self.memtable.may_take().await;
            if !self.judge(&rules, self.all(), may_take).await {
                self.waiting.lock().take_if(|(of, _)| Arc::ptr_eq(of, &rules));
                return self.log_given();
            }
            tokio::time::sleep(RULES_RETRY).await;
        }
    }

    /// Metrics that keep another policy than the rules in force give them, until the clock is certain and no points spill.
    pub(crate) fn waiting(&self) -> u64 {
        let waiting = self.waiting.lock();
        waiting.as_ref().filter(|(rules, _)| self.rules.is_current(rules)).map_or(0, |&(_, metrics)| metrics)
    }

    fn all(&self) -> impl Iterator<Item = MetricId> + use<> {
        let end = self.registry.read().end();
        (0..end.0).map(MetricId)
    }

    /// A section that is misspelt gives its metrics to another one without an error.
    fn log_given(&self) {
        let metrics = self.given.swap(0, Relaxed);
        if 0 < metrics {
            tracing::warn!(
                metrics,
                "metrics have another policy than before, by the rules in force; if that is not what was meant, correct \
                 carbon's files"
            );
        }
    }

    /// Where others write the store too: judges the metrics whose first points were taken out since the last call.
    pub(crate) async fn judge_newcomers(self: &Arc<PolicyChanges>, may_take: MayTake) {
        let newcomers = self.memtable.lock().newcomers().clone();
        let rules = self.rules.current();
        if self.must_wait() {
            // Those that came since the last flush.
            let listed = self.listed_newcomers.load(Relaxed);
            self.set_rejects(&rules, newcomers.iter().copied().skip(listed)).await;
            self.listed_newcomers.store(newcomers.len(), Relaxed);
            return;
        }
        if !newcomers.is_empty() && !self.judge(&rules, newcomers.iter().copied(), may_take).await {
            // Only now: the caller may be cancelled before. Others came behind them.
            self.memtable.lock().newcomers().drain(..newcomers.len());
            self.listed_newcomers.store(0, Relaxed);
        }
    }

    /// Sets which list rejects each of these metrics' points, by these rules. That needs neither a moment nor a policy, so that
    /// it waits for nothing. Returns how many have another policy by these rules; `None` where others are in force.
    async fn set_rejects(
        self: &Arc<PolicyChanges>,
        rules: &Arc<RuleSet>,
        mut metrics: impl Iterator<Item = MetricId>,
    ) -> Option<u64> {
        let mut waiting = 0;
        loop {
            let group: Vec<MetricId> = metrics.by_ref().take(GROUP).collect();
            if group.is_empty() {
                return Some(waiting);
            }
            let (changes, rules) = (self.clone(), rules.clone());
            // Other rules go through all metrics; or the runtime is shutting down.
            waiting += ended(host::spawn_blocking(move || changes.set_rejects_of_group(&rules, &group)).await)??;
            tokio::task::yield_now().await;
        }
    }

    /// As [`PolicyChanges::set_rejects`].
    fn set_rejects_of_group(&self, rules: &Arc<RuleSet>, metrics: &[MetricId]) -> Option<u64> {
        let decisions = self.decide(rules, metrics);
        let mut memtable = self.memtable.lock();
        if !self.rules.is_current(rules) {
            return None;
        }
        let mut waiting = 0;
        for (&metric, decision) in metrics.iter().zip(decisions) {
            let Some(policy) = memtable.policy(metric) else { continue };
            memtable.set_rejects(metric, list_reject(decision));
            let given = policy_by(rules, decision).filter(|_| memtable.is_judged(metric));
            waiting += u64::from(given.is_some_and(|given| given != policy));
        }
        Some(waiting)
    }

    fn decide(&self, rules: &RuleSet, metrics: &[MetricId]) -> Vec<Decision> {
        let names = self.registry.read();
        metrics.iter().map(|&metric| rules.rules.decide(names.name(metric))).collect()
    }

    /// Judges these metrics by the rules in force. Returns whether some must be judged again.
    async fn judge(
        self: &Arc<PolicyChanges>,
        rules: &Arc<RuleSet>,
        mut metrics: impl Iterator<Item = MetricId>,
        may_take: MayTake,
    ) -> bool {
        if self.back_pressure.is_spilling() {
            return true;
        }
        let mut is_any_unfinished = false;
        loop {
            let group: Vec<MetricId> = metrics.by_ref().take(GROUP).collect();
            if group.is_empty() {
                return is_any_unfinished;
            }
            match self.judge_elsewhere(rules, group, may_take).await {
                Judged::Postponed => return true,
                Judged::Superseded => return false,
                Judged::Changed { jobs, is_unfinished } => {
                    is_any_unfinished |= is_unfinished;
                    self.writer.write_after_names(jobs, &self.journal).await;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Judges a group on a thread that may wait for the journal's disk.
    async fn judge_elsewhere(
        self: &Arc<PolicyChanges>,
        rules: &Arc<RuleSet>,
        metrics: Vec<MetricId>,
        may_take: MayTake,
    ) -> Judged {
        let (changes, rules) = (self.clone(), rules.clone());
        let judged = host::spawn_blocking(move || {
            // No point is between the journal and memory: each came before the change in both, or after it in both.
            let mut exclusive = changes.journal.exclusive();
            let (judged, is_any_named) = changes.judge_group(&rules, &metrics, may_take);
            if is_any_named {
                // Not left to the next batch, which may be long in coming while millions are named. After an error it is:
                // the names are still to be written.
                let _ = exclusive.append_names();
            }
            judged
        });
        ended(judged.await).unwrap_or(Judged::Superseded)
    }

    /// Judges a group. Returns also whether metrics were given other policies.
    fn judge_group(&self, rules: &Arc<RuleSet>, metrics: &[MetricId], may_take: MayTake) -> (Judged, bool) {
        let decisions = self.decide(rules, metrics);
        // The moment of a change says which policy's stages have a point: it must be right.
        let now = self.time.now();
        if !now.is_certain() {
            return (Judged::Postponed, false);
        }
        let now = now.low();
        let (mut changed, mut jobs, mut is_unfinished) = (Vec::new(), Vec::new(), false);
        {
            let mut memtable = self.memtable.lock();
            // Spilled points keep the policy under which they were accepted.
            if self.back_pressure.is_spilling() {
                return (Judged::Postponed, false);
            }
            if !self.rules.is_current(rules) {
                return (Judged::Superseded, false);
            }
            let names = self.registry.read();
            for (&metric, decision) in metrics.iter().zip(decisions) {
                let Some(policy_before) = memtable.policy(metric) else { continue };
                let is_judged = memtable.is_judged(metric);
                memtable.set_rejects(metric, list_reject(decision));
                let Some(policy) = policy_by(rules, decision) else { continue };
                if policy_before == policy || !is_judged {
                    continue;
                }
                jobs.extend(memtable.take(metric, may_take));
                if memtable.is_pending(metric) {
                    is_unfinished = true;
                    continue;
                }
                memtable.set_policy(metric, policy);
                changed.push((metric, policy));
            }
            drop(names);
            // Under the lock, so that it is in the journal before any point that comes under it, and a query reads points by
            // the policy that they came under.
            for &(metric, policy) in &changed {
                // At the time that the history gets, which is that of no other change: a replay tells by it which of the
                // changes the store has.
                let since = self.registry.policies(metric).map_or(now, |history| history.next_change(now));
                self.journal.name_metric(metric, policy, self.registry.read().name(metric), since);
                self.registry.set_policy(metric, policy, since);
            }
        }
        let is_any_named = !changed.is_empty();
        let metrics: Vec<MetricId> = changed.iter().map(|&(metric, _)| metric).collect();
        self.registry.widen_seen(&metrics, now);
        self.given.fetch_add(changed.len() as u64, Relaxed);
        self.registration.add_changed(metrics);
        (Judged::Changed { jobs, is_unfinished }, is_any_named)
    }
}

/// The result of a task; `None` where the runtime is shutting down. A panic of it goes on here.
fn ended<T>(task: Result<T, tokio::task::JoinError>) -> Option<T> {
    match task {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// The policy that rules give a metric, where they give one.
fn policy_by(rules: &RuleSet, decision: Decision) -> Option<PolicyId> {
    match decision {
        Decision::Keep(index) if rules.rules.has_schemas() => Some(rules.policy_id(index.get())),
        _ => None,
    }
}

fn list_reject(decision: Decision) -> Option<ListReject> {
    match decision {
        Decision::Blacklisted => Some(ListReject::Blacklisted),
        Decision::NotWhitelisted => Some(ListReject::NotWhitelisted),
        Decision::Keep(_) => None,
    }
}
