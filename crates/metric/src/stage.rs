//! A stage, a precision kept for a time, and the table that stores it.

use std::fmt;

use crate::{Aggregation, Slot, Timestamp};

/// Slots in one partition of a datapoints table, in every stage.
///
/// BigGraphite also means to impose a floor of six hours, but compares seconds with milliseconds, so
/// the floor never applies. We share its tables: match what it writes, not what it meant.
pub const ROW_POINTS: u32 = 2000;

/// A precision kept for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stage {
    // Invariant: both at least 1, and their product at most u32::MAX.
    resolution: u32,
    points: u32,
}

/// Why a stage is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// A resolution of zero seconds.
    #[error("a precision must be at least one second")]
    NoResolution,
    /// No point would be kept.
    #[error("a stage must keep at least one point")]
    NoPoints,
    /// Longer than timestamps last.
    #[error("a stage of {points} points of {resolution} s lasts longer than 136 years")]
    TooLong {
        /// Points asked for.
        points: u32,
        /// Seconds per point.
        resolution: u32,
    },
}

impl Stage {
    /// A stage of `points` slots of `resolution` seconds each.
    pub fn new(resolution: u32, points: u32) -> Result<Stage, StageError> {
        if resolution == 0 {
            return Err(StageError::NoResolution);
        }
        if points == 0 {
            return Err(StageError::NoPoints);
        }
        if resolution.checked_mul(points).is_none() {
            return Err(StageError::TooLong { points, resolution });
        }
        Ok(Stage { resolution, points })
    }

    /// Seconds per slot.
    pub fn resolution(self) -> u32 {
        self.resolution
    }

    /// Slots kept.
    pub fn points(self) -> u32 {
        self.points
    }

    /// Seconds kept.
    pub fn duration(self) -> i64 {
        i64::from(self.resolution) * i64::from(self.points)
    }

    /// The slot around `time`, or `None` before 1970 and after the last slot whose end a `u32` can number.
    pub fn slot(self, time: Timestamp) -> Option<Slot> {
        u32::try_from(time.div_euclid(i64::from(self.resolution))).ok().filter(|slot| *slot < Slot::MAX)
    }

    /// The second at which a slot begins.
    pub fn time(self, slot: Slot) -> Timestamp {
        i64::from(slot) * i64::from(self.resolution)
    }
}

/// `10080*60s`, BigGraphite's way to write a stage.
impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*{}s", self.points, self.resolution)
    }
}

/// A datapoints table: one for each stage, with points as they arrived (a metric's first stage) or with aggregates and
/// their counts (every other stage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table {
    /// The stage that the table stores.
    pub stage: Stage,
    /// Whether a row carries a count (and in Cassandra a shard).
    pub aggregated: bool,
    /// The method of its rows, where policies with several methods store each in a table of its own. `None` in a table of
    /// points, and in one of policies with a single method, whichever it is.
    pub rollup: Option<Aggregation>,
}

/// `datapoints_10080p_60s_0` or `datapoints_720p_3600s_aggr`: BigGraphite's names. `datapoints_720p_3600s_max` for the
/// rollup of a method.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.rollup {
            Some(method) => method.name(),
            None if self.aggregated => "aggr",
            None => "0",
        };
        write!(f, "datapoints_{}p_{}s_{kind}", self.stage.points, self.stage.resolution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_biggraphites_name() {
        let stage = Stage::new(60, 10080).unwrap();
        let name = |aggregated, rollup| Table { stage, aggregated, rollup }.to_string();
        assert_eq!(name(false, None), "datapoints_10080p_60s_0");
        assert_eq!(name(true, None), "datapoints_10080p_60s_aggr");
        assert_eq!(name(true, Some(Aggregation::AvgZero)), "datapoints_10080p_60s_avg_zero");
    }

    #[test]
    fn a_time_before_1970_has_no_slot() {
        let stage = Stage::new(60, 10).unwrap();
        assert_eq!(stage.slot(-1), None);
        assert_eq!(stage.slot(119), Some(1));
        assert_eq!(stage.time(2), 120);
    }

    #[test]
    fn a_slot_has_an_end() {
        let stage = Stage::new(1, 10).unwrap();
        assert_eq!(stage.slot(i64::from(u32::MAX) - 1), Some(Slot::MAX - 1));
        assert_eq!(stage.slot(i64::from(u32::MAX)), None);
    }

    #[test]
    fn a_stage_must_last_and_must_not_outlast_time() {
        assert_eq!(Stage::new(0, 1), Err(StageError::NoResolution));
        assert_eq!(Stage::new(1, 0), Err(StageError::NoPoints));
        assert!(matches!(Stage::new(3600, 4_000_000), Err(StageError::TooLong { .. })));
    }
}
