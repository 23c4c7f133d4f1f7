//! Which files of a window are merged, judged by their sizes alone.
//!
//! 1. Small files next to each other become one as soon as there are [`FEWEST`] of about the same size: a reader then meets
//!    few files, and each byte is written again about once for each doubling of its file.
//! 2. A window that no flush writes to becomes one file. One that is current waits until what is in small files matters.

use std::ops::Range;

/// Files that are merged, at least, while a window is written to.
const FEWEST: usize = 4;

/// A quiet window that is not past is merged when the files besides its largest have at least one byte for so many of the
/// largest. Rows of coarse stages are short: joining them saves more, and there are few of them to code again.
const SHARE: u64 = 2;
const SHARE_OF_COARSE: u64 = 8;

/// What the choice depends on.
#[derive(Debug, Clone)]
pub(crate) struct Window<'a> {
    /// Bytes of the files, in the order of their flushes.
    pub(crate) bytes: &'a [u64],
    /// Whether no flush wrote to it for a while.
    pub(crate) is_quiet: bool,
    /// Whether all its slots are past.
    pub(crate) is_past: bool,
    /// Whether it is of a coarse stage.
    pub(crate) is_coarse: bool,
}

/// The files to merge now, if any: a range of at least two.
pub(crate) fn choose(window: &Window<'_>) -> Option<Range<usize>> {
    let Window { bytes, is_quiet, is_past, is_coarse } = window;
    if bytes.len() < 2 {
        return None;
    }
    if *is_quiet {
        let largest = bytes.iter().copied().max().unwrap_or(0);
        let rest = bytes.iter().sum::<u64>() - largest;
        let share = if *is_coarse { SHARE_OF_COARSE } else { SHARE };
        if *is_past || largest <= rest.saturating_mul(share) {
            return Some(0..bytes.len());
        }
    }
    similar(bytes)
}

/// The newest files of about the same size, of at most so many bytes together: merging them takes little time next to a larger merge.
pub(crate) fn choose_within(bytes: &[u64], most: u64) -> Option<Range<usize>> {
    let mut range = similar(bytes)?;
    while most < bytes[range.clone()].iter().sum() {
        range.start += 1;
    }
    (FEWEST <= range.len()).then_some(range)
}

/// The newest files of about the same size: going back in time, each has at most as many bytes as all newer ones
/// together.
fn similar(bytes: &[u64]) -> Option<Range<usize>> {
    for end in (FEWEST..=bytes.len()).rev() {
        let mut first = end - 1;
        let mut sum = bytes[first];
        while 0 < first && bytes[first - 1] <= sum {
            first -= 1;
            sum += bytes[first];
        }
        if FEWEST <= end - first {
            return Some(first..end);
        }
    }
    None
}

/// Bytes that merges would write until each window is one file.
pub(crate) fn debt(bytes: &[u64]) -> u64 {
    bytes.iter().sum::<u64>() - bytes.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(bytes: &[u64]) -> Option<Range<usize>> {
        choose(&Window { bytes, is_quiet: false, is_past: false, is_coarse: false })
    }

    #[test]
    fn small_files_are_merged_and_large_ones_stay() {
        assert_eq!(current(&[1, 1, 1]), None);
        assert_eq!(current(&[1, 1, 1, 1]), Some(0..4));
        assert_eq!(current(&[100, 1, 1, 1]), None);
        assert_eq!(current(&[100, 1, 1, 1, 1]), Some(1..5));
        assert_eq!(current(&[4, 1, 1, 1, 1]), Some(0..5));
        assert_eq!(current(&[1, 1, 1, 9, 2]), Some(0..4), "small ones below a large one");
    }

    #[test]
    fn a_bound_leaves_out_the_oldest_files() {
        assert_eq!(choose_within(&[4, 1, 1, 1, 1], 8), Some(0..5));
        assert_eq!(choose_within(&[4, 1, 1, 1, 1], 7), Some(1..5));
        assert_eq!(choose_within(&[4, 1, 1, 1, 1], 3), None);
        assert_eq!(choose_within(&[1, 1, 1], 8), None);
    }

    #[test]
    fn a_quiet_window_becomes_one_file() {
        let quiet = |bytes: &[u64], is_past| choose(&Window { bytes, is_quiet: true, is_past, is_coarse: false });
        assert_eq!(quiet(&[100, 1], false), None);
        assert_eq!(quiet(&[100, 49], false), None);
        assert_eq!(quiet(&[100, 50], false), Some(0..2));
        assert_eq!(quiet(&[100, 1], true), Some(0..2));
        assert_eq!(quiet(&[100], true), None);
    }

    #[test]
    fn steady_flushes_leave_few_files_and_write_each_byte_a_few_times() {
        let (mut files, mut written): (Vec<u64>, u64) = (Vec::new(), 0);
        let mut most = 0;
        for _ in 0..4096 {
            files.push(1);
            written += 1;
            while let Some(range) = current(&files) {
                let sum: u64 = files[range.clone()].iter().sum();
                written += sum;
                files.splice(range, [sum]);
            }
            most = most.max(files.len());
        }
        assert!(most <= 16, "{most} files");
        assert!(written <= 12 * 4096, "each byte was written {} times", written / 4096);
    }
}
