//! The journal read back at the start: every name, and as many points as there is memory for. The rest is left where
//! it is, as points that are parked.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use carbon::RejectReason;
use metadata::{PolicyId, Registry};
use metric::{MetricId, Timestamp};
use store::{MetricRecord, PolicyChange};

use crate::{
    counters::Counters,
    held::{Held, NO_POLICY, Taken},
    journal::{self, NumberedPoint, Record, Segment},
    parked::LeftParked,
    policies::{Policies, PolicyTable},
    pressure::SLOT_BYTES,
};

/// The ids that a journal gives policies are those of the process that wrote it; these are the registry's.
pub(crate) type PolicyIds = HashMap<u16, PolicyId>;

/// What was found in the journal at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Segments read.
    pub segments: u64,
    /// Points that are held again.
    pub points: u64,
    /// Points for which there was no room in memory: they are read back as the store takes the others.
    pub parked_points: u64,
    /// Metrics that the metrics table did not have yet.
    pub metrics: u64,
    /// Bytes that belonged to no whole record: a torn tail after a crash, or damage.
    pub damaged_bytes: u64,
    /// Points whose metric is named nowhere, lost with the record that named it.
    pub nameless_points: u64,
}

/// What a replay leaves to be done.
#[derive(Default)]
pub(crate) struct Left {
    /// Metrics to be written to the metrics table.
    pub(crate) unlisted: Vec<MetricId>,
    /// What metrics held when they were given another policy, in the order of the changes: to be stored by
    /// the policy it came under, before anything that is held.
    pub(crate) taken: Vec<Arc<Taken>>,
    /// What memory had no room for.
    pub(crate) parked: LeftParked,
}

struct Replay<'a> {
    registry: &'a Registry,
    held: &'a mut Held,
    policies: &'a Policies,
    ids: PolicyIds,
    left: Left,
    held_slots: usize,
    // Points that came before their metric; with an intact journal there are none.
    early: HashMap<MetricId, Vec<(Timestamp, NumberedPoint)>>,
    restored: Restored,
    points: Vec<NumberedPoint>,
    refused: Vec<(usize, RejectReason)>,
}

/// Reads the segments, oldest first, into `held` until that is larger than `memory_limit` bytes, and metrics that the
/// registry does not have into the registry. Returns what was found and what is left to be done.
pub(crate) fn replay_segments(
    segments: &[Segment],
    registry: &Registry,
    held: &mut Held,
    policies: &Policies,
    counters: &Counters,
    memory_limit: u64,
) -> io::Result<(Restored, Left)> {
    policies.refresh(registry);
    let mut replay = Replay {
        registry,
        held,
        policies,
        ids: HashMap::new(),
        left: Left::default(),
        held_slots: 0,
        early: HashMap::new(),
        restored: Restored::default(),
        points: Vec::new(),
        refused: Vec::new(),
    };
    replay.ensure_states();
    let mut segments = segments.iter();
    for segment in segments.by_ref() {
        let bytes = journal::read_segment(segment)?;
        let mut table = policies.table();
        let found = journal::replay(&bytes, |record| match record {
            Record::Points { now, points } => replay.take_points(now, points, &table),
            Record::Metrics { now, metrics } => {
                replay.take_metrics(now, &metrics);
                table = replay.policies.table();
            }
            Record::Policy { id, policy } => {
                replay.ids.insert(id, replay.registry.intern(&policy));
                replay.policies.refresh(replay.registry);
                table = replay.policies.table();
            }
        });
        replay.restored.segments += 1;
        replay.restored.damaged_bytes += found.damaged_bytes;
        if found.damaged_bytes > 0 {
            tracing::warn!(
                file = %segment.path.display(), bytes = found.damaged_bytes, whole_records = found.records,
                "a journal segment has bytes that are no whole record; everything else in it was read"
            );
        }
        if SLOT_BYTES * replay.held_slots as u64 > memory_limit {
            break;
        }
    }
    replay.left.parked.ids = replay.ids.clone();
    for segment in segments {
        replay.leave_parked(segment)?;
    }
    let mut restored = replay.restored;
    restored.parked_points = replay.left.parked.points;
    restored.nameless_points = replay.early.values().map(|points| points.len() as u64).sum();
    if restored.nameless_points > 0 {
        tracing::error!(
            points = restored.nameless_points,
            "points in the journal name metrics that are nowhere; they are lost"
        );
    }
    counters.replayed_points.store(restored.points, Relaxed);
    counters.damaged_bytes.store(restored.damaged_bytes, Relaxed);
    Ok((restored, replay.left))
}

impl Replay<'_> {
    /// A state for every metric of the registry. Something of each may be stored.
    fn ensure_states(&mut self) {
        let names = self.registry.read();
        if let Some(last) = names.end().0.checked_sub(1).map(MetricId) {
            self.held.ensure(last, true, |number| {
                if names.name(number).is_empty() { NO_POLICY } else { names.policy_id(number) }
            });
        }
    }

    /// Takes only what is named in a segment; its points stay there.
    fn leave_parked(&mut self, segment: &Segment) -> io::Result<()> {
        let bytes = journal::read_segment(segment)?;
        for (length, record) in journal::records(&bytes) {
            match record {
                Record::Points { points, .. } => {
                    self.left.parked.points += points.len() as u64;
                    self.left.parked.bytes += length as u64;
                }
                Record::Metrics { now, metrics } => {
                    // Another policy of a metric that is known comes when its points before are stored.
                    let names = self.registry.read();
                    let is_new = |&(number, ..): &(MetricId, u16, &str)| names.name(number).is_empty();
                    let new: Vec<_> = metrics.iter().filter(|metric| is_new(metric)).copied().collect();
                    drop(names);
                    self.left.unlisted.extend(metrics.iter().map(|&(number, ..)| number));
                    self.take_metrics(now, &new);
                }
                Record::Policy { id, policy } => {
                    self.ids.insert(id, self.registry.intern(&policy));
                    self.policies.refresh(self.registry);
                }
            }
        }
        self.restored.segments += 1;
        self.left.parked.segment.get_or_insert(segment.number);
        Ok(())
    }

    fn take_metrics(&mut self, now: Timestamp, metrics: &[(MetricId, u16, &str)]) {
        let all = self.policies.table();
        let mut records = Vec::new();
        let mut numbers = Vec::new();
        for &(number, policy, name) in metrics {
            numbers.push(number);
            // Also what the registry has: it may have it from a file of names, and the metrics table not.
            self.left.unlisted.push(number);
            let policy = self.ids.get(&policy).copied();
            if !self.registry.read().name(number).is_empty() {
                if let Some(policy) = policy {
                    self.change_policy(number, policy, now, &all);
                }
                continue;
            }
            // A policy that the damage took costs the retention its first points are held by, not the points.
            let policy = policy.map_or_else(Default::default, |id| all.all[usize::from(id)].clone());
            let policies = vec![PolicyChange { since: 0, policy: (*policy).clone() }];
            records.push(MetricRecord { id: number, name: name.to_owned(), created_on: now, policies });
        }
        if !records.is_empty() {
            self.restored.metrics += records.len() as u64;
            let restored: Vec<MetricId> = records.iter().map(|record| record.id).collect();
            self.registry.restore(records);
            self.policies.refresh(self.registry);
            self.ensure_states();
            // A number below the highest in the metrics table had a state before it had a metric.
            let names = self.registry.read();
            for number in restored.into_iter().filter(|&number| !names.name(number).is_empty()) {
                self.held.states[number.index()].policy = names.policy_id(number);
            }
            // One that was missing in the middle has a state already, without a policy.
            let names = self.registry.read();
            for &number in &numbers {
                if let Some(state) = self.held.states.get_mut(number.index()).filter(|s| s.policy == NO_POLICY)
                    && !names.name(number).is_empty()
                {
                    state.policy = names.policy_id(number);
                }
            }
        }
        let table = self.policies.table();
        for number in numbers {
            for (now, point) in self.early.remove(&number).unwrap_or_default() {
                self.points.clear();
                self.points.push(point);
                self.hold(now, &table);
            }
        }
    }

    /// From here on the metric's points came under this policy.
    fn change_policy(&mut self, number: MetricId, policy: PolicyId, now: Timestamp, table: &PolicyTable) {
        if self.held.states[number.index()].policy == policy {
            return;
        }
        self.left.taken.extend(self.held.take_aside(number));
        self.held.set_policy(number, policy, &table.all);
        self.registry.set_policy(number, policy, now);
    }

    fn take_points(&mut self, now: Timestamp, points: journal::Points<'_>, table: &PolicyTable) {
        self.points.clear();
        for point in points {
            let state = self.held.states.get(point.metric.index());
            if state.is_some_and(|state| state.policy != NO_POLICY) {
                self.points.push(point);
            } else {
                self.early.entry(point.metric).or_default().push((now, point));
            }
        }
        self.hold(now, table);
    }

    fn hold(&mut self, now: Timestamp, table: &PolicyTable) {
        self.refused.clear();
        self.held_slots += self.held.apply(&self.points, now, &table.hot, &mut self.refused);
        for &(place, reason) in &self.refused {
            if reason == RejectReason::TooOld {
                self.held_slots += self.held.apply_old(&self.points[place], now, &table.all).unwrap_or(0);
            }
        }
        self.restored.points += self.points.len() as u64;
    }
}
