//! Heads: the points of metrics that are in memory and not stored yet, as nodes over the same tables give them to each other.
//!
//! A node gives points, not aggregates. The reader lays them under its own points in memory before it plans which stored slots
//! it needs, so that a point that is stored meanwhile counts once.

use std::{any::Any, ops::Range, pin::Pin};

use downsample::PendingPoints;
use metric::{MetricId, Retention, Slot, Timestamp};

use crate::memtable::LockedMemtable;

/// Named by answers without the stored points, where other nodes may have stored some.
pub const STORE: &str = "store";

/// A metric and the span of time whose points are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadRequest {
    /// The metric's name: nodes have ids of their own.
    pub name: String,
    /// Times of the first and behind the last slot, Unix seconds.
    pub span: Range<Timestamp>,
}

/// Points of neighbouring slots.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadRun {
    /// Whether they are of a coarse stage: points that came too late for the first one.
    pub is_coarse: bool,
    /// Seconds of a slot. Not 0.
    pub resolution: u32,
    /// The slot of `values[0]`.
    pub first_slot: Slot,
    /// A value a slot; NaN where there is none.
    pub values: Vec<f64>,
}

/// The points in memory of one metric, in the order in which they came: of several values of a slot the last one holds.
pub type Head = Vec<HeadRun>;

/// The answer of all peers to a list of requests.
#[derive(Default)]
pub struct PeerHeads {
    /// For each peer that answered, a head for each request.
    pub of_peers: Vec<Vec<Head>>,
    /// Addresses of nodes whose points are not among these.
    pub missing: Vec<String>,
    /// What is given back when the answer is used, such as a share of a budget of memory.
    pub held: Vec<Box<dyn Any + Send>>,
}

/// A pending [`PeerHeads`].
pub type AskedHeads<'a> = Pin<Box<dyn Future<Output = PeerHeads> + Send + 'a>>;

/// Other nodes that may have points in memory.
pub trait HeadSource: Send + Sync + 'static {
    /// Whether there are other nodes, also such as are not asked now.
    fn has_peers(&self) -> bool;

    /// Asks all of them at once but those that are given up, by the names of [`PeerHeads::missing`]: they are missing again. Ends within a
    /// bound of time, whatever they do.
    fn heads(&self, requests: Vec<HeadRequest>, given_up: Vec<String>) -> AskedHeads<'_>;
}

/// More points are in memory than an answer may have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the answer has more than {most} points")]
pub struct TooManyPoints {
    /// How many it may have.
    pub most: usize,
}

/// The points in memory of a metric, those on their way to the store and those of earlier policies included.
pub(crate) fn head_of(memtable: &LockedMemtable<'_>, metric: MetricId, span: &Range<Timestamp>) -> Head {
    let mut head = Head::new();
    let Some(policy) = memtable.policy(metric) else { return head };
    let retention = |policy: u16| memtable.policies().all.get(usize::from(policy)).map(|policy| &policy.retention);
    for job in memtable.older_jobs(metric, policy) {
        if let Some(retention) = retention(job.policy) {
            add_runs(&job.points, retention, span, &mut head);
        }
    }
    if let Some(retention) = retention(policy) {
        memtable.view(metric, policy).parts().for_each(|points| add_runs(points, retention, span, &mut head));
    }
    head
}

fn add_runs(points: &PendingPoints, retention: &Retention, span: &Range<Timestamp>, head: &mut Head) {
    let begun = head.len();
    // Late points first: a slot of the run was written after a late point of the same slot.
    for late in points.late() {
        let Some(stage) = retention.stages().get(usize::from(late.stage)) else { continue };
        if !span.contains(&stage.time(late.slot)) {
            continue;
        }
        let (is_coarse, resolution) = (late.stage > 0, stage.resolution());
        let run = head[begun..].last_mut().filter(|run| {
            (run.is_coarse, run.resolution) == (is_coarse, resolution)
                && run.first_slot.checked_add(run.values.len() as u32) == Some(late.slot)
        });
        match run {
            Some(run) => run.values.push(late.value),
            None => head.push(HeadRun { is_coarse, resolution, first_slot: late.slot, values: vec![late.value] }),
        }
    }
    let (first_slot, run) = points.run();
    let resolution = retention.finest().resolution();
    // Slots whose times are in the span.
    let slot = |time: Timestamp| (time.max(0) as u64).div_ceil(u64::from(resolution));
    let place = |slot: u64| (slot.saturating_sub(u64::from(first_slot)) as usize).min(run.len());
    let (from, until) = (place(slot(span.start)), place(slot(span.end)));
    if from < until {
        let (first_slot, values) = (first_slot + from as u32, run[from..until].to_vec());
        head.push(HeadRun { is_coarse: false, resolution, first_slot, values });
    }
}

/// Adds the points of a head of another node to those of a metric that this node keeps by `retention`. Rules of nodes may differ
/// for a moment: points of another first step are put at their own times, those of a coarse stage that is not kept here are left out.
pub(crate) fn add_head(head: &Head, retention: &Retention, points: &mut PendingPoints) {
    let finest = retention.finest();
    for run in head {
        let stage = retention.stages().iter().position(|stage| stage.resolution() == run.resolution);
        for (place, &value) in run.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            let Some(slot) = run.first_slot.checked_add(place as u32) else { break };
            match stage {
                Some(stage) if run.is_coarse && 0 < stage => _ = points.push_coarse(stage as u8, slot, value),
                Some(0) => _ = points.push(slot, value),
                _ if run.is_coarse => break,
                _ => {
                    if let Some(slot) = finest.slot(i64::from(slot).saturating_mul(i64::from(run.resolution))) {
                        points.push(slot, value);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use downsample::SortedPoints;

    use super::*;

    fn points(head: &Head, retention: &str) -> Vec<(usize, Timestamp, f64)> {
        let retention: Retention = retention.parse().unwrap();
        let mut points = PendingPoints::default();
        add_head(head, &retention, &mut points);
        SortedPoints::of(&[&points]).staged_times(&retention).collect()
    }

    #[test]
    fn a_head_has_the_last_value_of_each_slot_of_the_span() {
        let retention: Retention = "600*10s:48*3600s".parse().unwrap();
        let mut pending = PendingPoints::default();
        (100..110).for_each(|slot| _ = pending.push(slot, f64::from(slot)));
        // Late ones, one of them twice, and one in a coarse stage.
        for (slot, value) in [(5, 1.0), (90, 2.0), (5, 3.0), (105, 4.0)] {
            pending.push(slot, value);
        }
        pending.push_coarse(1, 2, 9.0);
        let head = |span: Range<Timestamp>| {
            let mut head = Head::new();
            add_runs(&pending, &retention, &span, &mut head);
            points(&head, "600*10s:48*3600s")
        };
        let run = |from: u32, until: u32| {
            let value = |slot: u32| if slot == 105 { 4.0 } else { f64::from(slot) };
            (from..until).map(move |slot| (0, i64::from(slot) * 10, value(slot)))
        };
        let all: Vec<_> =
            [(0, 50, 3.0), (0, 900, 2.0)].into_iter().chain(run(100, 110)).chain([(1, 7200, 9.0)]).collect();
        assert_eq!(head(0..10_000), all);
        assert_eq!(head(1_030..1_060), run(103, 106).collect::<Vec<_>>());
        assert_eq!(head(1_025..1_065), run(103, 107).collect::<Vec<_>>());
        assert_eq!(head(60..900), []);
    }

    #[test]
    fn points_of_other_rules_are_put_at_their_times() {
        let run = |is_coarse, resolution, first_slot| HeadRun {
            is_coarse,
            resolution,
            first_slot,
            values: vec![1.0, f64::NAN, 3.0],
        };
        // Sixties of a node that has tens here, and tens where this one has minutes.
        assert_eq!(points(&vec![run(false, 60, 2)], "600*10s"), [(0, 120, 1.0), (0, 240, 3.0)]);
        assert_eq!(points(&vec![run(false, 10, 6)], "600*60s"), [(0, 60, 3.0)]);
        // A coarse stage that is not kept here.
        assert_eq!(points(&vec![run(true, 300, 6)], "600*60s:48*3600s"), []);
        assert_eq!(points(&vec![run(true, 60, 2)], "600*60s"), [(0, 120, 1.0), (0, 240, 3.0)]);
        // Garbage of slots beyond all times ends.
        assert_eq!(points(&vec![run(false, 60, Slot::MAX)], "600*60s").len(), 1);
        assert_eq!(points(&vec![run(false, u32::MAX, Slot::MAX)], "600*60s"), []);
    }
}
