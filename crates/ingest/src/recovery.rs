//! The journal read back at the start: every name, and as many points as there is memory for. Further segments are left
//! to be read back as spilled points.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use carbon::{Decision, Rules};
use host::Now;
use metadata::Registry;
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;
use store::{Identity, JournalMark, MetricRecord, PolicyChange};

use crate::{
    back_pressure::Held,
    deleted_ids::DeletedIds,
    flush::{ReadFrom, RowWriter},
    journal_ids::{JournalIds, Writer},
    known_changes::KnownChanges,
    memtable::{FlushJob, LockedMemtable, Memtable},
    options::IngestError,
    policy_table::{JournalPolicyIds, Policies},
    spill::LeftInJournal,
    wal::{
        self, Folder, Journal, JournalDamage, Journalled, PlanError, Planned, Points, Record, ResolvedPoint, Segment,
    },
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
    /// The ids that the journal also deletes; `None` while no record depends on them.
    pub(crate) deleted_ids: Option<DeletedIds>,
}

impl Recovered {
    /// Where the reading back of the points that were left goes on, with a store of this identity.
    pub(crate) fn reading(&mut self, identity: Identity) -> ReadFrom {
        let mut ids = std::mem::take(&mut self.ids);
        ids.set_ours(identity);
        let left = self.left.segment.map(|segment| (segment, self.left.offset));
        let deleted = self.deleted_ids.take().unwrap_or_default();
        ReadFrom { policies: std::mem::take(&mut self.policies), ids, deleted, left }
    }
}

/// Where a recovery reads from, and what it fills.
pub(crate) struct Recovery<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) damage: &'a JournalDamage,
    /// The store's, as it was found.
    pub(crate) identity: Identity,
    /// How much of the journal the store has.
    pub(crate) mark: Option<JournalMark>,
    pub(crate) registry: &'a Registry,
    pub(crate) rules: &'a Rules,
    pub(crate) policies: &'a Policies,
    pub(crate) memtable: &'a Memtable,
    /// Bytes of points in memory at which the rest is left.
    pub(crate) memory_limit: u64,
}

/// Reads the segments, oldest first, into the memtable until that is full, and metrics that the registry does not have
/// into the registry. Returns what was found and what is left to be done. Every segment is on the disk then.
pub(crate) fn recover(recovery: Recovery<'_>) -> Result<Recovered, IngestError> {
    let Recovery { folder, damage, identity, mark, registry, rules, policies, memtable, memory_limit } = recovery;
    let planned = plan(folder, &identity)?;
    let ids_given = planned.iter().filter_map(|planned| Some(planned.header.as_ref()?.next_id));
    let ids_opened = identity.chain.iter().map(|opening| opening.first_id);
    if let Some(highest) = ids_given.chain(ids_opened).max() {
        registry.never_give_below(highest);
    }
    let planned = wal::leave_out_stored(folder, damage, planned, mark, &identity)
        .map_err(|source| IngestError::Journal { dir: folder.dir().to_owned(), source })?;
    let known_changes = KnownChanges::find(folder, &planned, registry, policies);
    let mut replay = Replay {
        known_changes,
        folder,
        planned: &planned,
        identity: &identity,
        registry,
        rules,
        policies,
        memtable: memtable.lock(),
        ids: JournalIds::new(identity.clone()),
        writer: 0,
        recovered: Recovered::default(),
        left_ids: None,
        memory_limit,
        bytes: 0,
        early: HashMap::new(),
        left_early: HashMap::new(),
        is_fresh_safe: false,
        failed: None,
        points: Vec::new(),
    };
    replay.memtable.ensure_all();
    for (metric, policy) in replay.known_changes.first_policies(registry) {
        replay.memtable.set_policy(metric, policy);
    }
    let io = |source| IngestError::Journal { dir: folder.dir().to_owned(), source };
    for planned in &planned {
        let read = replay.read_segment(damage, planned);
        replay.failed.take().map_or(read.map_err(io), Err)?;
    }
    if !planned.is_empty() {
        folder.sync_entries().map_err(io)?;
    }
    replay.end_changes();
    replay.keep_nameless(damage, &planned).map_err(io)?;
    let Replay { mut recovered, ids, left_ids, .. } = replay;
    recovered.policies = left_ids.unwrap_or(recovered.policies);
    recovered.ids = ids;
    recovered.restored.parked_points = recovered.left.points;
    Ok(recovered)
}

/// The segments to read. Refuses those of a later program and those of another store.
fn plan(folder: &Folder, ours: &Identity) -> Result<Vec<Planned>, IngestError> {
    let dir = || folder.dir().to_owned();
    let planned = folder.plan().map_err(|error| match error {
        PlanError::Disk(source) => IngestError::Journal { dir: dir(), source },
        PlanError::Unreadable { segment, source } => IngestError::UnreadableJournal { file: segment.path, source },
        PlanError::Newer { segment, version } => IngestError::NewerJournal { file: segment.path, version },
    })?;
    let stores = planned.iter().filter_map(|planned| Some(planned.header.as_ref()?.identity.store));
    match stores.into_iter().find(|&theirs| theirs != 0 && ours.store != 0 && theirs != ours.store) {
        Some(theirs) => Err(IngestError::OtherStore { dir: dir(), theirs, ours: ours.store }),
        None => Ok(planned),
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

/// Stores the jobs in their order: those of one metric one after the other. Others may be taken afterwards. After a panic it
/// goes on where it was when it is called again.
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
        writer.write_after_names(group, &journal).await;
    }
    memtable.jobs_aside_are_stored();
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

struct Replay<'a> {
    known_changes: KnownChanges,
    folder: &'a Folder,
    planned: &'a [Planned],
    /// The store's.
    identity: &'a Identity,
    registry: &'a Registry,
    rules: &'a Rules,
    policies: &'a Policies,
    memtable: LockedMemtable<'a>,
    ids: JournalIds,
    /// Who wrote the segment that is read.
    writer: Writer,
    recovered: Recovered,
    /// The ids of policies where points began to be left.
    left_ids: Option<JournalPolicyIds>,
    memory_limit: u64,
    /// Bytes of points in memory.
    bytes: u64,
    // Points before the record of their metric; an intact journal of this store has none.
    early: HashMap<(Writer, MetricId), Vec<(Now, ResolvedPoint)>>,
    /// As `early`, of points that are left: they are read back if they are named by then.
    left_early: HashMap<(Writer, MetricId), Vec<(Now, ResolvedPoint)>>,
    /// Whether new ids are above all that the journal has.
    is_fresh_safe: bool,
    /// Why the replay cannot go on.
    failed: Option<IngestError>,
    points: Vec<ResolvedPoint>,
}

impl Replay<'_> {
    fn read_segment(&mut self, damage: &JournalDamage, planned: &Planned) -> io::Result<()> {
        let segment = &planned.segment;
        let bytes = match self.folder.read_patiently(segment) {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.fail(segment, error)),
        };
        let writer = self.ids.begin(planned);
        // Each writer numbers policies itself, and names them all in each segment.
        if writer != self.writer || planned.is_header_lost {
            self.recovered.policies.clear();
        }
        self.writer = writer;
        let mut records = planned.records(&bytes);
        for (place, record) in records.by_ref() {
            if self.recovered.left.segment.is_some() || self.memory_limit < self.bytes {
                self.leave(segment.number, place, record);
            } else {
                self.take(record);
            }
        }
        self.recovered.restored.segments += 1;
        self.recovered.restored.damaged_bytes += records.replayed.damaged_bytes;
        planned.keep_damage(damage, &bytes, &records)?;
        self.folder.sync(segment)
    }

    /// A segment that cannot be read ends the start: going on could lose points, or give them to other metrics.
    fn fail(&mut self, segment: &Segment, error: io::Error) -> io::Error {
        let why = error.to_string();
        self.failed = Some(IngestError::UnreadableJournal { file: segment.path.clone(), source: error });
        io::Error::other(why)
    }

    fn take(&mut self, record: Record<'_>) {
        match record {
            Record::Points { now, points } => self.take_points(now, points),
            Record::Metrics { now, metrics } => self.take_metrics(now, &metrics, true),
            Record::Policy { id, policy } => self.take_policy(id, &policy),
            Record::Segment { .. } => {}
        }
    }

    /// Takes only the names of a record; its points stay in the journal.
    fn leave(&mut self, segment: u64, place: Range<usize>, record: Record<'_>) {
        if self.recovered.left.segment.is_none() {
            (self.recovered.left.segment, self.recovered.left.offset) = (Some(segment), place.start);
            self.left_ids = Some(self.recovered.policies.clone());
            // What is read back may be stored before the record of a deletion is read.
            self.look_for_deletions();
        }
        let left = &mut self.recovered.left;
        match record {
            Record::Points { now, points } => {
                left.points += points.len() as u64;
                left.bytes += place.len() as u64;
                self.look_for_names(now, points);
            }
            // A known metric gets its other policy when the points before are stored.
            Record::Metrics { now, metrics } => self.take_metrics(now, &metrics, false),
            Record::Policy { id, policy } => self.take_policy(id, &policy),
            Record::Segment { .. } => {}
        }
    }

    fn take_policy(&mut self, id: u16, policy: &metric::Policy) {
        self.recovered.policies.insert(id, self.policies.intern(policy));
        self.memtable.refresh_policies();
    }

    fn take_metrics(&mut self, now: Timestamp, metrics: &[(MetricId, u16, &str)], with_changes: bool) {
        let mut records = Vec::new();
        let mut deletions = Vec::new();
        for &(metric, policy, name) in metrics {
            if name.is_empty() {
                self.restore(std::mem::take(&mut records));
                deletions.push(metric);
                continue;
            }
            self.take_deletions(std::mem::take(&mut deletions));
            if self.has_another_id(metric, name) {
                self.look_for_deletions();
            }
            let resolved = self.ids.of(self.writer).resolve(metric);
            if self.is_deleted(metric) || resolved.is_some_and(|id| self.recovered.deleted.contains(&id)) {
                continue;
            }
            let (id, is_new) = self.identify(metric, name);
            // Also metrics that the registry has: it may have them from a file of names, and the metrics table not.
            self.recovered.unregistered.push(id);
            let policy = self.recovered.policies.get(&policy).copied();
            if !is_new {
                if let Some(policy) = policy.filter(|_| with_changes) {
                    self.change_policy(id, policy, now);
                }
                continue;
            }
            // Where a policy's record is lost, the rules in force most likely say the same.
            let policy = match policy {
                Some(id) => (*self.memtable.policies().all[usize::from(id)]).clone(),
                None => match self.rules.decide(name) {
                    Decision::Keep(index) => self.rules.policies()[index.get()].clone(),
                    _ => metric::Policy::default(),
                },
            };
            let policies = vec![PolicyChange { since: 0, policy }];
            records.push(MetricRecord { id, name: name.to_owned(), created_on: now, policies });
            if id != metric {
                // The next one must find it, or get another id.
                self.restore(std::mem::take(&mut records));
            }
        }
        self.take_deletions(deletions);
        self.restore(records);
        for &(metric, ..) in metrics {
            self.left_early.remove(&(self.writer, metric));
            let early = self.early.remove(&(self.writer, metric)).unwrap_or_default();
            if self.is_deleted(metric) {
                continue;
            }
            for (now, point) in early {
                let Some(metric) = self.ids.of(self.writer).resolve(metric) else { continue };
                self.points.clear();
                self.points.push(ResolvedPoint { metric, ..point });
                self.apply(now);
            }
        }
    }

    /// Whether the store has a name under another id than the journal.
    fn has_another_id(&self, metric: MetricId, name: &str) -> bool {
        let names = self.registry.read();
        names.find(self.registry.hash(name.as_bytes()), name.as_bytes()).is_some_and(|known| known != metric)
    }

    /// Sees to it that everything under the ids that the journal deletes is left out from here on.
    fn look_for_deletions(&mut self) {
        let scan = || DeletedIds::scan(self.folder, self.identity, self.planned);
        self.recovered.deleted_ids.get_or_insert_with(scan);
    }

    /// Whether the writer's id is known to be deleted further behind.
    fn is_deleted(&self, metric: MetricId) -> bool {
        let is_common = self.ids.of(self.writer).is_common(metric);
        self.recovered.deleted_ids.as_ref().is_some_and(|ids| ids.contains(self.writer, metric, is_common))
    }

    /// Lets go of metrics that were deleted, the points that they had until then, and those that were on their way. All at
    /// once: each removal of names reads all of the newest.
    fn take_deletions(&mut self, metrics: Vec<MetricId>) {
        let mut deleted = Vec::with_capacity(metrics.len());
        for metric in metrics {
            self.early.remove(&(self.writer, metric));
            self.left_early.remove(&(self.writer, metric));
            let ids = self.ids.of(self.writer);
            let (is_common, ours) = (ids.is_common(metric), ids.resolve(metric));
            if let Some(ours) = ours.filter(|&ours| ours != metric || !is_common) {
                self.drop_points(ours);
                // The store may have a metric of that name that came later; not one that this replay made.
                if self.recovered.given_ids.contains(&ours) {
                    deleted.push(ours);
                }
            }
            if is_common {
                deleted.push(metric);
            }
        }
        if !deleted.is_empty() {
            self.bytes = self.bytes.saturating_sub(self.memtable.delete_recovered(&deleted).bytes);
            self.registry.remove(&deleted);
            self.recovered.deleted.extend(deleted);
        }
    }

    /// Drops the points that a metric has so far.
    fn drop_points(&mut self, metric: MetricId) {
        if let Some(job) = self.memtable.take_aside(metric) {
            self.bytes = self.bytes.saturating_sub(Held::from(&job.points).bytes);
            self.recovered.jobs.push(job);
        }
        for job in self.recovered.jobs.extract_if(.., |job| job.metric == metric) {
            self.memtable.stored(&job, None);
        }
    }

    /// The store's id of a metric that the journal names, and whether it is a new one.
    fn identify(&mut self, metric: MetricId, name: &str) -> (MetricId, bool) {
        let ids = self.ids.of_mut(self.writer);
        {
            let names = self.registry.read();
            let known = names.find(self.registry.hash(name.as_bytes()), name.as_bytes());
            // A hidden one is not found.
            if let Some(known) = known.or_else(|| (names.name(metric) == name).then_some(metric)) {
                ids.name(metric, known);
                return (known, false);
            }
            if ids.is_common(metric) && names.name(metric).is_empty() {
                ids.name(metric, metric);
                return (metric, true);
            }
        }
        self.make_fresh_safe();
        let fresh = self.registry.read().end();
        self.ids.of_mut(self.writer).name(metric, fresh);
        self.recovered.given_ids.insert(fresh);
        (fresh, true)
    }

    /// Sees to it that a new id is above every id that the journal has, also of segments that are not read yet.
    fn make_fresh_safe(&mut self) {
        if std::mem::replace(&mut self.is_fresh_safe, true) {
            return;
        }
        let mut end = MetricId(0);
        let segments = self.folder.segments().unwrap_or_else(|source| {
            self.failed = Some(IngestError::Journal { dir: self.folder.dir().to_owned(), source });
            Vec::new()
        });
        for segment in segments {
            let bytes = self.folder.read_patiently(&segment).unwrap_or_else(|error| {
                self.fail(&segment, error);
                Vec::new()
            });
            wal::replay(&bytes, |record| match record {
                Record::Points { points, .. } => points.for_each(|point| end = end.max(after(point.metric))),
                Record::Metrics { metrics, .. } => metrics.iter().for_each(|&(id, ..)| end = end.max(after(id))),
                _ => {}
            });
        }
        self.registry.never_give_below(end);
        self.memtable.ensure_all();
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
        // The store may have got the change already.
        if !self.known_changes.take(metric, policy, self.registry) {
            self.registry.set_policy(metric, policy, now);
        }
    }

    /// Gives metrics whose last change is not in the journal the policies that the store names.
    fn end_changes(&mut self) {
        if self.recovered.left.segment.is_some() {
            return;
        }
        for metric in self.known_changes.metrics() {
            let Some(policy) = self.registry.policies(metric).map(|history| history.current()) else { continue };
            if self.memtable.policy(metric).is_some_and(|known| known != policy) {
                self.recovered.jobs.extend(self.memtable.take_aside(metric));
                self.memtable.set_policy(metric, policy);
            }
        }
    }

    fn take_points(&mut self, now: Now, points: Points<'_>) {
        self.points.clear();
        let ids = self.ids.of(self.writer);
        let deleted = self.recovered.deleted_ids.as_ref();
        for point in points {
            if deleted.is_some_and(|all| all.contains(self.writer, point.metric, ids.is_common(point.metric))) {
                continue;
            }
            let id = ids.resolve(point.metric);
            match id.filter(|&metric| self.memtable.policy(metric).is_some()) {
                Some(metric) => self.points.push(ResolvedPoint { metric, ..point }),
                // Of a metric that was deleted.
                None if id.is_some_and(|id| self.recovered.deleted.contains(&id)) => {}
                None => self.early.entry((self.writer, point.metric)).or_default().push((now, point)),
            }
        }
        self.apply(now);
    }

    fn apply(&mut self, now: Now) {
        self.bytes += u64::from(self.memtable.apply_recovered(Journalled::read_back(&self.points, now)).bytes);
        self.recovered.restored.points += self.points.len() as u64;
    }

    /// Takes note of left points that nothing names so far.
    fn look_for_names(&mut self, now: Now, points: Points<'_>) {
        let ids = self.ids.of(self.writer);
        for point in points {
            let id = ids.resolve(point.metric);
            let is_known = |id| self.memtable.policy(id).is_some() || self.recovered.deleted.contains(&id);
            if !id.is_some_and(is_known) && !self.is_deleted(point.metric) {
                self.left_early.entry((self.writer, point.metric)).or_default().push((now, point));
            }
        }
    }

    /// Keeps the points whose metrics nothing named.
    fn keep_nameless(&mut self, damage: &JournalDamage, planned: &[Planned]) -> io::Result<()> {
        let Some(first) = planned.first() else { return Ok(()) };
        let mut by_writer: HashMap<Writer, Vec<(Now, ResolvedPoint)>> = HashMap::new();
        for ((writer, _), points) in self.early.drain().chain(self.left_early.drain()) {
            by_writer.entry(writer).or_default().extend(points);
        }
        for (writer, mut points) in by_writer {
            points.sort_by_key(|&(now, point)| (now.low(), now.high(), point.metric, point.time));
            self.recovered.restored.nameless_points += points.len() as u64;
            damage.keep_nameless(&first.segment, self.ids.header(writer), &points)?;
        }
        Ok(())
    }
}

fn after(id: MetricId) -> MetricId {
    MetricId(id.0.saturating_add(1))
}
