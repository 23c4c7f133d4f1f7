//! Where others write the store too: metrics without points on this node are kept by what the shared tables say, also when
//! that changes. As soon as points come here, the rules of this node say it (`policy_changes.rs`).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use host::Absence;
use metadata::{Elsewhere, PolicySpan};
use metric::{MetricId, Policy, Timestamp};
use store::{MetricRecord, NameStore, PolicyChange, SharedMetric, StoreError};

use crate::{owed_records::GROUP, policy_changes::PolicyChanges, registration::Turn};

/// How much an xFilesFactor may differ from itself in the tables, which have six digits.
const ROUNDED: f64 = 1e-6;

/// Metrics whose policies are learnt under one lock: points wait for as long.
const LEARNT_TOGETHER: usize = 1 << 10;

/// Whether shared tables keep a metric otherwise than a policy, as far as they tell: not the list of its methods.
pub fn is_kept_otherwise(known: &Policy, shared: &Policy) -> bool {
    known.retention != shared.retention
        || known.aggregation != shared.aggregation
        || ROUNDED <= (known.x_files_factor - shared.x_files_factor).abs()
}

/// The policy of the tables, with the list of methods that they do not tell.
fn taken_over(known: &Policy, shared: &Policy) -> Policy {
    let rollups = if known.aggregation == shared.aggregation { known.rollups } else { shared.rollups };
    Policy { rollups, ..shared.clone() }
}

impl PolicyChanges {
    /// Those of some metrics of the shared tables that this node knows by another policy and has no points for: their
    /// records with the policy of the tables, which holds since the time that these tell, where this node did not run then, or from
    /// now on. None while the clock is in doubt.
    pub(crate) fn kept_otherwise(&self, metrics: &[SharedMetric]) -> Vec<MetricRecord> {
        let now = self.time.now();
        if !now.is_certain() {
            return Vec::new();
        }
        let mut others: Vec<(MetricId, &SharedMetric)> = {
            let names = self.registry.read();
            let known =
                |metric: &SharedMetric| names.find(self.registry.hash(metric.name.as_bytes()), metric.name.as_bytes());
            let known = metrics.iter().filter_map(|metric| Some((known(metric)?, metric)));
            known
                .filter(|(id, metric)| is_kept_otherwise(&self.registry.policy(names.policy_id(*id)), &metric.policy))
                .collect()
        };
        if others.is_empty() {
            return Vec::new();
        }
        {
            let memtable = self.memtable.lock();
            others.retain(|(id, _)| memtable.is_theirs(*id));
        }
        let record = |(id, metric): (MetricId, &SharedMetric)| {
            let mut record = self.registry.records(&[id]).pop()?;
            // Rows have the terms of the policy in force in the time of their slots, whichever node reads them. But what this node may have
            // stored itself by the policy before is of that one's time.
            let created = self.registry.read().creation(id)?;
            let since = match self.time.absences().last() {
                _ if metric.since <= 0 => now.low(),
                Some(last) if metric.since < last.from => {
                    // Of an earlier absence: what the process after it stored is of before, which `learn` notes.
                    let is_missed = self.absences_of(created).any(|absence| absence.has(metric.since));
                    if is_missed { last.from.min(now.low()) } else { now.low() }
                }
                _ => metric.since.min(now.low()),
            };
            let since = self.registry.policies(id)?.next_change(since);
            let policy = taken_over(&record.policies.last()?.policy, &metric.policy);
            record.policies.push(PolicyChange { since, policy });
            Some(record)
        };
        others.into_iter().filter_map(record).collect()
    }

    /// See [`Ingest::learn`](crate::Ingest::learn).
    pub(crate) fn learn(&self, metrics: &[SharedMetric]) -> usize {
        let known: Vec<(MetricId, Timestamp, &SharedMetric)> = {
            let names = self.registry.read();
            let of = |metric: &SharedMetric| {
                let id = names.find(self.registry.hash(metric.name.as_bytes()), metric.name.as_bytes())?;
                Some((id, names.creation(id)?))
            };
            metrics.iter().filter_map(|metric| of(metric).map(|(id, created)| (id, created, metric))).collect()
        };
        let tell = |(id, created, metric): &(MetricId, Timestamp, &SharedMetric)| self.tell((*id, *created), metric);
        let others: Vec<(MetricId, Timestamp, &SharedMetric)> = known.into_iter().filter(tell).collect();
        let mut learnt = 0;
        if others.is_empty() {
            return learnt;
        }
        let earlier = others.iter().flat_map(|(.., metric)| metric.earlier.iter().map(|change| &change.policy));
        self.rules.admit_earlier(earlier.chain(others.iter().map(|(.., metric)| &metric.policy)));
        for together in others.chunks(LEARNT_TOGETHER) {
            let is_recovering = self.memtable.is_recovering();
            let _memtable = self.memtable.lock();
            // A replay goes by the places of policies in histories, and a clock in doubt does not tell when this process was absent.
            if self.back_pressure.is_spilling() || is_recovering || !self.time.now().is_certain() {
                self.are_others_left_out.store(true, Relaxed);
                break;
            }
            for (id, created, metric) in together {
                let has_missed = self.learn_missed((*id, *created), metric);
                learnt += usize::from(self.learn_of((*id, *created), metric) || has_missed);
            }
        }
        learnt
    }

    /// See [`Ingest::leave_out`](crate::Ingest::leave_out).
    pub(crate) fn leave_out(&self, id: MetricId, metric: &SharedMetric) {
        let created = self.registry.read().creation(id);
        if created.is_some_and(|created| self.has_missed((id, created), metric)) {
            self.are_absences_left.store(true, Relaxed);
        }
    }

    /// Whether others changed a metric in an absence, and that is not noted yet.
    fn has_missed(&self, (id, created): (MetricId, Timestamp), metric: &SharedMetric) -> bool {
        let Some(history) = self.registry.policies(id).filter(|_| !metric.earlier.is_empty()) else { return false };
        let is_noted = |since: Timestamp| history.iter().any(|span| span.since == since);
        let is_missed = |absence: Absence| {
            let mut changes = metric.earlier.iter().map(|change| change.since).chain([metric.since]);
            changes.any(|since| is_in(absence, since) && !is_noted(since))
        };
        self.absences_of(created).any(is_missed)
    }

    /// Whether [`PolicyChanges::learn`] left anything out since the last call: the caller reads the names again.
    pub(crate) fn take_left_out(&self) -> bool {
        self.are_others_left_out.swap(false, Relaxed)
    }

    /// See [`Ingest::all_are_read`](crate::Ingest::all_are_read).
    pub(crate) fn all_are_read(&self) {
        let are_left = self.are_absences_left.swap(false, Relaxed) || !self.owed.is_empty();
        // A clock in doubt does not tell when this process was absent.
        if !are_left && !self.are_others_left_out.load(Relaxed) && self.time.now().is_certain() {
            self.time.absences_are_noted();
        }
    }

    fn span(&self, change: &PolicyChange) -> Option<PolicySpan> {
        Some(PolicySpan { since: change.since, policy: self.registry.try_intern(&change.policy)? })
    }

    fn learn_of(&self, (id, created): (MetricId, Timestamp), metric: &SharedMetric) -> bool {
        let earlier: Vec<PolicySpan> = metric.earlier.iter().filter_map(|change| self.span(change)).collect();
        let is_current = self.is_current(id, &metric.policy);
        let others_now = if is_current { None } else { self.registry.try_intern(&metric.policy) };
        let (since, is_from_before, now) = (metric.since, created < metric.since, self.time.now().low());
        self.registry.learn(id, Elsewhere { earlier: &earlier, others_now, since, is_from_before, now })
    }

    /// Those of a metric that this node has had since it was `created`.
    fn absences_of(&self, created: Timestamp) -> impl Iterator<Item = Absence> {
        self.time.absences().into_iter().filter(move |absence| created <= absence.from)
    }

    /// Notes changes that others made while this node did not run, at their times: what is stored of them is theirs. Returns whether there
    /// were any. A row of the log has the time when it was written, and no policies before it: the table has the times.
    fn learn_missed(&self, (id, created): (MetricId, Timestamp), metric: &SharedMetric) -> bool {
        if metric.earlier.is_empty() {
            return false;
        }
        let Some(history) = self.registry.policies(id) else { return false };
        let own = history.with_times();
        let present = PolicyChange { since: metric.since, policy: metric.policy.clone() };
        let mut spans = own.to_vec();
        for absence in self.absences_of(created) {
            let missed = metric.earlier.iter().chain([&present]).filter(|change| is_in(absence, change.since));
            let missed: Vec<PolicySpan> = missed.filter_map(|change| self.span(change)).collect();
            if !missed.is_empty() {
                spans = with_missed(&spans, absence, &missed);
            }
        }
        let front = &history[..history.len() - own.len()];
        if spans == own {
            return false;
        }
        // The next process cannot tell that, and no other record of it is written. Before as well: nothing passes for noted in between.
        self.owed.add([id]);
        let is_set = self.registry.set_history(id, [front, &spans].concat());
        self.owed.add([id]);
        is_set
    }

    /// See [`Ingest::tells`](crate::Ingest::tells).
    pub(crate) fn tells(&self, id: MetricId, metric: &SharedMetric) -> bool {
        let created = self.registry.read().creation(id);
        created.is_some_and(|created| self.tell((id, created), metric))
    }

    fn tell(&self, (id, created): (MetricId, Timestamp), metric: &SharedMetric) -> bool {
        let Some(history) = self.registry.policies(id) else { return false };
        if !self.is_current(id, &metric.policy) {
            return true;
        }
        let had: Vec<Arc<Policy>> = history.iter().map(|span| self.registry.policy(span.policy)).collect();
        let is_known = |change: &PolicyChange| {
            had.iter().any(|one| {
                one.retention == change.policy.retention
                    && (1 < had.len() || one.aggregation == change.policy.aggregation)
            })
        };
        // Of those without times some may be over.
        let has_front = history.with_times().len() < history.len() && !metric.earlier.is_empty();
        has_front || self.has_missed((id, created), metric) || !metric.earlier.iter().all(is_known)
    }

    fn is_current(&self, id: MetricId, policy: &Policy) -> bool {
        let current = self.registry.policies(id).map(|history| self.registry.policy(history.current()));
        current.is_some_and(|current| !is_kept_otherwise(&current, policy))
    }

    /// Writes the records of [`PolicyChanges::kept_otherwise`], and puts their policies in force once they are on the disk. A metric that got
    /// points meanwhile is left out, and judged by the rules. Returns how many there were.
    pub(crate) async fn take_over(
        self: &Arc<PolicyChanges>,
        mut records: Vec<MetricRecord>,
        local: &dyn NameStore,
    ) -> Result<usize, StoreError> {
        let without_room = self.rules.admit_policies(&mut records);
        if 0 < without_room {
            tracing::error!(
                metrics = without_room,
                policies = self.registry.policy_count(),
                "the shared tables have metrics with too many different policies; this node reads these by the policies that they had"
            );
        }
        let mut all = 0;
        while !records.is_empty() {
            let group: Vec<MetricRecord> = records.drain(..records.len().min(GROUP)).collect();
            let turn = self.registration.turn().await;
            let group = self.still_theirs(group);
            if group.is_empty() {
                continue;
            }
            // From here on the disk may have a policy that is not in force: a start would read points of the journal by it. Within the turn:
            // what another task writes as owed is of before.
            self.owed.add(group.iter().map(|record| record.id));
            local.put_metrics(group.clone()).await?;
            local.sync_metrics().await?;
            let (changes, given) = (self.clone(), group.clone());
            let taken = host::spawn_blocking(move || {
                // No point is between the journal and memory: see `judge_elsewhere`.
                let _exclusive = changes.journal.exclusive();
                let taken = changes.put_in_force(&given);
                // Who waits for this may be gone, and another task may have written the disk as it was before.
                (taken, changes.owed.add(given.iter().map(|record| record.id)))
            });
            let Ok((taken, change)) = taken.await else { continue };
            let given: HashMap<MetricId, &MetricRecord> = group.iter().map(|record| (record.id, record)).collect();
            let in_force = self.registry.records(&taken);
            let same = in_force.iter().filter(|record| given.get(&record.id) == Some(record));
            let mut owed: BTreeMap<MetricId, u64> = group.iter().map(|record| (record.id, change)).collect();
            let written: BTreeMap<MetricId, u64> = same.filter_map(|record| owed.remove_entry(&record.id)).collect();
            self.owed.are_written(&written);
            if !owed.is_empty() {
                self.write_records(&turn, &owed, local).await?;
            }
            all += taken.len();
        }
        Ok(all)
    }

    /// Those of some records that may still be put in force: points may have come for their metrics, and newer policies, since they were made.
    fn still_theirs(&self, mut records: Vec<MetricRecord>) -> Vec<MetricRecord> {
        let memtable = self.memtable.lock();
        if self.back_pressure.is_spilling() {
            // Points of any of them may be in the journal alone. The names are read again.
            self.are_others_left_out.store(true, Relaxed);
            return Vec::new();
        }
        records.retain(|record| memtable.is_theirs(record.id) && !self.is_overtaken(record));
        records
    }

    /// Whether a metric has got another policy since a record of it was made with one more.
    fn is_overtaken(&self, record: &MetricRecord) -> bool {
        let [.., before, _] = &record.policies[..] else { return true };
        let history = self.registry.policies(record.id);
        history.is_none_or(|history| history.last().is_none_or(|last| last.since != before.since))
    }

    /// The embedded store may have other records of these than this process.
    pub(crate) fn owe(&self, metrics: Vec<MetricId>) {
        if !metrics.is_empty() {
            self.owed.add(metrics);
        }
    }

    /// See [`Ingest::write_owed_records`](crate::Ingest::write_owed_records).
    pub(crate) async fn write_owed_records(&self, local: &dyn NameStore) -> Result<(), StoreError> {
        while !self.owed.is_empty() {
            // Their own changes are written after that.
            let turn = self.registration.turn().await;
            self.write_records(&turn, &self.owed.group(), local).await?;
        }
        Ok(())
    }

    async fn write_records(
        &self,
        _turn: &Turn,
        owed: &BTreeMap<MetricId, u64>,
        local: &dyn NameStore,
    ) -> Result<(), StoreError> {
        let records = self.registry.records(&owed.keys().copied().collect::<Vec<_>>());
        // A replay that finds a change in the store, and not in the journal, takes all points of the journal for later ones.
        self.journal.changes_synced().await?;
        local.put_metrics(records).await?;
        local.sync_metrics().await?;
        self.owed.are_written(owed);
        Ok(())
    }

    /// Returns those that are in force. A metric that got points just now has them under the policy of before, until it is judged.
    fn put_in_force(&self, records: &[MetricRecord]) -> Vec<MetricId> {
        let mut taken = Vec::new();
        {
            let mut memtable = self.memtable.lock();
            if self.back_pressure.is_spilling() {
                self.are_others_left_out.store(true, Relaxed);
            }
            for record in records {
                let Some(change) = record.policies.last() else { continue };
                let Some(policy) = self.registry.try_intern(&change.policy) else { continue };
                if memtable.is_theirs(record.id) && !self.is_overtaken(record) {
                    memtable.set_policy(record.id, policy);
                    self.registry.set_policy(record.id, policy, change.since);
                    taken.push(record.id);
                }
            }
        }
        self.registry.widen_seen(&taken, self.time.now().low());
        taken
    }
}

/// Whether a change was made in an absence. Of a policy whose time is not known that is not known.
fn is_in(absence: Absence, since: Timestamp) -> bool {
    0 < since && absence.has(since)
}

/// A history with what others changed in an absence. What this node had when it ended, it went on with until its own rules changed it, and
/// its journal says so.
fn with_missed(own: &[PolicySpan], absence: Absence, missed: &[PolicySpan]) -> Vec<PolicySpan> {
    let at_end = own.iter().rfind(|span| span.since < absence.until);
    let at_end = at_end.map(|span| PolicySpan { since: absence.until, policy: span.policy });
    let before = own.iter().filter(|span| span.since <= absence.from.max(0));
    let since_end = own.iter().filter(|span| absence.until <= span.since);
    let mut spans: Vec<PolicySpan> = Vec::new();
    for span in before.chain(missed).chain(&at_end).chain(since_end) {
        match spans.last() {
            Some(last) if last.policy == span.policy => {}
            Some(last) => spans.push(PolicySpan { since: span.since.max(last.since + 1), policy: span.policy }),
            None => spans.push(*span),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use metric::{Aggregation, Methods};

    use super::*;

    #[test]
    fn what_the_tables_do_not_tell_is_not_another_policy() {
        let known = Policy {
            rollups: [Aggregation::Average, Aggregation::Sum].into_iter().fold(Methods::NONE, |mut methods, method| {
                methods.add(method);
                methods
            }),
            x_files_factor: 1.0 / 3.0,
            ..Policy::default()
        };
        let shared = Policy { x_files_factor: 0.333333, ..Policy::default() };
        assert!(!is_kept_otherwise(&known, &shared));
        let longer = Policy { retention: "20160*60s".parse().unwrap(), ..shared.clone() };
        assert!(is_kept_otherwise(&known, &longer));
        assert_eq!(taken_over(&known, &longer), Policy { rollups: known.rollups, ..longer });
        let sum = Policy { aggregation: Aggregation::Sum, ..shared };
        assert!(is_kept_otherwise(&known, &sum));
        assert_eq!(taken_over(&known, &sum), sum);
    }
}
