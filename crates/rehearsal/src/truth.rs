//! All points that nodes over the same tables accepted, and what each of them must answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metric::{Aggregation, Partial, Retention, Timestamp};

use crate::{
    node_metrics::{Number, name_of},
    node_rules::{BLOCK, OfPoint, StepsTruth},
    same::is_same,
};

/// Seconds within which a node that took over a policy when the first point came has put right what is on its disk.
const TAKEN_OVER_WITHIN: i64 = 2;

/// Seconds of the coarser slots that nodes show in place of absent seconds.
const MINUTE: i64 = 60;

/// A point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) value: f64,
    /// The id of the node that accepted it.
    pub(crate) owner: u16,
    /// Whether it may be in the memory and the journal of its node alone.
    pub(crate) is_held: bool,
    /// The first step of the policy under which it came.
    pub(crate) step: i64,
    /// When it was known to be stored.
    stored_at: Duration,
    /// Whether it came with the first ones of its metric since the start of its node, or just after them.
    is_first: bool,
}

/// A point of a metric that was deleted, which answers may have and need not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ghost {
    pub(crate) value: f64,
    pub(crate) owner: u16,
    /// Whether it is gone once its node has followed the deletion. Otherwise it may be in the tables, until the next deletion.
    pub(crate) fades: bool,
}

/// The points of all metrics, by metric and time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    pub(crate) points: BTreeMap<(Number, Timestamp), Point>,
    /// Values that others replaced, and their nodes: they may be in the tables.
    replaced: BTreeMap<(Number, Timestamp), Vec<(u16, f64)>>,
    /// Those of deleted metrics.
    pub(crate) ghosts: BTreeMap<(Number, Timestamp), Vec<Ghost>>,
    /// Whether the calendars of nodes differ: which of two points of a slot is newer is then not known.
    pub(crate) has_skew: bool,
    /// Whether a stored point was overwritten: its node corrected rows of others, which these may have written over.
    pub(crate) has_overwritten: bool,
    /// Retentions under which points of each metric came.
    retentions: BTreeMap<Number, Vec<Retention>>,
    /// Nodes, and the metrics whose points they have got since their start: when the first ones came.
    received: BTreeMap<(u16, Number), Timestamp>,
    /// Of these the ones whose first points are in the present batch, or in one just before it.
    first: BTreeSet<(u16, Number)>,
    /// Metrics with such a retention that a node has not had: it may have made their coarse rows without the points of that one.
    split: BTreeSet<Number>,
    /// The same points, where retentions have several first steps.
    pub(crate) steps: Option<StepsTruth>,
}

/// A series as it is answered.
pub(crate) struct Answer<'a> {
    pub(crate) metric: Number,
    pub(crate) method: Aggregation,
    pub(crate) x_files_factor: f64,
    /// Whether points may be missing: nodes have other rules.
    pub(crate) may_lack: bool,
    /// Whether aggregates may be where finer slots are absent.
    pub(crate) may_aggregate: bool,
    pub(crate) start: Timestamp,
    pub(crate) step: u32,
    pub(crate) values: &'a [f64],
}

/// All keys of a metric.
fn all(metric: Number) -> std::ops::RangeInclusive<(Number, Timestamp)> {
    (metric, Timestamp::MIN)..=(metric, Timestamp::MAX)
}

impl Truth {
    /// The slots that a node may still have: its own, those without a point, and those of others that have stored theirs, where it has
    /// stored later points itself: otherwise it would extend its rows without a look at those of others.
    pub(crate) fn may_send(&self, owner: u16, metric: Number, time: Timestamp) -> bool {
        if self.ghosts.contains_key(&(metric, time)) {
            return false;
        }
        let Some(point) = self.points.get(&(metric, time)) else { return true };
        let mut later = self.points.range((metric, time + 1)..=(metric, Timestamp::MAX));
        let derives = |(_, later): (_, &Point)| later.owner == owner && !later.is_held;
        point.owner == owner || !self.has_skew && !point.is_held && later.any(derives)
    }

    /// The same where first steps differ, for a whole block: a node also knows the retentions under which others' points of it came.
    pub(crate) fn may_send_to_block(&self, owner: u16, metric: Number, time: Timestamp, known: &[i64]) -> bool {
        let block = time - time.rem_euclid(BLOCK);
        let of_block = self.points.range((metric, block)..(metric, block + BLOCK));
        let mut later = self.points.range((metric, block + BLOCK)..=(metric, Timestamp::MAX));
        let derives = later.any(|(_, later)| later.owner == owner && !later.is_held);
        let mut others = of_block.map(|(_, point)| point).filter(|point| point.owner != owner);
        others.all(|point| derives && !self.has_skew && !point.is_held && known.contains(&point.step))
    }

    pub(crate) fn send(&mut self, owner: u16, metric: Number, time: Timestamp, value: f64) {
        self.send_under(owner, metric, (time, value), 1);
    }

    /// The same, under a policy of this first step.
    pub(crate) fn send_under(&mut self, owner: u16, metric: Number, (time, value): (Timestamp, f64), step: i64) {
        let is_first = self.first.contains(&(owner, metric));
        let point = Point { value, owner, is_held: true, step, stored_at: Duration::ZERO, is_first };
        let before = self.points.insert((metric, time), point);
        let is_of_other = |point: &Point| point.owner != owner || self.steps.is_none();
        self.has_overwritten |= before.is_some_and(|point| !point.is_held && is_of_other(&point));
        if let Some(before) = before {
            self.replaced.entry((metric, time)).or_default().push((before.owner, before.value));
        }
    }

    /// Everything that this node accepted is in the tables.
    pub(crate) fn stored(&mut self, owner: u16, now: Duration) {
        let held = self.points.values_mut().filter(|point| point.owner == owner && point.is_held);
        held.for_each(|point| (point.is_held, point.stored_at) = (false, now));
    }

    /// Nodes that have points which may be nowhere else.
    pub(crate) fn holders(&self) -> BTreeSet<u16> {
        self.points.values().filter(|point| point.is_held).map(|point| point.owner).collect()
    }

    /// A point came under this retention.
    pub(crate) fn came_under(&mut self, metric: Number, retention: &Retention) {
        let all = self.retentions.entry(metric).or_default();
        if !all.contains(retention) {
            all.push(retention.clone());
        }
    }

    /// A node knows a metric, and has not had all retentions under which its points came.
    pub(crate) fn note_split(&mut self, metric: Number) {
        self.split.insert(metric);
    }

    /// Whether a node may have made coarse rows of a metric without points that it does not know of.
    pub(crate) fn is_split(&self, metric: Number) -> bool {
        self.split.contains(&metric)
    }

    /// Whether a slot has a point of this node, or none.
    pub(crate) fn is_own(&self, owner: u16, metric: Number, time: Timestamp) -> bool {
        self.points.get(&(metric, time)).is_none_or(|point| point.owner == owner)
    }

    /// A node gets points of these metrics now.
    pub(crate) fn receive(&mut self, owner: u16, metrics: impl Iterator<Item = Number>, now: Timestamp) {
        self.first.clear();
        for metric in metrics {
            if now <= *self.received.entry((owner, metric)).or_insert(now) + TAKEN_OVER_WITHIN {
                self.first.insert((owner, metric));
            }
        }
    }

    /// A node is killed. A policy that it took over for a metric without points may have been on its disk when the first ones came, and not in
    /// force.
    pub(crate) fn may_be_of_another_policy(&mut self, owner: u16) {
        let Some(steps) = &mut self.steps else { return };
        let of = self.points.iter().filter(|(_, point)| point.owner == owner && point.is_held && point.is_first);
        of.for_each(|(&(metric, time), _)| steps.is_under_either(metric, time));
    }

    /// A node ends.
    pub(crate) fn end(&mut self, owner: u16) {
        self.received.retain(|(of, _), _| *of != owner);
    }

    /// Whether a node has points of a metric since its start, all of them stored: its own rules hold for it. Otherwise the tables say how it
    /// is kept.
    pub(crate) fn has_received(&self, owner: u16, metric: Number) -> bool {
        let mut held = self.points.range(all(metric)).filter(|(_, point)| point.owner == owner && point.is_held);
        self.received.contains_key(&(owner, metric)) && held.next().is_none()
    }

    /// Whether a node that has had these retentions knows all under which points of a metric came.
    pub(crate) fn are_known(&self, metric: Number, known: &[Retention]) -> bool {
        self.retentions.get(&metric).is_none_or(|all| all.iter().all(|retention| known.contains(retention)))
    }

    /// The points of a metric that these nodes may have in memory alone.
    pub(crate) fn held(&self, metric: Number, holders: &BTreeSet<u16>) -> Vec<OfPoint> {
        let is_held = |point: &Point| point.is_held && holders.contains(&point.owner);
        let points = self.points.range(all(metric)).filter(|(_, point)| is_held(point));
        points.map(|(&(_, time), point)| OfPoint { time, step: point.step }).collect()
    }

    /// The points of a metric that another node may have in memory, at times for which there are points of several first steps: in which order they
    /// came that node alone knows.
    pub(crate) fn mixed(&self, metric: Number, asked: u16) -> Vec<OfPoint> {
        let is_mixed = |time: Timestamp, step: i64| {
            let block = time - time.rem_euclid(BLOCK);
            self.points.range((metric, block)..(metric, block + BLOCK)).any(|(_, point)| point.step != step)
        };
        let points = self.points.range(all(metric)).filter(|(_, point)| point.is_held && point.owner != asked);
        let points = points.map(|(&(_, time), point)| OfPoint { time, step: point.step });
        points.filter(|of| is_mixed(of.time, of.step)).collect()
    }

    /// Whether a metric has a point.
    pub(crate) fn has(&self, metric: Number) -> bool {
        self.points.range(all(metric)).next().is_some()
    }

    /// Whether a metric may have points that were deleted.
    pub(crate) fn has_ghosts(&self, metric: Number) -> bool {
        self.ghosts.range(all(metric)).next().is_some()
    }

    /// Whether a metric has, or may have, a point of this time or later.
    pub(crate) fn has_since(&self, metric: Number, time: Timestamp) -> bool {
        let times = (metric, time)..=(metric, Timestamp::MAX);
        self.points.range(times.clone()).next().is_some() || self.ghosts.range(times).next().is_some()
    }

    /// A metric is deleted. `remains` says what may be left of the points of a node, those that may be in its memory and those that were
    /// stored at a time.
    pub(crate) fn delete(&mut self, metric: Number, remains: impl Fn(u16, Option<Duration>) -> Remains) {
        let mut before: Vec<(Timestamp, Ghost, Option<Duration>)> = Vec::new();
        let points = self.points.range(all(metric));
        before.extend(points.map(|(&(_, time), point)| {
            let Point { value, owner, is_held, stored_at, .. } = *point;
            (time, Ghost { value, owner, fades: false }, (!is_held).then_some(stored_at))
        }));
        self.points.retain(|(of, _), _| *of != metric);
        for (&(_, time), replaced) in self.replaced.range(all(metric)) {
            let left = replaced.iter().filter(|(owner, _)| remains(*owner, None) == Remains::Anything);
            before.extend(left.map(|&(owner, value)| (time, Ghost { value, owner, fades: false }, None)));
        }
        self.replaced.retain(|(of, _), _| *of != metric);
        let ghosts = self.ghosts.range(all(metric));
        before.extend(ghosts.flat_map(|(&(_, time), ghosts)| ghosts.iter().map(move |ghost| (time, *ghost, None))));
        self.ghosts.retain(|(of, _), _| *of != metric);
        for (time, ghost, stored_at) in before {
            let fades = match remains(ghost.owner, stored_at) {
                Remains::Nothing => continue,
                Remains::UntilFollowed => true,
                Remains::Anything => false,
            };
            self.ghosts.entry((metric, time)).or_default().push(Ghost { fades, ..ghost });
        }
    }

    /// Forgets points of deleted metrics that nodes had in memory, where they have followed.
    pub(crate) fn fade(&mut self, has_followed: impl Fn(Number, u16) -> bool) {
        self.ghosts.retain(|(metric, _), ghosts| {
            ghosts.retain(|ghost| !(ghost.fades && has_followed(*metric, ghost.owner)));
            !ghosts.is_empty()
        });
    }

    /// Points of a deleted metric that a node may have stay; returns whether there are any.
    pub(crate) fn keep_ghosts(&mut self, metric: Number, owner: u16) -> bool {
        let ghosts = self.ghosts.range_mut(all(metric)).flat_map(|(_, ghosts)| ghosts);
        ghosts.filter(|ghost| ghost.owner == owner).map(|ghost| ghost.fades = false).count() > 0
    }

    /// Points of deleted metrics that a node has in memory may be in the tables from now on.
    pub(crate) fn may_store_ghosts(&mut self, owner: u16) {
        let ghosts = self.ghosts.values_mut().flatten();
        ghosts.filter(|ghost| ghost.owner == owner).for_each(|ghost| ghost.fades = false);
    }

    /// Compares an answer. Points that these nodes hold alone may be in it or not; where a metric has some, its coarse slots are not
    /// compared. Returns how many slots were.
    pub(crate) fn compare(&self, answer: &Answer<'_>, unknown: &BTreeSet<u16>) -> Result<u64, String> {
        let Answer { metric, method, x_files_factor, may_lack, may_aggregate, start, step, values } = *answer;
        let points = self.points.range(all(metric));
        let is_unknown = |point: &Point| point.is_held && unknown.contains(&point.owner);
        if step > 1 && points.clone().any(|(_, point)| is_unknown(point)) {
            return Ok(0);
        }
        let slot_of = |time: Timestamp| time - time.rem_euclid(i64::from(step));
        let mut expected: BTreeMap<Timestamp, (Partial, bool)> = BTreeMap::new();
        for (&(_, time), point) in points {
            let slot = expected.entry(slot_of(time)).or_insert((Partial::NONE, false));
            slot.0 = method.merge(slot.0, Partial::point(point.value));
            slot.1 |= is_unknown(point);
        }
        let mut ghosts: BTreeMap<Timestamp, Vec<f64>> = BTreeMap::new();
        for (&(_, time), of_time) in self.ghosts.range(all(metric)) {
            ghosts.entry(slot_of(time)).or_default().extend(of_time.iter().map(|ghost| ghost.value));
        }
        // Of two that are as far from zero, which one came first is not in the rows.
        let is_abs = matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
        let mut compared = 0;
        for (i, &seen) in values.iter().enumerate() {
            let time = start + i as i64 * i64::from(step);
            let (partial, is_any) = expected.get(&time).copied().unwrap_or((Partial::NONE, false));
            let want = method.finish(partial, step, x_files_factor);
            let is_right = if is_abs { is_same(seen.abs(), want.abs()) } else { is_same(seen, want) };
            let is_ghost = ghosts.get(&time).is_some_and(|ghosts| step > 1 || ghosts.iter().any(|g| is_same(*g, seen)));
            // Where a deletion failed half way the seconds may be gone, and not the minute.
            let mut of_minute = ghosts.range(time..time + MINUTE);
            let is_aggregate = may_aggregate && want.is_nan() && time % MINUTE == 0;
            let is_ghost = is_ghost || is_aggregate && of_minute.next().is_some();
            let is_lacking = may_lack && seen.is_nan();
            if !is_right && !is_any && !is_ghost && !is_lacking {
                return Err(format!("{} at {time} ({step} s) is {seen}, expected {want}", name_of(metric)));
            }
            compared += 1;
        }
        Ok(compared)
    }
}

/// What may be left of points of a deleted metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    Nothing,
    /// Its node shows them until it has followed the deletion.
    UntilFollowed,
    /// They may be in the tables, or in memory, until the next deletion.
    Anything,
}
