//! The median of every window of a column. Declares no function.

use crate::{Error, aggregator::in_order, scope::Scope, sorted::sort};

/// The median of the known values of every window of so many values.
pub(super) fn medians(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    if points <= MAX_SORTED { sorted_medians(values, points, scope) } else { ranked_medians(values, points, scope) }
}

/// Values of a window up to which it is kept sorted: moving so many bytes is faster than a tree.
const MAX_SORTED: usize = 512;

/// Window medians, of a window that is kept sorted: the entering value takes the place of the leaving one, and the values
/// between the two move by one.
fn sorted_medians(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut sorted: Vec<f64> = Vec::with_capacity(points + 1);
    let mut medians = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    for (i, value) in values.iter().enumerate() {
        if i % 4096 == 0 {
            scope.check()?;
        }
        let leaving = i.checked_sub(points).map_or(f64::NAN, |left| values[left]);
        // The oldest of equals comes first, which shows in the sign of zeros.
        let first = |sorted: &[f64], value: f64| sorted.partition_point(|kept| *kept < value);
        let behind = |sorted: &[f64], value: f64| sorted.partition_point(|kept| *kept <= value);
        match (leaving.is_nan(), value.is_nan()) {
            (true, true) => {}
            (true, false) => sorted.insert(behind(&sorted, *value), *value),
            (false, true) => {
                sorted.remove(first(&sorted, leaving));
            }
            (false, false) => {
                let (from, to) = (first(&sorted, leaving), behind(&sorted, *value));
                if from < to {
                    sorted.copy_within(from + 1..to, from);
                    sorted[to - 1] = *value;
                } else {
                    sorted.copy_within(to..from, to + 1);
                    sorted[to] = *value;
                }
            }
        }
        if i + 1 < points {
            continue;
        }
        let middle = sorted.len() / 2;
        medians.push(match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        });
    }
    Ok(medians)
}

/// Window medians. 1. Every known value gets its rank among all. 2. A tree over the ranks counts which of them
/// are in the window. 3. The middle one is found by descending it. A window costs a few steps of log n.
fn ranked_medians(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let (sorted, ranks) = ranked(values, scope)?;
    let mut tree = RankTree::new(sorted.len());
    let mut medians = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    let mut inside = 0;
    for i in 0..values.len() {
        if i % 4096 == 0 {
            scope.check()?;
        }
        if ranks[i] != usize::MAX {
            tree.change(ranks[i], 1);
            inside += 1;
        }
        if let Some(left) = i.checked_sub(points).map(|left| ranks[left]).filter(|rank| *rank != usize::MAX) {
            tree.change(left, -1);
            inside -= 1;
        }
        if i + 1 < points {
            continue;
        }
        let at = |nth: i32| sorted[tree.nth(nth)];
        medians.push(match inside {
            0 => f64::NAN,
            odd if odd % 2 == 1 => at(odd / 2),
            even => (at(even / 2 - 1) + at(even / 2)) / 2.0,
        });
    }
    Ok(medians)
}

/// The known values sorted, and for each value its place among them; none has the last place.
fn ranked(values: &[f64], scope: &Scope) -> Result<(Vec<f64>, Vec<usize>), Error> {
    let mut place = 0..;
    let mut known = scope.column(values, 2, |value| (*value, place.next().unwrap_or(usize::MAX)))?;
    known.retain(|(value, _)| !value.is_nan());
    sort(&mut known, |(a, _), (b, _)| in_order(a, b), scope)?;
    let mut ranks = vec![usize::MAX; values.len()];
    let mut rank = 0..;
    let sorted = scope.column(&known, 10, |(value, place)| {
        ranks[*place] = rank.next().unwrap_or(usize::MAX);
        *value
    })?;
    Ok((sorted, ranks))
}

/// Counts of ranks, summed in a tree (Fenwick's), so that a change and a search take log n steps.
struct RankTree {
    // sums[i] is the count of the `lowest set bit of i` ranks before rank i.
    sums: Vec<i32>,
}

impl RankTree {
    fn new(ranks: usize) -> RankTree {
        RankTree { sums: vec![0; ranks + 1] }
    }

    fn change(&mut self, rank: usize, by: i32) {
        let mut i = rank + 1;
        while i < self.sums.len() {
            self.sums[i] += by;
            i += i & i.wrapping_neg();
        }
    }

    /// The rank of the n-th, counted from zero, of those that are in.
    fn nth(&self, mut n: i32) -> usize {
        let mut at = 0;
        let mut width = self.sums.len().next_power_of_two();
        while width > 0 {
            let next = at + width;
            if next < self.sums.len() && self.sums[next] <= n {
                n -= self.sums[next];
                at = next;
            }
            width /= 2;
        }
        at
    }
}

/// Whether both ways to the medians agree; both have all values.
#[cfg(test)]
pub(super) fn medians_agree(values: &[f64], points: usize, scope: &Scope) -> Result<bool, Error> {
    let (sorted, ranked) = (sorted_medians(values, points, scope)?, ranked_medians(values, points, scope)?);
    Ok(sorted.iter().zip(&ranked).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())))
}
