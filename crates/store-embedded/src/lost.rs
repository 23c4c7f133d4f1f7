//! Rows of a window that are lost: reads of their keys say that they are damaged for as long as the window lives, because
//! what is left may be older than what was stored, or missing.

use metric::{MetricId, Slot, Stage, Timestamp};

use crate::{
    row_key::{GROUP_SLOTS, RowKey},
    window_key::{WindowKey, window_slots},
};

/// Ranges that a window keeps. Beyond, the two with the fewest keys between them become one, which covers too much.
const MOST: usize = 256;

/// Rows that may be lost: of these keys, slots up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lost {
    // Invariant: first <= last.
    pub(crate) first: RowKey,
    pub(crate) last: RowKey,
    /// No lost row had a slot after it, so that later points are not doubted.
    pub(crate) newest: Slot,
    /// Rows of later flushes are newer than what is lost. The manifest does not have it: a start takes all flushes before it for
    /// older ones, see [`ANY_FLUSH`].
    pub(crate) flush: u64,
}

/// The flush of lost rows where that is not known: rows of any file may be older than these.
pub(crate) const ANY_FLUSH: u64 = u64::MAX;

impl Lost {
    /// All rows of a window up to a time, Unix seconds.
    pub(crate) fn all_of((table, number): WindowKey, until: Timestamp) -> Lost {
        let slots = window_slots(table.stage);
        let first_slot = number.saturating_mul(slots);
        let group = |slot| slot / GROUP_SLOTS;
        let newest = first_slot.saturating_add(slots - 1);
        Lost {
            first: RowKey { group: group(first_slot), metric: MetricId(0) },
            last: RowKey { group: group(newest), metric: MetricId(u32::MAX) },
            newest: newest.min(table.stage.slot(until).unwrap_or(newest)),
            flush: ANY_FLUSH,
        }
    }

    /// Whether a value of this key may be lost, in slots from `first_slot` on.
    pub(crate) fn may_have(&self, key: RowKey, first_slot: Slot) -> bool {
        self.first <= key && key <= self.last && first_slot <= self.newest
    }

    /// From and until of the points that may be lost, Unix seconds.
    pub(crate) fn span(&self, stage: Stage) -> (Timestamp, Timestamp) {
        self.first.span_to(self.last, stage)
    }

    /// Both and everything between them.
    fn with(self, other: Lost) -> Lost {
        Lost {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            newest: self.newest.max(other.newest),
            flush: self.flush.max(other.flush),
        }
    }
}

fn number(key: RowKey) -> u64 {
    u64::from_be_bytes(key.to_bytes())
}

/// Adds ranges to others. They stay in order, and few.
pub(crate) fn add(ranges: &mut Vec<Lost>, more: &[Lost]) {
    ranges.extend_from_slice(more);
    ranges.sort_unstable();
    let mut joined: Vec<Lost> = Vec::with_capacity(ranges.len());
    for &range in ranges.iter() {
        match joined.last_mut() {
            Some(last) if range.first <= last.last => *last = last.with(range),
            _ => joined.push(range),
        }
    }
    while MOST < joined.len() {
        let between = |i: &usize| number(joined[i + 1].first) - number(joined[*i].last);
        let nearest = (0..joined.len() - 1).min_by_key(between).expect("there are several ranges");
        joined[nearest] = joined[nearest].with(joined[nearest + 1]);
        joined.remove(nearest + 1);
    }
    *ranges = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, last: u32, newest: Slot) -> Lost {
        let key = |metric| RowKey { group: 7, metric: MetricId(metric) };
        Lost { first: key(first), last: key(last), newest, flush: ANY_FLUSH }
    }

    #[test]
    fn overlapping_ranges_become_one_and_later_slots_are_not_doubted() {
        let mut ranges = vec![range(10, 20, 7500)];
        add(&mut ranges, &[range(30, 40, 7600), range(15, 25, 7400), range(30, 40, 7600)]);
        assert_eq!(ranges, [range(10, 25, 7500), range(30, 40, 7600)]);
        let key = |metric| RowKey { group: 7, metric: MetricId(metric) };
        assert!(ranges[0].may_have(key(25), 7500));
        assert!(!ranges[0].may_have(key(25), 7501) && !ranges[0].may_have(key(26), 7000));
    }

    #[test]
    fn many_ranges_cover_more_and_stay_few() {
        let mut ranges = Vec::new();
        for n in 0..3 * MOST as u32 {
            add(&mut ranges, &[range(10 * n, 10 * n + 1, n)]);
        }
        assert_eq!(ranges.len(), MOST);
        let key = |metric| RowKey { group: 7, metric: MetricId(metric) };
        for n in 0..3 * MOST as u32 {
            assert!(ranges.iter().any(|range| range.may_have(key(10 * n), 0)), "{n}");
        }
    }
}
