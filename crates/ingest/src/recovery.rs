//! The journal read back at the start: every name, and as many points as there is memory for. Further segments are left
//! to be read back as spilled points.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use host::Now;
use metadata::Registry;
use metric::{MetricId, Timestamp};
use store::{MetricRecord, PolicyChange};

use crate::{
    flush::RowWriter,
    memtable::{FlushJob, LockedMemtable, Memtable},
    policy_table::{JournalPolicyIds, Policies},
    spill::LeftInJournal,
    wal::{self, Folder, Journal, Journalled, Points, Record, ResolvedPoint, Segment},
};

/// Jobs written together.
const GROUP: usize = 512;

/// The result of replaying the journal at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Segments read.
    pub segments: u64,
    /// Points that are in memory again.
    pub points: u64,
    /// Points that memory had no room for: they are read back as the store takes the others.
    pub parked_points: u64,
    /// Metrics that the metrics table did not have yet.
    pub metrics: u64,
    /// Bytes outside of intact records: a torn tail after a crash, or damage.
    pub damaged_bytes: u64,
    /// Points whose metric is named nowhere, lost with the record that named it.
    pub nameless_points: u64,
}

/// The work that a recovery leaves.
#[derive(Default)]
pub(crate) struct Recovered {
    pub(crate) restored: Restored,
    /// Metrics to be written to the metrics table.
    pub(crate) unregistered: Vec<MetricId>,
    /// Metrics to be deleted from the metrics table.
    pub(crate) deleted: HashSet<MetricId>,
    /// The points of metrics that were given another policy, in the order of the changes: to be stored by the policy
    /// they came under, before any other.
    pub(crate) jobs: Vec<Arc<FlushJob>>,
    /// The segments that memory had no room for.
    pub(crate) left: LeftInJournal,
    /// The ids that the journal gives policies.
    pub(crate) ids: JournalPolicyIds,
}

/// Reads the segments, oldest first, into the memtable until that is full, and metrics that the registry does not have
/// into the registry. Returns what was found and what is left to be done.
pub(crate) fn recover(
    folder: &Folder,
    registry: &Registry,
    policies: &Policies,
    memtable: &Memtable,
    memory_limit: u64,
) -> io::Result<Recovered> {
    let mut replay = Replay {
        registry,
        policies,
        memtable: memtable.lock(),
        recovered: Recovered::default(),
        bytes: 0,
        early: HashMap::new(),
        points: Vec::new(),
    };
    replay.memtable.ensure_all();
    let segments = folder.segments()?;
    let mut segments = segments.iter();
    for segment in segments.by_ref() {
        replay.take_segment(folder, segment)?;
        if replay.bytes > memory_limit {
            break;
        }
    }
    let ids = replay.recovered.ids.clone();
    for segment in segments {
        replay.leave_segment(folder, segment)?;
    }
    let Replay { mut recovered, early, .. } = replay;
    recovered.ids = ids;
    recovered.restored.parked_points = recovered.left.points;
    recovered.restored.nameless_points = early.values().map(|points| points.len() as u64).sum();
    if recovered.restored.nameless_points > 0 {
        tracing::error!(
            points = recovered.restored.nameless_points,
            "the journal has points of unknown metrics; dropped them"
        );
    }
    Ok(recovered)
}

/// Counts what was found, once the journal is open.
pub(crate) fn count(restored: &Restored, journal: &Journal) {
    journal.counters().replayed_points.store(restored.points, Relaxed);
    journal.counters().damaged_bytes.store(restored.damaged_bytes, Relaxed);
}

/// Stores the jobs in their order: those of one metric one after the other. Others may be taken afterwards.
pub(crate) async fn write_jobs(
    jobs: Vec<Arc<FlushJob>>,
    writer: Arc<RowWriter>,
    journal: Arc<Journal>,
    memtable: Arc<Memtable>,
) {
    let mut group: Vec<Arc<FlushJob>> = Vec::new();
    let mut metrics = HashSet::new();
    for job in jobs {
        if group.len() == GROUP || metrics.contains(&job.metric) {
            writer.write_after_names(std::mem::take(&mut group), &journal).await;
            metrics.clear();
        }
        metrics.insert(job.metric);
        group.push(job);
    }
    writer.write_after_names(group, &journal).await;
    memtable.jobs_aside_are_stored();
}

struct Replay<'a> {
    registry: &'a Registry,
    policies: &'a Policies,
    memtable: LockedMemtable<'a>,
    recovered: Recovered,
    /// Bytes of points in memory.
    bytes: u64,
    // Points before the record of their metric; an intact journal has none.
    early: HashMap<MetricId, Vec<(Now, ResolvedPoint)>>,
    points: Vec<ResolvedPoint>,
}

impl Replay<'_> {
    fn take_segment(&mut self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        let bytes = folder.read(segment)?;
        let found = wal::replay(&bytes, |record| match record {
            Record::Points { now, points } => self.take_points(now, points),
            Record::Metrics { now, metrics } => self.take_metrics(now, &metrics),
            Record::Policy { id, policy } => self.take_policy(id, &policy),
        });
        self.recovered.restored.segments += 1;
        self.recovered.restored.damaged_bytes += found.damaged_bytes;
        if found.damaged_bytes > 0 {
            tracing::warn!(
                file = %segment.path.display(), bytes = found.damaged_bytes, whole_records = found.records,
                "a journal segment has damaged bytes; replayed its intact records and skipped the rest"
            );
        }
        Ok(())
    }

    /// Takes only the names of a segment; its points stay there.
    fn leave_segment(&mut self, folder: &Folder, segment: &Segment) -> io::Result<()> {
        let bytes = folder.read(segment)?;
        for (length, record) in wal::records(&bytes) {
            match record {
                Record::Points { points, .. } => {
                    self.recovered.left.points += points.len() as u64;
                    self.recovered.left.bytes += length as u64;
                }
                Record::Metrics { now, metrics } => {
                    // A known metric gets its other policy when the points before are stored.
                    let new: Vec<_> = {
                        let names = self.registry.read();
                        let is_new = |&(metric, _, name): &(MetricId, u16, &str)| {
                            name.is_empty() || names.name(metric).is_empty()
                        };
                        metrics.iter().filter(|metric| is_new(metric)).copied().collect()
                    };
                    self.recovered.unregistered.extend(metrics.iter().map(|&(metric, ..)| metric));
                    self.take_metrics(now, &new);
                }
                Record::Policy { id, policy } => self.take_policy(id, &policy),
            }
        }
        self.recovered.restored.segments += 1;
        self.recovered.left.segment.get_or_insert(segment.number);
        Ok(())
    }

    fn take_policy(&mut self, id: u16, policy: &metric::Policy) {
        self.recovered.ids.insert(id, self.policies.intern(policy));
        self.memtable.refresh_policies();
    }

    fn take_metrics(&mut self, now: Timestamp, metrics: &[(MetricId, u16, &str)]) {
        self.take_deletions(metrics);
        let mut records = Vec::new();
        for &(metric, policy, name) in metrics {
            if self.recovered.deleted.contains(&metric) {
                continue;
            }
            // Also metrics that the registry has: it may have them from a file of names, and the metrics table not.
            self.recovered.unregistered.push(metric);
            let policy = self.recovered.ids.get(&policy).copied();
            if !self.registry.read().name(metric).is_empty() {
                if let Some(policy) = policy {
                    self.change_policy(metric, policy, now);
                }
                continue;
            }
            // A policy lost to damage costs the retention that its first points are kept by, not the points.
            let policy =
                policy.map_or_else(Default::default, |id| (*self.memtable.policies().all[usize::from(id)]).clone());
            let policies = vec![PolicyChange { since: 0, policy }];
            records.push(MetricRecord { id: metric, name: name.to_owned(), created_on: now, policies });
        }
        self.restore(records);
        for &(metric, ..) in metrics {
            for (now, point) in self.early.remove(&metric).unwrap_or_default() {
                self.points.clear();
                self.points.push(point);
                self.apply(now);
            }
        }
    }

    /// Lets go of the metrics that were deleted, the points that they had until then, and those that were on their way.
    fn take_deletions(&mut self, metrics: &[(MetricId, u16, &str)]) {
        let deleted = metrics.iter().filter(|(.., name)| name.is_empty()).map(|&(metric, ..)| metric);
        let deleted: Vec<MetricId> = deleted.collect();
        if deleted.is_empty() {
            return;
        }
        self.bytes = self.bytes.saturating_sub(self.memtable.delete_recovered(&deleted).bytes);
        self.registry.remove(&deleted);
        for metric in &deleted {
            self.early.remove(metric);
        }
        self.recovered.deleted.extend(deleted);
    }

    /// Gives metrics that only the journal has to the registry, and slots.
    fn restore(&mut self, records: Vec<MetricRecord>) {
        if records.is_empty() {
            return;
        }
        self.recovered.restored.metrics += records.len() as u64;
        let restored: Vec<MetricId> = records.iter().map(|record| record.id).collect();
        self.registry.restore(records);
        self.policies.refresh();
        self.memtable.refresh_policies();
        self.memtable.ensure_all();
        // An id below the highest in the metrics table had slots before it had a metric.
        let names = self.registry.read();
        for metric in restored.into_iter().filter(|&metric| !names.name(metric).is_empty()) {
            self.memtable.begin(metric, names.policy_id(metric));
        }
    }

    /// From here on the metric's points were accepted under this policy.
    fn change_policy(&mut self, metric: MetricId, policy: metadata::PolicyId, now: Timestamp) {
        if self.memtable.policy(metric) == Some(policy) {
            return;
        }
        self.recovered.jobs.extend(self.memtable.take_aside(metric));
        self.memtable.set_policy(metric, policy);
        self.registry.set_policy(metric, policy, now);
    }

    fn take_points(&mut self, now: Now, points: Points<'_>) {
        self.points.clear();
        for point in points {
            if self.memtable.policy(point.metric).is_some() {
                self.points.push(point);
            } else if !self.recovered.deleted.contains(&point.metric) {
                self.early.entry(point.metric).or_default().push((now, point));
            }
        }
        self.apply(now);
    }

    fn apply(&mut self, now: Now) {
        self.bytes += u64::from(self.memtable.apply_recovered(Journalled::read_back(&self.points, now)).bytes);
        self.recovered.restored.points += self.points.len() as u64;
    }
}
