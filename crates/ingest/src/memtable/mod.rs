//! Points in memory: those of every metric that wait for a flush, and those of flush jobs on their way to the store.
//!
//! One lock guards them all. It is taken before those of the registry, the rules and the journal's names, and before the
//! policy table is read: no slot has a policy that the table lacks. [`LockedMemtable`] is the only way to either.

mod flush_job;
mod points_view;
mod slots;
mod writer_partials;

use std::sync::Arc;

use carbon::RejectReason;
use downsample::{Growth, WriterPartials};
use metadata::{PolicyId, Registry, UnstoredPoints};
use metric::{MetricId, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use self::slots::{NO_POLICY, Refusals, Slots};
use crate::{
    back_pressure::{BackPressure, Held},
    policy_table::{Policies, PolicyTable},
    wal::{Appended, Journalled, ResolvedPoint},
};

pub(crate) use self::{
    flush_job::FlushJob,
    points_view::PointsView,
    slots::{ListReject, NotTaken},
};

/// Points in memory. A batch of points pays for the lock once.
pub(crate) struct Memtable {
    registry: Arc<Registry>,
    policies: Arc<Policies>,
    back_pressure: Arc<BackPressure>,
    slots: Mutex<Slots>,
    /// Whether every job that a recovery set aside was written once.
    is_recovered: watch::Sender<bool>,
}

/// Proof that every job that a recovery set aside was written once. Nothing else is taken out of memory before: it came later.
/// Where such a job is kept back, what came later for its metric is not taken out, either.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MayTake(());

impl Memtable {
    /// An empty memtable. `is_alone` says that no other process writes the store.
    pub(crate) fn new(
        registry: Arc<Registry>,
        policies: Arc<Policies>,
        back_pressure: Arc<BackPressure>,
        is_alone: bool,
    ) -> Memtable {
        let slots = Mutex::new(Slots::new(is_alone));
        Memtable { registry, policies, back_pressure, slots, is_recovered: watch::Sender::new(true) }
    }

    /// Takes out points that a list rejects, before the others are journalled. Returns their places.
    pub(crate) fn take_out_listed(&self, points: &mut Vec<ResolvedPoint>) -> Vec<(usize, ResolvedPoint, RejectReason)> {
        self.slots.lock().take_out_listed(points)
    }

    /// Stores points that were appended now. Returns those that are not stored.
    pub(crate) fn apply(&self, appended: &Appended<'_>) -> Refusals {
        let mut locked = self.lock();
        locked.ensure(appended.points().points());
        let (refusals, grew) = locked.slots.apply(appended.points(), &locked.table);
        // Under the lock, so that no flush stores these slots before they are counted.
        self.back_pressure.added(grew.into());
        refusals
    }

    /// The points that `apply` would not store, of points that spill.
    pub(crate) fn check(&self, appended: &Appended<'_>) -> Refusals {
        let mut locked = self.lock();
        locked.ensure(appended.points().points());
        let refusals = locked.slots.check(appended.points(), &locked.table);
        self.back_pressure.added(Held::default());
        refusals
    }

    /// Stores points that were spilled. Those that were rejected when they came were counted then.
    pub(crate) fn apply_spilled(&self, points: Journalled<'_>) {
        let mut locked = self.lock();
        let end = self.registry.read().end();
        let is_known = |point: &&ResolvedPoint| point.metric < end;
        let mut known: Vec<ResolvedPoint> = points.points().iter().filter(is_known).copied().collect();
        if known.is_empty() {
            return;
        }
        locked.ensure(&known);
        known.retain(|point| locked.policy(point.metric).is_some());
        let known = Journalled::read_back(&known, points.accepted_at());
        let (_, grew) = locked.slots.apply(known, &locked.table);
        self.back_pressure.added(grew.into());
    }

    /// Every policy that a job can have.
    pub(crate) fn policies(&self) -> Arc<PolicyTable> {
        self.policies.table()
    }

    pub(crate) fn lock(&self) -> LockedMemtable<'_> {
        let slots = self.slots.lock();
        // Only now: see above.
        LockedMemtable { table: self.policies.table(), slots, memtable: self }
    }

    /// Counts recovered points, and those of jobs set aside.
    pub(crate) fn count_recovered(&self, set_aside: Held) {
        self.back_pressure.added(self.slots.lock().held() + set_aside);
    }

    /// A recovery has set jobs aside; until each was written once, no flush may take others.
    pub(crate) fn set_jobs_aside(&self) {
        self.is_recovered.send_replace(false);
    }

    /// The jobs that were set aside are stored, or are kept back.
    pub(crate) fn jobs_aside_were_written(&self) {
        self.is_recovered.send_replace(true);
    }

    /// Whether no points may be taken out to be stored yet.
    pub(crate) fn is_recovering(&self) -> bool {
        !*self.is_recovered.borrow()
    }

    /// Waits until points may be taken out to be stored.
    pub(crate) async fn may_take(&self) -> MayTake {
        // The sender lives as long as this.
        let _ = self.is_recovered.subscribe().wait_for(|is_recovered| *is_recovered).await;
        MayTake(())
    }
}

impl UnstoredPoints for Memtable {
    fn are_known(&self) -> bool {
        !self.back_pressure.is_spilling()
    }

    fn spans(&self, ids: &[MetricId], each: &mut dyn FnMut(MetricId, Timestamp, Timestamp)) {
        let locked = self.lock();
        // Of a node with few metrics, most ids of a group are of none. A job may be of one that has no slots yet.
        let (end, has_jobs) = (locked.slots.end(), 0 < locked.slots.jobs());
        for &id in ids.iter().filter(|id| has_jobs || **id < end) {
            if let Some((first, last)) = locked.slots.span(id, &locked.table) {
                each(id, first, last);
            }
        }
    }
}

/// The memtable under its lock, with the policies of its slots.
pub(crate) struct LockedMemtable<'a> {
    slots: MutexGuard<'a, Slots>,
    table: Arc<PolicyTable>,
    memtable: &'a Memtable,
}

impl LockedMemtable<'_> {
    /// Gives slots to each metric of these points that was created since the last time.
    fn ensure(&mut self, points: &[ResolvedPoint]) {
        let last = points.iter().map(|point| point.metric).max().expect("there are points");
        if self.slots.end() <= last {
            self.ensure_up_to(last, false);
        }
    }

    /// Gives slots to every metric of the registry. The store may have rows of each.
    pub(crate) fn ensure_all(&mut self) {
        let end = self.memtable.registry.read().end();
        if let Some(last) = end.0.checked_sub(1) {
            self.ensure_up_to(MetricId(last), true);
        }
    }

    fn ensure_up_to(&mut self, last: MetricId, may_be_stored: bool) {
        let names = self.memtable.registry.read();
        // An id may be reserved for a metric that is being adopted.
        let policy_of = |metric| if names.name(metric).is_empty() { NO_POLICY } else { names.policy_id(metric) };
        self.slots.ensure(last, may_be_stored, policy_of);
    }

    /// Reads the policy table again, which the holder of the lock has changed.
    pub(crate) fn refresh_policies(&mut self) {
        self.table = self.memtable.policies.table();
    }

    /// Every policy by its id.
    pub(crate) fn policies(&self) -> &PolicyTable {
        &self.table
    }

    /// Metrics below this id have slots.
    pub(crate) fn end(&self) -> MetricId {
        self.slots.end()
    }

    /// An id that was reserved has a metric now: its slots, if there are any, get its policy.
    pub(crate) fn begin(&mut self, metric: MetricId, policy: PolicyId) {
        self.slots.begin(metric, policy);
    }

    /// Lets go of deleted metrics, and drops their points. Points for them that come later are not stored, either.
    pub(crate) fn delete(&mut self, metrics: &[MetricId]) {
        // A metric that gets no slots from now on stays without.
        if let Some(&last) = metrics.iter().max().filter(|&&last| self.slots.end() <= last) {
            self.ensure_up_to(last, false);
        }
        let dropped = self.delete_recovered(metrics);
        self.memtable.back_pressure.stored(dropped);
    }

    /// As [`LockedMemtable::delete`], for a recovery, which counts points when it ends. Returns the dropped ones.
    pub(crate) fn delete_recovered(&mut self, metrics: &[MetricId]) -> Held {
        metrics.iter().map(|&metric| self.slots.delete(metric, &self.table)).sum()
    }

    /// The policy of a metric; `None` for an id without one.
    pub(crate) fn policy(&self, metric: MetricId) -> Option<PolicyId> {
        self.slots.policy(metric)
    }

    /// Stores points that a recovery reads; it counts them when it ends. Returns by how much memory grew.
    pub(crate) fn apply_recovered(&mut self, points: Journalled<'_>) -> Growth {
        self.slots.apply(points, &self.table).1
    }

    /// Takes out the points of a metric, to be stored, unless an earlier job of it is not stored yet.
    pub(crate) fn take(&mut self, metric: MetricId, _: MayTake) -> Option<Arc<FlushJob>> {
        self.slots.take(metric, &self.table)
    }

    /// Takes out the points of a metric, for a recovery that stores them before anything that is taken later.
    pub(crate) fn take_aside(&mut self, metric: MetricId) -> Option<Arc<FlushJob>> {
        self.slots.take_aside(metric)
    }

    /// Lets go of a job: it is stored, and this writer's partials are these.
    pub(crate) fn stored(&mut self, job: &FlushJob, partials: Option<&WriterPartials>) {
        self.slots.stored(job, partials, &self.table);
    }

    /// What this writer has stored of a metric is not known any more. Not while it has a job.
    pub(crate) fn forget_partials(&mut self, metric: MetricId) {
        self.slots.forget_partials(metric, &self.table);
    }

    /// Whether points of a metric are on their way to the store.
    pub(crate) fn has_job(&self, metric: MetricId) -> bool {
        self.slots.has_job(metric)
    }

    /// Jobs that no task writes any more, because their writer panicked: the caller writes them.
    pub(crate) fn abandoned(&self) -> Vec<Arc<FlushJob>> {
        self.slots.abandoned()
    }

    /// As [`LockedMemtable::abandoned`], of jobs that a recovery took and that no task holds any more.
    pub(crate) fn abandoned_aside(&self) -> Vec<Arc<FlushJob>> {
        self.slots.abandoned_aside()
    }

    /// Jobs that are not stored yet.
    pub(crate) fn jobs(&self) -> usize {
        self.slots.jobs()
    }

    /// Whether a metric has points that no job has. After an attempt to take them: they wait for an earlier job.
    pub(crate) fn is_pending(&self, metric: MetricId) -> bool {
        self.slots.is_pending(metric)
    }

    /// Whether points of a metric are in memory, those on their way to the store included.
    pub(crate) fn has_points(&self, metric: MetricId) -> bool {
        self.slots.is_pending(metric) || self.slots.has_job(metric)
    }

    /// Whether no points of a metric are in memory, on their way to the store or in the journal alone, nor were stored
    /// since jobs are noted.
    pub(crate) fn is_idle(&self, metric: MetricId) -> bool {
        !self.has_points(metric) && !self.slots.was_stored(metric) && !self.memtable.back_pressure.is_spilling()
    }

    /// Notes from now on, or no longer, which metrics' jobs are stored, for [`LockedMemtable::is_idle`].
    pub(crate) fn note_stored(&mut self, is_noting: bool) {
        self.slots.note_stored(is_noting);
    }

    /// Whether the rules of this node say how a metric is kept.
    pub(crate) fn is_judged(&self, metric: MetricId) -> bool {
        self.slots.is_judged(metric)
    }

    /// Whether only others have points of a metric, as far as is known.
    pub(crate) fn is_theirs(&self, metric: MetricId) -> bool {
        self.slots.is_theirs(metric) && !self.memtable.back_pressure.is_spilling()
    }

    /// Whether points of a metric came here since the start, as far as is known without those that are spilled.
    pub(crate) fn has_come(&self, metric: MetricId) -> bool {
        !self.slots.is_theirs(metric)
    }

    /// Where others write the store too: metrics that were received for the first time, to be judged by the rules.
    pub(crate) fn newcomers(&mut self) -> &mut Vec<MetricId> {
        self.slots.newcomers()
    }

    /// Sets which list rejects a metric's points from now on, if one does.
    pub(crate) fn set_rejects(&mut self, metric: MetricId, rejects: Option<ListReject>) {
        self.slots.set_rejects(metric, rejects);
    }

    /// Gives a metric another policy. Its points must have been taken before.
    pub(crate) fn set_policy(&mut self, metric: MetricId, policy: PolicyId) {
        self.slots.set_policy(metric, policy, &self.table);
    }

    /// Jobs of a metric that came under other policies than this one, in the order in which they are stored.
    pub(crate) fn older_jobs(&self, metric: MetricId, policy: PolicyId) -> Vec<Arc<FlushJob>> {
        self.slots.older_jobs(metric, policy)
    }

    /// The points of a metric that came under this policy.
    pub(crate) fn view(&self, metric: MetricId, policy: PolicyId) -> PointsView<'_> {
        self.slots.view(metric, policy)
    }
}
