//! One value for every window of a column, by any aggregator. Declares no function.
//!
//! graphite-web folds every window from its first value to its last. So do we, or reach the same bit another way: sums
//! are made for many windows side by side, extremes and medians are kept from window to window. Only sums over windows
//! so long that this would take seconds are kept running, and may then differ in the last digits.

use std::collections::VecDeque;

use crate::{Aggregator, Error, functions::window_medians::medians, scope::Scope};

/// The value of each window of so many values; the first window ends with value number `points`, counted
/// from zero, so the oldest value is in no window. A window is unknown where the known share of it is below
/// `x_files_factor`.
pub(super) fn windows(
    values: &[f64],
    points: usize,
    aggregator: Aggregator,
    x_files_factor: f64,
    scope: &Scope,
) -> Result<Vec<f64>, Error> {
    let Some(count) = values.len().checked_sub(points) else { return Ok(Vec::new()) };
    if points == 0 {
        return Ok(vec![f64::NAN; count]);
    }
    // Windows 1..=count of values.windows(points).
    let values = values.get(1..).unwrap_or_default();
    let known = known_counts(values, points, scope)?;
    let mut folded = match aggregator {
        Aggregator::Sum | Aggregator::Average | Aggregator::AvgZero => sums(values, points, scope)?,
        Aggregator::Min => extremes(values, points, |kept, new| kept <= new, scope)?,
        Aggregator::Max => extremes(values, points, |kept, new| kept >= new, scope)?,
        Aggregator::Median => medians(values, points, scope)?,
        Aggregator::StdDev => deviations(values, points, &known, scope)?,
        Aggregator::Range => {
            let least = extremes(values, points, |kept, new| kept <= new, scope)?;
            let most = extremes(values, points, |kept, new| kept >= new, scope)?;
            scope.column_of_both(&most, &least, 2, |most, least| most - least)?
        }
        Aggregator::Count => known.clone(),
        other => each(values, points, other, scope)?,
    };
    for (i, (value, known)) in folded.iter_mut().zip(known).enumerate() {
        if i % BLOCK == 0 {
            scope.check_after(3 * BLOCK)?;
        }
        if known == 0.0 || known / (points as f64) < x_files_factor {
            *value = f64::NAN;
        } else if matches!(aggregator, Aggregator::Average | Aggregator::AvgZero) {
            // Nulls are taken out of a window before it is folded, so that both averages are the same.
            *value /= known;
        }
    }
    Ok(folded)
}

/// How many values of each window are known.
fn known_counts(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut known: u32 = 0;
    let mut counts = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    for (i, value) in values.iter().enumerate() {
        if i % BLOCK == 0 {
            scope.check_after(3 * BLOCK)?;
        }
        known += u32::from(!value.is_nan());
        if let Some(left) = i.checked_sub(points) {
            known -= u32::from(!values[left].is_nan());
        }
        if i + 1 >= points {
            counts.push(f64::from(known));
        }
    }
    Ok(counts)
}

/// Additions of one series beyond which window sums are kept running: about a tenth of a second.
const MAX_ADDITIONS: usize = 1 << 28;

/// Values between two questions for steps.
const BLOCK: usize = 4096;

/// Windows that are folded side by side.
const SIDE_BY_SIDE: usize = 16;

/// Window sums, each added from its first value to its last. So many windows are summed side by side as fit in
/// the processor's registers: the additions of one window wait for each other, those of several do not.
fn sums(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let count = (values.len() + 1).saturating_sub(points);
    let mut values = scope.column(values, 2, |value| if value.is_nan() { 0.0 } else { *value })?;
    if count.saturating_mul(points) > MAX_ADDITIONS {
        return running(&values, points, scope);
    }
    // The last group of windows may reach beyond the end; what it sums there is dropped.
    values.resize(values.len() + SIDE_BY_SIDE, 0.0);
    let mut sums = vec![0.0; count];
    for (group, out) in sums.chunks_mut(SIDE_BY_SIDE).enumerate() {
        scope.check_after(SIDE_BY_SIDE * points / 4)?;
        let mut side = [0.0; SIDE_BY_SIDE];
        let first = group * SIDE_BY_SIDE;
        let reached = values.get(first..first + points + SIDE_BY_SIDE - 1).unwrap_or_default();
        for later in reached.windows(SIDE_BY_SIDE) {
            for (sum, value) in side.iter_mut().zip(later) {
                *sum += value;
            }
        }
        out.copy_from_slice(&side[..out.len()]);
    }
    Ok(sums)
}

/// Window deviations: means first, then the sums of squares, both from the first value of a window to its last and
/// many windows side by side, as sums are.
fn deviations(values: &[f64], points: usize, known: &[f64], scope: &Scope) -> Result<Vec<f64>, Error> {
    if known.len().saturating_mul(points) > MAX_ADDITIONS {
        return each(values, points, Aggregator::StdDev, scope);
    }
    let mut means = sums(values, points, scope)?;
    for (mean, known) in means.iter_mut().zip(known) {
        *mean /= known;
    }
    let mut values = values.to_vec();
    values.resize(values.len() + SIDE_BY_SIDE, f64::NAN);
    let mut deviations = vec![0.0; means.len()];
    for (group, out) in deviations.chunks_mut(SIDE_BY_SIDE).enumerate() {
        scope.check_after(SIDE_BY_SIDE * points / 4)?;
        let first = group * SIDE_BY_SIDE;
        let (mut side, mut mean) = ([0.0; SIDE_BY_SIDE], [0.0; SIDE_BY_SIDE]);
        mean[..out.len()].copy_from_slice(&means[first..first + out.len()]);
        let reached = values.get(first..first + points + SIDE_BY_SIDE - 1).unwrap_or_default();
        for later in reached.windows(SIDE_BY_SIDE) {
            for ((sum, value), mean) in side.iter_mut().zip(later).zip(&mean) {
                let off = value - mean;
                *sum += if value.is_nan() { 0.0 } else { off * off };
            }
        }
        for ((out, sum), known) in out.iter_mut().zip(side).zip(&known[first..]) {
            *out = (sum / known).sqrt();
        }
    }
    Ok(deviations)
}

/// Window sums kept running: the entering value is added, the leaving one subtracted, and the rounding error
/// kept apart (Neumaier). An infinity would stay for ever, so it is counted apart.
fn running(values: &[f64], points: usize, scope: &Scope) -> Result<Vec<f64>, Error> {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    let (mut plus, mut minus) = (0_usize, 0_usize);
    let mut sums = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    for (i, value) in values.iter().enumerate() {
        if i % BLOCK == 0 {
            scope.check_after(10 * BLOCK)?;
        }
        let mut change = |value: f64, entering: bool| {
            if value.is_infinite() {
                let infinities = if value > 0.0 { &mut plus } else { &mut minus };
                *infinities = if entering { *infinities + 1 } else { *infinities - 1 };
                return;
            }
            let change = if entering { value } else { -value };
            let next = sum + change;
            lost += if sum.abs() >= change.abs() { (sum - next) + change } else { (change - next) + sum };
            sum = next;
        };
        change(*value, true);
        if let Some(left) = i.checked_sub(points) {
            change(values[left], false);
        }
        if i + 1 >= points {
            sums.push(match (plus, minus) {
                (0, 0) => sum + lost,
                (_, 0) => f64::INFINITY,
                (0, _) => f64::NEG_INFINITY,
                _ => f64::NAN,
            });
        }
    }
    Ok(sums)
}

/// Window extremes. The queue holds those values that no later one has outdone yet, each with its place; the
/// extreme is in front. The first of equals is kept, as in Python.
fn extremes(values: &[f64], points: usize, beats: impl Fn(f64, f64) -> bool, scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut queue: VecDeque<(usize, f64)> = VecDeque::new();
    let mut extremes = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    for (i, value) in values.iter().enumerate() {
        if i % BLOCK == 0 {
            scope.check_after(10 * BLOCK)?;
        }
        if !value.is_nan() {
            while queue.back().is_some_and(|(_, kept)| !beats(*kept, *value)) {
                queue.pop_back();
            }
            queue.push_back((i, *value));
        }
        if queue.front().is_some_and(|(place, _)| place + points <= i) {
            queue.pop_front();
        }
        if i + 1 >= points {
            extremes.push(queue.front().map_or(f64::NAN, |(_, value)| *value));
        }
    }
    Ok(extremes)
}

/// Windows folded one by one, without their nulls.
fn each(values: &[f64], points: usize, aggregator: Aggregator, scope: &Scope) -> Result<Vec<f64>, Error> {
    let mut known = Vec::with_capacity(points.min(values.len()));
    let mut folded = Vec::with_capacity((values.len() + 1).saturating_sub(points));
    for window in values.windows(points) {
        scope.check_after(8 * points)?;
        known.clear();
        known.extend(window.iter().filter(|value| !value.is_nan()));
        folded.push(if known.is_empty() { f64::NAN } else { aggregator.of(&known) });
    }
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;
    use crate::functions::window_medians::medians_agree;

    fn random_values(random: &SeededRandom, count: usize) -> Vec<f64> {
        let value = || match random.below(12) {
            0 | 1 => f64::NAN,
            2 => f64::INFINITY,
            3 => f64::NEG_INFINITY,
            4 => 0.0,
            5 => -0.0,
            _ => random.below(2_000_001) as f64 / 1e3 - 1e3,
        };
        (0..count).map(|_| value()).collect()
    }

    fn with_scope<T>(run: impl FnOnce(&Scope) -> Result<T, Error>) -> T {
        crate::scope::in_scope(|scope| run(scope)).expect("no budget to run out of")
    }

    #[test]
    fn a_window_among_others_has_the_value_that_it_has_alone() {
        for seed in 1..=300 {
            let random = SeededRandom::new(seed);
            let count = random.below(120) as usize;
            let values = random_values(&random, count);
            let points = 1 + random.below(40) as usize;
            let factor = [0.0, 0.3, 0.7, 1.0][random.below(4) as usize];
            let medians = with_scope(|scope| medians_agree(&values, points, scope));
            assert!(medians, "seed {seed}: medians of {points} in {values:?}");
            for (name, aggregator) in Aggregator::NAMES {
                let moved = with_scope(|scope| windows(&values, points, aggregator, factor, scope));
                let naive: Vec<f64> = values
                    .windows(points)
                    .skip(1)
                    .map(|window| {
                        let known: Vec<f64> = window.iter().copied().filter(|value| !value.is_nan()).collect();
                        let enough = !known.is_empty() && known.len() as f64 / points as f64 >= factor;
                        if enough { aggregator.of(&known) } else { f64::NAN }
                    })
                    .collect();
                let bits = |values: &[f64]| -> Vec<u64> {
                    // A zero's sign is lost in a median's sort, in Python as well.
                    values.iter().map(|value| if value.is_nan() { u64::MAX } else { (value + 0.0).to_bits() }).collect()
                };
                assert_eq!(bits(&moved), bits(&naive), "seed {seed}: {name} of {points} in {values:?}");
            }
        }
    }

    #[test]
    fn sums_that_are_kept_running_stay_near() {
        let random = SeededRandom::new(7);
        let values: Vec<f64> = (0..5000).map(|_| random.below(2_000_001) as f64 / 1e3 - 1e3).collect();
        let exact = with_scope(|scope| sums(&values, 300, scope));
        for (near, exact) in with_scope(|scope| running(&values, 300, scope)).iter().zip(exact) {
            assert!((near - exact).abs() < 1e-8, "{near} is not {exact}");
        }
    }
}
