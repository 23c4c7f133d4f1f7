//! All points that nodes over the same tables accepted, and what each of them must answer.

use std::collections::{BTreeMap, BTreeSet};

use metric::{Aggregation, Partial, Timestamp};

use crate::same::is_same;

/// A point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) value: f64,
    /// The id of the node that accepted it.
    pub(crate) owner: u16,
    /// Whether it may be in the memory and the journal of its node alone.
    pub(crate) is_held: bool,
}

/// The points of all metrics, by method and time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    pub(crate) points: BTreeMap<(Aggregation, Timestamp), Point>,
    /// Whether the calendars of nodes differ: which of two points of a slot is newer is then not known.
    pub(crate) has_skew: bool,
    /// Whether a stored point was overwritten: its node corrected rows of others, which these may have written over.
    pub(crate) has_overwritten: bool,
}

/// A series as it is answered.
pub(crate) struct Answer<'a> {
    pub(crate) method: Aggregation,
    pub(crate) start: Timestamp,
    pub(crate) step: u32,
    pub(crate) values: &'a [f64],
}

impl Truth {
    /// The slots that a node may still have: its own, those without a point, and those of others that have stored theirs, where it has
    /// stored later points itself: otherwise it would extend its rows without a look at those of others.
    pub(crate) fn may_send(&self, owner: u16, method: Aggregation, time: Timestamp) -> bool {
        let Some(point) = self.points.get(&(method, time)) else { return true };
        let mut later = self.points.range((method, time + 1)..=(method, Timestamp::MAX));
        let derives = |(_, later): (_, &Point)| later.owner == owner && !later.is_held;
        point.owner == owner || !self.has_skew && !point.is_held && later.any(derives)
    }

    pub(crate) fn send(&mut self, owner: u16, method: Aggregation, time: Timestamp, value: f64) {
        let before = self.points.insert((method, time), Point { value, owner, is_held: true });
        self.has_overwritten |= before.is_some_and(|point| !point.is_held);
    }

    /// Everything that this node accepted is in the tables.
    pub(crate) fn stored(&mut self, owner: u16) {
        self.points.values_mut().filter(|point| point.owner == owner).for_each(|point| point.is_held = false);
    }

    /// Nodes that have points which may be nowhere else.
    pub(crate) fn holders(&self) -> BTreeSet<u16> {
        self.points.values().filter(|point| point.is_held).map(|point| point.owner).collect()
    }

    /// Compares an answer. Points that these nodes hold alone may be in it or not; where a metric has some, its coarse slots are not
    /// compared. Returns how many slots were.
    pub(crate) fn compare(&self, answer: &Answer<'_>, unknown: &BTreeSet<u16>) -> Result<u64, String> {
        let Answer { method, start, step, values } = *answer;
        let all = self.points.range((method, Timestamp::MIN)..=(method, Timestamp::MAX));
        let is_unknown = |point: &Point| point.is_held && unknown.contains(&point.owner);
        if step > 1 && all.clone().any(|(_, point)| is_unknown(point)) {
            return Ok(0);
        }
        let mut expected: BTreeMap<Timestamp, (Partial, bool)> = BTreeMap::new();
        for (&(_, time), point) in all {
            let slot = expected.entry(time - time.rem_euclid(i64::from(step))).or_insert((Partial::NONE, false));
            slot.0 = method.merge(slot.0, Partial::point(point.value));
            slot.1 |= is_unknown(point);
        }
        // Of two that are as far from zero, which one came first is not in the rows.
        let is_abs = matches!(method, Aggregation::AbsMax | Aggregation::AbsMin);
        let mut compared = 0;
        for (i, &seen) in values.iter().enumerate() {
            let time = start + i as i64 * i64::from(step);
            let (partial, is_any) = expected.get(&time).copied().unwrap_or((Partial::NONE, false));
            let want = method.finish(partial, step, 0.0);
            let is_right = if is_abs { is_same(seen.abs(), want.abs()) } else { is_same(seen, want) };
            if !is_right && !is_any {
                return Err(format!("{} at {time} ({step} s) is {seen}, expected {want}", method.name()));
            }
            compared += 1;
        }
        Ok(compared)
    }
}
