//! Points that came under an older policy and are on their way to the store: a read answers as if they were stored.
//!
//! Their rows are derived as the flush derives them, and laid over what the store answers. The jobs of one metric go in
//! their order, a round of reads each.

use std::{ops::Range, sync::Arc};

use downsample::{Coverage, DerivedRow, ReadPlan, SortedPoints, Stored};
use metadata::Registry;
use metric::{MetricId, Policy, Slot, Table, Timestamp};
use store::{Fetch, PointStore, Run, StoreError};

use super::reading::Reading;
use crate::{
    coming_rows::ComingRows,
    memtable::FlushJob,
    mirrored_rows::mirrored_rows,
    older_cells::{OlderPolicies, fetch_filled},
    policy_table::{PolicyTable, Rollup},
    shared_rows::{EarlierSlots, SharedRows},
};

/// Where the rows of jobs are derived from.
pub(super) struct OlderJobs<'a> {
    pub(super) store: &'a dyn PointStore,
    pub(super) registry: &'a Registry,
    pub(super) table: &'a PolicyTable,
    pub(super) reached: Timestamp,
}

/// The points of a job around the window of a reading.
struct JobPoints<'a> {
    job: &'a FlushJob,
    policy: &'a Arc<Policy>,
    rollup: Rollup,
    points: SortedPoints,
    coverage: Coverage,
    older: Option<OlderPolicies>,
    rows: SharedRows,
    name: String,
}

/// The rows of one rollup of some jobs.
struct RollupRows {
    /// Slots that have no answer.
    doubtful: Vec<(MetricId, Table, Slot)>,
    /// Of equal slots the last one is right.
    rows: Vec<Run>,
}

impl OlderJobs<'_> {
    /// The rows that the older jobs of the readings are about to write, as far as the windows need them.
    pub(super) async fn rows(&self, readings: &[Option<Reading>]) -> Result<ComingRows, StoreError> {
        let mut coming = ComingRows::default();
        let rounds = readings.iter().flatten().map(|reading| reading.jobs().count()).max().unwrap_or(0);
        for round in 0..rounds {
            let jobs_of = |reading: &Reading| {
                let job = reading.jobs().nth(round)?;
                Some(self.table.rollups(Some(&reading.history), job.policy).count())
            };
            let rollups = readings.iter().flatten().filter_map(jobs_of).max().unwrap_or(0);
            let mut of_round = Vec::with_capacity(rollups);
            // As the flush: all follow from what was there before, and those of the first method come last.
            for rollup in (0..rollups).rev() {
                let points = |reading| self.points(reading, round, rollup);
                let jobs: Vec<JobPoints<'_>> = readings.iter().flatten().filter_map(points).collect();
                of_round.push(self.rows_of(&jobs, &coming).await?);
            }
            for RollupRows { doubtful, rows } in of_round {
                doubtful.into_iter().for_each(|(metric, table, slot)| coming.add_doubtful(metric, table, slot));
                coming.add(rows);
            }
        }
        Ok(coming)
    }

    fn points<'a>(&'a self, reading: &'a Reading, round: usize, rollup: usize) -> Option<JobPoints<'a>> {
        let job = &**reading.jobs().nth(round)?;
        let rollup = self.table.rollups(Some(&reading.history), job.policy).nth(rollup)?;
        let policy = self.table.of_rollup(rollup.method).all.get(usize::from(job.policy))?;
        let points = SortedPoints::of(&[&job.points]).within(reading.span_around(self.table), &policy.retention);
        if points.is_empty() {
            return None;
        }
        let all_writers = if reading.is_alone { job.stored_before() } else { Stored::Unknown };
        let coverage = Coverage {
            all_writers,
            this_writer: Stored::Unknown,
            now: self.reached,
            policy_since: Timestamp::MAX,
            is_alone: reading.is_alone,
            points_since: self.table.points_since(&reading.history, self.reached),
            rows_alone_until: self.table.rows_alone_until(&reading.history, self.reached),
        };
        let older = OlderPolicies::of(&reading.history, job.policy, rollup, self.table, self.reached);
        let name = self.registry.read().name(job.metric).to_owned();
        let rows = SharedRows::of(&reading.history, self.table);
        Some(JobPoints { job, policy, rollup, points, coverage, older, rows, name })
    }

    async fn rows_of(&self, jobs: &[JobPoints<'_>], coming: &ComingRows) -> Result<RollupRows, StoreError> {
        let last_stage = |of: &JobPoints<'_>| of.policy.retention.stages().len() - 1;
        let mut plans: Vec<ReadPlan<'_>> =
            jobs.iter().map(|of| ReadPlan::new(of.policy, &of.points, of.coverage, last_stage(of))).collect();
        let (mut fetches, mut filled) = (Vec::new(), Vec::new());
        for (of, plan) in jobs.iter().zip(&plans) {
            fetches.extend(plan.needs().iter().map(|need| of.fetch(need.stage, &need.slots)));
            filled.resize(fetches.len(), of.older.as_ref());
        }
        let cells = fetch_filled(self.store, fetches, &filled, &[coming]).await?;
        let mut cells = cells.as_slice();
        let (mut rows, mut doubtful): (Vec<Vec<Run>>, _) = (Vec::new(), Vec::new());
        for (of, plan) in jobs.iter().zip(&mut plans) {
            let (own, rest) = cells.split_at(plan.needs().len().min(cells.len()));
            cells = rest;
            for (need, cells) in own.iter().enumerate() {
                if cells.is_damaged {
                    plan.note_damage(need, cells.damage());
                    plan.note_outdated(need, &cells.outdated_at);
                }
                cells.latest_at.iter().for_each(|&(place, time)| plan.note_latest(need, place, time));
            }
            let stored: Vec<_> = own.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
            let derived = plan.derive(&stored);
            for (stage, slot) in derived.doubtful {
                let table = of.policy.table(stage);
                if of.rollup.has(table) {
                    doubtful.push((of.job.metric, table, slot));
                }
            }
            let needs = plan.needs().iter().zip(own);
            let earlier =
                needs.map(|(need, cells)| (of.policy.retention.stages()[need.stage], need.slots.start, cells));
            let earlier = EarlierSlots::of(earlier);
            rows.push(derived.rows.into_iter().map(|row| of.run(row, &earlier)).collect());
        }
        let mut of_jobs = ComingRows::default();
        of_jobs.add(rows.iter().flatten().cloned());
        let mut all_mirrored = Vec::new();
        for is_alone in [true, false] {
            let with_rows =
                jobs.iter().zip(&rows).filter(|(of, rows)| of.coverage.is_alone == is_alone && !rows.is_empty());
            let metrics: Vec<(&OlderPolicies, Vec<&Run>)> =
                with_rows.filter_map(|(of, rows)| Some((of.older.as_ref()?, rows.iter().collect()))).collect();
            let mirrored = mirrored_rows(self.store, &metrics, [coming, &of_jobs], (is_alone, self.reached)).await?;
            all_mirrored.extend(mirrored.own.into_iter().chain(mirrored.of_others));
        }
        Ok(RollupRows { doubtful, rows: rows.into_iter().flatten().chain(all_mirrored).collect() })
    }
}

impl JobPoints<'_> {
    /// A row as it is stored. `earlier` are the slots that it is made of and that have values of other methods.
    fn run(&self, row: DerivedRow, earlier: &EarlierSlots) -> Run {
        let mut run = Run {
            metric: self.job.metric,
            name: self.name.clone(),
            table: self.policy.table(row.stage),
            first_slot: row.first_slot,
            values: row.values,
            counts: row.counts,
            aggregation: self.policy.aggregation,
        };
        self.rows.write(&mut run, self.policy, &[earlier]);
        run
    }

    fn fetch(&self, stage: usize, slots: &Range<Slot>) -> Fetch {
        Fetch {
            metric: self.job.metric,
            name: self.name.clone(),
            table: self.policy.table(stage),
            first_slot: slots.start,
            end_slot: slots.end,
            aggregation: self.policy.aggregation,
        }
    }
}
