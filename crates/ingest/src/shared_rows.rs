//! Rows of a coarse table that several policies of a metric share.
//!
//! Such a row has the terms (the first step and the method) of the policy in force when its slot began, also where a later
//! policy writes it, so that every policy can read it. A change of policy changes no stored row.
//!
//! Points of another first step than the terms' cannot be counted in them. Where this node is the only writer, such a row
//! says so: its count begins behind the most that the slot can have in its terms, and each further first step has numbers
//! of its own behind those before it.
//!
//! ```text
//! a minute that began under 10 s: 1..=6 points of 10 s, 7..=66: 1 to 60 points of 1 s
//! ```
//!
//! And where another method than that of the terms made it, or had a part in it, the highest bits of the count say which.

use std::{ops::Range, sync::Arc};

use metadata::{PolicyHistory, PolicySpan};
use metric::{Aggregation, Methods, Partial, Policy, SATURATED_COUNT, Slot, Stage, Table, Timestamp};
use store::{Cells, Run};

use crate::policy_table::PolicyTable;

/// From this bit on a count says by which methods the row is made: a bit each, in the order of [`Aggregation::ALL`].
const METHOD_BITS: u32 = 24;

/// Which policy's terms the rows of a metric have.
pub(crate) struct SharedRows {
    /// Coarse tables of policies with different terms; all, where policies have different methods and counts name them.
    tables: Vec<(Table, Vec<Terms>)>,
    /// Whether a policy has or had several methods: sums and means are different methods then. A point that stands for a whole slot has
    /// as many points in one as in the other, so that its sum is not the mean of as many.
    has_lists: bool,
}

/// Slots that rows are made of, and that have values of other methods.
#[derive(Default)]
pub(crate) struct EarlierSlots {
    /// By the time at which they begin.
    slots: Vec<(Timestamp, i64, Methods)>,
    /// The longest, in seconds.
    longest: i64,
}

impl EarlierSlots {
    /// Those of cells that were read, each with its stage and first slot.
    pub(crate) fn of<'a>(read: impl Iterator<Item = (Stage, Slot, &'a Cells)>) -> EarlierSlots {
        let mut all = EarlierSlots::default();
        for (stage, first_slot, cells) in read.filter(|(.., cells)| !cells.earlier_at.is_empty()) {
            let step = i64::from(stage.resolution());
            all.longest = all.longest.max(step);
            let of = cells.earlier_at.iter().map(|(place, methods)| (stage.time(first_slot + place), step, *methods));
            all.slots.extend(of);
        }
        all.slots.sort_unstable_by_key(|(begin, ..)| *begin);
        all
    }

    /// The methods of those that have a part in these times.
    fn within(&self, times: Range<Timestamp>) -> Methods {
        let mut methods = Methods::NONE;
        let first = self.slots.partition_point(|(begin, ..)| begin + self.longest <= times.start);
        let slots = self.slots[first..].iter().take_while(|(begin, ..)| *begin < times.end);
        let slots = slots.filter(|(begin, step, _)| times.start < begin + step);
        slots.flat_map(|(.., of)| of.iter()).for_each(|method| _ = methods.add(method));
        methods
    }
}

/// How rows of a table are stored whose slots begin after a change of policy.
struct Terms {
    /// Of the change.
    since: Timestamp,
    policy: Arc<Policy>,
    /// The first steps of the policies after that one, as they first came. None where readers add up the counts of several
    /// writers.
    later_steps: Vec<u32>,
    /// Whether counts say which methods made a row: no reader adds them up.
    names_methods: bool,
}

impl SharedRows {
    /// The terms of a metric with this history.
    pub(crate) fn of(history: &PolicyHistory, policies: &PolicyTable) -> SharedRows {
        // Of a policy with several methods each is one of its own: a table has the rows of one method.
        let each = |span: &PolicySpan| {
            let since = span.since;
            policies.each_alone(span.policy).iter().map(move |policy| (since, policy.clone()))
        };
        let spans: Vec<(Timestamp, Arc<Policy>)> = history.iter().flat_map(each).collect();
        let has_lists = spans.iter().any(|(_, policy)| !policy.rollups.is_empty());
        let is_of_methods = |(_, policy): &(Timestamp, Arc<Policy>)| {
            !is_same_method(policy.aggregation, spans[0].1.aggregation, has_lists)
        };
        let mut tables = Vec::new();
        if policies.is_alone && spans.iter().any(is_of_methods) {
            // A row of any of them may be made of what a policy of another method shows.
            tables.extend(spans.iter().flat_map(|(_, policy)| coarse_tables(policy)));
        }
        for (index, (_, one)) in spans.iter().enumerate() {
            let others = spans[..index].iter().filter(|(_, other)| !has_same_terms(one, other));
            for (_, other) in others {
                tables.extend(coarse_tables(one).filter(|&table| has_table(other, table)));
            }
        }
        tables.sort_unstable();
        tables.dedup();
        let terms = |table| (table, terms_of(table, &spans, policies.is_alone));
        SharedRows { tables: tables.into_iter().map(terms).collect(), has_lists }
    }

    /// Turns stored rows into partials of a policy that has this table.
    pub(crate) fn read(&self, table: Table, first_slot: Slot, cells: &mut Cells, to: &Policy) {
        let Some(all) = self.terms_of(table) else { return };
        for i in 0..cells.values.len().min(cells.counts.len()) {
            let row = Partial { value: cells.values[i], count: cells.counts[i] };
            if row.value.is_nan() {
                continue;
            }
            let from = terms_at(all, table.stage.time(first_slot + i as u32));
            let made_by =
                from.made_by(row.count).into_iter().filter(|&of| !is_same_method(of, to.aggregation, self.has_lists));
            made_by.for_each(|method| cells.note_earlier(i, method));
            let partial = from.read(row, to, table.stage);
            (cells.values[i], cells.counts[i]) = (partial.value, partial.count);
        }
    }

    /// Turns partials of a policy into rows as they are stored. `earlier` are the slots that they are made of and that have
    /// values of other methods. Returns whether any changed.
    pub(crate) fn write(&self, run: &mut Run, of: &Policy, earlier: &[&EarlierSlots]) -> bool {
        let Some(all) = self.terms_of(run.table) else { return false };
        let mut is_any = false;
        for (i, (value, count)) in run.values.iter_mut().zip(&mut run.counts).enumerate() {
            let time = run.table.stage.time(run.first_slot + i as u32);
            let to = terms_at(all, time);
            let times = time..time + i64::from(run.table.stage.resolution());
            let earlier = earlier.iter().flat_map(|slots| slots.within(times.clone()));
            let made_by = made_by(all, times.clone(), of, earlier);
            let is_of_terms =
                made_by.iter().all(|method| is_same_method(method, to.policy.aggregation, self.has_lists));
            if value.is_nan() {
                continue;
            }
            let most = expected(of, run.table.stage);
            if most < *count && *count != SATURATED_COUNT && !to.later_steps.is_empty() {
                // Late points were added to a full row. A larger count would be one of another first step.
                (*value, *count) = (
                    value_showing(
                        of.aggregation.finish(Partial { value: *value, count: *count }, most, 0.0),
                        most,
                        most,
                        of.aggregation,
                    ),
                    most,
                );
                is_any = true;
            }
            if has_same_terms(of, &to.policy) && is_of_terms {
                continue;
            }
            let stored = to.stored(Partial { value: *value, count: *count }, of, run.table.stage);
            let stored = if is_of_terms { stored } else { to.with_methods(stored, made_by, run.table.stage) };
            (*value, *count) = (stored.value, stored.count);
            is_any = true;
        }
        is_any
    }

    fn terms_of(&self, table: Table) -> Option<&[Terms]> {
        let (_, terms) = self.tables.iter().find(|(shared, _)| *shared == table)?;
        (!terms.is_empty()).then_some(terms)
    }
}

/// The terms of the rows of a table, the oldest first.
fn terms_of(table: Table, spans: &[(Timestamp, Arc<Policy>)], is_alone: bool) -> Vec<Terms> {
    let mut all: Vec<Terms> = Vec::new();
    for (since, policy) in spans.iter().filter(|(_, policy)| has_table(policy, table)) {
        let step = finest(policy);
        for earlier in all.iter_mut().filter(|_| is_alone) {
            if step != finest(&earlier.policy) && !earlier.later_steps.contains(&step) {
                earlier.later_steps.push(step);
            }
        }
        all.push(Terms { since: *since, policy: policy.clone(), later_steps: Vec::new(), names_methods: is_alone });
    }
    all
}

/// The terms of the row of the slot at this time.
fn terms_at(all: &[Terms], time: Timestamp) -> &Terms {
    &all[all.partition_point(|terms| terms.since < time).max(1) - 1]
}

/// Whether values of one method pass for those of the other.
fn is_same_method(one: Aggregation, other: Aggregation, has_lists: bool) -> bool {
    one == other || !has_lists && has_same_content(one, other)
}

/// The methods by which a policy makes the row of a slot of these times: its own, those that have a part in the slots under it,
/// and those of all policies that were in force in the slot, by which points may have been made that are not read again.
fn made_by(all: &[Terms], times: Range<Timestamp>, of: &Policy, earlier: impl Iterator<Item = Aggregation>) -> Methods {
    let mut made_by = Methods::one(of.aggregation);
    earlier.for_each(|method| _ = made_by.add(method));
    let open = all.iter().filter(|terms| times.contains(&terms.since));
    let begin = Some(terms_at(all, times.start)).filter(|_| open.clone().next().is_some());
    begin.into_iter().chain(open).for_each(|terms| _ = made_by.add(terms.policy.aggregation));
    made_by
}

impl Terms {
    /// The count of a row, without what it says of methods.
    fn count(&self, count: u32) -> u32 {
        if self.names_methods { count & ((1 << METHOD_BITS) - 1) } else { count }
    }

    /// The methods that made a row of this count.
    fn made_by(&self, count: u32) -> Methods {
        let mut methods = Methods::NONE;
        if self.count(count) != count {
            let of_bits = (METHOD_BITS..).zip(Aggregation::ALL).filter(|(bit, _)| count >> bit & 1 == 1);
            of_bits.for_each(|(_, method)| _ = methods.add(method));
        } else {
            methods.add(self.policy.aggregation);
        }
        methods
    }

    /// A row with the methods that made it, which shows the same. Slots of more points than the bits below can count do without.
    fn with_methods(&self, row: Partial, methods: Methods, stage: Stage) -> Partial {
        if !self.names_methods || row.count >> METHOD_BITS != 0 {
            return row;
        }
        let bits = (METHOD_BITS..).zip(Aggregation::ALL).filter(|(_, method)| methods.contains(*method));
        let count = bits.fold(row.count, |count, (bit, _)| count | 1 << bit);
        let (own, method) = (expected(&self.policy, stage), self.policy.aggregation);
        Partial { value: value_showing(method.finish(row, own, 0.0), count, own, method), count }
    }

    /// A stored row as a partial of a policy.
    fn read(&self, row: Partial, to: &Policy, stage: Stage) -> Partial {
        let (own, count) = (expected(&self.policy, stage), self.count(row.count));
        let shown = || self.policy.aggregation.finish(row, own, 0.0);
        let mut below = own;
        for &step in &self.later_steps {
            let most = points_in(stage, step);
            if below < count && count <= below + most {
                return partial_of(shown(), count - below, step, to, stage);
            }
            below += most;
        }
        if count != row.count {
            return partial_of(shown(), count, finest(&self.policy), to, stage);
        }
        converted(row, &self.policy, to, stage)
    }

    /// A partial of a policy as it is stored.
    fn stored(&self, partial: Partial, of: &Policy, stage: Stage) -> Partial {
        let own = expected(&self.policy, stage);
        let mut below = own;
        for &step in &self.later_steps {
            let most = points_in(stage, step);
            if step == finest(of) && 0 < partial.count {
                let shown = of.aggregation.finish(partial, expected(of, stage), 0.0);
                let count = below + partial.count.min(most);
                return Partial { value: value_showing(shown, count, own, self.policy.aggregation), count };
            }
            below += most;
        }
        converted(partial, of, &self.policy, stage)
    }
}

fn coarse_tables(policy: &Policy) -> impl Iterator<Item = Table> + '_ {
    (1..policy.retention.stages().len()).map(|stage| policy.table(stage))
}

/// Whether a stage of the policy is stored in this table.
pub(crate) fn has_table(policy: &Policy, table: Table) -> bool {
    (0..policy.retention.stages().len()).any(|stage| policy.table(stage) == table)
}

fn finest(policy: &Policy) -> u32 {
    policy.retention.finest().resolution()
}

/// Whether the partials of two policies are the same numbers.
pub(crate) fn has_same_terms(one: &Policy, other: &Policy) -> bool {
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
    if partial.count == SATURATED_COUNT {
        // It stands for all of the slot.
        return shown_by(shown, partial.count, to, stage);
    }
    partial_of(shown, partial.count, finest(from), to, stage)
}

/// A slot that shows this value, of so many points of this step, as a policy counts it.
fn partial_of(shown: f64, count: u32, step: u32, to: &Policy, stage: Stage) -> Partial {
    if stage.resolution() <= finest(to) {
        return Partial { value: shown, count };
    }
    // As few as there can be, so that no row seems to have more points than the finer slots under it. A point of a coarser
    // step is one point.
    let fitting = (u64::from(count) * u64::from(step)).div_ceil(u64::from(finest(to))) as u32;
    shown_by(shown, if finest(to) < step { count } else { fitting }, to, stage)
}

/// Stage-0 slots in a slot.
fn expected(policy: &Policy, stage: Stage) -> u32 {
    points_in(stage, finest(policy))
}

/// Slots of this step in a slot.
fn points_in(stage: Stage, step: u32) -> u32 {
    (stage.resolution() / step).max(1)
}

/// The partial by which a policy shows this value.
fn shown_by(shown: f64, count: u32, policy: &Policy, stage: Stage) -> Partial {
    let expected = expected(policy, stage);
    let count = count.clamp(1, expected);
    Partial { value: value_showing(shown, count, expected, policy.aggregation), count }
}

/// The value with which a partial shows this one.
fn value_showing(shown: f64, count: u32, expected: u32, method: Aggregation) -> f64 {
    match method {
        Aggregation::Average => shown * f64::from(count),
        Aggregation::AvgZero => shown * f64::from(expected),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use metadata::Registry;
    use metric::{MetricId, ROW_POINTS};
    use store::{MetricRecord, PolicyChange};

    use super::*;
    use crate::policy_table::Policies;

    const MINUTE: &str = "1440*60s";

    /// The terms of a metric's rows after changes of first steps at seconds 0, 1000, 2000…, and the policies.
    fn rows(steps: &[u32], method: Aggregation, is_alone: bool) -> (SharedRows, Vec<Arc<Policy>>) {
        let registry = Arc::new(Registry::new());
        let policy = |step: &u32| {
            let retention = format!("{}*{step}s:{MINUTE}", 7200 / step).parse().unwrap();
            Policy { retention, aggregation: method, x_files_factor: 0.0, ..Policy::default() }
        };
        let all: Vec<Policy> = steps.iter().map(policy).collect();
        let policies = (0..)
            .step_by(1000)
            .zip(&all)
            .map(|(since, policy)| PolicyChange { since, policy: policy.clone() })
            .collect();
        registry.restore(vec![MetricRecord { id: MetricId(0), name: "m".to_owned(), created_on: 0, policies }]);
        let ids: Vec<_> = all.iter().map(|policy| registry.intern(policy)).collect();
        let table = Policies::new(registry.clone(), is_alone).table();
        let rows = SharedRows::of(&registry.policies(MetricId(0)).unwrap(), &table);
        (rows, ids.iter().map(|id| table.all[usize::from(*id)].clone()).collect())
    }

    /// Value and count of a minute that a policy writes and another one reads.
    fn through(rows: &SharedRows, first_slot: Slot, (of, partial): (&Policy, Partial), to: &Policy) -> (f64, u32) {
        let (table, name) = (of.table(1), String::new());
        let (values, counts) = (vec![partial.value], vec![partial.count]);
        let aggregation = of.aggregation;
        let mut run = Run { metric: MetricId(0), name, table, first_slot, values, counts, aggregation };
        assert!(first_slot < ROW_POINTS);
        rows.write(&mut run, of, &[]);
        let mut cells = Cells { values: run.values, counts: run.counts, ..Cells::default() };
        rows.read(table, first_slot, &mut cells, to);
        (cells.values[0], cells.counts[0])
    }

    #[test]
    fn a_row_says_how_many_points_of_each_first_step_it_has() {
        for method in Aggregation::ALL {
            let (rows, policies) = rows(&[10, 1, 5, 1, 10], method, true);
            let policies = [&policies[0], &policies[1], &policies[2]];
            let mean =
                |value: f64, count: u32| if method == Aggregation::Average { value * f64::from(count) } else { value };
            for policy in policies {
                let most = expected(policy, policy.retention.stages()[1]);
                for count in 1..=most {
                    let partial = Partial { value: mean(2.5, count), count };
                    // Slots that began under the first policy and under later ones.
                    for slot in [3, 20, 40] {
                        let (value, counted) = through(&rows, slot, (policy, partial), policy);
                        assert_eq!(counted, count, "{method}, slot {slot}");
                        assert!((value - partial.value).abs() < 1e-9, "{method}, slot {slot}: {value}");
                    }
                }
            }
            // As few points of ten seconds as there can be, and points of ten seconds as they are.
            let sixty = Partial { value: mean(2.5, 60), count: 60 };
            assert_eq!(through(&rows, 3, (policies[1], sixty), policies[0]).1, 6);
            let six = Partial { value: mean(2.5, 6), count: 6 };
            assert_eq!(through(&rows, 20, (policies[0], six), policies[1]).1, 6);
        }
    }

    #[test]
    fn counts_of_several_writers_can_be_added_up() {
        let (rows, policies) = rows(&[10, 1], Aggregation::Sum, false);
        let sixty = Partial { value: 2.5, count: 60 };
        assert_eq!(through(&rows, 3, (&policies[1], sixty), &policies[1]).1, 6);
    }
}
