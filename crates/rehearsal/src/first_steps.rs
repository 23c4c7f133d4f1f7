//! What slots may show of a metric whose policies have had several first steps: the model of
//! `ingest/tests/policy_model.rs`, for a node that dies, stops and has faults.
//!
//! Points are within the first stage of every policy, and one connection sends them.

use std::collections::{BTreeMap, BTreeSet};

use metric::{Aggregation, Methods, Partial, Policy, Retention, Timestamp};

use crate::same::is_same;

/// Seconds between the age at which points of the shortest first stage expire, and the oldest slot that is compared.
const MARGIN: i64 = 400;

/// Most values that a slot may show and is compared with.
const MOST_COMBINATIONS: usize = 256;

/// A point as it came: under a policy of this first step.
#[derive(Debug, Clone, Copy)]
struct Write {
    order: u64,
    step: i64,
    value: f64,
}

/// The points of a metric, and its policies.
#[derive(Debug, Clone, Default)]
pub(crate) struct FirstSteps {
    /// The last point of each slot of a first step, by the time of the slot and the step.
    writes: BTreeMap<(Timestamp, i64), Write>,
    orders: u64,
    /// What coarse slots showed by each method since the last point of them, by step and time: no change of policy alters it.
    shown: BTreeMap<(Aggregation, i64, Timestamp), f64>,
    /// In the order in which they were in force.
    policies: Vec<Retention>,
    /// The methods that were the first ones of their policies. A slot of a first stage has one value: what one of these makes of
    /// finer points that replace a coarser one.
    firsts: Methods,
    /// Seconds of points that are not acknowledged yet.
    coming: BTreeSet<Timestamp>,
    /// Seconds of points that were never acknowledged: their slots may have them or not.
    uncertain: BTreeSet<Timestamp>,
    /// The stage that was compared last, by each method.
    finer: BTreeMap<Aggregation, Shown>,
    /// Whether several nodes write the metric: coarse slots of an earlier policy stay without the points that came under a later one.
    pub(crate) has_writers: bool,
}

/// What a stage shows.
#[derive(Debug, Clone, Default)]
struct Shown {
    start: Timestamp,
    step: i64,
    values: Vec<f64>,
}

impl FirstSteps {
    /// A metric begins with this policy.
    pub(crate) fn of(policy: &Policy) -> FirstSteps {
        let (policies, firsts) = (vec![policy.retention.clone()], Methods::one(policy.aggregation));
        FirstSteps { policies, firsts, ..FirstSteps::default() }
    }

    /// The metric gets this policy.
    pub(crate) fn set_policy(&mut self, policy: &Policy) {
        self.firsts.add(policy.aggregation);
        if self.policies.last() != Some(&policy.retention) {
            self.policies.push(policy.retention.clone());
        }
    }

    /// Nodes keep the metric by this policy, some or all of them.
    pub(crate) fn also(&mut self, policy: &Policy) {
        self.firsts.add(policy.aggregation);
        if !self.policies.contains(&policy.retention) {
            self.policies.push(policy.retention.clone());
        }
    }

    /// A point is sent.
    pub(crate) fn send(&mut self, time: Timestamp, value: f64) {
        let step = first_step(self.policies.last().expect("a metric has a policy"));
        self.send_under(time, value, step);
    }

    /// A point is sent to a node that keeps the metric by this first step.
    pub(crate) fn send_under(&mut self, time: Timestamp, value: f64, step: i64) {
        self.orders += 1;
        self.shown.retain(|&(_, step, slot), _| !(slot..slot + step).contains(&time));
        let slot = time - time.rem_euclid(step);
        self.writes.insert((slot, step), Write { order: self.orders, step, value });
        self.coming.extend(slot..slot + step);
    }

    /// Points of these seconds may be there or not, and no others.
    pub(crate) fn set_coming(&mut self, times: BTreeSet<Timestamp>) {
        self.coming = times;
    }

    /// Everything that was sent is acknowledged.
    pub(crate) fn acknowledge(&mut self) {
        self.coming.clear();
    }

    /// What was not acknowledged until now never is.
    pub(crate) fn give_up(&mut self) {
        self.uncertain.append(&mut self.coming);
    }

    /// No point is certain.
    pub(crate) fn forget(&mut self) {
        self.uncertain.extend(self.writes.iter().flat_map(|(&(slot, step), _)| slot..slot + step));
    }

    /// A stage is not compared.
    pub(crate) fn leave_out(&mut self, method: Aggregation) {
        self.finer.remove(&method);
    }

    /// Compares a stage with the points.
    ///
    /// # Errors
    /// The first slot that is wrong.
    pub(crate) fn compare(
        &mut self,
        method: Aggregation,
        (stage, step, now): (usize, i64, Timestamp),
        (start, values): (Timestamp, &[f64]),
    ) -> Result<(), String> {
        let finer = self.finer.remove(&method).filter(|_| 0 < stage).unwrap_or_default();
        let shortest = self.policies.iter().map(|policy| policy.stages()[0].duration()).min().unwrap_or_default();
        for (i, &value) in values.iter().enumerate() {
            let slot = start + i as i64 * step;
            let is_expiring = slot < now - shortest + MARGIN;
            let is_empty = || self.writes.range((slot, 0)..(slot + step, 0)).next().is_none();
            if is_expiring || value.is_nan() && is_empty() || self.is_uncertain(slot, slot + step) {
                continue;
            }
            let wanted = self.wanted((slot, step, stage), method);
            // What its finer slots show was compared before: each may have the points of another policy.
            let fold = finer.fold(slot, step, method);
            let before = self.shown.get(&(method, step, slot));
            let is_right = [fold.as_ref(), before].into_iter().flatten().any(|&other| is_same(other, value));
            let is_right = is_right || wanted.is_met_by(value);
            // Of two that are as far from zero, which one came first is not in the rows of several nodes.
            let may_be_other = self.has_writers && matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
            if !(is_right || may_be_other && wanted.is_met_by(-value)) {
                return Err(format!(
                    "at {slot} ({step} s, {} s old): {value}, expected {wanted:?}; policies {:?}",
                    now - slot,
                    self.policies.iter().map(ToString::to_string).collect::<Vec<_>>()
                ));
            }
            if 0 < stage && !value.is_nan() {
                self.shown.insert((method, step, slot), value);
            }
        }
        self.finer.insert(method, Shown { start, step, values: values.to_vec() });
        Ok(())
    }

    fn is_uncertain(&self, from: Timestamp, until: Timestamp) -> bool {
        [&self.coming, &self.uncertain].iter().any(|times| times.range(from..until).next().is_some())
    }

    /// The last write that begins in this span.
    fn last(&self, from: Timestamp, until: Timestamp) -> Option<Write> {
        self.writes.range((from, 0)..(until, 0)).map(|(_, write)| *write).max_by_key(|write| write.order)
    }

    /// What a slot of a first stage of this step may show. Empty where that is too much, or not known.
    fn finest(&self, slot: Timestamp, step: i64, method: Aggregation) -> Vec<Option<f64>> {
        let Some(last) = self.last(slot, slot + step) else { return vec![None] };
        if last.step < step {
            return self.folded(slot, step, last.step, method);
        }
        let mut shown = vec![Some(last.value)];
        // Under a policy of finer steps it was a point at its own time, and the first method makes a slot of that and of the empty ones next to it.
        if self.other_firsts(method).any(|first| first == Aggregation::AvgZero) {
            let steps: BTreeSet<i64> =
                self.policies.iter().map(first_step).filter(|of| *of < step && step % of == 0).collect();
            let of = |finer: i64| Aggregation::AvgZero.finish(Partial::point(last.value), (step / finer) as u32, 0.0);
            shown.extend(steps.into_iter().map(|finer| Some(of(finer))));
        }
        // Finer points that came before it count again once a policy of finer steps is in force: the coarser one is then a
        // point at its own time.
        let before = self.writes.range((slot, 0)..(slot + step, 0)).map(|((_, step), _)| *step);
        if let Some(finer) = before.filter(|finer| *finer < step).min() {
            shown.extend(self.coarse(slot, step, finer, method));
            for first in self.other_firsts(method) {
                if is_mean(first) {
                    return Vec::new();
                }
                shown.extend(self.coarse(slot, step, finer, first));
            }
        }
        shown
    }

    /// The first methods but for this one. Of a mean, which has weights, the value is not known.
    fn other_firsts(&self, method: Aggregation) -> impl Iterator<Item = Aggregation> {
        self.firsts.into_iter().filter(move |first| *first != method)
    }

    /// What a slot of a first stage may show once finer points came. Where a coarser point was in force for a part of it, a coarse
    /// stage of the finer policies has that point for the whole of its slot, and shows it so. Empty where that is too much.
    fn folded(&self, slot: Timestamp, step: i64, finest: i64, method: Aggregation) -> Vec<Option<f64>> {
        let has_coarser = self.writes.range((slot, 0)..(slot + step, 0)).any(|(_, write)| finest < write.step);
        let between = |of: &i64| has_coarser && finest < *of && *of < step && step % *of == 0 && *of % finest == 0;
        let steps: BTreeSet<i64> = self.policies.iter().flat_map(steps_of).filter(between).chain([finest]).collect();
        // The slot has one value for all methods: the fold by the first one that was in force.
        let methods: Vec<Aggregation> = std::iter::once(method).chain(self.other_firsts(method)).collect();
        if methods[1..].iter().any(|first| is_mean(*first)) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for (of, by) in steps.iter().flat_map(|of| methods.iter().map(move |by| (*of, *by))) {
            let shown = self.coarse(slot, step, of, by);
            if shown.is_empty() {
                return shown;
            }
            let new = shown.into_iter().filter(|one| !all.iter().any(|known| is_same_slot(*known, *one)));
            all.extend(new.collect::<Vec<_>>());
        }
        all
    }

    /// What a coarse slot may show by a policy with this first step. Empty where that is too much.
    fn coarse(&self, slot: Timestamp, step: i64, finest: i64, method: Aggregation) -> Vec<Option<f64>> {
        let mut possible = vec![Partial::NONE];
        for finer in (slot..slot + step).step_by(finest as usize) {
            let shown = self.finest(finer, finest, method);
            let with = |all: &Partial, shown: &Option<f64>| {
                shown.map_or(*all, |value| method.merge(*all, Partial::point(value)))
            };
            possible = possible.iter().flat_map(|all| shown.iter().map(move |shown| with(all, shown))).collect();
            let mut seen = BTreeSet::new();
            possible.retain(|partial| seen.insert((partial.value.to_bits(), partial.count)));
            if shown.is_empty() || MOST_COMBINATIONS < possible.len() {
                return Vec::new();
            }
        }
        let shown = |all: Partial| (0 < all.count).then(|| method.finish(all, (step / finest) as u32, 0.0));
        possible.into_iter().map(shown).collect()
    }

    /// What a coarse slot of an earlier policy has that was written before a point of a coarser first step.
    fn before_coarser(&self, writes: &[Write], step: i64, method: Aggregation) -> Option<Option<f64>> {
        let is_coarse = |policy: &Retention| steps_of(policy).skip(1).any(|of| of == step);
        if !self.has_writers || !self.policies.iter().any(is_coarse) {
            return None;
        }
        let coarsest = writes.iter().map(|write| write.step).max()?;
        let finer = writes.iter().filter(|write| write.step < coarsest.min(step));
        let all = finer.fold(Partial::NONE, |all, write| method.merge(all, Partial::point(write.value)));
        (0 < all.count).then(|| Some(method.finish(all, all.count, 0.0)))
    }

    /// The right answers for a slot.
    fn wanted(&self, (slot, step, stage): (Timestamp, i64, usize), method: Aggregation) -> Wanted {
        let last = self.last(slot, slot + step);
        // A point of a step as coarse, or coarser, is what the slot shows until a finer one comes.
        let is_point = last.is_some_and(|last| step <= last.step);
        let writes: Vec<Write> = self.writes.range((slot, 0)..(slot + step, 0)).map(|(_, write)| *write).collect();
        let is_of_many = 1 < self.policies.iter().map(first_step).collect::<BTreeSet<_>>().len();
        let steps: BTreeSet<i64> = writes.iter().map(|write| write.step).collect();
        if is_mean(method) && is_of_many && !writes.is_empty() {
            if 1 < steps.len() && self.other_firsts(method).next().is_some() {
                // Such as a sum.
                return Wanted::Anything;
            }
            let bound = writes.iter().map(|write| write.value.abs()).fold(0.0, f64::max);
            return Wanted::Between(-bound, bound);
        }
        if stage == 0 && is_point && steps.len() == 1 {
            return Wanted::AnyOf(self.finest(slot, step, method));
        }
        let finest: BTreeSet<i64> = self.policies.iter().flat_map(steps_of).filter(|finest| *finest <= step).collect();
        let by_step: Vec<_> = finest.into_iter().map(|finest| self.coarse(slot, step, finest, method)).collect();
        if by_step.iter().any(Vec::is_empty) {
            return Wanted::Anything;
        }
        let mut all = by_step.concat();
        all.extend(self.before_coarser(&writes, step, method));
        all.extend(last.filter(|_| is_point).map(|last| Some(last.value)));
        Wanted::AnyOf(all)
    }
}

fn is_same_slot(one: Option<f64>, other: Option<f64>) -> bool {
    is_same(one.unwrap_or(f64::NAN), other.unwrap_or(f64::NAN))
}

fn steps_of(policy: &Retention) -> impl Iterator<Item = i64> {
    policy.stages().iter().map(|stage| i64::from(stage.resolution()))
}

pub(crate) fn first_step(policy: &Retention) -> i64 {
    i64::from(policy.stages()[0].resolution())
}

/// Whether a coarse slot is a mean: over several first steps its slots have weights, and only its bounds are compared.
fn is_mean(method: Aggregation) -> bool {
    matches!(method, Aggregation::Average | Aggregation::AvgZero)
}

impl Shown {
    /// The aggregate of the slots under a coarser one, where all are read. Not of a mean, which has weights.
    fn fold(&self, slot: Timestamp, step: i64, method: Aggregation) -> Option<f64> {
        if self.step == 0 || slot < self.start || is_mean(method) {
            return None;
        }
        let first = ((slot - self.start) / self.step) as usize;
        let finer = self.values.get(first..first + (step / self.step) as usize)?;
        let points = finer.iter().filter(|value| !value.is_nan()).map(|&value| Partial::point(value));
        let all = points.fold(Partial::NONE, |all, point| method.merge(all, point));
        (0 < all.count).then(|| method.finish(all, all.count, 0.0))
    }
}

/// The right answers for a slot.
#[derive(Debug)]
enum Wanted {
    /// One of these.
    AnyOf(Vec<Option<f64>>),
    /// There are too many.
    Anything,
    /// A mean over slots of different steps, each weighed as the policy that wrote it does.
    Between(f64, f64),
}

impl Wanted {
    fn is_met_by(&self, value: f64) -> bool {
        match self {
            Wanted::Anything => true,
            Wanted::AnyOf(all) => all.iter().any(|wanted| is_same(wanted.unwrap_or(f64::NAN), value)),
            Wanted::Between(low, high) => (low - 1e-9..=high + 1e-9).contains(&value),
        }
    }
}
