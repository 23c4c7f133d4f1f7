//! The rows of a flush, as pure functions: from jobs and stored slots to rows and this writer's partials.
//!
//! Points that come after everything stored of their metric extend this writer's partials, and nothing is read. For all
//! others the coarse slots they touch are derived again from stored slots, and the driver says which part of those is
//! this writer's.

use std::ops::Range;

use downsample::{Coverage, DerivedRow, NextPartials, SortedPoints, WritePlan, WriterPartials};
use metric::{Partial, Policy, Slot};
use store::{Cells, Fetch, Run};

use crate::memtable::FlushJob;

/// The points of one job, sorted, and the policy under which they were accepted.
pub(super) struct JobPoints<'a> {
    pub(super) job: &'a FlushJob,
    pub(super) policy: &'a Policy,
    pub(super) points: SortedPoints,
}

impl<'a> JobPoints<'a> {
    pub(super) fn of(job: &'a FlushJob, policy: &'a Policy) -> JobPoints<'a> {
        JobPoints { job, policy, points: SortedPoints::of(&[&job.points]) }
    }
}

/// How the rows of one job are derived.
pub(super) enum FlushPlan<'a> {
    /// From this writer's partials, which are these afterwards.
    Extend(Vec<DerivedRow>, WriterPartials),
    /// From stored slots.
    Derive(WritePlan<'a>),
}

impl<'a> FlushPlan<'a> {
    pub(super) fn of(job: &'a JobPoints<'a>, coverage: Coverage) -> FlushPlan<'a> {
        let partials = job.job.partials.as_ref();
        if let Some(partials) = partials.filter(|partials| partials.precedes(&job.points)) {
            let mut partials = partials.clone();
            let rows = partials.extend(job.policy, &job.points);
            return FlushPlan::Extend(rows, partials);
        }
        FlushPlan::Derive(WritePlan::new(job.policy, &job.points, coverage, partials))
    }

    /// The stored slots that the plan needs.
    pub(super) fn fetches(&self, job: &JobPoints<'_>, name: &str) -> Vec<Fetch> {
        let FlushPlan::Derive(plan) = self else { return Vec::new() };
        let fetch = |need: &downsample::Need| Fetch {
            metric: job.job.metric,
            name: name.to_owned(),
            table: job.policy.retention.table(need.stage),
            first_slot: need.slots.start,
            end_slot: need.slots.end,
            aggregation: job.policy.aggregation,
        };
        plan.needs().map(fetch).collect()
    }
}

/// The rows of a group of jobs.
#[derive(Default)]
pub(super) struct GroupRows {
    /// Rows as they are written.
    pub(super) rows: Vec<Run>,
    /// Rows with every writer's total; the driver says which part is this writer's.
    pub(super) totals: Vec<Run>,
    /// This writer's partials after the write, a job each.
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
    /// Adds the rows of a job. `cells` are the answers to its plan's fetches.
    pub(super) fn add(&mut self, job: &JobPoints<'_>, name: &str, plan: FlushPlan<'_>, cells: &[Cells]) {
        let run = |row: DerivedRow| Run {
            metric: job.job.metric,
            name: name.to_owned(),
            table: job.policy.retention.table(row.stage),
            first_slot: row.first_slot,
            values: row.values,
            counts: row.counts,
            aggregation: job.policy.aggregation,
        };
        match plan {
            FlushPlan::Extend(rows, partials) => {
                self.rows.extend(rows.into_iter().map(run));
                self.next.push(AfterWrite::Known(Some(partials)));
            }
            FlushPlan::Derive(plan) => {
                let stored: Vec<(&[f64], &[u32])> =
                    cells.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
                let derived = plan.derive(&stored);
                let first = self.totals.len();
                for row in derived.rows {
                    let list = if row.stage == 0 { &mut self.rows } else { &mut self.totals };
                    list.push(run(row));
                }
                self.next.push(match derived.next {
                    Some(next) if first < self.totals.len() => AfterWrite::FromTotals(next, first..self.totals.len()),
                    next => AfterWrite::Known(next.map(|next| next.as_derived().clone())),
                });
            }
        }
    }

    /// This writer's partials after the write, a job each, where they are known. `own` are this writer's parts of the
    /// totals.
    pub(super) fn partials(self, jobs: &[JobPoints<'_>], own: &[Run]) -> Vec<Option<WriterPartials>> {
        let known = |(job, next): (&JobPoints<'_>, AfterWrite)| match next {
            AfterWrite::Known(partials) => partials,
            AfterWrite::FromTotals(next, range) => from_totals(job, next, own.get(range)?),
        };
        jobs.iter().zip(self.next).map(known).collect()
    }
}

/// The partials of the open coarse slots, as the driver's answer has them.
fn from_totals(job: &JobPoints<'_>, next: NextPartials, own: &[Run]) -> Option<WriterPartials> {
    let retention = &job.policy.retention;
    let row = |(stage, slot): (usize, Slot)| {
        let of_stage = own.iter().filter(|run| run.table == retention.table(stage));
        let mut partials = of_stage.filter_map(|run| {
            let place = slot.checked_sub(run.first_slot)? as usize;
            Some(Partial { value: *run.values.get(place)?, count: *run.counts.get(place)? })
        });
        partials.next().unwrap_or(Partial::NONE)
    };
    let rows: Vec<Partial> = next.open_slots(retention).map(row).collect();
    next.with_rows(rows.into_iter())
}
