//! One attempt to write the rows of a group of jobs, in steps whose slots in memory are bounded.

use std::ops::Range;

use downsample::{Coverage, Stored, WriterPartials};
use host::JudgingTime;
use metadata::Registry;
use metric::Timestamp;
use store::{Store, StoreError};

use super::plan::{FlushPlan, GroupRows, JobPoints, Piece};

/// Slots that a step keeps in memory: some megabytes. One slot of the coarsest stage may have more under it.
pub(super) const STEP_SLOTS: usize = 256 << 10;

/// Where rows go, and what is known about those that are there.
pub(super) struct Attempt<'a> {
    pub(super) store: &'a Store,
    pub(super) registry: &'a Registry,
    pub(super) time: &'a JudgingTime,
}

/// The result of a successful attempt.
pub(super) struct Written {
    /// What this writer has stored of each metric then, where that is known.
    pub(super) partials: Vec<Option<WriterPartials>>,
    /// Coarse slots that stay as they are stored, because slots under them are damaged.
    pub(super) doubtful: usize,
}

impl Attempt<'_> {
    /// Writes rows of every stage of all jobs.
    pub(super) async fn write(&self, jobs: &[JobPoints<'_>]) -> Result<Written, StoreError> {
        let now = self.time.reached();
        let mut written = Written { partials: Vec::with_capacity(jobs.len()), doubtful: 0 };
        let (mut step, mut cost) = (Vec::new(), 0);
        for job in jobs {
            for piece in job.pieces(self.coverage(job, now), STEP_SLOTS) {
                if !step.is_empty() && STEP_SLOTS < cost + piece.cost {
                    self.write_step(&std::mem::take(&mut step), &mut written).await?;
                    cost = 0;
                }
                cost += piece.cost;
                step.push(piece);
            }
        }
        self.write_step(&step, &mut written).await?;
        Ok(written)
    }

    async fn write_step(&self, pieces: &[Piece<'_>], written: &mut Written) -> Result<(), StoreError> {
        let plans: Vec<FlushPlan<'_>> = pieces.iter().map(FlushPlan::of).collect();
        let (mut fetches, mut fetched) = (Vec::new(), Vec::<Range<usize>>::with_capacity(pieces.len()));
        {
            let names = self.registry.read();
            for (piece, plan) in pieces.iter().zip(&plans) {
                let before = fetches.len();
                fetches.extend(plan.fetches(piece, names.name(piece.of.job.metric)));
                fetched.push(before..fetches.len());
            }
        }
        let cells = if fetches.is_empty() { Vec::new() } else { self.store.points.fetch(fetches).await? };
        let mut group = GroupRows::default();
        {
            let names = self.registry.read();
            for ((piece, plan), range) in pieces.iter().zip(plans).zip(fetched) {
                let name = names.name(piece.of.job.metric);
                group.add(piece, name, plan, cells.get(range).unwrap_or_default());
            }
        }
        drop(cells);
        let (mut rows, totals) = (std::mem::take(&mut group.rows), std::mem::take(&mut group.totals));
        let own = match &self.store.shared {
            Some(shared) if !totals.is_empty() => shared.writer_partials(totals).await?,
            _ => totals,
        };
        written.doubtful += group.doubtful;
        let partials = group.partials(pieces, &own);
        rows.extend(own);
        self.store.points.write(rows).await?;
        let of_jobs = pieces.iter().zip(partials).filter(|(piece, _)| piece.is_last);
        written.partials.extend(of_jobs.map(|(_, partials)| partials));
        Ok(())
    }

    /// How far the rows in the store reach.
    fn coverage(&self, job: &JobPoints<'_>, now: Timestamp) -> Coverage {
        let history = self.registry.policies(job.job.metric);
        let current = history.as_ref().and_then(|history| history.last());
        let policy_since =
            current.filter(|last| last.policy == job.job.policy).map_or(Timestamp::MAX, |last| last.since);
        // Only the store knows what another writer has stored.
        let is_alone = self.store.shared.is_none();
        let all_writers = if is_alone { job.job.stored_before() } else { Stored::Unknown };
        Coverage { all_writers, this_writer: Stored::Unknown, now, policy_since, is_alone }
    }
}
