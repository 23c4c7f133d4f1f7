//! What a flush replaces in the tables of other policies of a metric, so that the newest value is right if one of them comes
//! back.
//!
//! 1. Where an older table has a slot that new rows touch, it gets what the rows' policy shows for that slot.
//! 2. A coarser point that was shown at its own time until then is first stored there, among the finer ones.
//! 3. A coarse slot whose finer slots may have expired, or may never have been, and that counts more points than these have, gets
//!    what changes in them (`downsample::with_changes`): its other points are known as this slot alone.
//! 4. Where slots of an older policy reach into several slots of the rows' policy, since their steps do not divide, all these are stored
//!    together, as they are shown: once points have expired, an older slot cannot be cut any more, and it is left out where a later
//!    policy has a part of it.
//!
//! What cannot be read now may be there: the metric waits. Where it cannot wait, and where bytes are damaged, points of a
//! step as fine replace what may be there, and all other slots stay as they are.

use downsample::{Change, with_changes};
use metric::{MetricId, Partial, Policy, Slot, Stage, Table, Timestamp};
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

impl MirroredRows {
    /// Takes note of cells that cannot be read now.
    fn note_unread(&mut self, metric: MetricId, cells: &Cells) {
        if cells.is_unreadable || cells.is_away {
            self.unread.push(metric);
            self.away.extend(cells.is_away.then_some(metric));
        }
    }
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
    /// Slots before this time get no more than what changes under them: the rows' policy has no step to tell by what has expired.
    kept_from: Timestamp,
    /// In slots before this time, points may be known as coarse rows alone. `Timestamp::MIN` in tables where the rows' policy tells.
    rows_alone_until: Timestamp,
    /// Whether counts can be compared, and a stored slot stays that counts more than what is shown for it.
    keeps_more: bool,
    /// Before this time the points of the rows' policy may have expired: one that it lacks may be a stored one that comes again.
    points_expired_until: Timestamp,
}

/// What becomes of slots to which points are added, in the order of time; `None` where one stays.
type Late = Vec<(Slot, Option<Partial>)>;

impl Touched<'_> {
    fn span(&self) -> std::ops::Range<Slot> {
        let last = self.slots.last().map_or(0, |last| last.saturating_add(1));
        self.slots.first().copied().unwrap_or(last)..last.saturating_add(self.reach - 1)
    }
}

/// The rows that follow from rows of flushes: for each metric its other policies and its rows. `coming` has what comes before these
/// rows, and then these.
/// `is_alone` says that no other process writes the store; which part of another table's coarse row is this writer's is
/// not known otherwise; `now` is how far the store has come.
pub(crate) async fn mirrored_rows(
    store: &dyn PointStore,
    metrics: &[(&OlderPolicies, Vec<&Run>)],
    coming: [&ComingRows; 2],
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
    if is_alone {
        store_blocks(store, metrics, coming, &mut mirrored).await?;
    }
    Ok(mirrored)
}

/// Adds the other slots of blocks that rows have a slot of, see [`OlderPolicies::block`].
async fn store_blocks(
    store: &dyn PointStore,
    metrics: &[(&OlderPolicies, Vec<&Run>)],
    coming: [&ComingRows; 2],
    mirrored: &mut MirroredRows,
) -> Result<(), StoreError> {
    let mut all: Vec<(&OlderPolicies, Fetch)> = Vec::new();
    for (older, rows) in metrics {
        all.extend(blocks(older, rows).into_iter().map(|fetch| (*older, fetch)));
    }
    let mut all = all.into_iter().peekable();
    while all.peek().is_some() {
        let (mut step, mut slots) = (Vec::new(), 0);
        while let Some((older, fetch)) = all.next_if(|_| slots < STEP_SLOTS) {
            slots += (fetch.end_slot - fetch.first_slot) as usize;
            step.push((older, fetch));
        }
        let fetches: Vec<Fetch> = step.iter().flat_map(|(_, fetch)| [fetch.clone(), fetch.clone()]).collect();
        let filled: Vec<Option<&OlderPolicies>> = step.iter().flat_map(|(older, _)| [None, Some(*older)]).collect();
        let mut cells = fetch_filled(store, fetches, &filled, &coming).await?.into_iter();
        for (older, fetch) in step {
            let (Some(stored), Some(mut shown)) = (cells.next(), cells.next()) else { continue };
            mirrored.note_unread(fetch.metric, &stored);
            mirrored.note_unread(fetch.metric, &shown);
            if stored.is_damaged || shown.is_damaged {
                continue;
            }
            let is_stored = |place: usize| stored.values.get(place).is_some_and(|value| !value.is_nan());
            let absent = |(place, value): &(usize, &mut f64)| is_stored(*place) && !value.is_nan();
            shown.values.iter_mut().enumerate().filter(absent).for_each(|(_, value)| *value = f64::NAN);
            if shown.values.iter().all(|value| value.is_nan()) {
                continue;
            }
            let earlier = EarlierSlots::of(std::iter::once((fetch.table.stage, fetch.first_slot, &shown)));
            let Fetch { metric, name, table, first_slot, aggregation, .. } = fetch;
            let (values, counts) = (shown.values.clone(), shown.counts.clone());
            let mut run = Run { metric, name, table, first_slot, values, counts, aggregation };
            older.rows().write(&mut run, older.policy(), &[&earlier]);
            mirrored.own.push(run);
        }
    }
    Ok(())
}

/// The blocks around the coarse slots of rows, of a time in which older policies may have stored slots.
fn blocks(older: &OlderPolicies, rows: &[&Run]) -> Vec<Fetch> {
    let mut all: Vec<Fetch> = Vec::new();
    for row in rows.iter().filter(|row| row.table.aggregated && older.rollup().has(row.table)) {
        let stage = row.table.stage;
        let Some(len) = older.block(stage.resolution()) else { continue };
        let with_value = (row.first_slot..).zip(&row.values).filter(|(_, value)| !value.is_nan());
        for (slot, _) in with_value.take_while(|(slot, _)| stage.time(*slot) < older.older_until()) {
            let first_slot = slot - slot % len;
            let (metric, name, table, aggregation) = (row.metric, row.name.clone(), row.table, row.aggregation);
            match all
                .last_mut()
                .filter(|last| last.table == table && last.first_slot <= first_slot && first_slot <= last.end_slot)
            {
                Some(last) => last.end_slot = last.end_slot.max(first_slot.saturating_add(len)),
                None => {
                    let end_slot = first_slot.saturating_add(len);
                    all.push(Fetch { metric, name, table, first_slot, end_slot, aggregation });
                }
            }
        }
    }
    all
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
        let is_of_others_alone = table.aggregated && !is_as_coarse;
        let (kept_from, rows_alone_until) = match is_of_others_alone {
            true => (finer_kept_from(by.policy(), step, now), by.rows_alone_until()),
            false => (Timestamp::MIN, Timestamp::MIN),
        };
        slots.sort_unstable();
        slots.dedup();
        let together = slots.chunk_by(|one, next| next - one < JOIN);
        let reach = (finest / step).max(1);
        let is_as_fine = !table.aggregated && step <= finest;
        let keeps_more = is_of_others_alone && seen.is_of_one_step();
        let points_expired_until = now - by.policy().retention.finest().duration();
        let of = |slots: &[Slot]| Touched {
            metric,
            seen,
            table,
            slots: slots.to_vec(),
            reach,
            is_as_fine,
            kept_from,
            rows_alone_until,
            keeps_more,
            points_expired_until,
        };
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
    coming: [&ComingRows; 2],
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
    let cells = fetch_filled(store, fetches, &filled, &coming).await?;
    let mut cells = cells.into_iter();
    for touched in step {
        let (older, rows) = &metrics[touched.metric];
        let (Some(mut stored), Some(shown)) = (cells.next(), cells.next()) else { continue };
        touched.seen.rows().read(touched.table, touched.span().start, &mut stored, touched.seen.policy());
        mirrored.note_unread(rows[0].metric, &stored);
        mirrored.note_unread(rows[0].metric, &shown);
        let is_own = |run: &Run| older.rollup().has(run.table);
        let late = touched.late(store, rows[0], &stored, coming, mirrored).await?;
        mirrored.of_others.extend(touched.replaced(rows[0], &stored, &shown, &late).filter(is_own));
        for (fetch, own) in touched.own_fetches(older, rows[0]).iter().zip(cells.by_ref()) {
            mirrored.note_unread(rows[0].metric, &own);
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

    /// The stored slots that count points which the finer ones lack, with what changes in these.
    async fn late(
        &self,
        store: &dyn PointStore,
        of: &Run,
        stored: &Cells,
        coming: [&ComingRows; 2],
        mirrored: &mut MirroredRows,
    ) -> Result<Late, StoreError> {
        let (stage, first_slot) = (self.table.stage, self.span().start);
        let row = |slot: Slot| {
            let place = (slot - first_slot) as usize;
            let (value, count) = (*stored.values.get(place)?, *stored.counts.get(place)?);
            (stage.time(slot) < self.rows_alone_until && 0 < count && !value.is_nan())
                .then_some((slot, Partial { value, count }))
        };
        let rows: Vec<(Slot, Partial)> = self.slots.iter().filter_map(|&slot| row(slot)).collect();
        let (points, mut late) = (self.seen.policy().table(0), Late::new());
        let points_of_slot = (stage.resolution() / points.stage.resolution()).max(1);
        for rows in rows.chunks((STEP_SLOTS / points_of_slot as usize).max(1)) {
            let fetch = |(slot, _): &(Slot, Partial)| {
                let first_slot = points.stage.slot(stage.time(*slot)).unwrap_or(Slot::MAX);
                let end_slot = first_slot.saturating_add(points_of_slot);
                Fetch { table: points, first_slot, end_slot, ..self.fetch(of) }
            };
            let fetches: Vec<Fetch> = rows.iter().map(fetch).collect();
            let seen = vec![Some(self.seen); fetches.len()];
            let after = fetch_filled(store, fetches.clone(), &seen, &coming).await?;
            let before = fetch_filled(store, fetches.clone(), &seen, &coming[..1]).await?;
            after.iter().chain(&before).for_each(|cells| mirrored.note_unread(of.metric, cells));
            for (((slot, row), fetch), cells) in rows.iter().zip(&fetches).zip(before.iter().zip(&after)) {
                let with_late = self.with_late(*row, fetch, cells, points_of_slot);
                late.extend(with_late.map(|row| (*slot, row)));
            }
        }
        Ok(late)
    }

    /// A stored row that counts points which the finer slots lack, with what changes in these; of points `before` and `after`. `None`
    /// of a row that counts no others.
    fn with_late(
        &self,
        row: Partial,
        fetch: &Fetch,
        (before, after): (&Cells, &Cells),
        points_of_slot: u32,
    ) -> Option<Option<Partial>> {
        if before.is_damaged || after.is_damaged {
            return Some(None);
        }
        let point = |cells: &Cells, place: usize| cells.values.get(place).copied().filter(|value| !value.is_nan());
        let count = |cells: &Cells| cells.values.iter().filter(|value| !value.is_nan()).count() as u32;
        if row.count <= count(before) || points_of_slot <= count(after) {
            return None;
        }
        let (mut changes, mut last) = (Vec::new(), None);
        for place in 0..after.values.len() {
            let slot = fetch.first_slot + place as u32;
            let [before, after] =
                [before, after].map(|cells| point(cells, place).map_or(Partial::NONE, Partial::point));
            if after.count == 0 {
                continue;
            }
            last = Some(slot);
            let is_kept = self.points_expired_until <= fetch.table.stage.time(slot);
            if is_kept && (before.count == 0 || before.value.to_bits() != after.value.to_bits()) {
                changes.push(Change { slot, before, after });
            }
        }
        (!changes.is_empty()).then(|| with_changes(self.seen.policy().aggregation, row, &changes, last))
    }

    /// The touched slots that are stored, as they are from now on.
    fn replaced(&self, of: &Run, stored: &Cells, shown: &Cells, late: &Late) -> Option<Run> {
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
        let most = (self.table.stage.resolution() / self.seen.policy().retention.finest().resolution()).max(1);
        for place in self.slots.iter().map(|slot| (slot - first_slot) as usize) {
            let reach = stored.values.iter().skip(place).take(self.reach as usize);
            let is_stored = may_be_stored || reach.into_iter().any(|value| !value.is_nan());
            let slot = first_slot + place as u32;
            if let Ok(found) = late.binary_search_by_key(&slot, |(slot, _)| *slot) {
                if let Some(row) = late[found].1 {
                    (run.values[place], run.counts[place], is_any) = (row.value, row.count, true);
                }
                continue;
            }
            let Some(&value) = shown.values.get(place).filter(|value| is_stored && !value.is_nan()) else { continue };
            let time = self.table.stage.time(slot);
            let keeps_more = self.keeps_more || time < self.rows_alone_until;
            let counts_more = || {
                let counts = (stored.counts.get(place).copied(), shown.counts.get(place).copied());
                // A row to which late points were added may count more than its slot has.
                counts.0.map(|count| count.min(most)) > counts.1
            };
            if time < self.kept_from || keeps_more && counts_more() {
                continue;
            }
            run.values[place] = value;
            if let (Some(count), Some(&shown)) = (run.counts.get_mut(place), shown.counts.get(place)) {
                *count = shown;
            }
            is_any = true;
        }
        let earlier = [shown, stored].map(|cells| (self.table.stage, first_slot, cells));
        let earlier = EarlierSlots::of(earlier[..if late.is_empty() { 1 } else { 2 }].iter().copied());
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
