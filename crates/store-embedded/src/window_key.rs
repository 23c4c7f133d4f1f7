//! The table and the number of a window: which slots it has, and its folder.

use std::path::{Path, PathBuf};

use metric::{ROW_POINTS, Stage, Table, Timestamp};

/// Windows of one table, about. More make expiry finer and reads wider.
const WINDOWS_PER_TABLE: u32 = 48;

/// Slots of a window: whole partitions of its table.
pub(crate) fn window_slots(stage: Stage) -> u32 {
    let partitions = stage.points().div_ceil(ROW_POINTS) + 1;
    partitions.div_ceil(WINDOWS_PER_TABLE) * ROW_POINTS
}

/// Slots by which a window is kept longer than its stage says: neighbours of a late point at the edge are still there.
pub(crate) const KEPT_LONGER: u32 = ROW_POINTS;

/// The table and the number of a window.
pub(crate) type WindowKey = (Table, u32);

/// When every slot of a window is older than its stage keeps, Unix seconds.
pub(crate) fn expires_at((table, number): WindowKey) -> Timestamp {
    let until = (i64::from(number) + 1) * i64::from(window_slots(table.stage)) + i64::from(KEPT_LONGER);
    until * i64::from(table.stage.resolution()) + table.stage.duration()
}

/// Whether a window has slots of a coarser step over the finer ones of another. Coarse rows count the points in these, and a point that
/// comes again from the journal is found there. Where policies have several first steps, a point of the coarser one that is
/// replaced is kept among the finer points.
pub(crate) fn waits_for(coarser: WindowKey, finer: WindowKey) -> bool {
    let times = |(table, number): WindowKey| {
        let seconds = i64::from(window_slots(table.stage)) * i64::from(table.stage.resolution());
        i64::from(number) * seconds..(i64::from(number) + 1) * seconds
    };
    let (slow, fast) = (times(coarser), times(finer));
    finer.0.stage.resolution() < coarser.0.stage.resolution() && slow.start < fast.end && fast.start < slow.end
}

/// The folder of a window in the folder of a store.
pub(crate) fn folder((table, number): WindowKey) -> PathBuf {
    Path::new(&table.to_string()).join(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_partitions_and_a_table_has_few() {
        for points in [1, 1440, 10_080, 86_400, 31_536_000] {
            let slots = window_slots(Stage::new(1, points).unwrap());
            assert_eq!(slots % ROW_POINTS, 0);
            assert!(points / slots <= WINDOWS_PER_TABLE);
        }
    }
}
