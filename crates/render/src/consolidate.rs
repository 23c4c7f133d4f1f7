//! Fewer points for a reader that sets maxDataPoints, as graphite-web makes them for its JSON format.

use std::sync::Arc;

use crate::{Consolidation, Series, lineage::note_consolidation, normalize::fold};

/// From the earliest start to the latest end of all series, seconds; 0 for none. All series of an answer
/// are consolidated as if each spanned this.
pub fn time_range(series: &[Series]) -> i64 {
    let start = series.iter().map(|series| series.start).min().unwrap_or(0);
    let end = series.iter().map(|series| series.end).max().unwrap_or(0);
    end - start
}

/// Folds a series so that `time_range` seconds of it are at most about `max_data_points` points. A series
/// with few enough points stays as it is, and so does every series where `max_data_points` is 0 (graphite-web answers
/// 500).
///
/// The times of points are multiples of their new step, so that they stay the same when the span moves a little. For
/// this, graphite-web moves the start *forward* to the next multiple and drops one value fewer than that skips: the
/// point at t holds the values from one old step before t. Up to a new step less an old one of leading values are
/// lost. We do exactly the same.
pub fn consolidate(series: &mut Series, max_data_points: usize, time_range: i64) {
    debug_assert!(series.step > 0, "a series has a step");
    let step = series.step.max(1);
    if max_data_points == 1 {
        let all = series.values.len();
        if all > 0 {
            fold_in_place(series, 0, all);
        }
        return;
    }
    let points = time_range as f64 / step as f64;
    let wanted = max_data_points as f64;
    if max_data_points == 0 || points <= wanted {
        return;
    }
    let per_point = (points / wanted).ceil();
    let new_step = per_point as i64 * step;
    let nudge = new_step + series.start.rem_euclid(step) - series.start.rem_euclid(new_step);
    let lost = (nudge / step - 1).max(0) as usize;
    series.start += nudge;
    fold_in_place(series, lost, per_point as usize);
}

fn fold_in_place(series: &mut Series, lost: usize, per_point: usize) {
    note_consolidation(&mut series.lineage, per_point, series.consolidation.name());
    let kept = series.values.get(lost..).unwrap_or_default();
    series.values = Arc::new(fold(kept, per_point, series.consolidation, series.x_files_factor));
    series.step = series.step.max(1).saturating_mul(per_point as i64);
    let averages = matches!(series.consolidation, Consolidation::Average | Consolidation::Avg | Consolidation::AvgZero);
    series.integers &= !averages || per_point == 1;
}

impl Series {
    /// Times and values as JSON has them: as many as there are both values and steps up to the end,
    /// inclusive.
    pub fn datapoints(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        let times = (self.start..=self.end).step_by(usize::try_from(self.step).unwrap_or(1).max(1));
        times.zip(self.values.iter().copied())
    }
}
