//! The pending points of one metric, sorted by stage and slot; of each slot, the last write.

use std::ops::Range;

use metric::{Aggregation, Partial, Retention, Slot, Timestamp};

use crate::{PendingPoints, StagePoint};

/// Points sorted by stage and slot, at most one a slot.
#[derive(Debug, Clone, Default)]
pub struct SortedPoints {
    // Invariant: sorted by stage, then slot; no two are of the same slot.
    points: Vec<StagePoint>,
}

impl SortedPoints {
    /// Sorts the pending points of one metric; `parts` are in the order of arrival.
    pub fn of(parts: &[&PendingPoints]) -> SortedPoints {
        let mut points = Vec::with_capacity(parts.iter().map(|part| part.run().1.len() + part.late().len()).sum());
        let mut in_order = true;
        for part in parts {
            // Late points first: a slot of the run was written after a late point of the same slot.
            in_order &= part.late().is_empty() && points.is_empty();
            points.extend_from_slice(part.late());
            let (first_slot, run) = part.run();
            for (i, &value) in run.iter().enumerate() {
                if !value.is_nan() {
                    points.push(StagePoint { slot: first_slot + i as u32, stage: 0, value });
                }
            }
        }
        if !in_order {
            keep_last(&mut points);
        }
        SortedPoints { points }
    }

    /// These points, and those of `others` in slots that have none of these.
    pub fn over(self, others: SortedPoints) -> SortedPoints {
        if others.is_empty() {
            return self;
        }
        let mut points = others.points;
        points.extend(self.points);
        keep_last(&mut points);
        SortedPoints { points }
    }

    /// Cuts the points in two, between slots of the coarsest stage: no row depends on points of both. `None` where all
    /// are in one such slot.
    pub fn halves(&self, retention: &Retention) -> Option<(SortedPoints, SortedPoints)> {
        let longest = i64::from(retention.longest().resolution());
        let slot_of = |point: &StagePoint| time_of(point, retention) / longest;
        let mut slots: Vec<i64> = self.points.iter().map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        let middle = *slots.get(slots.len() / 2).filter(|_| slots.len() > 1)?;
        let (earlier, later) = self.points.iter().partition(|point| slot_of(point) < middle);
        Some((SortedPoints { points: earlier }, SortedPoints { points: later }))
    }

    /// The points of this span of time alone.
    pub fn within(mut self, span: Range<Timestamp>, retention: &Retention) -> SortedPoints {
        self.points.retain(|point| span.contains(&time_of(point, retention)));
        self
    }

    /// How many there are, of all stages.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The stage, time and value of each, by stage and slot.
    pub fn staged_times<'a>(&'a self, retention: &'a Retention) -> impl Iterator<Item = (usize, Timestamp, f64)> + 'a {
        self.points.iter().map(|point| (usize::from(point.stage), time_of(point, retention), point.value))
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The points of one stage, by slot.
    pub fn of_stage(&self, stage: usize) -> &[StagePoint] {
        let start = self.points.partition_point(|point| usize::from(point.stage) < stage);
        let end = self.points.partition_point(|point| usize::from(point.stage) <= stage);
        &self.points[start..end]
    }

    /// The points, if all of them are of stage 0.
    pub(crate) fn only_stage_0(&self) -> Option<&[StagePoint]> {
        self.points.last().is_none_or(|last| last.stage == 0).then_some(&self.points)
    }

    /// The first of the stage-0 points in these slots, and the fold of all of them.
    pub(crate) fn fold(&self, slots: Range<Slot>, method: Aggregation) -> Option<(Slot, Partial)> {
        let points = self.of_stage(0);
        let start = points.partition_point(|point| point.slot < slots.start);
        let end = points.partition_point(|point| point.slot < slots.end);
        let points = points.get(start..end)?;
        let all = points.iter().fold(Partial::NONE, |all, point| method.merge(all, Partial::point(point.value)));
        Some((points.first()?.slot, all))
    }

    /// The last stage-0 slot that a point covers, whatever stage the point is of.
    pub(crate) fn last(&self, retention: &Retention) -> Option<Slot> {
        let finest = i64::from(retention.finest().resolution());
        let last_of = |(index, stage): (usize, &metric::Stage)| {
            let last = self.of_stage(index).last()?;
            let end = (stage.time(last.slot) + i64::from(stage.resolution())) / finest;
            Some(u32::try_from(end - 1).unwrap_or(Slot::MAX))
        };
        retention.stages().iter().enumerate().filter_map(last_of).max()
    }

    /// Whether a coarse stage has a point in the slot around `slot` of stage 0.
    pub(crate) fn has_coarse_point_around(&self, slot: Slot, retention: &Retention) -> bool {
        let finest = retention.finest().resolution();
        self.points.iter().filter(|point| point.stage > 0).any(|point| {
            let stage = retention.stages().get(usize::from(point.stage));
            stage.is_some_and(|stage| slot / (stage.resolution() / finest) == point.slot)
        })
    }
}

/// Sorts points; of those of one slot the last one stays.
fn keep_last(points: &mut Vec<StagePoint>) {
    // Stable, so that of equal slots the last written comes last.
    points.sort_by_key(|point| (point.stage, point.slot));
    points.reverse();
    points.dedup_by_key(|point| (point.stage, point.slot));
    points.reverse();
}

/// The second at which a point's slot begins.
fn time_of(point: &StagePoint, retention: &Retention) -> Timestamp {
    retention.stages()[usize::from(point.stage)].time(point.slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(points: &[(Slot, f64)]) -> PendingPoints {
        let mut pending = PendingPoints::default();
        for &(slot, value) in points {
            pending.push(slot, value);
        }
        pending
    }

    #[test]
    fn the_last_write_of_a_slot_wins() {
        let earlier = pending(&[(5, 1.0), (6, 1.0)]);
        let mut later = pending(&[(100, 9.0), (101, 9.0), (102, 9.0), (103, 9.0), (104, 9.0)]);
        later.push(6, 2.0);
        later.push(6, 3.0);
        let sorted = SortedPoints::of(&[&earlier, &later]);
        let points: Vec<_> = sorted.of_stage(0).iter().map(|p| (p.slot, p.value)).collect();
        assert_eq!(points[..3], [(5, 1.0), (6, 3.0), (100, 9.0)]);
        assert_eq!(points.len(), 7);
    }

    #[test]
    fn points_over_others_hide_those_of_their_slots() {
        let own = SortedPoints::of(&[&pending(&[(5, 1.0), (7, 2.0)])]);
        let others = SortedPoints::of(&[&pending(&[(4, 8.0), (5, 9.0), (6, 9.5)])]);
        let both = own.clone().over(others);
        let points: Vec<_> = both.of_stage(0).iter().map(|p| (p.slot, p.value)).collect();
        assert_eq!(points, [(4, 8.0), (5, 1.0), (6, 9.5), (7, 2.0)]);
        assert_eq!(own.over(SortedPoints::default()).len(), 2);
    }

    #[test]
    fn halves_share_no_slot_of_the_coarsest_stage() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let mut points = pending(&[(61, 1.0), (5, 2.0), (62, 3.0), (200, 4.0)]);
        points.push_coarse(1, 1, 9.0);
        let (earlier, later) = SortedPoints::of(&[&points]).halves(&retention).expect("three hours");
        assert_eq!((earlier.len(), later.len(), later.of_stage(1).len()), (1, 4, 1));
        let (earlier, later) = later.halves(&retention).expect("two hours");
        assert_eq!((earlier.len(), later.len()), (3, 1));
        assert!(earlier.halves(&retention).is_none() && later.halves(&retention).is_none());
        assert_eq!(SortedPoints::of(&[&points]).within(3600..7200, &retention).len(), 3);
    }

    #[test]
    fn the_last_slot_counts_points_of_coarse_stages_too() {
        let retention: Retention = "60*60s:48*3600s".parse().unwrap();
        let mut points = pending(&[(61, 1.0)]);
        assert_eq!(SortedPoints::of(&[&points]).last(&retention), Some(61));
        points.push_coarse(1, 1, 1.0);
        assert_eq!(SortedPoints::of(&[&points]).last(&retention), Some(119));
        assert_eq!(SortedPoints::default().last(&retention), None);
    }
}
