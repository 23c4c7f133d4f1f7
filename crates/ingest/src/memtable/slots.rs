//! The slots of every metric.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use carbon::RejectReason;
use downsample::{Growth, PendingPoints, Stored, WriterPartials};
use metadata::PolicyId;
use metric::{Column, MetricId, Slot, Timestamp};

use super::{
    flush_job::FlushJob,
    points_view::PointsView,
    writer_partials::{PartialsArena, PartialsRef},
};
use crate::{
    back_pressure::Held,
    policy_table::{PointBounds, PolicyTable},
    wal::{Journalled, ResolvedPoint},
};

/// The policy of an id that no metric has, or that had one: the table of policies never grows so long. Points of such an id
/// were on their way when its metric was deleted.
pub(super) const NO_POLICY: PolicyId = PolicyId::MAX;

/// Room for jobs that is kept while there are none: a group of a cycle.
const JOBS_KEPT: usize = 512;

/// One metric. A million metrics have a million of these: forty-eight bytes.
#[derive(Debug)]
struct MetricSlots {
    pending: PendingPoints,
    /// The partials of the metric that this writer has stored.
    partials: PartialsRef,
    policy: PolicyId,
    /// Set when the blacklist or the whitelist turned against a metric that exists.
    rejects: Option<ListReject>,
    /// Whether points were taken out since the start. Until then a metric of a store that others write too may be
    /// theirs alone, and keeps the policy they keep it by.
    is_received: bool,
}

impl MetricSlots {
    /// Of an id that no metric has.
    fn vacant() -> MetricSlots {
        MetricSlots {
            pending: PendingPoints::default(),
            partials: PartialsRef::UNKNOWN,
            policy: NO_POLICY,
            rejects: None,
            is_received: false,
        }
    }
}

/// Which list rejects a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListReject {
    Blacklisted,
    NotWhitelisted,
}

impl From<ListReject> for RejectReason {
    fn from(list: ListReject) -> RejectReason {
        match list {
            ListReject::Blacklisted => RejectReason::Blacklisted,
            ListReject::NotWhitelisted => RejectReason::NotWhitelisted,
        }
    }
}

/// Why a point is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    Rejected(RejectReason),
    /// Its metric was deleted while the point was on its way.
    Deleted,
}

/// The places of points that are not in memory, and why.
pub(crate) type Refusals = Vec<(usize, NotTaken)>;

/// All metrics, by id.
#[derive(Debug)]
pub(super) struct Slots {
    /// Whether no other process writes the store: rows that this writer has not stored do not exist then.
    is_alone: bool,
    metrics: Column<MetricSlots>,
    partials: PartialsArena,
    jobs: HashMap<MetricId, Arc<FlushJob>>,
    /// Jobs that a recovery took, in their order: they are stored before all others.
    jobs_aside: HashMap<MetricId, Vec<Arc<FlushJob>>>,
    /// Where others write too: metrics that were received for the first time, to be judged by the rules.
    newcomers: Vec<MetricId>,
    /// The metrics whose jobs were stored since a search for idle metrics began to read; `None` while none reads.
    stored_lately: Option<HashSet<MetricId>>,
    /// Metrics that a list rejects.
    listed: usize,
}

impl Slots {
    pub(super) fn new(is_alone: bool) -> Slots {
        Slots {
            is_alone,
            metrics: Column::new(MetricSlots::vacant),
            partials: PartialsArena::default(),
            jobs: HashMap::new(),
            jobs_aside: HashMap::new(),
            newcomers: Vec::new(),
            stored_lately: None,
            listed: 0,
        }
    }

    /// Takes out the points of metrics that a list rejects, and returns their places. This is before they are journalled: a
    /// replay, which does not know the lists of the time, has no such points.
    pub(super) fn take_out_listed(&self, points: &mut Vec<ResolvedPoint>) -> Vec<(usize, ResolvedPoint, RejectReason)> {
        let (mut listed, mut place) = (Vec::new(), 0);
        if self.listed == 0 {
            return listed;
        }
        points.retain(|point| {
            let list = self.metrics.get(point.metric).and_then(|slots| slots.rejects);
            listed.extend(list.map(|list| (place, *point, list.into())));
            place += 1;
            list.is_none()
        });
        listed
    }

    /// Metrics below this id have slots.
    pub(super) fn end(&self) -> MetricId {
        self.metrics.end()
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs.len() + self.jobs_aside.values().map(Vec::len).sum::<usize>()
    }

    /// Whether points of a metric are on their way to the store.
    pub(super) fn has_job(&self, metric: MetricId) -> bool {
        self.jobs.contains_key(&metric) || self.jobs_aside.contains_key(&metric)
    }

    /// Notes from now on, or no longer, which metrics' jobs are stored.
    pub(super) fn note_stored(&mut self, is_noting: bool) {
        self.stored_lately = is_noting.then(HashSet::new);
    }

    /// Times that all points of a metric in memory are between; `None` without points.
    pub(super) fn span(&self, metric: MetricId, table: &PolicyTable) -> Option<(Timestamp, Timestamp)> {
        let of = |points: &PendingPoints, policy: PolicyId| match table.all.get(usize::from(policy)) {
            Some(policy) => points.span(&policy.retention),
            // Not known: any time.
            None => (!points.is_empty()).then_some((Timestamp::MIN, Timestamp::MAX)),
        };
        let pending = self.metrics.get(metric).and_then(|slots| of(&slots.pending, slots.policy));
        let jobs = self.jobs.get(&metric).into_iter().chain(self.jobs_aside.get(&metric).into_iter().flatten());
        let spans = pending.into_iter().chain(jobs.filter_map(|job| of(&job.points, job.policy)));
        let (first, last) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        // Jobs of an older policy are drawn in slots of the one in force.
        let current =
            self.policy(metric).filter(|_| self.jobs.contains_key(&metric) || self.jobs_aside.contains_key(&metric));
        let Some(current) = current.and_then(|policy| table.all.get(usize::from(policy))) else {
            return Some((first, last));
        };
        let step = Timestamp::from(current.retention.longest().resolution());
        let begin = |time: Timestamp| time.div_euclid(step).saturating_mul(step);
        Some((begin(first), last.max(begin(last).saturating_add(step - 1))))
    }

    /// Whether a job of a metric was stored since they are noted.
    pub(super) fn was_stored(&self, metric: MetricId) -> bool {
        self.stored_lately.as_ref().is_some_and(|stored| stored.contains(&metric))
    }

    pub(super) fn newcomers(&mut self) -> &mut Vec<MetricId> {
        &mut self.newcomers
    }

    /// Points that no job has.
    pub(super) fn held(&self) -> Held {
        self.metrics.iter().map(|(_, metric)| Held::from(&metric.pending)).sum()
    }

    /// Makes slots up to and including `last`. `may_be_stored` says whether the store may have rows of them already.
    pub(super) fn ensure(&mut self, last: MetricId, may_be_stored: bool, policy_of: impl Fn(MetricId) -> PolicyId) {
        let partials = if may_be_stored { PartialsRef::UNKNOWN } else { PartialsRef::NOTHING };
        for metric in (self.metrics.end().0..=last.0).map(MetricId) {
            let policy = policy_of(metric);
            if policy != NO_POLICY {
                *self.metrics.entry(metric) = MetricSlots { partials, policy, ..MetricSlots::vacant() };
            }
        }
        self.metrics.extend_to(MetricId(last.0 + 1));
    }

    /// An id that was reserved has a metric now: its slots, if there are any, get its policy.
    pub(super) fn begin(&mut self, metric: MetricId, policy: PolicyId) {
        if metric < self.end() && self.policy(metric).is_none() {
            self.metrics.entry(metric).policy = policy;
        }
    }

    /// The policy of a metric; `None` for an id without one.
    pub(super) fn policy(&self, metric: MetricId) -> Option<PolicyId> {
        self.metrics.get(metric).map(|slots| slots.policy).filter(|&policy| policy != NO_POLICY)
    }

    /// Stores points; every metric has its slots. Returns those that are not stored, and by how much memory grew.
    pub(super) fn apply(&mut self, points: Journalled<'_>, table: &PolicyTable) -> (Refusals, Growth) {
        let mut grew = Growth::default();
        let mut refusals = self.judge(points, &table.bounds, |pending, slot, value| grew += pending.push(slot, value));
        if !refusals.is_empty() {
            refusals.retain(|&(place, reason)| {
                let point = &points.points()[place];
                let place = self.place_of_old(point, reason, points.accepted_at().low(), table);
                let Some(((stage, slot), slots)) = place.zip(self.metrics.get_mut(point.metric)) else {
                    return true;
                };
                grew += slots.pending.push_coarse(stage, slot, point.value);
                false
            });
        }
        (refusals, grew)
    }

    /// The points that `apply` would not store; stores none.
    pub(super) fn check(&mut self, points: Journalled<'_>, table: &PolicyTable) -> Refusals {
        let mut refusals = self.judge(points, &table.bounds, |_, _, _| ());
        refusals.retain(|&(place, reason)| {
            self.place_of_old(&points.points()[place], reason, points.accepted_at().low(), table).is_none()
        });
        refusals
    }

    #[inline]
    fn judge(
        &mut self,
        points: Journalled<'_>,
        bounds: &[PointBounds],
        mut store: impl FnMut(&mut PendingPoints, Slot, f64),
    ) -> Refusals {
        let mut refusals = Vec::new();
        let (low, high) = (points.accepted_at().low(), points.accepted_at().high());
        for (place, point) in points.points().iter().enumerate() {
            let found = self.metrics.get_mut(point.metric);
            let Some((slots, &bounds)) =
                found.and_then(|slots| bounds.get(usize::from(slots.policy)).map(|bounds| (slots, bounds)))
            else {
                refusals.push((place, NotTaken::Deleted));
                continue;
            };
            let time = i64::from(point.time);
            // The future is bounded by the same length as the past.
            let is_in_bounds = low - time <= i64::from(bounds.finest) && time - high <= i64::from(bounds.longest);
            if is_in_bounds {
                store(&mut slots.pending, point.time / bounds.resolution, point.value);
            } else {
                // Too old perhaps for stage 0 only; see `place_of_old`.
                let reason = if high < time { RejectReason::TooFarAhead } else { RejectReason::TooOld };
                refusals.push((place, NotTaken::Rejected(reason)));
            }
        }
        refusals
    }

    /// The finest coarser stage that still holds the time of a point that is too old for stage 0, and the slot there.
    fn place_of_old(
        &self,
        point: &ResolvedPoint,
        reason: NotTaken,
        now: Timestamp,
        table: &PolicyTable,
    ) -> Option<(u8, Slot)> {
        if reason != NotTaken::Rejected(RejectReason::TooOld) {
            return None;
        }
        let retention = &table.all[usize::from(self.policy(point.metric)?)].retention;
        let stage = retention.stage_holding(i64::from(point.time), now).filter(|&stage| stage > 0)?;
        Some((stage as u8, retention.stages()[stage].slot(i64::from(point.time))?))
    }

    /// Lets go of a deleted metric and its points; those on their way to the store stay there. Returns the
    /// points that were dropped.
    pub(super) fn delete(&mut self, metric: MetricId, table: &PolicyTable) -> Held {
        let Some(policy) = self.policy(metric) else { return Held::default() };
        let slots = std::mem::replace(self.metrics.entry(metric), MetricSlots::vacant());
        self.partials.forget(slots.partials, table.all[usize::from(policy)].coarse_tables());
        self.listed -= usize::from(slots.rejects.is_some());
        self.metrics.free(metric, |slots| slots.policy == NO_POLICY);
        Held::from(&slots.pending)
    }

    /// Takes out the points of a metric, to be stored, unless an earlier job of it is not stored yet.
    pub(super) fn take(&mut self, metric: MetricId, table: &PolicyTable) -> Option<Arc<FlushJob>> {
        let slots = self.metrics.get_mut(metric)?;
        if slots.pending.is_empty() || self.jobs.contains_key(&metric) || self.jobs_aside.contains_key(&metric) {
            return None;
        }
        if !slots.is_received {
            slots.is_received = true;
            if !self.is_alone {
                self.newcomers.push(metric);
            }
        }
        let points = std::mem::take(&mut slots.pending);
        let partials = self.partials.get(slots.partials, table.all[usize::from(slots.policy)].coarse_tables());
        let job = Arc::new(FlushJob { metric, policy: slots.policy, points, partials, is_latest: true });
        self.jobs.insert(metric, job.clone());
        Some(job)
    }

    /// Takes out the points of a metric for a recovery: the caller stores the job before anything that is taken later.
    pub(super) fn take_aside(&mut self, metric: MetricId) -> Option<Arc<FlushJob>> {
        let slots = self.metrics.get_mut(metric)?;
        if slots.pending.is_empty() {
            return None;
        }
        let points = std::mem::take(&mut slots.pending);
        let job = Arc::new(FlushJob { metric, policy: slots.policy, points, partials: None, is_latest: false });
        self.jobs_aside.entry(metric).or_default().push(job.clone());
        Some(job)
    }

    /// Jobs that no task writes any more: their writer panicked. Who writes a job holds it, and so do the lists of those
    /// that are kept back.
    pub(super) fn abandoned(&self) -> Vec<Arc<FlushJob>> {
        let aside = self.jobs_aside.values().flatten();
        aside.chain(self.jobs.values()).filter(|job| Arc::strong_count(job) == 1).cloned().collect()
    }

    /// As [`Slots::abandoned`], of jobs that a recovery took.
    pub(super) fn abandoned_aside(&self) -> Vec<Arc<FlushJob>> {
        self.jobs_aside.values().flatten().filter(|job| Arc::strong_count(job) == 1).cloned().collect()
    }

    /// Lets go of a job: it is stored, and this writer's partials are these.
    pub(super) fn stored(&mut self, job: &FlushJob, partials: Option<&WriterPartials>, table: &PolicyTable) {
        if !job.is_latest {
            self.stored_aside(job);
            return;
        }
        self.jobs.remove(&job.metric);
        if let Some(stored) = &mut self.stored_lately {
            stored.insert(job.metric);
        }
        if self.jobs.is_empty() {
            // The room that a burst of jobs took.
            self.jobs.shrink_to(JOBS_KEPT);
        }
        let Some(slots) = self.metrics.get_mut(job.metric) else { return };
        // If the policy changed meanwhile, or the metric was deleted, the stored partials were forgotten already.
        if slots.policy == job.policy {
            let coarse = table.all[usize::from(job.policy)].coarse_tables();
            slots.partials = self.partials.set(slots.partials, partials, coarse);
        }
    }

    /// What this writer has stored of a metric is not known any more.
    pub(super) fn forget_partials(&mut self, metric: MetricId, table: &PolicyTable) {
        let Some(slots) = self.metrics.get_mut(metric) else { return };
        if let Some(policy) = table.all.get(usize::from(slots.policy)) {
            slots.partials = self.partials.set(slots.partials, None, policy.coarse_tables());
        }
    }

    /// Lets go of a job that a recovery took. This writer's partials stay unknown: other jobs may follow.
    fn stored_aside(&mut self, job: &FlushJob) {
        let Some(jobs) = self.jobs_aside.get_mut(&job.metric) else { return };
        jobs.retain(|other| !std::ptr::eq(&**other, job));
        if jobs.is_empty() {
            self.jobs_aside.remove(&job.metric);
        }
        if self.jobs_aside.is_empty() {
            self.jobs_aside = HashMap::new();
        }
    }

    /// Jobs of a metric that [`Slots::view`] does not show for this policy, in the order in which they are stored. The last may
    /// be one that is not taken out yet: while the journal is read back, a metric has the policy that it had then.
    pub(super) fn older_jobs(&self, metric: MetricId, policy: PolicyId) -> Vec<Arc<FlushJob>> {
        let aside = self.jobs_aside.get(&metric).into_iter().flatten();
        let taken = aside.chain(self.jobs.get(&metric).filter(|job| job.policy != policy)).cloned();
        let other = self.metrics.get(metric).filter(|slots| slots.policy != policy && !slots.pending.is_empty());
        let pending = other.map(|slots| {
            let points = slots.pending.clone();
            Arc::new(FlushJob { metric, policy: slots.policy, points, partials: None, is_latest: true })
        });
        taken.chain(pending).collect()
    }

    /// Whether the rules of this node say how a metric is kept: not where others write the store too and no point
    /// of it came here.
    pub(super) fn is_judged(&self, metric: MetricId) -> bool {
        let Some(slots) = self.metrics.get(metric) else { return true };
        self.is_alone || slots.is_received || !slots.pending.is_empty()
    }

    /// Whether others write the store too, and no point of a metric came here since the start.
    pub(super) fn is_theirs(&self, metric: MetricId) -> bool {
        let has_none = |slots: &MetricSlots| !slots.is_received && slots.pending.is_empty();
        !self.is_alone && self.metrics.get(metric).is_none_or(has_none) && !self.has_job(metric)
    }

    /// Whether a metric has points that no job has. After an attempt to take them: they wait for an earlier job.
    pub(super) fn is_pending(&self, metric: MetricId) -> bool {
        self.metrics.get(metric).is_some_and(|slots| !slots.pending.is_empty())
    }

    /// Sets which list rejects a metric's points from now on, if one does.
    pub(super) fn set_rejects(&mut self, metric: MetricId, rejects: Option<ListReject>) {
        if let Some(slots) = self.metrics.get_mut(metric) {
            let before = std::mem::replace(&mut slots.rejects, rejects);
            self.listed += usize::from(rejects.is_some());
            self.listed -= usize::from(before.is_some());
        }
    }

    /// Gives a metric another policy. Its points must have been taken before.
    pub(super) fn set_policy(&mut self, metric: MetricId, policy: PolicyId, table: &PolicyTable) {
        let Some(slots) = self.metrics.get_mut(metric) else { return };
        debug_assert!(slots.pending.is_empty(), "points that came under one policy are not stored by another");
        if let Some(before) = table.all.get(usize::from(slots.policy)) {
            self.partials.forget(slots.partials, before.coarse_tables());
        }
        slots.policy = policy;
        // The new stages may share tables with the old ones.
        slots.partials = PartialsRef::UNKNOWN;
    }

    /// The points of a metric that came under this policy. Those that came under another are counted in other slots; see
    /// [`Slots::older_jobs`].
    pub(super) fn view(&self, metric: MetricId, policy: PolicyId) -> PointsView<'_> {
        // Only the store knows what another writer has stored.
        let of_all = |this_writer| if self.is_alone { this_writer } else { Stored::Unknown };
        let Some(slots) = self.metrics.get(metric) else {
            // It received no points.
            let all_writers = of_all(Stored::Nothing);
            return PointsView { all_writers, is_alone: self.is_alone, ..PointsView::default() };
        };
        let job = self.jobs.get(&metric).filter(|job| job.policy == policy);
        let is_current = slots.policy == policy;
        let this_writer = match job {
            Some(job) => job.stored_before(),
            None if is_current => self.partials.stored(slots.partials),
            None => Stored::Unknown,
        };
        PointsView {
            flushing: job.map(|job| &job.points),
            pending: (is_current && !slots.pending.is_empty()).then_some(&slots.pending),
            all_writers: of_all(this_writer),
            this_writer,
            is_alone: self.is_alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_as_small_as_a_million_of_them_must_be() {
        assert!(size_of::<MetricSlots>() <= 48, "{}", size_of::<MetricSlots>());
    }

    #[test]
    fn points_that_came_under_one_policy_are_not_seen_under_another() {
        let mut slots = Slots::new(true);
        slots.ensure(MetricId(0), false, |_| 1);
        slots.metrics.entry(MetricId(0)).pending.push(10, 1.0);
        let (same, other) = (slots.view(MetricId(0), 1), slots.view(MetricId(0), 0));
        assert_eq!((same.is_empty(), same.all_writers), (false, Stored::Nothing));
        assert_eq!((other.is_empty(), other.all_writers), (true, Stored::Unknown));
        // A reader has them as those of an older policy.
        let older = slots.older_jobs(MetricId(0), 0);
        assert_eq!(older.iter().map(|job| (job.policy, job.points.slots())).collect::<Vec<_>>(), [(1, 1)]);
        assert!(slots.older_jobs(MetricId(0), 1).is_empty());
    }
}
