//! One attempt to write the rows of a group of jobs, in steps whose slots in memory are bounded.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use downsample::{Coverage, Stored, WriterPartials};
use host::JudgingTime;
use metadata::{Registry, seen_in_slots};
use metric::{Aggregation, MetricId, Policy, Slot, Stage, Timestamp};
use parking_lot::Mutex;
use store::{OwnRows, Run, SharedPoints, Store, StoreError};

use super::{
    plan::{FlushPlan, GroupRows, JobPiece, JobPoints, Piece, pieces},
    unsure_rows::UnsureRows,
};
use crate::{
    coming_rows::ComingRows,
    mirrored_rows::{MirroredRows, mirrored_rows},
    older_cells::{OlderPolicies, fetch_filled},
    policy_table::{PolicyTable, Rollup},
    shared_rows::EarlierSlots,
};

/// Slots that a step keeps in memory: some megabytes. One slot of the coarsest stage may have more under it.
pub(super) const STEP_SLOTS: usize = 256 << 10;

/// Where rows go, and what is known about those that are there.
pub(super) struct Attempt<'a> {
    pub(super) store: &'a Store,
    pub(super) registry: &'a Registry,
    pub(super) policies: &'a PolicyTable,
    pub(super) time: &'a JudgingTime,
    /// Whether jobs wait for stored slots that cannot be read now. Otherwise what cannot be read counts as damaged.
    pub(super) waits_for_reads: bool,
    /// Rows of earlier attempts that may be stored or not.
    pub(super) unsure: &'a UnsureRows,
    /// Metrics whose rows of other writers were corrected and may be written over, also in an attempt that fails. The caller takes
    /// them out.
    pub(super) corrected: &'a Mutex<HashSet<MetricId>>,
}

/// The result of a successful attempt.
pub(super) struct Written {
    /// What this writer has stored of each metric then, where that is known.
    pub(super) partials: Vec<Option<WriterPartials>>,
    /// Coarse slots that stay as they are stored, because slots under them are damaged.
    pub(super) doubtful: usize,
    /// Metrics whose jobs wait: stored slots that their rows are derived from cannot be read now.
    pub(super) waiting: HashSet<MetricId>,
    /// Metrics whose rows were written although stored slots cannot be read now: their coarse slots lack points.
    pub(super) unread: HashSet<MetricId>,
}

/// This writer's partials after the write, by metric and rollup.
type KnownPartials = HashMap<MetricId, Vec<(Rollup, Option<WriterPartials>)>>;

/// What is to be written of pieces of one rollup each.
struct DerivedPieces {
    rows: Vec<Run>,
    /// Rows that these replace in the tables of older policies.
    of_others: Vec<Run>,
    /// This writer's partials after the write, a piece each.
    partials: Vec<Option<WriterPartials>>,
    /// See [`Written::doubtful`].
    doubtful: usize,
}

impl Attempt<'_> {
    /// Writes rows of every stage of all jobs.
    pub(super) async fn write(&self, jobs: &[JobPoints<'_>]) -> Result<Written, StoreError> {
        let mut written =
            Written { partials: Vec::new(), doubtful: 0, waiting: HashSet::new(), unread: HashSet::new() };
        let metrics = || jobs.iter().map(|job| job.job.metric);
        let mut unsure = self.unsure.of(metrics());
        if !unsure.is_empty() {
            self.leave_out_deleted(&mut unsure);
            self.store.points.write(unsure).await?;
            self.unsure.forget(metrics());
        }
        let further: Vec<Vec<JobPoints<'_>>> = jobs.iter().map(|job| self.further_rollups(job)).collect();
        let (now, mut known) = (self.time.reached(), KnownPartials::new());
        let (mut step, mut cost) = (Vec::new(), 0);
        for (job, further) in jobs.iter().zip(&further) {
            let rollups: Vec<&JobPoints<'_>> = std::iter::once(job).chain(further).collect();
            for piece in pieces(&rollups, self.coverage(job, now), STEP_SLOTS) {
                if !step.is_empty() && STEP_SLOTS < cost + piece.cost {
                    self.write_step(std::mem::take(&mut step), &mut written, &mut known).await?;
                    cost = 0;
                }
                cost += piece.cost;
                step.push(piece);
            }
        }
        self.write_step(step, &mut written, &mut known).await?;
        let of_job = |job: &JobPoints<'_>| {
            let (first, further): (Vec<_>, Vec<_>) =
                known.remove(&job.job.metric)?.into_iter().partition(|(rollup, _)| rollup.is_first);
            let first = first.into_iter().next().and_then(|(_, partials)| partials);
            let has_rollups = !further.is_empty() && 0 < job.policy.coarse_tables();
            if has_rollups { partials_of_all(job.policy, first, &further) } else { first }
        };
        written.partials = jobs.iter().map(of_job).collect();
        Ok(written)
    }

    /// The points of a job for all methods but the first, where the metric has or had several.
    fn further_rollups<'a>(&'a self, job: &JobPoints<'a>) -> Vec<JobPoints<'a>> {
        if !self.policies.has_rollups() {
            return Vec::new();
        }
        let history = self.registry.policies(job.job.metric);
        let rollups = self.policies.rollups(history.as_ref(), job.job.policy).skip(1);
        let of_rollup = |rollup: Rollup| {
            let policy = &self.policies.of_rollup(rollup.method).all[usize::from(job.job.policy)];
            job.for_rollup(rollup, policy, job.policy)
        };
        rollups.map(of_rollup).collect()
    }

    /// Writes the pieces of jobs that need not wait. Adds this writer's partials of the jobs that end here.
    async fn write_step(
        &self,
        mut pieces: Vec<JobPiece<'_>>,
        written: &mut Written,
        known: &mut KnownPartials,
    ) -> Result<(), StoreError> {
        loop {
            pieces.retain(|piece| !written.waiting.contains(&piece.metric()));
            let waited = written.waiting.len();
            let partials = self.write_pieces(&pieces, written).await?;
            if written.waiting.len() == waited {
                for (metric, rollup, partials) in partials {
                    known.entry(metric).or_default().push((rollup, partials));
                }
                return Ok(());
            }
        }
    }

    /// As [`Attempt::write_step`]. Writes nothing where it finds jobs that have to wait.
    ///
    /// The rows of all rollups follow from what was stored before, and a driver that is the only writer gets them in one call: it has all
    /// or none. A row is the only place that says which late points it counts, once their slots in the first stage are stored
    /// (`downsample/late.rs`).
    async fn write_pieces(
        &self,
        pieces: &[JobPiece<'_>],
        written: &mut Written,
    ) -> Result<Vec<(MetricId, Rollup, Option<WriterPartials>)>, StoreError> {
        let (mut all, mut of_others, mut partials, mut doubtful) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let rollups = pieces.iter().map(|piece| piece.rollups.len()).max().unwrap_or(0);
        // Those of the first method, which has the points, come last.
        for nth in (0..rollups).rev() {
            let pieces: Vec<&Piece<'_>> = pieces.iter().filter_map(|piece| piece.rollups.get(nth)).collect();
            let Some(derived) = self.derive(&pieces, written).await? else { return Ok(Vec::new()) };
            all.extend(derived.rows);
            of_others.extend(derived.of_others);
            doubtful += derived.doubtful;
            let of_jobs = pieces.iter().zip(derived.partials).filter(|(piece, _)| piece.is_last);
            partials.extend(of_jobs.map(|(piece, partials)| (piece.of.job.metric, piece.of.rollup, partials)));
        }
        written.doubtful += doubtful;
        self.leave_out_deleted(&mut all);
        self.leave_out_deleted(&mut of_others);
        self.note_seen(&all);
        self.note_seen(&of_others);
        if self.store.shared.is_none() {
            // At once: a coarse row of an older policy to which a point is added has it, or the store lacks both.
            all.extend(of_others);
            self.store.points.write(all).await?;
        } else {
            let changed: HashSet<MetricId> =
                pieces.iter().map(JobPiece::metric).filter(|&of| self.has_changed(of)).collect();
            self.unsure.keep(all.iter().filter(|row| changed.contains(&row.metric)).cloned());
            self.store.points.write(all).await?;
            self.unsure.forget(changed.into_iter());
            self.leave_out_deleted(&mut of_others);
            if !of_others.is_empty() {
                self.store.points.write(of_others).await?;
            }
        }
        Ok(partials)
    }

    /// Over shared tables ids are made of names: rows of a metric that was deleted meanwhile would be those of no name, and come back with it.
    pub(super) fn leave_out_deleted(&self, rows: &mut Vec<Run>) {
        if self.store.shared.is_some() {
            let names = self.registry.read();
            rows.retain(|row| !names.name(row.metric).is_empty());
        }
    }

    /// Whether a metric had other policies.
    fn has_changed(&self, metric: MetricId) -> bool {
        self.registry.policies(metric).is_some_and(|history| 1 < history.len())
    }

    /// The rows of pieces of one rollup each, as they are stored. `None` where it finds jobs that have to wait.
    async fn derive(&self, pieces: &[&Piece<'_>], written: &mut Written) -> Result<Option<DerivedPieces>, StoreError> {
        let plans: Vec<FlushPlan<'_>> = pieces.iter().map(|piece| FlushPlan::of(piece)).collect();
        let (mut fetches, mut fetched) = (Vec::new(), Vec::<Range<usize>>::with_capacity(pieces.len()));
        {
            let names = self.registry.read();
            for (piece, plan) in pieces.iter().zip(&plans) {
                let before = fetches.len();
                fetches.extend(plan.fetches(piece, names.name(piece.of.job.metric)));
                fetched.push(before..fetches.len());
            }
        }
        let older: Vec<Option<OlderPolicies>> = pieces.iter().map(|piece| self.older_policies(piece)).collect();
        let of_fetches =
            older.iter().zip(&fetched).flat_map(|(older, range)| range.clone().map(move |_| older.as_ref()));
        let places: Vec<(Stage, Slot)> = fetches.iter().map(|fetch| (fetch.table.stage, fetch.first_slot)).collect();
        // Older jobs of these metrics are stored.
        let coming = ComingRows::default();
        let cells = fetch_filled(&*self.store.points, fetches, &of_fetches.collect::<Vec<_>>(), &[&coming]).await?;
        let is_unreadable = |range: &Range<usize>| cells[range.clone()].iter().any(|cells| cells.is_unreadable);
        let is_away = |range: &Range<usize>| cells[range.clone()].iter().any(|cells| cells.is_away);
        let before = written.waiting.len();
        for (piece, range) in pieces.iter().zip(&fetched).filter(|(_, range)| is_unreadable(range) || is_away(range)) {
            // A file that is missing may stay so: points are stored without it, and are kept until it is back.
            let waits = self.waits_for_reads && !is_away(range);
            let of = if waits { &mut written.waiting } else { &mut written.unread };
            of.insert(piece.of.job.metric);
        }
        if before < written.waiting.len() {
            return Ok(None);
        }
        let earlier = |range: &Range<usize>| {
            let of = places[range.clone()].iter().zip(&cells[range.clone()]);
            EarlierSlots::of(of.map(|(&(stage, first_slot), cells)| (stage, first_slot, cells)))
        };
        let earlier: Vec<EarlierSlots> = fetched.iter().map(earlier).collect();
        let mut group = GroupRows::default();
        {
            let names = self.registry.read();
            for ((piece, plan), range) in pieces.iter().zip(plans).zip(fetched) {
                let name = names.name(piece.of.job.metric);
                group.add(piece, name, plan, cells.get(range).unwrap_or_default());
            }
        }
        drop(cells);
        let (mut rows, mut totals) = (std::mem::take(&mut group.rows), std::mem::take(&mut group.totals));
        let doubtful = group.doubtful;
        let partials = match &self.store.shared {
            Some(shared) => {
                // Of a row in the terms of another policy, the driver does not say what is open in it.
                let other = in_stored_terms((&older, &earlier), pieces, &mut totals);
                let own = if totals.is_empty() { totals } else { self.own_rows(&**shared, totals).await? };
                let mut partials = group.partials(pieces, &own);
                let of_other = |piece: &Piece<'_>| other.contains(&piece.of.job.metric);
                pieces
                    .iter()
                    .zip(&mut partials)
                    .filter(|(piece, _)| of_other(piece))
                    .for_each(|(_, known)| *known = None);
                in_stored_terms((&older, &earlier), pieces, &mut rows);
                rows.extend(own);
                partials
            }
            None => {
                let partials = group.partials(pieces, &totals);
                rows.extend(totals);
                in_stored_terms((&older, &earlier), pieces, &mut rows);
                partials
            }
        };
        let mirrored = self.mirrored(pieces, &older, &rows).await?;
        let before = written.waiting.len();
        if self.waits_for_reads {
            written.waiting.extend(mirrored.unread.iter().filter(|metric| !mirrored.away.contains(metric)));
        }
        if before < written.waiting.len() {
            return Ok(None);
        }
        written.unread.extend(mirrored.unread);
        rows.extend(mirrored.own);
        let of_metric: HashMap<MetricId, Rollup> = match self.policies.has_rollups() {
            true => pieces.iter().map(|piece| (piece.of.job.metric, piece.of.rollup)).collect(),
            false => HashMap::new(),
        };
        rows.retain(|row| of_metric.get(&row.metric).is_none_or(|rollup| rollup.has(row.table)));
        Ok(Some(DerivedPieces { rows, of_others: mirrored.of_others, partials, doubtful }))
    }

    /// This writer's part of totals. Others are corrected, and noted.
    pub(super) async fn own_rows(&self, shared: &dyn SharedPoints, totals: Vec<Run>) -> Result<Vec<Run>, StoreError> {
        let OwnRows { runs, corrected } = shared.writer_partials(totals).await?;
        if !corrected.is_empty() {
            // Nodes that see others do not extend rows of `last`.
            let extended = runs.iter().filter(|run| run.aggregation != Aggregation::Last);
            let extended: HashSet<MetricId> = extended.map(|run| run.metric).collect();
            self.corrected.lock().extend(corrected.into_iter().filter(|metric| extended.contains(metric)));
        }
        Ok(runs)
    }

    /// Notes when the metrics of rows have points, before the rows can be read.
    fn note_seen(&self, rows: &[Run]) {
        let seen = self.registry.seen();
        if seen.is_begun() {
            let now = self.time.reached();
            seen.move_to(now);
            let rows = || rows.iter().filter(|row| !row.values.is_empty());
            let in_slots = |row: &Run, step: u32| {
                let stage = row.table.stage;
                let last = stage.time(row.first_slot.saturating_add(row.values.len() as u32 - 1));
                let (first, last) = seen_in_slots(stage.time(row.first_slot), last, step, now);
                (row.metric, first, last)
            };
            seen.note(rows().map(|row| in_slots(row, row.table.stage.resolution())));
            // Points of an older policy are drawn in slots of the one in force. A change that is later than this question widens
            // what is noted by now.
            let steps = self.registry.steps_of_changed(rows().map(|row| row.metric));
            if !steps.is_empty() {
                seen.note(rows().filter_map(|row| Some(in_slots(row, *steps.get(&row.metric)?))));
            }
        }
    }

    /// What rows replace in the tables of older policies.
    async fn mirrored(
        &self,
        pieces: &[&Piece<'_>],
        older: &[Option<OlderPolicies>],
        rows: &[Run],
    ) -> Result<MirroredRows, StoreError> {
        let with_older = pieces.iter().zip(older).filter_map(|(piece, older)| Some((piece, older.as_ref()?)));
        let touching = with_older.filter(|(piece, older)| piece.may_touch(older));
        let of_metric: HashMap<MetricId, &OlderPolicies> =
            touching.map(|(piece, older)| (piece.of.job.metric, older)).collect();
        let mut metrics: HashMap<MetricId, (&OlderPolicies, Vec<&Run>)> = HashMap::new();
        // Older jobs of these metrics are stored.
        let (stored, mut coming) = (ComingRows::default(), ComingRows::default());
        for row in rows {
            let Some(older) = of_metric.get(&row.metric) else { continue };
            metrics.entry(row.metric).or_insert_with(|| (older, Vec::new())).1.push(row);
            coming.add([row.clone()]);
        }
        if metrics.is_empty() {
            return Ok(MirroredRows::default());
        }
        let metrics: Vec<_> = metrics.into_values().collect();
        let (is_alone, now) = (self.store.shared.is_none(), self.time.reached());
        mirrored_rows(&*self.store.points, &metrics, [&stored, &coming], (is_alone, now)).await
    }

    /// The policies that a piece's metric had before, where its rows are derived.
    fn older_policies(&self, piece: &Piece<'_>) -> Option<OlderPolicies> {
        let history = self.registry.policies(piece.of.job.metric).filter(|history| history.len() > 1)?;
        OlderPolicies::of(&history, piece.of.job.policy, piece.of.rollup, self.policies, self.time.reached())
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
        let history = history.as_ref();
        let points_since = history.map_or(Timestamp::MAX, |history| self.policies.points_since(history, now));
        let rows_alone_until = history.map_or(Timestamp::MIN, |history| self.policies.rows_alone_until(history, now));
        let this_writer = Stored::Unknown;
        Coverage { all_writers, this_writer, now, policy_since, is_alone, points_since, rows_alone_until }
    }
}

/// This writer's partials of all methods of a policy, where all are known.
fn partials_of_all(
    policy: &Policy,
    first: Option<WriterPartials>,
    further: &[(Rollup, Option<WriterPartials>)],
) -> Option<WriterPartials> {
    let mut first = first;
    let of_method = |method: Aggregation| match further.iter().find(|(of, _)| of.method == method) {
        Some((_, partials)) => partials.clone(),
        None => first.take(),
    };
    // A method that only older policies have is of no use here.
    let all: Option<Vec<WriterPartials>> = policy.methods().iter().map(of_method).collect();
    WriterPartials::of_all(all?)
}

/// Turns rows of pieces into what is stored. For each piece its older policies, and the slots that its rows are made of and that
/// have values of other methods. Returns the metrics that have rows in the terms of another policy.
fn in_stored_terms(
    (older, earlier): (&[Option<OlderPolicies>], &[EarlierSlots]),
    pieces: &[&Piece<'_>],
    rows: &mut [Run],
) -> Vec<MetricId> {
    let mut of_metric: HashMap<MetricId, (&OlderPolicies, Vec<&EarlierSlots>)> = HashMap::new();
    for ((piece, older), earlier) in pieces.iter().zip(older).zip(earlier) {
        let Some(older) = older else { continue };
        of_metric.entry(piece.of.job.metric).or_insert((older, Vec::new())).1.push(earlier);
    }
    let mut changed = Vec::new();
    for row in rows.iter_mut().filter(|row| row.table.aggregated) {
        let Some((older, earlier)) = of_metric.get(&row.metric) else { continue };
        if older.rows().write(row, older.policy(), earlier) {
            changed.push(row.metric);
        }
    }
    changed
}
