//! Which segments of a row a merge codes again.
//!
//! Coding a long segment again saves few bytes and costs the most. So a row keeps its long segments, and its tail of
//! short ones becomes one as soon as there are enough of them: each point is coded about once for each doubling.

use codec::Segment;

use crate::row_key::GROUP_SLOTS;

/// Segments of a tail, at least. A segment of a coarse stage has a few slots, which take several times their bytes in a
/// long one.
const FEWEST: usize = 3;
const FEWEST_OF_COARSE: usize = 2;

/// A segment joins the tail behind it when it has at most so many times its bytes.
const RATIO: usize = 1;
const RATIO_OF_COARSE: usize = 8;

/// Segments of a row, at most: each costs a reader a little.
const MOST: usize = 8;

/// How many segments stay as they are, first to last; the others become one. None stays where two have the same slot,
/// and none where the group is complete: nothing is added to it later.
pub(crate) fn kept(segments: &[Segment], is_coarse: bool) -> usize {
    let rises = segments.is_sorted_by(|before, after| before.slots.end <= after.slots.start);
    let is_complete = segments.last().is_some_and(|last| last.slots.end == GROUP_SLOTS as usize);
    if !rises || is_complete || MOST < segments.len() {
        return 0;
    }
    let (fewest, ratio) = if is_coarse { (FEWEST_OF_COARSE, RATIO_OF_COARSE) } else { (FEWEST, RATIO) };
    let (mut first, mut bytes) = (segments.len(), 0);
    while 0 < first && (first == segments.len() || segments[first - 1].bytes.len() <= ratio * bytes) {
        first -= 1;
        bytes += segments[first].bytes.len();
    }
    if segments.len() - first < fewest { segments.len() } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of so many slots of one byte each, one behind the other.
    fn row(lens: &[usize]) -> Vec<Segment> {
        let mut end = 0;
        let segment = |&len: &usize| {
            end += len;
            Segment { slots: end - len..end, bytes: end - len..end }
        };
        lens.iter().map(segment).collect()
    }

    #[test]
    fn long_segments_stay_and_a_tail_of_short_ones_becomes_one() {
        assert_eq!(kept(&row(&[60, 60]), false), 2);
        assert_eq!(kept(&row(&[60, 60, 60]), false), 0);
        assert_eq!(kept(&row(&[600, 60, 60]), false), 3);
        assert_eq!(kept(&row(&[600, 60, 60, 60]), false), 1);
        assert_eq!(kept(&row(&[180, 60, 60, 60]), false), 0, "the tail outgrew the long one");
        assert_eq!(kept(&row(&[300, 12, 12]), true), 1);
        assert_eq!(kept(&row(&[192, 12, 12]), true), 0);
        assert_eq!(kept(&row(&[300, 12]), true), 2);
        assert_eq!(kept(&row(&[96, 12]), true), 0);
    }

    #[test]
    fn a_complete_group_and_one_with_late_points_become_one_segment() {
        assert_eq!(kept(&row(&[940, 60]), false), 0);
        let mut late = row(&[600, 60]);
        late[1].slots = 599..640;
        assert_eq!(kept(&late, false), 0);
        assert_eq!(kept(&row(&[100, 1, 1, 1, 50, 20, 9, 4, 2]), false), 0, "too many");
    }

    #[test]
    fn steady_flushes_leave_few_segments_and_code_each_slot_a_few_times() {
        let (mut lens, mut coded) = (Vec::new(), 0);
        for _ in 0..249 {
            lens.push(4);
            let first = kept(&row(&lens), false);
            if first < lens.len() {
                let sum: usize = lens.drain(first..).sum();
                coded += sum;
                lens.push(sum);
            }
            assert!(lens.len() <= MOST);
        }
        assert!(coded <= 7 * 996, "each slot was coded {} times", coded as f64 / 996.0);
    }
}
