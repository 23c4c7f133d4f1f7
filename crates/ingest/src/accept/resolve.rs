//! Names of a batch to metric ids.

use std::{borrow::Cow, sync::Arc};

use carbon::{Decision, RejectReason};
use host::JudgingTime;
use metadata::Registry;
use metric::{MetricId, canonical_name};

use super::{
    batch::Batch,
    name_limits::NoRoom,
    new_metrics::{NewMetric, NewMetrics},
    spellings::Known,
};
use crate::{active_rules::ActiveRules, long_work::do_work, wal::ResolvedPoint};

/// How far ahead names are fetched into the cache while they are looked up.
const PREFETCH: usize = 12;

/// Names that are looked up or created under one lock.
const PIECE: usize = 1024;

/// A batch of more points than this takes milliseconds: one frame may hold millions.
const LONG_BATCH: usize = 8 * PIECE;

/// Finds metrics by name, and has those created that do not exist.
pub(crate) struct Resolver {
    registry: Arc<Registry>,
    rules: Arc<ActiveRules>,
    new_metrics: Arc<NewMetrics>,
}

impl Resolver {
    pub(crate) fn new(registry: Arc<Registry>, rules: Arc<ActiveRules>, new_metrics: Arc<NewMetrics>) -> Resolver {
        Resolver { registry, rules, new_metrics }
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Fills `batch.resolved`, in the order of the points. Over a long batch, other tasks of this thread move to another.
    pub(super) fn resolve(&self, batch: &mut Batch, time: &JudgingTime) {
        do_work(LONG_BATCH < batch.sent.len(), || self.resolve_now(batch, time));
    }

    fn resolve_now(&self, batch: &mut Batch, time: &JudgingTime) {
        let mut resolved = std::mem::take(&mut batch.resolved);
        resolved.clear();
        if resolved.capacity() < batch.sent.len() {
            // As many as the batch counts memory for, so that this happens once for each of its sizes.
            resolved.reserve_exact(batch.sent.capacity());
        }
        batch.left_out.clear();
        let mut unknown = Vec::new();
        for first in (0..batch.sent.len()).step_by(PIECE) {
            let names = self.registry.read();
            // Locked when a name is not found as it is sent: the next ones mostly are not, either.
            let mut spellings: Option<Known<'_>> = None;
            for (i, sent) in batch.sent.iter().enumerate().skip(first).take(PIECE) {
                if let Some(ahead) = batch.sent.get(i + PREFETCH) {
                    names.prefetch(ahead.hash);
                    if let Some(spellings) = &spellings {
                        spellings.prefetch(ahead.hash);
                    }
                }
                let name = batch.name(sent);
                let metric = names.find(sent.hash, name).or_else(|| {
                    let spellings = spellings.get_or_insert_with(|| self.new_metrics.spellings().read());
                    spellings.find(sent.hash, name).filter(|&metric| names.is_shown(metric))
                });
                let metric = metric.unwrap_or_else(|| {
                    unknown.push(i);
                    MetricId::NONE
                });
                resolved.push(ResolvedPoint { metric, time: sent.time, value: sent.value });
            }
        }
        if !unknown.is_empty() {
            self.resolve_unknown(batch, &unknown, &mut resolved, time);
            let is_left_out = |&i: &usize| resolved[i].metric == MetricId::NONE;
            batch.left_out.extend(unknown.iter().copied().filter(is_left_out));
            resolved.retain(|point| point.metric != MetricId::NONE);
        }
        batch.resolved = resolved;
    }

    /// Names that were not found as they were sent: put into their canonical form, judged by the rules, created.
    #[cold]
    fn resolve_unknown(
        &self,
        batch: &mut Batch,
        unknown: &[usize],
        resolved: &mut [ResolvedPoint],
        time: &JudgingTime,
    ) {
        let rules = self.rules.current();
        let mut rejected: Vec<(RejectReason, usize)> = Vec::new();
        // Everything slow is done before the registry is locked.
        let mut new = Vec::with_capacity(unknown.len());
        let mut respelt = Vec::new();
        for &i in unknown {
            let sent = &batch.sent[i];
            let name = match canonical_name(batch.name(sent)) {
                Ok(name) => name,
                Err(error) => {
                    rejected.push((error.into(), i));
                    continue;
                }
            };
            let hash = match &name {
                Cow::Borrowed(_) => sent.hash,
                Cow::Owned(canonical) => {
                    let hash = self.registry.hash(canonical.as_bytes());
                    if let Some(metric) = self.registry.read().find(hash, canonical.as_bytes()) {
                        resolved[i].metric = metric;
                        respelt.push(i);
                        continue;
                    }
                    hash
                }
            };
            match rules.rules.decide(&name) {
                Decision::Keep(index) => {
                    new.push((i, NewMetric { name, hash, policy: rules.policy_id(index.get()) }));
                }
                Decision::Blacklisted => rejected.push((RejectReason::Blacklisted, i)),
                Decision::NotWhitelisted => rejected.push((RejectReason::NotWhitelisted, i)),
            }
        }
        if !respelt.is_empty() {
            let spelt = |&i: &usize| (batch.sent[i].hash, batch.name(&batch.sent[i]), resolved[i].metric);
            self.new_metrics.remember(respelt.iter().map(spelt));
        }
        if let Some(gate) = batch.gate.as_ref().filter(|_| !new.is_empty()) {
            self.new_metrics.count_for(gate);
        }
        let mut limited = Vec::new();
        let listener = batch.gate.as_ref().map(|gate| &*gate.listener);
        let now = time.reached();
        let times = (now, batch.created_on.map_or(now, |created_on| created_on.min(now)));
        for piece in new.chunks(PIECE) {
            let refused = self.new_metrics.create(piece, times, listener, |i, metric| resolved[i].metric = metric);
            limited.extend(refused);
        }
        drop(new);
        for (reason, i) in rejected {
            let sample = batch.name(&batch.sent[i]).to_vec();
            batch.reject_sample(reason, &sample);
        }
        for (NoRoom { reason, limit }, i) in limited {
            let sample = batch.name(&batch.sent[i]).to_vec();
            batch.reject_for_limit(reason, &sample, Some(limit));
        }
    }
}
