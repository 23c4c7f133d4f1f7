//! What a replay of the journal leaves: counts, names for the metrics table, and points to be stored before all others.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use metadata::Registry;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use store::Identity;

use crate::{
    deleted_ids::DeletedIds,
    flush::{ReadFrom, RowWriter},
    journal_ids::JournalIds,
    known_changes::KnownChanges,
    memtable::{FlushJob, Memtable},
    policy_table::JournalPolicyIds,
    spill::LeftInJournal,
    wal::Journal,
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
    /// Points whose metric is named nowhere, because the record that named it is lost, or because the store was restored
    /// from an earlier time: they are kept in the folder for what is damaged.
    pub nameless_points: u64,
}

/// The work that a recovery leaves.
#[derive(Default)]
pub(crate) struct Recovered {
    pub(crate) restored: Restored,
    /// Metrics to be written to the metrics table.
    pub(crate) unregistered: Vec<MetricId>,
    /// Metrics that have another id here than in the journal: the new segments must name them, because a replay that comes
    /// before the metrics table has them may give them others.
    pub(crate) given_ids: HashSet<MetricId>,
    /// Metrics whose policy changed in what was replayed. The saved times of their points may be older than the change.
    pub(crate) changed: HashSet<MetricId>,
    /// Metrics to be deleted from the metrics table.
    pub(crate) deleted: HashSet<MetricId>,
    /// The points of metrics that were given another policy, in the order of the changes: to be stored by the policy
    /// they came under, before any other.
    pub(crate) jobs: Vec<Arc<FlushJob>>,
    /// The segments that memory had no room for.
    pub(crate) left: LeftInJournal,
    /// The ids that the journal gives policies, up to where points are left.
    pub(crate) policies: JournalPolicyIds,
    /// Whose metric an id of the journal is.
    pub(crate) ids: JournalIds,
    /// The segments that were read, by their numbers, and the bytes of each; also those that are not replayed.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// The ids that the journal also deletes; `None` while no record depends on them.
    pub(crate) deleted_ids: Option<DeletedIds>,
    /// The changes of policy that the store has, from where points are left on.
    pub(crate) known_changes: KnownChanges,
}

impl Recovered {
    /// Where the reading back of the points that were left goes on, with a store of this identity.
    pub(crate) fn reading(&mut self, identity: Identity) -> ReadFrom {
        let mut ids = std::mem::take(&mut self.ids);
        ids.set_ours(identity);
        let left = self.left.segment.map(|segment| (segment, self.left.offset));
        let deleted = self.deleted_ids.take().unwrap_or_default();
        let (policies, segments) = (std::mem::take(&mut self.policies), std::mem::take(&mut self.left.segments));
        let known_changes = std::mem::take(&mut self.known_changes);
        ReadFrom { policies, ids, deleted, left, segments, known_changes }
    }
}
/// Jobs in the order in which they are to be stored.
#[derive(Default)]
pub(crate) struct JobsAside {
    /// Those of deleted metrics are gone.
    jobs: Vec<Option<Arc<FlushJob>>>,
    places: HashMap<MetricId, Vec<usize>>,
}

impl JobsAside {
    pub(crate) fn push(&mut self, job: Arc<FlushJob>) {
        self.places.entry(job.metric).or_default().push(self.jobs.len());
        self.jobs.push(Some(job));
    }

    /// Takes out the jobs of one metric.
    pub(crate) fn take(&mut self, metric: MetricId) -> impl Iterator<Item = Arc<FlushJob>> {
        let places = self.places.remove(&metric).unwrap_or_default();
        places.into_iter().filter_map(|place| self.jobs[place].take())
    }

    /// All of them.
    pub(crate) fn into_jobs(self) -> impl Iterator<Item = Arc<FlushJob>> {
        self.jobs.into_iter().flatten()
    }
}

/// Names the metrics in the open journal that have other ids there.
pub(crate) async fn name_given_ids(
    given: &HashSet<MetricId>,
    registry: &Registry,
    journal: &Arc<Journal>,
    now: Timestamp,
) -> io::Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    {
        let names = registry.read();
        // Those that the journal also deletes have no name.
        for &metric in given.iter().filter(|&&metric| !names.name(metric).is_empty()) {
            journal.name_metric(metric, names.policy_id(metric), names.name(metric), now);
        }
    }
    journal.append_names().await
}

/// Counts what was found, once the journal is open.
pub(crate) fn count(restored: &Restored, journal: &Journal) {
    journal.counters().replayed_points.store(restored.points, Relaxed);
    journal.counters().damaged_bytes.store(restored.damaged_bytes, Relaxed);
    journal.counters().nameless_points.store(restored.nameless_points, Relaxed);
}

/// Stores the jobs in their order: those of one metric one after the other, and none behind one that is kept back. Others may be
/// taken afterwards. After a panic it goes on where it was when it is called again.
pub(crate) async fn write_jobs(
    jobs: Arc<Mutex<VecDeque<Arc<FlushJob>>>>,
    writer: Arc<RowWriter>,
    journal: Arc<Journal>,
    memtable: Arc<Memtable>,
) {
    loop {
        // Of a group whose writing panicked.
        let mut group = memtable.lock().abandoned_aside();
        if group.is_empty() {
            group = next_group(&mut jobs.lock());
        }
        if group.is_empty() {
            break;
        }
        writer.write_in_turn(group, &journal).await;
    }
    memtable.jobs_aside_were_written();
}

/// The next jobs, of different metrics.
fn next_group(jobs: &mut VecDeque<Arc<FlushJob>>) -> Vec<Arc<FlushJob>> {
    let (mut group, mut metrics) = (Vec::new(), HashSet::new());
    while group.len() < GROUP
        && jobs.front().is_some_and(|job| !metrics.contains(&job.metric))
        && let Some(job) = jobs.pop_front()
    {
        metrics.insert(job.metric);
        group.push(job);
    }
    group
}
