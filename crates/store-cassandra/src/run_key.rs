//! The key of a packed run: which slots it has, and the bytes that its checksum proves. Pure.
//!
//! `docs/decisions/21-packed-layout.md` says why the key names the slots.

use metric::{ROW_POINTS, Table};
use uuid::Uuid;

use crate::rows::Part;

/// Slots from the first to the last value of a run, at most. A reader must look so far back for the run that has a slot.
pub(crate) const RUN_SLOTS: i16 = 500;

/// Added to the offsets of runs of partials, which share the table of a stage with points.
const PARTIALS_FROM: i16 = ROW_POINTS as i16;

/// What the column `offset` has for a run whose first value is at this offset of its partition.
pub(crate) fn key_offset(aggregated: bool, offset: i16) -> i16 {
    if aggregated { offset + PARTIALS_FROM } else { offset }
}

/// The values of `offset` from which, and below which, runs may have slots of a part.
pub(crate) fn key_offsets(aggregated: bool, part: Part) -> (i16, i16) {
    let from = (part.from - (RUN_SLOTS - 1)).max(0);
    (key_offset(aggregated, from), key_offset(aggregated, part.until))
}

/// A bitmap of the values of a run, the lowest bit first; empty where none is absent. With the offset and the number of values it
/// says exactly which slots the run has.
pub(crate) fn holes(values: &[f64]) -> Vec<u8> {
    if !values.iter().any(|value| value.is_nan()) {
        return Vec::new();
    }
    let bits = |eight: &[f64]| eight.iter().rev().fold(0, |bits, value| bits << 1 | u8::from(!value.is_nan()));
    values.chunks(8).map(bits).collect()
}

/// The bytes that name the place of a run, for its checksum.
pub(crate) fn place(table: Table, metric: Uuid, time_start_ms: i64, key_offset: i16, shard: i16) -> [u8; 36] {
    let mut place = [0; 36];
    place[..16].copy_from_slice(metric.as_bytes());
    place[16..24].copy_from_slice(&time_start_ms.to_be_bytes());
    place[24..26].copy_from_slice(&key_offset.to_be_bytes());
    place[26..28].copy_from_slice(&shard.to_be_bytes());
    place[28..32].copy_from_slice(&table.stage.resolution().to_be_bytes());
    place[32..36].copy_from_slice(&table.stage.points().to_be_bytes());
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_of_a_run_tells_sets_of_slots_apart() {
        let of =
            |text: &str| -> Vec<f64> { text.chars().map(|char| if char == '-' { f64::NAN } else { 1.0 }).collect() };
        assert_eq!(holes(&of("xxxxxxxxxxx")), [0u8; 0]);
        assert_eq!(holes(&of("x")), [0u8; 0]);
        assert_eq!(holes(&of("x-x")), [0b101]);
        assert_eq!(holes(&of("x------xx-x")), [0b1000_0001, 0b101]);
    }

    #[test]
    fn a_reader_looks_back_for_the_longest_run() {
        let part = |from, until| Part { time_start_ms: 0, from, until, first_slot: 0 };
        assert_eq!(key_offsets(false, part(1000, 1100)), (501, 1100));
        assert_eq!(key_offsets(false, part(0, 2000)), (0, 2000));
        assert_eq!(key_offsets(true, part(20, 30)), (2000, 2030));
        assert_eq!(key_offsets(true, part(1999, 2000)), (3500, 4000));
    }
}
