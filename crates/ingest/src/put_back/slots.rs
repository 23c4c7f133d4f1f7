//! The slots that the points of a metric came for, and whether they may still be put there.
//!
//! A point whose slot has expired since would make its coarser slots of itself alone, where its neighbours are gone; in a
//! coarser slot of its own it would stand for the whole of that. It is put into its own slot while the store promises that
//! the neighbours are there ([`store::PointStore::slots_kept_longer`]), and nowhere after that.
//!
//! Its stage is that of the policy under which it came. Where the metric has another policy now, it goes to the stage of the
//! same step, whatever that keeps: as a whole slot of a coarser stage, or as a finer point, it would be another point. A late point of a
//! coarse stage whose step no stage has any more counts as expired: its coarser slots are stored, and would be replaced by it alone.

use std::{cell::RefCell, collections::HashSet, ops::Range, sync::Arc};

use host::Now;
use metadata::{PolicyHistory, PolicyId, PolicySpan};
use metric::{MetricId, Policy, Retention, Slot, Table, Timestamp};
use store::Fetch;

use super::{
    names::{LatePoint, Under},
    parts::PutBackParts,
};
use crate::{memtable::LockedMemtable, older_cells::OlderPolicies, policy_table::Rollup};

/// Touched slots closer than this are read together.
const JOIN: u32 = metric::ROW_POINTS;

/// A point, and the slot of a stage that it is for.
pub(super) struct Wanted {
    pub(super) stage: usize,
    pub(super) slot: Slot,
    pub(super) point: LatePoint,
    pub(super) age: Age,
}

/// A point whose slot has another value.
pub(super) struct Taken {
    pub(super) point: LatePoint,
    pub(super) slot: Slot,
    pub(super) age: Age,
    pub(super) policy_id: PolicyId,
    pub(super) policy: Arc<Policy>,
    /// Whether it is a point of the finest stage of a metric that never had another policy. Of others the value in the slot
    /// may be made of several.
    pub(super) is_plain: bool,
}

/// How old a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// Its stage keeps it.
    Kept,
    /// Its stage does not, and all slots under its coarser ones are stored: these are exact if it is stored soon.
    JustExpired,
    /// Its neighbours may be gone.
    Expired,
}

/// The points of one metric that are put back.
pub(super) struct OfMetric {
    pub(super) metric: MetricId,
    policy_id: PolicyId,
    policy: Arc<Policy>,
    pub(super) older: Option<OlderPolicies>,
    pub(super) wanted: Vec<Wanted>,
    /// The times of points of a coarse step that no stage has any more.
    pub(super) without_step: Vec<Timestamp>,
    /// Those whose slots the store has, with its values.
    pub(super) stored: Vec<(Wanted, f64)>,
    /// Of those that the store has as they are, one for each slot of the next stage: a flush that failed may have left its coarser
    /// slots without them.
    pub(super) again: Vec<Wanted>,
    /// Where points are put again: all policies that the metric had, with one method each.
    policies: Vec<Arc<Policy>>,
}

impl PutBackParts {
    /// The slots that points of one metric are for. `None` where it has no policy any more.
    pub(super) fn of_metric(&self, points: &[LatePoint]) -> Option<OfMetric> {
        let metric = points[0].metric;
        let table = self.memtable.policies();
        let history = self.registry.policies(metric)?;
        let policy_id = history.current();
        let policy = table.all.get(usize::from(policy_id))?.clone();
        // A point that came for a coarse stage is in the rows of each method.
        let rollup = Rollup { method: policy.aggregation, is_first: true };
        // In doubt about the clock nothing has expired that the earlier time keeps.
        let now = self.acceptor.time().now().low();
        let reached = self.acceptor.time().reached().max(now);
        let older =
            if history.len() > 1 { OlderPolicies::of(&history, policy_id, rollup, &table, reached) } else { None };
        // What another policy or another node has stored may be gone earlier.
        let is_simple = self.is_alone && history.len() == 1;
        let kept_longer = if is_simple { self.store.slots_kept_longer() } else { 0 };
        let age = |stage: usize, time: Timestamp| match () {
            () if !has_expired(&policy.retention, stage, time, now) => Age::Kept,
            () if has_neighbours(&policy.retention, stage, time, reached, kept_longer / 2) => Age::JustExpired,
            () => Age::Expired,
        };
        let without_step = RefCell::new(Vec::new());
        let wanted = |&point: &LatePoint| {
            let then = came_under(&history, &point).and_then(|id| table.all.get(usize::from(id))).unwrap_or(&policy);
            let time = Timestamp::from(point.time);
            if point.is_again && loses_step(point, (&then.retention, &policy.retention), now) {
                without_step.borrow_mut().push(time);
                return None;
            }
            let (stage, at) = place(point, (&then.retention, &policy.retention), now)?;
            let slot = policy.retention.stages()[stage].slot(time)?;
            Some(Wanted { stage, slot, point: LatePoint { at, ..point }, age: age(stage, time) })
        };
        let mut wanted: Vec<Wanted> = points.iter().filter_map(wanted).collect();
        // The last of a slot.
        wanted.reverse();
        let mut seen = HashSet::new();
        wanted.retain(|wanted| seen.insert((wanted.stage, wanted.slot)));
        wanted.sort_by_key(|wanted| (wanted.stage, wanted.slot));
        let policies = match points.iter().any(|point| point.is_again) {
            true => history.iter().flat_map(|span| table.each_alone(span.policy)).cloned().collect(),
            false => Vec::new(),
        };
        let without_step = without_step.into_inner();
        let (stored, again) = (Vec::new(), Vec::new());
        Some(OfMetric { metric, policy_id, policy, older, wanted, without_step, stored, again, policies })
    }
}

/// The policy under which a point came. `None` where that is not known: the time of the point was in doubt when it came, and the
/// policy changed between its two ends.
fn came_under(history: &PolicyHistory, point: &LatePoint) -> Option<PolicyId> {
    let in_force = |time: Timestamp| {
        let span = history.iter().rev().find(|span: &&PolicySpan| span.since <= time);
        span.or(history.first()).map(|span| span.policy)
    };
    match point.under {
        Under::Policy(policy) => Some(policy),
        Under::HistoryBefore(change) => in_force(change - 1),
        Under::History => in_force(point.at.low()).filter(|&low| in_force(point.at.high()) == Some(low)),
    }
}

/// The stage of the retention now that a point is put into, and a time at which it is accepted for that stage. `None` where no
/// stage shows its time any more.
pub(super) fn place(
    point: LatePoint,
    (then, retention): (&Retention, &Retention),
    now: Timestamp,
) -> Option<(usize, Now)> {
    let time = Timestamp::from(point.time);
    if retention.longest().duration() < now - time {
        return None;
    }
    // By other rules than then, it may come from too far in the future.
    let placed = |retention| placed_at(time, retention, point.at).or_else(|| placed_at(time, retention, Now::at(now)));
    if then == retention {
        return placed(retention);
    }
    let step = then.stages()[placed(then)?.0].resolution();
    let Some(stage) = retention.stages().iter().position(|stage| stage.resolution() == step) else {
        // A point of another step is one at its own time.
        return placed(retention);
    };
    placed_at(time, retention, point.at).filter(|(at_once, _)| *at_once == stage).or_else(|| {
        let at = match stage.checked_sub(1) {
            None => Now::at(time + retention.finest().duration()),
            // Perhaps in the future: in doubt, so that a start does not take what is behind it for later than this.
            Some(finer) => {
                let left = time + retention.stages()[finer].duration() + 1;
                Now::between(left, left + 1)
            }
        };
        Some((stage, at))
    })
}

/// Whether a point came for a coarse stage, and no stage has its step now.
fn loses_step(point: LatePoint, (then, retention): (&Retention, &Retention), now: Timestamp) -> bool {
    let Some((stage @ 1.., _)) = place(point, (then, then), now) else { return false };
    let step = then.stages()[stage].resolution();
    retention.stages().iter().all(|stage| stage.resolution() != step)
}

/// The stage that a point is accepted for at a time.
fn placed_at(time: Timestamp, retention: &Retention, at: Now) -> Option<(usize, Now)> {
    let finest = retention.finest();
    let is_in_bounds = at.low() - time <= finest.duration() && time - at.high() <= retention.longest().duration();
    let stage = if is_in_bounds { 0 } else { retention.stage_holding(time, at.low())? };
    (is_in_bounds || at.high() >= time && 0 < stage).then_some((stage, at))
}

/// Whether a stage does not keep the slot of a point any more.
pub(super) fn has_expired(retention: &Retention, stage: usize, time: Timestamp, now: Timestamp) -> bool {
    retention.stages()[stage].duration() < now - time
}

/// Whether everything is stored for certain that the coarser slots over a point are made of, where each stage keeps so many
/// slots more than its own.
fn has_neighbours(retention: &Retention, stage: usize, time: Timestamp, now: Timestamp, kept_longer: u32) -> bool {
    let mut pairs = retention.stages().windows(2).skip(stage);
    0 < kept_longer
        && pairs.all(|stages| {
            let begin = time - time.rem_euclid(i64::from(stages[1].resolution()));
            now - begin <= stages[0].duration() + i64::from(kept_longer) * i64::from(stages[0].resolution())
        })
}

impl Wanted {
    /// The value that its slot has once it is stored.
    fn as_stored(&self, policy: &Policy) -> f64 {
        let stages = policy.retention.stages();
        match self.stage {
            0 => self.point.value,
            stage => {
                let expected = stages[stage].resolution() / stages[0].resolution();
                policy.aggregation.whole(self.point.value, expected).value
            }
        }
    }
}

impl OfMetric {
    /// The stored slots that are wanted.
    pub(super) fn fetches(&self, name: &str) -> Vec<Fetch> {
        let together = |one: &Wanted, next: &Wanted| one.stage == next.stage && next.slot - one.slot < JOIN;
        let fetch = |wanted: &[Wanted]| {
            let (first, last) = (wanted.first()?, wanted.last()?);
            let table: Table = self.policy.table(first.stage);
            let (metric, name, aggregation) = (self.metric, name.to_owned(), self.policy.aggregation);
            Some(Fetch {
                metric,
                name,
                table,
                first_slot: first.slot,
                end_slot: last.slot.saturating_add(1),
                aggregation,
            })
        };
        self.wanted.chunk_by(together).filter_map(fetch).collect()
    }

    /// The stored slots that a flush reads to derive the coarse slots over points that are put again, by any policy of the metric.
    pub(super) fn sources(&self, name: &str) -> Vec<Fetch> {
        let mut fetches = Vec::new();
        for policy in &self.policies {
            let stages = policy.retention.stages();
            for (place, stage) in stages.iter().enumerate() {
                let above = stages.get(place + 1).unwrap_or(stage);
                let around = |wanted: &Wanted| {
                    let own = self.policy.retention.stages()[wanted.stage].resolution();
                    let begin = above.time(above.slot(Timestamp::from(wanted.point.time))?);
                    let last = begin + i64::from(above.resolution()) - 1;
                    let slots = stage.slot(begin)?..stage.slot(last)?.saturating_add(1);
                    (own <= stage.resolution()).then_some(slots)
                };
                let mut all: Vec<Range<Slot>> = self.wanted.iter().filter_map(around).collect();
                all.sort_by_key(|slots| slots.start);
                let together = |one: &Range<Slot>, next: &Range<Slot>| next.start.saturating_sub(one.end) < JOIN;
                fetches.extend(all.chunk_by(together).map(|slots| Fetch {
                    metric: self.metric,
                    name: name.to_owned(),
                    table: policy.table(place),
                    first_slot: slots[0].start,
                    end_slot: slots[slots.len() - 1].end,
                    aggregation: policy.aggregation,
                }));
            }
        }
        fetches
    }

    /// Takes what is stored in these slots from those that are wanted.
    pub(super) fn note_stored(&mut self, fetch: &Fetch, values: &[f64]) {
        let policy = self.policy.clone();
        for wanted in std::mem::take(&mut self.wanted) {
            let cell = wanted.slot.checked_sub(fetch.first_slot).filter(|_| wanted.slot < fetch.end_slot);
            let is_there = policy.table(wanted.stage) == fetch.table;
            let value = cell.filter(|_| is_there).and_then(|cell| values.get(cell as usize));
            match value.filter(|value| !value.is_nan()) {
                Some(&value) if !wanted.point.is_again => self.stored.push((wanted, value)),
                Some(&value) if value != wanted.as_stored(&policy) => {}
                _ => self.wanted.push(wanted),
            }
        }
    }

    fn taken(&self, wanted: &Wanted) -> Taken {
        let (policy_id, policy) = (self.policy_id, self.policy.clone());
        let is_plain = wanted.stage == 0 && self.older.is_none();
        Taken { point: wanted.point, slot: wanted.slot, age: wanted.age, policy_id, policy, is_plain }
    }

    /// Leaves out the slots that memory has. Those that have other values, there or in the store, go to `taken`. Returns
    /// false where that is not known now.
    pub(super) fn leave_out_those_in(&mut self, memtable: &LockedMemtable<'_>, taken: &mut Vec<Taken>) -> bool {
        if memtable.policy(self.metric) != Some(self.policy_id)
            || !memtable.older_jobs(self.metric, self.policy_id).is_empty()
        {
            return false;
        }
        let view = memtable.view(self.metric, self.policy_id);
        let points = (!view.is_empty()).then(|| view.points());
        let in_memory = |wanted: &Wanted| {
            let of_stage = points.as_ref()?.of_stage(wanted.stage);
            let place = of_stage.binary_search_by_key(&wanted.slot, |point| point.slot).ok()?;
            Some(of_stage[place].value)
        };
        let stored = std::mem::take(&mut self.stored).into_iter().map(|(wanted, value)| (wanted, Some(value)));
        let absent = std::mem::take(&mut self.wanted).into_iter().map(|wanted| (wanted, None));
        for (wanted, stored) in stored.chain(absent) {
            let has_it = match (in_memory(&wanted), stored) {
                (Some(value), _) => value == wanted.point.value,
                (None, Some(value)) if value == wanted.as_stored(&self.policy) => {
                    self.put_again(wanted);
                    continue;
                }
                (None, Some(_)) => false,
                (None, None) => {
                    self.wanted.push(wanted);
                    continue;
                }
            };
            if !has_it && !wanted.point.is_again {
                taken.push(self.taken(&wanted));
            }
        }
        true
    }
}

impl OfMetric {
    /// Has the coarser slots over a point derived again that the store has.
    fn put_again(&mut self, wanted: Wanted) {
        let above = self.policy.retention.stages().get(wanted.stage + 1);
        let Some(above) = above.filter(|_| self.older.is_none() && wanted.age != Age::Expired) else { return };
        let slot = |wanted: &Wanted| above.slot(Timestamp::from(wanted.point.time));
        // They come in the order of their stages and slots.
        let is_there = |last: &Wanted| last.stage == wanted.stage && slot(last) == slot(&wanted);
        if !self.again.last().is_some_and(is_there) {
            self.again.push(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = 1_800_000_000;

    /// The stage of a point of this age that came now, and the time at which it is put back, less that of the point.
    fn placed(then: &str, retention: &str, age: i64) -> Option<(usize, i64)> {
        let (then, retention): (Retention, Retention) = (then.parse().unwrap(), retention.parse().unwrap());
        let time = (NOW - age) as u32;
        let (at, under, is_again) = (Now::at(NOW), Under::History, true);
        let point = LatePoint { metric: MetricId(0), time, value: 1.0, at, under, is_again };
        let (stage, at) = place(point, (&then, &retention), NOW)?;
        assert_eq!(placed_at(NOW - age, &retention, at), Some((stage, at)), "memory puts it there");
        Some((stage, at.low() - (NOW - age)))
    }

    #[test]
    fn a_point_keeps_its_step_under_a_policy_that_keeps_its_steps_for_another_time() {
        let (short, long) = ("180*1s:90*10s:60*60s", "300*1s:120*10s:120*60s");
        assert_eq!(placed(short, short, 240), Some((1, 240)));
        assert_eq!(placed(long, short, 240), Some((0, 180)), "a point, and not a whole slot");
        assert_eq!(placed(short, long, 240), Some((1, 301)), "a whole slot, and not a point");
        assert_eq!(placed(long, short, 1100), Some((1, 181)));
        assert_eq!(placed(short, long, 1100), Some((2, 1201)));
        assert_eq!(placed(long, short, 60), Some((0, 60)));
        assert_eq!(placed(long, short, 5000), None, "no stage shows it any more");
        // Of another step.
        assert_eq!(placed("180*1s:60*60s", "120*10s:120*60s", 60), Some((0, 60)));
    }

    #[test]
    fn a_point_came_under_the_policy_of_its_history() {
        let registry = metadata::Registry::new();
        let policies = ["180*1s", "300*1s", "600*1s"]
            .map(|retention| registry.intern(&Policy { retention: retention.parse().unwrap(), ..Policy::default() }));
        let id = registry.write().create(registry.hash(b"a"), "a", policies[0], 1);
        registry.set_policy(id, policies[1], NOW);
        let history = registry.policies(id).unwrap();
        let under = |at, under| {
            let point = LatePoint { metric: id, time: NOW as u32, value: 1.0, at, under, is_again: false };
            came_under(&history, &point)
        };
        assert_eq!(under(Now::at(NOW - 1), Under::History), Some(policies[0]));
        assert_eq!(under(Now::at(NOW), Under::History), Some(policies[1]));
        assert_eq!(
            under(Now::at(NOW), Under::HistoryBefore(NOW)),
            Some(policies[0]),
            "its segment names the change behind it"
        );
        assert_eq!(under(Now::at(NOW), Under::Policy(policies[2])), Some(policies[2]), "its segment names the policy");
        assert_eq!(under(Now::between(NOW - 9, NOW + 9), Under::History), None, "either");
    }
}
