//! The points of one metric that are accepted and not stored yet, in the order of their arrival.

use metric::{Retention, Slot, Timestamp};

/// Slots that may be skipped at the end of the run and filled with NaN; a longer hole costs more as
/// NaN (8 bytes a slot) than as single late points (16 bytes each).
const LONGEST_HOLE: u32 = 32;

/// Bytes of a late point.
const LATE_POINT: usize = size_of::<StagePoint>();

/// A run this short gives way to a point that does not fit: the run was a straggler, and the next points will follow
/// the new one.
const SHORT_RUN: usize = 4;

/// By how much a metric's points in memory grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Growth {
    /// Slots in use.
    pub slots: u32,
    /// Bytes, those reserved for later points included.
    pub bytes: u32,
}

impl std::ops::AddAssign for Growth {
    #[inline]
    fn add_assign(&mut self, more: Growth) {
        self.slots = self.slots.saturating_add(more.slots);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// A point and the slot that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StagePoint {
    /// The slot, in the stage of this index.
    pub slot: Slot,
    /// Index of the stage: 0, or the finest that still kept the point's time when the point arrived.
    pub stage: u8,
    /// Its value, not NaN.
    pub value: f64,
}

/// The pending points of a metric: a dense run of stage-0 slots, and the late points, which do not fit the run.
///
/// Within a slot the last write wins. Invariant: a slot of the run that is not NaN was written later
/// than a late point of the same slot, because a point that falls into the run goes there.
#[derive(Debug, Clone, Default)]
pub struct PendingPoints {
    first_slot: Slot,
    run: Vec<f64>,
    // Boxed: nearly every metric has none, and a million metrics have a million of these.
    #[allow(clippy::box_collection, reason = "eight bytes a metric instead of twenty-four")]
    late: Option<Box<Vec<StagePoint>>>,
}

impl PendingPoints {
    /// Whether no point is pending.
    pub fn is_empty(&self) -> bool {
        self.run.is_empty() && self.late.is_none()
    }

    /// Slots of memory in use, holes included, as the memory budget counts them.
    pub fn slots(&self) -> usize {
        self.run.len() + self.late.as_ref().map_or(0, |late| 2 * late.len())
    }

    /// Bytes of memory, those reserved for later points included.
    pub fn bytes(&self) -> usize {
        let late = self.late.as_ref().map_or(0, |late| size_of::<Vec<StagePoint>>() + late.capacity() * LATE_POINT);
        self.run.capacity() * size_of::<f64>() + late
    }

    /// Adds a stage-0 point. Returns by how much the memory grew.
    #[inline]
    pub fn push(&mut self, slot: Slot, value: f64) -> Growth {
        let offset = slot.wrapping_sub(self.first_slot) as usize;
        let len = self.run.len();
        if offset == len && len > 0 && len < self.run.capacity() {
            self.run.push(value);
            return Growth { slots: 1, bytes: 0 };
        }
        if offset < len {
            self.run[offset] = value;
            return Growth::default();
        }
        self.push_elsewhere(slot, value)
    }

    /// Adds a point that is too old for stage 0 to a slot of a coarser stage. Returns as [`PendingPoints::push`] does.
    pub fn push_coarse(&mut self, stage: u8, slot: Slot, value: f64) -> Growth {
        let before = (self.slots(), self.bytes());
        self.late.get_or_insert_default().push(StagePoint { slot, stage, value });
        self.growth_since(before)
    }

    fn growth_since(&self, (slots, bytes): (usize, usize)) -> Growth {
        let grew = |now: usize, before: usize| now.saturating_sub(before) as u32;
        Growth { slots: grew(self.slots(), slots), bytes: grew(self.bytes(), bytes) }
    }

    #[cold]
    fn push_elsewhere(&mut self, slot: Slot, value: f64) -> Growth {
        let before = (self.slots(), self.bytes());
        let len = self.run.len();
        let hole = slot.wrapping_sub(self.first_slot).wrapping_sub(len as u32);
        if len == 0 {
            self.first_slot = slot;
            self.run.push(value);
        } else if slot > self.first_slot && hole <= LONGEST_HOLE {
            self.run.resize(len + hole as usize, f64::NAN);
            self.run.push(value);
        } else if len < SHORT_RUN {
            let first_slot = self.first_slot;
            let late = self.late.get_or_insert_default();
            for (i, &old) in self.run.iter().enumerate().filter(|(_, old)| !old.is_nan()) {
                late.push(StagePoint { slot: first_slot + i as u32, stage: 0, value: old });
            }
            self.run.clear();
            // An earlier late point of this very slot would be hidden by the run, as it should be.
            self.first_slot = slot;
            self.run.push(value);
        } else {
            self.late.get_or_insert_default().push(StagePoint { slot, stage: 0, value });
        }
        self.growth_since(before)
    }

    /// The dense run: its first slot and its values, NaN in slots without a point.
    pub fn run(&self) -> (Slot, &[f64]) {
        (self.first_slot, &self.run)
    }

    /// The points outside of the run, in the order of their arrival.
    pub fn late(&self) -> &[StagePoint] {
        self.late.as_ref().map_or(&[], |late| late)
    }

    /// The first second of the first slot that gets a value of the points, in every stage, and the last second of the last slot that a
    /// point came for; `None` without a point.
    pub fn span(&self, retention: &Retention) -> Option<(Timestamp, Timestamp)> {
        let stages = retention.stages();
        let time = |stage: usize, slot| {
            let stage = stages.get(stage)?;
            Some((stage.time(slot), stage.time(slot) + Timestamp::from(stage.resolution()) - 1))
        };
        let last_of_run = self.first_slot.saturating_add((self.run.len() as u32).saturating_sub(1));
        let run = [self.first_slot, last_of_run].into_iter().filter(|_| !self.run.is_empty());
        let run = run.filter_map(|slot| time(0, slot));
        let late = self.late().iter().filter_map(|late| time(usize::from(late.stage), late.slot));
        let (first, last) = run
            .chain(late)
            .fold((Timestamp::MAX, Timestamp::MIN), |(first, last), slot| (first.min(slot.0), last.max(slot.1)));
        let coarsest = Timestamp::from(retention.longest().resolution());
        (first <= last).then(|| (first - first.rem_euclid(coarsest), last))
    }

    /// The slot after the last stage-0 point, or `None` without one.
    pub fn end_slot(&self) -> Option<Slot> {
        let run = (!self.run.is_empty()).then(|| self.first_slot.saturating_add(self.run.len() as u32));
        let late = self.late().iter().filter(|late| late.stage == 0).map(|late| late.slot.saturating_add(1)).max();
        run.max(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_order_are_one_run() {
        let mut points = PendingPoints::default();
        let grew = |growth: Growth| growth.slots;
        let first = [points.push(10, 1.0), points.push(11, 2.0), points.push(11, 3.0)];
        assert_eq!(first.map(grew), [1, 1, 0]);
        assert_eq!(grew(points.push(13, 4.0)), 2);
        let (first, run) = points.run();
        assert_eq!((first, run.len(), run[1], run[3]), (10, 4, 3.0, 4.0));
        assert!(run[2].is_nan());
        assert_eq!(points.end_slot(), Some(14));
    }

    #[test]
    fn bytes_are_those_that_are_reserved() {
        let (mut points, mut counted) = (PendingPoints::default(), Growth::default());
        for i in 0..1000 {
            counted += points.push(100 + i, 1.0);
            counted += points.push(i % 7 * 10_000, 1.0);
            counted += points.push_coarse(1, i, 1.0);
            assert_eq!((counted.slots as usize, counted.bytes as usize), (points.slots(), points.bytes()));
        }
        assert!(points.bytes() >= 8 * points.slots());
    }

    #[test]
    fn a_straggler_does_not_keep_the_run() {
        let mut points = PendingPoints::default();
        points.push(10, 1.0);
        points.push(1_000_000, 2.0);
        points.push(1_000_001, 3.0);
        assert_eq!(points.run(), (1_000_000, &[2.0, 3.0][..]));
        assert_eq!(points.late(), [StagePoint { slot: 10, stage: 0, value: 1.0 }]);
    }

    #[test]
    fn the_end_after_the_largest_slot_saturates() {
        let mut points = PendingPoints::default();
        points.push(Slot::MAX, 1.0);
        assert_eq!(points.end_slot(), Some(Slot::MAX));
        (5..10).for_each(|slot| _ = points.push(slot, 1.0));
        assert_eq!((points.late().len(), points.end_slot()), (1, Some(Slot::MAX)));
    }

    #[test]
    fn the_span_has_the_whole_slots_of_the_points() {
        let retention: Retention = "60*60s:24*3600s".parse().unwrap();
        let mut points = PendingPoints::default();
        assert_eq!(points.span(&retention), None);
        points.push(125, 1.0);
        assert_eq!(points.span(&retention), Some((7200, 7559)));
        points.push(127, 1.0);
        points.push_coarse(1, 1, 2.0);
        assert_eq!(points.span(&retention), Some((3600, 7679)));
    }

    #[test]
    fn a_long_run_keeps_its_place() {
        let mut points = PendingPoints::default();
        for slot in 100..110 {
            points.push(slot, 0.0);
        }
        points.push(5, 1.0);
        points.push(5000, 2.0);
        points.push(110, 3.0);
        assert_eq!(points.run().1.len(), 11);
        assert_eq!(points.late().len(), 2);
        assert_eq!(points.slots(), 15);
        assert_eq!(points.end_slot(), Some(5001));
    }
}
