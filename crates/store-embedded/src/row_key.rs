//! The key of a row: a group of slots and a metric.

use metric::{MetricId, Slot, Stage, Timestamp};

/// Slots of one row. A partition of the logical table has two: long enough for a good ratio, short enough that a
/// query for an hour does not decode two days.
pub(crate) const GROUP_SLOTS: u32 = 1000;

/// The key of a row. Time comes first: rows of a group that is past are apart from those still written, and neighbours
/// differ in a byte of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) group: u32,
    pub(crate) metric: MetricId,
}

impl RowKey {
    pub(crate) const FIRST: RowKey = RowKey { group: 0, metric: MetricId(0) };
    pub(crate) const LAST: RowKey = RowKey { group: u32::MAX, metric: MetricId(u32::MAX) };

    /// Bytes of a key in a file.
    pub(crate) const BYTES: usize = 8;

    /// Big-endian, so that bytes sort as keys do.
    pub(crate) fn to_bytes(self) -> [u8; RowKey::BYTES] {
        (u64::from(self.group) << 32 | u64::from(self.metric.0)).to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; RowKey::BYTES]) -> RowKey {
        let both = u64::from_be_bytes(bytes);
        RowKey { group: (both >> 32) as u32, metric: MetricId(both as u32) }
    }

    /// The metrics that rows from this key to `last` may belong to.
    pub(crate) fn metrics_to(self, last: RowKey) -> Option<(MetricId, MetricId)> {
        (self.group == last.group).then_some((self.metric, last.metric))
    }

    /// From and until of the points that rows from this key to `last` may have, Unix seconds.
    pub(crate) fn span_to(self, last: RowKey, stage: Stage) -> (Timestamp, Timestamp) {
        let step = i64::from(stage.resolution()) * i64::from(GROUP_SLOTS);
        (i64::from(self.group) * step, (i64::from(last.group) + 1) * step)
    }
}

/// The groups that slots are in, and the places of the slots in each.
pub(crate) fn groups(first_slot: Slot, len: usize) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
    let mut place = 0;
    std::iter::from_fn(move || {
        if place >= len {
            return None;
        }
        // A run may end at the last slot of all, never beyond it.
        let slot = first_slot + place as u32;
        let group = slot / GROUP_SLOTS;
        let left = (GROUP_SLOTS - slot % GROUP_SLOTS) as usize;
        let end = len.min(place + left);
        let of_group = place..end;
        place = end;
        Some((group, of_group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_cut_at_groups() {
        let cut = |first, len| groups(first, len).collect::<Vec<_>>();
        assert_eq!(cut(1998, 4), [(1, 0..2), (2, 2..4)]);
        assert_eq!(cut(0, 2500), [(0, 0..1000), (1, 1000..2000), (2, 2000..2500)]);
        assert_eq!(cut(5, 0), []);
    }

    #[test]
    fn keys_sort_as_their_bytes_do() {
        let keys =
            [(0, 9), (1, 0), (1, 256), (256, 0)].map(|(group, metric)| RowKey { group, metric: MetricId(metric) });
        assert!(keys.is_sorted());
        assert!(keys.map(RowKey::to_bytes).is_sorted());
        assert_eq!(keys.map(|key| RowKey::from_bytes(key.to_bytes())), keys);
    }
}
