//! Spilled points back to memory, as the store makes room; see `spill.rs`.
//!
//! Points are placed by the time at which they were accepted, as in a recovery; a crash on the way replays them again,
//! which changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use carbon::Sink as _;
use host::{Clock, Now};
use metadata::{PolicyId, Registry};
use metric::{MetricId, Timestamp};
use parking_lot::Mutex;

use super::row_writer::RowWriter;
use crate::{
    accept::Acceptor,
    back_pressure::BackPressure,
    backoff::StoreBackoff,
    deleted_ids::DeletedIds,
    journal_ids::{JournalIds, Writer},
    known_changes::KnownChanges,
    memtable::{MayTake, Memtable},
    policy_table::{JournalPolicyIds, Policies},
    protocol::Protocol,
    registration::Registration,
    spill::Spill,
    spilled_deletions::SpilledDeletions,
    wal::{
        self, Exclusive, Journal, JournalDamage, Journalled, PlanError, Planned, Record, ResolvedPoint, Segment,
        SegmentBytes,
    },
};

/// So much of the journal is read back while senders wait, at the end: some milliseconds of work.
const LAST_BYTES: u64 = 2 << 20;

/// Points stored under one lock.
const GROUP: usize = 4096;

/// Poll interval for free memory.
const POLL: Duration = Duration::from_millis(10);

/// How long pages that cannot be read are read again. After that, the points in them are missing.
const PATIENCE: Duration = Duration::from_secs(600);

/// The owners between which points are moved.
pub(crate) struct ReadBackParts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) spill: Arc<Spill>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) damage: JournalDamage,
    pub(crate) clock: Arc<dyn Clock>,
    /// Makes metrics again that others deleted, for points that came later.
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) deletions: Arc<SpilledDeletions>,
}

/// Where reading goes on after a recovery.
pub(crate) struct ReadFrom {
    /// The ids that the segments read so far gave policies.
    pub(crate) policies: JournalPolicyIds,
    /// Whose metrics their ids are.
    pub(crate) ids: JournalIds,
    /// The ids that the journal also deletes.
    pub(crate) deleted: DeletedIds,
    /// A segment, and the byte from which on its points are left.
    pub(crate) left: Option<(u64, usize)>,
    /// The segments whose points are left, and the bytes of each.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// The changes of policy that the store has already.
    pub(crate) known_changes: KnownChanges,
}

/// Reads spilled points back.
pub(crate) struct ReadBack {
    with: ReadBackParts,
    from: Mutex<ReadFrom>,
    /// When a read failed first, of those that fail since.
    failing_since: Mutex<Option<Instant>>,
    /// The segments that are left, as far as they are known, and the most bytes that each had.
    left: Mutex<BTreeMap<u64, u64>>,
    /// Since when one of them is not there.
    gone_since: Mutex<Option<Instant>>,
    /// Since when the disk does not return how one begins, and those that are not waited for any more.
    unplanned_since: Mutex<Option<Instant>>,
    given_up: Mutex<BTreeSet<u64>>,
}

/// A segment in memory.
struct Loaded {
    planned: Planned,
    read: SegmentBytes,
    /// The part before this byte was read by a recovery.
    skip: usize,
    writer: Writer,
}

impl ReadBack {
    pub(crate) fn new(with: ReadBackParts, from: ReadFrom) -> ReadBack {
        ReadBack {
            with,
            failing_since: Mutex::default(),
            left: Mutex::new(from.segments.clone()),
            from: Mutex::new(from),
            gone_since: Mutex::default(),
            unplanned_since: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Reads points back whenever some are spilled, until the task is aborted.
    pub(crate) async fn run(self: Arc<ReadBack>) {
        let mut backoff = StoreBackoff::new();
        loop {
            self.with.spill.begun().await;
            self.with.damage.set_parked(true);
            match self.read_back().await {
                Ok(()) => {
                    backoff.reset();
                    self.with.damage.set_parked(false);
                    self.with.spill.reading.worked("spilled points can be read back again");
                    tracing::info!("every spilled point is in memory again, or stored");
                }
                Err(error) => {
                    self.with.journal.counters().errors.fetch_add(1, SeqCst);
                    let message = "cannot read spilled points back; they stay in the journal; retrying";
                    self.with.spill.reading.failed(&error, message);
                    tokio::time::sleep(backoff.next_wait(&error)).await;
                }
            }
        }
    }

    /// Reads every spilled point back, as there is room; at the end nothing is spilled any more.
    async fn read_back(self: &Arc<ReadBack>) -> io::Result<()> {
        let ReadBackParts { journal, memtable, spill, .. } = &self.with;
        let may_take = memtable.may_take().await;
        loop {
            let (current, length) = journal.current();
            let from = spill.position();
            let this = self.clone();
            for planned in journal.elsewhere(move |_| this.planned_segments(from..current)).await?? {
                self.read_back_segment(planned, may_take).await?;
            }
            spill.set_position(current);
            self.room().await;
            if length <= LAST_BYTES && self.end_elsewhere().await? {
                return Ok(());
            }
            // Points accepted meanwhile become a closed segment.
            journal.begin_segment().await?;
        }
    }

    async fn read_back_segment(self: &Arc<ReadBack>, planned: Planned, may_take: MayTake) -> io::Result<()> {
        self.room().await;
        let number = planned.segment.number;
        let this = self.clone();
        let loaded = self.with.journal.elsewhere(move |_| this.load(planned)).await??;
        if let Some(loaded) = loaded {
            self.apply(loaded, may_take).await?;
        }
        self.with.spill.set_position(number + 1);
        Ok(())
    }

    /// What to read of the closed segments with these numbers. One that was there and is gone is waited for: it may have
    /// been moved, or its disk may be away. After that, it is reported; if it comes back later, its points are put back.
    fn planned_segments(&self, numbers: Range<u64>) -> io::Result<Vec<Planned>> {
        let ReadBackParts { journal, damage, clock, .. } = &self.with;
        let (planned, not_found) = self.plan(numbers.clone())?;
        let mut left = self.left.lock();
        left.retain(|number, _| numbers.contains(number));
        not_found.iter().for_each(|segment| _ = left.entry(segment.number).or_insert(segment.bytes));
        let is_there = |number: &u64| planned.iter().any(|planned| planned.segment.number == *number);
        let gone: Vec<u64> = left.keys().copied().filter(|number| !is_there(number)).collect();
        if let Some(&first) = gone.first() {
            if waits(&mut self.gone_since.lock(), clock.instant()) {
                let path = journal.folder().path_of(first);
                let how = format!("{} is gone, and its points are not in memory yet; put it back", path.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, how));
            }
            for number in gone {
                let path = journal.folder().path_of(number);
                damage.report_missing(&path, &path, left.remove(&number).unwrap_or(0));
                // It is put back from `damaged/` if it comes.
                self.given_up.lock().insert(number);
            }
        }
        *self.gone_since.lock() = None;
        // Another segment in the place of one says nothing of it.
        let is_own =
            |planned: &&Planned| planned.header.as_ref().is_none_or(|header| header.segment == planned.segment.number);
        for Planned { segment, .. } in planned.iter().filter(is_own) {
            let bytes = left.entry(segment.number).or_default();
            *bytes = segment.bytes.max(*bytes);
        }
        Ok(planned)
    }

    /// What to read of the segments with these numbers, and those that are listed and cannot be found: no cycle removes these.
    /// One whose beginning the disk does not return is waited for. After that it is left out, and its file kept: the points
    /// behind it must not wait for it.
    fn plan(&self, numbers: Range<u64>) -> io::Result<(Vec<Planned>, Vec<Segment>)> {
        let ReadBackParts { journal, damage, clock, .. } = &self.with;
        let (mut planned, mut not_found) = loop {
            let given_up = self.given_up.lock().clone();
            match journal.folder().plan_while_trimmed(|number| given_up.contains(&number)) {
                Ok(found) => break found,
                Err(PlanError::Unreadable { segment, source }) if wal::is_damage(&source) => {
                    if waits(&mut self.unplanned_since.lock(), clock.instant()) {
                        let how = format!("{}: {source}", segment.path.display());
                        return Err(io::Error::new(source.kind(), how));
                    }
                    damage.keep_all_unread(&segment, &source);
                    self.left.lock().remove(&segment.number);
                    self.given_up.lock().insert(segment.number);
                }
                Err(PlanError::Disk(error) | PlanError::Unreadable { source: error, .. }) => return Err(error),
                Err(PlanError::Newer { segment, version }) => {
                    return Err(io::Error::other(format!("{} has version {version}", segment.path.display())));
                }
            }
        };
        *self.unplanned_since.lock() = None;
        not_found.extend(self.unlisted(&planned));
        planned.retain(|planned| numbers.contains(&planned.segment.number));
        not_found.retain(|segment| numbers.contains(&segment.number));
        Ok((planned, not_found))
    }

    /// Segments that this process wrote, as the newest one, and that the next one names and the folder does not have.
    fn unlisted(&self, planned: &[Planned]) -> Vec<Segment> {
        let writer = |planned: &Planned| planned.header.as_ref()?.identity.chain.last().map(|opening| opening.id);
        let Some(own) = planned.last().and_then(writer) else { return Vec::new() };
        let given_up = self.given_up.lock();
        let is_away =
            |number: u64| !given_up.contains(&number) && planned.iter().all(|planned| planned.segment.number != number);
        let headers =
            planned.iter().filter(|planned| writer(planned) == Some(own)).filter_map(|one| one.header.as_ref());
        let named = headers.filter_map(|header| Some((header.previous.filter(|&number| is_away(number))?, header)));
        let folder = self.with.journal.folder();
        let segment = |(number, header): (u64, &wal::SegmentHeader)| Segment {
            number,
            path: folder.path_of(number),
            bytes: header.previous_bytes,
        };
        named.map(segment).collect()
    }

    /// Reads a segment, again for a while where the disk does not return all of it, or where another file is in its place.
    /// After that, what is lost is left out, and so is a segment that is lost; its file is kept: the points behind it must
    /// not wait for it.
    fn load(&self, planned: Planned) -> io::Result<Option<Loaded>> {
        let read = self.with.journal.folder().read_parts(&planned.segment);
        let changed = self.changed(&planned, &read);
        let is_whole = changed.is_none() && read.as_ref().is_ok_and(|read| read.unread.is_empty());
        if self.may_wait(is_whole) {
            let file = planned.segment.path.display();
            let why = changed.unwrap_or_else(|| match read {
                Ok(_) => "some pages of it cannot be read".to_owned(),
                Err(error) => error.to_string(),
            });
            return Err(io::Error::other(format!("{file}: {why}")));
        }
        if let Some(how) = changed {
            let had = self.left.lock().get(&planned.segment.number).copied().unwrap_or(0);
            self.with.damage.report_changed(&planned.segment, had, how);
        }
        match read {
            Ok(read) => {
                let mut from = self.from.lock();
                let skip = from.left.filter(|&(segment, _)| segment == planned.segment.number);
                let writer = from.ids.begin(&planned);
                Ok(Some(Loaded { planned, read, skip: skip.map_or(0, |(_, offset)| offset), writer }))
            }
            Err(error) if wal::is_damage(&error) => {
                self.with.damage.keep_all_unread(&planned.segment, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How a segment differs from what it was when it was found.
    fn changed(&self, planned: &Planned, read: &io::Result<SegmentBytes>) -> Option<String> {
        let number = planned.segment.number;
        let is_another = |read: &SegmentBytes| read.unread.is_empty() && wal::header_of(&read.bytes) != planned.header;
        let is_misplaced = planned.header.as_ref().is_some_and(|header| header.segment != number);
        if is_misplaced || read.as_ref().is_ok_and(is_another) {
            return Some("another segment is in its place".to_owned());
        }
        let had = self.left.lock().get(&number).copied().unwrap_or(0);
        let has = read.as_ref().map_or(had, |read| read.bytes.len() as u64);
        (has < had).then(|| format!("it had {had} bytes, and now has {has}"))
    }

    /// Whether a segment that was not read whole is to be read again.
    fn may_wait(&self, is_whole: bool) -> bool {
        let mut since = self.failing_since.lock();
        if is_whole {
            *since = None;
            return false;
        }
        waits(&mut since, self.with.clock.instant())
    }

    /// Puts the points of a segment into memory, as there is room.
    async fn apply(self: &Arc<ReadBack>, loaded: Loaded, may_take: MayTake) -> io::Result<()> {
        let mut records = loaded.planned.records(&loaded.read.bytes);
        for (place, record) in records.by_ref().filter(|(place, _)| loaded.skip <= place.start) {
            match record {
                Record::Points { now, points } => {
                    let points: Vec<ResolvedPoint> = points.collect();
                    for group in points.chunks(GROUP) {
                        self.room().await;
                        self.apply_group(group, now, loaded.writer);
                        tokio::task::yield_now().await;
                    }
                    self.with.spill.read_back(points.len() as u64, place.len() as u64);
                }
                Record::Metrics { now, metrics } => {
                    for (metric, policy) in self.changed_policies(&metrics, loaded.writer) {
                        self.change_policy(metric, policy, now, may_take).await;
                    }
                }
                Record::Policy { id, policy } => {
                    let known = self.with.policies.intern(&policy);
                    self.from.lock().policies.insert(id, known);
                }
                Record::Segment { .. } => {}
            }
        }
        // A recovery has read all of the segments that it left.
        let has_news = loaded.skip == 0 && 0 < records.replayed.damaged_bytes;
        drop(records);
        if has_news {
            let this = self.clone();
            self.with.journal.elsewhere(move |_| this.keep_damage(&loaded)).await?;
        }
        Ok(())
    }

    /// Puts points of one record into memory, by the ids that the store gives their metrics. A recovery has kept aside
    /// those that nothing names; those of metrics that were deleted are dropped.
    fn apply_group(&self, group: &[ResolvedPoint], now: Now, writer: Writer) {
        let points: Vec<ResolvedPoint> = {
            let from = self.from.lock();
            let ids = from.ids.of(writer);
            let resolve = |point: &ResolvedPoint| Some(ResolvedPoint { metric: ids.resolve(point.metric)?, ..*point });
            let is_kept =
                |point: &&ResolvedPoint| !from.deleted.contains(writer, point.metric, ids.is_common(point.metric));
            group.iter().filter(is_kept).filter_map(resolve).collect()
        };
        let points = self.made_again(points);
        self.with.memtable.apply_spilled(Journalled::read_back(&points, now));
    }

    /// Points of metrics that others deleted meanwhile, in slots that begin after the deletion, are of metrics that are made again for them.
    fn made_again(&self, mut points: Vec<ResolvedPoint>) -> Vec<ResolvedPoint> {
        let ReadBackParts { memtable, registry, acceptor, deletions, .. } = &self.with;
        if deletions.is_empty() {
            return points;
        }
        let later: Vec<(usize, String, Timestamp)> = {
            let locked = memtable.lock();
            let of_deleted = points.iter().enumerate().filter(|(_, point)| locked.policy(point.metric).is_none());
            let of_later = |(place, point): (usize, &ResolvedPoint)| {
                let (name, at) = deletions.later(point.metric, Timestamp::from(point.time))?;
                Some((place, name, at))
            };
            of_deleted.filter_map(of_later).collect()
        };
        for of_deletion in later.chunk_by(|(.., one), (.., next)| one == next) {
            let mut batch = acceptor.batch(Protocol::Own);
            // As in `Ingest::delete_followed`.
            batch.created_on = Some(of_deletion[0].2 + 1);
            for (place, name, _) in of_deletion {
                batch.point(name.as_bytes(), Timestamp::from(points[*place].time), points[*place].value);
            }
            acceptor.make_metrics(&mut batch);
        }
        let names = registry.read();
        for (place, name, _) in later {
            // A limit of names, or a list, may have refused it, which is counted.
            if let Some(metric) = names.find(registry.hash(name.as_bytes()), name.as_bytes()) {
                points[place].metric = metric;
            }
        }
        points
    }

    /// Keeps what is damaged of a segment that no recovery has read.
    fn keep_damage(&self, loaded: &Loaded) {
        let Loaded { planned, read, .. } = loaded;
        let mut records = planned.records(&read.bytes);
        records.by_ref().for_each(drop);
        self.with.journal.counters().damaged_bytes.fetch_add(records.replayed.damaged_bytes, SeqCst);
        planned.keep_damage(&self.with.damage, read, &records);
    }

    /// Waits until there is room in memory.
    async fn room(&self) {
        while !self.with.back_pressure.has_room() {
            self.with.back_pressure.ask_for_flush();
            tokio::time::sleep(POLL).await;
        }
    }

    /// [`ReadBack::end`], on a thread that may wait for the disk.
    async fn end_elsewhere(self: &Arc<ReadBack>) -> io::Result<bool> {
        let this = self.clone();
        self.with.journal.elsewhere(move |_| this.end()).await?
    }

    /// Reads the last segment while appends wait. Returns false when it has become too long for that.
    fn end(&self) -> io::Result<bool> {
        let ReadBackParts { journal, spill, .. } = &self.with;
        let exclusive: Exclusive<'_> = journal.exclusive();
        let (current, length) = journal.current();
        if spill.position() != current || length > 2 * LAST_BYTES {
            return Ok(false);
        }
        let Some(last) = self.plan(current..current + 1)?.0.pop() else {
            return Err(io::Error::other(format!("segment {current} of the journal is gone")));
        };
        let Some(loaded) = self.load(last)? else { return Ok(false) };
        for (place, record) in loaded.planned.records(&loaded.read.bytes) {
            // Metrics that were created while points spilled have their policy; none was given another.
            if let Record::Points { now, points } = record {
                let points: Vec<ResolvedPoint> = points.collect();
                self.apply_group(&points, now, loaded.writer);
                spill.read_back(points.len() as u64, place.len() as u64);
            }
        }
        self.keep_damage(&loaded);
        let lost = spill.points();
        spill.end(&exclusive);
        self.with.deletions.forget();
        if 0 < lost {
            self.with.damage.report_not_read_back(journal.folder().dir(), lost);
        }
        Ok(true)
    }

    /// The metrics of a record that come under another policy from here on. There are none unless rules changed before
    /// a restart: while points spill, existing metrics keep their policies.
    fn changed_policies(&self, metrics: &[(MetricId, u16, &str)], writer: Writer) -> Vec<(MetricId, PolicyId)> {
        let from = self.from.lock();
        let ids = from.ids.of(writer);
        let memtable = self.with.memtable.lock();
        let changed = |&(metric, policy, _): &(MetricId, u16, &str)| {
            if from.deleted.contains(writer, metric, ids.is_common(metric)) {
                return None;
            }
            let (metric, policy) = (ids.resolve(metric)?, *from.policies.get(&policy)?);
            (metric < memtable.end() && memtable.policy(metric) != Some(policy)).then_some((metric, policy))
        };
        metrics.iter().filter_map(changed).collect()
    }

    /// Gives a metric another policy once everything that came under the one before is stored.
    async fn change_policy(&self, metric: MetricId, policy: PolicyId, now: Timestamp, may_take: MayTake) {
        loop {
            let job = {
                let mut memtable = self.with.memtable.lock();
                let job = memtable.take(metric, may_take);
                if job.is_none() && !memtable.is_pending(metric) {
                    memtable.set_policy(metric, policy);
                    break;
                }
                job
            };
            match job {
                Some(job) => self.with.writer.write_after_names(vec![job], &self.with.journal).await,
                None => tokio::time::sleep(POLL).await,
            }
        }
        // The store may have it: added once more, the history would grow with each restart.
        if !self.from.lock().known_changes.take(metric, policy, &self.with.registry) {
            self.with.registry.set_policy(metric, policy, now);
        }
        self.with.registry.widen_seen(&[metric], now);
        // The segment that says so is deleted later, and the metrics table must know by then.
        self.with.registration.add([metric]);
    }
}

/// Whether what has failed since some time may still pass.
fn waits(since: &mut Option<Instant>, now: Instant) -> bool {
    now.saturating_duration_since(*since.get_or_insert(now)) < PATIENCE
}
