//! Sorting of long columns, which stops when the request is cancelled.

use std::cmp::Ordering;

use crate::{Error, scope::Scope};

/// Values that are sorted without a look at the flag: some milliseconds.
const PART: usize = 1 << 19;

/// Values that are merged without a look.
const BLOCK: usize = 1 << 14;

/// The known values of a column, sorted.
pub(crate) fn sorted_known(values: &[f64], scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut known = known(values, scope)?;
    sort(&mut known, f64::total_cmp, scope)?;
    Ok(known)
}

/// The known values of a column, in their order.
pub(crate) fn known(values: &[f64], scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut known = Vec::with_capacity(values.len());
    for block in values.chunks(BLOCK) {
        scope.check_after(2 * block.len())?;
        known.extend(block.iter().copied().filter(|value| !value.is_nan()));
    }
    Ok(known)
}

/// Sorts; equals keep their order. 1. Parts are sorted, each by itself. 2. Neighbours are merged to pairs, pairs to
/// fours, and so on.
pub(crate) fn sort<T: Copy>(
    values: &mut Vec<T>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    scope: &Scope,
) -> Result<(), Error> {
    for part in values.chunks_mut(PART) {
        scope.check_after(30 * part.len())?;
        part.sort_by(order);
    }
    if values.len() <= PART {
        return Ok(());
    }
    let mut merged = Vec::with_capacity(values.len());
    for block in values.chunks(BLOCK) {
        scope.check_after(10 * block.len())?;
        merged.extend_from_slice(block);
    }
    let mut width = PART;
    while width < values.len() {
        for (both, merged) in values.chunks(2 * width).zip(merged.chunks_mut(2 * width)) {
            let (left, right) = both.split_at(width.min(both.len()));
            merge(left, right, merged, order, scope)?;
        }
        std::mem::swap(values, &mut merged);
        width *= 2;
    }
    Ok(())
}

/// Of equals, those at the left come first.
fn merge<T: Copy>(
    left: &[T],
    right: &[T],
    merged: &mut [T],
    order: impl Fn(&T, &T) -> Ordering,
    scope: &Scope,
) -> Result<(), Error> {
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        // While so many are merged, neither side ends.
        let block = BLOCK.min(left.len() - l).min(right.len() - r);
        scope.check_after(4 * block)?;
        for next in &mut merged[l + r..l + r + block] {
            let from_right = order(&right[r], &left[l]) == Ordering::Less;
            *next = if from_right { right[r] } else { left[l] };
            r += usize::from(from_right);
            l += usize::from(!from_right);
        }
    }
    let rest = if l < left.len() { &left[l..] } else { &right[r..] };
    merged[l + r..].copy_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn long_columns_are_sorted_in_parts() {
        let random = SeededRandom::new(1);
        let value = |_| if random.below(50) == 0 { f64::NAN } else { random.below(1_000_000) as f64 - 5e5 };
        for count in [0, 1, 100, PART, PART + 1, 3 * PART + 7] {
            let values: Vec<f64> = (0..count).map(value).collect();
            let sorted = crate::scope::in_scope(|scope| sorted_known(&values, scope)).expect("not cancelled");
            let mut naive: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
            naive.sort_by(f64::total_cmp);
            assert_eq!(sorted, naive);
        }
    }
    #[test]
    fn equals_keep_their_order() {
        let random = SeededRandom::new(2);
        let mut values: Vec<(u64, usize)> = (0..3 * PART + 3).map(|place| (random.below(50), place)).collect();
        let mut naive = values.clone();
        naive.sort();
        crate::scope::in_scope(|scope| sort(&mut values, |a, b| a.0.cmp(&b.0), scope)).expect("not cancelled");
        assert_eq!(values, naive);
    }
}
