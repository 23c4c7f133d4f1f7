//! A second derivation of coarse slots that other writers of the tables have rows of, too: where the rows of all writers do not make what the
//! finer slots make, this writer's rows are written again, and others are corrected.
//!
//! 1. Ask whether other writers have rows there. Mostly none has, and that is all.
//! 2. Read the points of the spans, and derive the coarse slots from them as a flush of these points does.
//! 3. Where slots differ, do that once more: a write of another node may have come between the reads.
//! 4. Write the slots that differ in the same way.

use std::{collections::HashSet, sync::Arc};

use downsample::{Coverage, PendingPoints, ReadPlan, SortedPoints, Stored};
use metric::{Aggregation, MetricId, Partial, Policy, SATURATED_COUNT, Slot, Stage};
use store::{Cells, Fetch, Run, SharedPoints, StoreError};

use super::{
    attempt::{Attempt, STEP_SLOTS},
    rechecks::Recheck,
};

/// One span of a metric, by one of the methods of its policy.
struct Span {
    metric: MetricId,
    name: String,
    policy: Arc<Policy>,
    /// Slots of the first stage.
    slots: std::ops::Range<Slot>,
    coverage: Coverage,
}

impl Attempt<'_> {
    /// Derives once. Returns the metrics whose rows were not right, or could not be compared.
    pub(super) async fn recheck(&self, rechecks: &[Recheck]) -> Result<HashSet<MetricId>, StoreError> {
        let mut wrong = HashSet::new();
        let Some(shared) = &self.store.shared else { return Ok(wrong) };
        let spans: Vec<Span> = rechecks.iter().flat_map(|recheck| self.spans(recheck)).collect();
        let contested = contested(&**shared, &spans).await?;
        let spans: Vec<&Span> = spans.iter().zip(contested).filter_map(|(span, is)| is.then_some(span)).collect();
        // One after the other: they are few, and each reads as much as a flush of its points.
        for span in spans {
            if !self.mend(span, &**shared).await? {
                wrong.insert(span.metric);
            }
        }
        Ok(wrong)
    }

    /// The spans of a recheck, for each method of its policy. None where the metric had other policies: their rows share tables.
    fn spans(&self, recheck: &Recheck) -> Vec<Span> {
        let Some(history) = self.registry.policies(recheck.metric).filter(|history| history.len() == 1) else {
            return Vec::new();
        };
        let Some(current) = history.last().filter(|last| last.policy == recheck.policy) else { return Vec::new() };
        let name = self.registry.read().name(recheck.metric).to_owned();
        let now = self.time.reached();
        let coverage = Coverage {
            all_writers: Stored::Unknown,
            this_writer: Stored::Unknown,
            now,
            policy_since: current.since,
            is_alone: false,
            points_since: self.policies.points_since(&history, now),
            rows_alone_until: self.policies.rows_alone_until(&history, now),
        };
        let mut spans = Vec::new();
        for rollup in self.policies.rollups(Some(&history), recheck.policy) {
            let policy = &self.policies.of_rollup(rollup.method).all[usize::from(recheck.policy)];
            let finest = policy.retention.finest();
            for span in &recheck.spans {
                let (Some(first), Some(last)) = (finest.slot(span.start), finest.slot(span.end - 1)) else { continue };
                spans.extend(pieces(first..last.saturating_add(1)).map(|slots| Span {
                    metric: recheck.metric,
                    name: name.clone(),
                    policy: policy.clone(),
                    slots,
                    coverage,
                }));
            }
        }
        spans
    }

    /// Derives the coarse slots of a span, and writes those that are not stored so. Returns whether all were right.
    async fn mend(&self, span: &Span, shared: &dyn SharedPoints) -> Result<bool, StoreError> {
        let Some(mut totals) = self.differing(span).await? else { return Ok(false) };
        if totals.is_empty() {
            return Ok(true);
        }
        if self.differing(span).await?.is_none_or(|again| !are_same(&again, &totals)) {
            return Ok(false);
        }
        // As where this node has had other policies: rows may count points of tables that it does not read.
        if shared.has_other_retentions(&span.name, &span.policy.retention).await? {
            return Ok(true);
        }
        self.leave_out_deleted(&mut totals);
        let mut own = self.own_rows(shared, totals).await?;
        self.leave_out_deleted(&mut own);
        self.store.points.write(own).await?;
        Ok(false)
    }

    /// The coarse slots of a span that the rows of all writers do not make, as they are derived. `None` where not all can be read
    /// now. Those of damaged slots are left as they are: a later look finds nothing else.
    async fn differing(&self, span: &Span) -> Result<Option<Vec<Run>>, StoreError> {
        let stored = self.store.points.fetch(vec![span.fetch(0, span.slots.clone())]).await?;
        let mut points = PendingPoints::default();
        for cells in &stored {
            if is_incomplete(cells) {
                return Ok(None);
            }
            let values = (span.slots.start..).zip(&cells.values).filter(|(_, value)| !value.is_nan());
            values.for_each(|(slot, &value)| _ = points.push(slot, value));
        }
        let points = SortedPoints::of(&[&points]);
        let mut plan = ReadPlan::new(&span.policy, &points, span.coverage, span.policy.retention.stages().len() - 1);
        let fetches = plan.needs().iter().map(|need| span.fetch(need.stage, need.slots.clone())).collect();
        let stored = self.store.points.fetch(fetches).await?;
        if stored.iter().any(is_incomplete) {
            return Ok(None);
        }
        let damaged = stored.iter().enumerate().filter(|(_, cells)| cells.is_damaged);
        damaged.for_each(|(need, cells)| {
            plan.note_damage(need, cells.damage());
            plan.note_outdated(need, &cells.outdated_at);
        });
        let cells: Vec<(&[f64], &[u32])> = stored.iter().map(|cells| (&cells.values[..], &cells.counts[..])).collect();
        let stored = |stage: usize, slot: Slot| {
            let of_stage = plan.needs().iter().zip(&cells).filter(|(need, _)| need.stage == stage);
            let cell = |(need, (values, counts)): (&downsample::Need, &(&[f64], &[u32]))| {
                let at = slot.checked_sub(need.slots.start)? as usize;
                Some(Partial { value: *values.get(at)?, count: *counts.get(at)? })
            };
            of_stage.filter_map(cell).next().unwrap_or(Partial::NONE)
        };
        let mut totals = Vec::new();
        for mut row in plan.derive(&cells).rows.into_iter().filter(|row| row.stage > 0) {
            let mut is_any = false;
            for (slot, (value, count)) in (row.first_slot..).zip(row.values.iter_mut().zip(&mut row.counts)) {
                let total = Partial { value: *value, count: *count };
                if total.count == 0 || is_stored_so(&span.policy, row.stage, total, stored(row.stage, slot)) {
                    (*value, *count) = (f64::NAN, 0);
                } else {
                    is_any = true;
                }
            }
            if is_any {
                totals.push(Run {
                    metric: span.metric,
                    name: span.name.clone(),
                    table: span.policy.table(row.stage),
                    first_slot: row.first_slot,
                    values: row.values,
                    counts: row.counts,
                    aggregation: span.policy.aggregation,
                });
            }
        }
        Ok(Some(totals))
    }
}

impl Span {
    fn fetch(&self, stage: usize, slots: std::ops::Range<Slot>) -> Fetch {
        Fetch {
            metric: self.metric,
            name: self.name.clone(),
            table: self.policy.table(stage),
            first_slot: slots.start,
            end_slot: slots.end,
            aggregation: self.policy.aggregation,
        }
    }

    /// The slots of a coarse stage around the span.
    fn coarse(&self, stage: Stage) -> std::ops::Range<Slot> {
        let children = stage.resolution() / self.policy.retention.finest().resolution();
        self.slots.start / children..(self.slots.end - 1) / children + 1
    }
}

/// Pieces that are read one after the other, so that a backfill of years is never in memory whole. A coarse slot that two pieces share
/// is derived twice, from all of its points each time.
fn pieces(slots: std::ops::Range<Slot>) -> impl Iterator<Item = std::ops::Range<Slot>> {
    let end = slots.end;
    slots.step_by(STEP_SLOTS).map(move |first| first..first.saturating_add(STEP_SLOTS as u32).min(end))
}

/// Of each span, whether other writers have rows of its coarse slots.
async fn contested(shared: &dyn SharedPoints, spans: &[Span]) -> Result<Vec<bool>, StoreError> {
    let (mut fetches, mut of_span) = (Vec::new(), Vec::new());
    for (place, span) in spans.iter().enumerate() {
        for (index, stage) in span.policy.retention.stages().iter().enumerate().skip(1) {
            fetches.push(span.fetch(index, span.coarse(*stage)));
            of_span.push(place);
        }
    }
    let mut contested = vec![false; spans.len()];
    for (place, has_others) in of_span.into_iter().zip(shared.have_others(fetches).await?) {
        contested[place] |= has_others;
    }
    Ok(contested)
}

/// Whether two derivations differ from what is stored in the same slots, and by the same.
fn are_same(one: &[Run], other: &[Run]) -> bool {
    let bits = |run: &Run| run.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let is_same = |(one, other): (&Run, &Run)| {
        one.table == other.table
            && one.first_slot == other.first_slot
            && one.counts == other.counts
            && bits(one) == bits(other)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn is_incomplete(cells: &Cells) -> bool {
    cells.is_unreadable || cells.is_away
}

/// Whether the rows of all writers make this total, up to rounding and to the largest count that a row can have.
fn is_stored_so(policy: &Policy, stage: usize, total: Partial, stored: Partial) -> bool {
    let stages = policy.retention.stages();
    let expected = stages[stage].resolution() / stages[0].resolution();
    let shown = |partial| policy.aggregation.finish(partial, expected, 0.0);
    let (a, b) = (shown(total), shown(stored));
    // Of two that are as far from zero, the rows do not tell which came first.
    let is_abs = matches!(policy.aggregation, Aggregation::AbsMax | Aggregation::AbsMin);
    let (a, b) = if is_abs { (a.abs(), b.abs()) } else { (a, b) };
    let is_same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    is_same && (total.count == stored.count || stored.count == SATURATED_COUNT && SATURATED_COUNT < total.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_span_is_read_in_pieces() {
        let step = STEP_SLOTS as u32;
        let found: Vec<_> = pieces(7..2 * step + 8).collect();
        assert_eq!(found, [7..step + 7, step + 7..2 * step + 7, 2 * step + 7..2 * step + 8]);
        for short in [3..5, Slot::MAX - 1..Slot::MAX] {
            assert!(pieces(short.clone()).eq(std::iter::once(short)));
        }
    }
}
