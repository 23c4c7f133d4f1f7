//! Values near decimals with few places: sums of decimals, which are off by a few units in the last place.
//!
//! 12.34 + 12.40 is not the double nearest to 24.74, but the next one. So a value is the integer 2474, the scale 2, and
//! the distance of the doubles, 1. Both numbers take few bits, also where a segment has few values. The few values that
//! are not near a decimal follow as exceptions.

use crate::floats::power;

/// Most decimal places of a scale. Sums of decimals with more are as large as doubles.
const MAX_SCALE: u8 = 6;

/// Largest distance in units in the last place: sums of a thousand numbers stay below it.
const MAX_DISTANCE: u64 = 512;

/// Integers below it are exact, and so are their distances.
const MAX_INTEGER: f64 = (1_u64 << 51) as f64;

/// Values that decide the scale, at most about.
const SAMPLE: usize = 32;

/// The nearest integer at a scale, and the distance of the value from the decimal.
#[inline]
fn split_one(value: f64, power: f64) -> Option<(i64, i64)> {
    let product = value * power;
    if product.is_nan() || MAX_INTEGER <= product.abs() {
        return None;
    }
    // An integer has no negative zero.
    let integer = product.round() as i64;
    let decimal = integer as f64 / power;
    let distance = (value.to_bits() as i64).wrapping_sub(decimal.to_bits() as i64);
    (distance.unsigned_abs() <= MAX_DISTANCE).then_some((integer, distance))
}

/// The value at a distance from a decimal.
#[inline]
pub(crate) fn at_distance(decimal: f64, distance: i64) -> f64 {
    f64::from_bits((decimal.to_bits() as i64).wrapping_add(distance) as u64)
}

/// Fills `integers` and `distances` with the values at the smallest scale that fits nearly all of them, and `exceptions`
/// with the indices of the others. Returns the scale; `None` when too many values are not near decimals.
pub(crate) fn split(
    values: &[f64],
    integers: &mut Vec<i64>,
    distances: &mut Vec<i64>,
    exceptions: &mut Vec<u32>,
) -> Option<u8> {
    let scale = scale_of(values)?;
    let (power, allowed) = (power(scale)?, values.len() / 8);
    integers.clear();
    distances.clear();
    exceptions.clear();
    let mut before = 0;
    for (i, &value) in values.iter().enumerate() {
        let distance = match split_one(value, power) {
            Some((integer, distance)) => {
                before = integer;
                distance
            }
            None if exceptions.len() == allowed => return None,
            None => {
                exceptions.push(i as u32);
                0
            }
        };
        integers.push(before);
        distances.push(distance);
    }
    Some(scale)
}

/// The smallest scale at which nearly all of a sample are near decimals.
fn scale_of(values: &[f64]) -> Option<u8> {
    let each = values.len().div_ceil(SAMPLE);
    let sample = || values.iter().step_by(each);
    let allowed = sample().count() / 8;
    (0..=MAX_SCALE).find(|&scale| {
        let power = power(scale).expect("a small scale");
        sample().filter(|&&value| split_one(value, power).is_none()).take(allowed + 1).count() <= allowed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_decimals_are_near_decimals_and_thirds_are_not() {
        let (mut integers, mut distances, mut exceptions) = (Vec::new(), Vec::new(), Vec::new());
        let mut split = |values: &[f64]| {
            let scale = split(values, &mut integers, &mut distances, &mut exceptions);
            (scale, integers.clone(), distances.clone(), exceptions.clone())
        };
        let (scale, integers, distances, exceptions) = split(&[0.1 + 0.2, 1.1 + 2.2, -0.1 - 0.2, 5.0]);
        assert_eq!((scale, integers), (Some(1), vec![3, 33, -3, 50]));
        assert_eq!((distances, exceptions), (vec![1, 1, 1, 0], vec![]));
        assert_eq!(split(&[1.0 / 3.0, 2.0 / 3.0]).0, None);
        assert_eq!(split(&[f64::INFINITY; 9]).0, None);
        let mut nearly_all = vec![0.1 + 0.2; 16];
        (nearly_all[3], nearly_all[7]) = (0.1 + 0.2 - 0.3, -0.0);
        let (scale, integers, _, exceptions) = split(&nearly_all);
        assert_eq!((scale, integers, exceptions), (Some(1), vec![3; 16], vec![3, 7]));
    }
}
