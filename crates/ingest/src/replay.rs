//! The journal read back at the start.

use std::{collections::HashMap, io, sync::atomic::Ordering::Relaxed};

use carbon::Reject;
use metadata::{PolicyId, Registry};
use metric::Timestamp;
use store::{MetricRecord, PolicyChange};

use crate::{
    counters::Counters,
    held::Held,
    journal::{self, NumberedPoint, Record, Segment},
    policies::{Policies, PolicyTable},
};

/// What was found in the journal at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Segments read.
    pub segments: u64,
    /// Points that are held again.
    pub points: u64,
    /// Metrics that the metrics table did not have yet.
    pub metrics: u64,
    /// Bytes that belonged to no whole record: a torn tail after a crash, or damage.
    pub damaged_bytes: u64,
    /// Points whose metric is named nowhere, lost with the record that named it.
    pub nameless_points: u64,
}

struct Replay<'a> {
    registry: &'a Registry,
    held: &'a mut Held,
    policies: &'a Policies,
    // The ids that the journal gives policies are those of the process that wrote it.
    ids: HashMap<u16, PolicyId>,
    unlisted: Vec<u32>,
    // Points that came before their metric; with an intact journal there are none.
    early: HashMap<u32, Vec<(Timestamp, NumberedPoint)>>,
    restored: Restored,
    points: Vec<NumberedPoint>,
    refused: Vec<(usize, Reject)>,
}

/// Reads every segment, oldest first, into `held`, and metrics that the registry does not have into the
/// registry. Returns what was found and the numbers of metrics to be written to the metrics table.
pub(crate) fn replay_segments(
    segments: &[Segment],
    registry: &Registry,
    held: &mut Held,
    policies: &Policies,
    counters: &Counters,
) -> io::Result<(Restored, Vec<u32>)> {
    policies.refresh(registry);
    let mut replay = Replay {
        registry,
        held,
        policies,
        ids: HashMap::new(),
        unlisted: Vec::new(),
        early: HashMap::new(),
        restored: Restored::default(),
        points: Vec::new(),
        refused: Vec::new(),
    };
    replay.ensure_states();
    for segment in segments {
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
    }
    let mut restored = replay.restored;
    restored.nameless_points = replay.early.values().map(|points| points.len() as u64).sum();
    if restored.nameless_points > 0 {
        tracing::error!(
            points = restored.nameless_points,
            "points in the journal name metrics that are nowhere; they are lost"
        );
    }
    counters.replayed_points.store(restored.points, Relaxed);
    counters.damaged_bytes.store(restored.damaged_bytes, Relaxed);
    Ok((restored, replay.unlisted))
}

impl Replay<'_> {
    /// A state for every metric of the registry. Something of each may be stored.
    fn ensure_states(&mut self) {
        let names = self.registry.read();
        if let Some(last) = names.end().checked_sub(1) {
            // A number without a metric keeps a state that nothing will ever touch.
            self.held.ensure(
                last,
                true,
                |number| if names.name(number).is_empty() { 0 } else { names.policy_id(number) },
            );
        }
    }

    fn take_metrics(&mut self, now: Timestamp, metrics: &[(u32, u16, &str)]) {
        let all = self.policies.table();
        let mut records = Vec::new();
        let mut numbers = Vec::new();
        for &(number, policy, name) in metrics {
            numbers.push(number);
            if !self.registry.read().name(number).is_empty() {
                continue;
            }
            // A policy that the damage took costs the retention its first points are held by, not the points.
            let policy = self.ids.get(&policy).map_or_else(Default::default, |&id| all.all[usize::from(id)].clone());
            let policies = vec![PolicyChange { since: 0, policy: (*policy).clone() }];
            records.push(MetricRecord { number, name: name.to_owned(), created_on: now, policies });
            self.unlisted.push(number);
        }
        if !records.is_empty() {
            self.restored.metrics += records.len() as u64;
            self.registry.restore(records);
            self.policies.refresh(self.registry);
            self.ensure_states();
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

    fn take_points(&mut self, now: Timestamp, points: journal::Points<'_>, table: &PolicyTable) {
        self.points.clear();
        let known = self.held.states.len() as u32;
        for point in points {
            if point.metric < known {
                self.points.push(point);
            } else {
                self.early.entry(point.metric).or_default().push((now, point));
            }
        }
        self.hold(now, table);
    }

    fn hold(&mut self, now: Timestamp, table: &PolicyTable) {
        self.refused.clear();
        self.held.apply(&self.points, now, &table.hot, &mut self.refused);
        for &(place, reason) in &self.refused {
            if reason == Reject::TooOld {
                self.held.apply_old(&self.points[place], now, &table.all);
            }
        }
        self.restored.points += self.points.len() as u64;
    }
}
