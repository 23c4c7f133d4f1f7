//! Rows of a window that are lost: reads of their keys say that they are damaged for as long as the window lives, because
//! what is left may be older than what was stored, or missing.

use metric::{MetricId, Slot, Stage, Timestamp};

use crate::{
    row_key::{GROUP_SLOTS, RowKey},
    window_key::{WindowKey, window_slots},
};

/// Ranges that a window keeps. Beyond, the two with the fewest keys between them become one, which covers too much.
const MOST: usize = 1024;

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
    /// All rows of a window up to a time, Unix seconds. One before the window is of a clock that was wrong, and bounds nothing.
    pub(crate) fn all_of((table, number): WindowKey, until: Timestamp) -> Lost {
        let slots = window_slots(table.stage);
        let first_slot = number.saturating_mul(slots);
        let group = |slot| slot / GROUP_SLOTS;
        let newest = first_slot.saturating_add(slots - 1);
        Lost {
            first: RowKey { group: group(first_slot), metric: MetricId(0) },
            last: RowKey { group: group(newest), metric: MetricId(u32::MAX) },
            newest: table.stage.slot(until).filter(|slot| first_slot <= *slot).map_or(newest, |slot| newest.min(slot)),
            flush: ANY_FLUSH,
        }
    }

    /// The same of these metrics alone: a range for each group, or for more groups than a window keeps ranges, this one.
    pub(crate) fn of_metrics(self, (lowest, highest): (MetricId, MetricId)) -> Vec<Lost> {
        let is_of_all = (lowest, highest) == (MetricId(0), MetricId(u32::MAX));
        if is_of_all || MOST as u32 <= self.last.group - self.first.group {
            return vec![self];
        }
        let of_group = |group| Lost {
            first: self.first.max(RowKey { group, metric: lowest }),
            last: self.last.min(RowKey { group, metric: highest }),
            ..self
        };
        let ranges = (self.first.group..=self.last.group).map(of_group);
        ranges.filter(|range| range.first <= range.last).collect()
    }

    /// Whether a value of this key may be lost, in slots from `first_slot` on.
    pub(crate) fn may_have(&self, key: RowKey, first_slot: Slot) -> bool {
        self.first <= key && key <= self.last && first_slot <= self.newest
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

/// What a report says of lost rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostPart {
    /// The first and the last.
    pub(crate) groups: (u32, u32),
    /// The lowest and the highest; none where they may be of any.
    pub(crate) metrics: Option<(MetricId, MetricId)>,
    newest: Slot,
}

impl LostPart {
    /// From and until of the points that may be lost, Unix seconds.
    pub(crate) fn span(&self, stage: Stage) -> (Timestamp, Timestamp) {
        let key = |group| RowKey { group, metric: MetricId(0) };
        key(self.groups.0).span_to(key(self.groups.1), stage)
    }
}

/// The ranges of a window as reports have them: what was lost of several groups at once is one.
pub(crate) fn parts(ranges: &[Lost]) -> Vec<LostPart> {
    let mut parts: Vec<LostPart> = Vec::new();
    for Lost { first, last, newest, .. } in ranges {
        let part = LostPart { groups: (first.group, last.group), metrics: first.metrics_to(*last), newest: *newest };
        match (parts.last_mut(), part.metrics) {
            (Some(LostPart { groups, metrics: Some(metrics), newest }), Some((lowest, highest)))
                if *newest == part.newest && groups.1.checked_add(1) == Some(part.groups.0) =>
            {
                groups.1 = part.groups.1;
                *metrics = (metrics.0.min(lowest), metrics.1.max(highest));
            }
            _ => parts.push(part),
        }
    }
    parts
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
    fn all_of_a_window_is_lost_where_the_clock_is_before_it() {
        let table = metric::Policy::default().table(0);
        let (slots, stage) = (window_slots(table.stage), table.stage);
        let (first, end) = (3 * slots, 4 * slots);
        let newest = |slot| Lost::all_of((table, 3), stage.time(slot)).newest;
        assert_eq!((newest(first), newest(end - 2), newest(end + 7)), (first, end - 2, end - 1));
        assert_eq!((newest(first - 1), newest(0), Lost::all_of((table, 3), -7).newest), (end - 1, end - 1, end - 1));
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
    fn what_is_lost_of_some_metrics_is_a_range_for_each_group_and_one_part_of_a_report() {
        let key = |group, metric| RowKey { group, metric: MetricId(metric) };
        let lost = Lost { first: key(7, 34), last: key(9, 15), newest: 9_500, flush: ANY_FLUSH };
        let ranges = lost.of_metrics((MetricId(10), MetricId(39)));
        let keys: Vec<_> = ranges.iter().map(|range| (range.first, range.last)).collect();
        assert_eq!(keys, [(key(7, 34), key(7, 39)), (key(8, 10), key(8, 39)), (key(9, 10), key(9, 15))]);
        let part = LostPart { groups: (7, 9), metrics: Some((MetricId(10), MetricId(39))), newest: 9_500 };
        assert_eq!(parts(&ranges), [part]);
        assert_eq!(parts(&[lost])[0].metrics, None, "those between are not all");
        let of_all = Lost { last: key(u32::MAX, 15), ..lost };
        assert_eq!(of_all.of_metrics((MetricId(10), MetricId(39))), [of_all]);
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
