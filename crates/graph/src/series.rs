//! The series of a graph.

use std::sync::Arc;

/// Values at regular times, with the style that the functions of its target set.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: Arc<str>,
    /// Time of `values[0]`, Unix seconds.
    pub start: i64,
    /// The end of the series, Unix seconds, exclusive.
    pub end: i64,
    /// Seconds from a value to the next, at least 1.
    pub step: i64,
    /// NaN is null.
    pub values: Arc<Vec<f64>>,
    /// How to fold values where there are more than pixels.
    pub fold: Fold,
    /// The share of values, 0 to 1, that must be known where several are folded into one.
    pub x_files_factor: f64,
    /// How to draw it.
    pub style: Style,
}

/// How to draw a series, as functions of the group *Graph* set it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Style {
    /// `color()`: a name or digits, as the user gave them.
    pub color: Option<String>,
    /// `alpha()`: how opaque, 0 to 1.
    pub alpha: Option<f64>,
    /// `lineWidth()`: pixels.
    pub line_width: Option<f64>,
    /// `dashed()`: pixels of a dash and of the gap after it.
    pub dashed: Option<f64>,
    /// `secondYAxis()`.
    pub second_axis: bool,
    /// `stacked()` and `areaBetween()`: filled down to zero, or to the series of this kind before it. The values are
    /// sums already.
    pub stacked: bool,
    /// `drawAsInfinite()`: a line from bottom to top wherever the value is above zero.
    pub infinite: bool,
    /// The lower bound of `areaBetween()`: it takes its room and shows nothing.
    pub invisible: bool,
}

/// How to fold known values into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fold {
    /// Their mean.
    #[default]
    Average,
    /// Their sum.
    Sum,
    /// The mean over all values, unknown ones counting as zero.
    AverageZero,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The earliest.
    First,
    /// The latest.
    Last,
}

impl Series {
    /// The same series with every `count` values folded into one. Infinite values count as null: no axis shows
    /// them.
    pub(crate) fn folded(&self, count: usize) -> Vec<f64> {
        let finite = |value: &f64| if value.is_finite() { value.clamp(-1e300, 1e300) } else { f64::NAN };
        if count <= 1 {
            return self.values.iter().map(finite).collect();
        }
        let of_chunk = |chunk: &[f64]| {
            let known = || chunk.iter().map(finite).filter(|value| !value.is_nan());
            let present = known().count();
            if present == 0 || present as f64 / (count as f64) < self.x_files_factor {
                return f64::NAN;
            }
            let folded = match self.fold {
                Fold::Average => known().sum::<f64>() / present as f64,
                Fold::AverageZero => known().sum::<f64>() / chunk.len() as f64,
                Fold::Sum => known().sum(),
                Fold::Max => known().fold(f64::NEG_INFINITY, f64::max),
                Fold::Min => known().fold(f64::INFINITY, f64::min),
                Fold::First => known().next().unwrap_or(f64::NAN),
                Fold::Last => known().next_back().unwrap_or(f64::NAN),
            };
            finite(&folded)
        };
        self.values.chunks(count).map(of_chunk).collect()
    }
}
