//! The key of a packed run: which slots it has, and the bytes that its checksum proves. Pure.
//!
//! `docs/decisions/21-packed-layout.md` says why the key names the slots.

use std::ops::Range;

use metric::{ROW_POINTS, Table};
use uuid::Uuid;

use crate::rows::Part;

/// Slots from the first to the last value of a run, at most. A reader must look so far back for the run that has a slot.
pub(crate) const RUN_SLOTS: i16 = 500;

/// Bytes of a run at most: its values take 8 each and a little where they are least like each other, and their counts 4.
pub(crate) const RUN_BYTES: usize = 32 * RUN_SLOTS as usize;

/// Added to the offsets of runs of partials, which share the table of a stage with points.
const PARTIALS_FROM: i16 = ROW_POINTS as i16;

/// What the column `offset` has for a run whose first value is at this offset of its partition.
pub(crate) fn key_offset(aggregated: bool, offset: i16) -> i16 {
    if aggregated { offset + PARTIALS_FROM } else { offset }
}

/// The slots that a run of this key may have, as offsets in the partition.
pub(crate) fn places(aggregated: bool, key_offset: i16) -> Range<usize> {
    let first = if aggregated { key_offset.saturating_sub(PARTIALS_FROM) } else { key_offset };
    let first = usize::try_from(first).unwrap_or(0);
    first..first + RUN_SLOTS as usize
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

/// The slots that a run has, as its key says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySlots<'a> {
    /// Offset of the first one in the partition.
    first: i16,
    count: i16,
    holes: &'a [u8],
}

impl<'a> KeySlots<'a> {
    /// As in the table.
    pub(crate) fn new(aggregated: bool, key_offset: i16, count: i16, holes: &'a [u8]) -> KeySlots<'a> {
        let first = if aggregated { key_offset.saturating_sub(PARTIALS_FROM) } else { key_offset };
        KeySlots { first, count, holes }
    }

    /// Those of a part, as offsets in the partition.
    pub(crate) fn within(self, part: Part) -> impl Iterator<Item = usize> + use<'a> {
        let KeySlots { first, count, holes } = self;
        let (first, slots) = (usize::try_from(first).unwrap_or(0), part.from as usize..part.until as usize);
        let is_run = move |place: usize| match holes {
            [] => place < usize::try_from(count).unwrap_or(0),
            _ => holes.get(place / 8).is_some_and(|eight| eight >> (place % 8) & 1 == 1),
        };
        // No run has further ones, and readers of later slots would not find it.
        let is_near = |place: &usize| *place < RUN_SLOTS as usize;
        slots.filter(move |slot| slot.checked_sub(first).filter(is_near).is_some_and(is_run))
    }

    /// From the first one to behind the last, as offsets in the partition.
    pub(crate) fn extent(self) -> Range<usize> {
        let whole = Part { time_start_ms: 0, from: 0, until: ROW_POINTS as i16, first_slot: 0 };
        let mut slots = self.within(whole);
        let Some(first) = slots.next() else { return 0..0 };
        first..slots.last().unwrap_or(first) + 1
    }
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
    fn a_key_names_the_slots_of_its_run() {
        let values: Vec<f64> = "x------xx-x".chars().map(|char| if char == '-' { f64::NAN } else { 1.0 }).collect();
        let bitmap = holes(&values);
        let part = |from, until| Part { time_start_ms: 0, from, until, first_slot: 0 };
        let of = |key: KeySlots<'_>, part| key.within(part).collect::<Vec<_>>();
        for (aggregated, first) in [(false, 100), (true, 2100)] {
            let with_holes = KeySlots::new(aggregated, first, 4, &bitmap);
            assert_eq!(of(with_holes, part(0, 2000)), [100, 107, 108, 110]);
            assert_eq!(of(with_holes, part(101, 110)), [107, 108]);
            assert_eq!(with_holes.extent(), 100..111);
            let without = KeySlots::new(aggregated, first, 3, &[]);
            assert_eq!((of(without, part(0, 2000)), without.extent()), (vec![100, 101, 102], 100..103));
        }
        // A key that no node writes names no slot outside its partition.
        assert_eq!(KeySlots::new(false, 100, i16::MAX, &[]).extent(), 100..600, "as far as readers look back");
        assert_eq!(of(KeySlots::new(false, 1990, i16::MAX, &[]), part(1995, 2000)), [1995, 1996, 1997, 1998, 1999]);
        assert_eq!(of(KeySlots::new(false, 5, -1, &[]), part(0, 2000)), [0usize; 0]);
        assert_eq!(KeySlots::new(true, 7, 0, &[]).extent(), 0..0);
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
