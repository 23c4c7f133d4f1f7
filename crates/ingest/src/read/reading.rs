//! One series while it is read.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use downsample::{Coverage, PendingPoints, ReadPlan, SortedPoints, Stored};
use metadata::{PolicyHistory, PolicyId, Registry, Seen};
use metric::{MetricId, Partial, Policy, Slot, Stage, StageChoice, Table, Timestamp};
use store::{Cells, FetchedSeries, SeriesRequest};

use crate::{
    heads::{Head, PeerPoints},
    memtable::{FlushJob, LockedMemtable, PointsView},
    policy_table::{PolicyTable, Rollup},
};

/// What could not be read of stored slots: an answer may have something there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unread {
    /// Some are damaged.
    pub(super) is_damaged: bool,
    /// Some cannot be read now.
    pub(super) is_for_now: bool,
}

impl Unread {
    /// Takes note of what could not be read of an answer.
    pub(super) fn add(&mut self, cells: &Cells) {
        self.is_damaged |= cells.is_damaged;
        self.is_for_now |= cells.is_unreadable || cells.is_away;
    }
}

/// What memory and the stage's own slots answer.
pub(super) struct Answer {
    pub(super) series: FetchedSeries,
    /// What of its slots could not be read.
    pub(super) unread: Unread,
    /// Places of slots that have points and no value: too few for the xFilesFactor, or what they make is not known. Only of metrics
    /// whose policy has changed, since nothing coarser fills others.
    pub(super) withheld: BTreeSet<usize>,
}

/// A series being read.
pub(super) struct Reading {
    pub(super) metric: MetricId,
    pub(super) policy: Arc<Policy>,
    pub(super) history: PolicyHistory,
    /// The rollup that is read, whose policy is `policy`.
    pub(super) rollup: Rollup,
    pub(super) choice: StageChoice,
    /// What the rules say in place of the policy.
    ruled_x_files_factor: Option<f64>,
    /// The first steps of the policies, and since when. Empty where all are the same.
    first_steps: Vec<(Timestamp, u32)>,
    /// Stage 0: the values in memory, one for each of the slots; `None` where there are none.
    in_memory: Option<Vec<f64>>,
    /// A coarser stage: the points in memory.
    pending: SortedPoints,
    /// Points that came under older policies and are on their way to the store, in the order in which they get there.
    older_jobs: Vec<Arc<FlushJob>>,
    /// Points in memory of other nodes that came under older policies.
    peer_jobs: Vec<Arc<FlushJob>>,
    pub(super) is_alone: bool,
    /// The part of `choice.slots` that may be stored.
    pub(super) stored: Range<Slot>,
    coverage: Coverage,
    /// Whether all points that came here for the window are in memory: the answer while the store is away.
    pub(super) is_in_memory: bool,
    /// Nodes whose points in memory are not known.
    missing_peers: Option<Arc<[String]>>,
}

impl Reading {
    /// Chooses what to read; `None` for an unknown metric, and for a window that nothing keeps.
    /// `reached` is how far the store has come, see [`Coverage`].
    pub(super) fn of(
        request: &SeriesRequest,
        reached: Timestamp,
        registry: &Registry,
        table: &PolicyTable,
    ) -> Option<Reading> {
        let history = registry.policies(request.metric)?;
        // A policy made this moment is in the registry before it is in the table.
        let whole = table.all.get(usize::from(history.current()));
        let whole = whole.cloned().unwrap_or_else(|| registry.policy(history.current()));
        let method = request.rollup.filter(|&method| whole.rollups.contains(method)).unwrap_or(whole.aggregation);
        let rollup = Rollup { method, is_first: method == whole.aggregation };
        let policy = if rollup.is_first { whole } else { Arc::new(whole.of_rollup(method)) };
        let choice = policy.retention.choose(request.window, request.now, request.max_points)?;
        let stored = choice.slots.clone();
        let policy_since = history.last().map_or(Timestamp::MAX, |last| last.since);
        let (all_writers, this_writer) = (Stored::Unknown, Stored::Unknown);
        let points_since = table.points_since(&history, reached);
        let rows_alone_until = table.rows_alone_until(&history, reached);
        let first_steps = first_steps(&history, table);
        Some(Reading {
            metric: request.metric,
            policy,
            history,
            rollup,
            in_memory: None,
            choice,
            ruled_x_files_factor: registry.ruled_x_files_factor(request.metric),
            first_steps,
            pending: SortedPoints::default(),
            older_jobs: Vec::new(),
            peer_jobs: Vec::new(),
            is_alone: false,
            stored,
            coverage: Coverage {
                all_writers,
                this_writer,
                now: reached,
                policy_since,
                is_alone: false,
                points_since,
                rows_alone_until,
            },
            is_in_memory: false,
            missing_peers: None,
        })
    }

    pub(super) fn table(&self) -> Table {
        self.policy.table(self.choice.stage)
    }

    pub(super) fn stage(&self) -> Stage {
        self.policy.retention.stages()[self.choice.stage]
    }

    /// What is shown of a coarse slot that begins at this time, whose partial is in the terms of a policy that the metric has or had.
    /// The xFilesFactor in force holds, whichever policy stored the slot.
    pub(super) fn shown(&self, partial: Partial, policy: &Policy, stage: Stage, time: Timestamp) -> f64 {
        let points_of = |step: u32| (stage.resolution() / step).max(1);
        let all = points_of(policy.retention.finest().resolution());
        // A point of a coarser first step is one point: where such a policy was in force, fewer are all.
        let coarsest = self.coarsest_step(time..time + i64::from(stage.resolution()));
        let expected = coarsest.map_or(all, |step| points_of(step).min(all));
        let x_files_factor = self.ruled_x_files_factor.unwrap_or(self.policy.x_files_factor);
        match policy.aggregation.finish(partial, expected, x_files_factor).is_nan() {
            true => f64::NAN,
            false => policy.aggregation.finish(partial, all, 0.0),
        }
    }

    /// The coarsest first step that was in force in these times, where there were several.
    fn coarsest_step(&self, times: Range<Timestamp>) -> Option<u32> {
        let next = self.first_steps.iter().skip(1).map(|(since, _)| *since).chain([Timestamp::MAX]);
        let in_force =
            self.first_steps.iter().zip(next).filter(|((since, _), next)| *since < times.end && times.start < *next);
        in_force.map(|((_, step), _)| *step).max()
    }

    /// Copies the points in memory: for stage 0 as values, for a coarser stage as the points it is derived from.
    pub(super) fn copy_from(&mut self, memtable: &LockedMemtable<'_>) {
        let view = memtable.view(self.metric, self.history.current());
        self.is_alone = view.is_alone;
        if self.history.len() > 1 {
            self.older_jobs = memtable.older_jobs(self.metric, self.history.current());
        }
        let finest = i64::from(self.policy.retention.finest().resolution());
        let begin = self.stage().time(self.choice.slots.start) / finest;
        self.is_in_memory = !view.is_empty() && view.this_writer.end().is_some_and(|end| i64::from(end) <= begin);
        if self.choice.stage == 0 {
            if !view.is_empty() {
                let mut values = vec![f64::NAN; self.choice.slots.len()];
                view.overlay(self.choice.slots.start, &mut values);
                self.in_memory = Some(values);
            }
            let empty_from = view.all_writers.empty_from().unwrap_or(Slot::MAX);
            self.stored.end = self.stored.end.min(empty_from).max(self.stored.start);
        } else if !view.is_empty() {
            self.pending = view.points().within(self.span(), &self.policy.retention);
            self.coverage.is_alone = view.is_alone;
            self.coverage.all_writers = view.all_writers;
            self.coverage.this_writer = view.apart_from_points();
        }
    }

    /// Adds points to no stored row: those may have some of them.
    pub(super) fn add_to_no_row(&mut self) {
        self.coverage.this_writer = Stored::Unknown;
    }

    /// Whether a flush that stores points meanwhile changes what is read.
    pub(super) fn may_be_overtaken(&self) -> bool {
        !self.older_jobs.is_empty() || !self.pending.is_empty() && self.coverage.this_writer != Stored::Unknown
    }

    /// Whether points were stored since [`Reading::copy_from`] that count as not stored here. After rows were read.
    pub(super) fn is_overtaken(&self, memtable: &LockedMemtable<'_>) -> bool {
        if !self.older_jobs.is_empty() {
            let now = memtable.older_jobs(self.metric, self.history.current());
            if !self.older_jobs.iter().all(|job| now.iter().any(|other| Arc::ptr_eq(job, other))) {
                return true;
            }
        }
        let adds = !self.pending.is_empty() && self.coverage.this_writer != Stored::Unknown;
        adds && memtable.view(self.metric, self.history.current()).apart_from_points() != self.coverage.this_writer
    }

    /// The whole slots that are read, as times.
    pub(super) fn span(&self) -> Range<Timestamp> {
        let stage = self.stage();
        stage.time(self.choice.slots.start)..stage.time(self.choice.slots.end)
    }

    /// The span of the points that the window can show once they are stored: its slots, slots around them, and the finer slots of both.
    pub(super) fn span_around(&self, table: &PolicyTable) -> Range<Timestamp> {
        let policies = self.history.iter().filter_map(|span| table.all.get(usize::from(span.policy)));
        let steps = policies.map(|policy| i64::from(policy.retention.longest().resolution()));
        let around = 3 * steps.max().unwrap_or(0).max(i64::from(self.stage().resolution()));
        let Range { start, end } = self.span();
        start - around..end + around
    }

    /// The span of the points of other nodes that this can show. A point of another first step may be of a part of its slot, or of several.
    pub(super) fn head_span(&self) -> Range<Timestamp> {
        let Range { start, end } = self.span();
        let Some(coarsest) = self.first_steps.iter().map(|(_, step)| *step).max() else { return start..end };
        let around = i64::from(coarsest.max(self.stage().resolution()));
        start - around..end + around
    }

    /// Points that came under older policies and are not stored, in the order in which they get there. Those of other nodes are under those of
    /// this one.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Arc<FlushJob>> {
        self.peer_jobs.iter().chain(&self.older_jobs)
    }

    /// Lays the points of other nodes under those of this one. After [`Reading::copy_from`], and before rows are read: a point that
    /// is in neither memory then is stored.
    pub(super) fn add_heads<'h>(&mut self, heads: impl Iterator<Item = &'h Head>, table: &PolicyTable) {
        let (_, before) = self.history.split_last().expect("a history has a policy");
        let known = |policy: &PolicyId| table.all.get(usize::from(*policy));
        let before = if known(&self.history.current()).is_some() { before } else { &[] };
        let policies: Vec<PolicyId> = before
            .iter()
            .map(|span| span.policy)
            .filter(|policy| known(policy).is_some())
            .chain([self.history.current()])
            .collect();
        let earlier = policies[..policies.len() - 1].iter().filter_map(known).map(|policy| &policy.retention);
        let mut points = PeerPoints::new(earlier, &self.policy.retention);
        heads.for_each(|head| points.add(head));
        let (others, jobs) = points.into_points();
        let job = |(place, points): (usize, PendingPoints)| {
            let (metric, policy) = (self.metric, policies[place]);
            Arc::new(FlushJob { metric, policy, points, partials: None, is_latest: false })
        };
        self.peer_jobs = jobs.into_iter().filter(|(_, points)| !points.is_empty()).map(job).collect();
        self.lay_under(&others);
    }

    /// Shows points of other nodes that came under older policies at their own times: the store is away, and does not tell what they make.
    pub(super) fn lay_peer_jobs(&mut self, table: &PolicyTable) {
        let finest = self.policy.retention.finest();
        let mut others = PendingPoints::default();
        for job in std::mem::take(&mut self.peer_jobs) {
            let Some(policy) = table.all.get(usize::from(job.policy)) else { continue };
            for (stage, time, value) in SortedPoints::of(&[&job.points]).staged_times(&policy.retention) {
                if let Some(slot) = finest.slot(time).filter(|_| stage == 0) {
                    others.push(slot, value);
                }
            }
        }
        self.lay_under(&others);
    }

    fn lay_under(&mut self, others: &PendingPoints) {
        if others.is_empty() {
            return;
        }
        if self.choice.stage == 0 {
            let mut values = vec![f64::NAN; self.choice.slots.len()];
            PointsView::of(others).overlay(self.choice.slots.start, &mut values);
            for (value, own) in values.iter_mut().zip(self.in_memory.iter().flatten()) {
                if !own.is_nan() {
                    *value = *own;
                }
            }
            self.in_memory = Some(values);
            return;
        }
        let others = SortedPoints::of(&[others]).within(self.span(), &self.policy.retention);
        if !others.is_empty() {
            self.pending = std::mem::take(&mut self.pending).over(others);
            // What other writers have stored of theirs is not known.
            self.coverage.this_writer = Stored::Unknown;
        }
    }

    /// Names the nodes whose points in memory are not in the answer.
    pub(super) fn name_missing(&mut self, peers: Option<Arc<[String]>>) {
        self.missing_peers = peers;
    }

    /// Reads no rows where the metric cannot have any. After [`Reading::copy_from`]: a point that was in neither place then was
    /// accepted later.
    pub(super) fn leave_out_unseen(&mut self, seen: &Seen) {
        let (Range { start, end }, stage) = (self.stored.clone(), self.stage());
        if self.history.len() == 1
            && start < end
            && !seen.may_be_stored(self.metric, stage.time(start), stage.time(end - 1))
        {
            self.stored.end = start;
        }
    }

    /// How the points in memory become slots of a coarser stage.
    pub(super) fn plan(&self) -> Option<ReadPlan<'_>> {
        let stage = self.choice.stage;
        (!self.pending.is_empty()).then(|| ReadPlan::new(&self.policy, &self.pending, self.coverage, stage))
    }

    /// The series, from memory and from what was read: first this reading's own slots, then what its plan needs.
    pub(super) fn answer(&self, plan: Option<ReadPlan<'_>>, cells: &mut impl Iterator<Item = Cells>) -> Answer {
        let stored = if self.stored.is_empty() { Cells::default() } else { cells.next().unwrap_or_default() };
        let earlier = stored.earlier;
        let (mut unread, mut withheld) = (Unread::default(), BTreeSet::new());
        unread.add(&stored);
        let values = match self.choice.stage {
            0 => self.finest(stored),
            _ => self.coarse(&stored, plan, cells, &mut withheld),
        };
        let stage = self.stage();
        let series = FetchedSeries {
            start: stage.time(self.choice.slots.start),
            step: stage.resolution(),
            values,
            aggregation: self.policy.aggregation,
            is_of_list: !self.policy.rollups.is_empty(),
            earlier,
            coarser: Vec::new(),
            missing_peers: self.missing_peers.clone(),
        };
        Answer { series, unread, withheld }
    }

    /// Values of stage 0. The stored slots begin at the first one and may end early; those in memory are newer.
    fn finest(&self, stored: Cells) -> Vec<f64> {
        let mut values = stored.values;
        values.resize(self.choice.slots.len(), f64::NAN);
        for (value, &newer) in values.iter_mut().zip(self.in_memory.iter().flatten()) {
            if !newer.is_nan() {
                *value = newer;
            }
        }
        values
    }

    /// Values of a coarser stage: stored partials, with those derived from points in memory laid over them.
    fn coarse(
        &self,
        stored: &Cells,
        plan: Option<ReadPlan<'_>>,
        cells: &mut impl Iterator<Item = Cells>,
        withheld: &mut BTreeSet<usize>,
    ) -> Vec<f64> {
        let mut partials = vec![Partial::NONE; self.choice.slots.len()];
        for ((partial, &value), &count) in partials.iter_mut().zip(&stored.values).zip(&stored.counts) {
            if !value.is_nan() {
                *partial = Partial { value, count };
            }
        }
        if let Some(mut plan) = plan {
            let needed: Vec<Cells> = cells.take(plan.needs().len()).collect();
            for (need, cells) in needed.iter().enumerate() {
                if cells.is_damaged {
                    plan.note_damage(need, cells.damage());
                    plan.note_outdated(need, &cells.outdated_at);
                }
                cells.latest_at.iter().for_each(|&(place, time)| plan.note_latest(need, place, time));
            }
            let needed: Vec<_> = needed.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
            let derived = plan.derive(&needed);
            for (_, slot) in derived.doubtful.into_iter().filter(|&(stage, _)| stage == self.choice.stage) {
                // The row lacks the points in memory, and what they make of it is not known.
                let place = slot.wrapping_sub(self.choice.slots.start) as usize;
                if let Some(partial) = partials.get_mut(place) {
                    *partial = Partial::NONE;
                    withheld.insert(place);
                }
            }
            for row in derived.rows.iter().filter(|row| row.stage == self.choice.stage) {
                for (i, (&value, &count)) in row.values.iter().zip(&row.counts).enumerate() {
                    let place = (row.first_slot + i as u32).checked_sub(self.choice.slots.start);
                    let partial = place.and_then(|place| partials.get_mut(place as usize));
                    if let Some(partial) = partial.filter(|_| count > 0) {
                        *partial = Partial { value, count };
                    }
                }
            }
        }
        let (stage, first) = (self.stage(), self.choice.slots.start);
        let shown = |(slot, &partial): (Slot, &Partial)| self.shown(partial, &self.policy, stage, stage.time(slot));
        let values: Vec<f64> = (first..).zip(&partials).map(shown).collect();
        if 1 < self.history.len() {
            let is_withheld = |place: &usize| 0 < partials[*place].count && values[*place].is_nan();
            withheld.extend((0..values.len()).filter(is_withheld));
        }
        values
    }
}

/// The first steps of the policies of a history, and since when. Empty where all are the same.
fn first_steps(history: &PolicyHistory, table: &PolicyTable) -> Vec<(Timestamp, u32)> {
    let step = |id| table.bounds.get(usize::from(id)).map(|bounds| bounds.resolution);
    let steps = history.iter().filter_map(|span| Some((span.since, step(span.policy)?)));
    let mut steps: Vec<(Timestamp, u32)> = if history.len() == 1 { Vec::new() } else { steps.collect() };
    if steps.iter().all(|(_, step)| *step == steps[0].1) {
        return Vec::new();
    }
    // Points of a time before the metric came under its first policy.
    steps[0].0 = Timestamp::MIN;
    steps
}
