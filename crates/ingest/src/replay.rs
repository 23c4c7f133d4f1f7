//! The records of the journal in their order: what each means for names, policies and points in memory.

use std::{
    collections::{HashMap, HashSet},
    io,
    ops::Range,
    sync::Arc,
};

use carbon::{Decision, Rules};
use host::{Clock, Now};
use metadata::Registry;
use metric::{MetricId, Timestamp};
use store::{Identity, MetricRecord, NameStore, PolicyChange};

use crate::{
    back_pressure::Held,
    deleted_ids::DeletedIds,
    journal_ids::{JournalIds, Writer},
    known_changes::KnownChanges,
    memtable::{LockedMemtable, Memtable},
    options::IngestError,
    policy_table::{JournalPolicyIds, Policies},
    read_patience::ReadPatience,
    recovered::{JobsAside, Recovered},
    replay_progress::ReplayProgress,
    wal::{self, Folder, JournalDamage, Journalled, Planned, Points, Record, ResolvedPoint, Segment},
};

/// Where a replay reads from, and what it fills.
pub(crate) struct ReplayParts<'a> {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) folder: &'a Folder,
    pub(crate) damage: &'a JournalDamage,
    /// The store's, as it was found.
    pub(crate) identity: Identity,
    pub(crate) names: &'a dyn NameStore,
    pub(crate) registry: &'a Registry,
    pub(crate) rules: &'a Rules,
    pub(crate) policies: &'a Policies,
    pub(crate) memtable: &'a Memtable,
    /// Bytes of points in memory at which the rest is left.
    pub(crate) memory_limit: u64,
    /// For segments whose disk does not return all of them.
    pub(crate) patience: ReadPatience,
}

/// The journal being read.
pub(crate) struct Replay<'a> {
    with: ReplayParts<'a>,
    progress: ReplayProgress,
    known_changes: KnownChanges,
    planned: &'a [Planned],
    memtable: LockedMemtable<'a>,
    ids: JournalIds,
    /// Who wrote the segment that is read.
    writer: Writer,
    recovered: Recovered,
    /// The points of metrics that were given another policy, in the order of the changes.
    jobs: JobsAside,
    /// The ids of policies where points began to be left.
    left_ids: Option<JournalPolicyIds>,
    /// Bytes of points in memory.
    bytes: u64,
    // Points before the record of their metric; an intact journal of this store has none.
    early: HashMap<(Writer, MetricId), Vec<(Now, ResolvedPoint)>>,
    /// The names of ids that are deleted further behind: the deletion ends the metric of that name, whatever its id is here.
    doomed: HashMap<(Writer, MetricId), String>,
    /// As `early`, of points that are left: they are read back if they are named by then.
    left_early: HashMap<(Writer, MetricId), Vec<(Now, ResolvedPoint)>>,
    /// Whether new ids are above all that the journal has.
    is_fresh_safe: bool,
    /// Why the replay cannot go on.
    failed: Option<IngestError>,
    points: Vec<ResolvedPoint>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(with: ReplayParts<'a>, planned: &'a [Planned], known_changes: KnownChanges) -> Replay<'a> {
        let mut memtable = with.memtable.lock();
        memtable.ensure_all();
        for (metric, policy) in known_changes.first_policies(with.registry) {
            memtable.set_policy(metric, policy);
        }
        let lengths = planned.iter().map(|planned| planned.segment.bytes);
        Replay {
            progress: ReplayProgress::begin(with.clock.clone(), lengths),
            known_changes,
            planned,
            memtable,
            ids: JournalIds::new(with.identity.clone()),
            writer: 0,
            recovered: Recovered::default(),
            jobs: JobsAside::default(),
            left_ids: None,
            bytes: 0,
            early: HashMap::new(),
            doomed: HashMap::new(),
            left_early: HashMap::new(),
            is_fresh_safe: false,
            failed: None,
            points: Vec::new(),
            with,
        }
    }

    /// Reads all segments.
    pub(crate) fn run(mut self) -> Result<Recovered, IngestError> {
        let (folder, planned) = (self.with.folder, self.planned);
        let io = |source| IngestError::Journal { dir: folder.dir().to_owned(), source };
        for planned in planned {
            let read = self.read_segment(planned);
            self.failed.take().map_or(read.map_err(io), Err)?;
        }
        if !planned.is_empty() {
            folder.sync_entries().map_err(io)?;
        }
        self.end_changes();
        self.keep_nameless();
        let Replay { mut recovered, jobs, ids, left_ids, known_changes, .. } = self;
        recovered.known_changes = known_changes;
        recovered.jobs = jobs.into_jobs().collect();
        recovered.policies = left_ids.unwrap_or(recovered.policies);
        recovered.left.first_named = ids.first_with_other_ids();
        recovered.ids = ids;
        recovered.restored.parked_points = recovered.left.points;
        Ok(recovered)
    }

    fn read_segment(&mut self, planned: &Planned) -> io::Result<()> {
        let segment = &planned.segment;
        self.progress.begin_segment();
        let read = match self.with.patience.read_segment(self.with.folder, segment) {
            Ok(read) => read,
            Err(error) => return Err(self.fail(segment, error)),
        };
        // Points of metrics that it deletes may be in memory by now.
        if read.unread.is_empty() && self.recovered.deleted_ids.as_ref().is_some_and(|ids| ids.is_unread(segment)) {
            let error = io::Error::other("some pages of it could not be read before, and can now");
            return Err(self.fail(segment, error));
        }
        let writer = self.ids.begin(planned);
        // Each writer numbers policies itself, and names them all in each segment.
        if writer != self.writer || planned.is_header_lost {
            self.recovered.policies.clear();
        }
        self.writer = writer;
        let mut records = planned.records(&read.bytes);
        let mut is_empty = true;
        for (place, record) in records.by_ref() {
            let until = place.end;
            is_empty &= matches!(record, Record::Segment { .. });
            if self.recovered.left.segment.is_some() || self.with.memory_limit < self.bytes {
                self.leave(segment, place, record);
            } else {
                self.take(record);
            }
            self.progress.took(until, self.recovered.restored.points + self.recovered.left.points);
        }
        self.progress.end_segment(segment.bytes);
        self.recovered.restored.segments += 1;
        self.recovered.restored.damaged_bytes += records.replayed.damaged_bytes;
        planned.keep_damage(self.with.damage, &read, &records);
        // Failed attempts to begin a segment can leave very many without a record.
        if is_empty && records.replayed.damaged_bytes == 0 { Ok(()) } else { self.with.folder.sync(segment) }
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
    fn leave(&mut self, segment: &Segment, place: Range<usize>, record: Record<'_>) {
        if self.recovered.left.segment.is_none() {
            (self.recovered.left.segment, self.recovered.left.offset) = (Some(segment.number), place.start);
            self.left_ids = Some(self.recovered.policies.clone());
            // What is read back may be stored before the record of a deletion is read.
            self.look_for_deletions();
        }
        let left = &mut self.recovered.left;
        match record {
            Record::Points { now, points } => {
                left.points += points.len() as u64;
                left.bytes += place.len() as u64;
                left.segments.insert(segment.number, segment.bytes);
                self.look_for_names(now, points);
            }
            // A known metric gets its other policy when the points before are stored.
            Record::Metrics { now, metrics } => self.take_metrics(now, &metrics, false),
            Record::Policy { id, policy } => self.take_policy(id, &policy),
            Record::Segment { .. } => {}
        }
    }

    fn take_policy(&mut self, id: u16, policy: &metric::Policy) {
        self.recovered.policies.insert(id, self.with.policies.intern(policy));
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
            // The record of its deletion may be in what cannot be read.
            if self.is_deleted_in_store(metric) {
                self.recovered.deleted.insert(metric);
            }
            if self.is_deleted(metric) || resolved.is_some_and(|id| self.recovered.deleted.contains(&id)) {
                self.doomed.insert((self.writer, metric), name.to_owned());
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
                None => match self.with.rules.decide(name) {
                    Decision::Keep(index) => self.with.rules.policies()[index.get()].clone(),
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
        let names = self.with.registry.read();
        names.find(self.with.registry.hash(name.as_bytes()), name.as_bytes()).is_some_and(|known| known != metric)
    }

    /// Sees to it that everything under the ids that the journal deletes is left out from here on.
    fn look_for_deletions(&mut self) {
        let ReplayParts { folder, identity, patience, .. } = &self.with;
        let scan = || DeletedIds::scan((folder, patience), identity, self.planned);
        self.recovered.deleted_ids.get_or_insert_with(scan);
    }

    /// Whether the writer's id is known to be deleted further behind.
    fn is_deleted(&self, metric: MetricId) -> bool {
        let is_common = self.ids.of(self.writer).is_common(metric);
        self.recovered.deleted_ids.as_ref().is_some_and(|ids| ids.contains(self.writer, metric, is_common))
    }

    /// Whether the store has deleted the metric that had this id.
    fn is_deleted_in_store(&self, metric: MetricId) -> bool {
        self.ids.of(self.writer).is_common(metric) && self.with.names.is_deleted(metric)
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
            // The name may be in a segment of an opening before.
            let writers = self.ids.before(self.writer, metric).chain([self.writer]);
            let doomed: Vec<String> = writers.filter_map(|writer| self.doomed.remove(&(writer, metric))).collect();
            let named = doomed.iter().filter_map(|name| {
                let names = self.with.registry.read();
                names.find(self.with.registry.hash(name.as_bytes()), name.as_bytes())
            });
            let named: HashSet<MetricId> = named.filter(|&named| Some(named) != ours).collect();
            for ours in ours.into_iter().chain(named) {
                if ours == metric && is_common {
                    continue;
                }
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
            self.with.registry.remove(&deleted);
            self.recovered.deleted.extend(deleted);
        }
    }

    /// Drops the points that a metric has so far.
    fn drop_points(&mut self, metric: MetricId) {
        if let Some(job) = self.memtable.take_aside(metric) {
            self.bytes = self.bytes.saturating_sub(Held::from(&job.points).bytes);
            self.memtable.stored(&job, None);
        }
        for job in self.jobs.take(metric) {
            self.memtable.stored(&job, None);
        }
    }

    /// Takes out the points of a metric, which are stored by the policy under which they came.
    fn take_aside(&mut self, metric: MetricId) {
        if let Some(job) = self.memtable.take_aside(metric) {
            self.jobs.push(job);
        }
    }

    /// The store's id of a metric that the journal names, and whether it is a new one.
    fn identify(&mut self, metric: MetricId, name: &str) -> (MetricId, bool) {
        let ids = self.ids.of_mut(self.writer);
        {
            let names = self.with.registry.read();
            let known = names.find(self.with.registry.hash(name.as_bytes()), name.as_bytes());
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
        let fresh = self.with.registry.read().end();
        self.ids.of_mut(self.writer).name(metric, fresh);
        self.recovered.given_ids.insert(fresh);
        (fresh, true)
    }

    /// Sees to it that a new id is above every id that the journal has, also of segments that are not read yet.
    fn make_fresh_safe(&mut self) {
        if std::mem::replace(&mut self.is_fresh_safe, true) {
            return;
        }
        let (mut end, mut unread) = (MetricId(0), 0);
        let segments = self.with.folder.segments().unwrap_or_else(|source| {
            self.failed = Some(IngestError::Journal { dir: self.with.folder.dir().to_owned(), source });
            Vec::new()
        });
        for segment in segments {
            let read = match self.with.patience.read_segment(self.with.folder, &segment) {
                Ok(read) => read,
                Err(error) => {
                    self.fail(&segment, error);
                    continue;
                }
            };
            unread += read.unread.iter().map(|part| part.end - part.start).sum::<u64>();
            wal::replay(&read.bytes, |record| match record {
                Record::Points { points, .. } => points.for_each(|point| end = end.max(after(point.metric))),
                Record::Metrics { metrics, .. } => metrics.iter().for_each(|&(id, ..)| end = end.max(after(id))),
                _ => {}
            });
        }
        // Each id that only unread pages have is named there, behind all ids before it.
        let known = end.max(self.with.registry.read().end());
        let end = if unread == 0 { end } else { MetricId(known.0.saturating_add(most_ids(unread))) };
        self.with.registry.never_give_below(end);
        self.memtable.ensure_all();
    }

    /// Gives metrics that only the journal has to the registry, and slots.
    fn restore(&mut self, records: Vec<MetricRecord>) {
        if records.is_empty() {
            return;
        }
        self.recovered.restored.metrics += records.len() as u64;
        let restored: Vec<MetricId> = records.iter().map(|record| record.id).collect();
        self.with.registry.restore(records);
        self.with.policies.refresh();
        self.memtable.refresh_policies();
        self.memtable.ensure_all();
        // An id below the highest in the metrics table had slots before it had a metric.
        let names = self.with.registry.read();
        for metric in restored.into_iter().filter(|&metric| !names.name(metric).is_empty()) {
            self.memtable.begin(metric, names.policy_id(metric));
        }
    }

    /// From here on the metric's points were accepted under this policy.
    fn change_policy(&mut self, metric: MetricId, policy: metadata::PolicyId, now: Timestamp) {
        if self.memtable.policy(metric) == Some(policy) {
            return;
        }
        self.take_aside(metric);
        self.memtable.set_policy(metric, policy);
        self.recovered.changed.insert(metric);
        // The store may have got the change already.
        if !self.known_changes.take(metric, policy, self.with.registry) {
            self.with.registry.set_policy(metric, policy, now);
        }
    }

    /// Gives metrics whose last change is not in the journal the policies that the store names.
    fn end_changes(&mut self) {
        if self.recovered.left.segment.is_some() {
            return;
        }
        for metric in self.known_changes.metrics() {
            let Some(policy) = self.with.registry.policies(metric).map(|history| history.current()) else { continue };
            if self.memtable.policy(metric).is_some_and(|known| known != policy) {
                self.take_aside(metric);
                self.memtable.set_policy(metric, policy);
                self.recovered.changed.insert(metric);
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

    /// Keeps the points whose metrics nothing named. Those of a metric that another writer deleted are not lost: the store
    /// has deleted its name, and the journal named it before what is left of it begins. Nor are those of one that the store has deleted
    /// while the journal could not be written.
    fn keep_nameless(&mut self) {
        let segments: Vec<&Segment> = self.planned.iter().map(|planned| &planned.segment).collect();
        let mut by_writer: HashMap<Writer, Vec<(Now, ResolvedPoint)>> = HashMap::new();
        for ((writer, metric), points) in self.early.drain().chain(self.left_early.drain()) {
            let id = self.ids.of(writer).resolve(metric);
            let is_common = self.ids.of(writer).is_common(metric);
            let is_deleted_in_store = is_common && self.with.names.is_deleted(metric);
            if !is_deleted_in_store && !id.is_some_and(|id| self.recovered.deleted.contains(&id)) {
                by_writer.entry(writer).or_default().extend(points);
            }
        }
        for (writer, mut points) in by_writer {
            points.sort_by_key(|&(now, point)| (now.low(), now.high(), point.metric, point.time));
            self.recovered.restored.nameless_points += points.len() as u64;
            self.with.damage.keep_nameless(&segments, self.ids.header(writer), &points);
        }
    }
}

/// Metrics that so many bytes of the journal name, at most.
fn most_ids(bytes: u64) -> u32 {
    u32::try_from(bytes / wal::LEAST_NAME_BYTES + 1).unwrap_or(u32::MAX)
}

fn after(id: MetricId) -> MetricId {
    MetricId(id.0.saturating_add(1))
}
