//! Sorting of long columns, which stops when the request is cancelled.

use crate::{Error, scope::Scope};

/// Values that are sorted without a look at the flag: some milliseconds.
const PART: usize = 1 << 16;

/// The known values of a column, sorted.
pub(crate) fn sorted_known(values: &[f64], scope: &Scope) -> Result<Vec<f64>, Error> {
    scope.check_after(2 * values.len())?;
    let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    for part in known.chunks_mut(PART) {
        scope.check_after(30 * part.len())?;
        part.sort_unstable_by(f64::total_cmp);
    }
    // The stable sort finds the sorted parts and merges them.
    if PART < known.len() {
        known.sort_by(f64::total_cmp);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use host::{Random, SeededRandom};

    use super::*;

    #[test]
    fn long_columns_are_sorted_in_parts() {
        let random = SeededRandom::new(1);
        let value = |_| if random.below(50) == 0 { f64::NAN } else { random.below(1_000_000) as f64 - 5e5 };
        for count in [0, 1, 100, PART, 3 * PART + 7] {
            let values: Vec<f64> = (0..count).map(value).collect();
            let sorted = crate::scope::in_scope(|scope| sorted_known(&values, scope)).expect("not cancelled");
            let mut naive: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
            naive.sort_by(f64::total_cmp);
            assert_eq!(sorted, naive);
        }
    }
}
