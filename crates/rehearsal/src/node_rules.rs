//! What nodes answer whose rules change among retentions of several first steps.
//!
//! While rules differ, a node knows neither the tables nor the steps of others' retentions. Once all have the same, a node that has had every
//! retention under which a point came shows all points (`first_steps.rs`).

use std::collections::{BTreeMap, BTreeSet};

use metric::{Aggregation, Policy, Timestamp};

use crate::{
    first_steps::{FirstSteps, first_step},
    node_metrics::Number,
    same::is_same,
};

/// Within so many seconds from their beginning points are of one slot, by every retention's first step.
pub(crate) const BLOCK: i64 = 60;

/// Seconds of the finest coarse slots.
const SHORTEST_AGGREGATE: i64 = 10;

/// A point that a node may have in memory alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfPoint {
    pub(crate) time: Timestamp,
    /// The first step of the policy under which it came.
    pub(crate) step: i64,
}

/// The points of all metrics as they came, each under a policy of its node.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepsTruth {
    metrics: BTreeMap<Number, Metric>,
}

#[derive(Debug, Clone, Default)]
struct Metric {
    steps: FirstSteps,
    /// Every value that was sent, at its own time and at that of its slot.
    sent: BTreeMap<Timestamp, Vec<f64>>,
}

/// A stage of a node's answer.
pub(crate) struct StageAnswer<'a> {
    pub(crate) metric: Number,
    pub(crate) stage: usize,
    pub(crate) step: i64,
    pub(crate) now: Timestamp,
    pub(crate) start: Timestamp,
    pub(crate) values: &'a [f64],
}

impl StepsTruth {
    /// A point comes under a policy.
    pub(crate) fn send(&mut self, metric: Number, time: Timestamp, value: f64, policy: &Policy) {
        let of = self.metrics.entry(metric).or_default();
        let step = first_step(&policy.retention);
        of.steps.has_writers = true;
        of.steps.also(policy);
        of.steps.send_under(time, value, step);
        // Whether it is stored is what its node says.
        of.steps.acknowledge();
        for at in BTreeSet::from([time, time - time.rem_euclid(step)]) {
            of.sent.entry(at).or_default().push(value);
        }
    }

    /// The policy of a point was that before it or this one.
    pub(crate) fn is_under_either(&mut self, metric: Number, time: Timestamp) {
        let block = time - time.rem_euclid(BLOCK);
        let of = self.metrics.entry(metric).or_default();
        of.steps.set_coming((block..block + BLOCK).collect());
        of.steps.give_up();
    }

    /// Compares a stage of a node that knows all retentions. Slots of points that may be missing are left out.
    ///
    /// # Errors
    /// The first slot that is wrong.
    pub(crate) fn compare(
        &mut self,
        answer: &StageAnswer<'_>,
        policy: &Policy,
        missing: impl Iterator<Item = OfPoint>,
    ) -> Result<(), String> {
        let of = self.metrics.entry(answer.metric).or_default();
        of.steps.also(policy);
        let slot = |point: OfPoint| point.time - point.time.rem_euclid(point.step);
        of.steps.set_coming(missing.flat_map(|point| slot(point)..slot(point) + point.step).collect());
        if policy.aggregation == Aggregation::AvgZero {
            // Of a row each node takes the terms of the policy that it had in the slot's time.
            of.steps.leave_out(policy.aggregation);
            return Ok(());
        }
        let compared = of.steps.compare(
            policy.aggregation,
            (answer.stage, answer.step, answer.now),
            (answer.start, answer.values),
        );
        of.steps.acknowledge();
        compared
    }

    /// A stage is not compared.
    pub(crate) fn leave_out(&mut self, metric: Number, method: Aggregation) {
        if let Some(of) = self.metrics.get_mut(&metric) {
            of.steps.leave_out(method);
        }
    }

    /// Compares the seconds of a node whose retentions are not those of all points: it may lack points, and shows none that was not sent.
    /// Where it lacks those of a time, an aggregate of them is at its beginning.
    ///
    /// # Errors
    /// The first value that no client sent.
    pub(crate) fn compare_sent(&self, answer: &StageAnswer<'_>) -> Result<(), String> {
        let sent = |time: Timestamp| self.metrics.get(&answer.metric).and_then(|of| of.sent.get(&time));
        for (time, &value) in (answer.start..).step_by(answer.step as usize).zip(answer.values) {
            let is_sent = || sent(time).is_some_and(|values| values.iter().any(|&other| is_same(other, value)));
            if !value.is_nan() && time % SHORTEST_AGGREGATE != 0 && !is_sent() {
                return Err(format!("at {time} ({} s) is {value}, which was not sent", answer.step));
            }
        }
        Ok(())
    }
}
