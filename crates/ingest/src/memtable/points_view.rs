//! The points of one metric in memory, as a reader sees them.

use downsample::{PendingPoints, SortedPoints, Stored};
use metric::Slot;

/// The points of one metric in memory.
#[derive(Debug, Default)]
pub(crate) struct PointsView<'a> {
    /// Points of a flush job; older than `pending`.
    pub(super) flushing: Option<&'a PendingPoints>,
    pub(super) pending: Option<&'a PendingPoints>,
    /// The rows of all writers, without those of the flush job.
    pub(crate) all_writers: Stored,
    /// The rows of this writer, without those of the flush job: later points are all in memory, so that a reader gets
    /// them while the store is away.
    pub(crate) this_writer: Stored,
    /// Whether no other process writes the store.
    pub(crate) is_alone: bool,
}

impl<'a> PointsView<'a> {
    /// Of points that are in no memtable.
    pub(crate) fn of(points: &'a PendingPoints) -> PointsView<'a> {
        PointsView { pending: Some(points), ..PointsView::default() }
    }
}

impl PointsView<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.flushing.is_none() && self.pending.is_none()
    }

    /// The older ones first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &PendingPoints> {
        self.flushing.into_iter().chain(self.pending)
    }

    /// As the downsampler wants them.
    pub(crate) fn points(&self) -> SortedPoints {
        let parts: Vec<&PendingPoints> = self.parts().collect();
        SortedPoints::of(&parts)
    }

    /// The rows of this writer, if none of the points may be in them: a flush job may be stored by now.
    pub(crate) fn apart_from_points(&self) -> Stored {
        if self.flushing.is_some() { Stored::Unknown } else { self.this_writer }
    }

    /// Lays the stage-0 points over `values`, whose first is of `first_slot`.
    pub(crate) fn overlay(&self, first_slot: Slot, values: &mut [f64]) {
        for points in self.parts() {
            for late in points.late().iter().filter(|late| late.stage == 0) {
                let place = late.slot.checked_sub(first_slot);
                if let Some(value) = place.and_then(|place| values.get_mut(place as usize)) {
                    *value = late.value;
                }
            }
            let (run_first, run) = points.run();
            let skip = first_slot.saturating_sub(run_first) as usize;
            let place = run_first.saturating_sub(first_slot) as usize;
            if skip >= run.len() || place >= values.len() {
                continue;
            }
            for (value, &newer) in values[place..].iter_mut().zip(&run[skip..]) {
                if !newer.is_nan() {
                    *value = newer;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_laid_over_the_part_of_a_window_that_they_meet() {
        let mut points = PendingPoints::default();
        for slot in 10..20 {
            points.push(slot, f64::from(slot));
        }
        let view = PointsView { pending: Some(&points), ..PointsView::default() };
        let mut window = [0.0; 4];
        view.overlay(8, &mut window);
        assert_eq!(window, [0.0, 0.0, 10.0, 11.0]);
        let mut window = [0.0; 4];
        view.overlay(18, &mut window);
        assert_eq!(window, [18.0, 19.0, 0.0, 0.0]);
        let mut window = [0.0; 2];
        view.overlay(30, &mut window);
        view.overlay(2, &mut window);
        assert_eq!(window, [0.0, 0.0]);
    }
}
