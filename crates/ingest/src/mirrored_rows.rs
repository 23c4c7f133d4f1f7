//! What a flush replaces in the tables of other policies of a metric, so that the newest value is right if one of them comes
//! back.
//!
//! 1. Where an older table has a slot that new rows touch, it gets what the rows' policy shows for that slot.
//! 2. A coarser point that was shown at its own time until then is first stored there, among the finer ones.
//! 3. Where all policies have one first step, a coarse slot that counts more points than it would get stays.
//!
//! What cannot be read now may be there: the metric waits. Where it cannot wait, and where bytes are damaged, points of a
//! step as fine replace what may be there, and all other slots stay as they are.

use metric::{MetricId, Policy, Slot, Stage, Table, Timestamp};
use store::{Cells, Fetch, PointStore, Run, StoreError};

use crate::{
    coming_rows::ComingRows,
    older_cells::{OlderPolicies, fetch_filled},
    shared_rows::{EarlierSlots, has_table},
};

/// Slots that are read at once.
const STEP_SLOTS: usize = 256 << 10;

/// Touched slots closer than this are read together: those of a partition.
const JOIN: u32 = metric::ROW_POINTS;

/// Rows to write with those of a flush.
#[derive(Default)]
pub(crate) struct MirroredRows {
    /// To be written before the others.
    pub(crate) own: Vec<Run>,
    pub(crate) of_others: Vec<Run>,
    /// Metrics with slots that cannot be read now.
    pub(crate) unread: Vec<MetricId>,
    /// Those of them whose slots are in files that are missing.
    pub(crate) away: Vec<MetricId>,
}

/// Touched slots of another policy's table.
struct Touched<'a> {
    metric: usize,
    seen: &'a OlderPolicies,
    table: Table,
    slots: Vec<Slot>,
    /// Slots under one of the rows' points: all of them are seen behind it.
    reach: u32,
    /// Whether a slot has a single point of the rows, so that nothing else need be read to know it.
    is_as_fine: bool,
    /// Whether a stored slot stays that counts more than what is shown for it: the rows' policy has no step to tell by, and its
    /// finer slots lack points that had expired, or came for the whole slot, before it was in force.
    keeps_more: bool,
}

impl Touched<'_> {
    fn span(&self) -> std::ops::Range<Slot> {
        let last = self.slots.last().map_or(0, |last| last.saturating_add(1));
        self.slots.first().copied().unwrap_or(last)..last.saturating_add(self.reach - 1)
    }
}

/// The rows that follow from rows of flushes, which `coming` has: for each metric its other policies and its rows.
/// `is_alone` says that no other process writes the store; which part of another table's coarse row is this writer's is
/// not known otherwise; `now` is how far the store has come.
pub(crate) async fn mirrored_rows(
    store: &dyn PointStore,
    metrics: &[(&OlderPolicies, Vec<&Run>)],
    coming: &ComingRows,
    (is_alone, now): (bool, Timestamp),
) -> Result<MirroredRows, StoreError> {
    let seen: Vec<(usize, OlderPolicies)> = metrics
        .iter()
        .enumerate()
        .flat_map(|(place, (older, _))| older.seen_by_each().map(move |seen| (place, seen)))
        .collect();
    let mut all = Vec::new();
    for (place, seen) in &seen {
        let (older, rows) = &metrics[*place];
        all.extend(touched(*place, seen, rows, older, (is_alone, now)));
    }
    let (mut all, mut mirrored) = (all.into_iter().peekable(), MirroredRows::default());
    while all.peek().is_some() {
        let (mut step, mut slots) = (Vec::new(), 0);
        while let Some(touched) = all.next_if(|_| slots < STEP_SLOTS) {
            slots += touched.span().len();
            step.push(touched);
        }
        mirror_step(store, metrics, &step, coming, &mut mirrored).await?;
    }
    Ok(mirrored)
}

/// The slots of a policy's tables around the slots of rows.
fn touched<'a>(
    metric: usize,
    seen: &'a OlderPolicies,
    rows: &[&Run],
    by: &OlderPolicies,
    (is_alone, now): (bool, Timestamp),
) -> Vec<Touched<'a>> {
    let tables = (0..seen.policy().retention.stages().len()).map(|stage| seen.policy().table(stage));
    let others = tables.filter(|&table| !has_table(by.policy(), table) && (is_alone || !table.aggregated));
    // A coarser point that the first rollup replaces is kept among the finer slots of each.
    let others = others.filter(|&table| seen.rollup().has(table) || !table.aggregated && has_finer(by, table));
    let finest = by.policy().retention.finest().resolution();
    let has_step = |step: u32| by.policy().retention.stages().iter().any(|stage| stage.resolution() == step);
    let mut all = Vec::new();
    for table in others {
        let step = table.stage.resolution();
        // A coarse slot of the rows' policy that has no new row is kept: it counts more than the finer ones under it.
        let is_as_coarse = table.aggregated && has_step(step);
        let finer = rows.iter().filter(|row| match row.table.stage.resolution() {
            row_step if is_as_coarse => row_step == step,
            row_step => !row.table.aggregated || row_step <= step,
        });
        let mut slots: Vec<Slot> = Vec::new();
        for row in finer {
            let with_value = row.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
            let times = with_value.map(|(i, _)| row.table.stage.time(row.first_slot + i as u32));
            slots.extend(times.filter_map(|time| table.stage.slot(time)));
        }
        if table.aggregated && !is_as_coarse {
            // Of what has expired meanwhile no row of the rows' policy tells: such a slot stays as it is stored.
            let kept_from = finer_kept_from(by.policy(), step, now);
            slots.retain(|&slot| kept_from <= table.stage.time(slot));
        }
        slots.sort_unstable();
        slots.dedup();
        let together = slots.chunk_by(|one, next| next - one < JOIN);
        let reach = if table.aggregated { 1 } else { (finest / table.stage.resolution()).max(1) };
        let is_as_fine = !table.aggregated && step <= finest;
        let keeps_more = table.aggregated && !is_as_coarse && seen.is_of_one_step();
        let of = |slots: &[Slot]| Touched { metric, seen, table, slots: slots.to_vec(), reach, is_as_fine, keeps_more };
        all.extend(together.map(of));
    }
    all
}

/// Whether a rollup has a table of finer slots than the points of another one.
fn has_finer(by: &OlderPolicies, points: Table) -> bool {
    (0..by.policy().retention.stages().len()).any(|stage| is_kept_in(by, by.policy().table(stage), points.stage))
}

fn is_kept_in(by: &OlderPolicies, table: Table, points: Stage) -> bool {
    table.stage.resolution() < points.resolution() && by.rollup().has(table)
}

/// From when on a policy has all the finer slots of a slot of this step.
fn finer_kept_from(policy: &Policy, step: u32, now: Timestamp) -> Timestamp {
    let mut finer = policy.retention.stages().iter().filter(|stage| stage.resolution() <= step);
    finer.next_back().map_or(Timestamp::MIN, |stage| now - stage.duration())
}

async fn mirror_step(
    store: &dyn PointStore,
    metrics: &[(&OlderPolicies, Vec<&Run>)],
    step: &[Touched<'_>],
    coming: &ComingRows,
    mirrored: &mut MirroredRows,
) -> Result<(), StoreError> {
    let (mut fetches, mut filled) = (Vec::new(), Vec::new());
    for touched in step {
        let (older, rows) = &metrics[touched.metric];
        let fetch = touched.fetch(rows[0]);
        fetches.extend([fetch.clone(), fetch]);
        filled.extend([None, Some(touched.seen)]);
        fetches.extend(touched.own_fetches(older, rows[0]));
        filled.resize(fetches.len(), Some(*older));
    }
    let cells = fetch_filled(store, fetches, &filled, coming).await?;
    let mut cells = cells.into_iter();
    for touched in step {
        let (older, rows) = &metrics[touched.metric];
        let (Some(mut stored), Some(shown)) = (cells.next(), cells.next()) else { continue };
        touched.seen.rows().read(touched.table, touched.span().start, &mut stored, touched.seen.policy());
        if [&stored, &shown].iter().any(|cells| cells.is_unreadable || cells.is_away) {
            mirrored.unread.push(rows[0].metric);
            mirrored.away.extend((stored.is_away || shown.is_away).then_some(rows[0].metric));
        }
        let is_own = |run: &Run| older.rollup().has(run.table);
        mirrored.of_others.extend(touched.replaced(rows[0], &stored, &shown).filter(is_own));
        for (fetch, own) in touched.own_fetches(older, rows[0]).iter().zip(cells.by_ref()) {
            mirrored.own.extend(touched.kept(older, fetch, &stored, &own));
        }
    }
    Ok(())
}

impl Touched<'_> {
    fn fetch(&self, of: &Run) -> Fetch {
        let (metric, name, aggregation) = (of.metric, of.name.clone(), self.seen.policy().aggregation);
        let slots = self.span();
        Fetch { metric, name, table: self.table, first_slot: slots.start, end_slot: slots.end, aggregation }
    }

    /// The finer slots of the rows' policy at the times of coarser points.
    fn own_fetches(&self, of: &OlderPolicies, row: &Run) -> Vec<Fetch> {
        let (stage, slots) = (self.table.stage, self.span());
        let tables = (0..of.policy().retention.stages().len()).map(|stage| of.policy().table(stage));
        let finer = tables.filter(|&table| !self.table.aggregated && is_kept_in(of, table, stage));
        let fetch = |table: Table| {
            let (first_slot, last) = (table.stage.slot(stage.time(slots.start))?, slots.end.checked_sub(1)?);
            let end_slot = table.stage.slot(stage.time(last))?.checked_add(1)?;
            let (metric, name, aggregation) = (row.metric, row.name.clone(), of.policy().aggregation);
            Some(Fetch { metric, name, table, first_slot, end_slot, aggregation })
        };
        finer.filter_map(fetch).collect()
    }

    /// The touched slots that are stored, as they are from now on.
    fn replaced(&self, of: &Run, stored: &Cells, shown: &Cells) -> Option<Run> {
        if shown.is_damaged && !self.is_as_fine {
            return None;
        }
        let may_be_stored = stored.is_damaged && self.is_as_fine;
        let first_slot = self.span().start;
        let mut run = Run {
            table: self.table,
            first_slot,
            values: vec![f64::NAN; self.span().len()],
            counts: vec![0; if self.table.aggregated { self.span().len() } else { 0 }],
            aggregation: self.seen.policy().aggregation,
            ..of.clone()
        };
        let mut is_any = false;
        for place in self.slots.iter().map(|slot| (slot - first_slot) as usize) {
            let reach = stored.values.iter().skip(place).take(self.reach as usize);
            let is_stored = may_be_stored || reach.into_iter().any(|value| !value.is_nan());
            let Some(&value) = shown.values.get(place).filter(|value| is_stored && !value.is_nan()) else { continue };
            if self.keeps_more && shown.counts.get(place) < stored.counts.get(place) {
                continue;
            }
            run.values[place] = value;
            if let (Some(count), Some(&shown)) = (run.counts.get_mut(place), shown.counts.get(place)) {
                *count = shown;
            }
            is_any = true;
        }
        let earlier = EarlierSlots::of(std::iter::once((self.table.stage, first_slot, shown)));
        self.seen.rows().write(&mut run, self.seen.policy(), &[&earlier]);
        is_any.then_some(run)
    }

    /// What the rows' policy shows at the times of coarser points that are replaced.
    fn kept(&self, older: &OlderPolicies, fetch: &Fetch, stored: &Cells, own: &Cells) -> Option<Run> {
        let (table, first_slot) = (fetch.table, fetch.first_slot);
        let mut values = vec![f64::NAN; own.values.len()];
        for &slot in &self.slots {
            let is_stored = stored.values.get((slot - self.span().start) as usize).is_some_and(|value| !value.is_nan());
            let place = table.stage.slot(self.table.stage.time(slot))?.checked_sub(first_slot)? as usize;
            if let (true, Some(&value)) = (is_stored, own.values.get(place)) {
                values[place] = value;
            }
        }
        let is_any = values.iter().any(|value| !value.is_nan());
        let (metric, name, counts, aggregation) =
            (fetch.metric, fetch.name.clone(), own.counts.clone(), fetch.aggregation);
        let mut run = is_any.then_some(Run { metric, name, table, first_slot, values, counts, aggregation })?;
        let earlier = EarlierSlots::of(std::iter::once((table.stage, first_slot, own)));
        older.rows().write(&mut run, older.policy(), &[&earlier]);
        Some(run)
    }
}
