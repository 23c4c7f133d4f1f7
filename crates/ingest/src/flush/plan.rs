//! The rows of a flush, as pure functions: from jobs and stored slots to rows and this writer's partials.
//!
//! Points that come after everything stored of their metric extend this writer's partials, and nothing is read. For all
//! others the coarse slots they touch are derived again from stored slots, and the driver says which part of those is
//! this writer's. Points of many coarse slots are derived in pieces, so that the slots in memory stay few.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Duration};

use downsample::{Coverage, DerivedRow, Need, NextPartials, ReadPlan, SortedPoints, Stored, WritePlan, WriterPartials};
use metric::{Aggregation, MetricId, Partial, Policy, Slot, Timestamp};
use store::{Cells, Fetch, OtherWriters, Run};

use crate::{memtable::FlushJob, older_cells::OlderPolicies, policy_table::Rollup};

/// The points of one job, sorted, and the policy under which they were accepted.
pub(super) struct JobPoints<'a> {
    pub(super) job: &'a FlushJob,
    pub(super) policy: &'a Policy,
    pub(super) points: Arc<SortedPoints>,
    /// The rollup that rows are made for; the policy is that of this one.
    pub(super) rollup: Rollup,
    /// This writer's partials of the rollup before, where known.
    partials: Option<Cow<'a, WriterPartials>>,
    /// Whether rows may be made from this writer's partials and new points alone.
    may_extend: bool,
}

impl<'a> JobPoints<'a> {
    /// For the first method of the policy.
    pub(super) fn of(job: &'a FlushJob, policy: &'a Policy) -> JobPoints<'a> {
        let rollup = Rollup { method: policy.aggregation, is_first: true };
        let points = Arc::new(SortedPoints::of(&[&job.points]));
        let partials = job.partials.as_ref().map(Cow::Borrowed);
        JobPoints { job, policy, points, rollup, partials, may_extend: true }.with_partials_of(policy)
    }

    /// Where others may write the same metric. A row of another writer says another latest value, and readers believe one of them
    /// whatever their order: all rows of the slot must agree, and are read therefore. `is_behind` says that others are still storing
    /// points that this process missed while it was down, `has_earlier` that the metric had other policies: of their rows a second look
    /// (`recheck.rs`) sees nothing, so that the first points of this process are not made rows without them.
    pub(super) fn among_writers(
        self,
        others: OtherWriters,
        is_behind: bool,
        has_earlier: impl Fn(MetricId) -> bool,
    ) -> JobPoints<'a> {
        let is_latest = self.policy.aggregation == Aggregation::Last;
        let is_first = self.job.stored_before() == Stored::Nothing;
        let must_derive = others.are_there && is_latest
            || others.have_same_points && is_behind
            || is_first && has_earlier(self.job.metric);
        JobPoints { may_extend: !must_derive, ..self }
    }

    /// The same points for one of several rollups, by whose table `policy` is that of the job; `whole` has all of its methods.
    pub(super) fn for_rollup(&self, rollup: Rollup, policy: &'a Policy, whole: &Policy) -> JobPoints<'a> {
        let (points, may_extend) = (self.points.clone(), self.may_extend);
        let partials = self.job.partials.as_ref().map(Cow::Borrowed);
        JobPoints { job: self.job, policy, points, rollup, partials, may_extend }.with_partials_of(whole)
    }

    /// With the part of the job's partials that belongs to the method.
    fn with_partials_of(mut self, whole: &Policy) -> JobPoints<'a> {
        let place = whole.rollups.iter().position(|method| method == self.policy.aggregation);
        if let (Some(place), Some(all)) = (place, &self.job.partials) {
            self.partials = Some(Cow::Owned(all.of_rollup(place, whole.retention.stages().len() - 1)));
        }
        self
    }

    /// Whether its rows extend this writer's partials, and nothing is read.
    pub(super) fn extends(&self) -> bool {
        self.may_extend && self.partials.as_deref().is_some_and(|partials| partials.precedes(&self.points))
    }

    /// Times of its points of the first stage, where those of neighbouring coarse slots go together.
    pub(super) fn spans(&self) -> Vec<Range<Timestamp>> {
        let stages = self.policy.retention.stages();
        let (step, near) =
            (i64::from(stages[0].resolution()), i64::from(stages.get(1).map_or(1, |stage| stage.resolution())));
        let mut spans: Vec<Range<Timestamp>> = Vec::new();
        for point in self.points.of_stage(0) {
            let time = stages[0].time(point.slot);
            match spans.last_mut().filter(|last| time <= last.end + near) {
                Some(last) => last.end = time + step,
                None => spans.push(time..time + step),
            }
        }
        spans
    }

    /// The spans in which another node may have counted the same points, where its rows extend this writer's.
    ///
    /// Where there was no point for so many seconds (`absence`) before these, of what this writer has stored, another node may have had the
    /// metric, and it may have got these points before, as from the queue of a relay; it has, where this writer has stored nothing of a metric
    /// that was there before, or that is younger than its points. So may points that were over for longer than points stay in memory (`kept`) when
    /// they came: all of them are as late as the last one, by that time at most, unless their sender sends what it has kept. Where there was none
    /// after them until now, another node may have the metric since the slot of the last one.
    pub(super) fn spans_of_others(
        &self,
        absence: Timestamp,
        (now, kept): (Timestamp, Duration),
        created_on: Timestamp,
    ) -> Vec<Range<Timestamp>> {
        let finest = self.policy.retention.finest();
        let points = self.points.of_stage(0);
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
        let (step, begin) = (i64::from(finest.resolution()), finest.time(first.slot));
        let came = match self.job.stored_before() {
            Stored::Through { last, .. } => finest.time(last) + step + absence <= begin,
            Stored::Nothing => created_on < begin || begin + step + absence <= created_on,
            Stored::Unknown => false,
        };
        let (last, kept) = (finest.time(last.slot), kept.as_secs() as Timestamp);
        let lateness = (now - last).clamp(0, kept);
        let is_old = begin + step + absence + kept + lateness < now;
        // Between two of them it may have had the metric, too, and be done with its looks by now.
        let was_away =
            points.windows(2).any(|two| finest.time(two[0].slot) + step + absence <= finest.time(two[1].slot));
        if came || was_away || is_old {
            return self.spans();
        }
        // The next point may come with the end of the next slot, and be late.
        (last + 3 * step + absence <= now).then_some(last..last + step).into_iter().collect()
    }
}

/// A part of a job: a piece for each rollup, of the same points. Their rows are written in one call, or none is: an attempt that finds
/// the points stored must find them counted in all rows.
pub(super) struct JobPiece<'a> {
    /// That of the first method comes first.
    pub(super) rollups: Vec<Piece<'a>>,
    /// Slots that it keeps in memory, about.
    pub(super) cost: usize,
}

impl<'a> JobPiece<'a> {
    fn new(rollups: &[&'a JobPoints<'a>], points: &Arc<SortedPoints>, coverage: Coverage) -> JobPiece<'a> {
        let piece = |of: &&'a JobPoints<'a>| Piece::new(of, points.clone(), coverage);
        let (rollups, costs): (Vec<Piece<'a>>, Vec<usize>) = rollups.iter().map(piece).unzip();
        JobPiece { rollups, cost: costs.iter().sum() }
    }

    pub(super) fn metric(&self) -> MetricId {
        self.rollups[0].of.job.metric
    }
}

/// Cuts a job, whose rollups these are, into pieces that cost at most `most`, or have one slot of the coarsest stage each.
pub(super) fn pieces<'a>(rollups: &[&'a JobPoints<'a>], coverage: Coverage, most: usize) -> Vec<JobPiece<'a>> {
    let Some(first) = rollups.first() else { return Vec::new() };
    let mut left = vec![(JobPiece::new(rollups, &first.points, coverage), first.points.clone())];
    let mut pieces = Vec::new();
    while let Some((piece, points)) = left.pop() {
        let halves = if most < piece.cost { points.halves(&first.policy.retention) } else { None };
        match halves {
            Some((earlier, later)) => left.extend([later, earlier].map(|half| {
                let half = Arc::new(half);
                (JobPiece::new(rollups, &half, coverage), half)
            })),
            None => pieces.push(piece),
        }
    }
    if let Some(last) = pieces.last_mut() {
        last.rollups.iter_mut().for_each(|piece| piece.is_last = true);
    }
    pieces
}

/// Points of a job whose rows of one rollup are made together.
pub(super) struct Piece<'a> {
    pub(super) of: &'a JobPoints<'a>,
    points: Arc<SortedPoints>,
    coverage: Coverage,
    /// Whether no other piece of the job comes after this one.
    pub(super) is_last: bool,
}

impl<'a> Piece<'a> {
    /// With the slots that it keeps in memory, about.
    fn new(of: &'a JobPoints<'a>, points: Arc<SortedPoints>, coverage: Coverage) -> (Piece<'a>, usize) {
        let mut piece = Piece { of, points, coverage, is_last: true };
        let derived = match piece.extends() {
            true => 0,
            false => match FlushPlan::of(&piece) {
                FlushPlan::Extend(..) => 0,
                FlushPlan::Derive(plan) => plan.cells(),
                FlushPlan::Rows(plan) => plan.cells(),
            },
        };
        let cost = piece.points.len() + derived;
        piece.is_last = false;
        (piece, cost)
    }
}

impl Piece<'_> {
    /// Whether its rows extend this writer's partials, and nothing is read.
    fn extends(&self) -> bool {
        let precedes = |partials: &WriterPartials| partials.precedes(&self.points);
        self.is_last && self.of.may_extend && self.of.partials.as_deref().is_some_and(precedes)
    }

    /// Whether its rows may have something in slots that older policies have stored. Points after everything stored do
    /// not, but for the coarse slots around the last stored one.
    pub(super) fn may_touch(&self, older: &OlderPolicies) -> bool {
        let finest = self.of.policy.retention.finest();
        let first = self.points.of_stage(0).first().map(|point| finest.time(point.slot));
        match (self.of.job.stored_before(), first) {
            _ if !self.extends() => true,
            (Stored::Through { last, .. }, Some(first)) => older.may_share_slot(finest.time(last), first),
            _ => false,
        }
    }
}

/// How the rows of one piece are derived.
pub(super) enum FlushPlan<'a> {
    /// From this writer's partials, which are these afterwards.
    Extend(Vec<DerivedRow>, WriterPartials),
    /// From stored slots.
    Derive(WritePlan<'a>),
    /// From stored slots; a later piece says what this writer has stored.
    Rows(ReadPlan<'a>),
}

impl<'a> FlushPlan<'a> {
    pub(super) fn of(piece: &'a Piece<'a>) -> FlushPlan<'a> {
        let Piece { of: JobPoints { policy, partials, .. }, points, coverage, .. } = piece;
        if !piece.is_last {
            return FlushPlan::Rows(ReadPlan::new(policy, points, *coverage, policy.retention.stages().len() - 1));
        }
        let partials = partials.as_deref();
        if let Some(partials) = partials.filter(|_| piece.extends()) {
            let mut partials = partials.clone();
            let rows = partials.extend(policy, points);
            return FlushPlan::Extend(rows, partials);
        }
        FlushPlan::Derive(WritePlan::new(policy, points, *coverage, partials))
    }

    /// The stored slots that the plan needs.
    pub(super) fn fetches(&self, piece: &Piece<'_>, name: &str) -> Vec<Fetch> {
        let (job, policy) = (piece.of.job, piece.of.policy);
        let fetch = |need: &Need| Fetch {
            metric: job.metric,
            name: name.to_owned(),
            table: policy.table(need.stage),
            first_slot: need.slots.start,
            end_slot: need.slots.end,
            aggregation: policy.aggregation,
        };
        match self {
            FlushPlan::Extend(..) => Vec::new(),
            FlushPlan::Derive(plan) => plan.needs().map(fetch).collect(),
            FlushPlan::Rows(plan) => plan.needs().iter().map(fetch).collect(),
        }
    }
}

/// The rows of a group of pieces.
#[derive(Default)]
pub(super) struct GroupRows {
    /// Rows as they are written.
    pub(super) rows: Vec<Run>,
    /// Rows with every writer's total; the driver says which part is this writer's.
    pub(super) totals: Vec<Run>,
    /// Coarse slots that stay as they are stored, because slots under them are damaged.
    pub(super) doubtful: usize,
    /// This writer's partials after the write, a piece each.
    next: Vec<AfterWrite>,
}

/// This writer's partials of a metric after a write.
enum AfterWrite {
    /// These, if they are known.
    Known(Option<WriterPartials>),
    /// Those that follow from the driver's answer for this range of the totals.
    FromTotals(NextPartials, Range<usize>),
}

impl GroupRows {
    /// Adds the rows of a piece. `cells` are the answers to its plan's fetches.
    pub(super) fn add(&mut self, piece: &Piece<'_>, name: &str, plan: FlushPlan<'_>, cells: &[Cells]) {
        let stored: Vec<(&[f64], &[u32])> = cells.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
        let damaged = cells.iter().enumerate().filter(|(_, cells)| cells.is_damaged);
        let latest = cells
            .iter()
            .enumerate()
            .flat_map(|(need, cells)| cells.latest_at.iter().map(move |&(place, time)| (need, place, time)));
        let first = self.totals.len();
        let next = match plan {
            FlushPlan::Extend(rows, partials) => {
                let run = |row| run(piece.of, name, row);
                self.rows.extend(rows.into_iter().map(run));
                AfterWrite::Known(Some(partials))
            }
            FlushPlan::Derive(mut plan) => {
                damaged.for_each(|(need, cells)| {
                    plan.note_damage(need, cells.damage());
                    plan.note_outdated(need, &cells.outdated_at);
                });
                latest.for_each(|(need, place, time)| plan.note_latest(need, place, time));
                let derived = plan.derive(&stored);
                self.doubtful += derived.doubtful;
                self.push_derived(piece.of, name, derived.rows);
                match derived.next {
                    Some(next) if first < self.totals.len() => AfterWrite::FromTotals(next, first..self.totals.len()),
                    next => AfterWrite::Known(next.map(|next| next.as_derived().clone())),
                }
            }
            FlushPlan::Rows(mut plan) => {
                damaged.for_each(|(need, cells)| {
                    plan.note_damage(need, cells.damage());
                    plan.note_outdated(need, &cells.outdated_at);
                });
                latest.for_each(|(need, place, time)| plan.note_latest(need, place, time));
                let derived = plan.derive(&stored);
                self.doubtful += derived.doubtful.len();
                self.push_derived(piece.of, name, derived.rows);
                AfterWrite::Known(None)
            }
        };
        self.next.push(next);
    }

    fn push_derived(&mut self, job: &JobPoints<'_>, name: &str, rows: Vec<DerivedRow>) {
        for row in rows {
            let list = if row.stage == 0 { &mut self.rows } else { &mut self.totals };
            list.push(run(job, name, row));
        }
    }

    /// This writer's partials after the write, a piece each, where they are known. `own` are this writer's parts of the
    /// totals.
    pub(super) fn partials(self, pieces: &[&Piece<'_>], own: &[Run]) -> Vec<Option<WriterPartials>> {
        let known = |(piece, next): (&&Piece<'_>, AfterWrite)| match next {
            AfterWrite::Known(partials) => partials,
            AfterWrite::FromTotals(next, range) => from_totals(piece.of, next, own.get(range)?),
        };
        pieces.iter().zip(self.next).map(known).collect()
    }
}

fn run(job: &JobPoints<'_>, name: &str, row: DerivedRow) -> Run {
    Run {
        metric: job.job.metric,
        name: name.to_owned(),
        table: job.policy.table(row.stage),
        first_slot: row.first_slot,
        values: row.values,
        counts: row.counts,
        aggregation: job.policy.aggregation,
    }
}

/// The partials of the open coarse slots, as the driver's answer has them.
fn from_totals(job: &JobPoints<'_>, next: NextPartials, own: &[Run]) -> Option<WriterPartials> {
    let retention = &job.policy.retention;
    let row = |(stage, slot): (usize, Slot)| {
        let of_stage = own.iter().filter(|run| run.table == job.policy.table(stage));
        let mut partials = of_stage.filter_map(|run| {
            let place = slot.checked_sub(run.first_slot)? as usize;
            Some(Partial { value: *run.values.get(place)?, count: *run.counts.get(place)? })
        });
        partials.next().unwrap_or(Partial::NONE)
    };
    let rows: Vec<Partial> = next.open_slots(retention).map(row).collect();
    next.with_rows(rows.into_iter())
}

#[cfg(test)]
mod tests {
    use downsample::PendingPoints;
    use metric::MetricId;

    use super::*;

    #[test]
    fn late_points_of_years_are_derived_a_few_slots_at_a_time() {
        let retention = "2592000*1s:1825*86400s".parse().unwrap();
        let policy = Policy { retention, ..Policy::default() };
        let mut points = PendingPoints::default();
        let today = 20_000;
        // 1,795 days that only the coarse stage keeps, and points in each of the last thirty.
        (0..1795).for_each(|day| _ = points.push_coarse(1, today - 30 - day, 1.0));
        (0..3805).for_each(|i| _ = points.push((today - i % 30) * 86_400 + i, 1.0));
        let job = FlushJob { metric: MetricId(0), policy: 0, points, partials: None, is_latest: true };
        let job = JobPoints::of(&job, &policy);
        let (all_writers, this_writer) = (Stored::Unknown, Stored::Unknown);
        let now = i64::from(today) * 86_400;
        let (policy_since, points_since, rows_alone_until) = (0, i64::MAX, i64::MIN);
        let coverage =
            Coverage { all_writers, this_writer, now, policy_since, is_alone: true, points_since, rows_alone_until };
        let most = 256 << 10;
        let pieces = pieces(&[&job], coverage, most);
        assert_eq!(pieces.iter().map(|piece| piece.rollups[0].points.len()).sum::<usize>(), 1795 + 3805);
        assert!(pieces.iter().all(|piece| piece.cost <= most), "{:?}", pieces.iter().map(|p| p.cost).max());
        assert_eq!(pieces.iter().filter(|piece| piece.rollups[0].is_last).count(), 1);
        assert!(pieces.len() < 100);
    }
}
