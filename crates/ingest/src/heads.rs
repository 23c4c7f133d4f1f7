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

/// Jobs of the points of other nodes, at most, and one more for each policy. Each costs a query a round of reads.
const MAX_PEER_JOBS: usize = 8;

/// The points of other nodes, each under the policy of a metric under which it came, as far as this node knows that.
pub(crate) struct PeerPoints<'a> {
    /// The retentions of a metric, in the order of its policies.
    retentions: Vec<&'a Retention>,
    /// Points that came before those of other policies: the place of theirs, and the points. In this order.
    jobs: Vec<(usize, PendingPoints)>,
    /// Points of the last policy behind which none of others came.
    current: PendingPoints,
}

impl<'a> PeerPoints<'a> {
    /// None, of a metric that has had `earlier` retentions and is kept by `current`.
    pub(crate) fn new(earlier: impl Iterator<Item = &'a Retention>, current: &'a Retention) -> PeerPoints<'a> {
        let retentions: Vec<_> = earlier.chain([current]).collect();
        PeerPoints { retentions, jobs: Vec::new(), current: PendingPoints::default() }
    }

    /// Adds a head of another node, whose rules may differ from those of this one, or have been others. Points of a first stage are of the
    /// retention of those before them, if that has such slots, or of the latest that has. Late points of a coarse stage come before the points
    /// of the first stage of the same retention: they are of that, if it has such slots. Without a retention, points of a first stage are put
    /// at their own times, and those of a coarse stage are left out.
    pub(crate) fn add(&mut self, head: &Head) {
        let last = self.retentions.len() - 1;
        let place_of = |run: &HeadRun, first: [Option<usize>; 2]| {
            let stage_of = |retention: &Retention| {
                let stage = retention.stages().iter().position(|stage| stage.resolution() == run.resolution)?;
                ((0 < stage) == run.is_coarse).then_some(stage)
            };
            let mut policies = first.into_iter().flatten().chain((0..=last).rev());
            let found = policies.find_map(|policy| Some((policy, stage_of(self.retentions[policy])?)));
            found.map_or((last, None), |(policy, stage)| (policy, Some(stage)))
        };
        let mut places = vec![(last, None); head.len()];
        let mut before = None;
        for (place, run) in head.iter().enumerate().filter(|(_, run)| !run.is_coarse) {
            places[place] = place_of(run, [before, None]);
            before = Some(places[place].0);
        }
        let mut behind = None;
        for place in (0..head.len()).rev() {
            match head[place].is_coarse {
                true => places[place] = place_of(&head[place], [behind, before]),
                false => behind = Some(places[place].0),
            }
        }
        let current_from = places.iter().rposition(|(policy, _)| *policy != last).map_or(0, |place| place + 1);
        let finest = self.retentions[last].finest();
        for (place, (run, &(policy, stage))) in head.iter().zip(&places).enumerate() {
            let points = if current_from <= place { &mut self.current } else { self.job_of(policy) };
            for (place, &value) in run.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                let Some(slot) = run.first_slot.checked_add(place as u32) else { break };
                match stage {
                    Some(0) => _ = points.push(slot, value),
                    Some(stage) => _ = points.push_coarse(stage as u8, slot, value),
                    None if run.is_coarse && run.resolution != finest.resolution() => break,
                    None => {
                        if let Some(slot) = finest.slot(i64::from(slot).saturating_mul(i64::from(run.resolution))) {
                            points.push(slot, value);
                        }
                    }
                }
            }
        }
    }

    /// The last job, if it is of this policy, or a new one.
    fn job_of(&mut self, policy: usize) -> &mut PendingPoints {
        let of_policy = self.jobs.iter().rposition(|(of, _)| *of == policy);
        let is_full = MAX_PEER_JOBS <= self.jobs.len();
        let place = of_policy.filter(|place| is_full || place + 1 == self.jobs.len()).unwrap_or_else(|| {
            self.jobs.push((policy, PendingPoints::default()));
            self.jobs.len() - 1
        });
        &mut self.jobs[place].1
    }

    /// The points that count as in memory, and those before them, each with the place of their policy.
    pub(crate) fn into_points(self) -> (PendingPoints, Vec<(usize, PendingPoints)>) {
        (self.current, self.jobs)
    }
}

#[cfg(test)]
mod tests {
    use downsample::SortedPoints;

    use super::*;

    type Points = Vec<(usize, Timestamp, f64)>;

    /// The points of each job, and the current ones last.
    fn points_by(head: &Head, earlier: &[&str], current: &str) -> Vec<(usize, Points)> {
        let retentions: Vec<Retention> = earlier.iter().chain([&current]).map(|text| text.parse().unwrap()).collect();
        let (current, earlier) = retentions.split_last().unwrap();
        let mut points = PeerPoints::new(earlier.iter(), current);
        points.add(head);
        let (of_current, jobs) = points.into_points();
        let staged = |(policy, points): (usize, PendingPoints)| {
            (policy, SortedPoints::of(&[&points]).staged_times(&retentions[policy]).collect())
        };
        jobs.into_iter().chain([(earlier.len(), of_current)]).map(staged).collect()
    }

    fn points(head: &Head, retention: &str) -> Points {
        points_by(head, &[], retention).pop().unwrap().1
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

    #[test]
    fn points_are_of_the_latest_policy_that_has_such_slots() {
        let run =
            |is_coarse, resolution, first_slot| HeadRun { is_coarse, resolution, first_slot, values: vec![1.0, 2.0] };
        let (seconds, tens) = ("600*1s:600*60s", "600*10s:600*300s");
        let earlier = [seconds, tens, seconds, "600*30s"];
        let of = |head: &[HeadRun]| points_by(&head.to_vec(), &earlier, "600*60s:48*3600s");
        let points =
            |policy, stage, [first, second]: [Timestamp; 2]| (policy, vec![(stage, first, 1.0), (stage, second, 2.0)]);
        let none = || (4, Points::new());
        // Seconds and tens came under earlier policies: they do not stand for a minute.
        assert_eq!(of(&[run(false, 1, 7)]), [points(2, 0, [7, 8]), none()]);
        assert_eq!(of(&[run(false, 10, 7)]), [points(1, 0, [70, 80]), none()]);
        // A coarse minute is one of the policy that makes minutes of seconds; others are of the current policy.
        assert_eq!(of(&[run(true, 60, 2)]), [points(2, 1, [120, 180]), none()]);
        assert_eq!(of(&[run(false, 60, 2)]), [points(4, 0, [120, 180])]);
        assert_eq!(of(&[run(true, 3600, 2)]), [points(4, 1, [7200, 10_800])]);
        // Without a policy, at their own times.
        assert_eq!(of(&[run(false, 20, 3)]), [(4, vec![(0, 60, 2.0)])]);
        // In the order in which they came.
        let head = [run(false, 60, 1), run(false, 1, 60), run(true, 60, 1), run(false, 1, 61), run(false, 60, 2)];
        let (before, now) = (points(4, 0, [60, 120]), points(4, 0, [120, 180]));
        let between = (2, vec![(0, 60, 1.0), (0, 61, 1.0), (0, 62, 2.0), (1, 60, 1.0), (1, 120, 2.0)]);
        assert_eq!(of(&head), [before, between, now]);
    }

    #[test]
    fn late_coarse_points_are_of_the_policy_of_the_points_behind_them() {
        let run = |is_coarse, resolution, first_slot| HeadRun { is_coarse, resolution, first_slot, values: vec![1.0] };
        let of = |head: &[HeadRun]| points_by(&head.to_vec(), &["600*1s:600*60s"], "600*10s:600*60s");
        let (coarse, second, ten) = (run(true, 60, 2), run(false, 1, 600), run(false, 10, 66));
        assert_eq!(of(&[coarse.clone(), second]), [(0, vec![(0, 600, 1.0), (1, 120, 1.0)]), (1, vec![])]);
        assert_eq!(of(&[coarse.clone(), ten]), [(1, vec![(0, 660, 1.0), (1, 120, 1.0)])]);
        assert_eq!(of(&[coarse]), [(1, vec![(1, 120, 1.0)])]);
    }

    #[test]
    fn a_head_that_changes_its_policy_with_each_run_has_few_jobs() {
        let run = |resolution| HeadRun { is_coarse: false, resolution, first_slot: 60, values: vec![1.0] };
        let head: Head = (0..1000).map(|place| run(if place % 2 == 0 { 1 } else { 10 })).collect();
        let jobs = points_by(&head, &["600*1s", "600*10s", "600*30s"], "600*60s").len() - 1;
        assert_eq!(jobs, MAX_PEER_JOBS);
    }
}
