//! Points of segments that no start could read whole, put back once their disk returns them.
//!
//! They are older than everything that came since: they take slots that are empty, in the store and in memory, and those that
//! got nothing since (`since.rs`).
//! They go to the journal and to memory as they would have at first, and are derived as any late point is. To do it twice
//! changes nothing. The newest segment is first: of two points of one slot, that one counts.

mod names;
mod since;

use std::{
    collections::HashSet,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use carbon::Sink as _;
use host::Now;
use metadata::{PolicyId, Registry};
use metric::{MetricId, Policy, Slot, Table, Timestamp};
use parking_lot::Mutex;
use store::{Fetch, Identity, PointStore};

use self::{
    names::{LatePoint, LatePoints, Named, late_points},
    since::{Asked, Replaced, Since, Taken, since},
};
use crate::{
    accept::Acceptor,
    back_pressure::BackPressure,
    coming_rows::ComingRows,
    flush::RowWriter,
    memtable::{LockedMemtable, Memtable},
    older_cells::{OlderPolicies, fetch_filled},
    protocol::Protocol,
    wal::{
        self, Accepted, Exclusive, Journal, JournalDamage, Journalled, KeptDeletions, PlanError, RECORD_POINTS,
        ResolvedPoint, Segment,
    },
};

/// Interval of attempts, and how many of them are between two reads of segments: those are long, and their disk is bad.
const INTERVAL: Duration = Duration::from_secs(10);
const INTERVALS_OF_SEGMENTS: u64 = 6;

/// Points that are put back together, about: senders wait for as long.
const GROUP: usize = 4096;

/// Attempts to put back a group between flushes, and the time between two.
const ATTEMPTS: u32 = 500;
const POLL: Duration = Duration::from_millis(20);

/// Touched slots closer than this are read together.
const JOIN: u32 = metric::ROW_POINTS;

/// The owners that points are put back to.
pub(crate) struct PutBackParts {
    pub(crate) identity: Identity,
    pub(crate) damage: JournalDamage,
    pub(crate) deletions: Arc<KeptDeletions>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) store: Arc<dyn PointStore>,
    /// Whether no other process writes the store.
    pub(crate) is_alone: bool,
    pub(crate) journal: Arc<Journal>,
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) back_pressure: Arc<BackPressure>,
    pub(crate) writer: Arc<RowWriter>,
    pub(crate) acceptor: Arc<Acceptor>,
}

/// Puts points back.
pub(crate) struct PutBack {
    with: PutBackParts,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
    /// Whether the last attempt failed, which is logged once.
    is_failing: AtomicBool,
}

/// A point, and the slot of a stage that it is for.
struct Wanted {
    stage: usize,
    slot: Slot,
    point: LatePoint,
}

/// The points of one metric that are put back.
struct OfMetric {
    metric: MetricId,
    policy_id: PolicyId,
    policy: Arc<Policy>,
    older: Option<OlderPolicies>,
    wanted: Vec<Wanted>,
    /// Those whose slots the store has, with its values.
    stored: Vec<(Wanted, f64)>,
}

/// What became of points.
#[derive(Default)]
struct Put {
    points: u64,
    /// Points whose slots have other values.
    taken: Vec<Taken>,
}

impl PutBack {
    pub(crate) fn new(with: PutBackParts) -> PutBack {
        PutBack { with, turn: tokio::sync::Mutex::default(), is_failing: AtomicBool::new(false) }
    }

    /// Tries again and again, until the task is aborted.
    pub(crate) async fn run(self: Arc<PutBack>) {
        for tick in 1_u64.. {
            tokio::time::sleep(INTERVAL).await;
            let put_back = if tick.is_multiple_of(INTERVALS_OF_SEGMENTS) { self.put_back().await } else { Ok(0) };
            let derived = self.derive_again().await;
            match put_back.and(derived) {
                Ok(_) => self.is_failing.store(false, Relaxed),
                Err(error) if !self.is_failing.swap(true, Relaxed) => {
                    tracing::warn!(%error, "points of journal segments in damaged/, or late points in the journal's folder, cannot be put back; retrying");
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the segments that were not read whole, and puts back their points. Returns how many points were put back; a
    /// segment that still cannot be read stays, and so do older ones.
    pub(crate) async fn put_back(self: &Arc<PutBack>) -> io::Result<u64> {
        let _turn = self.turn.lock().await;
        let this = self.clone();
        let segments = self.elsewhere(move || this.with.damage.unread_segments()).await?;
        let count = segments.len();
        let (named, mut all, mut readable) = (Arc::new(Mutex::new(Named::default())), 0, Vec::new());
        for segment in segments {
            let (this, of, named) = (self.clone(), segment.clone(), named.clone());
            if self.elsewhere(move || Ok(this.load(&of, &mut named.lock())?.is_none())).await? {
                break;
            }
            readable.push(segment);
        }
        let is_all = readable.len() == count;
        if !readable.is_empty() {
            // Points of metrics that only these segments name, and that came later.
            let this = self.clone();
            for segment in self.elsewhere(move || this.nameless_points()).await? {
                // Its names are in segments that must not count as done before it.
                let Some(points) = self.put_segment(&segment, &named, false).await? else { return Ok(all) };
                all += points;
            }
        }
        for segment in readable {
            let Some(points) = self.put_segment(&segment, &named, true).await? else { return Ok(all) };
            all += points;
        }
        if !is_all {
            return Ok(all);
        }
        if self.with.deletions.is_noting() {
            let this = self.clone();
            self.elsewhere(move || this.with.journal.folder().forget_since().and_then(|()| this.with.deletions.end()))
                .await?;
        }
        Ok(all)
    }

    /// The files of points that nothing named, of the latest writer first.
    fn nameless_points(&self) -> io::Result<Vec<Segment>> {
        let mut files = self.with.damage.nameless_points()?;
        let first_segment = |file: &Segment| {
            let planned = self.with.journal.folder().plan_alone(file.clone()).ok()?;
            Some(planned.header?.segment)
        };
        files.sort_by_cached_key(|file| std::cmp::Reverse(first_segment(file)));
        Ok(files)
    }

    /// Puts the points of a segment back. `None` while it cannot be read, and where all must be known but is not.
    async fn put_segment(
        self: &Arc<PutBack>,
        segment: &Segment,
        named: &Arc<Mutex<Named>>,
        may_leave_out: bool,
    ) -> io::Result<Option<u64>> {
        let (this, of, names) = (self.clone(), segment.clone(), named.clone());
        let Some(late) = self.elsewhere(move || this.load(&of, &mut names.lock())).await? else { return Ok(None) };
        let (left_out, has_damage) = (late.left_out, late.has_damage);
        let Put { mut points, taken } = self.put(late).await?;
        // Of nameless points it is not known behind which others they came.
        let older = if may_leave_out {
            let replaced = self.replace(segment, taken, named).await?;
            points += replaced.points;
            if replaced.is_waiting {
                return Ok(None);
            }
            replaced.unclear
        } else {
            taken.len() as u64
        };
        let _ = self.with.journal.synced().await;
        tracing::info!(file = %segment.path.display(), points, left_out, older, "put points of a journal segment back");
        if may_leave_out || left_out == 0 {
            let (this, of) = (self.clone(), segment.clone());
            self.elsewhere(move || this.with.damage.was_put_back(&of, has_damage, older)).await?;
        }
        Ok(Some(points))
    }

    /// Has coarse slots derived again around late points that were stored without their neighbours. A file whose rows still
    /// cannot be read stays. Returns how many points there were.
    pub(crate) async fn derive_again(self: &Arc<PutBack>) -> io::Result<u64> {
        let _turn = self.turn.lock().await;
        let this = self.clone();
        let (mut all, mut failed) = (0, None);
        for file in self.elsewhere(move || this.with.journal.folder().late_files()).await? {
            let (this, of) = (self.clone(), file.clone());
            let Some(mut late) = self.elsewhere(move || this.load(&of, &mut Named::default())).await? else { continue };
            // Of names that are gone nothing is left to derive.
            late.unknown.clear();
            late.known.iter_mut().for_each(|point| point.is_again = true);
            match self.put(late).await {
                Ok(Put { points, .. }) => {
                    let _ = self.with.journal.synced().await;
                    let this = self.clone();
                    self.elsewhere(move || this.with.damage.late_file_is_done(this.with.journal.folder(), &file))
                        .await?;
                    all += points;
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(all), Err)
    }

    async fn elsewhere<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.with.journal.elsewhere(move |_| work()).await?
    }

    /// The points of a segment; `None` while its disk does not return all of it.
    fn load(&self, segment: &Segment, named: &mut Named) -> io::Result<Option<LatePoints>> {
        let PutBackParts { identity, deletions, registry, journal, .. } = &self.with;
        let planned = match journal.folder().plan_alone(segment.clone()) {
            Ok(planned) => planned,
            Err(PlanError::Unreadable { source, .. }) if wal::is_damage(&source) => return Ok(None),
            Err(PlanError::Disk(error) | PlanError::Unreadable { source: error, .. }) => return Err(error),
            Err(PlanError::Newer { version, .. }) => return Err(io::Error::other(format!("its version is {version}"))),
        };
        let theirs = planned.header.as_ref().map_or(0, |header| header.identity.store);
        if theirs != 0 && identity.store != 0 && theirs != identity.store {
            return Err(io::Error::other(format!("{} is of another store", segment.path.display())));
        }
        let read = match journal.folder().read_parts(segment) {
            Err(error) if wal::is_damage(&error) => return Ok(None),
            read => read?,
        };
        if !read.unread.is_empty() {
            return Ok(None);
        }
        Ok(Some(late_points(&planned, &read.bytes, (identity, registry), &deletions.read()?, named)))
    }

    /// Puts points back, as far as their slots are empty.
    async fn put(self: &Arc<PutBack>, late: LatePoints) -> io::Result<Put> {
        let LatePoints { mut known, unknown, .. } = late;
        // In the order of the segment within a metric.
        known.sort_by_key(|point| point.metric);
        let mut all = Put::default();
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        for of_metric in known.chunk_by(|one, next| one.metric == next.metric) {
            match groups.last_mut() {
                Some(group) if group.len() + of_metric.len() <= GROUP => group.end += of_metric.len(),
                _ => groups.push(from..from + of_metric.len()),
            }
            from += of_metric.len();
        }
        for group in groups {
            let put = self.put_group(&known[group]).await?;
            all.points += put.points;
            all.taken.extend(put.taken);
        }
        // Nothing else is known of these metrics.
        for group in unknown.chunks(GROUP) {
            let mut batch = self.with.acceptor.batch(Protocol::LineTcp);
            for (name, point) in group {
                batch.point(name.as_bytes(), Timestamp::from(point.time), point.value);
            }
            self.with.acceptor.accept(&mut batch).await;
            all.points += group.len() as u64;
        }
        Ok(all)
    }

    async fn put_group(self: &Arc<PutBack>, points: &[LatePoint]) -> io::Result<Put> {
        for _ in 0..ATTEMPTS {
            while !self.with.back_pressure.has_room() {
                self.with.back_pressure.ask_for_flush();
                tokio::time::sleep(POLL).await;
            }
            if let Some(put) = self.try_to_put(points).await? {
                return Ok(put);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(io::Error::other("points are stored all the time, or are spilled; trying again later"))
    }

    /// Puts points back unless something is stored meanwhile.
    async fn try_to_put(self: &Arc<PutBack>, points: &[LatePoint]) -> io::Result<Option<Put>> {
        let PutBackParts { memtable, writer, store, .. } = &self.with;
        memtable.may_take().await;
        let stored = writer.stored_metrics();
        let mut metrics: Vec<OfMetric> = points
            .chunk_by(|one, next| one.metric == next.metric)
            .filter_map(|points| self.of_metric(points))
            .collect();
        let (mut fetches, mut of) = (Vec::new(), Vec::new());
        {
            let names = self.with.registry.read();
            for (place, metric) in metrics.iter().enumerate() {
                fetches.extend(metric.fetches(names.name(metric.metric)));
                of.resize(fetches.len(), place);
            }
        }
        let older: Vec<Option<&OlderPolicies>> = of.iter().map(|&place| metrics[place].older.as_ref()).collect();
        let cells = fetch_filled(&**store, fetches.clone(), &older, &ComingRows::default()).await;
        let cells = cells.map_err(io::Error::other)?;
        if cells.iter().any(|cells| cells.is_unreadable) {
            return Err(io::Error::other("stored rows of their metrics cannot be read now"));
        }
        for ((fetch, cells), &place) in fetches.iter().zip(&cells).zip(&of) {
            let metric = &mut metrics[place];
            let policy = metric.policy.clone();
            for wanted in std::mem::take(&mut metric.wanted) {
                let cell = wanted.slot.checked_sub(fetch.first_slot).filter(|_| wanted.slot < fetch.end_slot);
                let is_there = policy.retention.table(wanted.stage) == fetch.table;
                let value = cell.filter(|_| is_there).and_then(|cell| cells.values.get(cell as usize));
                match value.filter(|value| !value.is_nan()) {
                    Some(&value) if !wanted.point.is_again => metric.stored.push((wanted, value)),
                    Some(&value) if value != wanted.stored(&policy) => {}
                    _ => metric.wanted.push(wanted),
                }
            }
        }
        metrics.retain(|metric| !metric.wanted.is_empty() || !metric.stored.is_empty());
        if metrics.is_empty() {
            return Ok(Some(Put::default()));
        }
        let this = self.clone();
        self.elsewhere(move || this.put_now(metrics, stored)).await
    }

    /// Puts points back whose slots memory does not have, either. `None` where jobs were stored since `stored` was counted.
    fn put_now(&self, mut metrics: Vec<OfMetric>, stored: u64) -> io::Result<Option<Put>> {
        let PutBackParts { journal, memtable, back_pressure, writer, .. } = &self.with;
        let mut taken = Vec::new();
        // No other point gets into memory meanwhile.
        let mut exclusive = journal.exclusive();
        {
            let memtable = memtable.lock();
            if writer.stored_metrics() != stored || back_pressure.is_spilling() {
                return Ok(None);
            }
            // Of those that were deleted nothing is put back.
            metrics.retain(|metric| memtable.policy(metric.metric).is_some());
            if !metrics.iter_mut().all(|metric| metric.leave_out_those_in(&memtable, &mut taken)) {
                return Ok(None);
            }
        }
        let left =
            metrics.into_iter().flat_map(|metric| metric.wanted.into_iter().map(|wanted| wanted.point)).collect();
        Ok(Some(Put { points: self.append(left, &mut exclusive)?, taken }))
    }

    /// Gives points to the journal and to memory. Returns how many.
    fn append(&self, mut left: Vec<LatePoint>, exclusive: &mut Exclusive<'_>) -> io::Result<u64> {
        // Few records, whose points are of one moment each.
        left.sort_by_key(|point| (point.at.low(), point.at.high()));
        for of_moment in left.chunk_by(|one, next| one.at == next.at).flat_map(|points| points.chunks(RECORD_POINTS)) {
            let at = of_moment[0].at;
            let resolved =
                |point: &LatePoint| ResolvedPoint { metric: point.metric, time: point.time, value: point.value };
            let points: Vec<ResolvedPoint> = of_moment.iter().map(resolved).collect();
            exclusive.append(&[Accepted { points: &points, at }])?;
            self.with.memtable.apply_spilled(Journalled::read_back(&points, at));
        }
        Ok(left.len() as u64)
    }

    /// Puts points in the place of values that are older. `named` is what the segments name.
    async fn replace(
        self: &Arc<PutBack>,
        segment: &Segment,
        taken: Vec<Taken>,
        named: &Arc<Mutex<Named>>,
    ) -> io::Result<Replaced> {
        let mut replaced = Replaced::default();
        let (taken, others): (Vec<Taken>, Vec<Taken>) =
            taken.into_iter().partition(|taken| taken.is_plain && self.with.is_alone);
        replaced.unclear = others.len() as u64;
        if taken.is_empty() {
            return Ok(replaced);
        }
        let taken = Arc::new(taken);
        for _ in 0..ATTEMPTS {
            self.with.memtable.may_take().await;
            let (this, of, all, named) = (self.clone(), segment.clone(), taken.clone(), named.clone());
            let put = self.elsewhere(move || this.try_to_replace(&of, &all, &mut named.lock())).await?;
            if let Some(put) = put {
                return Ok(Replaced { unclear: replaced.unclear + put.unclear, ..put });
            }
            tokio::time::sleep(POLL).await;
        }
        Err(io::Error::other("points are stored all the time; trying again later"))
    }

    /// `None` where jobs were stored meanwhile.
    fn try_to_replace(&self, segment: &Segment, taken: &[Taken], named: &mut Named) -> io::Result<Option<Replaced>> {
        let PutBackParts { identity, journal, memtable, back_pressure, writer, .. } = &self.with;
        // Before the segments are read: whatever the store has by then is in them.
        let stored = writer.stored_metrics();
        let since =
            since((journal.folder(), identity), segment, &Asked::about(taken), |other| self.load(other, named))?;
        let Some(since) = since else {
            return Ok(Some(Replaced { unclear: taken.len() as u64, ..Replaced::default() }));
        };
        let (mut replaced, mut left) = (Replaced::default(), Vec::new());
        for taken in taken {
            match since.get(&(taken.point.metric, taken.slot)) {
                Some(Since::Newer) => {}
                Some(Since::Unclear) => replaced.unclear += 1,
                None => left.push(taken),
            }
        }
        let mut exclusive = journal.exclusive();
        {
            let memtable = memtable.lock();
            if writer.stored_metrics() != stored || back_pressure.is_spilling() {
                return Ok(None);
            }
            // What is in memory may have come since the segments were read.
            left.retain(|taken| {
                let metric = taken.point.metric;
                let is_there = memtable.policy(metric) == Some(taken.policy_id)
                    && memtable.older_jobs(metric, taken.policy_id).is_empty();
                let view = memtable.view(metric, taken.policy_id);
                let has = |slot| {
                    !view.is_empty()
                        && view.points().of_stage(0).binary_search_by_key(&slot, |point| point.slot).is_ok()
                };
                let may_put = is_there && !has(taken.slot);
                // Of a metric that was deleted nothing is put back.
                replaced.is_waiting |= !may_put && memtable.policy(metric).is_some();
                may_put
            });
        }
        replaced.points = self.append(left.into_iter().map(|taken| taken.point).collect(), &mut exclusive)?;
        Ok(Some(replaced))
    }

    /// The slots that points of one metric are for. `None` where it has no policy any more.
    fn of_metric(&self, points: &[LatePoint]) -> Option<OfMetric> {
        let metric = points[0].metric;
        let table = self.with.memtable.policies();
        let history = self.with.registry.policies(metric)?;
        let policy_id = history.current();
        let policy = table.all.get(usize::from(policy_id))?.clone();
        let older = if history.len() > 1 { OlderPolicies::of(&history, policy_id, &table) } else { None };
        let now = self.with.acceptor.now();
        let mut wanted: Vec<Wanted> = points.iter().filter_map(|&point| wanted(point, &policy, now)).collect();
        // The last of a slot.
        wanted.reverse();
        let mut seen = HashSet::new();
        wanted.retain(|wanted| seen.insert((wanted.stage, wanted.slot)));
        wanted.sort_by_key(|wanted| (wanted.stage, wanted.slot));
        Some(OfMetric { metric, policy_id, policy, older, wanted, stored: Vec::new() })
    }
}

/// Where a point goes. One whose slot has expired meanwhile goes where a point goes that comes now.
fn wanted(point: LatePoint, policy: &Policy, now: Timestamp) -> Option<Wanted> {
    let (retention, time) = (&policy.retention, Timestamp::from(point.time));
    let place = |at: Now| {
        let finest = retention.finest();
        let is_in_bounds = at.low() - time <= finest.duration() && time - at.high() <= retention.longest().duration();
        let stage = if is_in_bounds { 0 } else { retention.stage_holding(time, at.low())? };
        (is_in_bounds || at.high() >= time && 0 < stage).then_some(stage)
    };
    let stage = place(point.at).filter(|&stage| now - time <= retention.stages()[stage].duration());
    let (stage, at) = match stage {
        Some(stage) => (stage, point.at),
        None => (place(Now::at(now))?, Now::at(now)),
    };
    let slot = retention.stages()[stage].slot(time)?;
    Some(Wanted { stage, slot, point: LatePoint { at, ..point } })
}

impl Wanted {
    /// The value that its slot has once it is stored.
    fn stored(&self, policy: &Policy) -> f64 {
        let stages = policy.retention.stages();
        match self.stage {
            0 => self.point.value,
            stage => {
                let expected = stages[stage].resolution() / stages[0].resolution();
                policy.aggregation.whole(self.point.value, expected).value
            }
        }
    }
}

impl OfMetric {
    /// The stored slots that are wanted.
    fn fetches(&self, name: &str) -> Vec<Fetch> {
        let together = |one: &Wanted, next: &Wanted| one.stage == next.stage && next.slot - one.slot < JOIN;
        let fetch = |wanted: &[Wanted]| {
            let (first, last) = (wanted.first()?, wanted.last()?);
            let table: Table = self.policy.retention.table(first.stage);
            let (metric, name, aggregation) = (self.metric, name.to_owned(), self.policy.aggregation);
            Some(Fetch {
                metric,
                name,
                table,
                first_slot: first.slot,
                end_slot: last.slot.saturating_add(1),
                aggregation,
            })
        };
        self.wanted.chunk_by(together).filter_map(fetch).collect()
    }

    fn taken(&self, wanted: &Wanted) -> Taken {
        let (policy_id, policy) = (self.policy_id, self.policy.clone());
        let is_plain = wanted.stage == 0 && self.older.is_none();
        Taken { point: wanted.point, slot: wanted.slot, policy_id, policy, is_plain }
    }

    /// Leaves out the slots that memory has. Those that have other values, there or in the store, go to `taken`. Returns
    /// false where that is not known now.
    fn leave_out_those_in(&mut self, memtable: &LockedMemtable<'_>, taken: &mut Vec<Taken>) -> bool {
        if memtable.policy(self.metric) != Some(self.policy_id)
            || !memtable.older_jobs(self.metric, self.policy_id).is_empty()
        {
            return false;
        }
        let view = memtable.view(self.metric, self.policy_id);
        let points = (!view.is_empty()).then(|| view.points());
        let in_memory = |wanted: &Wanted| {
            let of_stage = points.as_ref()?.of_stage(wanted.stage);
            let place = of_stage.binary_search_by_key(&wanted.slot, |point| point.slot).ok()?;
            Some(of_stage[place].value)
        };
        let stored = std::mem::take(&mut self.stored).into_iter().map(|(wanted, value)| (wanted, Some(value)));
        let absent = std::mem::take(&mut self.wanted).into_iter().map(|wanted| (wanted, None));
        for (wanted, stored) in stored.chain(absent) {
            match in_memory(&wanted).or(stored) {
                None => self.wanted.push(wanted),
                Some(value) if wanted.point.is_again || value == wanted.point.value => {}
                Some(_) => taken.push(self.taken(&wanted)),
            }
        }
        true
    }
}
