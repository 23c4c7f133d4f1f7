//! Rows of a coarse table that several policies of a metric share.
//!
//! Such a row has the terms (the first step and the method) of the policy in force when its slot began, also where a later
//! policy writes it, so that every policy can read it. A change of policy changes no stored row.

use std::sync::Arc;

use metadata::PolicyHistory;
use metric::{Aggregation, Partial, Policy, SATURATED_COUNT, Slot, Stage, Table, Timestamp};
use store::{Cells, Run};

use crate::policy_table::PolicyTable;

/// Which policy's terms the rows of a metric have.
pub(crate) struct SharedRows {
    /// Every policy and since when it was in force, the oldest first.
    spans: Vec<(Timestamp, Arc<Policy>)>,
    /// Coarse tables of policies with different terms.
    tables: Vec<Table>,
}

impl SharedRows {
    /// The terms of a metric with this history.
    pub(crate) fn of(history: &PolicyHistory, table: &PolicyTable) -> SharedRows {
        let policy = |id: metadata::PolicyId| table.all.get(usize::from(id)).cloned();
        let spans: Vec<(Timestamp, Arc<Policy>)> =
            history.iter().filter_map(|span| Some((span.since, policy(span.policy)?))).collect();
        let mut tables = Vec::new();
        for (index, (_, one)) in spans.iter().enumerate() {
            let others = spans[..index].iter().filter(|(_, other)| !has_same_terms(one, other));
            for (_, other) in others {
                tables.extend(coarse_tables(one).filter(|&table| has_table(other, table)));
            }
        }
        tables.sort_unstable();
        tables.dedup();
        SharedRows { spans, tables }
    }

    /// Turns stored rows into partials of a policy that has this table.
    pub(crate) fn read(&self, table: Table, first_slot: Slot, cells: &mut Cells, to: &Policy) {
        if !self.tables.contains(&table) {
            return;
        }
        for (i, (value, count)) in cells.values.iter_mut().zip(&mut cells.counts).enumerate() {
            if value.is_nan() {
                continue;
            }
            let from = self.terms(table, table.stage.time(first_slot + i as u32), to);
            let partial = converted(Partial { value: *value, count: *count }, from, to, table.stage);
            (*value, *count) = (partial.value, partial.count);
        }
    }

    /// Turns partials of a policy into rows as they are stored. Returns whether any changed.
    pub(crate) fn write(&self, run: &mut Run, of: &Policy) -> bool {
        if !self.tables.contains(&run.table) {
            return false;
        }
        let mut is_any = false;
        for (i, (value, count)) in run.values.iter_mut().zip(&mut run.counts).enumerate() {
            let to = self.terms(run.table, run.table.stage.time(run.first_slot + i as u32), of);
            if value.is_nan() || has_same_terms(of, to) {
                continue;
            }
            let stored = converted(Partial { value: *value, count: *count }, of, to, run.table.stage);
            (*value, *count) = (stored.value, stored.count);
            is_any = true;
        }
        is_any
    }

    /// The policy whose terms the row of the slot at this time has.
    fn terms<'a>(&'a self, table: Table, time: Timestamp, otherwise: &'a Policy) -> &'a Policy {
        let mut with_table = self.spans.iter().filter(|(_, policy)| has_table(policy, table));
        let first = with_table.next().map_or(otherwise, |(_, policy)| policy);
        with_table.take_while(|(since, _)| *since < time).last().map_or(first, |(_, policy)| policy)
    }
}

fn coarse_tables(policy: &Policy) -> impl Iterator<Item = Table> + '_ {
    (1..policy.retention.stages().len()).map(|stage| policy.retention.table(stage))
}

/// Whether a stage of the policy is stored in this table.
pub(crate) fn has_table(policy: &Policy, table: Table) -> bool {
    (0..policy.retention.stages().len()).any(|stage| policy.retention.table(stage) == table)
}

fn finest(policy: &Policy) -> u32 {
    policy.retention.finest().resolution()
}

/// Whether the partials of two policies are the same numbers.
fn has_same_terms(one: &Policy, other: &Policy) -> bool {
    finest(one) == finest(other) && has_same_content(one.aggregation, other.aggregation)
}

fn has_same_content(one: Aggregation, other: Aggregation) -> bool {
    let is_sum = |method| matches!(method, Aggregation::Average | Aggregation::Sum | Aggregation::AvgZero);
    one == other || is_sum(one) && is_sum(other)
}

/// A slot of one policy as another policy counts it: what the first one shows, for as many points as fit in that time. A
/// point of a coarser step is one point.
pub(crate) fn converted(partial: Partial, from: &Policy, to: &Policy, stage: Stage) -> Partial {
    let is_finest = stage.resolution() <= finest(to);
    if has_same_terms(from, to) && !is_finest {
        return partial;
    }
    let shown = from.aggregation.finish(partial, expected(from, stage), 0.0);
    if is_finest {
        return Partial { value: shown, count: partial.count };
    }
    // As few as there can be, so that no row seems to have more points than the finer slots under it.
    let fitting = (u64::from(partial.count) * u64::from(finest(from))).div_ceil(u64::from(finest(to)));
    // A point of a coarser step is one point, and a saturated count stands for all of the slot.
    let is_whole = partial.count == SATURATED_COUNT || finest(from) > finest(to);
    let count = if is_whole { partial.count } else { fitting as u32 };
    shown_by(shown, count, to, stage)
}

/// Stage-0 slots in a slot.
fn expected(policy: &Policy, stage: Stage) -> u32 {
    (stage.resolution() / finest(policy)).max(1)
}

/// The partial by which a policy shows this value.
fn shown_by(shown: f64, count: u32, policy: &Policy, stage: Stage) -> Partial {
    let expected = expected(policy, stage);
    let count = count.clamp(1, expected);
    let value = match policy.aggregation {
        Aggregation::Average => shown * f64::from(count),
        Aggregation::AvgZero => shown * f64::from(expected),
        _ => shown,
    };
    Partial { value, count }
}
